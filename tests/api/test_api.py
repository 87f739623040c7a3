"""The public API without a notebook: everything the magics do, and what they return."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.nvidia.driver import missing_device
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import ArgumentError


@tw.jit
def double(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), "float32")
    B = T.empty((M, N), "float32")
    with T.Kernel(M, threads=32) as row:
        for j in T.Parallel(N):
            B[row, j] = A[row, j] * 2.0
    return B


@tw.jit
def power(A: T.Tensor((8,), "float32"), exponent=2):
    B = T.empty((8,), "float32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            B[i] = 1.0
            for _ in range(exponent):
                B[i] = B[i] * A[i]
    return B


@tw.jit(out_idx=-1, target="cpu:generic")
def matmul(M, N, K, block=16):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((K, N), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block, block), "float32")
            B_shared = T.alloc_shared((block, block), "float32")
            C_local = T.alloc_fragment((block, block), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block), num_stages=2):
                T.copy(A[by * block, k * block], A_shared)
                T.copy(B[k * block, bx * block], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block, bx * block])

    return main


@T.prim_func
def negate(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            B[i] = -A[i]


# Compile and run


def test_an_eager_kernel_is_compiled_once_for_each_shape() -> None:
    fresh = double.with_target(None)
    for rows in (3, 3, 5):
        found = fresh(torch.ones(rows, 4))
        assert found.shape == (rows, 4) and found.eq(2).all()
    assert repr(fresh) == "<tw.jit double: eager, 2 compiled>"
    assert fresh.kernel is not None and fresh.kernel.record.constants == (("M", "5"), ("N", "4"))


def test_a_refused_call_leaves_no_kernel() -> None:
    fresh = double.with_target(None)
    fresh(torch.ones(3, 4))
    fresh(torch.ones(5, 4))
    kept = fresh.kernel
    wrong = [torch.ones(7, 4).double(), torch.ones(4, 7).t(), torch.ones(7, 4, device="meta")]
    wrong.append(torch.ones(3, 4).double())  # of a shape that is compiled
    for given in wrong:
        for call in (fresh, fresh.bench, fresh.prepare):  # type: ignore[attr-defined]
            with pytest.raises(ArgumentError, match="'double': 'A' "):
                call(given)
            assert repr(fresh) == "<tw.jit double: eager, 2 compiled>" and fresh.kernel is kept


def test_a_function_has_what_its_last_kernel_has() -> None:
    fresh = double.with_target("sim:sm_80")
    with pytest.raises(AttributeError) as caught:
        _ = fresh.expect  # type: ignore[attr-defined]
    assert str(caught.value) == (
        "'expect' is of a compiled kernel, and 'double' is not compiled yet: call it, or "
        "double.compile(...)"
    )
    kernel = fresh.compile(M=4, N=32)
    assert fresh.expect("threads==32") == kernel.expect("threads==32")  # type: ignore[attr-defined]
    assert fresh.record is kernel.record  # type: ignore[attr-defined]
    assert "to_frame" in dir(fresh) and "to_frame" not in dir(double.with_target(None))
    for name in ("shows", "_repr_html_"):
        with pytest.raises(AttributeError) as caught:
            getattr(fresh, name)
        assert str(caught.value) == f"'Jit' has no attribute '{name}'"


def test_a_function_that_has_all_its_shapes_is_compiled_when_a_view_is_asked_for() -> None:
    fresh = power.with_target("sim:sm_80")
    assert fresh.to_dict("card")[0]["name"] == "power"
    assert fresh.kernel is not None


def test_several_kernels_of_a_function_are_told_apart() -> None:
    fresh = double.with_target(None)
    for rows in (3, 5):
        fresh(torch.ones(rows, 4))
    with pytest.raises(AttributeError) as caught:
        fresh.show("card")  # type: ignore[attr-defined]
    assert str(caught.value) == (
        "'double' is compiled for these shapes: pick one, and ask it for 'show':\n"
        "  double.compile(M=3, N=4)\n"
        "  double.compile(M=5, N=4)"
    )
    with pytest.raises(tw.NotOneKernelError, match="ask it for 'bench'") as caught:
        fresh.bench()  # type: ignore[attr-defined]
    # A notebook shows the message, and no lines of ours.
    assert caught.value._render_traceback_()[0].startswith("NotOneKernelError: 'double' is")
    assert len(caught.value._render_traceback_()) == 3
    first = fresh.compile(M=3, N=4)
    a = torch.ones(3, 4)
    result = fresh.check(lambda a: a + a, a)  # type: ignore[attr-defined]
    assert result.ok and first._check is result
    assert fresh.bench(a, rounds=1).name == "double"  # type: ignore[attr-defined]
    assert first._bench is not None and fresh.compile(M=5, N=4)._bench is None


def test_a_kernel_is_measured_on_inputs_made_up_where_none_are_given() -> None:
    fresh = double.with_target(None)
    fresh.compile(M=4, N=8)
    assert fresh.bench(rounds=1).name == "double"  # type: ignore[attr-defined]


def test_outputs_come_in_the_kind_of_the_inputs() -> None:
    assert isinstance(double(np.ones((2, 3), np.float32)), np.ndarray)
    assert isinstance(double(torch.ones(2, 3)), torch.Tensor)


def test_compile_time_arguments_by_position_and_by_name() -> None:
    a = torch.full((8,), 3.0)
    assert power(a)[0] == 9 and power(a, 3)[0] == 27 and power(a, exponent=1)[0] == 3
    assert power.compile(exponent=4)(a)[0] == 81


def test_an_eager_kernel_compiled_by_names() -> None:
    kernel = double.compile(M=2, N=3)
    assert kernel(torch.ones(2, 3)).eq(2).all()
    assert kernel is double.compile(torch.ones(2, 3))
    with pytest.raises(tw.ArgumentError, match=r"^'double' needs a value for its constant 'N'$"):
        double.compile(M=2)


def test_a_lazy_kernel() -> None:
    kernel = matmul(32, 48, 40)
    assert isinstance(kernel, tw.Kernel)
    assert kernel is matmul(32, 48, K=40) is matmul.compile(32, 48, 40, block=16)
    a, b = torch.randn(32, 40), torch.randn(40, 48)
    torch.testing.assert_close(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_compiling_a_prim_func() -> None:
    a, b = torch.arange(8.0), torch.empty(8)
    assert tw.compile(negate)(a, b) is None and b.eq(-a).all()
    assert tw.compile(negate, out_idx=1, target="cpu")(a).eq(-a).all()
    assert tw.compile(negate, out_idx=[-1])(a).eq(-a).all()


def test_outputs_may_overlap_where_that_is_asked_for() -> None:
    a = torch.ones(9)
    with pytest.raises(tw.ArgumentError, match="'B' is written and overlaps 'A' in memory"):
        tw.compile(negate)(a[:8], a[1:])
    tw.compile(negate, allow_alias=True)(a[:8], a[1:])


def test_an_element_wise_kernel_works_in_place() -> None:
    a = torch.arange(8.0)
    tw.compile(negate)(a, a)
    assert a.eq(-torch.arange(8.0)).all()


def test_out_idx_belongs_to_lazy_functions() -> None:
    with pytest.raises(tw.ArgumentError, match=r"^'double': out_idx belongs to functions that"):
        tw.jit(double.fn, out_idx=0)


def test_several_configurations_and_texts() -> None:
    kernels = matmul.par_compile([{"M": 16, "N": 16, "K": 16}, (16, 32, 16)])
    assert [kernel.grid for kernel in kernels] == [(1, 1), (2, 1)]
    assert matmul.get_tir(16, 16, 16).script().startswith("@T.program(")
    assert "define" in matmul.get_kernel_source(16, 16, 16)


def test_values_that_a_kernel_closes_over_are_shown() -> None:
    def make(factor):
        @tw.jit
        def scale(A: T.Tensor((8,), "float32")):
            B = T.empty((8,), "float32")
            with T.Kernel(1, threads=32):
                for i in T.Parallel(8):
                    B[i] = A[i] * factor
            return B

        return scale

    two, three = make(2.0), make(3.0)
    assert two(torch.ones(8))[0] == 2 and three(torch.ones(8))[0] == 3
    assert two.kernel.record.constants == (("factor", "2.0"),)


def test_targets() -> None:
    found = {target.name: target for target in tw.targets()}
    assert found["cpu"].usable and found["cpu:generic"].usable
    assert found["sim:sm_80"].usable and found["ptx:sm_90a"].usable == (missing_nvrtc() is None)
    if missing_device() is not None:
        assert found["cuda:sm_80"].reason == missing_device()
    assert not found["hip:gfx942"].usable
    assert found["hip:gfx942"].reason == "this machine has no HIP runtime (libamdhip64 of ROCm)"


# Facts


def test_facts() -> None:
    kernel = matmul(32, 48, 40)
    assert (kernel.name, kernel.target, kernel.grid) == ("main", "cpu:generic", (3, 2))
    assert kernel.threads == 128
    assert set(kernel.layouts) == {"A_shared", "B_shared", "C_local"}
    assert kernel.layouts["C_local"].shape == (16, 16)
    assert kernel.stats.shared_bytes == 2 * 16 * 16 * 4 and kernel.stats.scratch_bytes > 0
    assert [timing.step for timing in kernel.stats.timings] == [
        "trace",
        "analysis",
        "passes",
        "codegen",
        "native",
    ]
    assert "T.gemm" in str(kernel.program) or "T.gemm" in str(matmul.get_tir(32, 48, 40))
    assert kernel.source == kernel.get_kernel_source() and "define" in kernel.source
    assert "\t" in kernel.asm and kernel.asm != kernel.source
    assert kernel.isa == kernel.asm


def test_passes() -> None:
    passes = matmul(32, 48, 40).passes
    names = [snapshot.name for snapshot in passes]
    assert passes["infer_layouts"].name == "infer_layouts"
    assert passes[names.index("infer_layouts")] is passes["infer_layouts"]
    assert passes.diff("infer_layouts").startswith("--- before\n+++ after infer_layouts\n")
    assert all(passes.diff(s.name) == "" for s in passes if not s.changed)
    changed = sum(snapshot.changed for snapshot in passes)
    assert repr(passes) == f"<{len(names)} passes, {changed} changed>"
    assert repr(passes["infer_layouts"]) == "<pass infer_layouts: changed>"


def test_a_page_to_keep(tmp_path: Path) -> None:
    page = matmul(32, 48, 40).save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") or page.lower().startswith("<!doctype html>")
    assert not re.findall(r"""(?:src|href)=["']https?:""", page)


