"""Random chains of element-wise nests and loops over few tiles: fusing changes no result."""

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
PLACES = (*["[{i}, {j}]"] * 4, "[{i}, 7 - {j}]", "[2 - {i}, {j}]", "[0, {j}]", "[{i}, 0]")
BUFFERS = ("P", "Q", "Y")


# The same in loops over `n` pieces of rows.
IN_LOOPS = (
    *["[{i}, {k} * {n} + {j}]"] * 6,
    *("[{i}, 7 - ({k} * {n} + {j})]", "[{i}, {j} + 1]"),
    *("[{i}, {k} * 2 + {j}]", "[{i}, {k}]"),
)
ROWS_OF_LOOPS = (*["3"] * 6, "2", "1, 3")
TILES, SUMS = ("P", "P", "Q"), ("S", "R")


@hs.composite
def chains(draw: hs.DrawFn) -> str:
    """The text of a program: nests and loops that write one element each and read one or two, and
    sums of rows.
    """
    # Everything is written once before, so that nothing is read uninitialised.
    lines = ["for a, b in T.Parallel(3, 8):"]
    lines += [f"    {name}[a, b] = X[a, b] * {n + 2}" for n, name in enumerate(BUFFERS)]
    lines += ["for c in T.Parallel(3):", *(f"    {name}[c] = c" for name in SUMS)]
    n = draw(hs.sampled_from((2, 4)))
    for number in range(draw(hs.integers(1, 6))):
        kind = draw(hs.sampled_from((nest, nest, loops, row_sums, row_sums, row_sums)))
        lines += kind(draw, number, n if draw(hs.integers(0, 4)) else COLUMNS // n)
    header = [
        '@T.program(stage="planned")',
        "def chain(",
        '    X: T.Tensor((3, 8), "int32"),',
        '    Y: T.Tensor((3, 8), "int32"),',
        '    Z: T.Tensor((2, 3), "int32"),',
        "):",
        "    with T.Kernel(1, threads=128) as bx:",
        *(f'        {name} = T.alloc_fragment((3, 8), "int32")' for name in BUFFERS[:2]),
        *(f'        {name} = T.alloc_fragment((3,), "int32")' for name in SUMS),
    ]
    lines += ["for d in T.Parallel(3):", *(f"    Z[{n}, d] = {s}[d]" for n, s in enumerate(SUMS))]
    return "\n".join([*header, *(f"        {line}" for line in lines)]) + "\n"


def assignment(draw: hs.DrawFn, places: tuple[str, ...], writes: int, **names: object) -> str:
    """One element by one or two others: without races where each is written once, and no other of
    its tile is read.
    """
    place = hs.sampled_from((*places, *(f"{s}[{{i}}]" for s in SUMS for _ in range(3))))
    names_and_places = hs.tuples(hs.sampled_from((*TILES, "Y", "X")), place)
    reads = draw(hs.lists(names_and_places, min_size=1, max_size=2))
    target, at = draw(hs.sampled_from((*TILES, "Y"))), draw(hs.sampled_from(places[:writes]))
    taken = [(name, at if name == target else where) for name, where in reads]
    values = [where if where[0] in SUMS else name + where for name, where in taken]
    return f"{target}{at} = {' + '.join(values)}".format(**names)


def nest(draw: hs.DrawFn, number: int, n: int) -> list[str]:
    """A nest over whole tiles."""
    i, j = f"i{number}", f"j{number}"
    body = assignment(draw, PLACES, 6, i=i, j=j)
    return [f"for {i}, {j} in T.Parallel(3, 8):", f"    {body} + {number}"]


def loops(draw: hs.DrawFn, number: int, n: int) -> list[str]:
    """Loops over pieces of `n` elements of rows."""
    i, j, k = (f"{name}{number}" for name in "ijk")
    rows = draw(hs.sampled_from(ROWS_OF_LOOPS))
    body = assignment(draw, IN_LOOPS, 8, i=i, j=j, k=k, n=n)
    return [
        f"for {i} in T.serial({rows}):",
        f"    for {k} in T.serial({COLUMNS // n}):",
        f"        for {j} in T.Parallel({n}):",
        f"            {body} + {number} * {k}",
    ]


def row_sums(draw: hs.DrawFn, number: int, n: int) -> list[str]:
    """The sums of rows of a tile, as reductions are lowered."""
    i, j, k, h = (f"{name}{number}" for name in "ijkh")
    rows = draw(hs.sampled_from(ROWS_OF_LOOPS))
    source, target = draw(hs.sampled_from(TILES)), draw(hs.sampled_from(SUMS))
    place = draw(hs.sampled_from(IN_LOOPS)).format(i=i, j=j, k=k, n=n)
    return [
        f"for {i} in T.serial({rows}):",
        f'    partial{number} = T.alloc_local(({n},), "int32")',
        f"    for {h} in T.Parallel({n}):",
        f"        partial{number}[{h}] = 0",
        f"    for {k} in T.serial({COLUMNS // n}):",
        f"        for {j} in T.Parallel({n}):",
        f"            partial{number}[{j}] = partial{number}[{j}] + {source}{place}",
        f"    {target}[{i}] = {target}[{i}] + T.lanes_sum(partial{number}[T.Ramp(0, 1, {n})])",
    ]


@settings(max_examples=examples(400), deadline=None, derandomize=True)
@given(chains())
def test_fusing_changes_no_result(text: str) -> None:
    program = parse(text)
    verify(program)
    fused = fuse_loops(program)
    verify(fused)
    x = np.arange(ROWS * COLUMNS, dtype=np.int32).reshape(ROWS, COLUMNS)
    found = []
    for version in (program, fused):
        arrays = {"X": x.copy(), "Y": np.zeros_like(x), "Z": np.zeros((2, 3), np.int32)}
        result = simulate(version, arrays)
        assert result.report.ok, str(result.report)
        found.append([result.arrays[name] for name in "YZ"])
    for fused_array, array in zip(found[1], found[0], strict=True):
        np.testing.assert_array_equal(fused_array, array)
