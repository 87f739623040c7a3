"""What torch gives for the numbers of few bits of `benchmarks/cost/`."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import BOTH, ROWS, A, K, M, N, Reference, X, below, of


def quantise(X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    most = X.abs().amax(1)
    return (X * (127.0 / most)[:, None]).round().to(torch.int8), most / 127.0


def packed_groups(X: torch.Tensor) -> tuple[torch.Tensor, ...]:
    least, extent = X.amin(2), X.amax(2) - X.amin(2)
    codes = ((X - least[..., None]) * (15.0 / extent)[..., None]).round().to(torch.uint8)
    return codes[..., ::2] + 16 * codes[..., 1::2], extent / 15.0, least


def small_floats(X: torch.Tensor, Q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return (X @ Q.view(torch.float8_e4m3fn).float().T) * s


def three_values(X: torch.Tensor, Q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    codes = (Q[..., None].int() >> torch.tensor([0, 2, 4, 6]) & 3) - 1
    return X @ codes.flatten(1).float().T * s


def rotated_bytes(X: torch.Tensor, R: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    turned = X.float() @ R.float()
    most = turned.abs().amax(1)
    return (turned * (127.0 / most)[:, None]).round().to(torch.int8), most / 127.0


def packed_signs(X: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    bits = (X.float() > t).unflatten(1, (-1, 32)).long()
    return (bits << torch.arange(32)).sum(2).int(), bits.sum((1, 2)).int()


def unpacked_changes(P: torch.Tensor) -> torch.Tensor:
    bits = (P[:, :-1, None].int() >> torch.arange(8)) & 1
    codes = (bits.flatten(1).unflatten(1, (-1, 5)) << torch.arange(5)).sum(2)
    changes = torch.where(codes % 2 == 1, -(codes + 1) // 2, codes // 2)
    return changes.cumsum(1).int()


REFERENCES: dict[str, Reference] = {
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
    "bytes_linear": (
        (M, N, K),
        {"block_M": (1, 32), "block_N": (8, 64), "block_K": (16, 48)},
        (
            *(below(100, M, K, dtype=torch.int8), below(90, N, K, dtype=torch.int8)),
            *(of(M), of(N), of(N).flip(0)),
        ),
        lambda a, w, s, t, b: (a.float() @ w.float().T) * s[:, None] * t + b,
    ),
    "packed_groups": (
        (M, 3, 20),
        {"block_M": (1, 32), "block_G": (1, 3)},
        (of(M, 3, 20),),
        packed_groups,
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
    "three_values": (
        (M, N, K),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (16, 12, 48)},
        (A, below(255, N, K // 4, dtype=torch.uint8), of(N)),
        three_values,
    ),
    "rotated_bytes": (
        (M, K),
        {"block_M": (1, 8, 32), "block_K": (8, 16, 48)},
        (of(M, K).half(), of(K, K).half()),
        rotated_bytes,
    ),
    "packed_signs": (
        (M, 6),
        {"block_M": (1, 8, 32), "block_W": (1, 3, 6)},
        (of(M, 192).half(), of(192) / 4),
        packed_signs,
    ),
    "unpacked_changes": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (below(256, M, 5 * N // 8 + 1, dtype=torch.uint8),),
        unpacked_changes,
    ),
}