# Tests of kernels


def test_check_of_returned_outputs() -> None:
    kernel = double.compile(M=4, N=4)
    result = kernel.check(lambda a: a * 2, torch.randn(4, 4))
    assert result.ok and result.max_error == 0 and result.tolerance > 0
    with pytest.raises(tw.CheckError, match=r"^'double' disagrees with the reference in 16 of 16"):
        kernel.check(lambda a: a * 3, torch.ones(4, 4))
    assert "check FAILED (max err 1e+00)" in repr(kernel)
    assert kernel.error_map is not None and kernel.error_map.count == 16


def test_check_says_where_the_differences_lie() -> None:
    def reference(a: torch.Tensor) -> torch.Tensor:
        wanted = a * 2
        wanted[1:3, 2] += 1
        return wanted

    with pytest.raises(tw.CheckError) as caught:
        double.compile(M=4, N=4).check(reference, torch.ones(4, 4))
    assert caught.value.message == (
        "'double' disagrees with the reference in 2 of 16 elements of 'B': first at [1, 2], where "
        "it is 2 instead of 3; largest error 1 at [1, 2]; all of them lie in [1:3, 2:3]; the "
        "relative tolerance is 0.0001, that of float32"
    )


def test_check_of_not_a_number() -> None:
    kernel, a = double.compile(M=1, N=2), torch.tensor([[float("nan"), 1.0]])
    assert kernel.check(lambda a: a * 2, a).ok
    with pytest.raises(tw.CheckError, match=r"in 1 of 2 elements of 'B': first at \[0, 0\]"):
        kernel.check(lambda a: torch.tensor([[0.0, 2.0]]), a)


