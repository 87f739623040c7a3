"""Random chains of element-wise nests over few tiles: fusing them changes no result."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as hs

from tests.tiers import examples
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.passes.fuse_loops import fuse_loops
from tileworkbench.compiler.sim import simulate

ROWS, COLUMNS = 3, 8
# Places of one element by the variables of a nest: straight, turned around, shifted, one for all.
PLACES = ("[{i}, {j}]", "[{i}, 7 - {j}]", "[2 - {i}, {j}]", "[0, {j}]", "[{i}, 0]")
BUFFERS = ("P", "Q", "Y")


@hs.composite
def chains(draw: hs.DrawFn) -> str:
    """The text of a program: nests that write one element each and read one or two."""
    lines, place = [], hs.sampled_from(PLACES)
    # Everything is written once before the nests, so that nothing is read uninitialised.
    lines += ["        for a, b in T.Parallel(3, 8):"]
    lines += [f"            {name}[a, b] = X[a, b] * {n + 2}" for n, name in enumerate(BUFFERS)]
    for number in range(draw(hs.integers(1, 5))):
        i, j = (f"{name}{number}" for name in "ij")
        reads = draw(
            hs.lists(hs.tuples(hs.sampled_from((*BUFFERS, "X")), place), min_size=1, max_size=2)
        )
        target = draw(hs.sampled_from(BUFFERS))
        # A nest is race-free where it writes every element once and reads no other of that buffer.
        turned = draw(hs.sampled_from(PLACES[:3]))
        reads = [(name, turned if name == target else at) for name, at in reads]
        value = " + ".join(name + at.format(i=i, j=j) for name, at in reads)
        lines.append(f"        for {i}, {j} in T.Parallel(3, 8):")
        lines.append(f"            {target}{turned.format(i=i, j=j)} = {value} + {number}")
    header = [
        '@T.program(stage="planned")',
        "def chain(",
        '    X: T.Tensor((3, 8), "int32"),',
        '    Y: T.Tensor((3, 8), "int32"),',
        "):",
        "    with T.Kernel(1, threads=128) as bx:",
        *(f'        {name} = T.alloc_fragment((3, 8), "int32")' for name in BUFFERS[:2]),
    ]
    return "\n".join([*header, *lines]) + "\n"


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(chains())
def test_fusing_changes_no_result(text: str) -> None:
    program = parse(text)
    verify(program)
    fused = fuse_loops(program)
    verify(fused)
    x = np.arange(ROWS * COLUMNS, dtype=np.int32).reshape(ROWS, COLUMNS)
    found = []
    for version in (program, fused):
        arrays = {"X": x.copy(), "Y": np.zeros_like(x)}
        result = simulate(version, arrays)
        assert result.report.ok, str(result.report)
        found.append(result.arrays["Y"])
    np.testing.assert_array_equal(found[1], found[0])
