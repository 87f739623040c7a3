"""The JavaScript of the views: its types, checked by TypeScript where that is installed; its docs.

Users and continuous integration need no Node.js. `make check-js` installs TypeScript into `.venv`
and runs it; from then on the tests do too.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "tileworkbench" / "viz" / "static"
INSTALLED = ROOT / ".venv" / "node" / "node_modules" / ".bin" / "tsc"
LINES = 400

_IMPORTED = re.compile(r'^import \{([^}]*)\} from "\./(\w+\.js)";$', re.MULTILINE)
_EXPORTED = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)")


def check_types(*flags: str) -> subprocess.CompletedProcess[str]:
    """Run the type checker in the checkout; skips where there is none."""
    found = str(INSTALLED) if INSTALLED.exists() else shutil.which("tsc")
    if found is None or shutil.which("node") is None:
        pytest.skip("no TypeScript is installed; 'make check-js' installs it (needs npm)")
    return subprocess.run([found, *flags], cwd=ROOT, capture_output=True, text=True, check=False)


def undocumented(text: str) -> list[str]:
    """The exported functions and classes of a module that no comment stands above."""
    lines = text.splitlines()
    found = []
    for at, line in enumerate(lines):
        exported = _EXPORTED.match(line)
        function = "(" in line or "class" in line
        if exported and function and not lines[at - 1].rstrip().endswith("*/"):
            found.append(exported.group(1))
    return found


@pytest.mark.parametrize("module", sorted(path.name for path in STATIC.glob("*.js")))
def test_exports_are_documented(module: str) -> None:
    assert undocumented((STATIC / module).read_text()) == []


def test_what_is_not_documented_is_found() -> None:
    assert undocumented("/** a */\nexport const f = (x) => x;\nexport function g() {}") == ["g"]


def missing_imports(text: str, exports: dict[str, set[str]]) -> list[str]:
    """The names that a module imports and that no module exports."""
    return [
        f"{name} of {module}"
        for names, module in _IMPORTED.findall(text)
        for name in (part.split(" as ")[0].strip() for part in names.split(","))
        if name and name not in exports.get(module, set())
    ]


def exports_of(text: str) -> set[str]:
    """The names that a module exports."""
    return {found.group(1) for line in text.splitlines() if (found := _EXPORTED.match(line))}


def test_what_modules_import_is_exported() -> None:
    texts = {path.name: path.read_text() for path in STATIC.glob("*.js")}
    exports = {name: exports_of(text) for name, text in texts.items()}
    assert {name: missing_imports(text, exports) for name, text in texts.items()} == {
        name: [] for name in texts
    }
    wrong = 'import { span, spin as turn } from "./common.js";'
    assert missing_imports(wrong, exports) == ["spin of common.js"]


def test_no_module_is_too_long() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in STATIC.glob("*.js")}
    assert {name: count for name, count in lengths.items() if count > LINES} == {}


def test_the_types_agree() -> None:
    """Of all modules; every parameter has a type."""
    done = check_types("-p", "jsconfig.json")
    assert done.returncode == 0, done.stdout


def check_module(module: Path) -> subprocess.CompletedProcess[str]:
    """Run the type checker on a module outside of the checkout, as strictly as on its modules."""
    flags = ("--allowJs", "--checkJs", "--noEmit", "--strict", "--target", "es2023")
    return check_types(*flags, str(STATIC.parent / "types.d.ts"), str(module))


def test_a_wrong_type_is_found(tmp_path: Path) -> None:
    module = tmp_path / "wrong.js"
    module.write_text(f'import {{ finds }} from "{STATIC.as_posix()}/common.js";\nfinds(1, "a");\n')
    done = check_module(module)
    assert "'number' is not assignable to parameter of type 'string'" in done.stdout


def test_a_parameter_without_a_type_is_found(tmp_path: Path) -> None:
    module = tmp_path / "untyped.js"
    module.write_text("export const twice = (x) => 2 * x;\n")
    assert "Parameter 'x' implicitly has an 'any' type" in check_module(module).stdout
