"""The names of the language: what exists, what is unsupported and says so, what a star import
takes.
"""

from __future__ import annotations

import builtins
import inspect
from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.frontend.golden import define
from tileworkbench.compiler.diagnostics import TileRuntimeError, UnsupportedError
from tileworkbench.language.unsupported import INSTEAD, PREFIXES, UNSUPPORTED

FUNCTIONS = sorted(
    name for name in dir(T) if not name.startswith("_") and inspect.isfunction(getattr(T, name))
)


ABSENT = {
    **UNSUPPORTED,
    "WSRole": PREFIXES["WS"],
    "ptx_init_barrier_thread_count": "T.alloc_barrier, T.mbarrier_arrive and "
    "T.mbarrier_wait_parity are memory barriers",
    "ptx_mma": "T.gemm, T.wgmma_gemm and T.tcgen05_gemm multiply tiles",
    "tma_load": "T.tma_copy moves tiles, with a memory barrier that says when they have arrived",
}


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_unsupported_construct_says_so_at_its_line(name: str) -> None:
    source = (
        "@T.prim_func\n"
        "def kernel(A: T.Tensor((4,), 'float32')):\n"
        "    with T.Kernel(1):\n"
        f"        x = T.{name}(A[0], 1)\n"
    )
    with pytest.raises(UnsupportedError) as caught:
        define(source)
    call = f"T.{name}(A[0], 1)"
    assert caught.value.render() == (
        f"UnsupportedError: 'T.{name}' is not supported yet\n"
        "  --> kernel.py, line 4\n"
        f"4 | x = {call}\n"
        f"  |     {'^' * len(call)}\n"
        f"hint: {ABSENT[name]}"
    )


def test_unsupported_decorator_says_so_outside_a_trace() -> None:
    with pytest.raises(UnsupportedError) as caught:
        T.TensorCoreIntrinEmitter(4)
    assert caught.value.message == "'T.TensorCoreIntrinEmitter' is not supported yet"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_documented(name: str) -> None:
    assert getattr(T, name).__doc__


def test_unknown_name_offers_near_matches() -> None:
    with pytest.raises(AttributeError) as caught:
        T.reduce_summ
    assert str(caught.value) == (
        "the language has no 'T.reduce_summ'; did you mean T.reduce_sum or T.reduce_abssum "
        "or T.warp_reduce_sum?"
    )
    with pytest.raises(AttributeError) as caught:
        T.qqqqqq
    assert str(caught.value) == "the language has no 'T.qqqqqq'"


@pytest.mark.parametrize("name", INSTEAD)
def test_a_name_without_a_function_says_what_to_write(name: str) -> None:
    assert not hasattr(T, name)
    with pytest.raises(AttributeError) as caught:
        getattr(T, name)
    assert str(caught.value) == f"the language has no 'T.{name}'; write {INSTEAD[name]}"


def test_the_gelu_that_is_suggested_is_gelu() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                x = A[i]
                B[i] = 0.5 * x * (1.0 + T.erf(x * 0.70710678))

    assert INSTEAD["gelu"] == "0.5 * x * (1.0 + T.erf(x * 0.70710678))"
    a, b = torch.linspace(-4, 4, 64), torch.empty(64)
    tw.compile(kernel)(a, b)
    torch.testing.assert_close(b, torch.nn.functional.gelu(a))


def test_star_import_takes_the_language_and_leaves_builtins() -> None:
    namespace: dict[str, Any] = {}
    exec("from tileworkbench.language import *", namespace)
    del namespace["__builtins__"]
    assert {"copy", "gemm", "Tensor", "float16", "Parallel", "atomic_add"} <= namespace.keys()
    assert not [name for name in namespace if hasattr(builtins, name)]


@pytest.mark.parametrize(
    "name",
    [
        *("Parallel", "Pipelined", "Serial", "Tensor", "alloc_var", "cdiv", "clear", "const"),
        *("float8_e4m3", "bfloat16x2", "int8x64", "ptr", "__exp", "symbolic", "tfloat32"),
    ],
)
def test_name_is_listed(name: str) -> None:
    assert name in dir(T)


@pytest.mark.parametrize("name", ["copy", "gemm", "alloc_shared", "use_swizzle", "pdl_sync"])
def test_constructs_need_a_kernel(name: str) -> None:
    function = getattr(T, name)
    count = sum(p.default is p.empty for p in inspect.signature(function).parameters.values())
    with pytest.raises((TileRuntimeError, TypeError)):
        function(*[None] * count)
