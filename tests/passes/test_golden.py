"""Each pass does to `<pass>/<claim>.tile` what the file says: the program, `---`, the one after it.

After `---` may also stand `error:` and the diagnostic, or `unchanged`. A comment `# target: avx2`
on the first line replaces the default, avx512; `sm_80` and `sm_90a` are GPUs'. Run this file as a
script to write the second halves anew, then read the difference.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tileworkbench.compiler.diagnostics import CompileError
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.passes.pipeline import pass_name, pipeline
from tileworkbench.compiler.target import Target, parse_target

TARGETS = {
    "avx512": Target("cpu", "avx512", vector_bits=512),
    "vnni": Target("cpu", "avx512", vector_bits=512, dot_int8=True),
    "avx2": Target("cpu", "avx2", vector_bits=256),
    "generic": Target("cpu", "generic", vector_bits=128),
    **{arch: parse_target(f"cuda:{arch}") for arch in ("sm_80", "sm_90", "sm_90a")},
    "gfx942": parse_target("hip:gfx942"),
}
# Passes of sm_90a alone.
NEWEST = {"specialize_warps", "turn_operands"}
HERE = Path(__file__).parent
CASES = sorted(path for path in HERE.glob("*/*.tile") if path.parent.name != "kernels")


def run(path: Path) -> tuple[str, str, str]:
    """The text of the program, what the pass makes of it, and what it should."""
    text, _, expected = path.read_text().partition("\n---\n")
    first = text.splitlines()[0]
    target = TARGETS[first.split(":")[1].strip() if first.startswith("# target:") else "avx512"]
    step = {pass_name(found): found for found in pipeline(target, sanitize=True)}[path.parent.name]
    program = parse(text)
    verify(program)
    try:
        after = step(program)
    except CompileError as error:
        return text, f"error: {error.render()}\n", expected
    verify(after)
    return text, "unchanged\n" if after is program else print_program(after), expected


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_pass(path: Path) -> None:
    _, found, expected = run(path)
    assert found == expected


def test_every_pass_has_a_case() -> None:
    tested = {path.parent.name for path in CASES}
    named = {target: {pass_name(p) for p in pipeline(TARGETS[target], True)} for target in TARGETS}
    assert named["avx512"] <= tested <= named["avx512"] | named["sm_90a"]
    assert named["sm_90a"] - named["sm_80"] == NEWEST <= tested
    assert "stage_results" in named["sm_80"] & tested


if __name__ == "__main__":
    for case in CASES:
        if len(sys.argv) == 1 or sys.argv[1] in str(case):
            source, result, _ = run(case)
            case.write_text(f"{source.rstrip()}\n---\n{result}")
