"""What the registered modules hold, module by module. What is not here is in `absent.py`, or is a
mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import tileworkbench.language as language
from tileworkbench.api import Jit
from tileworkbench.compat import (
    autotuner,
    kernels,
    names,
    nodes,
    params,
    profiler,
    targets,
    testing,
)
from tileworkbench.compat import language as scripts
from tileworkbench.compiler.diagnostics import JITNoBuilderError, TileError
from tileworkbench.compiler.frontend.dtypes import TileDType
from tileworkbench.tuning.autotune import Autotuned
from tileworkbench.tuning.supply import TensorSupplyType

_RELEASE = "0.1.15"  # the release whose language this package speaks
_LAYOUTS = (
    "make_swizzled_layout",
    "make_volta_swizzled_layout",
    "make_wgmma_swizzled_layout",
    "make_tcgen05mma_swizzled_layout",
    "make_full_bank_swizzled_layout",
    "make_half_bank_swizzled_layout",
    "make_quarter_bank_swizzled_layout",
)
_HOOKS = tuple(
    f"register_{kind}_postproc{suffix}"
    for kind in ("c", "cuda", "hip", "metal")
    for suffix in ("", "_callback")
)
# Other names of tilelang.language: the dialects of single targets, and its own parts.
DIALECTS = tuple(f"tilelang.{part}.language" for part in ("cpu", "cuda", "metal", "rocm", "webgpu"))


def _public(module: ModuleType) -> dict[str, Any]:
    """What a module defines or names on purpose, not the modules and types it needs itself."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", "").startswith("tileworkbench.")
    }


def contents() -> dict[str, Mapping[str, Any]]:
    """The attributes of every module by its name; a module comes after its parent."""
    return {**_tilelang(), **_tvm()}


def _tilelang() -> dict[str, Mapping[str, Any]]:
    jit = {
        "JITKernel": kernels.JITKernel,
        "JITImpl": Jit,
        "par_compile": kernels.par_compile,
    }
    cache = (names.disable_cache, names.enable_cache, names.is_cache_enabled)
    layouts = {name: names.layout_function(name) for name in _LAYOUTS}
    tensor = {
        "TensorSupplyType": TensorSupplyType,
        "get_tensor_supply": params.get_tensor_supply,
        "map_torch_type": names.map_torch_type,
        "torch_assert_close": testing.torch_assert_close,
    }
    transform = {
        "PassConfigKey": names.PassConfigKey,
        "apply_simplify": names.simplified,
        "simplify_prim_func": names.simplified,
    }
    math = {"cdiv": names.cdiv, "next_power_of_2": names.next_power_of_2}
    device = {
        "device_synchronize": names.device_synchronize,
        "get_available_cpu_count": names.get_num_sms,
        "get_current_device": names.get_current_device,
    }
    hooks = {name: names.source_hook(name) for name in _HOOKS}
    target = {"determine_target": targets.determine_target}
    words = [*language.__all__, *scripts.NAMES]
    fp8 = (names.determine_fp8_type, names.determine_torch_fp8_type)
    return {
        "tilelang": {
            **jit, **math, **hooks,
            **{function.__name__: function for function in cache},
            "DataType": TileDType,
            "PassConfigKey": names.PassConfigKey,
            "Profiler": profiler.Profiler,
            "TensorSupplyType": TensorSupplyType,
            "__version__": _RELEASE,
            "autotune": autotuner.autotune,
            "compile": kernels.compile,
            "jit": kernels.jit,
            "lower": names.lower,
            "set_log_level": names.set_log_level,
        },
        "tilelang.autotuner": _public(autotuner),
        "tilelang.autotuner.param": {"AutotuneResult": autotuner.AutotuneResult},
        "tilelang.autotuner.tuner": {**_public(autotuner), "AutoTuneImpl": Autotuned},
        "tilelang.backend": {},
        "tilelang.backend.target": target,
        **{parent: {} for dialect in DIALECTS for parent in (dialect.rpartition(".")[0],)},
        **{dialect: {"__all__": words} for dialect in DIALECTS},
        "tilelang.carver": {},
        "tilelang.carver.arch": {},
        "tilelang.carver.arch.driver": {"get_num_sms": names.get_num_sms},
        "tilelang.contrib": {},
        "tilelang.contrib.nvcc": {
            "get_target_compute_version": targets.get_target_compute_version,
            "parse_compute_version": targets.parse_compute_version,
        },
        "tilelang.cuda.target": {
            "check_cuda_availability": names.check_cuda_availability,
            "target_is_cuda": targets.target_is("cuda"),
        },
        "tilelang.dtypes": {},
        "tilelang.engine": {"lower": names.lower, **hooks},
        "tilelang.engine.callback": hooks,
        "tilelang.engine.param": {"KernelParam": params.KernelParam},
        "tilelang.jit": {**jit, "compile": kernels.compile, "jit": kernels.jit},
        "tilelang.jit.exceptions": {"JITNoBuilderError": JITNoBuilderError},
        "tilelang.jit.kernel": jit,
        "tilelang.language": {"__all__": words, **scripts.NAMES},
        "tilelang.language.fp8": {function.__name__: function for function in fp8},
        "tilelang.layout": {**layouts, "Fragment": language.Fragment, "Layout": language.Layout},
        "tilelang.math": math,
        "tilelang.profiler": {**_public(profiler), "TensorSupplyType": TensorSupplyType},
        "tilelang.profiler.bench": _public(profiler),
        "tilelang.rocm.target": {
            "check_hip_availability": names.check_hip_availability,
            "target_is_gfx950": names.target_is_gfx950,
            "target_is_hip": targets.target_is("hip", "rocm"),
        },
        "tilelang.testing": {**_public(testing), **testing.FEATURES},
        "tilelang.tileop": {},
        "tilelang.tileop.base": {"GemmWarpPolicy": language.GemmWarpPolicy},
        "tilelang.transform": transform,
        "tilelang.transform.simplify": transform,
        "tilelang.utils": {**tensor, **target},
        "tilelang.utils.device": device,
        "tilelang.utils.target": target,
        "tilelang.utils.tensor": tensor,
    }  # fmt: skip


def _tvm() -> dict[str, Mapping[str, Any]]:
    expressions = {
        **nodes.NODES,
        "all": language.And,
        "any": language.Or,
        "const": nodes.constant,
    }
    operators = {"Op": nodes.Op}
    errors = {"InternalError": TileError, "TVMError": TileError}
    return {
        "tvm_ffi": {"get_global_func": names.get_global_func},
        "tvm": {
            "DataType": TileDType,
            "get_global_func": names.get_global_func,
            "TVMError": TileError,
        },
        "tvm.error": errors,
        "tvm.ir": {"PrimExpr": nodes.NODES["PrimExpr"], **operators},
        "tvm.target": {"Target": targets.Target},
        "tvm.tir": expressions,
        "tvm.tirx": expressions,
        "tvm.tirx.expr": expressions,
        "tvm.tirx.op": operators,
    }


# Modules that have the names of the language where they have none of their own.
SPEAKING = ("tilelang.language", "tilelang.dtypes", "tvm.tir", "tvm.tirx", *DIALECTS)


def speaks(module: str) -> bool:
    """Whether a module has the names of the language too: `SPEAKING` and what is below it."""
    return any(f"{module}.".startswith(f"{name}.") for name in SPEAKING)
