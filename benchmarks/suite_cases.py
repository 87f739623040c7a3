"""The rows of cpu_suite.py: kernels of the library with their references, one configuration each.

A row has shapes; a shape makes a `Case`: a compiled kernel, its arguments, and the callables that
it is compared with. References are given operands in the order of dimensions that suits them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.kernels import (
    add_layernorm,
    chunk_scan,
    chunk_state,
    cross_entropy,
    dequant_gemv,
    dequant_matmul,
    elementwise,
    flash_attention,
    matmul,
    mla_decode,
    rmsnorm,
    softmax,
)
from tileworkbench.kernels.dequant_matmul import BITS, pack, unpack

Shape = tuple[int, ...]
GROUP = 128  # weights that share a scale


@dataclass(frozen=True, slots=True)
class Case:
    """One cell: `ours` and each of `references` return the same values, the first output."""

    kernel: Any
    arguments: tuple[Any, ...]
    references: Mapping[str, Callable[[], Any]]

    def ours(self) -> Any:
        """One call of our kernel."""
        return self.kernel(*self.arguments)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: goal and aim are ratios of speed to the best reference."""

    name: str
    goal: float
    aim: float
    shapes: tuple[Shape, ...]
    build: Callable[[Shape], Case]
    streams: bool = False  # bound by memory: its bandwidth is held against the roof


