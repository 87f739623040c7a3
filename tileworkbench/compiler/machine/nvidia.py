"""NVIDIA's architectures.

Sources: PTX ISA, "mma" and its neighbours with their target ISA notes, "wgmma", "ldmatrix",
"stmatrix", "cp.async", "Tensor copies", "red", "dp4a", "griddepcontrol", "setmaxnreg", "bar"; CUDA
driver API, "cuTensorMapEncodeTiled"; CUDA C++ Programming Guide, "Technical Specifications per
Compute Capability", and cuda_occupancy.h of CUDA 13.0. sm_100 has tcgen05 and tensor memory, for
which there is no code yet; sm_120 has neither these nor wgmma.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.layout.atoms import (
    mma_b_across,
    mma_c,
    mma_c_across,
    mma_operand,
    wgmma_a,
    wgmma_c,
)
from tileworkbench.compiler.layout.layout import SWIZZLES
from tileworkbench.compiler.machine.instructions import (
    Boxes,
    Completion,
    CopyEngine,
    MatrixInstruction,
    MatrixMove,
    Operand,
    Scope,
)
from tileworkbench.compiler.machine.machine import Machine, RegisterShares, SharedMemory

# Warps, blocks and shared memory of a multiprocessor.
_MULTIPROCESSORS = {
    "sm_75": (32, 16, SharedMemory(64 * 1024, reserved=0, granule=256)),
    "sm_80": (64, 32, SharedMemory(164 * 1024)),
    "sm_86": (48, 16, SharedMemory(100 * 1024)),
    "sm_89": (48, 24, SharedMemory(100 * 1024)),
    "sm_90": (64, 32, SharedMemory(228 * 1024)),
    "sm_90a": (64, 32, SharedMemory(228 * 1024)),
    "sm_100": (64, 32, SharedMemory(228 * 1024)),
    "sm_120": (48, 24, SharedMemory(100 * 1024)),
}

_SWIZZLES = (0, *reversed(SWIZZLES))
BOXES = Boxes(dims=5, extent=256, alignment=128, swizzle_rows=8)
COPY_ENGINE = CopyEngine(
    "TMA load", "global", "shared", Completion.PHASE, 16, swizzles=_SWIZZLES, boxes=BOXES
)
_STORE_ENGINE = CopyEngine(
    "TMA store", "shared", "global", Completion.GROUP, 16, swizzles=_SWIZZLES, boxes=BOXES
)
_COPIES = (
    (80, CopyEngine("cp.async", "global", "shared", Completion.GROUP, 4, (4, 8, 16))),
    (90, COPY_ENGINE),
    (90, _STORE_ENGINE),
)
_MOVES = (
    (75, MatrixMove("ldmatrix", True, 8, 128, 32, (4, 2, 1), transposed_bits=16)),
    (90, MatrixMove("stmatrix", False, 8, 128, 32, (4, 2, 1), transposed_bits=16)),
)
REGISTER_SHARES = RegisterShares(unit=8, least=24, most=256)


def _machine(name: str) -> Machine:
    capability = int(name.removeprefix("sm_").rstrip("a"))
    warps, blocks, shared = _MULTIPROCESSORS[name]
    return Machine(
        name,
        32,
        shared,
        warps,
        blocks,
        register_shares=REGISTER_SHARES if name == "sm_90a" else None,
        matrices=(*_mma(capability), *(_wgmma() if name == "sm_90a" else ())),
        moves=tuple(move for least, move in _MOVES if capability >= least),
        copies=tuple(engine for least, engine in _COPIES if capability >= least),
        atomics=_atomics(capability),
        pairs=("float16", "bfloat16") if capability >= 80 else (),
        memory_barriers=capability >= 80,
        dot_product=capability >= 61,
        cluster_blocks=8 if capability >= 90 else 0,  # 16 where a kernel asks for it
        early_launch=capability >= 90,
        without=_TENSOR_MEMORY | ({} if name == "sm_90a" else _WARPGROUPS),
    )


# sm_100 has tensor memory, and there is no code for it yet. The others have none.
_TENSOR_MEMORY = {
    "T.tcgen05_gemm": "use T.gemm, which multiplies with mma.sync",
    "T.tcgen05_gemm_blockscaled": "use T.gemm_blockscaled, which multiplies with mma.sync",
    "T.alloc_tmem": "use T.alloc_fragment for what is summed up, T.alloc_shared for operands",
}
# What only sm_90a has of warpgroups. Done otherwise in silence, nobody would learn why the kernel
# is slow: on sm_90 most likely the "a" was forgotten.
_WARPGROUPS = {
    "T.wgmma_gemm": "compile for 'sm_90a', or use T.gemm, which multiplies with mma.sync",
    **dict.fromkeys(
        ("T.set_max_nreg", "T.inc_max_nreg", "T.dec_max_nreg"),
        "compile for 'sm_90a', or leave it out: every thread has an equal share here",
    ),
}


def _atomics(capability: int) -> dict[tuple[str, str], int]:
    if capability < 90:
        return {(scope, "float16"): 2 for scope in ("global", "shared")}
    wide = {"float32": 4, "float16": 8, "bfloat16": 8}
    return {
        **{("global", dtype): lanes for dtype, lanes in wide.items()},
        **{("shared", dtype): 2 for dtype in ("float16", "bfloat16")},
    }


def _mma(capability: int) -> Iterator[MatrixInstruction]:
    """mma.sync, the best first for each dtype. Of bytes there are several across, too: no
    instruction loads columns of B where its rows run along N.
    """
    product = partial(MatrixInstruction, "mma.sync", Scope.WARP, reads_tf32=True)
    for least, end, m, k, (a, b, c) in _MMA:
        if least <= capability < end:
            bits = _bits(a)
            left = Operand(a, partial(mma_operand, m, k, bits))
            right = Operand(b, partial(mma_operand, 8, k, bits))
            result = Operand(c, partial(mma_c, m))
            yield product(m, 8, k, left, right, result)
            for across in (4, 2) if bits == 8 else ():
                right = Operand(b, partial(mma_b_across, k, bits, across))
                result = Operand(c, partial(mma_c_across, m, across))
                yield product(m, 8 * across, k, left, right, result, across=across)


def _mma_rows() -> Iterator[tuple[int, int, int, int, tuple[str, str, str]]]:
    """The first compute capability that has it, the first that has it no more, M, K and dtypes."""
    always = 1000
    for c in ("float32", "float16"):
        yield 80, always, 16, 16, ("float16", "float16", c)
        yield 75, always, 16, 8, ("float16", "float16", c)
    for k in (16, 8):
        yield 80, always, 16, k, ("bfloat16", "bfloat16", "float32")
    for dtype in ("float32", "tfloat32"):
        for k in (8, 4):
            yield 80, always, 16, k, (dtype, dtype, "float32")
    for dtype in ("int8", "uint8"):
        for least, m, k in ((80, 16, 32), (80, 16, 16), (75, 8, 16)):
            yield least, always, m, k, (dtype, dtype, "int32")
    for dtype in ("int4", "uint4"):  # from sm_90 on made of products of bytes
        for least, m, k in ((80, 16, 64), (80, 16, 32), (75, 8, 32)):
            yield least, 90, m, k, (dtype, dtype, "int32")
    for a in _SMALL:
        for b in _SMALL:
            yield 89, always, 16, 32, (a, b, "float32")
    yield 80, always, 8, 4, ("float64", "float64", "float64")


def _wgmma() -> Iterator[MatrixInstruction]:
    """wgmma.mma_async, the widest first: A from registers or by descriptor, B by descriptor."""
    for a, b, c in _WGMMA:
        bits = _bits(a)
        for n in range(256, 0, -8):
            yield MatrixInstruction(
                "wgmma.mma_async",
                Scope.WARPGROUP,
                64,
                n,
                256 // bits,
                Operand(a, partial(wgmma_a, bits), _SWIZZLES),
                Operand(b, None, _SWIZZLES),
                Operand(c, partial(wgmma_c, n)),
                Completion.GROUP,
                reads_tf32=True,
            )


def _bits(dtype: str) -> int:
    return DType(dtype).bits


_SMALL = ("float8_e4m3fn", "float8_e5m2")
_MMA = tuple(_mma_rows())
_WGMMA = (
    *(("float16", "float16", c) for c in ("float32", "float16")),
    ("bfloat16", "bfloat16", "float32"),
    *((dtype, dtype, "float32") for dtype in ("float32", "tfloat32")),
    *((a, b, "float32") for a in _SMALL for b in _SMALL),
    *((dtype, dtype, "int32") for dtype in ("int8", "uint8")),
)
MACHINES = {name: partial(_machine, name) for name in _MULTIPROCESSORS}
