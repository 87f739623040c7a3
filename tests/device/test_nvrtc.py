"""The binding of NVRTC: what a compilation gives, and what it says when it fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.capability import require
from tileworkbench.compiler.device.nvidia import nvrtc
from tileworkbench.compiler.device.nvidia.nvrtc import CudaCompileError, compile_cuda
from tileworkbench.compiler.diagnostics import UnsupportedError

SOURCE = """extern "C" __global__ void scale(float* x, float a) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = a * s[63 - threadIdx.x];
}
"""


@pytest.fixture
def needs_nvrtc() -> None:
    require("nvrtc", nvrtc.missing_nvrtc())


@pytest.mark.nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"])
def test_one_compilation_gives_ptx_cubin_and_resources(needs_nvrtc: None, arch: str) -> None:
    build = compile_cuda(SOURCE, arch)
    assert build.arch == arch
    assert f".target {arch}" in build.ptx
    assert ".visible .entry scale(" in build.ptx
    assert build.cubin.startswith(b"\x7fELF")
    (kernel,) = build.kernels
    assert kernel == build.resources("scale")
    assert kernel.shared_bytes == 256
    assert kernel.barriers == 1
    assert 4 < kernel.registers < 64
    assert (kernel.stack_bytes, kernel.spill_store_bytes, kernel.spill_load_bytes) == (0, 0, 0)
    assert build.warnings == ()
    with pytest.raises(KeyError):
        build.resources("other")


@pytest.mark.nvrtc
def test_spills_and_warnings_are_read_from_the_log(needs_nvrtc: None) -> None:
    lines = "\n".join(f"    float v{i} = x[{i} * n];" for i in range(100))
    total = " + ".join(f"v{i} * x[{i} + n]" for i in range(100))
    source = f"""extern "C" __global__ void __launch_bounds__(1024)
spill(float* x, int n) {{ int unused;
{lines}
    __syncthreads();
    x[0] = {total};
}}"""
    build = compile_cuda(source, "sm_80", options=["-maxrregcount=32"])
    (kernel,) = build.kernels
    assert kernel.spill_store_bytes > 0
    assert kernel.spill_load_bytes > 0
    assert kernel.stack_bytes > 0
    assert any('variable "unused" was declared but never referenced' in w for w in build.warnings)


@pytest.mark.nvrtc
def test_an_error_quotes_the_line(needs_nvrtc: None) -> None:
    with pytest.raises(CudaCompileError) as caught:
        compile_cuda(SOURCE.replace("a * s", "b * s"), "sm_80", name="scale.cu")
    assert caught.value.message == (
        "'scale.cu', line 5: identifier \"b\" is undefined in "
        "'x[threadIdx.x] = b * s[63 - threadIdx.x];'"
    )
    assert "1 error detected" in caught.value.log
    assert "1 error detected" in str(caught.value)


@pytest.mark.nvrtc
def test_an_error_of_the_assembler_is_told(needs_nvrtc: None) -> None:
    source = SOURCE.replace("__syncthreads()", 'asm volatile("cp.async.bulk.commit_group;")')
    with pytest.raises(CudaCompileError, match=r"NVRTC cannot compile 'kernel.cu': ptxas .*sm_90"):
        compile_cuda(source, "sm_80")


@pytest.mark.nvrtc
def test_architectures_are_checked(needs_nvrtc: None) -> None:
    with pytest.raises(UnsupportedError) as caught:
        compile_cuda(SOURCE, "ampere")
    assert str(caught.value) == "'ampere' is not a CUDA architecture\nhint: write e.g. 'sm_80'"
    major, minor = nvrtc.nvrtc_version()
    with pytest.raises(UnsupportedError) as unknown:
        compile_cuda(SOURCE, "sm_79")
    assert str(unknown.value) == f"NVRTC {major}.{minor} does not know the architecture 'sm_79'"


def test_a_missing_library_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter([str(tmp_path / "libnvrtc.so.13")]))
    nvrtc._library.cache_clear()
    try:
        with pytest.raises(UnsupportedError) as caught:
            compile_cuda(SOURCE, "sm_80")
        assert str(caught.value) == (
            "the CUDA compiler library NVRTC is not installed\n"
            "hint: install it with 'pip install tileworkbench[cuda]'"
        )
        assert nvrtc.missing_nvrtc() == "the CUDA compiler library NVRTC is not installed"
    finally:
        nvrtc._library.cache_clear()


def test_libraries_are_looked_for_in_wheels_then_toolkits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc-builtins.so.13.5"):
        (tmp_path / "lib64").mkdir(exist_ok=True)
        (tmp_path / "lib64" / name).touch()
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    monkeypatch.setattr(nvrtc.sys, "platform", "linux")
    found = list(nvrtc._candidates())
    here = [path for path in found if path.startswith(str(tmp_path))]
    assert [Path(path).name for path in here] == ["libnvrtc.so.13", "libnvrtc.so.12"]
    assert found[-3:] == ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
    wheels = [path for path in found if re.search(r"nvidia/(cu13|cuda_nvrtc)/", path)]
    assert not wheels or found.index(wheels[0]) < found.index(here[0])


def test_the_report_of_the_assembler_is_read() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 254 registers, used 2 barriers, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Compiling entry function 'l' for 'sm_80'
ptxas info    : Used 8 registers, 400 bytes cmem[0]
kernel.cu(3): warning #177-D: variable "u" was declared but never referenced
"""
    first, second = nvrtc._read_resources(log)
    assert first == nvrtc.KernelResources("k", 254, 8, 4, 12, 1024, 2)
    assert second == nvrtc.KernelResources("l", 8, 0, 0, 0, 0, 0)
    assert [warning[:12] for warning in nvrtc._read_warnings(log)] == [
        "ptxas info  ",
        "kernel.cu(3)",
    ]
