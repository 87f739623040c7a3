"""Names that scripts import and hardly use: they resolve, and say at their use what to do."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language
from tileworkbench import compat


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    compat.install()
    yield
    compat.uninstall()


def load(name: str) -> Any:
    return importlib.import_module(name)


IMPORTS = """
from tilelang import tvm
import tvm
from tvm import DataType, tirx
from tvm import arith, te, tir
import tvm.tirx as tx
from tvm.ir import PrimExpr, Range
from tvm.target import Target
from tvm.tirx.stmt_functor import ir_transform, post_order_visit
import tvm_ffi
from tilelang import DataType, dtypes
from tilelang.language.dtypes import float16
from tilelang.contrib import nvcc
import tilelang.contrib.nvcc
import tilelang.transform.simplify
from tilelang.transform import simplify_prim_func, PassConfigKey
import tilelang.engine.callback
from tilelang.engine.param import KernelParam
from tilelang.engine.lower import lower
from tilelang.utils.tensor import get_tensor_supply
from tilelang.utils.device import get_current_device
from tilelang.utils.target import determine_target
from tilelang.layout import make_gemm_fragment_8x8_transposed
from tilelang.cuda.intrinsics import make_mma_swizzle_layout
from tilelang.cuda.intrinsics.macro.mma_macro_generator import TensorCoreIntrinEmitter
from tilelang.intrinsics import get_swizzle_layout
from tilelang.rocm.target import target_is_gfx950
from tilelang.cuda import language as C
from tilelang.language.kernel import KernelLaunchFrame
from tilelang.jit import JITImpl, JITKernel
from tilelang.jit.adapter.tvm_ffi import TVMFFIKernelAdapter
from tilelang.jit.kernel import JITKernel
from tilelang.autotuner.tuner import AutoTuneImpl
from tilelang.carver.template import MatmulTemplate
from tilelang.tools import Analyzer, plot_layout
from tilelang.testing import requires_cdna, requires_gfx950, requires_metal
"""


@pytest.mark.parametrize("statement", IMPORTS.strip().splitlines())
def test_imports_of_scripts_resolve(statement: str) -> None:
    exec(statement)


def test_tvm_is_one_module_whatever_it_is_called() -> None:
    assert load("tilelang").tvm is load("tvm")
    assert load("tvm").tirx is load("tvm.tirx")
    assert load("tvm").tirx.For is load("tvm.tirx").For


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            "load('tvm').arith.Analyzer()",
            "'tvm.arith.Analyzer' belongs to TVM or TileLang's compiler: tileworkbench is built on "
            "neither\n"
            "hint: kernel.program is the program, kernel.passes shows how it is lowered",
        ),
        (
            "load('tilelang.cuda.intrinsics').make_mma_swizzle_layout(3)",
            "'tilelang.cuda.intrinsics.make_mma_swizzle_layout' belongs to TVM or TileLang's "
            "compiler: tileworkbench is built on neither\n"
            "hint: T.gemm chooses the matrix instructions and their layouts; T.Layout makes others",
        ),
        (
            "list(load('tilelang.tools').Analyzer)",
            "'tilelang.tools.Analyzer' belongs to TVM or TileLang's compiler: tileworkbench is "
            "built on neither\n"
            "hint: kernel.show() has views of layouts, passes and code",
        ),
        (
            "load('tvm.tirx').Evaluate['x']",
            "'tvm.tirx.Evaluate' belongs to TVM or TileLang's compiler: tileworkbench is built on "
            "neither\n"
            "hint: write it with the names of tilelang.language",
        ),
        (
            "load('tvm').get_global_func('runtime.x')",
            "TVM's function 'runtime.x' does not exist: tileworkbench is not built on TVM",
        ),
    ],
)
def test_the_use_of_what_is_absent_says_what_to_do(expression: str, message: str) -> None:
    with pytest.raises(tw.UnsupportedError) as caught:
        eval(expression)
    assert str(caught.value) == message


def test_absent_names_are_classes_without_instances() -> None:
    tirx = load("tvm.tirx")
    assert not isinstance(3, tirx.StmtExprVisitor)

    @tirx.functor.visitor
    class Visitor(tirx.StmtExprVisitor):
        def visit(self, op: tirx.Call | int) -> None: ...

    assert Visitor.visit is not None
    with pytest.raises(tw.UnsupportedError, match=r"'tvm\.tirx\.StmtExprVisitor' belongs"):
        Visitor()
    with pytest.raises(AttributeError):
        _ = Visitor._fixture  # what tools ask of any class


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "from tilelang.layout import make_swizled_layout",
            "tileworkbench stands in for TileLang and has no 'tilelang.layout.make_swizled_layout'"
            "; did you mean 'make_swizzled_layout'?",
        ),
        (
            "import tilelang.languages",
            "tileworkbench stands in for TileLang and has no 'tilelang.languages'; did you mean "
            "'language'?",
        ),
        (
            "from tilelang import comple",
            "tileworkbench stands in for TileLang and has no 'tilelang.comple'; did you mean "
            "'compile'?",
        ),
    ],
)
def test_imports_of_what_nobody_has(statement: str, message: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(statement)
    assert str(caught.value) == message


def test_tvm_that_is_installed_stays_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    compat.uninstall()
    assert "tvm" not in sys.modules
    other = ModuleType("tvm")
    other.__spec__ = importlib.machinery.ModuleSpec("tvm", None)
    monkeypatch.setitem(sys.modules, "tvm", other)
    compat.install()
    assert load("tvm") is other
    assert load("tilelang").tvm is not other
    assert load("tilelang").tvm.DataType("float16").bits == 16
    compat.uninstall()
    assert sys.modules["tvm"] is other


def test_nothing_of_tvm_is_left_behind() -> None:
    load("tvm.te")
    load("tilelang.carver.template")
    compat.uninstall()
    left = [name for name in sys.modules if name.partition(".")[0] in ("tvm", "tilelang")]
    assert not left
    with pytest.raises(ModuleNotFoundError, match="No module named 'tvm'"):
        load("tvm")


def test_fast_functions_have_their_names_in_the_stand_in() -> None:
    T = load("tilelang.language")
    assert T.__exp is getattr(tileworkbench.language, "__exp")
    assert load("tilelang.cuda.language").__log is T.__log
    assert not hasattr(T, "__wrapped__")


def test_classes_of_values() -> None:
    T, tirx = load("tilelang.language"), load("tvm.tirx")
    m, (a, b) = T.dynamic("m"), T.symbolic("a, b")
    assert isinstance(m, T.Var) and isinstance(a, tirx.Var) and isinstance(b, T.PrimExpr)
    assert not isinstance(m + 1, T.Var) and not isinstance(3, T.PrimExpr)
    assert isinstance(T.FloorMod(m, 4), tirx.FloorMod)
    assert not isinstance(T.FloorMod(m, 4), tirx.FloorDiv)
    assert isinstance(tirx.const(3, "int8"), tirx.IntImm)
    assert isinstance(tirx.const(3, "float16"), tirx.FloatImm)
    assert isinstance(T.Var("x", "float32"), T.Var) and T.Var("x", "float32").dtype == "float32"
    assert isinstance(T.float16, T.dtype) and isinstance(T.float16, load("tvm").DataType)


def test_targets() -> None:
    Target, nvcc = load("tvm.target").Target, load("tilelang.contrib.nvcc")
    determine = load("tilelang.utils.target").determine_target
    assert Target("c").kind.name == "c" and Target("c").keys == ("cpu",)
    hopper = Target({"kind": "cuda", "arch": "sm_90a"})
    assert hopper.kind == "cuda" and hopper.arch == "sm_90a" and Target(hopper) == hopper
    assert str(hopper) == "cuda -arch=sm_90a" and "gpu" in hopper.keys
    assert Target.current() is None
    with hopper:
        assert Target.current() is hopper and determine("auto") == hopper
        assert nvcc.get_target_compute_version() == "9.0"
    assert nvcc.get_target_compute_version("cuda -arch=sm_121") == "12.1"
    assert nvcc.parse_compute_version("8.6") == (8, 6)
    assert determine("llvm") == "llvm" and determine("llvm", return_object=True).kind == "llvm"
    with pytest.raises(tw.DeviceUnavailableError) as caught:
        nvcc.get_target_compute_version("c")
    assert str(caught.value) == (
        "the target 'c' has no compute capability\n"
        "hint: name the GPU that the code is written for: with "
        "tvm.target.Target('cuda -arch=sm_80'): ...; it runs where the tensors are"
    )
    with pytest.raises(tw.TileTypeError) as caught:
        Target(3)
    assert str(caught.value) == "a target is text or a dictionary with a 'kind', not 3"
    with pytest.raises(tw.TileTypeError) as caught:
        Target.current(allow_none=False)
    assert str(caught.value) == "no target is current\nhint: write it in 'with Target(...):'"


def test_hooks_on_generated_code_warn_that_nothing_calls_them() -> None:
    def shorten(code: str, target: Any) -> str:
        return code

    with pytest.warns(UserWarning) as caught:
        assert load("tilelang.engine.callback").register_cuda_postproc_callback(shorten) is shorten
    assert str(caught[0].message) == (
        "'register_cuda_postproc_callback' has no effect: 'shorten' would rewrite code of "
        "TileLang's, and tileworkbench generates its own"
    )
    with pytest.warns(UserWarning, match="'register_cuda_postproc' has no effect"):
        load("tilelang").register_cuda_postproc(shorten)
    assert load("tvm_ffi").get_global_func("x", allow_missing=True) is None


def test_decorators_of_tests_for_other_devices_skip() -> None:
    testing = load("tilelang.testing")

    @testing.requires_gfx950
    def check() -> None: ...

    (mark,) = check.pytestmark  # type: ignore[attr-defined]
    assert mark.kwargs["reason"] == "this machine has no HIP runtime (libamdhip64 of ROCm)"

    @testing.requires_package("numpy", "torch")
    def other() -> None: ...

    assert not hasattr(other, "pytestmark")


def test_stand_ins_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compat.uninstall()
        compat.install()
        load("tvm.tirx")
