"""HIP from programs: the text, what clang makes of it, and what is refused."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from pathlib import Path

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.amd.test_simulated import ARCHS
from tests.capability import require
from tests.kernels.test_gpu import CASES
from tileworkbench.compiler.device.amd import clang, driver
from tileworkbench.compiler.device.amd.clang import HipCompileError, compile_hip
from tileworkbench.compiler.diagnostics import DeviceUnavailableError, UnsupportedError
from tileworkbench.kernels import flash_attention, matmul

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def needs_clang():
    require("hip", clang.missing_compiler())


def without_comments(kernel):
    return "\n".join(line for line in kernel.source.splitlines() if "// line" not in line) + "\n"


@pytest.mark.parametrize(("arch", "stages"), [("gfx942", 1), ("gfx950", 2)])
def test_the_text_of_a_matmul_is_a_page(arch, stages):
    page = matmul(256, 256, 256, "float16", trans_B=True, num_stages=stages)
    text = without_comments(tw.compile(page, target=f"hip:{arch}"))
    assert text == (GOLDEN / f"matmul_{arch}.hip").read_text()
    assert len(text.splitlines()) < 150


def test_every_statement_names_the_line_it_came_from():
    kernel = tw.compile(matmul(256, 256, 256, "float16"), target="hip:gfx942")
    for words in ("T.clear(", "T.copy(A", "T.copy(B", "T.gemm("):
        assert any("// line" in line and words in line for line in kernel.source.splitlines())


def test_nothing_is_included_and_nothing_is_a_template():
    for page in (matmul(256, 256, 256, "bfloat16"), flash_attention(1, 1, 64, 64, 64, "float16")):
        source = tw.compile(page, target="hip:gfx942").source
        assert "#include" not in source and "template" not in source


def test_the_text_is_the_same_where_it_is_simulated():
    page = matmul(128, 128, 64, "float16")
    texts = {tw.compile(page, target=f"{kind}:gfx942").source for kind in ("hip", "sim")}
    assert len(texts) == 1


def test_without_rocm_a_kernel_cannot_be_called():
    if driver.missing_device() is None:
        pytest.skip("this machine has an AMD GPU")
    kernel = tw.compile(matmul(128, 128, 64, "float16"), target="hip:gfx942")
    with pytest.raises(DeviceUnavailableError) as caught:
        kernel(None, None)
    assert caught.value.render() == (
        "DeviceUnavailableError: this machine has no HIP runtime (libamdhip64 of ROCm)\n"
        "hint: targets 'emu:<arch>' and 'sim:<arch>' run the kernel without one"
    )


def test_without_a_compiler_there_is_the_text(monkeypatch):
    monkeypatch.setattr(clang, "_programs", lambda: None)
    kernel = tw.compile(matmul(128, 128, 64, "bfloat16"), target="hip:gfx942")
    assert "mfma_32x32x16_bf16" in kernel.source
    with pytest.raises(UnsupportedError) as caught:
        kernel.asm
    assert caught.value.render() == (
        "UnsupportedError: no compiler for AMD's GPUs is installed\n"
        "hint: install it with 'pip install tileworkbench[hip]'"
    )


def test_sass_is_nvidias():
    kernel = tw.compile(matmul(128, 128, 64, "float16"), target="hip:gfx942")
    toolchain = kernel.compiled.toolchain
    with pytest.raises(UnsupportedError) as caught:
        toolchain.disassemble(None, "")
    assert caught.value.render() == (
        "UnsupportedError: SASS are the instructions of NVIDIA's GPUs\n"
        "hint: kernel.isa has those of AMD's"
    )


# Refused


SOURCE = "__global__ void fill(float* A) { A[threadIdx.x] = 1; }"


def refused(kernel, target="hip:gfx942"):
    """The line that it is about, what is wrong and what to do."""
    with pytest.raises(UnsupportedError) as caught:
        tw.compile(kernel, target=target)
    error = caught.value
    line = Path(error.span.file).read_text().splitlines()[error.span.line - 1].strip()
    return line, f"UnsupportedError: {error.message}\nhint: {error.hint}"


def test_an_exponential_of_float64_is_refused():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float64")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            A[tx] = T.exp(A[tx])

    assert refused(kernel) == (
        "A[tx] = T.exp(A[tx])",
        "UnsupportedError: 'T.exp' of 'float64' is not there on HIP without ROCm's device library\n"
        "hint: convert the value to 'float32' first",
    )


def test_a_sum_of_a_warp_of_float16_is_refused():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float16")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            A[tx] = T.warp_reduce_sum(A[tx])

    assert refused(kernel) == (
        "A[tx] = T.warp_reduce_sum(A[tx])",
        "UnsupportedError: 'T.warp_reduce_sum' of 'float16' is not there on HIP\n"
        "hint: convert the value to 'float32' or 'int32' first",
    )


def test_a_barrier_of_some_threads_is_refused():
    @T.prim_func
    def kernel(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            A[tx] = 1.0
            T.sync_threads(3, 128)

    assert refused(kernel) == (
        "T.sync_threads(3, 128)",
        "UnsupportedError: 'gfx942' has no barrier for some threads of a block\n"
        "hint: let all threads of the block wait, with T.sync_threads()",
    )


def test_cuda_source_is_refused():
    @T.prim_func
    def kernel(A: T.Tensor((128,), "float32")):
        T.CUDASourceCodeKernel(1, threads=128, source_code_or_path=SOURCE, entry_name="fill")

    assert refused(kernel) == (
        'T.CUDASourceCodeKernel(1, threads=128, source_code_or_path=SOURCE, entry_name="fill")',
        "UnsupportedError: CUDA source is no code for 'gfx942'\n"
        "hint: write the kernel with T, which compiles for both",
    )


# Compiled


@pytest.mark.hip
@pytest.mark.parametrize("arch", ARCHS)
def test_a_code_object_of_each_machine(needs_clang, arch):
    kernel = tw.compile(matmul(256, 256, 256, "float16", num_stages=1), target=f"hip:{arch}")
    build = kernel.compiled.compiled()
    assert build.arch == arch and build.code_object.startswith(b"\x7fELF")
    assert f'.amdgcn_target "amdgcn-amd-amdhsa--{arch}"' in kernel.asm
    (found,) = kernel.stats.resources
    assert found.name == "matmul" and 64 < found.registers <= 512
    assert found.spill_store_bytes == 0 and found.shared_bytes == kernel.stats.shared_bytes
    name = {"gfx90a": "32x32x8f16", "gfx942": "32x32x8_f16", "gfx950": "32x32x16_f16"}[arch]
    assert f"v_mfma_f32_{name}" in kernel.asm
    assert kernel.occupancy.arch == arch and kernel.occupancy.blocks >= 1


@pytest.mark.hip
@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", CASES)
def test_the_library_is_compiled_without_spills(needs_clang, name, arch):
    kernel = tw.compile(CASES[name]()[0], target=f"hip:{arch}")
    assert [found.spill_store_bytes for found in kernel.resources] == [0] * len(kernel.resources)


@pytest.mark.hip
def test_an_error_names_the_line_of_the_text(needs_clang):
    with pytest.raises(HipCompileError) as caught:
        compile_hip("int x;\nint y = nope;\n", "gfx942", name="some.hip")
    assert caught.value.message == (
        "'some.hip', line 2: use of undeclared identifier 'nope' in 'int y = nope;'"
    )
    assert "nope" in caught.value.log


def test_an_error_without_a_line_is_told_as_it_is(monkeypatch, tmp_path):
    monkeypatch.setattr(
        clang, "_programs", lambda: (("sh", "-c", "echo error: no >&2; exit 1"), ())
    )
    with pytest.raises(HipCompileError) as caught:
        compile_hip("int x;", "gfx942", name="some.hip")
    assert caught.value.message == "'some.hip' cannot be compiled: error: no"


@pytest.mark.hip
def test_a_text_that_prints_needs_more_than_clang(needs_clang):
    with pytest.raises(UnsupportedError) as caught:
        compile_hip('void f() { printf("x"); }', "gfx942")
    assert caught.value.render() == (
        "UnsupportedError: T.print and T.device_assert need ROCm's device library, which is not "
        "here\nhint: simulate the kernel: target 'sim:gfx942'"
    )


@pytest.mark.hip
@pytest.mark.parametrize("target", ["hip:gfx942", "sim:gfx942", "emu:gfx942"])
def test_isa_is_the_machines_own_text(needs_clang, target):
    kernel = tw.compile(matmul(128, 128, 64, "float16"), target=target)
    assert "v_mfma_f32_32x32x8_f16" in kernel.isa
    assert kernel.isa == kernel.asm


@pytest.mark.hip
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_gfx950_rounds_two_neighbours_at_once(needs_clang, arch):
    """The others have no such instruction."""
    text = tw.compile(flash_attention(1, 1, 64, 64, 64, "float16"), target=f"hip:{arch}").isa
    pairs = 64 * 64 // 128 // 2  # of the scores of a thread
    assert (text.count("v_cvt_pk_f16_f32") >= pairs) == (arch == "gfx950")


@pytest.mark.hip
def test_fast_math_takes_the_bare_instructions():
    require("hip", clang.missing_compiler())

    @T.prim_func
    def page(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i] = T.exp2(A[i]) / (A[i] + 2.0)

    plain, fast = (
        tw.compile(page, target="hip:gfx942", fast_math=each).asm.split("s_endpgm")[0]
        for each in (False, True)
    )
    rounded = {"v_div_scale_f32", "v_ldexp_f32", "v_cmp_"}  # denormals, and exact quotients
    assert all(name in plain and name not in fast for name in rounded)
    assert "v_exp_f32" in fast and "v_rcp_f32" in fast
