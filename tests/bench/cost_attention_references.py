"""What torch gives for the attention of `benchmarks/cost/`."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import A, B, K, M, N, Reference, X, below, of


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


def retention(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, rate: torch.Tensor
) -> torch.Tensor:
    steps = torch.arange(Q.shape[1])
    ago = (steps[:, None] - steps).clamp(0)
    return (Q @ K.mT * (-rate.abs()[:, None, None] * ago).exp()).tril() @ V


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


def linear_attention(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    q, k = (torch.nn.functional.elu(each.float()) + 1 for each in (Q, K))
    scores = q @ k.mT
    return scores / scores.sum(2, keepdim=True) @ V.float()


def latent_attention(
    Q: torch.Tensor, P: torch.Tensor, C: torch.Tensor, K: torch.Tensor
) -> torch.Tensor:
    q, keys = torch.cat([Q, P], 2).float(), torch.cat([C, K], 2).float()
    return torch.nn.functional.scaled_dot_product_attention(q, keys, C.float())


REFERENCES: dict[str, Reference] = {
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
    "value_gradient": (
        (3, M, N, 16),
        {"block_M": (1, 32), "block_N": (8, 64)},
        (of(3, M, 16), of(3, N, 16), of(3 * M * 16).view(3, M, 16), of(3, M)),
        lambda q, k, g, logs: (q @ k.mT / 4 - logs[..., None]).exp().mT @ g,
    ),
    "retention": (
        (3, M, 16, N),
        {"block_L": (1, 8, 32), "block_E": (8, 16, 64)},
        (of(3, M, 16), of(3 * M * 16).view(3, M, 16), of(3, M, N), of(3)),
        retention,
    ),
    "capped_attention": (
        (2, M, N, 16),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (9 * of(2, M, 16), of(2, N, 16), of(2, N, 16) + 1, of(2)),
        capped_attention,
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
    "linear_attention": (
        (3, M, 24, K),
        {"block_L": (1, 8, 32), "block_E": (8, 16, 48)},
        (of(3, M, 24).bfloat16(), of(3, 24, M).mT.contiguous().bfloat16(), of(3, M, K).bfloat16()),
        linear_attention,
    ),
    "latent_attention": (
        (3, 8, N, K, 16),
        {"block_H": (1, 4, 8), "block_N": (8, 16, 64)},
        (of(3, 8, K).half(), of(3, 8, 16).half(), of(3, N, K).half(), of(3, N, 16).half()),
        latent_attention,
    ),
}
