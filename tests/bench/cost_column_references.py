"""What torch gives for the kernels of `benchmarks/cost/` that go by columns."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import BOTH, M, N, Reference, X, Y, below, of


def response_norm(X: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    lengths = X.norm(dim=1, keepdim=True)
    return X + g * X * lengths / lengths.mean(2, keepdim=True) + b


def diagonal_sums(X: torch.Tensor) -> torch.Tensor:
    sums = [X.diagonal(d, 1, 2).sum(1) for d in range(1 - X.shape[1], X.shape[1])]
    return torch.stack(sums, 1)


def correlations(X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.corrcoef(torch.cat([X.T, y[None]]))[-1, :-1]


def batch_norm_backward(
    X: torch.Tensor, G: torch.Tensor, w: torch.Tensor, m: torch.Tensor, r: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    backward = torch.ops.aten.native_batch_norm_backward
    made: tuple[torch.Tensor, ...] = backward(
        G, X, w, None, None, m, r, True, 0.0, [True, True, True]
    )
    return made


def skewness(X: torch.Tensor) -> torch.Tensor:
    off = X - X.mean(0)
    return (off**3).mean(0) / X.var(0, correction=0) ** 1.5


def attentive_statistics(X: torch.Tensor, S: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weights, x = S.softmax(1), X.float()
    mean = (weights * x).sum(1)
    return mean, (weights * (x - mean[:, None]) ** 2).sum(1).clamp(1e-6).sqrt()


def clipped_sums(X: torch.Tensor) -> torch.Tensor:
    x = X.float()
    return (x * (9 / x.norm(dim=2, keepdim=True)).clamp(max=1)).sum(1)


def centres_of_groups(X: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    is_in = (group == torch.arange(8)[:, None]).float()
    return is_in @ X.float() / is_in.sum(1, keepdim=True).clamp(1)


def trimmed_means(X: torch.Tensor) -> torch.Tensor:
    quarter = len(X) // 4
    return X.float().sort(0).values[quarter:-quarter].mean(0)


REFERENCES: dict[str, Reference] = {
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
    "response_norm": (
        (3, M, N),
        {"block_P": (1, 8), "block_C": (16, 64)},
        (of(3, M, N), of(N), Y[0]),
        response_norm,
    ),
    "diagonal_sums": (
        (3, M),
        {"block_M": (1, 8), "block_N": (16, 63)},
        (of(3, M, M),),
        diagonal_sums,
    ),
    "correlations": (
        (M, N),
        BOTH,
        (X, torch.nn.functional.normalize(of(M) - of(M).mean(), dim=0)),
        correlations,
    ),
    "largest_of_columns": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X.round(),),
        lambda x: (x.amax(0), x.argmax(0).int()),
    ),
    "column_log_sums": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (9 * X,),
        lambda x: x.logsumexp(0),
    ),
    "batch_norm_backward": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X, Y, of(N), X.mean(0), 1 / X.std(0, correction=0)),
        batch_norm_backward,
    ),
    "skewness": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (X,),
        skewness,
    ),
    "attentive_statistics": (
        (3, M, N),
        {"block_L": (1, 8, 32), "block_C": (8, 16, 64)},
        (of(3, M, N).bfloat16(), 2 * of(3, N, M).mT.contiguous()),
        attentive_statistics,
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
    "trimmed_means": (
        (8, M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (of(8, M, N).bfloat16(),),
        trimmed_means,
    ),
}