def test_check_of_infinities() -> None:
    kernel, a = double.compile(M=1, N=2), torch.tensor([[float("inf"), 1.0]])
    assert kernel.check(lambda a: a * 2, a).ok
    for wrong in ([[5.0, 2.0]], [[float("-inf"), 2.0]], [[float("inf"), float("inf")]]):
        with pytest.raises(tw.CheckError, match=r"in 1 of 2 elements of 'B'"):
            kernel.check(lambda a, wrong=wrong: torch.tensor(wrong), a)


def test_check_of_written_parameters() -> None:
    a, b = torch.randn(8), torch.zeros(8)
    kernel = tw.compile(negate)
    assert kernel.check(lambda a: -a, a, b).ok and b.eq(-a).all()
    with pytest.raises(tw.CheckError, match=r"of 'B'"):
        kernel.check(lambda a: a, a, b)
    with pytest.raises(tw.ArgumentError, match=r"^'negate' takes 2 arguments"):
        kernel.check(lambda a: -a, a)


def test_check_of_a_parameter_that_is_read_and_written() -> None:
    """The reference gets it as it was before the kernel ran."""

    @T.prim_func
    def add(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                B[i] = B[i] + A[i]

    a, b = torch.randn(8), torch.randn(8)
    before = b.clone()
    assert tw.compile(add).check(lambda a, b: a + b, a, b).ok
    assert b.eq(before + a).all()
    numpys = a.numpy().copy(), before.numpy().copy()
    assert tw.compile(add).check(lambda a, b: a + b, *numpys).ok


def test_validation_takes_no_offence_at_lanes_that_nobody_uses() -> None:
    """Threads that do not take part in an exchange have shown nothing."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        B = T.empty((64,), "int32")
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            if tx % 32 < 16:
                B[tx] = T.shfl_up(A[tx], 4, 16, 0xFFFF)
            else:
                B[tx] = 0
        return B

    validation = tw.compile(kernel, target="cpu").validate(np.arange(64, dtype=np.int32))
    assert str(validation) == f"all {len(validation.stages)} stages agree"


def test_simulate_and_validate() -> None:
    kernel = matmul(32, 48, 40)
    a, b = torch.randn(32, 40), torch.randn(40, 48)
    for stage in ("tile", "lowered", "infer_layouts"):
        found = kernel.simulate(a, b, stage=stage).outputs
        found = found[0] if isinstance(found, list | tuple) else found
        torch.testing.assert_close(torch.as_tensor(np.asarray(found)), a @ b, rtol=1e-4, atol=1e-4)
    validation = kernel.validate(a, b)
    assert validation.ok and validation.first_wrong is None
    assert str(validation) == f"all {len(validation.stages)} stages agree"


def test_configurations_that_cannot_be_compiled() -> None:
    configs = [{"M": 16, "N": 16, "K": 16}, {"M": 16}]
    with pytest.raises(tw.ArgumentError):
        matmul.par_compile(configs)
    with pytest.warns(UserWarning, match="configuration 1 cannot be compiled: 'matmul'"):
        found = matmul.par_compile(configs, num_workers=2, ignore_error=True)
    assert isinstance(found[0], tw.Kernel)
    assert found[1] is None


def test_a_traced_function_can_be_compiled_again() -> None:
    traced = matmul.get_tir(16, 16, 16)
    assert str(traced) == traced.script()
    assert tw.compile(traced).program == traced.program
