"""What torch gives for the kernels of `benchmarks/cost/` that are held out."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import A, K, M, N, Reference, X, Y, below, of


def gaussian_densities(X: torch.Tensor, U: torch.Tensor, S: torch.Tensor) -> torch.Tensor:
    off = X[:, :, None] - U
    return -0.5 * ((-S).exp() * off * off + S).sum(1)


def bytes_convolution(X: torch.Tensor, filters: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    weights = filters.reshape(3, 3, *filters.shape[1:]).permute(3, 2, 0, 1)
    total = torch.nn.functional.conv2d(X.permute(2, 0, 1).double(), weights.double())
    return (total.permute(1, 2, 0).float() * s).round().clamp(0, 127).to(torch.int8)


def linear_attention(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    q, k = (torch.nn.functional.elu(each.float()) + 1 for each in (Q, K))
    scores = q @ k.mT
    return scores / scores.sum(2, keepdim=True) @ V.float()


def triplet_loss(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> torch.Tensor:
    a, b, c = A.float(), B.float(), C.float()
    return ((a - b).norm(dim=1) - (a - c).norm(dim=1) + 0.5).relu()


def packed_signs(X: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    bits = (X.float() > t).unflatten(1, (-1, 32)).long()
    return (bits << torch.arange(32)).sum(2).int(), bits.sum((1, 2)).int()


def kepler_places(s: torch.Tensor, r: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    flat, mean = 0.8 * s.sigmoid()[:, None], torch.outer(r, t)
    angle = mean
    for _ in range(5):
        angle = angle - (angle - flat * angle.sin() - mean) / (1 - flat * angle.cos())
    return torch.stack([angle.cos() - flat, (1 - flat * flat).sqrt() * angle.sin()])


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


def warped_distances(X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    far = torch.full(X.shape[1:], torch.inf)
    row = [torch.zeros_like(far)] + [far] * len(Y)
    for x in X:
        made = [far]
        for s, y in enumerate(Y):
            least = torch.minimum(torch.minimum(row[s], row[s + 1]), made[-1])
            made.append((x - y).abs() + least)
        row = made
    return row[-1]


def pooled_boxes(X: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    steps = (torch.arange(5) + 0.5) / 5
    starts, ends = boxes[:, :2, None], boxes[:, 2:, None]
    down, along = ((starts + (ends - starts) * steps) / 4).clamp(-1, 1).unbind(1)
    shape = (len(boxes), 5, 5)
    grid = torch.stack([along[:, None].expand(shape), down[..., None].expand(shape)], 3)
    planes = X.permute(2, 0, 1).float().expand(len(boxes), -1, -1, -1)
    points = torch.nn.functional.grid_sample(planes, grid, align_corners=True)
    return points.flatten(2).mT


def clipped_sums(X: torch.Tensor) -> torch.Tensor:
    x = X.float()
    return (x * (9 / x.norm(dim=2, keepdim=True)).clamp(max=1)).sum(1)


def centres_of_groups(X: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    is_in = (group == torch.arange(8)[:, None]).float()
    return is_in @ X.float() / is_in.sum(1, keepdim=True).clamp(1)


REFERENCES: dict[str, Reference] = {
    "gaussian_densities": (
        (M, N, K),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (8, 16, 48)},
        (A, of(K, N), of(N, K).T.contiguous() / 2),
        gaussian_densities,
    ),
    "bytes_convolution": (
        (12, 16, 8, 24),
        {"block_H": (1, 4, 12), "block_W": (2, 8, 16)},
        (
            (below(256, 14, 18, 8) - 128).to(torch.int8),
            (below(255, 9, 8, 24) - 127).to(torch.int8),
            of(24).abs() / 999,
        ),
        bytes_convolution,
    ),
    "linear_attention": (
        (3, M, 24, K),
        {"block_L": (1, 8, 32), "block_E": (8, 16, 48)},
        (of(3, M, 24).bfloat16(), of(3, 24, M).mT.contiguous().bfloat16(), of(3, M, K).bfloat16()),
        linear_attention,
    ),
    "triplet_loss": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X.bfloat16(), Y.bfloat16(), of(2 * M, N)[:M].bfloat16()),
        triplet_loss,
    ),
    "packed_signs": (
        (M, 6),
        {"block_M": (1, 8, 32), "block_W": (1, 3, 6)},
        (of(M, 192).half(), of(192) / 4),
        packed_signs,
    ),
    "kepler_places": (
        (M, N, 5),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (of(M), of(M).flip(0), of(N)),
        kepler_places,
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
    "warped_distances": (
        (M, 20, 24),
        {"block_L": (1, 8, 32), "block_B": (1, 6, 24)},
        (of(M, 24), of(20, 24)),
        warped_distances,
    ),
    "pooled_boxes": (
        (6, 16, 20, K, 5),
        {"block_P": (1, 5, 25), "block_C": (8, 16, 48)},
        (of(16, 20, K).half(), 3 * of(6, 4)),
        pooled_boxes,
    ),
    "clipped_sums": (
        (3, M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (1.2 * of(3, M, N).half(),),
        clipped_sums,
    ),
    "centres_of_groups": (
        (M, N, 8),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X.bfloat16(), below(7, M)),
        centres_of_groups,
    ),
}
