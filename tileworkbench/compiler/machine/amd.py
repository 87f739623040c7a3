"""AMD's architectures.

Sources: AMD's ISA reference guides "Instinct MI200" (CDNA2, gfx90a), "Instinct MI300" (CDNA3,
gfx942) and "Instinct CDNA4" (gfx950), chapters "Matrix Arithmetic Instructions" (shapes, dtypes,
lanes of operands and results: each row has its `source`) and "Local Data Share" (bytes and banks);
ROCm documentation,
"Accelerator and GPU hardware specifications" (waves and registers) and "Understanding AMD GPU LDS
and bank conflicts" of Composable Kernel (which lanes are served together, gfx942; those of gfx950
as measured and published by AMD's IREE team). Assumed: gfx90a serves lanes as gfx942 does; results
of float64 lie as published kernels read them (every fourth row in a lane); two lanes name a row of
bytes that 16 of them turn,
as published kernels have it; accesses of less than 4 bytes are served like those of 4; gfx942 is an
MI300X or MI325X, with 8 XCDs (an MI300A has 6: its blocks are visited in another order, with the
same results). XCDs take workgroups in turn: "MI300X workload optimization" of the ROCm
documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.layout.atoms import (
    mfma_c,
    mfma_c_across,
    mfma_c_wide,
    mfma_operand,
    mfma_operand_across,
)
from tileworkbench.compiler.machine.instructions import (
    Completion,
    CopyEngine,
    MatrixInstruction,
    Operand,
    Scope,
    TurnedLoad,
)
from tileworkbench.compiler.machine.machine import Machine, SharedMemory

_LANES = 64
_ACROSS = (4, 2)  # products at once that read neighbours of a row of B
_PACKED_BITS = 128  # of an operand in the registers of a lane, for reads of 16 bytes


def _order(*quads: int) -> tuple[int, ...]:
    """Lanes in fours, by the number of the four; the upper half of a wave follows the lower one."""
    half = [4 * quad + lane for quad in quads for lane in range(4)]
    return (*half, *(32 + lane for lane in half))


# Lanes in the order in which reads of 16 bytes are served: 8 or 16 of them at once.
_READS = {16: _order(0, 5, 1, 4, 2, 7, 3, 6)}
_READS_950 = {16: _order(0, 3, 5, 6, 1, 2, 4, 7)}
_SHARED = {
    "gfx90a": SharedMemory(64 * 1024, reserved=0, granule=512, read_order=_READS),
    "gfx942": SharedMemory(64 * 1024, reserved=0, granule=512, read_order=_READS),
    "gfx950": SharedMemory(160 * 1024, reserved=0, granule=1280, banks=64, read_order=_READS_950),
}
# "Data share: LDS loads": M0 has the place of the first lane, the others' follow. The older chips'
# take four bytes of a lane, which would be four times the instructions.
_LDS_LOAD = CopyEngine(
    "global_load_lds", "global", "shared", Completion.GROUP, 16, (16,), in_line=True
)
_COPIES = {"gfx950": (_LDS_LOAD,)}
# "MFMA transpose load from LDS": DS_READ_B64_TR_B16 and _B8.
_TURNED = {"gfx950": TurnedLoad(lanes=16, lane_bits=64, bits=(16, 8))}
# The guide of each, and its chapter that has the shapes, dtypes and lanes of MFMA.
_CHAPTER = "Matrix Arithmetic Instructions"
_GUIDES = {
    "gfx90a": f'AMD Instinct MI200 ISA (CDNA2), "{_CHAPTER}"',
    "gfx942": f'AMD Instinct MI300 ISA (CDNA3), "{_CHAPTER}"',
    "gfx950": f'AMD Instinct CDNA4 ISA, "{_CHAPTER}"',
}
_DIES = {"gfx90a": 1, "gfx942": 8, "gfx950": 8}  # XCDs
_WITHOUT = {
    "T.tcgen05_gemm": "use T.gemm, which multiplies with MFMA",
    "T.tcgen05_gemm_blockscaled": "use T.gemm_blockscaled, which multiplies with MFMA",
    "T.alloc_tmem": "use T.alloc_fragment for what is summed up, T.alloc_shared for operands",
    "T.wgmma_gemm": "use T.gemm, which multiplies with MFMA",
    **dict.fromkeys(
        ("T.set_max_nreg", "T.inc_max_nreg", "T.dec_max_nreg"),
        "leave it out: every thread has an equal share here",
    ),
    "T.tma_copy": "use T.copy, whose threads load into registers and store to LDS",
    "T.alloc_barrier": "use T.sync_threads, for which the machine has s_barrier",
    "CUDA C++ in T.import_source": "use what HIP has too, or clang's __builtin_amdgcn functions",
}
_OCP, _FNUZ = ("float8_e4m3fn", "float8_e5m2"), ("float8_e4m3fnuz", "float8_e5m2fnuz")
_FLOAT8 = {"gfx90a": (), "gfx942": _FNUZ, "gfx950": _OCP}  # what MFMA multiplies


def _machine(name: str) -> Machine:
    return Machine(
        name,
        _LANES,
        _SHARED[name],
        warps=32,  # 8 of each of the four SIMDs
        blocks=32,
        registers=4 * 512 * _LANES,
        thread_registers=512,  # of both kinds
        register_granule=8 * _LANES,
        matrices=tuple(_mfma(name)),
        copies=_COPIES.get(name, ()),
        adds_pairs=True,  # "Vector ALU": V_PK_ADD_F32
        turned=_TURNED.get(name),
        dies=_DIES[name],
        without=_WITHOUT | dict(_products_without(name)),
    )


def _products_without(name: str) -> Iterator[tuple[str, str]]:
    """The kinds of float8 that MFMA lacks, with what there is instead."""
    for kinds, like in ((_OCP, _FNUZ), (_FNUZ, _OCP)):
        for kind, other in zip(kinds, like, strict=True):
            if kind not in _FLOAT8[name]:
                own = f"use '{other}', which MFMA multiplies here, or " if _FLOAT8[name] else ""
                yield f"T.gemm of '{kind}'", f"{own}convert the operands to 'float16' first"


def _mfma(name: str) -> Iterator[MatrixInstruction]:
    """MFMA, the best first for each dtype: what fills 16 bytes of a lane, by one instruction or by
    several in a row; of equal ones the wider.
    """
    best: dict[tuple[Shape, str, str], tuple[int, MatrixInstruction]] = {}
    for archs, a, b, (edge, depth), c in _ROWS:
        bits = edge * depth // _LANES * DType(a).bits
        for count in {1, max(_PACKED_BITS // bits, 1)} if name in archs else ():
            source = _source(name, a)
            row = _row(a, b, c, edge, depth * count, count, source=source)
            known = best.setdefault(((edge, row.k), a, b), (bits * count, row))
            if count < known[1].issues:
                best[(edge, row.k), a, b] = (bits * count, row)
    for _, row in sorted(best.values(), key=lambda each: -each[0]):
        yield row
        for across in _ACROSS if DType(row.b.dtype).bits in (8, 16) else ():
            yield _row(*row.dtypes, row.m, row.k, row.issues, across, source=row.source)


def _source(name: str, dtype: str) -> str:
    """What says that `name` multiplies `dtype` so."""
    if dtype == "float64":
        rows = "that every fourth row of the result is in a lane, as published kernels read it"
        return f"assumed: {rows}; the rest is {_GUIDES[name]}"
    return _GUIDES[name]


def _row(
    a: str,
    b: str,
    c: str,
    edge: int,
    depth: int,
    count: int,
    across: int = 1,
    *,
    source: str,
) -> MatrixInstruction:
    result = mfma_c_wide if c == "float64" else partial(mfma_c, edge)
    operand = partial(mfma_operand, edge, depth)
    other = operand
    if across > 1:
        other = partial(mfma_operand_across, edge, depth, across)
        result = partial(mfma_c_across, edge, across)
    return MatrixInstruction(
        "mfma",
        Scope.WARP,
        edge,
        edge * across,
        depth,
        Operand(a, operand),
        Operand(b, other),
        Operand(c, result),
        issues=count,
        across=across,
        source=source,
    )


Shape = tuple[int, int]  # rows and columns, and the depth
Row = tuple[tuple[str, ...], str, str, Shape, str]
_ALL = ("gfx90a", "gfx942", "gfx950")


def _rows() -> Iterator[Row]:
    """The architectures that have it, the dtypes of A and B, the shape, the dtype of C."""
    for dtype in ("float16", "bfloat16"):
        for shape in ((32, 16), (16, 32)):
            yield ("gfx950",), dtype, dtype, shape, "float32"
        for shape in ((32, 8), (16, 16)):
            yield _ALL, dtype, dtype, shape, "float32"
    for archs, shapes in (
        (("gfx950",), ((32, 32), (16, 64))),
        (("gfx942", "gfx950"), ((32, 16), (16, 32))),
        (("gfx90a",), ((32, 8), (16, 16))),
    ):
        for shape in shapes:
            yield archs, "int8", "int8", shape, "int32"
    for archs, kinds in (
        (("gfx942",), _FLOAT8["gfx942"]),
        (("gfx950",), _FLOAT8["gfx950"]),
    ):
        for a in kinds:
            for b in kinds:
                for shape in ((32, 64), (16, 128)) if archs == ("gfx950",) else ():
                    yield archs, a, b, shape, "float32"
                for shape in ((32, 16), (16, 32)):
                    yield archs, a, b, shape, "float32"
    for shape in ((32, 4), (16, 8)):
        yield ("gfx942",), "tfloat32", "tfloat32", shape, "float32"
    for shape in ((32, 2), (16, 4)):
        yield _ALL, "float32", "float32", shape, "float32"
    yield _ALL, "float64", "float64", (16, 4), "float64"


_ROWS = tuple(_rows())
MACHINES = {name: partial(_machine, name) for name in _SHARED}
