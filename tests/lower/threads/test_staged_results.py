"""Tiles through which results go from registers to global memory: their layout has no conflicts."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.kernels as kernels
import tileworkbench.language as T
from tileworkbench.compiler.device.nvidia import nvrtc

M = N = K = 128


def product(columns, dtype, threads=128, reads=False):
    """A product whose result is staged; with `reads` threads also read single elements of it."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), dtype)
    ):
        with T.Kernel(1, threads=threads):
            A_shared = T.alloc_shared((M, 32), "float16")
            B_shared = T.alloc_shared((32, columns), "float16")
            C_shared = T.alloc_shared((M, columns), dtype)
            total = T.alloc_fragment((M, columns), "float32")
            T.clear(total)
            for k in T.Pipelined(K // 32, num_stages=2):
                T.copy(A[0, k * 32], A_shared)
                T.copy(B[k * 32, 0], B_shared)
                T.gemm(A_shared, B_shared, total)
            T.copy(total, C_shared)
            if reads:
                for i, j in T.Parallel(M, columns):
                    C[i, j] = C_shared[i, j]
            else:
                T.copy(C_shared, C[0:M, 0:columns])

    return kernel


def ratios(kernel):
    """Wavefronts over the least, of the accesses to the staging tile."""
    return [each.factor for each in kernel.accesses if each.buffer == "C_shared"]


OTHERS = [pytest.param(arch, marks=pytest.mark.slow) for arch in ("sm_75", "sm_90")]


@pytest.mark.covering(2)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", *OTHERS])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("columns", [32, 64, 128])
def test_stores_and_loads_take_the_fewest_wavefronts(columns, dtype, target):
    kernel = tw.compile(product(columns, dtype), target=f"sim:{target}")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (128, 128)).astype(np.float16) for _ in range(2))
    c = np.zeros((M, N), dtype)
    kernel(a, b, c)
    assert np.array_equal(c[:, :columns], (a @ b)[:, :columns].astype(dtype))
    assert ratios(kernel) and max(ratios(kernel)) == 1


def test_the_note_says_why():
    kernel = tw.compile(product(64, "float16"), target="sim:sm_80")
    notes = kernel.compiled.record.snapshots[-1].program.notes
    assert any(
        note.startswith("C_shared: (i, j) -> 64*i + 8*(i%8 ^ j//8) + j%8, it takes results from")
        for note in notes
    )


def test_a_tile_with_other_readers_stays_as_it_is():
    kernel = tw.compile(product(64, "float16", reads=True), target="sim:sm_80")
    assert "C_shared" not in kernel.layouts


