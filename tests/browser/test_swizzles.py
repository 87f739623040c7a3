"""The steppers of swizzles: the browser counts, writes and searches as Python does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.browser.scripts import call
from tests.browser.test_memory import as_data, random_shape
from tests.viz.tiled import compiled
from tileworkbench.compiler.diagnostics import ArgumentError, LayoutError
from tileworkbench.compiler.layout import Layout
from tileworkbench.viz.model.swizzles import Swizzle, best, measured
from tileworkbench.viz.model.tiles import shared_tiles

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PLACES = """
return data.map(({ tile, swizzle }) => {
  const problem = $swizzles.problemOf(tile, swizzle);
  if (problem) return { problem };
  const { table, size } = $swizzles.placesOf(tile, swizzle);
  return { table: [...table], size, text: $swizzles.textOf(tile, swizzle),
    width: $swizzles.engineWidth(tile, { table, size }) };
});
"""
OWN = """
return data.map(({ tile, swizzle }) => {
  tile.layout = swizzle ? $swizzles.placesOf(tile, swizzle) : { table: tile.table, size: 0 };
  const own = $swizzles.ownSwizzle(tile);
  return own && [own.b, own.m ?? 0, own.s ?? 0, own.chunk];
});
"""
COSTS = """
return data.map(({ tile, accesses, swizzles }) => {
  for (const access of accesses)
    for (const request of access.requests) request.addresses = Int32Array.from(request.addresses);
  const cost = (layout) => $whatif.measure(tile, accesses, layout);
  const found = swizzles.map((swizzle) => {
    const { problem, wavefronts, ideal } = cost($swizzles.placesOf(tile, swizzle));
    return problem ? null : [wavefronts, ideal];
  });
  const best = $swizzles.bestSwizzles(tile, accesses, cost);
  const row = ({ b, m, s, chunk, wavefronts }) => [b, m, s, chunk, wavefronts];
  return { found, best: best.map(row) };
});
"""


def as_swizzle(each: Swizzle) -> dict[str, int]:
    return {"b": each.bits, "m": each.base, "s": each.shift, "chunk": each.chunk}


def random_swizzle(random: np.random.Generator) -> Swizzle:
    bits, base = (int(random.integers(0, most)) for most in (5, 6))
    shift = int(random.integers(-7, 8))
    return Swizzle(bits, base, shift, int(random.choice([0, 0, 32, 64, 128])))


def width_of(layout: Layout, shape: tuple[int, ...], bits: int) -> int:
    for width in (32, 64, 128):
        try:
            own = Layout.swizzled(shape, bits, width)
        except LayoutError:
            continue
        if (own.table().reshape(-1) == layout.table().reshape(-1)).all():
            return width
    return 0


def test_places_and_texts(browser: Browser) -> None:
    random = np.random.default_rng(1)
    asked: list[dict[str, Any]] = []
    cases = [((64, 64), 16, Swizzle(3, 3, 3)), ((64, 64), 32, Swizzle(2, 2, 3, 64))]
    cases += [  # of these the formula has digits although bits are not whole
        *[((17, 32), 8, Swizzle(3, 5, 4)), ((1, 24), 16, Swizzle(1, 3, 1))],
        *[((6, 4), 32, Swizzle(1, 3, 1)), ((5, 32), 8, Swizzle(1, 6, 1))],
    ]
    cases += [
        (random_shape(random), int(random.choice([8, 16, 32])), random_swizzle(random))
        for _ in range(240)
    ]
    for shape, bits, swizzle in cases:
        tile = {"shape": shape, "bits": bits}
        asked.append({"tile": tile, "swizzle": as_swizzle(swizzle)})
    found = call(browser, ("swizzles",), PLACES, asked)
    problems = 0
    for (shape, bits, swizzle), made in zip(cases, found, strict=True):
        assert made.get("problem", "") == swizzle.problem(shape, bits)
        if "problem" in made:
            problems += 1
            continue
        layout = swizzle.layout(shape, bits)
        assert made["table"] == layout.table().reshape(-1).tolist(), (shape, bits, swizzle)
        assert made["size"] == np.prod(layout.output_shape)
        assert Layout.from_text(f"Layout({shape}, {made['text']})") == layout
        assert made["width"] == width_of(layout, shape, bits)
    assert 50 < problems < 200
    assert [made["width"] for made in found[:2]] == [128, 64]


def test_a_tile_s_own_swizzle_is_found(browser: Browser) -> None:
    """It has the tile's places, with as few bits as there are; what is no swizzle has none."""
    random = np.random.default_rng(3)
    cases = [
        (random_shape(random), int(random.choice([8, 16, 32])), random_swizzle(random))
        for _ in range(100)
    ]
    cases += [
        (shape, bits, Swizzle(each, base, sign * (each + more), chunk))
        for shape, bits in (((64, 64), 16), ((2, 32, 128), 8), ((128, 32), 32))
        for each, base, more in ((1, 4, 0), (2, 3, 1), (3, 2, 0), (3, 3, 0))
        for sign in (1, -1)
        for chunk in (0, 64)
    ]
    cases = [case for case in cases if not case[2].problem(*case[:2])]
    asked: list[dict[str, Any]] = [
        {"tile": {"shape": shape, "bits": bits}, "swizzle": as_swizzle(swizzle)}
        for shape, bits, swizzle in cases
    ]
    padded = {"shape": (4, 4), "bits": 32, "table": [5 * (at // 4) + at % 4 for at in range(16)]}
    *found, none = call(browser, ("swizzles",), OWN, [*asked, {"tile": padded}])
    assert none is None
    moving = 0
    for (shape, bits, swizzle), (own_bits, *rest) in zip(cases, found, strict=True):
        own = Swizzle(own_bits, *rest)
        assert own.layout(shape, bits) == swizzle.layout(shape, bits)
        assert own_bits <= swizzle.bits
        moving += own_bits > 0
    assert moving > 30


def test_counts_and_the_best(browser: Browser) -> None:
    random = np.random.default_rng(2)
    asked, expected, tiles = [], [], []
    for name in ("mm", "transpose", "conflicting", "ragged"):
        for tile in shared_tiles(compiled(name).view()):
            if tile.fixed:
                continue
            swizzles = [random_swizzle(random) for _ in range(25)]
            swizzles = [each for each in swizzles if not each.problem(tile.shape, tile.bits)]
            data = [as_data(tile, access, []) for access in tile.accesses]
            plain = data[0]["tile"] | {"shape": tile.shape}
            accesses = [each["access"] for each in data]
            sent = [as_swizzle(each) for each in swizzles]
            asked.append({"tile": plain, "accesses": accesses, "swizzles": sent})
            tiles.append(tile)
            expected.append([outcome(tile, each) for each in swizzles])
    found = call(browser, ("whatif", "swizzles"), COSTS, asked)
    for tile, made, counts in zip(tiles, found, expected, strict=True):
        assert made["found"] == counts
        assert made["best"] == [
            [*as_swizzle(each.swizzle).values(), each.wavefronts] for each in best(tile)
        ]
    assert sum(each is not None for counts in expected for each in counts) > 15


def outcome(tile: Any, swizzle: Swizzle) -> list[int] | None:
    try:
        made = measured(tile, swizzle)
    except ArgumentError:
        return None
    return [made.wavefronts, made.ideal]
