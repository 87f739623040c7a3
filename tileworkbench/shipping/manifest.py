"""What a shipped kernel's loader has to know of it, as plain data."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from tileworkbench.compiler.compilation import CompiledKernel
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.rewrite import variables
from tileworkbench.compiler.runtime.arrays import PACKED, storage_dtypes
from tileworkbench.compiler.runtime.parameters import DimSpec, ParameterSpec, Source
from tileworkbench.compiler.signature import Signature
from tileworkbench.shipping.formulas import formula_of, formula_of_dim

FORMAT = 1
_SCALARS = ("bool", "bfloat16", "float16", "float32", "float64")


def manifest_of(kernel: CompiledKernel) -> dict[str, Any]:
    """The part of a manifest that is the same for every device.

    Raises `UnsupportedError` for parameters that the loader cannot pass.
    """
    signature, program = kernel.signature, kernel.record.program
    binder = signature.binder
    return {
        "format": FORMAT,
        "made_by": f"tileworkbench {version('tileworkbench')}",
        "name": signature.name,
        "target": kernel.record.target,
        "parameters": [_parameter(signature.name, spec) for spec in binder.parameters],
        "symbols": [
            {
                "name": symbol.name,
                "dtype": str(symbol.dtype),
                "most": int(symbol.dtype.largest_extent),
                "source": _source(source),
            }
            for symbol, source in zip(program.symbols, binder.sources, strict=True)
        ],
        "returns": list(signature.returns),
        "assumptions": [assumption(cond) for cond in signature.assumptions],
        "aliasing": _aliasing(signature),
    }


def assumption(condition: Expr) -> dict[str, Any]:
    """What has to be true of the symbols and scalars of a call."""
    return {
        "text": print_expr(condition),
        "formula": formula_of(condition),
        "names": [var.name for var in variables(condition)],
    }


def _parameter(kernel: str, spec: ParameterSpec) -> dict[str, Any]:
    is_number = spec.dtype in _SCALARS or spec.dtype.startswith(("int", "uint"))
    if spec.dtype in PACKED or (spec.kind == "scalar" and not is_number):
        raise UnsupportedError(
            f"'{kernel}': a shipped kernel takes no {spec.kind} of '{spec.dtype}' ('{spec.name}')",
            hint="declare it as the bytes or the number that it is stored as",
        )
    strides = spec.stride_dims
    return {
        "name": spec.name,
        "kind": spec.kind,
        "dtype": spec.dtype,
        "storage": list(storage_dtypes(spec.dtype)),
        "shape": [formula_of_dim(dim) for dim in spec.dims],
        "shape_text": [str(dim) for dim in spec.dims],
        "strides": None if strides is None else [formula_of_dim(dim) for dim in strides],
        "output": spec.is_output,
        "written": spec.is_written,
        "used": spec.is_used,
        "alignment": spec.alignment,
    }


def _source(source: Source) -> dict[str, Any]:
    dim: DimSpec = source.dim
    return {
        "parameter": source.position,
        "axis": source.axis,
        "stride": source.is_stride,
        "coefficient": dim.coefficient,
        "constant": dim.constant,
        "text": str(dim),
    }


def _aliasing(signature: Signature) -> str:
    """Which tensors may overlap what is written: "any", the very "same" ones, or "none"."""
    binder = signature.binder
    return "any" if binder.allows_alias else "same" if binder.allows_same_tensor else "none"