def floats(*shape: int, dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    """Standard normal numbers from a fixed seed."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(getattr(torch, dtype))


def make_matmul(dtype: str) -> Callable[[Shape], Case]:
    def build(shape: Shape) -> Case:
        m, n, k = shape
        if dtype == "int8":
            a, b = (torch.randint(-128, 128, s, dtype=torch.int8) for s in ((m, k), (k, n)))
            kernel = tw.compile(matmul(m, n, k, dtype))
            return Case(kernel, (a, b), {"torch": lambda: torch._int_mm(a, b)})
        a, b = floats(m, k, dtype=dtype), floats(k, n, dtype=dtype, seed=1)
        kernel = tw.compile(matmul(m, n, k, dtype, out_dtype=dtype))
        return Case(kernel, (a, b), {"torch": lambda: a @ b})

    return build


def make_dequant(kind: str, m: int) -> Callable[[Shape], Case]:
    def build(shape: Shape) -> Case:
        n, k = shape
        codes = torch.randint(
            0, 1 << BITS[kind], (n, k), generator=torch.Generator().manual_seed(1)
        )
        packed = pack(codes, kind)
        scales = (floats(n, k // GROUP).abs() + 0.1).bfloat16()
        wide = unpack(packed, kind) * scales.double().repeat_interleave(GROUP, 1)
        weights = wide.bfloat16().mT  # as torch.nn.Linear keeps them
        x = floats(m, k, dtype="bfloat16")
        references = {"torch": lambda: x @ weights}
        if m == 1:
            kernel = tw.compile(dequant_gemv(n, k, kind, GROUP, "bfloat16"))
            return Case(kernel, (x[0], packed, scales), references)
        kernel = tw.compile(dequant_matmul(m, n, k, kind, GROUP, "bfloat16"))
        return Case(kernel, (x, packed, scales), references)

    return build


def make_attention(dtype: str, causal: bool) -> Callable[[Shape], Case]:
    def build(shape: Shape) -> Case:
        heads, length, dim = shape
        q, k, v = (floats(1, length, heads, dim, dtype=dtype, seed=seed) for seed in range(3))
        kernel = tw.compile(flash_attention(1, heads, length, length, dim, dtype, causal=causal))
        theirs = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
        found = F.scaled_dot_product_attention
        call = {"torch": lambda: found(*theirs, is_causal=causal).transpose(1, 2)}
        return Case(kernel, (q, k, v), call)

    return build


def eager_and_compiled(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """A function as torch runs it, and as torch.compile does."""
    compiled = torch.compile(function)
    return {
        "torch": lambda: function(*arguments),
        "torch.compile": lambda: compiled(*arguments),
    }


def mla_in_torch(q: Any, q_pe: Any, kv: Any, k_pe: Any) -> Any:
    """As one writes it: one matrix product over both parts of the keys, softmax, the second."""
    keys, queries = torch.cat([kv, k_pe], -1)[:, :, 0], torch.cat([q, q_pe], -1)
    scores = queries @ keys.mT * queries.shape[-1] ** -0.5
    return scores.softmax(-1) @ kv[:, :, 0]


def make_mla(dtype: str) -> Callable[[Shape], Case]:
    def build(shape: Shape) -> Case:
        batch, heads, length = shape
        q, q_pe = floats(batch, heads, 512, dtype=dtype), floats(batch, heads, 64, dtype=dtype)
        kv = floats(batch, length, 1, 512, dtype=dtype)
        k_pe = floats(batch, length, 1, 64, dtype=dtype)
        kernel = tw.compile(mla_decode(batch, heads, length, dtype=dtype))
        arguments = (q, q_pe, kv, k_pe)
        return Case(kernel, arguments, eager_and_compiled(mla_in_torch, *arguments))

    return build


def chunk_state_in_torch(b: Any, x: Any, dt: Any, decay: Any) -> Any:
    """Batched products, the weights folded into x."""
    _, heads, chunks, length = dt.shape
    b = b.repeat_interleave(heads // b.shape[2], 2).unflatten(1, (chunks, length))
    weight = ((decay[..., -1:] - decay).exp() * dt).permute(0, 2, 3, 1)
    weighted = (x.unflatten(1, (chunks, length)) * weight[..., None]).to(b.dtype)
    return torch.einsum("bclhp,bclhn->bchpn", weighted, b)


def make_chunk_state(dtype: str) -> Callable[[Shape], Case]:
    def build(shape: Shape) -> Case:
        chunks, length, heads, dim, state = shape
        b = floats(1, chunks * length, 1, state, dtype=dtype)
        x = floats(1, chunks * length, heads, dim, dtype=dtype)
        dt = floats(1, heads, chunks, length).abs()
        decay = -floats(1, heads, chunks, length, seed=1).abs().cumsum(-1) / 100
        kernel = tw.compile(chunk_state(1, chunks, length, heads, dim, state, dtype=dtype))
        arguments = (b, x, dt, decay)
        return Case(kernel, arguments, eager_and_compiled(chunk_state_in_torch, *arguments))

    return build


def chunk_scan_in_torch(cb: Any, x: Any, dt: Any, decay: Any, c: Any, states: Any, d: Any) -> Any:
    """Batched products over whole chunks."""
    _, heads, chunks, length = dt.shape
    c = c.repeat_interleave(heads // c.shape[2], 2).unflatten(1, (chunks, length))
    cb = cb.repeat_interleave(heads // cb.shape[2], 2).transpose(1, 2)
    wide = x.unflatten(1, (chunks, length))
    span = (decay[..., :, None] - decay[..., None, :]).tril().exp() * dt[..., None, :]
    within = (cb * span).tril().to(x.dtype) @ wide.permute(0, 3, 1, 2, 4)
    before = c.permute(0, 3, 1, 2, 4) @ states.permute(0, 2, 1, 4, 3)
    total = within + before * decay.exp()[..., None]
    return (total.permute(0, 2, 3, 1, 4) + wide * d[:, None]).flatten(1, 2).to(x.dtype)


def make_chunk_scan(dtype: str) -> Callable[[Shape], Case]:
    def build(shape: Shape) -> Case:
        chunks, length, heads, dim, state = shape
        cb = floats(1, chunks, 1, length, length, dtype=dtype)
        x = floats(1, chunks * length, heads, dim, dtype=dtype)
        dt = floats(1, heads, chunks, length).abs()
        decay = -floats(1, heads, chunks, length, seed=1).abs().cumsum(-1) / 100
        c = floats(1, chunks * length, 1, state, dtype=dtype)
        states = floats(1, chunks, heads, dim, state, dtype=dtype)
        arguments = (cb, x, dt, decay, c, states, floats(heads, dtype=dtype))
        kernel = tw.compile(chunk_scan(1, chunks, length, heads, dim, state, dtype=dtype))
        return Case(kernel, arguments, eager_and_compiled(chunk_scan_in_torch, *arguments))

    return build


def make_rows(name: str, dtype: str) -> Callable[[Shape], Case]:
    """A kernel that works on the rows of a matrix, or on its elements."""

    def build(shape: Shape) -> Case:
        m, n = shape
        x, y = floats(m, n, dtype=dtype), floats(m, n, dtype=dtype, seed=1)
        weight, bias = floats(n, dtype=dtype), floats(n, dtype=dtype, seed=1)
        labels = torch.arange(m) * 7919 % n
        factory, arguments, function = {
            "softmax": (softmax, (x,), lambda x: x.softmax(-1)),
            "rmsnorm": (rmsnorm, (x, weight), lambda x, w: F.rms_norm(x, (n,), w, 1e-6)),
            "layernorm + residual": (
                add_layernorm,
                (x, y, weight, bias),
                lambda x, r, w, b: (F.layer_norm(x + r, (n,), w, b), x + r),
            ),
            "add": (elementwise.add, (x, y), lambda x, y: x + y),
            "gelu": (elementwise.gelu, (x,), F.gelu),
            "cross entropy": (
                cross_entropy,
                (x, labels),
                lambda x, labels: F.cross_entropy(x, labels, reduction="none"),
            ),
        }[name]
        kernel = tw.compile(factory(m, n, dtype))
        return Case(kernel, arguments, eager_and_compiled(function, *arguments))

    return build


def square(size: int) -> Shape:
    return (size, size, size)


# The TileLang paper's M-shapes (M 4096, N x K 8192 x 8192, 28672 x 8192, ...), divided by 8.
_MATMULS = ((512, 1024, 1024), (512, 3584, 1024), (512, 1024, 3584))
_RAGGED = ((1000, 1000, 1000), (517, 1031, 773))
# Its V-shapes (16384 x 16384, 43008 x 14336, 14336 x 57344, ...), divided by 4.
_VECTORS = ((4096, 4096), (10752, 3584), (3584, 14336))
_ATTENTION = ((8, 512, 128), (8, 1024, 128), (8, 2048, 128), (8, 4096, 128))
_MAMBA = ((8, 256, 8, 64, 128), (4, 256, 24, 64, 128))
_ROWS = ((1024, 1024), (4096, 4096))
_ROW_KERNELS = ("softmax", "rmsnorm", "layernorm + residual", "add", "gelu", "cross entropy")

ROWS: tuple[Row, ...] = (
    Row(
        "float32 matmul", 1.0, 1.1,
        (*map(square, (512, 1024, 2048, 4096)), *_MATMULS, *_RAGGED), make_matmul("float32"),
    ),
    Row(
        "bfloat16 matmul", 1.0, 1.5,
        (*map(square, (512, 1024, 2048)), *_MATMULS, *_RAGGED), make_matmul("bfloat16"),
    ),
    # _int_mm refuses extents that are no multiples of 8.
    Row(
        "int8 matmul", 1.3, 2.0,
        (*map(square, (512, 1024, 2048)), *_MATMULS, (1000, 1000, 1000)), make_matmul("int8"),
    ),
    # Where the processor has no float16 arithmetic, torch takes seconds.
    Row("float16 matmul", 1.0, 2.0, ((256, 256, 256), (512, 512, 512)), make_matmul("float16")),
    *(
        Row(f"{kind} weights, m = 1", 2.0, 3.0, _VECTORS, make_dequant(kind, 1), True)
        for kind in ("int4", "nf4", "int2", "fp4")
    ),
    *(
        Row(f"{kind} weights, m = 64", 1.0, 1.5, _VECTORS, make_dequant(kind, 64))
        for kind in ("int4", "nf4", "int2", "fp4")
    ),
    Row("attention float32", 1.1, 1.4, _ATTENTION, make_attention("float32", False)),
    Row("attention bfloat16", 1.25, 2.0, _ATTENTION, make_attention("bfloat16", False)),
    Row("causal attention float32", 1.5, 2.0, _ATTENTION, make_attention("float32", True)),
    Row("causal attention bfloat16", 1.5, 3.0, _ATTENTION, make_attention("bfloat16", True)),
    *(
        Row(f"{name} {dtype}", 1.5, 3.0, shapes, make(dtype))
        for name, shapes, make in (
            ("MLA decode", ((1, 128, 1024), (4, 128, 2048)), make_mla),
            ("chunk_state", _MAMBA, make_chunk_state),
            ("chunk_scan", _MAMBA, make_chunk_scan),
        )
        for dtype in ("float32", "bfloat16")
    ),
    *(
        Row(f"{name} {dtype}", 1.0, 1.0, _ROWS, make_rows(name, dtype), True)
        for name in _ROW_KERNELS
        for dtype in ("float32", "bfloat16")
    ),
)  # fmt: skip
