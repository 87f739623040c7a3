"""Functions of one packing or one conversion, for the tests of what writes them."""

from __future__ import annotations

from tileworkbench.compiler.emit.llvm.convert import convert
from tileworkbench.compiler.emit.llvm.gemm_spec import MicroGemmSpec
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.pack import PackSpec, emit_pack
from tileworkbench.compiler.emit.llvm.text import EmittedFunction, FunctionWriter, storage_type


def emit_pack_a(
    spec: MicroGemmSpec, name: str, *, transposed: bool, ragged: bool
) -> EmittedFunction:
    """Return `void @name(ptr source, i64 ld, ptr packed, i64 m_valid, i64 k_valid)`.

    Converts A to `spec.a_elements` elements of `spec.panel_dtype`. The source is row-major [m,
    k], or [k, m] if `transposed`, with elements of `spec.in_dtype` and leading dimension `ld`.
    `spec.a_layout` must be 'rows' for the one and 'columns' for the other. Rows from `m_valid`
    and columns from `k_valid` on (any int64, ignored unless `ragged`) become zero and are not
    read.
    """
    if (spec.a_layout == "columns") != transposed:
        raise ValueError(
            f"layout '{spec.a_layout}' does not suit a {'' if transposed else 'non-'}transposed A"
        )
    pack = PackSpec(
        k=spec.k,
        extent=spec.m,
        width=spec.m if transposed else 0,
        group=spec.group,
        transposed=not transposed,
        source_dtype=spec.in_dtype,
        panel_dtype=spec.panel_dtype,
        column_sums=False,
        ragged=ragged,
        isa=spec.isa,
    )
    return emit_pack(pack, name, "%extent_valid, %k_valid")


def emit_pack_b(
    spec: MicroGemmSpec, name: str, *, transposed: bool, ragged: bool
) -> EmittedFunction:
    """Return `void @name(ptr source, i64 ld, ptr packed, i64 k_valid, i64 n_valid)`.

    Converts B to `spec.b_elements` elements of `spec.panel_dtype`, in panels of `spec.nr`
    columns. The source is row-major [k, n], or [n, k] if `transposed`, with elements of
    `spec.in_dtype` and leading dimension `ld`. Rows from `k_valid` and columns from `n_valid`
    on (any int64, ignored unless `ragged`) become zero and are not read.
    """
    pack = PackSpec(
        k=spec.k,
        extent=spec.n,
        width=spec.nr,
        group=spec.group,
        transposed=transposed,
        source_dtype=spec.in_dtype,
        panel_dtype=spec.panel_dtype,
        column_sums=spec.dot == "int8",
        ragged=ragged,
        isa=spec.isa,
        least=spec.b_least,
    )
    return emit_pack(pack, name, "%k_valid, %extent_valid")


def emit_convert(
    source: str, target: str, lanes: int, isa: Isa, name: str | None = None
) -> EmittedFunction:
    """Return a function that converts `lanes` elements from dtype `source` to dtype `target`.

    Both are passed as stored: 16-bit floats as i16; one lane is a scalar. The name defaults to
    'convert_{source}_{target}_x{lanes}'.
    """
    name = name or f"convert_{source}_{target}_x{lanes}"
    have, want = storage_type(source, lanes), storage_type(target, lanes)
    writer = FunctionWriter(name, str(want), f"{have} %x", "alwaysinline nounwind")
    return writer.finish(f"{want} {convert(writer, '%x', source, target, lanes, isa)}")
