"""The users' kernels that the CPU's time model is held against compute what they say."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import huber_loss

import tileworkbench as tw

FOLDER = Path(__file__).parents[2] / "benchmarks"
MODULES = (
    *("cost_user_kernels", "cost_new_kernels", "cost_held_out_kernels"),
    *("cost_later_kernels", "cost_unseen_kernels", "cost_further_kernels", "cost_blind_kernels"),
    *("cost_fresh_kernels", "cost_fresh_products"),
)
M, N, K = 32, 64, 48


def of(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


def below(most: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    numbers = torch.randint(0, most, shape, generator=torch.Generator().manual_seed(most))
    return numbers.to(dtype)


def stencil(X: torch.Tensor) -> torch.Tensor:
    inner, last = slice(1, -1), slice(2, None)
    sides = X[inner, :-2] + X[inner, last] + X[:-2, inner] + X[last, inner]
    return (X[inner, inner] + sides) * 0.2


def quantise(X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    most = X.abs().amax(1)
    return (X * (127.0 / most)[:, None]).round().to(torch.int8), most / 127.0


def decaying_sums(X: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    rows = [X[0]]
    for row in X[1:]:
        rows.append(a * rows[-1] + row)
    return torch.stack(rows)


def depthwise(X: torch.Tensor, F: torch.Tensor) -> torch.Tensor:
    made = torch.nn.functional.conv2d(
        X.permute(2, 0, 1), F.permute(2, 0, 1)[:, None], groups=F.shape[2]
    )
    return made.permute(1, 2, 0)


def window(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    seen = torch.ones(len(Q), len(Q)).tril().triu(-23).bool()
    heads = [Q, K.repeat_interleave(2, 1), V.repeat_interleave(2, 1)]
    q, k, v = (each.permute(1, 0, 2) for each in heads)
    made = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return made.permute(1, 0, 2)


X, Y = of(M, N), of(N, M).T.contiguous()
A, B = of(M, K), of(N, K)
BOTH = {"block_M": (1, 8), "block_N": (16, 64)}
ROWS = {"block_M": (1, 4, 16)}

# A kernel's sizes, blocks, arguments and what they give.
CASES: dict[str, tuple[tuple[int, ...], dict[str, tuple[int, ...]], tuple[Any, ...], Any]] = {
    "transpose": ((M, N), BOTH, (X,), lambda x: x.T),
    "stencil": ((M, N), BOTH, (of(M + 2, N + 2),), stencil),
    "running_sums": ((M, N), ROWS, (X,), lambda x: x.cumsum(1)),
    "gated": ((M, N), BOTH, (X, Y), lambda x, y: x * x.sigmoid() * y),
    "moments": ((M, N), BOTH, (X,), lambda x: torch.stack([x.sum(1), (x * x).sum(1)], 1)),
    "row_range": ((M, N), BOTH, (X,), lambda x: x.amax(1) - x.amin(1)),
    "weighted_columns": ((M, N), BOTH, (X, of(M)), lambda x, w: w @ x),
    "dequantise": (
        (M, N),
        BOTH,
        (below(100, M, N, dtype=torch.int8), of(M), of(M)),
        lambda q, scale, zero: (q - zero[:, None]) * scale[:, None],
    ),
    "distances": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (16, 64)},
        (of(M, K), of(N, K)),
        lambda a, b: torch.cdist(a, b) ** 2,
    ),
    "downsample": (
        (M // 2, N // 2),
        {"block_M": (1, 8), "block_N": (16, 32)},
        (X,),
        lambda x: torch.nn.functional.avg_pool2d(x[None], 2)[0],
    ),
    "rank_one": ((M, N), BOTH, (X, of(M), of(N)), lambda x, a, b: x + torch.outer(a, b)),
    "cosines": ((M, N), BOTH, (X, Y), torch.cosine_similarity),
    "quantise": ((M, N), ROWS, (X,), quantise),
    "polynomial": (
        (M, N),
        BOTH,
        (X / 3,),
        lambda x: sum(x**n / (n + 1) for n in range(16)),
    ),
    "city_distances": (
        (M, N, K),
        BOTH,
        (of(M, K), of(K, N)),
        lambda a, b: torch.cdist(a, b.T.contiguous(), p=1),
    ),
    "embed": (
        (M, N, 16),
        BOTH,
        (below(16, M), of(16, N), X),
        lambda index, w, p: w[index.long()] * 8.0 + p,
    ),
    "decaying_sums": ((M, N), BOTH, (X, of(N) / 4), decaying_sums),
    "masked_error": (
        (M, N),
        BOTH,
        (X, Y),
        lambda x, y: ((x - y) ** 2 * (y > 0)).sum(1),
    ),
    "causal_convolution": (
        (M, N),
        BOTH,
        (of(M + 3, N), of(4, N)),
        lambda x, w: sum(w[t] * x[t : t + M] for t in range(4)),
    ),
    "huber": ((M, N), BOTH, (X, Y), lambda x, y: huber_loss(x, y, reduction="none").sum(1)),
    "batched_products": (
        (3, M, N, K),
        {"block_M": (8, 32), "block_N": (16, 64)},
        (of(3, M, K), of(3, K, N)),
        torch.bmm,
    ),
    "group_norm": (
        (M, 3, N),
        ROWS,
        (of(M, 3, N),),
        lambda x: torch.nn.functional.layer_norm(x, (N,)),
    ),
    "column_variance": ((M, N), BOTH, (X,), lambda x: x.var(0, correction=0)),
    "longest_paths": (
        (M, N, 64),
        BOTH,
        (of(M, 64), of(64, N)),
        lambda a, b: (a[:, :, None] + b).amax(1),
    ),
    "gated_product": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (16, 64), "block_K": (16, 48)},
        (of(M, K), of(K, N), of(K, N)),
        lambda x, u, v: (x @ u).sigmoid() * (x @ v),
    ),
    "half_softmax": ((M, N), ROWS, (X.bfloat16(),), lambda x: x.float().softmax(1).bfloat16()),
    "unit_columns": ((M, N), BOTH, (X,), lambda x: x / x.norm(dim=0)),
    "batched_gemv": (
        (3, M, N),
        {"block_M": (1, 8), "block_K": (16, 64)},
        (of(3, M, N), of(3, N)),
        lambda a, x: (a @ x[..., None])[..., 0],
    ),
    "sequence_convolution": (
        (M, K, N),
        {"block_L": (8, 32), "block_F": (16, 64)},
        (of(M + 2, K), of(3, K, N)),
        lambda x, w: sum(x[t : t + M] @ w[t] for t in range(3)),
    ),
    "radial_kernel": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (16, 64), "block_D": (16, 48)},
        (A, B, (A * A).sum(1), (B * B).sum(1)),
        lambda a, b, *_: (-(torch.cdist(a, b) ** 2) / K).exp(),
    ),
    "entropies": ((M, N), BOTH, (X,), lambda x: -(x.abs() * (x.abs() + 1e-9).log()).sum(1)),
    "moving_average": (
        (M, N),
        BOTH,
        (of(M + 7, N),),
        lambda x: x.unfold(0, 8, 1).mean(2),
    ),
    "soft_values": (
        (M, N, K),
        {"block_M": (8, 32), "block_N": (16, 64)},
        (X, of(N, K)),
        lambda s, v: s.softmax(1) @ v,
    ),
    "scaled_bytes_product": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (below(100, M, K, dtype=torch.int8), of(M), of(K, N)),
        lambda a, s, b: (a * s[:, None]) @ b,
    ),
    "divergences": (
        (M, N),
        BOTH,
        (X, Y),
        lambda p, q: ((p.abs() + 1e-6) * ((p.abs() + 1e-6).log() - q)).sum(1),
    ),
    "box_filter": (
        (M, N),
        BOTH,
        (of(M + 2, N + 2),),
        lambda x: x.unfold(0, 3, 1).unfold(1, 3, 1).mean((2, 3)),
    ),
    "column_softmax": ((M, N), {"block_N": (16, 64)}, (X,), lambda x: x.softmax(0)),
    "low_rank": (
        (M, N, K, 16),
        {"block_M": (8, 32), "block_N": (16, 64)},
        (of(M, K), of(K, 16), of(16, N)),
        lambda x, u, v: (x @ u) @ v,
    ),
    "gram_product": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (of(K, M).bfloat16(), of(K, N).bfloat16()),
        lambda a, b: a.float().T @ b.float(),
    ),
    "thin_update": (
        (M, N, 16),
        {"block_M": (16, 32), "block_N": (16, 64)},
        (X, of(M, 16), of(N, 16)),
        lambda c, a, b: c + a @ b.T,
    ),
    "middle_max": (
        (3, M, N),
        {"block_S": (1, 8), "block_N": (16, 64)},
        (of(3, M, N),),
        lambda x: x.amax(1),
    ),
    "biased_silu": (
        (M, N),
        BOTH,
        (X.bfloat16(), of(N)),
        lambda x, b: torch.nn.functional.silu(x.float() + b).bfloat16(),
    ),
    "edges": (
        (M, N),
        BOTH,
        (of(M + 2, N + 2),),
        lambda x: torch.hypot(x[2:, 1:-1] - x[:-2, 1:-1], x[1:-1, 2:] - x[1:-1, :-2]),
    ),
    "weighted_norms": (
        (M, N),
        BOTH,
        (X, of(N).abs()),
        lambda x, w: (w * x * x).sum(1).sqrt(),
    ),
    "outer_softplus": (
        (M, N),
        BOTH,
        (of(M), of(N)),
        lambda a, b: torch.nn.functional.softplus(a[:, None] + b),
    ),
    "column_moments": ((M, N), BOTH, (X,), lambda x: (x.mean(0), x.amax(0))),
    "mixed": ((M, N), BOTH, (X, Y, of(M)), lambda x, y, c: y + c[:, None] * (x - y)),
    "scaled_product": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (A, of(K), B),
        lambda a, s, b: (a * s) @ b.T,
    ),
    "plane_means": (
        (8, M, N),
        {"block_M": (1, 8), "block_C": (2, 4)},
        (of(8, M, N),),
        lambda x: x.mean((1, 2)),
    ),
    "scores": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (16, 64)},
        (A, B),
        lambda q, k: (q @ k.T).sigmoid(),
    ),
    "relu_linear": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (A, of(K, N), of(N)),
        lambda a, b, c: a.relu() @ b + c,
    ),
    "gram_matrices": (
        (3, M, N),
        {"block_M": (16, 32), "block_N": (16, 64)},
        (of(3, M, N),),
        lambda x: x.mT @ x,
    ),
    "kernel_sums": (
        (M, N),
        BOTH,
        (of(M), of(N), of(N)),
        lambda a, b, w: (w * (-(a[:, None] - b).abs()).exp()).sum(1),
    ),
    "dilated": (
        (M, N),
        BOTH,
        (of(M, N + 16), of(5)),
        lambda x, w: sum(w[t] * x[:, 4 * t : 4 * t + N] for t in range(5)),
    ),
    "column_ranges": ((M, N), BOTH, (X,), lambda x: x.amax(0) - x.amin(0)),
    "counts": (
        (M, N),
        BOTH,
        (below(100, M, N), below(90, M)),
        lambda x, t: (x > t[:, None]).sum(1).int(),
    ),
    "gated_update": (
        (M, N),
        BOTH,
        (X.bfloat16(), Y.bfloat16(), of(N).bfloat16()),
        lambda x, z, g: (x.float() + g.float() * z.float().tanh()).bfloat16(),
    ),
    "row_statistics": (
        (M, N),
        {"block_M": (1, 8)},
        (X,),
        lambda x: (x.mean(1), x.std(1, correction=0)),
    ),
    "depthwise": (
        (8, 16, 32),
        {"block_H": (1, 4), "block_W": (2, 8), "block_C": (16, 32)},
        (of(10, 18, 32), of(3, 3, 32)),
        depthwise,
    ),
    "batch_norm": (
        (M, N),
        BOTH,
        (X, of(N), Y[0]),
        lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, True).relu(),
    ),
    "max_pool": (
        (3, 8, 16),
        {"block_H": (1, 4), "block_W": (8, 16)},
        (of(3, 17, 33),),
        lambda x: torch.nn.functional.max_pool2d(x, 3, 2),
    ),
    "first_largest": ((M, N), BOTH, (X.round(),), lambda x: x.argmax(1).int()),
    "residual_swish": (
        (M, N),
        BOTH,
        (X, Y, of(N)),
        lambda r, x, b: r + torch.nn.functional.hardswish(x + b),
    ),
    "experts": (
        (3, M, N, K),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (of(3, M, K).bfloat16(), of(3, N, K).bfloat16(), of(3, M, N)),
        lambda x, w, r: r + torch.nn.functional.silu(x.float() @ w.float().mT),
    ),
    "window": (
        (N, 4, 2, K, 24),
        {"block_M": (16, 32), "block_N": (32, 16)},
        (of(N, 4, K), of(N, 2, K), of(N, 2, K) + 1),
        window,
    ),
    "mlp": (
        (M, K, N, 16),
        {"block_M": (8, 32), "block_H": (16, 64)},
        (of(M, K), of(K, N) / 8, of(N, 16) / 8),
        lambda x, u, v: (x @ u).relu() ** 2 @ v,
    ),
    "group_bytes": (
        (M, N, K, 16),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (A, below(100, N, K, dtype=torch.int8), of(N, 3) / 8),
        lambda x, q, s: x @ (q * s.repeat_interleave(16, 1)).T,
    ),
    "nearest": (
        (M, N, K),
        {"block_M": (8, 32), "block_N": (16, 64)},
        (A, B, (B * B).sum(1)),
        lambda a, b, squares: (squares - 2 * a @ b.T).amin(1),
    ),
}


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Callable[..., Any]]]:
    """The kernels of all files by name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    modules = [importlib.import_module(name) for name in MODULES]
    yield {
        name: made
        for module in modules
        for name, made in vars(module).items()
        if getattr(made, "__module__", "") == module.__name__
    }
    for name in MODULES:
        sys.modules.pop(name)


def test_every_kernel_is_tested(kernels: dict[str, Callable[..., Any]]) -> None:
    assert kernels.keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_torch_does(kernels: dict[str, Callable[..., Any]], name: str) -> None:
    sizes, axes, arguments, reference = CASES[name]
    expected = reference(*arguments)
    for blocks in zip(*axes.values(), strict=False):
        program = kernels[name](*sizes, **dict(zip(axes, blocks, strict=True)))
        torch.testing.assert_close(
            tw.compile(program, target="cpu")(*arguments), expected, rtol=1e-4, atol=1e-4
        )
