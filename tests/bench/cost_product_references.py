"""What torch gives for the products of `benchmarks/cost/`, and for what has few bits."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import BOTH, ROWS, A, B, K, M, N, Reference, X, Y, below, of


def patches(X: torch.Tensor, W: torch.Tensor, b: torch.Tensor, E: torch.Tensor) -> torch.Tensor:
    squares = X.reshape(4, 4, 4, 4, 3).permute(0, 2, 1, 3, 4).reshape(16, 48)
    return squares @ W + b + E


def window(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    seen = torch.ones(len(Q), len(Q)).tril().triu(-23).bool()
    heads = [Q, K.repeat_interleave(2, 1), V.repeat_interleave(2, 1)]
    q, k, v = (each.permute(1, 0, 2) for each in heads)
    made = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return made.permute(1, 0, 2)


def biased_attention(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, R: torch.Tensor
) -> torch.Tensor:
    q, k, v = (each.float() for each in (Q, K, V))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=R)


def rms_linear(X: torch.Tensor, W: torch.Tensor) -> torch.Tensor:
    x = torch.nn.functional.rms_norm(X.float(), X.shape[1:], eps=1e-6)
    return (x @ W.float().T).bfloat16()


def quantise(X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    most = X.abs().amax(1)
    return (X * (127.0 / most)[:, None]).round().to(torch.int8), most / 127.0


def linear_entropy(X: torch.Tensor, W: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    logits = X.float() @ W.float().T
    return torch.nn.functional.cross_entropy(logits, y.long(), reduction="none")


def retention(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, rate: torch.Tensor
) -> torch.Tensor:
    steps = torch.arange(Q.shape[1])
    ago = (steps[:, None] - steps).clamp(0)
    return (Q @ K.mT * (-rate.abs()[:, None, None] * ago).exp()).tril() @ V


def packed_groups(X: torch.Tensor) -> tuple[torch.Tensor, ...]:
    least, extent = X.amin(2), X.amax(2) - X.amin(2)
    codes = ((X - least[..., None]) * (15.0 / extent)[..., None]).round().to(torch.uint8)
    return codes[..., ::2] + 16 * codes[..., 1::2], extent / 15.0, least


def two_experts(X: torch.Tensor, W: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    most = (X @ W.T).topk(2)
    return most.indices.int(), most.values.softmax(1)


def small_floats(X: torch.Tensor, Q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return (X @ Q.view(torch.float8_e4m3fn).float().T) * s


def capped_attention(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, sink: torch.Tensor
) -> torch.Tensor:
    capped = 20 * (Q @ K.mT / (20 * Q.shape[2] ** 0.5)).tanh()
    further = sink[:, None, None].expand(-1, Q.shape[1], 1)
    return torch.cat([capped, further], 2).softmax(2)[..., :-1] @ V


def paged_attention(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, table: torch.Tensor, last: torch.Tensor
) -> torch.Tensor:
    keys, values = K[table.long()].flatten(1, 2), V[table.long()].flatten(1, 2)
    seen = (torch.arange(keys.shape[1]) <= last[:, None])[:, None]
    attention = torch.nn.functional.scaled_dot_product_attention
    return attention(Q, keys, values, attn_mask=seen)


def recurrent_layer(X: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    states = [torch.zeros_like(X[0])]
    for x in X:
        states.append((x + states[-1] @ U).tanh())
    return torch.stack(states[1:])


def three_values(X: torch.Tensor, Q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    codes = (Q[..., None].int() >> torch.tensor([0, 2, 4, 6]) & 3) - 1
    return X @ codes.flatten(1).float().T * s


REFERENCES: dict[str, Reference] = {
    "batched_gemv": (
        (3, M, N),
        {"block_M": (1, 8), "block_K": (16, 64)},
        (of(3, M, N), of(3, N)),
        lambda a, x: (a @ x[..., None])[..., 0],
    ),
    "batched_products": (
        (3, M, N, K),
        {"block_M": (8, 32), "block_N": (16, 64)},
        (of(3, M, K), of(3, K, N)),
        torch.bmm,
    ),
    "gram_product": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (of(K, M).bfloat16(), of(K, N).bfloat16()),
        lambda a, b: a.float().T @ b.float(),
    ),
    "gram_matrices": (
        (3, M, N),
        {"block_M": (16, 32), "block_N": (16, 64)},
        (of(3, M, N),),
        lambda x: x.mT @ x,
    ),
    "thin_update": (
        (M, N, 16),
        {"block_M": (16, 32), "block_N": (16, 64)},
        (X, of(M, 16), of(N, 16)),
        lambda c, a, b: c + a @ b.T,
    ),
    "low_rank": (
        (M, N, K, 16),
        {"block_M": (8, 32), "block_N": (16, 64)},
        (of(M, K), of(K, 16), of(16, N)),
        lambda x, u, v: (x @ u) @ v,
    ),
    "relu_linear": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (A, of(K, N), of(N)),
        lambda a, b, c: a.relu() @ b + c,
    ),
    "scaled_product": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (A, of(K), B),
        lambda a, s, b: (a * s) @ b.T,
    ),
    "gated_product": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (16, 64), "block_K": (16, 48)},
        (of(M, K), of(K, N), of(K, N)),
        lambda x, u, v: (x @ u).sigmoid() * (x @ v),
    ),
    "experts": (
        (3, M, N, K),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (of(3, M, K).bfloat16(), of(3, N, K).bfloat16(), of(3, M, N)),
        lambda x, w, r: r + torch.nn.functional.silu(x.float() @ w.float().mT),
    ),
    "mlp": (
        (M, K, N, 16),
        {"block_M": (8, 32), "block_H": (16, 64)},
        (of(M, K), of(K, N) / 8, of(N, 16) / 8),
        lambda x, u, v: (x @ u).relu() ** 2 @ v,
    ),
    "linear_norm": (
        (M, N, K),
        {"block_M": (1, 8), "block_K": (16, 48)},
        (A, B, X, of(N), Y[0]),
        lambda x, w, r, g, b: torch.nn.functional.layer_norm(r + x @ w.T, (N,), g, b),
    ),
    "sequence_convolution": (
        (M, K, N),
        {"block_L": (8, 32), "block_F": (16, 64)},
        (of(M + 2, K), of(3, K, N)),
        lambda x, w: sum(x[t : t + M] @ w[t] for t in range(3)),
    ),
    "patches": (
        (4, 4, 3, N),
        {"block_M": (1, 16), "block_N": (16, 64), "block_K": (16, 48)},
        (of(16, 16, 3), of(48, N), of(N), of(16, N)),
        patches,
    ),
    "pointwise_backward": (
        (3, M, K, N),
        {"block_C": (8, 32), "block_P": (16, 64), "block_F": (16, 48)},
        (of(3, M, N), of(K, M), of(3, K, N)),
        lambda x, w, g: torch.where(x > 0, w.T @ g, 0.0),
    ),
    "distances": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (16, 64)},
        (of(M, K), of(N, K)),
        lambda a, b: torch.cdist(a, b) ** 2,
    ),
    "city_distances": (
        (M, N, K),
        BOTH,
        (of(M, K), of(K, N)),
        lambda a, b: torch.cdist(a, b.T.contiguous(), p=1),
    ),
    "longest_paths": (
        (M, N, 64),
        BOTH,
        (of(M, 64), of(64, N)),
        lambda a, b: (a[:, :, None] + b).amax(1),
    ),
    "radial_kernel": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (16, 64), "block_D": (16, 48)},
        (A, B, (A * A).sum(1), (B * B).sum(1)),
        lambda a, b, *_: (-(torch.cdist(a, b) ** 2) / K).exp(),
    ),
    "nearest": (
        (M, N, K),
        {"block_M": (8, 32), "block_N": (16, 64)},
        (A, B, (B * B).sum(1)),
        lambda a, b, squares: (squares - 2 * a @ b.T).amin(1),
    ),
    "window": (
        (N, 4, 2, K, 24),
        {"block_M": (16, 32), "block_N": (32, 16)},
        (of(N, 4, K), of(N, 2, K), of(N, 2, K) + 1),
        window,
    ),
    "biased_attention": (
        (2, M, N, 16),
        {"block_M": (8, 32), "block_N": (16, 64)},
        (
            *(of(2, M, 16).bfloat16(), of(2, N, 16).bfloat16()),
            *(of(2 * N * 16).view(2, N, 16).bfloat16(), of(2, M, N)),
        ),
        biased_attention,
    ),
    "soft_values": (
        (M, N, K),
        {"block_M": (8, 32), "block_N": (16, 64)},
        (X, of(N, K)),
        lambda s, v: s.softmax(1) @ v,
    ),
    "scores": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (16, 64)},
        (A, B),
        lambda q, k: (q @ k.T).sigmoid(),
    ),
    "quantise": ((M, N), ROWS, (X,), quantise),
    "dequantise": (
        (M, N),
        BOTH,
        (below(100, M, N, dtype=torch.int8), of(M), of(M)),
        lambda q, scale, zero: (q - zero[:, None]) * scale[:, None],
    ),
    "scaled_bytes_product": (
        (M, N, K),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (below(100, M, K, dtype=torch.int8), of(M), of(K, N)),
        lambda a, s, b: (a * s[:, None]) @ b,
    ),
    "group_bytes": (
        (M, N, K, 16),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (A, below(100, N, K, dtype=torch.int8), of(N, 3) / 8),
        lambda x, q, s: x @ (q * s.repeat_interleave(16, 1)).T,
    ),
    "code_book": (
        (M, N, K, 16),
        {"block_M": (16, 32), "block_N": (32, 64), "block_K": (16, 48)},
        (A, below(16, N, K, dtype=torch.uint8), of(16), of(N, 3)),
        lambda x, q, book, s: x @ (book[q.long()] * s.repeat_interleave(16, 1)).T,
    ),
    "adapted_linear": (
        (M, N, K, 16),
        {"block_M": (1, 32), "block_N": (16, 64), "block_K": (16, 48)},
        (A, B, of(16, K) / 8, of(N, 16) / 8),
        lambda x, w, a, b: x @ w.T + 2 * (x @ a.T) @ b.T,
    ),
    "value_gradient": (
        (3, M, N, 16),
        {"block_M": (1, 32), "block_N": (8, 64)},
        (of(3, M, 16), of(3, N, 16), of(3 * M * 16).view(3, M, 16), of(3, M)),
        lambda q, k, g, logs: (q @ k.mT / 4 - logs[..., None]).exp().mT @ g,
    ),
    "rms_linear": (
        (M, N, K),
        {"block_M": (1, 32), "block_N": (16, 64), "block_K": (16, 48)},
        (A.bfloat16(), B.bfloat16()),
        rms_linear,
    ),
    "bytes_linear": (
        (M, N, K),
        {"block_M": (1, 32), "block_N": (8, 64), "block_K": (16, 48)},
        (
            *(below(100, M, K, dtype=torch.int8), below(90, N, K, dtype=torch.int8)),
            *(of(M), of(N), of(N).flip(0)),
        ),
        lambda a, w, s, t, b: (a.float() @ w.float().T) * s[:, None] * t + b,
    ),
    "gated_projection": (
        (M, N, K),
        {"block_M": (1, 32), "block_N": (16, 64), "block_K": (16, 48)},
        (A, of(K, M).T.contiguous(), B, X),
        lambda x, z, w, r: r + (x * torch.nn.functional.silu(z)) @ w.T,
    ),
    "linear_entropy": (
        (M, N, K),
        {"block_M": (1, 32), "block_N": (8, 64)},
        (A.bfloat16(), B.bfloat16(), below(N, M)),
        linear_entropy,
    ),
    "retention": (
        (3, M, 16, N),
        {"block_L": (1, 8, 32), "block_E": (8, 16, 64)},
        (of(3, M, 16), of(3 * M * 16).view(3, M, 16), of(3, M, N), of(3)),
        retention,
    ),
    "packed_groups": (
        (M, 3, 20),
        {"block_M": (1, 32), "block_G": (1, 3)},
        (of(M, 3, 20),),
        packed_groups,
    ),
    "two_experts": (
        (M, N, K),
        {"block_M": (1, 8, 32), "block_K": (8, 16, 48)},
        (A, B),
        two_experts,
    ),
    "covariance": (
        (M, N),
        {"block_M": (8, 64), "block_N": (8, 64), "block_K": (8, 32)},
        (X, X.mean(0)),
        lambda x, _: x.T.cov(),
    ),
    "small_floats": (
        (M, N, K),
        {"block_M": (1, 32), "block_N": (8, 64), "block_K": (16, 48)},
        (
            *(A, below(127, N, K, dtype=torch.uint8) | below(2, N, K, dtype=torch.uint8) << 7),
            of(N) / 256,
        ),
        small_floats,
    ),
    "capped_attention": (
        (2, M, N, 16),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (9 * of(2, M, 16), of(2, N, 16), of(2, N, 16) + 1, of(2)),
        capped_attention,
    ),
    "dropped_linear": (
        (M, N, K),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (8, 16, 48)},
        (A, B, of(N), below(2, M, N, dtype=torch.uint8)),
        lambda x, w, b, on: torch.nn.functional.gelu(x @ w.T + b) / 0.9 * on,
    ),
    "quadratic_forms": (
        (M, K),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 48), "block_K": (16, 8, 48)},
        (A, of(K, K) / K),
        lambda x, a: (x @ a * x).sum(1),
    ),
    "paged_attention": (
        (3, 6, 48, 16, 20, 12),
        {"block_G": (1, 2, 6), "block_N": (8, 24, 48)},
        (
            *(of(3, 6, 16), of(20, 12, 16), of(20, 12, 16) + 1),
            *(below(20, 3, 4), torch.tensor([0, 29, 47], dtype=torch.int32)),
        ),
        paged_attention,
    ),
    "recurrent_layer": (
        (8, M, K),
        {"block_L": (1, 4, 8), "block_B": (1, 8, 32)},
        (of(8, M, K), of(K, K) / 7),
        recurrent_layer,
    ),
    "three_values": (
        (M, N, K),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (16, 12, 48)},
        (A, below(255, N, K // 4, dtype=torch.uint8), of(N)),
        three_values,
    ),
}
