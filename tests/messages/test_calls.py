"""The whole text of errors that calls of the public interface raise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.bench.timing import do_bench
from tileworkbench.compat import kernels as compat_kernels
from tileworkbench.compat.kernels import JITKernel
from tileworkbench.compat.names import lower
from tileworkbench.demo import DemoError, report
from tileworkbench.tuning.autotune import autotune
from tileworkbench.tuning.supply import supply_tensors


def rendered(call: Callable[[], Any], kind: type[tw.TileError] = tw.ArgumentError) -> str:
    """The text of the error that `call` raises."""
    with pytest.raises(kind) as caught:
        call()
    return caught.value.render()


def make(extent: Any = 8, grid: Any = 1) -> Any:
    """A function of one tensor that gives another."""

    @T.prim_func
    def double(A: T.Tensor((extent,), "float32"), B: T.Tensor((extent,), "float32")):
        with T.Kernel(grid, threads=32) as bx:
            for i in T.Parallel(8):
                B[i] = A[i] * 2.0

    return double


@tw.jit
def eager(A, block: int = 8):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(1, threads=32) as bx:
        for i in T.Parallel(N):
            B[i] = A[i]
    return B


def test_a_reference_that_takes_other_arguments() -> None:
    kernel = eager.compile(N=8)
    text = rendered(lambda: kernel.check(lambda a, b: a, torch.zeros(8)))
    assert text == (
        "ArgumentError: the reference is called with the 1 input of 'eager': missing a required "
        "argument: 'b'\n"
        "hint: let it take these arguments, and return what the kernel computes"
    )


def test_a_roofline_of_what_was_not_measured() -> None:
    for given, what in ((tw.jit(lazy.fn), "'lazy'"), ([1], "a 'int'")):
        assert rendered(lambda given=given: tw.roofline(given)) == (
            f"ArgumentError: tw.roofline takes kernels that were measured, not {what}\n"
            "hint: compile it and measure it first: kernel = f.compile(...); kernel.bench(...)"
        )


@tw.jit(out_idx=[1])
def lazy(extent: int = 8) -> Any:
    return make(extent)


def test_out_idx_of_an_eager_function() -> None:
    assert rendered(lambda: tw.jit(eager.fn, out_idx=[0])) == (
        "ArgumentError: 'eager': out_idx belongs to functions that return a T.prim_func\n"
        "hint: declare outputs with T.empty and return them"
    )


def test_arguments_that_python_would_refuse() -> None:
    assert rendered(lambda: lazy(1, 2)) == "ArgumentError: 'lazy': too many positional arguments"
    assert rendered(lambda: eager()) == "ArgumentError: 'eager': missing a required argument: 'A'"
    tuned = autotune([{"extent": 8}])(lazy)
    assert rendered(lambda: tuned(8, 8, 8)) == (
        "ArgumentError: 'lazy': too many positional arguments"
    )


@pytest.mark.parametrize(
    "target", ["cpu", "sim:sm_80", pytest.param("ptx:sm_80", marks=pytest.mark.nvrtc)]
)
def test_an_empty_grid_is_an_error_of_the_call(target: str) -> None:
    @T.prim_func
    def constant(A: T.Tensor((0, 8), "float32")):
        with T.Kernel(T.ceildiv(0, 8), 2, threads=32) as (bx, by):
            T.fill(A[bx * 8, by], 1)

    @T.prim_func
    def symbolic(A: T.Tensor((T.dynamic("n"), 8), "float32")):
        with T.Kernel(T.ceildiv(A.shape[0], 8), 2, threads=32) as (bx, by):
            T.fill(A[bx * 8, by], 1)

    for kernel in (constant, symbolic):
        compiled = tw.compile(kernel, target=target)
        assert rendered(lambda run=compiled: run(np.zeros((0, 8), np.float32))) == (
            f"ArgumentError: '{kernel.program.name}': the grid is empty, there is no block to run"
        )


def test_an_extent_that_no_argument_gives() -> None:
    m, n = T.dynamic("m, n")
    assert rendered(lambda: tw.compile(make(m * n), target="cpu"), tw.CompileError) == (
        "UnsupportedError: 'double': no argument determines 'm'\n"
        "hint: an extent or a stride of an input must be linear in 'm' alone"
    )


def test_an_extent_that_a_formula_gives() -> None:
    n = T.dynamic("n")

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), S: T.Tensor((T.ceildiv(n, 4),), "float32")):
        with T.Kernel(1, threads=32):
            T.clear(S)

    array = np.zeros(6, np.float32)
    assert rendered(lambda: tw.compile(kernel)(array, array[:1])) == (
        "ArgumentError: 'kernel': dimension 0 of 'S' is 1, expected (n + 3) // 4 = 2"
    )


def test_an_out_idx_that_is_a_name() -> None:
    assert rendered(lambda: tw.compile(make(), out_idx="B"), tw.CompileError) == (
        "TileTypeError: out_idx must be an integer or a list of them, not 'B'"
    )


def test_outputs_declared_twice() -> None:
    @T.prim_func
    def returning(A: T.Tensor((8,), "float32")):
        B = T.empty((8,), "float32")
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(8):
                B[i] = A[i]
        return B

    assert rendered(lambda: tw.compile(returning, out_idx=[0]), tw.CompileError) == (
        "TileValueError: Out index conflict: 'returning' returns tensors made by T.empty and "
        "out_idx is given too\n"
        "hint: use one of the two"
    )


def test_an_unknown_return_mode() -> None:
    assert rendered(lambda: do_bench(lambda: None, return_mode="mode")) == (  # type: ignore[arg-type]
        "ArgumentError: 'mode' is not a return mode\nhint: one of median, mean, min, max, all"
    )


def test_an_unknown_pass() -> None:
    passes = lazy().passes
    near = rendered(lambda: passes["guard_acces"])
    assert near == (
        "ArgumentError: there is no pass 'guard_acces'\nhint: did you mean 'guard_accesses'?"
    )
    names = ", ".join(snapshot.name for snapshot in passes)
    assert rendered(lambda: passes["xyz"]) == (
        f"ArgumentError: there is no pass 'xyz'\nhint: one of {names}"
    )


def test_an_export_onto_a_file(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    assert rendered(lambda: lazy().export(taken)) == (
        f"ArgumentError: '{taken}' is a file\nhint: k.export writes a folder"
    )


def test_a_wrong_number_of_simulated_arguments() -> None:
    assert rendered(lambda: lazy().simulate()) == "ArgumentError: 'double' takes 1 argument, got 0"


def test_a_simulated_argument_of_another_shape() -> None:
    assert rendered(lambda: lazy().simulate(np.zeros((2, 2), np.float32))) == (
        "ArgumentError: 'A' has shape (2, 2), expected (8,)"
    )


def test_a_stride_that_no_symbol_has() -> None:
    @T.prim_func
    def kernel(A: T.StridedTensor((8,), (T.dynamic("step"),), "float32")):
        with T.Kernel(1, threads=32):
            A[0] = 1

    compiled, a = tw.compile(kernel, target="cpu"), np.zeros(8, np.float32)[::-1]
    assert rendered(lambda: compiled.simulate(a)) == (
        "ArgumentError: stride 0 of 'A' is -1, for which the symbol 'step' has no solution"
    )


def test_more_elements_than_the_simulator_holds() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32"), n: T.int64):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                A[i] = 1

    line = kernel.source.first_line + 3
    compiled = tw.compile(kernel, target="cpu")
    assert rendered(lambda: compiled.simulate(np.zeros(8, np.float32), 2**62), tw.RunError) == (
        "SimulatorLimitError: the simulator keeps all elements of this statement at once: they "
        "are too many\n"
        f"  --> {__file__}, line {line}\n"
        f"{line} | for i in T.Parallel(n):\n{' ' * len(str(line))} | {'^' * 22}"
    )


def test_an_assertion_of_the_kernel() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            T.device_assert(A[0] > 0, "no zero")

    line = kernel.source.first_line + 3
    what = f'--> {__file__}, line {line}\n{line} | T.device_assert(A[0] > 0, "no zero")'
    compiled = tw.compile(kernel, target="cpu")
    assert rendered(lambda: compiled(np.zeros(8, np.float32)), tw.DeviceAssertError).startswith(
        f"DeviceAssertError: 'kernel': device assertion failed: no zero\n  {what}\n"
    )


def test_a_result_that_differs() -> None:
    def almost(a: torch.Tensor) -> torch.Tensor:
        out = a * 2
        out[3] += 1
        out[5] -= 4
        return out

    assert rendered(lambda: lazy().check(almost, torch.ones(8)), tw.CheckError) == (
        "CheckError: 'double' disagrees with the reference in 2 of 8 elements of 'B': first at "
        "[3], where it is 2 instead of 3; largest error 4 at [5]; all of them lie in [3:6]; the "
        "relative tolerance is 0.0001, that of float32\n"
        "note: the wrong elements: all in elements 3 and 5; last written at line 39\n"
        f"  --> {__file__}, line 39\n"
        "39 | B[i] = A[i] * 2.0\n"
        "   | ^^^^^^^^^^^^^^^^^\n"
        "note: the simulator found nothing wrong: 1 block simulated\n"
        "hint: the kernel's .validate(...) on these arguments names the pass that broke it, if one "
        "did; its .simulate(...) has a report of what is wrong"
    )


def test_views_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from tileworkbench.viz import display

    kernel = lazy()
    names = ", ".join(snapshot.name for snapshot in kernel.passes)
    assert rendered(lambda: kernel.show("passes:nothing")) == (
        f"ArgumentError: 'nothing' is not a pass; the passes are {names}"
    )

    def missing(*_: Any) -> Any:
        raise ModuleNotFoundError("no module", name="anywidget")

    monkeypatch.setattr(display, "_make", missing)
    assert rendered(lambda: kernel.show("card"), tw.UnsupportedError) == (
        "UnsupportedError: the view 'card' needs 'anywidget', which is not installed\n"
        "hint: pip install anywidget"
    )


# Tuning


def test_an_argument_without_a_hash() -> None:
    tuned = autotune([{"block": 8}])(eager)
    assert rendered(lambda: tuned({1: {2}}), tw.TileTypeError) == (
        "TileTypeError: 'eager': an argument has no hash: unhashable type: 'dict'"
    )


def test_a_reference_with_more_outputs() -> None:
    kernel = JITKernel.of(lazy()._compiled)
    profiler = kernel.get_profiler()
    assert rendered(lambda: profiler.assert_allclose(lambda a: (a, a))) == (
        "ArgumentError: 'double' has 1 output, the reference 2"
    )


def test_inputs_that_cannot_be_made_up() -> None:
    n = T.dynamic("n")

    @T.prim_func
    def scaled(s: T.float32, A: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(8):
                A[i] = s

    assert rendered(lambda: supply_tensors(scaled.program)) == (
        "ArgumentError: no value can be made up for the scalar 's' of 'scaled'\n"
        "hint: pass the inputs yourself"
    )
    assert rendered(lambda: supply_tensors(make(n).program)) == (
        "ArgumentError: the extent 'n' of 'A' of 'double' has no value\n"
        "hint: pass the inputs yourself, or give the symbol a value"
    )


# What stands in for TileLang


def test_what_belongs_to_tvm() -> None:
    assert rendered(lower, tw.UnsupportedError) == (
        "UnsupportedError: tilelang.lower gives objects of TVM, which tileworkbench is not built "
        "on\n"
        "hint: tilelang.compile(...) gives a kernel whose .passes and .source show the lowering"
    )
    kernel = compat_kernels.compile(make(), out_idx=[1])
    assert rendered(kernel.export_library, tw.UnsupportedError) == (
        "UnsupportedError: 'double' cannot be written as a library\n"
        "hint: k.export(folder) writes what it is made of"
    )


def test_results_that_change_from_call_to_call() -> None:
    kernel = compat_kernels.compile(make(), out_idx=[1])
    profiler = kernel.get_profiler()
    profiler.assert_consistent(2)
    calls = iter(range(10))
    profiler.func = lambda *_: torch.full((8,), float(next(calls)))  # type: ignore[assignment]
    profiler.func.name = "double"
    profiler.func.program = kernel.program
    assert rendered(profiler.assert_consistent, tw.CheckError) == (
        "CheckError: 'double' gives different results on equal inputs"
    )


def test_a_demonstration_without_a_comparison() -> None:
    with pytest.raises(DemoError) as caught:
        report(lazy(24), None, 1.0, "page.html")  # type: ignore[arg-type]
    assert str(caught.value) == "'double' was not compared with torch"


def summing(terms: int) -> Any:
    @T.prim_func
    def total(A: T.Tensor((terms,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(8):
                B[i] = sum(A[k] for k in range(terms))

    return total


def test_expressions_of_many_terms() -> None:
    kernel = tw.compile(summing(300), out_idx=[1], target="cpu")
    assert kernel(torch.ones(300)).tolist() == [300.0] * 8
    assert rendered(lambda: tw.compile(summing(5000), target="cpu"), tw.UnsupportedError) == (
        "UnsupportedError: an expression of 'total' is nested too deeply to be compiled\n"
        "hint: give its parts names"
    )


@pytest.mark.parametrize("blocks", [2**32 + 5, 2**31, 2**62])
def test_a_grid_of_64_bits(blocks: int) -> None:
    @T.prim_func
    def single(A: T.Tensor((8,), "float32"), n: T.int64):
        with T.Kernel(n, threads=32):
            T.clear(A)

    @T.prim_func
    def product(A: T.Tensor((8,), "float32"), n: T.int32):
        with T.Kernel(2**20, n, threads=32):
            T.clear(A)

    for kernel, number, found in ((single, blocks, blocks), (product, 2**12, 2**32)):
        compiled, array = tw.compile(kernel), np.ones(8, np.float32)
        assert rendered(lambda: compiled(array, number)) == (  # noqa: B023
            f"ArgumentError: '{kernel.name}': the grid has {found} blocks; "
            "a launch has at most 2147483647"
        )
        assert array.all()


def test_a_grid_of_too_few_or_too_many_blocks() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32"), n: T.int32, m: T.int32):
        with T.Kernel(n, m, threads=32):
            T.clear(A)

    compiled, array = tw.compile(kernel), np.ones(8, np.float32)
    assert rendered(lambda: compiled(array, -2, -3)) == (
        "ArgumentError: 'kernel': the grid is empty, there is no block to run"
    )
    assert rendered(lambda: compiled(array, 2**20, 2**20)) == (
        "ArgumentError: 'kernel': the grid has 1099511627776 blocks; a launch has at most "
        "2147483647"
    )
    assert array.all()


def test_extents_that_the_kernel_cannot_compute() -> None:
    m, n = T.dynamic("m, n")

    @T.prim_func
    def joined(A: T.Tensor((m, n), "int8"), B: T.Tensor((m * n,), "int8")):
        with T.Kernel(1, threads=32):
            B[0] = A[0, 0]

    @T.prim_func
    def doubled(A: T.Tensor((m * 2,), "int8")):
        with T.Kernel(1, threads=32):
            A[0] = 1

    @T.prim_func
    def spread(A: T.StridedTensor((m, n), (m * 4, 1), "int8")):
        with T.Kernel(1, threads=32):
            A[0, 0] = 1

    hint = "hint: declare its symbols with 64 bits, as in T.dynamic('n', 'int64')"
    one = np.zeros(1, np.int8)
    grid = np.lib.stride_tricks.as_strided(one, (2**16, 2**16), (0, 0))
    line = np.lib.stride_tricks.as_strided(one, (2**31,), (0,))
    rows = np.lib.stride_tricks.as_strided(one, (2**30, 1), (2**32, 1))
    for target in ("cpu", "sim:sm_80"):
        kernel = tw.compile(joined, out_idx=[1], target=target)
        grid = np.zeros((2**16, 2**16), np.int8)
        assert rendered(lambda: kernel(grid)) == (  # noqa: B023
            "ArgumentError: 'joined': dimension 0 of 'B', m * n, is 4294967296, which 'int32' does "
            f"not hold\n{hint}"
        )
    assert rendered(lambda: tw.compile(doubled)(line)) == (
        "ArgumentError: 'doubled': dimension 0 of 'A', 2*m, is 2147483648, which 'int32' does not "
        f"hold\n{hint}"
    )
    assert rendered(lambda: tw.compile(spread)(rows)) == (
        "ArgumentError: 'spread': stride 0 of 'A', 4*m, is 4294967296, which 'int32' does not "
        f"hold\n{hint}"
    )
    simulated = rendered(lambda: tw.compile(joined, out_idx=[1]).simulate(grid))
    assert simulated == (
        f"ArgumentError: extent 0 of 'B' is 4294967296, which 'int32' does not hold\n{hint}"
    )


def test_a_grid_that_the_kernel_cannot_compute() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(n * 65536, threads=32) as bx:
            A[bx % 8] = 1

    hint = "hint: declare its symbols with 64 bits, as in T.dynamic('n', 'int64')"
    array = np.zeros(8, np.int32)
    for target in ("cpu", "sim:sm_80"):
        compiled = tw.compile(kernel, target=target)
        for n in (2**16, 2**16 + 1):
            assert rendered(lambda: compiled(array, n)) == (  # noqa: B023
                f"ArgumentError: 'kernel': extent 0 of the grid is {n * 65536}, which 'int32' does "
                f"not hold\n{hint}"
            )
        assert rendered(lambda: compiled.simulate(array, 2**16)) == (  # noqa: B023
            "ArgumentError: an extent of the grid of 'kernel' is 4294967296, which 'int32' does "
            f"not hold\n{hint}"
        )
    assert not array.any()


@pytest.mark.parametrize("make", [partial(np.ones, dtype="f"), torch.ones], ids=["numpy", "torch"])
def test_outputs_and_workspaces_that_no_memory_holds(make: Any) -> None:
    n = T.dynamic("n", "int64")

    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32"), B: T.Tensor((2**55,), "float32")):
        with T.Kernel(1, threads=32):
            B[0] = A[0]

    @T.prim_func
    def symbolic(A: T.Tensor((n,), "float32"), B: T.Tensor((n, n, n, n, n, n, n), "float32")):
        with T.Kernel(1, threads=32):
            B[0, 0, 0, 0, 0, 0, 0] = A[0]

    @T.prim_func
    def with_workspace(A: T.Tensor((8,), "float32")):
        W = T.alloc_global((2**55,), "float32")
        with T.Kernel(1, threads=32):
            W[0] = A[0]

    for target in ("cpu", "sim:sm_80"):
        compiled = tw.compile(kernel, out_idx=[1], target=target)
        assert rendered(lambda: compiled(make(8))) == (  # noqa: B023
            f"ArgumentError: 'kernel': 'B' would have {2**57} bytes, and there is no memory for it"
        )
    assert rendered(lambda: tw.compile(symbolic, out_idx=[1])(make(2**10))) == (
        f"ArgumentError: 'symbolic': 'B' would have {2**72} bytes, and there is no memory for it"
    )
    assert rendered(lambda: tw.compile(with_workspace)(make(8))) == (
        f"ArgumentError: 'with_workspace': 'W' would have {2**57} bytes, and there is no memory "
        "for it"
    )
