"""What torch gives for the kernels of `benchmarks/cost/` that go by rows or elements."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy, huber_loss, kl_div, multi_margin_loss

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


def adamax(
    P: torch.Tensor, G: torch.Tensor, m: torch.Tensor, u: torch.Tensor, r: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    first, most = 0.9 * m + 0.1 * G, torch.maximum(0.999 * u, G.abs() + 1e-8)
    made = P - r[:, None] * (first / most + 0.01 * P)
    return made, first, most, made.bfloat16()


def overlaps(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    left, right = A.T[:, :, None], B[:, None, :]
    upper = torch.minimum(left[:2] + left[2:].abs() / 2, right[:2] + right[2:].abs() / 2)
    lower = torch.maximum(left[:2] - left[2:].abs() / 2, right[:2] - right[2:].abs() / 2)
    common = (upper - lower).clamp(0).prod(0)
    return common / (left[2:].abs().prod(0) + right[2:].abs().prod(0) - common + 1e-6)


def option_prices(
    X: torch.Tensor, V: torch.Tensor, t: torch.Tensor, r: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    time, growth = t.abs()[:, None] + 0.05, 0.05 * r
    spread = (V.abs() + 0.1) * time.sqrt()
    upper = (X + (growth + 0.5 * (V.abs() + 0.1) ** 2) * time) / spread
    chance = torch.distributions.Normal(0.0, 1.0).cdf
    return X.exp() * chance(upper) - (-growth * time).exp() * chance(upper - spread), chance(upper)


def focal_loss(X: torch.Tensor, on: torch.Tensor) -> torch.Tensor:
    x, is_on = X.float(), on != 0
    p = torch.where(is_on, x, -x).sigmoid()
    return -(torch.where(is_on, 0.25, 0.75) * (1 - p) ** 2 * p.log()).sum(1)


def great_circles(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    a, b = A.double()[:, :, None], B.double()[:, None]
    dot = a[0].sin() * b[0].sin() + a[0].cos() * b[0].cos() * (a[1] - b[1]).cos()
    return dot.acos().float()


def turned_norm(
    X: torch.Tensor, g: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> torch.Tensor:
    x = torch.nn.functional.rms_norm(X.float(), X.shape[2:], g, 1e-6)
    turned = torch.complex(*x.chunk(2, 2)) * torch.complex(cosines, sines)[:, None]
    return torch.cat([turned.real, turned.imag], 2).bfloat16()


def random_normals(seeds: torch.Tensor) -> torch.Tensor:
    x, bits = seeds.long()[:, None] + torch.arange(N), []
    steps = (0x7FEB352D, 16), (0x846CA68B, 15), (0x9E3779B1, 16), (0x85EBCA77, 15)
    for factor, shift in steps:
        x = (x ^ x >> shift) * factor & 0xFFFFFFFF
        bits.append((x >> 8).double())
    distance = (-2 * ((bits[1] + 0.5) / 2**24).log()).sqrt()
    return (distance * (2 * torch.pi * bits[3] / 2**24).cos()).float()


def sparsemax(X: torch.Tensor) -> torch.Tensor:
    ordered, counts = X.sort(1, descending=True).values, torch.arange(1, X.shape[1] + 1)
    bounds = (ordered.cumsum(1) - 1) / counts
    return (X - bounds.gather(1, (ordered > bounds).sum(1, keepdim=True) - 1)).clamp(0)


def gated_norm(X: torch.Tensor, Z: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    y = X.float() * torch.nn.functional.silu(Z.float())
    return torch.nn.functional.rms_norm(y, y.shape[1:], g, 1e-6).bfloat16()


def earth_movers(X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    return (X.double() - Y.double()).cumsum(1).abs().mean(1).float()


def robust_means(X: torch.Tensor) -> torch.Tensor:
    means = torch.zeros(X.shape[0])
    for _ in range(6):
        weights = 1 / (1 + (X - means[:, None]) ** 2)
        means = (weights * X).sum(1) / weights.sum(1)
    return means


def dice_loss(X: torch.Tensor, on: torch.Tensor) -> torch.Tensor:
    p = X.float().sigmoid()
    return 1 - (2 * (p * on).sum(1) + 1) / ((p + on).sum(1) + 1)


def order_loss(S: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
    costs = torch.nn.functional.softplus(S[:, None] - S[:, :, None])
    return (costs * (G[:, :, None] > G[:, None])).sum((1, 2))


def triplet_loss(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> torch.Tensor:
    a, b, c = A.float(), B.float(), C.float()
    return ((a - b).norm(dim=1) - (a - c).norm(dim=1) + 0.5).relu()


def quantile_losses(
    P: torch.Tensor, Y: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    p = P.float().requires_grad_()
    level = torch.arange(1, P.shape[2] + 1) / (P.shape[2] + 1)
    off = Y[..., None] - p
    loss = torch.where(off > 0, level * off, (level - 1) * off).sum((1, 2))
    return loss.detach(), torch.autograd.grad((loss * g).sum(), p)[0].half()


def pair_features(
    A: torch.Tensor, B: torch.Tensor, E: torch.Tensor, on: torch.Tensor
) -> torch.Tensor:
    most, places, is_on = len(E) // 2, torch.arange(len(A)), on != 0
    apart = (places - places[:, None]).clamp(-most, most) + most
    total = A.float()[:, None] + B.float() + E.float()[apart]
    return (total.relu() * torch.outer(is_on, is_on)[..., None]).half()


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
    "adamax": (
        (M, N),
        BOTH,
        (X, Y, of(M * N).view(M, N), of(M * N).view(N, M).T.contiguous(), of(M)),
        adamax,
    ),
    "smoothed_entropy": (
        (M, N),
        BOTH,
        (X.bfloat16(), below(N, M)),
        lambda x, y: cross_entropy(x.float(), y.long(), reduction="none", label_smoothing=0.1),
    ),
    "overlaps": ((M, N), BOTH, (of(M, 4), of(4, N)), overlaps),
    "distillation": (
        (M, N),
        BOTH,
        (X.bfloat16(), Y.bfloat16()),
        lambda x, y: kl_div(
            y.float().log_softmax(1), x.float().log_softmax(1), log_target=True, reduction="none"
        ).sum(1),
    ),
    "option_prices": (
        (M, N),
        BOTH,
        (X, Y, of(M), of(N)),
        option_prices,
    ),
    "focal_loss": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X.bfloat16(), below(2, M, N, dtype=torch.uint8)),
        focal_loss,
    ),
    "great_circles": ((M, N), BOTH, (of(2, M), of(2, N)), great_circles),
    "row_histograms": (
        (M, N, 6),
        {"block_M": (1, 8, 32), "block_B": (1, 2, 6), "block_N": (8, 16, 64)},
        (below(7, M, N, dtype=torch.uint8),),
        lambda x: (x[..., None] == torch.arange(6)).sum(1).int(),
    ),
    "turned_norm": (
        (M, 6, 16),
        {"block_L": (1, 8, 32), "block_H": (1, 2, 6)},
        (of(M, 6, 16).bfloat16(), of(16), of(M, 8).cos(), of(M, 8).sin()),
        turned_norm,
    ),
    "random_normals": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (below(10**9, M),),
        random_normals,
    ),
    "margin_loss": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X.half(), below(N, M)),
        lambda x, y: N * multi_margin_loss(x.float(), y.long(), reduction="none"),
    ),
    "sparsemax": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X,),
        sparsemax,
    ),
    "autocorrelations": (
        (M, N, 8),
        {"block_M": (1, 8, 32), "block_L": (1, 4, 8), "block_N": (8, 16, 64)},
        (of(M, N + 8),),
        lambda x: (x.unfold(1, N, 1)[:, :8] * x[:, None, :N]).mean(2),
    ),
    "gated_norm": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X.bfloat16(), Y.bfloat16(), of(N)),
        gated_norm,
    ),
    "ranks": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        ((4 * X).round(),),
        lambda x: (x[:, None] < x[:, :, None]).sum(2).int(),
    ),
    "earth_movers": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X.half(), Y.half()),
        earth_movers,
    ),
    "robust_means": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X,),
        robust_means,
    ),
    "dice_loss": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X.half(), below(2, M, N, dtype=torch.uint8)),
        dice_loss,
    ),
    "order_loss": (
        (M, N),
        {"block_I": (1, 8, 64), "block_J": (4, 16, 64)},
        (X, below(5, M, N, dtype=torch.uint8)),
        order_loss,
    ),
    "triplet_loss": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X.bfloat16(), Y.bfloat16(), of(2 * M, N)[:M].bfloat16()),
        triplet_loss,
    ),
    "quantile_losses": (
        (M, N, 5),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (of(M, N, 5).half(), X, of(M)),
        quantile_losses,
    ),
    "pair_features": (
        (M, K, 10),
        {"block_I": (1, 8, 32), "block_J": (1, 8, 32)},
        (of(M, K).half(), of(K, M).T.contiguous().half(), of(21, K).half(), below(4, M).byte()),
        pair_features,
    ),
}
