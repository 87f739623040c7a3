"""Which names exist, what the others say, and that nothing stays behind."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

import tileworkbench as tw
from tileworkbench import compat


def tilelang(name: str = "tilelang") -> Any:
    return importlib.import_module(name)


@pytest.fixture
def installed() -> Iterator[None]:
    compat.install()
    yield
    compat.uninstall()


def scale(target: Any = None) -> Any:
    T = tilelang("tilelang.language")

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(64):
                B[i] = A[i] * 3.0

    return tilelang().compile(main, out_idx=[1], target=target)


def test_install_twice_and_uninstall_leave_no_trace() -> None:
    before = list(sys.meta_path)
    compat.install()
    first = sys.modules["tilelang"]
    compat.install()
    assert sys.modules["tilelang"] is first
    assert len(sys.meta_path) == len(before) + 1
    compat.uninstall()
    compat.uninstall()
    assert sys.meta_path == before
    assert not [name for name in sys.modules if name.partition(".")[0] == "tilelang"]


def test_tilelang_imported_before_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("tilelang")
    monkeypatch.setitem(sys.modules, "tilelang", other)
    with pytest.raises(tw.TileError) as caught:
        compat.install()
    assert str(caught.value) == (
        "'tilelang' is already imported in this process\n"
        "hint: call compat.install() before anything imports it, in a fresh process or kernel"
    )
    compat.uninstall()
    assert sys.modules["tilelang"] is other


@pytest.mark.parametrize(
    "name",
    [
        "tilelang.jit",
        "tilelang.jit.exceptions",
        "tilelang.language",
        "tilelang.language.fp8",
        "tilelang.testing",
        "tilelang.profiler",
        "tilelang.layout",
        "tilelang.autotuner",
        "tilelang.utils.tensor",
        "tilelang.math",
        "tilelang.carver.arch.driver",
    ],
)
def test_modules_are_found_by_import(installed: None, name: str) -> None:
    assert tilelang(name).__name__ == name


def test_the_decorator_is_no_module(installed: None) -> None:
    assert callable(tilelang().jit)
    assert tilelang().jit is tilelang("tilelang.jit").jit
    assert callable(tilelang().autotune)


def test_the_language_outside_a_kernel(installed: None) -> None:
    with pytest.raises(tilelang("tilelang.jit.exceptions").JITNoBuilderError):
        tilelang("tilelang.language").const("M")
    with pytest.raises(RuntimeError, match="has a meaning inside a kernel only"):
        tilelang("tilelang.language").Kernel(1).__enter__()


def test_attributes_that_are_missing(installed: None) -> None:
    with pytest.raises(AttributeError) as caught:
        tilelang().compil
    assert str(caught.value) == (
        "tileworkbench stands in for TileLang and has no 'tilelang.compil'; did you mean 'compile'?"
    )
    with pytest.raises(tw.UnsupportedError, match=r"tilelang\.lower gives objects of TVM"):
        tilelang().lower(None)


@pytest.mark.parametrize(
    "target", ["cuda", "cuda -arch=sm_90", "hip", {"kind": "cuda", "arch": "sm_80"}]
)
def test_a_gpu_target_follows_the_tensors_and_the_card_says_so(
    installed: None, target: Any
) -> None:
    kernel = scale(target)
    asked = target if isinstance(target, str) else "cuda"
    note = (
        f"target '{asked}' was asked for; this kernel was compiled for 'cpu', where the tensors are"
    )
    assert [each.message for each in kernel.record.warnings] == [note]
    assert note.replace("'", "&#x27;") in kernel._repr_mimebundle_()[0]["text/html"]
    a = torch.arange(64.0)
    assert torch.equal(kernel(a), a * 3)


@pytest.mark.parametrize("target", [None, "auto", "c", "llvm", "cpu"])
def test_a_cpu_target_needs_no_note(installed: None, target: Any) -> None:
    assert scale(target).record.warnings == ()


def test_wrong_things_to_decorate_and_compile(installed: None) -> None:
    with pytest.raises(tw.TileTypeError) as caught:
        tilelang().jit(out_idx=[0])(3)
    assert str(caught.value) == "tilelang.jit decorates a function, not 'int'"
    with pytest.raises(tw.TileTypeError, match=r"takes a T\.prim_func, not 'int'"):
        tilelang().compile(3)


def test_tuner_wants_a_prim_func(installed: None) -> None:
    T = tilelang("tilelang.language")

    def kernel(block: int = 4):
        out = T.empty((4,), "float32")
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(block):
                out[i] = 1.0
        return out

    tuner = tilelang("tilelang.autotuner").AutoTuner.from_kernel(kernel, [{"block": 4}])
    with pytest.raises(tw.TileTypeError) as caught:
        tuner.run(warmup=0, rep=0.1)
    assert str(caught.value) == (
        "AutoTuner takes a function that returns a T.prim_func\n"
        "hint: put @tilelang.autotune above a kernel function of the eager style"
    )


def test_an_unknown_target_is_an_error(installed: None) -> None:
    with pytest.raises(tw.TileError, match="quantum"):
        scale("quantum")


def test_the_kernel_has_the_names_that_scripts_use(installed: None, tmp_path: Any) -> None:
    kernel = scale()
    assert isinstance(kernel, tilelang().JITKernel)
    assert isinstance(kernel, tw.Kernel)
    assert kernel.out_idx == [1]
    assert [param.name for param in kernel.params] == ["A", "B"]
    kernel.export_sources(kernel_path=tmp_path / "code.ll")
    assert (tmp_path / "code.ll").read_text() == kernel.get_kernel_source()
    with pytest.raises(tw.UnsupportedError) as caught:
        kernel.get_host_source()
    assert str(caught.value) == (
        "'main' has no host source: the CPU runs its code as it is\n"
        "hint: get_kernel_source() is all of it"
    )
    with pytest.raises(tw.UnsupportedError, match="'main' cannot be written as a library"):
        kernel.export_library("x.so")
    for name in ("adapter", "artifact"):
        with pytest.raises(AttributeError, match=f"'JITKernel.{name}' belongs to TVM"):
            getattr(kernel, name)


def test_profiler_compares_times_and_supplies(installed: None) -> None:
    supply = tilelang().TensorSupplyType
    kernel = scale()
    profiler = kernel.get_profiler(supply.Integer)
    (made,) = profiler.inputs()
    assert made.abs().max() <= 2 and torch.equal(made, made.round())
    assert torch.equal(made, profiler.inputs()[0])
    profiler.assert_allclose(lambda a: a * 3, rtol=0, atol=0, max_mismatched_ratio=0)
    profiler.assert_consistent(repeat=2)
    seen: list[Any] = []
    profiler.manual_assert_close(lambda a: a, manual_check_prog=lambda *both: seen.append(both))
    assert torch.equal(seen[0][0][0], seen[0][1][0] * 3)
    times = profiler.do_bench(warmup=0, rep=1, quantiles=[0.5, 1.0])
    assert 0 < times[0] <= times[1]
    with pytest.raises(tw.ArgumentError, match="'main' has 1 output, the reference 2"):
        profiler.assert_allclose(lambda a: (a, a))


def test_the_time_of_a_simulator_is_warned_of(installed: None) -> None:
    with pytest.warns(RuntimeWarning) as caught:
        scale("sim:sm_80").get_profiler().do_bench(warmup=0, rep=1)
    assert str(caught[0].message) == (
        "'main' is simulated on 'sim:sm_80': a time would be that of the simulator, not of a device"
    )


def test_elements_that_may_differ(installed: None) -> None:
    close = tilelang("tilelang.testing").torch_assert_close
    a, b = torch.zeros(1000), torch.zeros(1000)
    b[7] = 1
    assert close(a, b)
    b[8] = 2
    with pytest.raises(AssertionError) as caught:
        close(a, b)
    assert str(caught.value) == (
        "the result disagrees with the reference in 2 of 1000 elements, 0.1 % may: first at [7], "
        "where it is 0 instead of 1; largest error 2"
    )
    nan = torch.full((3,), float("nan"))
    assert close(nan, nan)
    with pytest.raises(AssertionError):
        close(nan, torch.zeros(3))
    infinite = torch.full((3,), float("inf"))
    assert close(infinite, infinite)
    for wrong in (torch.zeros(3), -infinite, nan):
        with pytest.raises(AssertionError):
            close(wrong, infinite)
    with pytest.raises(AssertionError, match=r"has shape \(3,\), the reference \(1000,\)"):
        close(nan, a)


def test_helpers(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWORKBENCH_DISABLE_CACHE", "")
    tl = tilelang()
    tl.disable_cache()
    assert not tl.is_cache_enabled()
    tl.enable_cache()
    assert tl.is_cache_enabled()
    assert [tl.math.next_power_of_2(n) for n in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]
    assert (tl.cdiv(0, 4), tl.cdiv(9, 4)) == (0, 3)
    assert tl.PassConfigKey.TL_DISABLE_TMA_LOWER == "tl.disable_tma_lower"
    with pytest.raises(AttributeError, match="'disable' is not a key of a pass"):
        tl.PassConfigKey.disable
    fp8 = tilelang("tilelang.language.fp8")
    assert fp8.determine_fp8_type("e5m2") == "float8_e5m2"
    assert tilelang("tilelang.carver.arch.driver").get_num_sms() >= 1
    with pytest.raises(tw.TileError, match=r"T\.make_swizzled_layout takes tiles, not"):
        tilelang("tilelang.layout").make_swizzled_layout(3)


@pytest.mark.parametrize(
    "arch, mode, skips",
    [
        ("sm_90a", "ge", False),
        ("sm_90a", "gt", True),
        ("sm_90", "eq", False),
        ("sm_80", "ge", True),
        ("sm_80", "lt", False),
        ("sm_120", "le", True),
    ],
)
def test_tests_run_where_the_device_is_new_enough(
    installed: None, monkeypatch: pytest.MonkeyPatch, arch: str, mode: str, skips: bool
) -> None:
    from types import SimpleNamespace

    from tileworkbench.compiler.device.nvidia import driver

    monkeypatch.setattr(driver, "open_device", lambda: SimpleNamespace(arch=arch))
    testing = tilelang("tilelang.testing")

    @getattr(testing, f"requires_cuda_compute_version_{mode}")(9, 0)
    def check() -> None: ...

    assert bool(getattr(check, "pytestmark", [])) == skips


REGRESSION = """
import tilelang.testing

