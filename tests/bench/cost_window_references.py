"""What torch gives for the moves, windows and scans of `benchmarks/cost/`."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import BOTH, ROWS, K, M, N, Reference, X, Y, below, of


def stencil(X: torch.Tensor) -> torch.Tensor:
    inner, last = slice(1, -1), slice(2, None)
    sides = X[inner, :-2] + X[inner, last] + X[:-2, inner] + X[last, inner]
    return (X[inner, inner] + sides) * 0.2


def wave(U: torch.Tensor, before: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    m = slice(1, -1)
    sides = U[:-2, m, m] + U[2:, m, m] + U[m, :-2, m] + U[m, 2:, m] + U[m, m, :-2] + U[m, m, 2:]
    return 2 * U[m, m, m] - before + c * (sides - 6 * U[m, m, m])


def depthwise(X: torch.Tensor, F: torch.Tensor) -> torch.Tensor:
    made = torch.nn.functional.conv2d(
        X.permute(2, 0, 1), F.permute(2, 0, 1)[:, None], groups=F.shape[2]
    )
    return made.permute(1, 2, 0)


def decaying_sums(X: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    rows = [X[0]]
    for row in X[1:]:
        rows.append(a * rows[-1] + row)
    return torch.stack(rows)


def selective_scan(
    X: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor
) -> torch.Tensor:
    state, made = torch.zeros_like(A), []
    for x, step, b, c in zip(X, torch.nn.functional.softplus(dt), B, C, strict=True):
        state = torch.exp(-step[:, None] * A.exp()) * state + (step * x)[:, None] * b
        made.append(state @ c)
    return torch.stack(made)


def diffusion(U: torch.Tensor, R: torch.Tensor) -> torch.Tensor:
    k = R.abs().T
    beside = torch.diag_embed(k[:, 1:], -1) + torch.diag_embed(k[:, :-1], 1)
    return torch.linalg.solve(torch.diag_embed(1 + 2 * k) - beside, U.T).T


def advantages(R: torch.Tensor, V: torch.Tensor, on: torch.Tensor) -> torch.Tensor:
    kept, rows = 0.99 * (on != 0), [torch.zeros(len(R))]
    gains = R + kept * V[:, 1:] - V[:, :-1]
    for gain, decay in zip(gains.T.flip(0), kept.T.flip(0), strict=True):
        rows.append(gain + 0.95 * decay * rows[-1])
    return torch.stack(rows[:0:-1], 1)


def warp(X: torch.Tensor, F: torch.Tensor) -> torch.Tensor:
    height, width = X.shape[1:]
    y = F[0] + torch.arange(height)[:, None]
    x = F[1] + torch.arange(width)
    places = torch.stack([2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1], 2)[None]
    sample = torch.nn.functional.grid_sample
    return sample(X[None], places, padding_mode="border", align_corners=True)[0]


def drawdowns(X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    made = 1 - (X - X.cummax(1).values).exp()
    return made, made.amax(1)


def shifted_windows(X: torch.Tensor) -> torch.Tensor:
    parts = X.roll((-2, -2), (0, 1)).reshape(4, 4, 6, 4, 20)
    return parts.permute(0, 2, 1, 3, 4).reshape(24, 16, 20)


def light_of_pixels(X: torch.Tensor) -> torch.Tensor:
    x = X.float().permute(2, 0, 1) / 255
    return torch.where(x > 0.04045, ((x + 0.055) / 1.055) ** 2.4, x / 12.92)


def graded_colours(X: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    places = (0.5 * X).clamp(-1, 1).flip(0).permute(1, 2, 0)[None, None]
    sample = torch.nn.functional.grid_sample
    return sample(table.permute(3, 0, 1, 2)[None], places, align_corners=True)[0, :, 0]


def lattice_flow(F: torch.Tensor) -> torch.Tensor:
    parts = F.abs().unfold(1, M, 1).unfold(2, N, 1).flip(1, 2).reshape(3, 3, 3, 3, M, N)
    f = torch.einsum("ababij->abij", parts)
    density, moves = f.sum((0, 1)), torch.tensor([-1.0, 0.0, 1.0])
    y, x = (torch.einsum(f"{k},abij->ij", moves, f) / density for k in "ab")
    move = 3 * (moves[:, None, None, None] * y + moves[:, None, None] * x)
    weight = torch.tensor([1.0, 4.0, 1.0]) / 6
    shape = 1 + move + move**2 / 2 - 1.5 * (x * x + y * y)
    goal = torch.outer(weight, weight)[..., None, None] * density * shape
    return (1.2 * goal - 0.2 * f).flatten(0, 1)


def delta_rule(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, rate: torch.Tensor
) -> torch.Tensor:
    state, made = torch.zeros(len(Q), V.shape[2], Q.shape[2]), []
    for q, k, v, r in zip(*(each.unbind(1) for each in (Q, K, V, rate)), strict=True):
        off = v - torch.einsum("hed,hd->he", state, k)
        step = r.sigmoid()[:, None] / Q.shape[2] * off
        state = state + step[..., None] * k[:, None]
        made.append(torch.einsum("hed,hd->he", state, q))
    return torch.stack(made, 1)


def resonators(X: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
    made = [torch.zeros(X.shape[0]), torch.zeros(X.shape[0])]
    for x in (X[:, 2:] - X[:, :-2]).T:
        made.append(x + 1.8 * f.cos() * made[-1] - 0.81 * made[-2])
    return torch.stack(made[2:], 1)


def pooled_boxes(X: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    steps = (torch.arange(5) + 0.5) / 5
    starts, ends = boxes[:, :2, None], boxes[:, 2:, None]
    down, along = ((starts + (ends - starts) * steps) / 4).clamp(-1, 1).unbind(1)
    shape = (len(boxes), 5, 5)
    grid = torch.stack([along[:, None].expand(shape), down[..., None].expand(shape)], 3)
    planes = X.permute(2, 0, 1).float().expand(len(boxes), -1, -1, -1)
    points = torch.nn.functional.grid_sample(planes, grid, align_corners=True)
    return points.flatten(2).mT


def hashed_grids(P: torch.Tensor, E: torch.Tensor) -> torch.Tensor:
    made = []
    for grid, features in enumerate(E.float()):
        place = (P / 8 + 0.5).clamp(0, 1) * (8 << grid)
        cell, total = place.floor().long(), 0.0
        for corner in torch.cartesian_prod(torch.arange(2), torch.arange(2)):
            x, y = (cell + corner).unbind(1)
            weight = (1 - corner - place + cell).abs().prod(1, keepdim=True)
            total = total + weight * features[(x ^ y * 2654435761) % len(features)]
        made.append(total)
    return torch.stack(made, 1)


REFERENCES: dict[str, Reference] = {
    "transpose": ((M, N), BOTH, (X,), lambda x: x.T),
    "channels_last": (
        (3, M, N),
        {"block_C": (1, 8), "block_P": (16, 64)},
        (of(3, M, N).bfloat16(), of(M), of(M).flip(0)),
        lambda x, s, t: (x.float() * s[:, None] + t[:, None]).mT,
    ),
    "embed": (
        (M, N, 16),
        BOTH,
        (below(16, M), of(16, N), X),
        lambda index, w, p: w[index.long()] * 8.0 + p,
    ),
    "bags": (
        (M, N, 5, 16),
        BOTH,
        (below(16, M, 5), of(M, 5), of(16, N)),
        lambda index, w, e: (w[..., None] * e[index.long()]).sum(1),
    ),
    "stencil": ((M, N), BOTH, (of(M + 2, N + 2),), stencil),
    "wave": (
        (4, 8, 16),
        {"block_D": (1, 4), "block_H": (1, 8), "block_W": (8, 16)},
        (of(6, 10, 18), of(4, 8, 16), of(512).view(4, 8, 16)),
        wave,
    ),
    "box_filter": (
        (M, N),
        BOTH,
        (of(M + 2, N + 2),),
        lambda x: x.unfold(0, 3, 1).unfold(1, 3, 1).mean((2, 3)),
    ),
    "moving_average": (
        (M, N),
        BOTH,
        (of(M + 7, N),),
        lambda x: x.unfold(0, 8, 1).mean(2),
    ),
    "causal_convolution": (
        (M, N),
        BOTH,
        (of(M + 3, N), of(4, N)),
        lambda x, w: sum(w[t] * x[t : t + M] for t in range(4)),
    ),
    "dilated": (
        (M, N),
        BOTH,
        (of(M, N + 16), of(5)),
        lambda x, w: sum(w[t] * x[:, 4 * t : 4 * t + N] for t in range(5)),
    ),
    "depthwise": (
        (8, 16, 32),
        {"block_H": (1, 4), "block_W": (2, 8), "block_C": (16, 32)},
        (of(10, 18, 32), of(3, 3, 32)),
        depthwise,
    ),
    "downsample": (
        (M // 2, N // 2),
        {"block_M": (1, 8), "block_N": (16, 32)},
        (X,),
        lambda x: torch.nn.functional.avg_pool2d(x[None], 2)[0],
    ),
    "max_pool": (
        (3, 8, 16),
        {"block_H": (1, 4), "block_W": (8, 16)},
        (of(3, 17, 33),),
        lambda x: torch.nn.functional.max_pool2d(x, 3, 2),
    ),
    "running_sums": ((M, N), ROWS, (X,), lambda x: x.cumsum(1)),
    "decaying_sums": ((M, N), BOTH, (X, of(N) / 4), decaying_sums),
    "selective_scan": (
        (M, K, 16),
        {"block_L": (1, 16), "block_D": (8, 48)},
        (of(M, K), of(K, M).T.contiguous(), of(K, 16), of(M, 16), of(16, M).T.contiguous()),
        selective_scan,
    ),
    "enlarge": (
        (3, 8, 16),
        {"block_C": (1, 3), "block_H": (1, 16), "block_W": (8, 32)},
        (of(3, 8, 16),),
        lambda x: torch.nn.functional.interpolate(x[None], scale_factor=2, mode="bilinear")[0],
    ),
    "diffusion": (
        (M, N),
        {"block_L": (1, 8), "block_N": (16, 64)},
        (X, Y),
        diffusion,
    ),
    "advantages": (
        (M, N),
        {"block_M": (1, 8), "block_L": (16, 64)},
        (X, of(M, N + 1), below(4, M, N, dtype=torch.uint8)),
        advantages,
    ),
    "warp": (
        (3, 8, 16),
        {"block_C": (1, 3), "block_H": (1, 8), "block_W": (8, 16)},
        (of(3, 8, 16), of(2, 8, 16)),
        warp,
    ),
    "pixel_shuffle": (
        (2, 8, 16, 3),
        {"block_C": (1, 2), "block_H": (1, 24), "block_W": (8, 48)},
        (of(18, 8, 16).bfloat16(),),
        lambda x: torch.nn.functional.pixel_shuffle(x, 3),
    ),
    "drawdowns": (
        (M, N),
        {"block_M": (1, 8, 32), "block_L": (8, 16, 64)},
        (X,),
        drawdowns,
    ),
    "shifted_windows": (
        (16, 24, 20, 4),
        {"block_B": (1, 6, 24), "block_P": (1, 4, 16), "block_C": (4, 20, 20)},
        (of(16, 24, 20),),
        shifted_windows,
    ),
    "light_of_pixels": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (below(255, M, N, 3, dtype=torch.uint8),),
        light_of_pixels,
    ),
    "turned_image": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (1, 16, 64)},
        (below(255, M, N, 3, dtype=torch.uint8),),
        lambda x: x.rot90(-1),
    ),
    "graded_colours": (
        (M, N, 5),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (of(3, M, N), of(5, 5, 5, 3)),
        graded_colours,
    ),
    "lattice_flow": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (of(9, M + 2, N + 2),),
        lattice_flow,
    ),
    "delta_rule": (
        (2, M, 16, 24),
        {"block_L": (1, 8, 32), "block_E": (1, 8, 24)},
        (of(2, M, 16), of(2, 16, M).mT.contiguous(), of(2, M, 24), of(2, M)),
        delta_rule,
    ),
    "resonators": (
        (M, N),
        {"block_M": (1, 8, 32), "block_L": (8, 16, 64)},
        (of(M, N + 2), of(M)),
        resonators,
    ),
    "pooled_boxes": (
        (6, 16, 20, K, 5),
        {"block_P": (1, 5, 25), "block_C": (8, 16, 48)},
        (of(16, 20, K).half(), 3 * of(6, 4)),
        pooled_boxes,
    ),
    "hashed_grids": (
        (K, 6, 256),
        {"block_N": (1, 8, 48), "block_G": (1, 2, 6)},
        (2 * of(K, 2), of(6, 256, 2).half()),
        hashed_grids,
    ),
}
