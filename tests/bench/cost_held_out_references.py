"""What torch gives for the kernels of `benchmarks/cost/` that are held out."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import K, M, N, Reference, X, below, of


def gated_unit(X: torch.Tensor, H: torch.Tensor, W: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    return torch.gru_cell(X, H, W.mT.flatten(0, 1), U.mT.flatten(0, 1))


def basis_layer(X: torch.Tensor, c: torch.Tensor, W: torch.Tensor) -> torch.Tensor:
    basis = (-((X.float() - c[:, None, None]) ** 2)).exp().bfloat16()
    return (basis.float() @ W.float()).sum(0)


def rotated_bytes(X: torch.Tensor, R: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    turned = X.float() @ R.float()
    most = turned.abs().amax(1)
    return (turned * (127.0 / most)[:, None]).round().to(torch.int8), most / 127.0


def dice_loss(X: torch.Tensor, on: torch.Tensor) -> torch.Tensor:
    p = X.float().sigmoid()
    return 1 - (2 * (p * on).sum(1) + 1) / ((p + on).sum(1) + 1)


def order_loss(S: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
    costs = torch.nn.functional.softplus(S[:, None] - S[:, :, None])
    return (costs * (G[:, :, None] > G[:, None])).sum((1, 2))


def attentive_statistics(X: torch.Tensor, S: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weights, x = S.softmax(1), X.float()
    mean = (weights * x).sum(1)
    return mean, (weights * (x - mean[:, None]) ** 2).sum(1).clamp(1e-6).sqrt()


def blurred_bytes(X: torch.Tensor) -> torch.Tensor:
    weights = torch.tensor([1, 4, 6, 4, 1])
    pieces = X.long().unfold(0, 5, 1).unfold(1, 5, 1)
    return ((torch.einsum("ijab,a,b->ij", pieces, weights, weights) + 128) // 256).byte()


def likely_paths(A: torch.Tensor, E: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    state, states, places = torch.zeros(E.shape[1:]), [], []
    for seen in E:
        best = (state[..., None] + A).max(1)
        state = best.values + seen
        states.append(state)
        places.append(best.indices.int())
    return torch.stack(states), torch.stack(places)


def spiking_neurons(X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    charge, bound, spikes = torch.zeros(X.shape[1]), torch.ones(X.shape[1]), []
    for x in X.float():
        charge = 0.9 * charge + x
        spikes.append(charge > bound)
        charge = charge - spikes[-1] * bound
        bound = 0.95 * bound + 0.05 + 0.2 * spikes[-1]
    made = torch.stack(spikes)
    return made.byte(), made.float().mean(0)


def escape_times(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.complex(a.double(), torch.zeros(len(a)).double()) + 1j * b.double()[:, None]
    z, is_near = torch.zeros_like(c), []
    for _ in range(12):
        is_near.append(z.abs() <= 2)
        z = torch.where(is_near[-1], z * z + c, z)
    return torch.stack(is_near).sum(0).int()


def sparse_step(
    V: torch.Tensor, C: torch.Tensor, x: torch.Tensor, b: torch.Tensor, d: torch.Tensor
) -> torch.Tensor:
    return x + (b - (V * x[C.long()]).sum(1)) / d


def colours_of_video(Y: torch.Tensor, UV: torch.Tensor) -> torch.Tensor:
    light = 298 * (Y.int() - 16) + 128
    u, v = (UV.int() - 128).repeat_interleave(2, 0).repeat_interleave(2, 1).unbind(2)
    colours = torch.stack([light + 409 * v, light - 100 * u - 208 * v, light + 516 * u], 2)
    return (colours >> 8).clamp(0, 255).byte()


REFERENCES: dict[str, Reference] = {
    "gated_unit": (
        (M, N, K),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (8, 16, 16)},
        (of(M, K), X, of(3, K, N) / 7, of(3, N, N) / 8),
        gated_unit,
    ),
    "basis_layer": (
        (M, N, K, 5),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (8, 16, 48)},
        (of(M, K).bfloat16(), of(5), of(5, K, N).bfloat16()),
        basis_layer,
    ),
    "rotated_bytes": (
        (M, K),
        {"block_M": (1, 8, 32), "block_K": (8, 16, 48)},
        (of(M, K).half(), of(K, K).half()),
        rotated_bytes,
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
    "attentive_statistics": (
        (3, M, N),
        {"block_L": (1, 8, 32), "block_C": (8, 16, 64)},
        (of(3, M, N).bfloat16(), 2 * of(3, N, M).mT.contiguous()),
        attentive_statistics,
    ),
    "blurred_bytes": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (below(256, M + 4, N + 4, dtype=torch.uint8),),
        blurred_bytes,
    ),
    "likely_paths": (
        (M, 24, 10),
        {"block_L": (1, 8, 32), "block_B": (1, 6, 24)},
        (of(10, 10), of(M, 24, 10)),
        likely_paths,
    ),
    "spiking_neurons": (
        (M, N),
        {"block_L": (1, 8, 32), "block_N": (8, 16, 64)},
        (X.half(),),
        spiking_neurons,
    ),
    "escape_times": (
        (M, N, 12),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (of(N), of(M)),
        escape_times,
    ),
    "sparse_step": (
        (N, K),
        {"block_M": (1, 8, 64), "block_K": (4, 16, 48)},
        (of(N, K), below(N, N, K), of(N), of(N).flip(0), of(N).abs() + 1),
        sparse_step,
    ),
    "colours_of_video": (
        (M, N),
        {"block_H": (1, 8, 32), "block_W": (8, 16, 64)},
        (below(256, M, N, dtype=torch.uint8), below(255, M // 2, N // 2, 2, dtype=torch.uint8)),
        colours_of_video,
    ),
}
