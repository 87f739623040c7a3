"""What torch gives for the kernels of `benchmarks/cost/` that are held out."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import K, M, N, Reference, X, below, of


def quantile_losses(
    P: torch.Tensor, Y: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    p = P.float().requires_grad_()
    level = torch.arange(1, P.shape[2] + 1) / (P.shape[2] + 1)
    off = Y[..., None] - p
    loss = torch.where(off > 0, level * off, (level - 1) * off).sum((1, 2))
    return loss.detach(), torch.autograd.grad((loss * g).sum(), p)[0].half()


def trimmed_means(X: torch.Tensor) -> torch.Tensor:
    quarter = len(X) // 4
    return X.float().sort(0).values[quarter:-quarter].mean(0)


def alignment_losses(X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    lengths = (torch.full((len(y),), each) for each in (len(X), y.shape[1]))
    return torch.nn.functional.ctc_loss(X, y, *lengths, reduction="none")


def pair_features(
    A: torch.Tensor, B: torch.Tensor, E: torch.Tensor, on: torch.Tensor
) -> torch.Tensor:
    most, places, is_on = len(E) // 2, torch.arange(len(A)), on != 0
    apart = (places - places[:, None]).clamp(-most, most) + most
    total = A.float()[:, None] + B.float() + E.float()[apart]
    return (total.relu() * torch.outer(is_on, is_on)[..., None]).half()


def unpacked_changes(P: torch.Tensor) -> torch.Tensor:
    bits = (P[:, :-1, None].int() >> torch.arange(8)) & 1
    codes = (bits.flatten(1).unflatten(1, (-1, 5)) << torch.arange(5)).sum(2)
    changes = torch.where(codes % 2 == 1, -(codes + 1) // 2, codes // 2)
    return changes.cumsum(1).int()


def wavelet_bands(X: torch.Tensor) -> torch.Tensor:
    def halves(x: torch.Tensor) -> torch.Tensor:
        even, odd = x[::2], x[1::2]
        detail = odd - torch.div(even[:-1] + even[1:], 2, rounding_mode="floor")
        sides = torch.div(detail[:-1] + detail[1:] + 2, 4, rounding_mode="floor")
        return torch.stack([even[1:-1] + sides, detail[1:]])

    along = halves(X.T.int())
    return torch.stack([halves(each.T) for each in along], 1).flatten(0, 1).to(torch.int16)


def tap_gradients(X: torch.Tensor, G: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x, g = X.double(), G.double()
    weights = torch.stack([(g * x[:, t : t + g.shape[1]]).sum((0, 1)) for t in range(4)])
    return weights.float(), g.sum((0, 1)).float()


def hashed_grids(P: torch.Tensor, E: torch.Tensor) -> torch.Tensor:
    made = []
    for grid, features in enumerate(E.float()):
        place = (P / 8 + 0.5).clamp(0, 1) * (8 << grid)
        cell, total = place.floor().long(), 0.0
        for corner in torch.cartesian_prod(torch.arange(2), torch.arange(2)):
            x, y = (cell + corner).unbind(1)
            weight = (1 - corner - place + cell).abs().prod(1, keepdim=True)
            total = total + weight * features[(x ^ y * 2654435761) % len(features)]
        made.append(total)
    return torch.stack(made, 1)


def cosine_codes(X: torch.Tensor, D: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    made = torch.einsum("uk,hkwl,vl->huwv", D, X.float() - 128, D) / q[:, None]
    return made.round().clamp(-128, 127).to(torch.int8)


def latent_attention(
    Q: torch.Tensor, P: torch.Tensor, C: torch.Tensor, K: torch.Tensor
) -> torch.Tensor:
    q, keys = torch.cat([Q, P], 2).float(), torch.cat([C, K], 2).float()
    return torch.nn.functional.scaled_dot_product_attention(q, keys, C.float())


def triangle_product(
    A: torch.Tensor, U: torch.Tensor, B: torch.Tensor, V: torch.Tensor
) -> torch.Tensor:
    left, right = U.float().sigmoid() * A.float(), V.float().sigmoid() * B.float()
    return torch.einsum("ikc,jkc->cij", left, right)


def matched_features(A: torch.Tensor, B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    off = ((A[:, None].int() - B.int()) ** 2).sum(2)
    nearest = off.topk(2, largest=False)
    first, second = nearest.values.unbind(1)
    match = torch.where(first < 0.64 * second, off.argmin(1), -1)
    return match.int(), first.int()


REFERENCES: dict[str, Reference] = {
    "quantile_losses": (
        (M, N, 5),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (of(M, N, 5).half(), X, of(M)),
        quantile_losses,
    ),
    "trimmed_means": (
        (8, M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (of(8, M, N).bfloat16(),),
        trimmed_means,
    ),
    "alignment_losses": (
        (M, 12, 20, 9),
        {"block_L": (1, 8, 32), "block_B": (1, 4, 12)},
        (of(M, 12, 20).log_softmax(2), 1 + below(5, 12, 9)),
        alignment_losses,
    ),
    "pair_features": (
        (M, K, 10),
        {"block_I": (1, 8, 32), "block_J": (1, 8, 32)},
        (of(M, K).half(), of(K, M).T.contiguous().half(), of(21, K).half(), below(4, M).byte()),
        pair_features,
    ),
    "unpacked_changes": (
        (M, N),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (below(256, M, 5 * N // 8 + 1, dtype=torch.uint8),),
        unpacked_changes,
    ),
    "wavelet_bands": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (below(1024, 2 * M + 3, 2 * N + 3, dtype=torch.int16) - 512,),
        wavelet_bands,
    ),
    "tap_gradients": (
        (3, M, N),
        {"block_L": (1, 8, 32), "block_C": (8, 16, 64)},
        (of(3, M + 3, N).bfloat16(), of(3, M, N).bfloat16()),
        tap_gradients,
    ),
    "hashed_grids": (
        (K, 6, 256),
        {"block_N": (1, 8, 48), "block_G": (1, 2, 6)},
        (2 * of(K, 2), of(6, 256, 2).half()),
        hashed_grids,
    ),
    "cosine_codes": (
        (6, 8),
        {"block_H": (1, 2, 6), "block_W": (1, 4, 8)},
        (below(256, 6, 8, 8, 8, dtype=torch.uint8).flip(0), of(8, 8) / 3, of(8, 8).abs() + 9),
        cosine_codes,
    ),
    "latent_attention": (
        (3, 8, N, K, 16),
        {"block_H": (1, 4, 8), "block_N": (8, 16, 64)},
        (of(3, 8, K).half(), of(3, 8, 16).half(), of(3, N, K).half(), of(3, N, 16).half()),
        latent_attention,
    ),
    "triangle_product": (
        (24, K, 5),
        {"block_I": (1, 8, 24), "block_J": (8, 12, 24), "block_K": (8, 16, 48)},
        tuple(each.bfloat16() for each in of(4, 24, K, 5)),
        triangle_product,
    ),
    "matched_features": (
        (M, N, K),
        {"block_M": (1, 8, 32), "block_N": (4, 16, 64)},
        (
            (below(200, M, K) - 100).to(torch.int8),
            (below(200, N, K) - 100 + below(21, N, K) * (torch.arange(N) % 2)[:, None]).to(
                torch.int8
            ),
        ),
        matched_features,
    ),
}
