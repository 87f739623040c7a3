"""What torch gives for the states of `benchmarks/cost/` that go step by step."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import K, M, N, Reference, X, below, of


def gated_unit(X: torch.Tensor, H: torch.Tensor, W: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    return torch.gru_cell(X, H, W.mT.flatten(0, 1), U.mT.flatten(0, 1))


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


def kepler_places(s: torch.Tensor, r: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    flat, mean = 0.8 * s.sigmoid()[:, None], torch.outer(r, t)
    angle = mean
    for _ in range(5):
        angle = angle - (angle - flat * angle.sin() - mean) / (1 - flat * angle.cos())
    return torch.stack([angle.cos() - flat, (1 - flat * flat).sqrt() * angle.sin()])


def warped_distances(X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    far = torch.full(X.shape[1:], torch.inf)
    row = [torch.zeros_like(far)] + [far] * len(Y)
    for x in X:
        made = [far]
        for s, y in enumerate(Y):
            least = torch.minimum(torch.minimum(row[s], row[s + 1]), made[-1])
            made.append((x - y).abs() + least)
        row = made
    return row[-1]


def alignment_losses(X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    lengths = (torch.full((len(y),), each) for each in (len(X), y.shape[1]))
    return torch.nn.functional.ctc_loss(X, y, *lengths, reduction="none")


REFERENCES: dict[str, Reference] = {
    "gated_unit": (
        (M, N, K),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (8, 16, 16)},
        (of(M, K), X, of(3, K, N) / 7, of(3, N, N) / 8),
        gated_unit,
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
    "kepler_places": (
        (M, N, 5),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64)},
        (of(M), of(M).flip(0), of(N)),
        kepler_places,
    ),
    "warped_distances": (
        (M, 20, 24),
        {"block_L": (1, 8, 32), "block_B": (1, 6, 24)},
        (of(M, 24), of(20, 24)),
        warped_distances,
    ),
    "alignment_losses": (
        (M, 12, 20, 9),
        {"block_L": (1, 8, 32), "block_B": (1, 4, 12)},
        (of(M, 12, 20).log_softmax(2), 1 + below(5, 12, 9)),
        alignment_losses,
    ),
}
