"""The browser counts as Python does: phases, sectors, layouts, accesses under other layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.browser.scripts import call
from tests.kernels.test_gpu import CASES
from tests.viz.tiled import compiled
from tileworkbench.compiler.layout import Layout
from tileworkbench.compiler.sim.threads.requests import WarpAccess
from tileworkbench.viz.model import banks, sectors
from tileworkbench.viz.model.tiles import MisfitError, SharedTile, rearranged, shared_tiles

if TYPE_CHECKING:
    from playwright.sync_api import Browser

QUICK = ("matmul", "flash_attention", "topk", "histogram")
COUNTS = """
const { accesses } = $banks.decode(data);
const shared = data.unit === "bank";
return accesses.map((access) => {
  const cost = shared ? $memory.sharedCost(access) : $memory.globalCost(access);
  return shared ? [cost.wavefronts, cost.ideal, cost.degree] : [cost.sectors, cost.ideal];
});
"""
TABLES = """
return data.map(({ kind, shape, bits, size }) => {
  if (kind === "padded") return $memory.padded(shape, size);
  if (kind === "row") return $memory.rowMajor(shape);
  const problem = $memory.swizzleProblem(shape, bits, size);
  return problem ? { problem } : $memory.swizzled(shape, bits, size);
}).map(({ table, size, problem }) => problem ? { problem } : { table: [...table], size });
"""
TEXTS = "return data.map(([shape, pitch]) => $memory.paddedText(shape, pitch));"
MOVED = """
return data.map(({ tile, access, layouts }) => {
  for (const request of access.requests) request.addresses = Int32Array.from(request.addresses);
  return layouts.map((layout) => {
    const moved = $memory.rearranged(tile, access, layout);
    if (moved.problem) return { problem: moved.problem };
    const { wavefronts, ideal } = $memory.sharedCost(moved);
    return { wavefronts, ideal, last: [...moved.requests.at(-1).addresses] };
  });
});
"""
NARROWER = """
const { accesses, tiles } = $banks.decode(data.model);
const access = accesses.find((each) => each.tile === "A_shared" && each.side === "write");
const tile = tiles.get("A_shared");
return data.widths.map((width) => {
  const moved = $memory.rearranged(tile, access, tile.layout, width);
  return moved.problem ?? $memory.sharedCost(moved).wavefronts;
});
"""


def check_counts(browser: Browser, names: list[str]) -> None:
    """Each access of these kernels of the library: what is counted from addresses is `accesses`."""
    for name in names:
        kernel = tw.compile(CASES[name]()[0], target="sim:sm_80")
        view = kernel.view()
        found = []
        for model in (banks.model, sectors.model):
            made = model(view)
            counted = call(browser, ("banks",), COUNTS, made) if made["accesses"] else []
            used = "wavefronts" if made["unit"] == "bank" else "sectors"
            keys = (used, "ideal", "degree") if made["unit"] == "bank" else (used, "ideal")
            for access, count in zip(made["accesses"], counted, strict=True):
                assert count == [access[key] for key in keys], (name, access["kind"])
                found.append((access["buffer"], access["kind"], count[0], count[1]))
        listed = [
            (a.buffer, a.kind, a.wavefronts or a.sectors, a.ideal or a.ideal_sectors)
            for a in kernel.accesses
        ]
        assert sorted(found) == sorted(listed), name


def test_accesses_of_the_library(browser: Browser) -> None:
    check_counts(browser, list(QUICK))


@pytest.mark.slow
def test_accesses_of_the_rest_of_the_library(browser: Browser) -> None:
    check_counts(browser, sorted(set(CASES) - set(QUICK)))


def random_shape(random: np.random.Generator) -> tuple[int, ...]:
    lead = (int(random.integers(1, 4)),) if random.random() < 0.3 else ()
    columns = int(random.choice([8, 16, 24, 32, 48, 64, 96, 128]))
    return (*lead, int(random.integers(1, 40)), columns)


def test_layouts(browser: Browser) -> None:
    random = np.random.default_rng(0)
    asked: list[dict[str, Any]] = []
    expected: list[Layout | None] = []
    for _ in range(60):
        shape, bits = random_shape(random), int(random.choice([4, 8, 16, 32, 64]))
        asked.append({"kind": "row", "shape": shape, "bits": bits})
        expected.append(Layout.row_major(shape))
        pitch = shape[-1] + int(random.integers(0, 20))
        asked.append({"kind": "padded", "shape": shape, "size": pitch})
        expected.append(Layout.padded(shape, pitch))
        for width in (32, 64, 128):
            asked.append({"kind": "swizzled", "shape": shape, "bits": bits, "size": width})
            try:
                expected.append(Layout.swizzled(shape, bits, width))
            except tw.LayoutError:
                expected.append(None)
    found = call(browser, ("memory",), TABLES, asked)
    assert 20 < sum(layout is None for layout in expected) < 160
    for ask, made, layout in zip(asked, found, expected, strict=True):
        if layout is None:
            assert made["problem"], ask
        else:
            assert made["table"] == layout.table().reshape(-1).tolist(), ask
            assert made["size"] == np.prod(layout.output_shape), ask


def test_the_text_of_padded_rows(browser: Browser) -> None:
    shapes = [((4, 8), 9), ((3, 5, 7), 10), ((2, 2, 2, 2, 2, 2, 2, 3), 4)]
    texts = call(browser, ("memory",), TEXTS, shapes)
    for (shape, pitch), text in zip(shapes, texts, strict=True):
        assert Layout.from_text(f"Layout({shape}, {text})") == Layout.padded(shape, pitch)


def random_layouts(shape: tuple[int, ...], bits: int) -> list[Layout]:
    """Permutations that keep runs together, padded ones, swizzles and columns first."""
    random = np.random.default_rng(sum(shape) + bits)
    found = [Layout.row_major(shape), Layout.column_major(shape)]
    found += [Layout.padded(shape, shape[-1] + pad) for pad in (1, 2, 4, 8, 16)]
    for run in (1, 2, 4, 8):
        count = int(np.prod(shape)) // run
        places = random.permutation(count + 3)[:count]
        table = places[:, None] * run + np.arange(run)
        found.append(Layout.from_table(table.reshape(*shape, 1)))
    for width in (32, 64, 128):
        if shape[-1] * bits % (8 * width) == 0:
            found.append(Layout.swizzled(shape, bits, width))
    return found


def as_data(tile: SharedTile, access: WarpAccess, layouts: list[Layout]) -> dict[str, Any]:
    def plain(layout: Layout) -> dict[str, Any]:
        size = int(np.prod(layout.output_shape))
        return {"table": layout.table().reshape(-1).tolist(), "size": size}

    requests = [
        {
            "addresses": np.where(request.active, request.addresses, -1).tolist(),
            "times": request.times,
            "register": "",
        }
        for request in access.requests
    ]
    return {
        "tile": {"bits": tile.bits, "base": tile.base, "layout": plain(tile.layout)},
        "access": {"kind": access.count.kind, "width": access.count.width, "requests": requests},
        "layouts": [plain(layout) for layout in layouts],
    }


def test_accesses_under_other_layouts(browser: Browser) -> None:
    asked, expected = [], []
    for name in ("mm", "transpose", "conflicting"):
        for tile in shared_tiles(compiled(name).view()):
            layouts = random_layouts(tile.shape, tile.bits) if len(tile.shape) > 1 else []
            for access in tile.accesses:
                asked.append(as_data(tile, access, layouts))
                expected.append([outcome(tile, access, layout) for layout in layouts])
    found = call(browser, ("memory",), MOVED, asked)
    assert found == expected
    problems = [each["problem"] for row in expected for each in row if "problem" in each]
    for reason in ("are not together", "do not begin at a multiple of 16 bytes"):
        assert sum(reason in problem for problem in problems) > 5
    assert sum("wavefronts" in each for row in expected for each in row) > 40


def outcome(tile: SharedTile, access: WarpAccess, layout: Layout) -> dict[str, Any]:
    try:
        moved = rearranged(tile, access, layout)
    except MisfitError as error:
        return {"problem": str(error)}
    last = moved.requests[-1]  # of a pipeline's later version
    return {
        "wavefronts": moved.count.wavefronts,
        "ideal": moved.count.ideal,
        "last": np.where(last.active, last.addresses, -1).tolist(),
    }


def copied(width: int | None) -> tw.Kernel:
    @tw.jit(target="sim:sm_80")
    def mm(A, B):
        A: T.Tensor((64, 32), "float16")
        B: T.Tensor((32, 64), "float16")
        C = T.empty((64, 64), "float32")
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.copy(A, A_shared, coalesced_width=width)
            T.copy(B, B_shared)
            T.clear(C_local)
            T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C)
        return C

    return mm.compile()


def test_narrower_and_wider_vectors(browser: Browser) -> None:
    """What the browser makes of another width is what `coalesced_width` then compiles to."""
    counts = {}
    for elements in (1, 2, 4, 8):
        (store,) = [
            a for a in copied(elements).accesses if (a.buffer, a.kind) == ("A_shared", "store")
        ]
        counts[store.width] = store.wavefronts
    assert sorted(counts) == [2, 4, 8, 16]
    for elements in (1, 8):
        data = {"model": banks.model(copied(elements).view()), "widths": sorted(counts)}
        found = call(browser, ("banks",), NARROWER, data)
        assert found == [counts[width] for width in sorted(counts)]
