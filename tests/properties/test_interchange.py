"""Random nests over few tiles, some in serial loops: putting the loops inside of strips changes no
result.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as hs

from tests.tiers import examples
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.passes.interchange_loops import InterchangeLoops
from tileworkbench.compiler.sim import simulate
from tileworkbench.compiler.target import parse_target

# A strip is eight columns, or four: one or two strips, and columns that are left over.
NARROW = replace(parse_target("cpu"), vector_bits=32)
COLUMNS = (5, 8, 11, 16)
TILES = ("P", "P", "Q")
# Places of an element, different ones at different points, by the variables of a nest of `n`
# columns, of the loop around it, and of a name for the latter.
WRITTEN = (
    *["[{i}, {j}]"] * 6,
    "[{i}, {n} - 1 - {j}]",
    "[2 - {i}, {j}]",
    "[{i}, ({j} + {t}) % {n}]",
    "[{i}, {j} + {t}]",
    "[{i}, {j} + {h}]",
)
READ = (*WRITTEN, "[0, {j}]", "[{i}, 0]", "[{t}, {j}]", "[{i}, {t}]")
DEEP = ("[{t}, {i}, {j}]", "[{i}, {t}, {j}]", "[1, {i}, {j}]")
LOOPS = (("t",), ("t",), ("t",), ("t", "u"), ("u", "t"), ())


@hs.composite
def programs(draw: hs.DrawFn) -> tuple[str, int]:
    """The text of a program and its number of columns: nests that write one or two elements, of one
    or two others.
    """
    n = draw(hs.sampled_from(COLUMNS))
    lines = [f"for a, b in T.Parallel(3, {n}):", "    Q[a, b] = X[a, b] * 3"]
    lines += [f"for c, d in T.Parallel(3, {n + 2}):", "    P[c, d] = X[c, d] * 2"]
    lines += ["    Y[c, d] = X[c, d] * 5"]
    lines += [f"for e, f, g in T.Parallel(3, 3, {n}):", "    R[e, f, g] = e + f + g"]
    for number in range(draw(hs.integers(1, 5))):
        lines += statement(draw, number, n)
    for name, where in (("P", "c, d"), ("Q", "c, d"), ("R", "1, c, d")):
        if draw(hs.booleans()):
            lines += [
                f"for c, d in T.Parallel(3, {n}):",
                f"    Y[c, d] = Y[c, d] + {name}[{where}]",
            ]
    header = [
        '@T.program(stage="planned")',
        "def chain(",
        f'    X: T.Tensor((3, {n + 2}), "int32"),',
        f'    Y: T.Tensor((3, {n + 2}), "int32"),',
        f'    Z: T.Tensor((3, 3, {n}), "int32"),',
        "):",
        "    with T.Kernel(1, threads=128) as bx:",
        f'        P = T.alloc_fragment((3, {n + 2}), "int32")',
        f'        Q = T.alloc_fragment((3, {n}), "int32")',
        f'        R = T.alloc_fragment((3, 3, {n}), "int32")',
    ]
    return "\n".join([*header, *(f"        {line}" for line in lines)]) + "\n", n


def statement(draw: hs.DrawFn, number: int, n: int) -> list[str]:
    """A nest with the loops around it: without races, as each writes an element once and reads no
    other of that buffer.
    """
    loops = draw(hs.sampled_from(LOOPS))
    names = {name: f"{name}{number}" for name in "ijh"} | {"n": str(n)}
    names["t"] = f"t{number}" if "t" in loops else "1"
    inside = "    " * len(loops)
    lines = [
        f"{'    ' * depth}for {loop}{number} in T.serial({draw(hs.sampled_from((2, 3, 1, 0)))}):"
        for depth, loop in enumerate(loops)
    ]
    rows = draw(hs.sampled_from((3, 3, 3, 3, 2)))
    lines.append(f"{inside}for {names['i']}, {names['j']} in T.Parallel({rows}, {n}):")
    if draw(hs.booleans()):
        lines.append(f"{inside}    {names['h']} = {names['t']} + 0 * {names['i']}")
    else:
        names["h"] = names["t"]
    targets = draw(
        hs.lists(hs.sampled_from((*TILES, "Y", "Z", "R")), min_size=1, max_size=2, unique=True)
    )
    written = {name: place(draw, name, WRITTEN) for name in targets}
    for name, at in written.items():
        reads = draw(hs.lists(hs.sampled_from((*TILES, "Y", "X", "R")), min_size=1, max_size=2))
        values = [read + written.get(read, place(draw, read, READ)) for read in reads]
        lines.append(f"{inside}    {name}{at} = {' + '.join(values)} + {number}")
    return [line.format(**names) for line in lines]


def place(draw: hs.DrawFn, name: str, places: tuple[str, ...]) -> str:
    """An element of a buffer: moved along where there is room for it."""
    if name in "ZR":
        return draw(hs.sampled_from(DEEP))
    if name == "Q":
        places = tuple(each for each in places if "j} +" not in each or "%" in each)
    return draw(hs.sampled_from(places))


@settings(max_examples=examples(800), deadline=None, derandomize=True)
@given(programs())
def test_interchanging_changes_no_result(made: tuple[str, int]) -> None:
    text, columns = made
    program = parse(text)
    verify(program)
    interchanged = InterchangeLoops(NARROW)(program)
    verify(interchanged)
    x = np.arange(3 * (columns + 2), dtype=np.int32).reshape(3, columns + 2)
    found = []
    for version in (program, interchanged):
        z = np.zeros((3, 3, columns), np.int32)
        result = simulate(version, {"X": x.copy(), "Y": np.zeros_like(x), "Z": z})
        assert result.report.ok, str(result.report)
        found.append([result.arrays[name] for name in "YZ"])
    for array, expected in zip(found[1], found[0], strict=True):
        np.testing.assert_array_equal(array, expected)
