"""What torch gives for the kernels of `benchmarks/cost/` that are held out."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import A, B, K, M, N, Reference, below, of


def peaks_of_rows(X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x, before, after = X[:, 1:-1], X[:, :-2], X[:, 2:]
    is_peak = (x > 400) & (x > before) & (x >= after)
    count, total = is_peak.sum(1), ((x.int() - 400) * is_peak).sum(1)
    return count.int(), total / count.clamp(min=1)


def layered_images(X: torch.Tensor) -> torch.Tensor:
    under = torch.zeros(*X.shape[1:3], 3, dtype=torch.int32)
    for layer in X.int():
        cover = layer[..., 3:]
        under = (cover * layer[..., :3] + (255 - cover) * under + 127) // 255
    return under.byte()


def decoded_sound(P: torch.Tensor, steps: torch.Tensor, changes: torch.Tensor) -> torch.Tensor:
    codes = torch.stack([P & 15, P >> 4], 2).flatten(1).int()
    value = place = torch.zeros(len(P), dtype=torch.int32)
    made = []
    for code in codes.unbind(1):
        change = (2 * (code & 7) + 1) * steps[place] // 8
        value = (value + torch.where(code > 7, -change, change)).clamp(-32768, 32767)
        place = (place + changes[code & 7]).clamp(0, 88)
        made.append(value)
    return torch.stack(made, 1).to(torch.int16)


def mixed_times(
    K: torch.Tensor, V: torch.Tensor, decay: torch.Tensor, u: torch.Tensor
) -> torch.Tensor:
    ages = (torch.arange(len(K))[:, None] - torch.arange(len(K)))[..., None]
    late = torch.where(ages == 0, u, (1 - ages) * decay.exp())
    scores = (K.float() + late).masked_fill(ages < 0, -torch.inf)
    return (scores.softmax(1) * V.float()).sum(1).bfloat16()


def edge_maxima(
    A: torch.Tensor, B: torch.Tensor, near: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    edges = torch.nn.functional.leaky_relu(A.float()[:, None] + B.float()[near], 0.2)
    return edges.amax(1).half(), edges.argmax(1).byte()


def poisson_sweeps(U: torch.Tensor, F: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        F = F[1:-1, 1:-1]
        U = (U[:-2, 1:-1] + U[2:, 1:-1] + U[1:-1, :-2] + U[1:-1, 2:] - F) / 4
    return U


def walsh_transforms(X: torch.Tensor) -> torch.Tensor:
    signs = torch.ones(1, 1)
    while len(signs) < X.shape[2]:
        signs = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), signs)
    return (X.float() @ signs / len(signs) ** 0.5).half()


def contrastive_losses(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    a, b = (torch.nn.functional.normalize(each.float()) for each in (A, B))
    return torch.nn.functional.cross_entropy(a @ b.T / 0.07, torch.arange(len(a)), reduction="none")


def table_distances(D: torch.Tensor, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = D[:, torch.arange(codes.shape[1]), codes.long()].sum(2)
    return total, total.amin(1)


def bytes_attention(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    keys, values = k[..., None] * K, v[..., None] * V
    return torch.nn.functional.scaled_dot_product_attention(Q, keys, values)


REFERENCES: dict[str, Reference] = {
    "peaks_of_rows": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (below(1500, M, N + 2, dtype=torch.int16) - 500,),
        peaks_of_rows,
    ),
    "median_bytes": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (below(256, M, N, dtype=torch.uint8),),
        lambda x: x.median(0).values,
    ),
    "layered_images": (
        (4, M, N),
        {"block_H": (1, 8, 32), "block_W": (1, 16, 64)},
        (below(256, 4, M, N, 4, dtype=torch.uint8),),
        layered_images,
    ),
    "decoded_sound": (
        (M, N),
        {"block_M": (1, 8, 32), "block_L": (1, 16, 64)},
        (
            below(256, M, N // 2, dtype=torch.uint8),
            (7 * 1.1 ** torch.arange(89)).int(),
            torch.tensor([-1, -1, -1, -1, 2, 4, 6, 8], dtype=torch.int32),
        ),
        decoded_sound,
    ),
    "mixed_times": (
        (M, N),
        {"block_L": (1, 8, 32), "block_C": (1, 16, 64)},
        (of(M, N).bfloat16(), of(N, M).T.contiguous().bfloat16(), of(N), of(N).flip(0)),
        mixed_times,
    ),
    "edge_maxima": (
        (M, N, 6),
        {"block_M": (1, 8, 32), "block_N": (4, 16, 64)},
        (of(M, N).half(), of(N, M).T.contiguous().half(), below(M, M, 6)),
        edge_maxima,
    ),
    "poisson_sweeps": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (of(M + 8, N + 8), of(N + 8, M + 8).T.contiguous()),
        poisson_sweeps,
    ),
    "survival_losses": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (4, 16, 64)},
        (of(M, N).half(), below(2, M, N, dtype=torch.uint8)),
        lambda x, on: (on * (x.float().logcumsumexp(1) - x.float())).sum(1),
    ),
    "walsh_transforms": (
        (M, 6, 32),
        {"block_M": (1, 8, 32), "block_G": (1, 2, 6)},
        (of(M, 6, 32).half(),),
        walsh_transforms,
    ),
    "contrastive_losses": (
        (M, K),
        {"block_M": (1, 8, 32), "block_N": (4, 16, 32)},
        (A.bfloat16(), B[:M].bfloat16()),
        contrastive_losses,
    ),
    "table_distances": (
        (M, N, 5),
        {"block_M": (1, 8, 32), "block_N": (1, 16, 64)},
        (of(M, 5, 256), below(256, N, 5, dtype=torch.uint8)),
        table_distances,
    ),
    "bytes_attention": (
        (3, 8, N, K),
        {"block_G": (1, 4, 8), "block_N": (4, 16, 64)},
        (
            of(3, 8, K),
            (below(255, 3, N, K) - 127).to(torch.int8),
            (below(253, 3, N, K) - 126).to(torch.int8),
            of(3, N).abs() / 64,
            of(N, 3).T.contiguous().abs() / 64,
        ),
        bytes_attention,
    ),
}
