"""The words of a `%%tile` cell as data for the JupyterLab extension, which helps before any kernel
runs: the language with signatures and descriptions, flags, commands and what may follow them.

``python -m tileworkbench.viz.magics.vocabulary`` writes them to the extension of a checkout, and a
test says when that is due. All is read off the package: what may follow a flag is what `complete`
offers.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import tileworkbench.language as T
from tileworkbench.api import targets
from tileworkbench.compiler.frontend.dtypes import TileDType
from tileworkbench.language.unsupported import UNSUPPORTED
from tileworkbench.puzzles.task import all_tasks
from tileworkbench.viz.magics.extension import optional_pass_names
from tileworkbench.viz.magics.forms import FORMS
from tileworkbench.viz.magics.grammar import COMMANDS, Names, cell_parser, complete
from tileworkbench.viz.model.chapters import CHAPTERS, INDEX

FILE = Path(__file__).parents[3] / "extensions" / "labext" / "static" / "vocabulary.json"

# What stands for names that are known later: the extension, or the kernel, puts them in.
KERNELS, NAMES, TARGETS, PASSES = "<kernels>", "<names>", "<targets>", "<passes>"
_PROBE = Names(
    kernels=lambda: [KERNELS],
    starting=lambda text: [NAMES],
    targets=lambda: [TARGETS],
    passes=lambda: [PASSES],
    passes_of=lambda kernel: [],
)


def vocabulary() -> dict[str, Any]:
    """Everything, as JSON has it."""
    return {
        "language": {name: _entry(name) for name in sorted(T._names) if name not in UNSUPPORTED},
        "flags": _flags(),
        "forms": {
            form: {"about": about, "values": _offered(f"%%tile {form} ")}
            for form, about in FORMS.items()
        },
        "commands": {
            name: {"takes": takes, "about": about, "values": _offered(f"%tile {name} ")}
            for name, (takes, about) in COMMANDS.items()
        },
        "targets": ["auto", *(each.name for each in targets() if each.name[:3] != "hip")],
        "passes": optional_pass_names(),
        "course": {
            "index": INDEX,
            "chapters": [
                {"number": each.number, "title": each.title, "about": each.about, "file": each.file}
                for each in CHAPTERS
            ],
        },
        "puzzles": [{"number": number, "title": t.title} for number, t in all_tasks().items()],
    }


def _entry(name: str) -> dict[str, str]:
    """A name of the language: how it is written, and what it does."""
    value = getattr(T, name)
    if isinstance(value, TileDType):
        return {"kind": "dtype"}
    return {
        "kind": "class" if isinstance(value, type) else "function",
        "signature": f"T.{name}" if isinstance(value, type) else _signature(name, value),
        "about": inspect.getdoc(value) or "",
    }


def _signature(name: str, value: Any) -> str:
    """Names and defaults: nearly every parameter takes what Python has no type for."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(value).parameters.values()
    ]
    written = re.sub(r"<(\w+\.\w+): [^>]*>", r"T.\1", str(inspect.Signature(parameters)))
    return f"T.{name}{written}"


def _flags() -> list[dict[str, Any]]:
    """The flags of `%%tile`: all their names, whether a value follows and which ones may."""
    actions: list[Any] = [each for each in cell_parser()._actions if each.option_strings]
    return [
        {
            "names": list(each.option_strings),
            "takes": each.metavar or "",
            "about": each.help,
            "values": _offered(f"%%tile {each.option_strings[-1]} ") if each.metavar else [],
        }
        for each in actions
    ]


def _offered(line: str) -> list[str]:
    """What may follow."""
    words = complete(line, _PROBE)[1]
    return list(dict.fromkeys(word for word in words if not word.startswith("-")))


def text() -> str:
    """The file's text: an entry a line, so that two changes rarely meet."""
    parts = []
    for name, value in vocabulary().items():
        if isinstance(value, dict) and name in ("language", "commands"):
            rows = ",\n".join(f"{json.dumps(key)}: {_plain(each)}" for key, each in value.items())
            parts.append(f"{json.dumps(name)}: {{\n{rows}\n}}")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n".join(map(_plain, value))
            parts.append(f"{json.dumps(name)}: [\n{rows}\n]")
        else:
            parts.append(f"{json.dumps(name)}: {_plain(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    print(FILE)
