"""What torch gives for the images of `benchmarks/cost/`."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import BOTH, M, N, Reference, below, of


def bilateral(X: torch.Tensor) -> torch.Tensor:
    pieces = X.unfold(0, 5, 1).unfold(1, 5, 1)
    squares = (torch.arange(5) - 2) ** 2
    far = 0.1 * (squares[:, None] + squares)
    weights = (-2 * (pieces - X[2:-2, 2:-2, None, None]) ** 2 - far).exp()
    return (weights * pieces).sum((2, 3)) / weights.sum((2, 3))


def closing(X: torch.Tensor) -> torch.Tensor:
    most = torch.nn.functional.max_pool2d(X[None], 3, 1)
    return -torch.nn.functional.max_pool2d(-most, 3, 1)[0]


def corners(X: torch.Tensor) -> torch.Tensor:
    down, along = X[2:, 1:-1] - X[:-2, 1:-1], X[1:-1, 2:] - X[1:-1, :-2]
    products = torch.stack([down * down, along * down, along * along])
    sums = 9 * torch.nn.functional.avg_pool2d(products, 3, 1)
    return sums[0] * sums[2] - sums[1] ** 2 - 0.05 * (sums[0] + sums[2]) ** 2


def disparities(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    left, right = A.int(), B.int().unfold(1, A.shape[1], 1)
    off = (left[:, None] - right).abs().movedim(1, 0)
    sums = off.unfold(1, 5, 1).unfold(2, 5, 1).sum((3, 4))
    places = torch.arange(len(sums))[:, None, None]
    return torch.where(sums == sums.amin(0), places, len(sums)).amin(0).int()


def blurred_bytes(X: torch.Tensor) -> torch.Tensor:
    weights = torch.tensor([1, 4, 6, 4, 1])
    pieces = X.long().unfold(0, 5, 1).unfold(1, 5, 1)
    return ((torch.einsum("ijab,a,b->ij", pieces, weights, weights) + 128) // 256).byte()


def colours_of_video(Y: torch.Tensor, UV: torch.Tensor) -> torch.Tensor:
    light = 298 * (Y.int() - 16) + 128
    u, v = (UV.int() - 128).repeat_interleave(2, 0).repeat_interleave(2, 1).unbind(2)
    colours = torch.stack([light + 409 * v, light - 100 * u - 208 * v, light + 516 * u], 2)
    return (colours >> 8).clamp(0, 255).byte()


def structural_likeness(X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    x, y = (each.double().unfold(0, 7, 1).unfold(1, 7, 1).flatten(2) for each in (X, Y))
    a, b = x.mean(2), y.mean(2)
    variances = x.var(2, correction=0) + y.var(2, correction=0)
    both = ((x - a[..., None]) * (y - b[..., None])).mean(2)
    above = (2 * a * b + 6.5) * (2 * both + 58.5)
    return (above / ((a * a + b * b + 6.5) * (variances + 58.5))).float()


def mosaic_colours(X: torch.Tensor) -> torch.Tensor:
    rows, columns = (torch.arange(-1, size - 1) % 2 for size in X.shape)
    row, column = torch.meshgrid(rows, columns, indexing="ij")
    masks = torch.stack([(row | column) == 0, row != column, (row & column) == 1]).float()
    weights = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]])[None, None]
    total = torch.nn.functional.conv2d((masks * X)[:, None], weights)
    counts = torch.nn.functional.conv2d(masks[:, None], weights)
    own = (masks[:, None] * X)[..., 1:-1, 1:-1]
    made = torch.where(masks[:, None, 1:-1, 1:-1] > 0, own, total / counts)
    return (made[:, 0] / 4).floor().byte()


def wavelet_bands(X: torch.Tensor) -> torch.Tensor:
    def halves(x: torch.Tensor) -> torch.Tensor:
        even, odd = x[::2], x[1::2]
        detail = odd - torch.div(even[:-1] + even[1:], 2, rounding_mode="floor")
        sides = torch.div(detail[:-1] + detail[1:] + 2, 4, rounding_mode="floor")
        return torch.stack([even[1:-1] + sides, detail[1:]])

    along = halves(X.T.int())
    return torch.stack([halves(each.T) for each in along], 1).flatten(0, 1).to(torch.int16)


def cosine_codes(X: torch.Tensor, D: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    made = torch.einsum("uk,hkwl,vl->huwv", D, X.float() - 128, D) / q[:, None]
    return made.round().clamp(-128, 127).to(torch.int8)


REFERENCES: dict[str, Reference] = {
    "edges": (
        (M, N),
        BOTH,
        (of(M + 2, N + 2),),
        lambda x: torch.hypot(x[2:, 1:-1] - x[:-2, 1:-1], x[1:-1, 2:] - x[1:-1, :-2]),
    ),
    "bilateral": (
        (M, N),
        {"block_H": (1, 8), "block_W": (16, 64)},
        (of(M + 4, N + 4),),
        bilateral,
    ),
    "closing": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (of(M + 4, N + 4),),
        closing,
    ),
    "medians": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (of(M + 2, N + 2),),
        lambda x: x.unfold(0, 3, 1).unfold(1, 3, 1).flatten(2).median(2).values,
    ),
    "corners": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (of(M + 4, N + 4),),
        corners,
    ),
    "disparities": (
        (M, N, 6),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (below(16, M + 4, N + 4, dtype=torch.uint8), below(15, M + 4, N + 9, dtype=torch.uint8)),
        disparities,
    ),
    "blurred_bytes": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (below(256, M + 4, N + 4, dtype=torch.uint8),),
        blurred_bytes,
    ),
    "colours_of_video": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (below(256, M, N, dtype=torch.uint8), below(255, M // 2, N // 2, 2, dtype=torch.uint8)),
        colours_of_video,
    ),
    "structural_likeness": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (
            below(256, M + 6, N + 6, dtype=torch.uint8),
            below(256, M + 6, N + 6, dtype=torch.uint8) // 2 + below(90, M + 6, N + 6).byte(),
        ),
        structural_likeness,
    ),
    "mosaic_colours": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (below(1024, M + 2, N + 2, dtype=torch.int16),),
        mosaic_colours,
    ),
    "wavelet_bands": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (below(1024, 2 * M + 3, 2 * N + 3, dtype=torch.int16) - 512,),
        wavelet_bands,
    ),
    "cosine_codes": (
        (6, 8),
        {"block_H": (1, 2, 6), "block_W": (1, 4, 8)},
        (below(256, 6, 8, 8, 8, dtype=torch.uint8).flip(0), of(8, 8) / 3, of(8, 8).abs() + 9),
        cosine_codes,
    ),
}
