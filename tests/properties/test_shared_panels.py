"""Random blocks that multiply by panels: packing them once for several blocks changes no result."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as hs

from tests.tiers import examples
from tileworkbench.compiler.driver import lower_program
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.passes import share_panels
from tileworkbench.compiler.sim import simulate
from tileworkbench.compiler.target import Target

TARGET = Target("cpu", "avx512", vector_bits=512)
ROWS, COLUMNS, DEPTH = 16, 96, 16  # of a block, two panels wide
STOPS = ("3", "by + 1", "T.min(by + 1, 3)", "4 - by % 3", "(last + 15) // 16", "bx + bz + 1")


@hs.composite
def programs(draw: hs.DrawFn) -> str:
    """Blocks of rows, columns and batches: a loop over steps, of which the next block may have more
    or fewer, and an operand that may depend on any of their numbers.
    """
    grid = [draw(hs.sampled_from(extents)) for extents in ((1, 2, 3), (1, 2, 4, 6, 12), (1, 2, 4))]
    batch = draw(hs.sampled_from(("bz", "bz", "by % 4", "0")))
    step = draw(hs.sampled_from(("k * 16", "k * 16", "k * 16 + bz", "k * 16 + by", "last + k")))
    is_turned = draw(hs.booleans())
    of_b = (
        [("bx * 96", COLUMNS), (step, DEPTH)]
        if is_turned
        else [(step, DEPTH), ("bx * 96", COLUMNS)]
    )
    tile = tuple(extent for _, extent in of_b)
    lines = [
        f"with T.Kernel({', '.join(map(str, grid))}, threads=128) as (bx, by, bz):",
        f'    A_shared = T.alloc_shared({ROWS, DEPTH}, "float32")',
        f'    B_shared = T.alloc_shared({tile}, "float32")',
        f'    C_local = T.alloc_fragment({ROWS, COLUMNS}, "float32")',
        "    T.fill(C_local, 0.0)",
        "    last = by * 16 + 1",
        f"    for k in T.serial({draw(hs.sampled_from(STOPS))}):",
        f"        T.copy({region('A', ('bz', 1), ('by * 16', ROWS), ('k * 16', DEPTH))}, A_shared)",
        f"        T.copy({region('B', (batch, 1), *of_b)}, B_shared)",
        f"        T.gemm(A_shared, B_shared, C_local, transpose_B={is_turned})",
        f"    T.copy(C_local, {region('C', ('bz', 1), ('by * 16', ROWS), ('bx * 96', COLUMNS))})",
    ]
    shapes = {"A": (4, 192, 192), "B": (4, 288, 288), "C": (4, 192, 288)}
    params = [f'    {name}: T.Tensor({shape}, "float32"),' for name, shape in shapes.items()]
    header = ['@T.program(stage="tile")', "def products(", *params, "):"]
    return "\n".join([*header, *(f"    {line}" for line in lines)]) + "\n"


def region(name: str, *ranges: tuple[str, int]) -> str:
    return f"{name}[{', '.join(f'{low}:{low} + {extent}' for low, extent in ranges)}]"


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(programs(), hs.sampled_from((1, 4, 16)))
def test_sharing_changes_no_result(text: str, least: int) -> None:
    with mock.patch.object(share_panels, "MIN_BLOCKS", least):
        snapshots = lower_program(parse(text), TARGET)
    programs = {each.name: each.program for each in snapshots}
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(-4, 5, shape).astype(np.float32) for shape in ((4, 192, 192), (4, 288, 288))
    )
    found = []
    for name in ("lower_tile_operators", "share_panels"):
        c = np.full((4, 192, 288), 7, np.float32)
        result = simulate(programs[name], {"A": a, "B": b, "C": c}, signature=parse(text))
        assert result.report.ok, str(result.report)
        found.append(result.arrays["C"])
    np.testing.assert_array_equal(found[1], found[0])
