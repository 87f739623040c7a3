"""Random nests that read tensors along rows, down columns and across: what a pass copies into tiles
before changes no result.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as hs

from tests.tiers import examples
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.passes.turn_reads import TurnReads
from tileworkbench.compiler.sim import simulate
from tileworkbench.compiler.target import parse_target

SIZE = 96
TARGET = parse_target("cpu")  # vectors of 16 elements
EXTENTS = (1, 5, 16, 32, 80, 96)


@hs.composite
def programs(draw: hs.DrawFn) -> str:
    """A nest that adds two or three elements of X and Y, which may move with either variable, with
    both or with none, from before the first element to behind the last.
    """
    rows, columns = draw(hs.sampled_from(EXTENTS)), draw(hs.sampled_from(EXTENTS))
    named = draw(hs.booleans())
    steps = ("i", "i", "j", "j", "i + j", "i * 2", "95 - j", "i // 2", "0", "b", "b * 16 + i")
    steps += ("j + i // 8", "i + k[j]", *(("h", "h", "j + h") if named else ()))
    lines = [f"for i, j in T.Parallel({rows}, {columns}):"]
    if named:
        lines.append(f"    h = {draw(hs.sampled_from(('j', 'i + 3', 'b', 'k[i]')))}")
    target = draw(hs.sampled_from(("Z[b, i, j]", "Z[b, j, i]")))
    # Where one is stored down columns the other is read so.
    reads = [draw(hs.sampled_from(("X[i, j]", "X[i + b, j - 2]", "Y[j, i]", "Y[j + 3, i - 1]")))]
    for _ in range(draw(hs.integers(0, 2))):
        at = [f"{draw(hs.sampled_from(steps))} + {draw(hs.integers(-3, 3))}" for _ in "xy"]
        reads.append(f"{draw(hs.sampled_from('XXY'))}[{', '.join(at)}]")
    lines.append(f"    {target} = {' + '.join(reads)}")
    header = [
        '@T.program(stage="tile", safe_values={"Y": 7})',
        "def nest(",
        *(f'    {name}: T.Tensor(({SIZE}, {SIZE}), "int32"),' for name in "XY"),
        f'    k: T.Tensor(({SIZE},), "int32"),',
        f'    Z: T.Tensor((2, {SIZE}, {SIZE}), "int32"),',
        "):",
        "    with T.Kernel(2, threads=128) as b:",
    ]
    return "\n".join([*header, *(f"        {line}" for line in lines)]) + "\n"


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(programs())
def test_turning_changes_no_result(text: str) -> None:
    program = parse(text)
    verify(program)
    turned = TurnReads(TARGET)(program)
    verify(turned)
    x = np.arange(SIZE * SIZE, dtype=np.int32).reshape(SIZE, SIZE)
    found = []
    for version in (program, turned):
        z, k = np.zeros((2, SIZE, SIZE), np.int32), np.arange(SIZE, dtype=np.int32)[::-1].copy()
        result = simulate(version, {"X": x.copy(), "Y": -x, "k": k, "Z": z})
        assert result.report.ok, str(result.report)
        found.append(result.arrays["Z"])
    np.testing.assert_array_equal(found[1], found[0])
