"""Kernels on a CUDA device: the library's results, and how calls go together with PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.gpu.conftest import Gpu
from tests.kernels.checks import compare, random
from tests.kernels.test_gpu import CASES, HALF
from tests.kernels.test_gpu_dtypes import DTYPES, EXACT, READ_AS, TRANSPOSES
from tests.kernels.test_gpu_dynamic import product
from tests.lower.threads.test_sync_grid import BLOCKS, THREADS, rotations
from tileworkbench import kernels
from tileworkbench.compiler.diagnostics import ArgumentError

pytestmark = pytest.mark.gpu
NEEDS_SM_89 = ("float8_e4m3fn", "float8_e5m2")


def moved(value: Any, device: str) -> Any:
    """Tensors on the device, and what else a kernel is given."""
    return value.to(device) if isinstance(value, torch.Tensor) else value


def returned(value: Any) -> Any:
    """Results in the host's memory."""
    return [x.cpu() for x in value] if isinstance(value, list | tuple) else value.cpu()


@pytest.mark.parametrize("name", CASES)
def test_every_kernel_of_the_library(gpu: Gpu, name: str) -> None:
    program, arguments, expected, scale = CASES[name]()
    kernel = tw.compile(program, target=gpu.target)
    found = kernel(*(moved(value, gpu.device) for value in arguments))
    compare(returned(found), expected, scale, 4.0, HALF)


@pytest.mark.parametrize(("trans_a", "trans_b"), TRANSPOSES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_every_type(gpu: Gpu, dtype: str, trans_a: bool, trans_b: bool) -> None:
    m, n, k = 200, 136, 80
    a = random(*((k, m) if trans_a else (m, k)), dtype=dtype, seed=1)
    b = random(*((n, k) if trans_b else (k, n)), dtype=dtype, seed=2)
    program = kernels.matmul(m, n, k, dtype, trans_A=trans_a, trans_B=trans_b)
    found = tw.compile(program, target=gpu.target)(a.to(gpu.device), b.to(gpu.device))
    read = READ_AS.get(dtype, lambda x: x)
    expected = kernels.matmul.reference(read(a), read(b), trans_A=trans_a, trans_B=trans_b)
    # Tensor cores that sum bytes of floats keep fewer bits of the sum than float32 has.
    steps = 2.0**10 if dtype in NEEDS_SM_89 else 4.0
    inner = "float64" if dtype == "float64" else "float32"
    scale = 0.0 if dtype in EXACT else 8.0 * float(expected.abs().max())
    compare(found.cpu(), expected, scale, steps, inner)


@pytest.mark.parametrize("whole_vectors", [False, True])
def test_symbolic_extents(gpu: Gpu, whole_vectors: bool) -> None:
    kernel = tw.compile(product(whole_vectors), target=gpu.target)
    uneven = () if whole_vectors else ((35, 41, 7), (31, 1, 33))
    for m, n, k in ((33, 40, 48), (1, 8, 8), (300, 200, 104), (16, 16, 0), *uneven):
        a, b = random(m, k, dtype=HALF), random(k, n, dtype=HALF, seed=1)
        c = torch.full((m, n), 7.0, device=gpu.device)
        kernel(a.to(gpu.device), b.to(gpu.device), c)
        torch.testing.assert_close(c.cpu().double(), a.double() @ b.double(), atol=1e-3, rtol=1e-3)


def square(size: int = 256) -> Any:
    return kernels.matmul(size, size, size, HALF, out_dtype=HALF, num_stages=3)


def operands(gpu: Gpu, size: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = random(size, size, dtype=HALF), random(size, size, dtype=HALF, seed=1)
    return a.to(gpu.device), b.to(gpu.device)


def assert_product(found: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    exact = a.cpu().double() @ b.cpu().double()
    torch.testing.assert_close(found.cpu().double(), exact, atol=0.05, rtol=2e-3)


def test_outputs_are_allocated_on_the_device_of_the_inputs(gpu: Gpu) -> None:
    a, b = operands(gpu)
    found = tw.compile(square(), target=gpu.target)(a, b)
    assert found.device == a.device and found.dtype == torch.float16
    assert_product(found, a, b)


def test_calls_go_to_the_current_stream(gpu: Gpu) -> None:
    """What precedes a call in its stream is done when it reads, however long that takes."""
    kernel = tw.compile(square(), target=gpu.target)
    a, b = operands(gpu)
    kernel(a, b)  # loads the code: that waits
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = torch.zeros_like(a)
        torch.cuda._sleep(50_000_000)
        late.copy_(a)
        found = kernel(late, b)
        done = stream.record_event()
    assert not done.query()  # the call did not wait
    stream.synchronize()
    assert_product(found, a, b)


def test_a_call_is_captured_into_a_graph(gpu: Gpu) -> None:
    """Replays read what the captured tensors then hold."""
    kernel = tw.compile(square(), target=gpu.target)
    a, b = operands(gpu)
    kernel(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = kernel(a, b)
    a.copy_(random(256, 256, dtype=HALF, seed=5))
    graph.replay()
    torch.cuda.synchronize()
    assert_product(found, a, b)


def test_a_launch_of_two_kernels_is_captured(gpu: Gpu) -> None:
    """Its workspace is allocated in the stream, so the graph has it too."""
    kernel = tw.compile(kernels.split_k_matmul(64, 64, 256, HALF, splits=2), target=gpu.target)
    a, b = random(64, 256, dtype=HALF).to(gpu.device), random(256, 64, dtype=HALF).to(gpu.device)
    kernel(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = kernel(a, b)
    graph.replay()
    torch.cuda.synchronize()
    assert_product(found, a, b)


def test_blocks_that_wait_for_each_other(gpu: Gpu) -> None:
    a = random(BLOCKS, THREADS, dtype="float32").to(gpu.device)
    kernel, found = tw.compile(rotations(3), target=gpu.target), torch.empty_like(a)
    for _ in range(2):
        kernel(a, found)
        assert torch.equal(found, a.roll(-3, 0).flip(1))


def test_a_tensor_in_the_hosts_memory_is_refused(gpu: Gpu) -> None:
    a, b = operands(gpu)
    with pytest.raises(ArgumentError) as wrong:
        tw.compile(square(), target=gpu.target)(a.cpu(), b)
    assert "is on device 'cpu', expected 'cuda'" in wrong.value.message


def test_a_tensor_that_begins_between_vectors_is_refused(gpu: Gpu) -> None:
    a, b = operands(gpu)
    moved_by_one = torch.empty(a.numel() + 1, dtype=a.dtype, device=gpu.device)[1:].view_as(a)
    with pytest.raises(ArgumentError) as wrong:
        tw.compile(square(), target=gpu.target)(moved_by_one, b)
    assert wrong.value.message.endswith("begins at an address that is no multiple of 16")


def test_an_assertion_that_fails_is_an_error_of_the_device(gpu: Gpu) -> None:
    """Afterwards the context is of no use, so it fails in a process of its own."""
    import subprocess
    import sys

    script = "from tests.gpu.test_device import fail; fail()"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "device assert failed: never 50%" in found.stdout
    assert "failed as it should" in found.stdout


def fail() -> None:
    """Trip an assertion on the first device."""
    from tileworkbench.compiler.device.nvidia.driver import open_device

    @T.prim_func
    def check(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                T.device_assert(A[i] < 5.0, "never 50%")

    tw.compile(check, target=f"cuda:{open_device().arch}")(torch.full((64,), 9.0).cuda())
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        print("failed as it should")
