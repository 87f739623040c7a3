"""A GPU kernel as machine code with what launches it."""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
from pathlib import Path
from typing import Any

from tileworkbench.compiler.device.gpu import GpuKernel
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.program import Launch
from tileworkbench.compiler.emit.c_like.text import bits_of
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.simt import TensorMap
from tileworkbench.shipping.formulas import formula_of
from tileworkbench.shipping.manifest import assumption
from tileworkbench.shipping.shipped.formulas import Formula

_SHIPPED = Path(__file__).with_name("shipped")
# The package's own modules that launch, which know nothing of kernels: file -> module, by vendor.
_DEVICE = "tileworkbench.compiler.device"
_MODULES = {
    "cuda": {
        "launch.py": f"{_DEVICE}.launch",
        "cuda_launch.py": f"{_DEVICE}.nvidia.launch",
        "cuda_driver.py": f"{_DEVICE}.nvidia.driver",
        "cuda_maps.py": f"{_DEVICE}.nvidia.tensor_maps",
    },
    "hip": {"launch.py": f"{_DEVICE}.launch", "hip_driver.py": f"{_DEVICE}.amd.driver"},
}
# What those import of the rest of the package, and what stands for it beside a shipped kernel.
_OTHERS = {
    "tileworkbench.compiler.diagnostics": ".errors",
    "tileworkbench.compiler.fast_dataclass": "dataclasses",
}


def ship_gpu(kernel: GpuKernel, manifest: dict[str, Any], folder: Path) -> str:
    """Write code, source and loader of a kernel into a folder, and complete its manifest.

    Returns the name of the module that loads it. Raises `UnsupportedError` without the vendor's
    compiler.
    """
    vendor = kernel.target.kind
    kernel.toolchain.require()
    manifest["arch"] = kernel.target.arch
    manifest["variants"] = []
    for number, variant in enumerate((*kernel.variants, kernel)):
        # The last one is right for every size; those before it assume something of the sizes.
        suffix = f"_{number}" if variant is not kernel else ""
        stem = f"{kernel.signature.name}{suffix}"
        manifest["variants"].append(_variant(variant, vendor, stem, folder))
    shutil.copyfile(_SHIPPED / "variants.py", folder / "variants.py")
    own = {f"{vendor}.py": f"tileworkbench.shipping.shipped.{vendor}"}
    for name, module in (own | _MODULES[vendor]).items():
        (folder / name).write_text(_standing_alone(module, vendor), encoding="utf-8")
    return vendor


def _variant(kernel: GpuKernel, vendor: str, stem: str, folder: Path) -> dict[str, Any]:
    """The files of one compilation, and how its functions are launched."""
    build, module = kernel.compiled(), kernel.module
    code, suffix = (build.cubin, ".cubin") if vendor == "cuda" else (build.code_object, ".hsaco")
    (folder / f"{stem}{suffix}").write_bytes(code)
    source = f"{stem}{'.cu' if vendor == 'cuda' else '.hip'}"
    (folder / source).write_text(module.text, encoding="utf-8")
    return {
        "code": f"{stem}{suffix}",
        "source": source,
        "assumptions": [assumption(cond) for cond in kernel.signature.assumptions],
        "alignments": [mask + 1 for _, mask in kernel.signature.masks],
        "launches": [_launch(launch) for launch in module.launches],
        "workspaces": [_bytes(buffer) for buffer in module.workspaces],
        "maps": [_map(kernel, each) for each in module.maps],
    }


def _launch(launch: Launch) -> dict[str, Any]:
    return {
        "entry": launch.entry,
        "grid": [formula_of(extent) for extent in launch.grid],
        "threads": launch.threads,
        "shared_bytes": launch.shared_bytes,
        "cooperative": launch.cooperative,
        "cluster": list(launch.cluster),
        "early": launch.early,
    }


def _bytes(buffer: Buffer) -> Formula:
    """The bytes of a workspace."""
    if buffer.strides:
        raise UnsupportedError(f"workspaces with strides are not shipped ('{buffer.name}')")
    size: Formula = bits_of(buffer.dtype) * buffer.dtype.lanes
    for extent in buffer.shape:
        size = ["mul", "int64", size, formula_of(extent)]
    return ["floordiv", "int64", ["add", "int64", size, 7], 8]


def _map(kernel: GpuKernel, stmt: TensorMap) -> dict[str, Any]:
    """A tensor map: what the copy engine is told of a tensor. Strides are in bytes."""
    buffer = stmt.buffer
    size = buffer.dtype.bits // 8
    names = [spec.name for spec in kernel.signature.binder.parameters]
    return {
        "parameter": names.index(stmt.source.name),
        "element": str(buffer.dtype),
        "itemsize": size,
        "shape": [formula_of(extent) for extent in buffer.shape],
        "strides": [["mul", "int64", size, formula_of(stride)] for stride in buffer.strides],
        "box": list(stmt.box),
        "swizzle": stmt.swizzle,
    }


def _standing_alone(module: str, vendor: str) -> str:
    """The text of one of the package's modules, with imports of what lies beside it instead."""
    text = inspect.getsource(importlib.import_module(module))
    beside = {name: f".{file.removesuffix('.py')}" for file, name in _MODULES[vendor].items()}
    known = beside | _OTHERS

    def moved(match: re.Match[str]) -> str:
        return f"from {known[match[1]]} import"

    return re.sub(r"from (tileworkbench[\w.]*) import", moved, text)
