"""What a kernel prints is the same text in the simulator and natively."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tests.differential.harness import run_native
from tileworkbench.compiler.device.amd.clang import missing_compiler
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import DeviceAssertError, RunError
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Role
from tileworkbench.compiler.sim import simulate


@T.prim_func
def kernel(A: T.Tensor((2, 2), "float32"), n: T.uint32):
    with T.Kernel(2, 1, threads=64) as (bx, _by):
        S = T.alloc_shared((2,), "float16")
        if bx == 1:
            T.copy(A[bx, 0:2], S)
            T.print(S, msg="tile")
            T.print(n + T.uint32(1), "100 % {sure}\u00e9")
            T.print(msg="here")
            for i in T.Parallel(2):
                if i > 0:
                    T.print(A[bx, i] * 1e10)
            T.print(A[1, 0] > 0)


LINES = """\
msg='tile' BlockIdx=(1, 0, 0): buffer=S, dtype=float16, index=0 value=2.5
msg='tile' BlockIdx=(1, 0, 0): buffer=S, dtype=float16, index=1 value=-0.333252
msg='100 % {sure}\u00e9' BlockIdx=(1, 0, 0): dtype=uint32 value=4000000001
msg='here' BlockIdx=(1, 0, 0)
msg='' BlockIdx=(1, 0, 0): dtype=float32 value=-3.33333e+09
msg='' BlockIdx=(1, 0, 0): dtype=bool value=1
"""
ARGUMENTS = {"A": np.array([[0, 0], [2.5, -1 / 3]], np.float32), "n": 4_000_000_000}


def test_the_simulator_prints_at_every_stage(capfd: pytest.CaptureFixture[str]) -> None:
    simulate(kernel.program, ARGUMENTS)
    assert capfd.readouterr().out == LINES
    last = lower_program(kernel.program, resolve_target("cpu"))[-1].program
    simulate(last, ARGUMENTS, signature=kernel.program)
    assert capfd.readouterr().out == LINES


@pytest.mark.parametrize("target", ["cuda:sm_75", "cuda:sm_80", "cuda:sm_90a"])
def test_lowered_for_a_gpu_the_threads_of_a_block_print_once(
    target: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for program in (kernel.program, threads.program):
        given = ARGUMENTS if program is kernel.program else {"A": np.arange(64, dtype=np.int32)}
        simulate(program, given)
        expected = capfd.readouterr().out
        last = lower_program(program, resolve_target(target))[-1].program
        simulate(last, given, signature=program)
        assert capfd.readouterr().out == expected


@T.prim_func
def product(A: T.Tensor((128, 64), "float16"), B: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=256):
        a = T.alloc_shared((128, 32), "float16")
        b = T.alloc_shared((32, 64), "float16")
        c = T.alloc_fragment((128, 64), "float32")
        m = T.alloc_fragment((128,), "float32")
        T.clear(c)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[0, k * 32], a)
            T.copy(B[k * 32, 0], b)
            T.gemm(a, b, c)
            T.reduce_max(c, m, dim=1)
            T.print(m[127], msg="largest")


def test_a_consumer_prints_for_all_of_them(capfd: pytest.CaptureFixture[str]) -> None:
    last = lower_program(product.program, resolve_target("cuda:sm_90a"))[-1].program
    roles = [stmt for stmt in statements(last.body) if isinstance(stmt, Role)]
    assert [(role.start, role.extent) for role in roles] == [(256, 128), (0, 256)]
    given = {"A": np.ones((128, 64), np.float16), "B": np.ones((64, 64), np.float16)}
    simulate(last, given, signature=product.program)
    assert capfd.readouterr().out == "".join(
        f"msg='largest' BlockIdx=(0, 0, 0): dtype=float32 value={value}\n" for value in (32, 64)
    )


@T.prim_func
def two_roles(A: T.Tensor((256,), "int32")):
    with T.Kernel(1, threads=256):
        S = T.alloc_shared((1,), "int32")
        S[0] = 5
        T.sync_threads()
        with T.ws(1):
            T.print(S, "second")
        for i in T.Parallel(256):
            A[i] = S[0]


def test_a_role_prints_once(capfd: pytest.CaptureFixture[str]) -> None:
    last = lower_program(two_roles.program, resolve_target("cuda:sm_80"))[-1].program
    simulate(last, {"A": np.zeros(256, np.int32)}, signature=two_roles.program)
    assert capfd.readouterr().out == (
        "msg='second' BlockIdx=(0, 0, 0): buffer=S, dtype=int32, index=0 value=5\n"
    )


@pytest.mark.parametrize("level", ["native", "generic"])
def test_native_code_prints_the_same(level: str, capfd: pytest.CaptureFixture[str]) -> None:
    run_native(kernel.program, ARGUMENTS, f"cpu:{level}")
    assert capfd.readouterr().out == LINES


@T.prim_func
def threads(A: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=(32, 2)) as bx:
        tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
        S = T.alloc_shared((1,), "int32")
        if tx > 29:
            T.print(A[ty * 32 + tx], "mine")
        S[0] = 7
        T.sync_threads()
        T.print(S, "ours")


def test_threads_print_their_index(capfd: pytest.CaptureFixture[str]) -> None:
    expected = "".join(
        f"msg='mine' BlockIdx=(0, 0, 0), ThreadIdx=({x}, {y}, 0): dtype=int32 value={32 * y + x}\n"
        for y in range(2)
        for x in (30, 31)
    )
    expected += "msg='ours' BlockIdx=(0, 0, 0): buffer=S, dtype=int32, index=0 value=7\n"
    arguments = {"A": np.arange(64, dtype=np.int32)}
    run_native(threads.program, arguments, "cpu")
    assert capfd.readouterr().out == expected
    simulate(threads.program, arguments)
    assert capfd.readouterr().out == expected


@tw.jit
def accumulators(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 8), "float16")):
    C = T.empty((64, 8), "float32")
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((64, 32), "float16")
        b = T.alloc_shared((32, 8), "float16")
        c = T.alloc_fragment((64, 8), "float32")
        m = T.alloc_fragment((64,), "float32")
        T.copy(A, a)
        T.copy(B, b)
        T.clear(c)
        T.gemm(a, b, c)
        T.reduce_max(c, m, dim=1)
        T.print(c, "sums")
        T.print(m, "largest")
        T.copy(c, C)
    return C


@pytest.mark.parametrize(
    "target", ["sim:sm_80", "sim:sm_90a", "sim:gfx942", "ptx:sm_80", "ptx:sm_90a", "emu:gfx942"]
)
def test_who_holds_an_element_of_a_fragment_prints_it(
    target: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if target.startswith("ptx"):
        require("nvrtc", missing_nvrtc())
    if target.startswith("emu"):
        require("hip", missing_compiler())
    random = np.random.default_rng(0)
    a = random.integers(-3, 4, (64, 32)).astype(np.float16)  # sums are exact in any order
    b = random.integers(-3, 4, (32, 8)).astype(np.float16)
    c = accumulators.with_target(target).compile()(a, b)
    start = "BlockIdx=(0, 0, 0): buffer"
    expected = [
        f"msg='{msg}' {start}={name}, dtype=float32, index={index} value={value:g}"
        for msg, name, values in (("sums", "c", c), ("largest", "m", c.max(axis=1)))
        for index, value in enumerate(values.reshape(-1))
    ]
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(expected)


@tw.jit
def prints_and_fails(A: T.Tensor((32,), "int32")):
    B = T.empty((32,), "int32")
    with T.Kernel(2, threads=32) as bx:
        T.print(bx, "block")
        for i in T.Parallel(32):
            T.device_assert(bx < 1)
            B[i] = A[i]
    return B


def test_what_executed_ptx_printed_before_it_failed(capfd: pytest.CaptureFixture[str]) -> None:
    require("nvrtc", missing_nvrtc())
    with pytest.raises(DeviceAssertError):
        prints_and_fails.with_target("ptx:sm_80").compile()(np.zeros(32, np.int32))
    assert "msg='block' BlockIdx=(0, 0, 0): dtype=int32 value=0\n" in capfd.readouterr().out


@tw.jit
def prints_much(A: T.Tensor((512,), "int32")):
    B = T.empty((512,), "int32")
    with T.Kernel(2, threads=256) as bx:
        tx = T.get_thread_binding()
        T.print(A[bx * 256 + tx], "mine")
        B[bx * 256 + tx] = A[bx * 256 + tx] + 1
    return B


def test_what_emulated_threads_print_is_no_result(capfd: pytest.CaptureFixture[str]) -> None:
    """More than a buffer of the C library: it leaves on the way of the results, before them."""
    require("hip", missing_compiler())
    given = np.arange(512, dtype=np.int32)
    found = prints_much.with_target("emu:gfx942").compile()(given)
    np.testing.assert_array_equal(found, given + 1)
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 512
    assert lines[300] == (
        "msg='mine' BlockIdx=(1, 0, 0), ThreadIdx=(44, 0, 0): dtype=int32 value=300"
    )


def test_what_emulated_threads_printed_before_they_failed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    require("hip", missing_compiler())
    with pytest.raises(RunError):
        prints_and_fails.with_target("emu:gfx942").compile()(np.zeros(32, np.int32))
    assert "msg='block' BlockIdx=(0, 0, 0): dtype=int32 value=0\n" in capfd.readouterr().out
