"""What torch gives for the kernels of `benchmarks/cost/` that are no products."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy, huber_loss

from tests.bench.cost_inputs import BOTH, ROWS, K, M, N, Reference, X, Y, below, of


def layernorm_backward(
    X: torch.Tensor, slope: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> torch.Tensor:
    backward = torch.ops.aten.native_layer_norm_backward
    statistics = mean[:, None], rstd[:, None]
    made: torch.Tensor = backward(slope, X, (N,), *statistics, None, None, [True, False, False])[0]
    return made


def modulated(
    R: torch.Tensor, X: torch.Tensor, g: torch.Tensor, s: torch.Tensor, t: torch.Tensor
) -> torch.Tensor:
    x = X.float() * (1 + s[:, None]) + t[:, None]
    value = g.sigmoid()[:, None] * torch.nn.functional.gelu(x, approximate="tanh")
    return (R.float() + value).bfloat16()


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


def adamax(
    P: torch.Tensor, G: torch.Tensor, m: torch.Tensor, u: torch.Tensor, r: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    first, most = 0.9 * m + 0.1 * G, torch.maximum(0.999 * u, G.abs() + 1e-8)
    made = P - r[:, None] * (first / most + 0.01 * P)
    return made, first, most, made.bfloat16()


def response_norm(X: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    lengths = X.norm(dim=1, keepdim=True)
    return X + g * X * lengths / lengths.mean(2, keepdim=True) + b


def overlaps(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    left, right = A.T[:, :, None], B[:, None, :]
    upper = torch.minimum(left[:2] + left[2:].abs() / 2, right[:2] + right[2:].abs() / 2)
    lower = torch.maximum(left[:2] - left[2:].abs() / 2, right[:2] - right[2:].abs() / 2)
    common = (upper - lower).clamp(0).prod(0)
    return common / (left[2:].abs().prod(0) + right[2:].abs().prod(0) - common + 1e-6)


def diffusion(U: torch.Tensor, R: torch.Tensor) -> torch.Tensor:
    k = R.abs().T
    beside = torch.diag_embed(k[:, 1:], -1) + torch.diag_embed(k[:, :-1], 1)
    return torch.linalg.solve(torch.diag_embed(1 + 2 * k) - beside, U.T).T


def diagonal_sums(X: torch.Tensor) -> torch.Tensor:
    sums = [X.diagonal(d, 1, 2).sum(1) for d in range(1 - X.shape[1], X.shape[1])]
    return torch.stack(sums, 1)


REFERENCES: dict[str, Reference] = {
    "half_softmax": ((M, N), ROWS, (X.bfloat16(),), lambda x: x.float().softmax(1).bfloat16()),
    "log_softmax": ((M, N), ROWS, (X,), lambda x: x.log_softmax(1)),
    "softmax_backward": (
        (M, N),
        ROWS,
        (X.softmax(1), Y),
        lambda y, slope: torch.ops.aten._softmax_backward_data(slope, y, 1, y.dtype),
    ),
    "layernorm_backward": (
        (M, N),
        ROWS,
        (X, Y, X.mean(1), (X.var(1, correction=0) + 1e-5).rsqrt()),
        layernorm_backward,
    ),
    "normalise": ((M, N), BOTH, (X,), torch.nn.functional.normalize),
    "group_norm": (
        (M, 3, N),
        ROWS,
        (of(M, 3, N),),
        lambda x: torch.nn.functional.layer_norm(x, (N,)),
    ),
    "entropy_backward": (
        (M, N),
        BOTH,
        (X, below(N, M), of(M)),
        lambda x, y, g: (x.softmax(1) - torch.nn.functional.one_hot(y.long(), N)) * g[:, None],
    ),
    "log_sum_exp": ((M, N), BOTH, (X,), lambda x: x.logsumexp(1)),
    "entropies": ((M, N), BOTH, (X,), lambda x: -(x.abs() * (x.abs() + 1e-9).log()).sum(1)),
    "divergences": (
        (M, N),
        BOTH,
        (X, Y),
        lambda p, q: ((p.abs() + 1e-6) * ((p.abs() + 1e-6).log() - q)).sum(1),
    ),
    "huber": ((M, N), BOTH, (X, Y), lambda x, y: huber_loss(x, y, reduction="none").sum(1)),
    "masked_error": (
        (M, N),
        BOTH,
        (X, Y),
        lambda x, y: ((x - y) ** 2 * (y > 0)).sum(1),
    ),
    "moments": ((M, N), BOTH, (X,), lambda x: torch.stack([x.sum(1), (x * x).sum(1)], 1)),
    "row_statistics": (
        (M, N),
        {"block_M": (1, 8)},
        (X,),
        lambda x: (x.mean(1), x.std(1, correction=0)),
    ),
    "row_range": ((M, N), BOTH, (X,), lambda x: x.amax(1) - x.amin(1)),
    "weighted_norms": (
        (M, N),
        BOTH,
        (X, of(N).abs()),
        lambda x, w: (w * x * x).sum(1).sqrt(),
    ),
    "cosines": ((M, N), BOTH, (X, Y), torch.cosine_similarity),
    "kernel_sums": (
        (M, N),
        BOTH,
        (of(M), of(N), of(N)),
        lambda a, b, w: (w * (-(a[:, None] - b).abs()).exp()).sum(1),
    ),
    "counts": (
        (M, N),
        BOTH,
        (below(100, M, N), below(90, M)),
        lambda x, t: (x > t[:, None]).sum(1).int(),
    ),
    "first_largest": ((M, N), BOTH, (X.round(),), lambda x: x.argmax(1).int()),
    "plane_means": (
        (8, M, N),
        {"block_M": (1, 8), "block_C": (2, 4)},
        (of(8, M, N),),
        lambda x: x.mean((1, 2)),
    ),
    "column_sums": ((M, N), BOTH, (X,), lambda x: x.sum(0)),
    "weighted_columns": ((M, N), BOTH, (X, of(M)), lambda x, w: w @ x),
    "column_errors": ((M, N), BOTH, (X, Y), lambda x, y: (x - y).abs().mean(0)),
    "column_max": ((M, N), BOTH, (X,), lambda x: x.abs().amax(0)),
    "column_ranges": ((M, N), BOTH, (X,), lambda x: x.amax(0) - x.amin(0)),
    "column_moments": ((M, N), BOTH, (X,), lambda x: (x.mean(0), x.amax(0))),
    "column_variance": ((M, N), BOTH, (X,), lambda x: x.var(0, correction=0)),
    "middle_max": (
        (3, M, N),
        {"block_S": (1, 8), "block_N": (16, 64)},
        (of(3, M, N),),
        lambda x: x.amax(1),
    ),
    "column_softmax": ((M, N), {"block_N": (16, 64)}, (X,), lambda x: x.softmax(0)),
    "unit_columns": ((M, N), BOTH, (X,), lambda x: x / x.norm(dim=0)),
    "batch_norm": (
        (M, N),
        BOTH,
        (X, of(N), Y[0]),
        lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, True).relu(),
    ),
    "gated": ((M, N), BOTH, (X, Y), lambda x, y: x * x.sigmoid() * y),
    "polynomial": (
        (M, N),
        BOTH,
        (X / 3,),
        lambda x: sum(x**n / (n + 1) for n in range(16)),
    ),
    "rank_one": ((M, N), BOTH, (X, of(M), of(N)), lambda x, a, b: x + torch.outer(a, b)),
    "outer_softplus": (
        (M, N),
        BOTH,
        (of(M), of(N)),
        lambda a, b: torch.nn.functional.softplus(a[:, None] + b),
    ),
    "mixed": ((M, N), BOTH, (X, Y, of(M)), lambda x, y, c: y + c[:, None] * (x - y)),
    "residual_swish": (
        (M, N),
        BOTH,
        (X, Y, of(N)),
        lambda r, x, b: r + torch.nn.functional.hardswish(x + b),
    ),
    "biased_silu": (
        (M, N),
        BOTH,
        (X.bfloat16(), of(N)),
        lambda x, b: torch.nn.functional.silu(x.float() + b).bfloat16(),
    ),
    "gated_update": (
        (M, N),
        BOTH,
        (X.bfloat16(), Y.bfloat16(), of(N).bfloat16()),
        lambda x, z, g: (x.float() + g.float() * z.float().tanh()).bfloat16(),
    ),
    "modulated": (
        (3, M, N),
        {"block_L": (1, 8), "block_D": (16, 64)},
        (
            of(3, M, N).bfloat16(),
            of(3 * M * N).view(3, M, N).bfloat16(),
            *(of(3, N), of(3, N).flip(1), of(3, N).flip(0)),
        ),
        modulated,
    ),
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
    "adamax": (
        (M, N),
        BOTH,
        (X, Y, of(M * N).view(M, N), of(M * N).view(N, M).T.contiguous(), of(M)),
        adamax,
    ),
    "response_norm": (
        (3, M, N),
        {"block_P": (1, 8), "block_C": (16, 64)},
        (of(3, M, N), of(N), Y[0]),
        response_norm,
    ),
    "smoothed_entropy": (
        (M, N),
        BOTH,
        (X.bfloat16(), below(N, M)),
        lambda x, y: cross_entropy(x.float(), y.long(), reduction="none", label_smoothing=0.1),
    ),
    "enlarge": (
        (3, 8, 16),
        {"block_C": (1, 3), "block_H": (1, 16), "block_W": (8, 32)},
        (of(3, 8, 16),),
        lambda x: torch.nn.functional.interpolate(x[None], scale_factor=2, mode="bilinear")[0],
    ),
    "overlaps": ((M, N), BOTH, (of(M, 4), of(4, N)), overlaps),
    "diffusion": (
        (M, N),
        {"block_L": (1, 8), "block_N": (16, 64)},
        (X, Y),
        diffusion,
    ),
    "diagonal_sums": (
        (3, M),
        {"block_M": (1, 8), "block_N": (16, 63)},
        (of(3, M, M),),
        diagonal_sums,
    ),
}