def regression_b():
    tilelang.testing.process_func(lambda n: n / 2, "regression_half", n=3)

def regression_a():
    tilelang.testing.process_func(lambda: 0.25)

def other():
    raise RuntimeError

tilelang.testing.regression(verbose=False)
"""


def test_latencies_of_a_script_are_a_table(
    installed: None, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(REGRESSION, "script.py", "exec"), {"__name__": "script"})
    table = "| File | Latency |\n|---|---|\n| script | 0.25 |\n| half | 1.5 |\n"
    assert capsys.readouterr().out == table
    with pytest.warns(RuntimeWarning, match=r"'none' took 0\.0, which is no time"):
        tilelang("tilelang.testing").process_func(lambda: 0.0, "none")


def test_the_function_of_a_kernel(installed: None) -> None:
    kernel = scale()
    assert kernel.prim_func.script().startswith("@T.program(")
    function = kernel.prim_func
    assert [function.buffer_map[param].name for param in function.params] == ["A", "B"]
    (again,) = tilelang().par_compile([kernel.prim_func], ignore_error=True)
    assert again.program == kernel.program


def test_parameters_of_a_kernel_say_what_they_are(installed: None) -> None:
    T = tilelang("tilelang.language")
    N = T.dynamic("N")

    @T.prim_func
    def main(
        A: T.Tensor((N, 8), "bool"),
        B: T.Tensor((4,), "float8_e4m3fn"),
        C: T.Tensor((8,), "float4_e2m1fn"),
        n: T.uint32,
    ):
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(4):
                B[i] = 1.0

    a, b, c, n = tilelang().compile(main).params
    assert str(a.shape[0]) == "N" and a.shape[1] == 8 and a.is_boolean() and not a.is_scalar()
    assert b.is_float8() and b.torch_dtype() == torch.float8_e4m3fn and c.is_float4()
    assert n.is_scalar() and n.is_unsigned() and n.dtype == "uint32"
    assert repr(b) == "KernelParam('B', dtype=float8_e4m3fn, shape=[4])"
    supply = tilelang("tilelang.utils.tensor").get_tensor_supply()
    with pytest.raises(tw.ArgumentError) as caught:
        supply(n)
    assert str(caught.value) == (
        "no tensor can be made up for KernelParam('n', dtype=uint32, shape=[])\n"
        "hint: its shape must consist of integers; pass the inputs yourself"
    )
