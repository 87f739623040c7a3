"""Random element-wise kernels: threads compute what the front end's program says."""

from __future__ import annotations

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as hs

from tests.lower.threads.cases import Case
from tests.lower.threads.planned import lowered
from tests.tiers import examples
from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.sim import simulate

_ROWS, _COLUMNS = (8, 16, 24, 64), (8, 16, 32, 40, 64)
_DTYPES = ("float32", "float16", "int32", "int8")


class _Writer:
    """Writes one kernel: tiles of one shape and rows and columns of it, combined in nests."""

    def __init__(self, data: hs.DataObject) -> None:
        self.draw = data.draw
        self.rows, self.columns = self.choose(_ROWS), self.choose(_COLUMNS)
        self.lines: list[str] = []
        self.tiles: dict[str, tuple[str, str]] = {}  # name -> shape kind, dtype
        self.names = 0

    def choose(self, options: object) -> object:
        return self.draw(hs.sampled_from(list(options)))  # type: ignore[call-overload]

    def shape(self, kind: str) -> str:
        return {
            "box": f"({self.rows}, {self.columns})",
            "turned": f"({self.columns}, {self.rows})",
            "row": f"({self.columns},)",
            "column": f"({self.rows},)",
        }[kind]

    def fresh(self, base: str) -> str:
        self.names += 1
        return f"{base}{self.names}"

    def allocate(self) -> None:
        kind = self.choose(("box", "box", "turned", "row", "column"))
        scope = self.choose(("fragment", "fragment", "shared"))
        dtype = self.choose(_DTYPES)
        name = self.fresh("t")
        self.tiles[name] = (str(kind), str(dtype))
        self.lines.append(f'{name} = T.alloc_{scope}({self.shape(str(kind))}, "{dtype}")')
        shift = self.choose((0, 0, 1, -2))
        corner = f"bx * {self.rows} + {shift}"
        regions = {
            "box": f"A[{corner}:{corner} + {self.rows}, 0:{self.columns}]",
            "turned": f"A[{shift}:{shift} + {self.columns}, 0:{self.rows}]",
            "row": f"A[{self.choose((0, 3))}:{{}}, 0:{self.columns}]",
            "column": f"A[{corner}:{corner} + {self.rows}, {self.choose((0, 5))}:{{}}]",
        }
        text = regions[str(kind)]
        if "{}" in text:
            start = int(text.split("{}")[0].rstrip(":").split("[")[-1].split(", ")[-1])
            text = text.format(start + 1)
        self.lines.append(f"T.copy({text}, {name})")

    def element(self, name: str, i: str, j: str, target: str) -> str:
        """An element; of the target only the one that the iteration writes."""
        kind, dtype = self.tiles[name]
        index = {"box": f"{i}, {j}", "turned": f"{j}, {i}", "row": j, "column": i}[kind]
        if kind == "box" and name != target and self.choose((False, False, True)):
            index = f"{i}, {j} // 4 * 4"
        return f"T.float32({name}[{index}])" if dtype != "float32" else f"{name}[{index}]"

    def nest(self) -> None:
        target = str(self.choose(self.tiles))
        kind, dtype = self.tiles[target]
        i, j = self.fresh("i"), self.fresh("j")
        extents = {"box": (i, j), "turned": (j, i), "row": (j,), "column": (i,)}[kind]
        sources = [n for n, (k, _) in self.tiles.items() if kind in ("box", "turned") or k == kind]
        terms = [self.element(str(self.choose(sources)), i, j, target) for _ in range(2)]
        value = f"T.min(T.max({terms[0]} + {terms[1]}, -8.0), 8.0)"
        value = value if dtype == "float32" else f"T.{dtype}({value})"
        sizes = {i: self.rows, j: self.columns}
        box = ", ".join(str(sizes[name]) for name in extents)
        self.lines.append(f"for {', '.join(extents)} in T.Parallel({box}):")
        guard = ""
        if self.choose((False, False, True)):
            guard = "    "
            self.lines.append(f"    if {extents[0]} % 3 != 1:")
        self.lines.append(f"    {guard}{target}[{', '.join(extents)}] = {value}")

    def result(self, number: int) -> str:
        name = list(self.tiles)[number]
        kind, _ = self.tiles[name]
        corner = f"bx * {self.rows}"
        region = {
            "box": f"[{corner}:{corner} + {self.rows}, 0:{self.columns}]",
            "turned": f"[bx * {self.columns}:bx * {self.columns} + {self.columns}, 0:{self.rows}]",
            "row": f"[bx:bx + 1, 0:{self.columns}]",
            "column": f"[{corner}:{corner} + {self.rows}, 0:1]",
        }[kind]
        return f"T.copy({name}, O{number}{region})"

    def case(self) -> Case:
        for _ in range(self.draw(hs.integers(1, 4))):
            self.allocate()
        for _ in range(self.draw(hs.integers(1, 4))):
            self.nest()
        self.lines += [self.result(number) for number in range(len(self.tiles))]
        width = self.draw(hs.sampled_from([self.columns, self.columns - 3, 64]))
        tensors = {"A": ((self.rows * 2 - 3, width), "float32")}
        for number in range(len(self.tiles)):
            tensors[f"O{number}"] = ((130, 66), "float32")
        threads = self.draw(hs.sampled_from([32, 64, 96, 128]))
        return Case(tensors, "\n".join(self.lines), threads, "2")


@settings(max_examples=examples(50), deadline=None, phases=[Phase.explicit, Phase.generate])
@given(hs.data())
def test_threads_agree_with_the_kernel(data: hs.DataObject) -> None:
    case = _Writer(data).case()
    source = case.program()
    arguments = case.arguments()
    arguments["A"] = arguments["A"] % 9 - 4
    try:
        made = lowered(source)
    except LayoutError as error:
        # The kernel asks one fragment of two layouts: that must be said, not computed wrongly.
        assert "do not hold" in error.message or "write one element" in error.message, error
        return
    expected = simulate(source, arguments).arrays
    found = simulate(made, arguments, signature=source)
    assert found.report.ok, f"{found.report}\n{print_program(made)}"
    for name, value in expected.items():
        np.testing.assert_array_equal(found.arrays[name], value, print_program(made))
