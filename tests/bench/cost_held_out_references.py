"""What torch gives for the kernels of `benchmarks/cost/` that are held out."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import K, M, N, Reference, X, Y, below, of


def complex_product(
    A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, D: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.complex(A, B) @ torch.complex(C, D)
    return made.real, made.imag


def graph_layer(X: torch.Tensor, near: torch.Tensor, W: torch.Tensor) -> torch.Tensor:
    return (X.float()[near.long()].mean(1).bfloat16().float() @ W.float()).relu()


def factor_gradient(U: torch.Tensor, V: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
    off = U.float() @ V.float().T - G.float()
    return torch.where(G > 0, off, 0.0) @ V.float() / V.shape[0]


def earth_movers(X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    return (X.double() - Y.double()).cumsum(1).abs().mean(1).float()


def robust_means(X: torch.Tensor) -> torch.Tensor:
    means = torch.zeros(X.shape[0])
    for _ in range(6):
        weights = 1 / (1 + (X - means[:, None]) ** 2)
        means = (weights * X).sum(1) / weights.sum(1)
    return means


def skewness(X: torch.Tensor) -> torch.Tensor:
    off = X - X.mean(0)
    return (off**3).mean(0) / X.var(0, correction=0) ** 1.5


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


REFERENCES: dict[str, Reference] = {
    "complex_product": (
        (M, N, K),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (12, 16, 48)},
        (of(M, K), of(K, M).T.contiguous(), of(K, N), of(N, K).T.contiguous()),
        complex_product,
    ),
    "graph_layer": (
        (M, N, K, 5),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (16, 24, 48)},
        (of(M, K).bfloat16(), below(M, M, 5), of(K, N).bfloat16()),
        graph_layer,
    ),
    "orthogonal_step": (
        (3, M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (8, 32, 64)},
        (of(3, M, N) / 8,),
        lambda x: 1.5 * x - 0.5 * (x @ x.mT) @ x,
    ),
    "factor_gradient": (
        (M, N, 12),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (of(M, 12).half(), of(N, 12).half(), X.half()),
        factor_gradient,
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
    "skewness": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X,),
        skewness,
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
}
