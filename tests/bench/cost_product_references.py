"""What torch gives for the products of `benchmarks/cost/`."""

from __future__ import annotations

import torch

from tests.bench.cost_inputs import BOTH, A, B, K, M, N, Reference, X, Y, below, of


def patches(X: torch.Tensor, W: torch.Tensor, b: torch.Tensor, E: torch.Tensor) -> torch.Tensor:
    squares = X.reshape(4, 4, 4, 4, 3).permute(0, 2, 1, 3, 4).reshape(16, 48)
    return squares @ W + b + E


def rms_linear(X: torch.Tensor, W: torch.Tensor) -> torch.Tensor:
    x = torch.nn.functional.rms_norm(X.float(), X.shape[1:], eps=1e-6)
    return (x @ W.float().T).bfloat16()


def linear_entropy(X: torch.Tensor, W: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    logits = X.float() @ W.float().T
    return torch.nn.functional.cross_entropy(logits, y.long(), reduction="none")


def two_experts(X: torch.Tensor, W: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    most = (X @ W.T).topk(2)
    return most.indices.int(), most.values.softmax(1)


def recurrent_layer(X: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    states = [torch.zeros_like(X[0])]
    for x in X:
        states.append((x + states[-1] @ U).tanh())
    return torch.stack(states[1:])


def power_spectrum(
    X: torch.Tensor, w: torch.Tensor, C: torch.Tensor, S: torch.Tensor
) -> torch.Tensor:
    frames = X.unfold(0, K, 10) * w
    return (frames @ C) ** 2 + (frames @ S) ** 2


def chosen_adapters(
    X: torch.Tensor, U: torch.Tensor, V: torch.Tensor, choice: torch.Tensor
) -> torch.Tensor:
    inner = (X.float() @ U[choice.long()].float() / 8).half()
    return (inner.float() @ V[choice.long()].float()).half()


def likeness(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    places = torch.arange(32)
    a, b = ((each[..., None] >> places & 1).flatten(1).float() for each in (A, B.T))
    both = a @ b.T
    return both / (a.sum(1)[:, None] + b.sum(1) - both)


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


def basis_layer(X: torch.Tensor, c: torch.Tensor, W: torch.Tensor) -> torch.Tensor:
    basis = (-((X.float() - c[:, None, None]) ** 2)).exp().bfloat16()
    return (basis.float() @ W.float()).sum(0)


def sparse_step(
    V: torch.Tensor, C: torch.Tensor, x: torch.Tensor, b: torch.Tensor, d: torch.Tensor
) -> torch.Tensor:
    return x + (b - (V * x[C.long()]).sum(1)) / d


def gaussian_densities(X: torch.Tensor, U: torch.Tensor, S: torch.Tensor) -> torch.Tensor:
    off = X[:, :, None] - U
    return -0.5 * ((-S).exp() * off * off + S).sum(1)


def bytes_convolution(X: torch.Tensor, filters: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    weights = filters.reshape(3, 3, *filters.shape[1:]).permute(3, 2, 0, 1)
    total = torch.nn.functional.conv2d(X.permute(2, 0, 1).double(), weights.double())
    return (total.permute(1, 2, 0).float() * s).round().clamp(0, 127).to(torch.int8)


def tap_gradients(X: torch.Tensor, G: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x, g = X.double(), G.double()
    weights = torch.stack([(g * x[:, t : t + g.shape[1]]).sum((0, 1)) for t in range(4)])
    return weights.float(), g.sum((0, 1)).float()


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
    "adapted_linear": (
        (M, N, K, 16),
        {"block_M": (1, 32), "block_N": (16, 64), "block_K": (16, 48)},
        (A, B, of(16, K) / 8, of(N, 16) / 8),
        lambda x, w, a, b: x @ w.T + 2 * (x @ a.T) @ b.T,
    ),
    "rms_linear": (
        (M, N, K),
        {"block_M": (1, 32), "block_N": (16, 64), "block_K": (16, 48)},
        (A.bfloat16(), B.bfloat16()),
        rms_linear,
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
    "recurrent_layer": (
        (8, M, K),
        {"block_L": (1, 4, 8), "block_B": (1, 8, 32)},
        (of(8, M, K), of(K, K) / 7),
        recurrent_layer,
    ),
    "power_spectrum": (
        (M, K, N, 10),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (16, 8, 48)},
        (of(31 * 10 + K) / 7, of(K), of(K, N), of(N, K).T.contiguous()),
        power_spectrum,
    ),
    "chosen_adapters": (
        (3, M, N, K, 8),
        {"block_L": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (16, 8, 48)},
        (of(3, M, K).half(), of(16, K, 8).half(), of(16, 8, N).half(), below(16, 3)),
        chosen_adapters,
    ),
    "weight_gradient": (
        (M, N, K),
        {"block_M": (8, 16, 32), "block_N": (8, 16, 64), "block_K": (1, 8, 48)},
        (A.bfloat16(), X.bfloat16(), Y.bfloat16()),
        lambda x, y, g: x.float().T @ (g * (y > 0)).float(),
    ),
    "likeness": (
        (M, N, K),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (4, 16, 48)},
        (below(2**31 - 1, M, K), below(2**31 - 1, K, N)),
        likeness,
    ),
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
    "basis_layer": (
        (M, N, K, 5),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (8, 16, 48)},
        (of(M, K).bfloat16(), of(5), of(5, K, N).bfloat16()),
        basis_layer,
    ),
    "sparse_step": (
        (N, K),
        {"block_M": (1, 8, 64), "block_K": (4, 16, 48)},
        (of(N, K), below(N, N, K), of(N), of(N).flip(0), of(N).abs() + 1),
        sparse_step,
    ),
    "gaussian_densities": (
        (M, N, K),
        {"block_M": (1, 8, 32), "block_N": (8, 16, 64), "block_K": (8, 16, 48)},
        (A, of(K, N), of(N, K).T.contiguous() / 2),
        gaussian_densities,
    ),
    "bytes_convolution": (
        (12, 16, 8, 24),
        {"block_H": (1, 4, 12), "block_W": (2, 8, 16)},
        (
            (below(256, 14, 18, 8) - 128).to(torch.int8),
            (below(255, 9, 8, 24) - 127).to(torch.int8),
            of(24).abs() / 999,
        ),
        bytes_convolution,
    ),
    "tap_gradients": (
        (3, M, N),
        {"block_L": (1, 8, 32), "block_C": (8, 16, 64)},
        (of(3, M + 3, N).bfloat16(), of(3, M, N).bfloat16()),
        tap_gradients,
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
