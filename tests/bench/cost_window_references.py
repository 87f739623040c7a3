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


def bilateral(X: torch.Tensor) -> torch.Tensor:
    pieces = X.unfold(0, 5, 1).unfold(1, 5, 1)
    squares = (torch.arange(5) - 2) ** 2
    far = 0.1 * (squares[:, None] + squares)
    weights = (-2 * (pieces - X[2:-2, 2:-2, None, None]) ** 2 - far).exp()
    return (weights * pieces).sum((2, 3)) / weights.sum((2, 3))


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


def closing(X: torch.Tensor) -> torch.Tensor:
    most = torch.nn.functional.max_pool2d(X[None], 3, 1)
    return -torch.nn.functional.max_pool2d(-most, 3, 1)[0]


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


def corners(X: torch.Tensor) -> torch.Tensor:
    down, along = X[2:, 1:-1] - X[:-2, 1:-1], X[1:-1, 2:] - X[1:-1, :-2]
    products = torch.stack([down * down, along * down, along * along])
    sums = 9 * torch.nn.functional.avg_pool2d(products, 3, 1)
    return sums[0] * sums[2] - sums[1] ** 2 - 0.05 * (sums[0] + sums[2]) ** 2


def resonators(X: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
    made = [torch.zeros(X.shape[0]), torch.zeros(X.shape[0])]
    for x in (X[:, 2:] - X[:, :-2]).T:
        made.append(x + 1.8 * f.cos() * made[-1] - 0.81 * made[-2])
    return torch.stack(made[2:], 1)


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
    "edges": (
        (M, N),
        BOTH,
        (of(M + 2, N + 2),),
        lambda x: torch.hypot(x[2:, 1:-1] - x[:-2, 1:-1], x[1:-1, 2:] - x[1:-1, :-2]),
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
    "bilateral": (
        (M, N),
        {"block_H": (1, 8), "block_W": (16, 64)},
        (of(M + 4, N + 4),),
        bilateral,
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
    "closing": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (of(M + 4, N + 4),),
        closing,
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
    "medians": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (of(M + 2, N + 2),),
        lambda x: x.unfold(0, 3, 1).unfold(1, 3, 1).flatten(2).median(2).values,
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
    "corners": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (of(M + 4, N + 4),),
        corners,
    ),
    "resonators": (
        (M, N),
        {"block_M": (1, 8, 32), "block_L": (8, 16, 64)},
        (of(M, N + 2), of(M)),
        resonators,
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
}