@pytest.mark.parametrize("target", ["sim:sm_90", "sim:sm_90a"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_are_rounded_and_stored_as_matrices(dtype, target):
    kernel = tw.compile(product(64, dtype), target=target)
    text = kernel.source.partition('extern "C"')[2]
    body = text[text.index("T.copy(total, C_shared)") :]
    assert "stmatrix_x4(" in body and "tensor_store_2(" in body
    # What warps store behind one another are different elements: they meet once, in front of the
    # engine.
    stores = body[body.index("stmatrix_x4(") :]
    assert stores.count("__syncthreads()") + stores.count("barrier.sync") == 1
    assert not any("sync" in line for line in loop_around(body, "stmatrix_x4("))


def loop_around(text, call):
    """The lines of the innermost loop around a call."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if call in line)
    start = max(number for number in range(at) if "for (" in lines[number])
    return lines[start : at + 2]


@pytest.mark.nvrtc
@pytest.mark.parametrize("columns", [64, pytest.param(128, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", ["sm_90a", pytest.param("sm_90", marks=pytest.mark.slow)])
def test_from_ptx(columns, target):
    if reason := nvrtc.missing_nvrtc():
        pytest.skip(reason)
    kernel = tw.compile(product(columns, "float16"), target=f"ptx:{target}")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (128, 128)).astype(np.float16) for _ in range(2))
    c = np.zeros((M, N), np.float16)
    kernel(a, b, c)
    assert np.array_equal(c[:, :columns], (a @ b)[:, :columns])
    assert "stmatrix" in kernel.asm


def direct(rows, columns, stages, threads=128, persistent=False):
    """A product whose result is copied to the tensor; the compiler stages it where that pays."""

    @T.macro
    def tile(A, B, C, A_shared, B_shared, total, bx, by):
        T.clear(total)
        for k in T.Pipelined(2, num_stages=stages):
            T.copy(A[by * rows, k * 64], A_shared)
            T.copy(B[k * 64, bx * columns], B_shared)
            T.gemm(A_shared, B_shared, total)
        T.copy(total, C[by * rows, bx * columns])

    @T.prim_func
    def kernel(
        A: T.Tensor((256, 128), "float16"),
        B: T.Tensor((128, 256), "float16"),
        C: T.Tensor((256, 256), "float16"),
    ):
        with T.Kernel(256 // columns, 1 if persistent else 256 // rows, threads=threads) as (bx, y):
            A_shared = T.alloc_shared((rows, 64), "float16")
            B_shared = T.alloc_shared((64, columns), "float16")
            total = T.alloc_fragment((rows, columns), "float32")
            if persistent:
                for by in T.serial(256 // rows):
                    tile(A, B, C, A_shared, B_shared, total, bx, by)
            else:
                tile(A, B, C, A_shared, B_shared, total, bx, y)

    return kernel


def check_direct(kernel, target):
    compiled = tw.compile(kernel, target=target)
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (256, 128)).astype(np.float16)
    b = rng.integers(-3, 4, (128, 256)).astype(np.float16)
    c = np.zeros((256, 256), np.float16)
    compiled(a, b, c)
    assert np.array_equal(c, a @ b)
    if target.startswith("sim"):
        assert compiled.simulate(a, b, np.zeros_like(c)).report.ok
    return compiled


def sectors(kernel):
    """Sectors that stores to C move over the least, and their bytes at once."""
    stores = [each for each in kernel.accesses if each.buffer == "C" and "store" in each.kind]
    return {(each.factor, each.width) for each in stores}


# Threads take 16 bytes each from the tile where no engine does; False: they store registers.
THREADS = [
    ("sm_80", (64, 64, 2), True),
    ("sm_80", (128, 128, 2, 128, True), False),  # a block less would fit
    ("sm_80", (64, 64, 2, 128, True), True),  # its own place costs none
    ("sm_80", (64, 32, 2, 64), True),
    pytest.param("sm_80", (128, 128, 2), True, marks=pytest.mark.slow),
    pytest.param("sm_86", (128, 128, 2), True, marks=pytest.mark.slow),
    pytest.param("sm_75", (64, 64, 2), True, marks=pytest.mark.slow),
    pytest.param("sm_80", (128, 256, 3, 256), True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("arch", "shape", "staged"), THREADS)
def test_threads_store_whole_sectors(arch, shape, staged):
    kernel = check_direct(direct(*shape), f"sim:{arch}")
    assert sectors(kernel) == ({(1.0, 16)} if staged else {(2.0, 4)})
    plain = tw.compile(direct(*shape), target=f"sim:{arch}", disable=["stage_results"])
    assert (kernel.source != plain.source) == staged
    # It lies where the operands lay.
    assert kernel.stats.shared_bytes == plain.stats.shared_bytes or shape[-1] is True
    assert kernel.occupancy.blocks == plain.occupancy.blocks


@pytest.mark.parametrize(
    ("columns", "dtype", "why"),
    [
        (252, "float16", "rows of 'C' are not known to allow more than 8 bytes"),
        (256, "int8", "a warp stores 64 bytes of a row at once, which are whole sectors"),
    ],
)
def test_the_note_says_why_registers_are_stored(columns, dtype, why):
    page = kernels.matmul(128, columns, 128, dtype, out_dtype="float16")
    kernel = tw.compile(page, target="sim:sm_80")
    (note,) = [note for note in notes_of(kernel) if note.startswith("C: ")]
    assert note.startswith(f"C: from registers, because {why} (copy, line ")


def test_the_note_says_why_a_tile_is_stored():
    (note,) = [
        note
        for note in notes_of(tw.compile(direct(64, 64, 2), target="sim:sm_80"))
        if note.startswith("C: ")
    ]
    assert note.startswith("C: through a tile in shared memory and from there 16 bytes a thread")
    assert "half of each sector of 32 bytes (copy, line " in note


def notes_of(kernel):
    return kernel.compiled.record.snapshots[-1].program.notes


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "target",
    ["sim:sm_80", pytest.param("ptx:sm_80", marks=[pytest.mark.nvrtc, pytest.mark.slow])],
)
def test_ragged_results_of_threads(target, dtype):
    """Rows and columns beyond the tensor lie in the tile, too, and nobody stores them."""
    if target.startswith("ptx") and (reason := nvrtc.missing_nvrtc()):
        pytest.skip(reason)
    page = kernels.matmul(40, 56, 104, dtype, out_dtype=dtype, block_M=32, block_N=64, num_stages=3)
    kernel = tw.compile(page, target=target)
    rng = torch.Generator().manual_seed(0)
    a, b = (
        torch.randint(-3, 4, s, generator=rng).to(getattr(torch, dtype))
        for s in ((40, 104), (104, 56))
    )
    assert torch.equal(kernel(a, b), (a.double() @ b.double()).to(a.dtype))
    assert sectors(kernel) == {(1.0, 16)}


# The tile lies where the operands lay, unless they are needed again.
CASES = [
    ("sm_90a", (64, 64, 2), True),
    ("sm_90a", (128, 128, 3), True),
    ("sm_90a", (128, 128, 3, 128, True), False),  # a second block would not fit
    ("sm_90a", (64, 64, 2, 128, True), True),
    ("sm_90", (128, 128, 3), True),
    pytest.param("sm_90", (64, 64, 2, 128, True), False, marks=pytest.mark.slow),
    pytest.param("sm_90a", (128, 256, 2, 256), True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("arch", "shape", "staged"), CASES)
def test_results_of_products(arch, shape, staged):
    text = check_direct(direct(*shape), f"sim:{arch}").source.partition('extern "C"')[2]
    assert ("tensor_store_2(" in text) == staged


@pytest.mark.nvrtc
def test_results_of_threads_from_ptx():
    if reason := nvrtc.missing_nvrtc():
        pytest.skip(reason)
    text = check_direct(direct(64, 64, 2), "ptx:sm_80").asm
    assert text.count("st.global.v4") == 4 and "st.global.u32" not in text


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    "shape",
    [(64, 64, 2), (64, 64, 2, 128, True), pytest.param((128, 128, 3), marks=pytest.mark.slow)],
)
def test_results_of_products_from_ptx(shape):
    if reason := nvrtc.missing_nvrtc():
        pytest.skip(reason)
    assert "cp.async.bulk.tensor.2d.global" in check_direct(direct(*shape), "ptx:sm_90a").asm


def test_the_note_says_who_stores():
    kernel = tw.compile(direct(128, 128, 3, persistent=True), target="sim:sm_90a")
    why = (
        "C: threads, because a tile in shared memory would leave room for fewer blocks (copy, line"
    )
    assert any(note.startswith(why) for note in kernel.compiled.record.snapshots[-1].program.notes)
