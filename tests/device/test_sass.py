"""Loops in a disassembly and the kinds of their instructions."""

from __future__ import annotations

import re

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.nvidia.nvdisasm import missing_nvdisasm
from tileworkbench.compiler.device.nvidia.nvrtc import compile_cuda
from tileworkbench.compiler.device.nvidia.sass import kind_of, loops_of, main_loop, whole
from tileworkbench.kernels import (
    chunk_scan,
    dequant_matmul,
    flash_attention,
    matmul,
    mla_decode,
)

TEXT = """
.text.k:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDG.E R2, [R4.64] ;
.L_x_1:
        /*0020*/              @!P0 LDS.128 R8, [R6] ;
        /*0030*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0040*/               @P0 BRA `(.L_x_1) ;
        /*0050*/                   FADD R2, R2, R3 ;
        /*0060*/                   IADD3 R4, R4, 0x1, RZ ;
        /*0070*/              @!UP0 BRA.U UP0, `(.L_x_0) ;
        /*0080*/                   EXIT ;
.L_x_2:
        /*0090*/                   BRA `(.L_x_2);
"""
SHORT = ("LDS.128", "HMMA.16816.F32", "BRA")


def test_loops_are_jumps_back():
    outer, inner = sorted(loops_of(TEXT), key=lambda loop: loop.start)
    assert inner.instructions == SHORT
    assert outer.instructions == ("LDG.E", *SHORT, "FADD", "IADD3", "BRA.U")
    assert outer.contains(inner) and not inner.contains(outer) and not inner.contains(inner)
    assert outer.kinds == {
        **{"global": 1, "shared": 1, "tensor": 1, "control": 2, "float": 1, "integer": 1}
    }


OUTSIDE = """
.L_x_0:
        /*0010*/                   LDG.E R2, [R4.64] ;
        /*0020*/               @P0 BRA `(.L_x_2) ;
        /*0030*/                   FADD R2, R2, R3 ;
.L_x_1:
        /*0040*/              @!P1 BRA `(.L_x_0) ;
        /*0050*/                   EXIT ;
.L_x_2:
        /*0060*/                   MUFU.RCP R2, R2 ;
        /*0070*/                   BRA `(.L_x_1) ;
"""


def test_code_behind_a_kernel_that_jumps_back_is_no_loop():
    assert [loop.instructions for loop in loops_of(OUTSIDE)] == [("LDG.E", "BRA", "FADD", "BRA")]


def test_a_whole_kernel_ends_at_its_padding():
    assert whole(TEXT).instructions == ("MOV", "LDG.E", *SHORT, "FADD", "IADD3", "BRA.U", "EXIT")


MASKED = """
.L_x_0:
        /*0010*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0020*/               @P0 BRA `(.L_x_1) ;
        /*0030*/                   ISETP.GE.AND P1, PT, R2, R3, PT ;
        /*0040*/                   FSEL R8, R8, -INF, P1 ;
.L_x_1:
        /*0050*/               @P2 BRA `(.L_x_2) ;
        /*0060*/                   LDS R3, [R4] ;
        /*0070*/                   FADD R3, R3, R3 ;
        /*0080*/                   FADD R3, R3, R3 ;
.L_x_2:
        /*0090*/               @P3 BRA `(.L_x_0) ;
"""


def test_a_mask_is_arithmetic_that_a_jump_leaves_out():
    """What reads memory is no mask, though a jump leaves out more of it."""
    (loop,) = loops_of(MASKED)
    assert loop.skipped == ("ISETP.GE.AND", "FSEL")
    assert all(loop.skipped == () for loop in loops_of(TEXT))


def test_the_main_loop_has_the_tensor_instructions_else_it_is_the_longest_inner_one():
    assert main_loop(TEXT).instructions == SHORT
    assert main_loop(TEXT.replace("HMMA.16816.F32", "FFMA")).instructions[1] == "FFMA"
    assert main_loop(".text.k:\n        /*0000*/                   EXIT ;\n") is None


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("tensor", "HMMA.1688.F32 IMMA.16832.S8.S8 DMMA.884 HGMMA.64x64x16.F32 QGMMA.64x8x32.F32"),
        ("global", "LDG.E.128 STG.E LDGSTS.E.BYPASS.128 DEPBAR.LE RED.E.ADD UTMALDG.2D"),
        ("shared", "LDS.64 STS.128 LDSM.16.M88.4 ATOMS.ADD"),
        ("spill", "LDL.64 STL"),
        ("special", "MUFU.EX2"),
        ("barrier", "BAR.SYNC SYNCS.PHASECHK.TRANS64"),
        ("float", "FFMA FSETP.GT.AND HFMA2.MMA HADD2.F32 DFMA FMNMX"),
        ("convert", "F2FP.F16.PACK_AB I2F.S8 F2I.TRUNC"),
        ("integer", "IMAD.WIDE LOP3.LUT FLO.U32 PRMT SHF.R.U32.HI ISETP.GE.AND SEL"),
    ],
)
def test_kinds(kind, names):
    assert {name: kind_of(name) for name in names.split()} == dict.fromkeys(names.split(), kind)


@pytest.mark.nvrtc
@pytest.mark.skipif(missing_nvdisasm() is not None, reason="nvdisasm is not installed")
@pytest.mark.parametrize(
    ("make", "tensor", "integer"),
    [
        (lambda: matmul(4096, 4096, 4096, T.float16, num_stages=3), 64, 36),
        (
            lambda: flash_attention(
                *(1, 16, 4096, 4096, 128, T.float16), block_M=128, block_N=128, threads=256
            ),
            *(256, 60),
        ),
    ],
    ids=["matmul", "attention"],
)
def test_addresses_stand_in_the_instructions(make, tensor, integer):
    """One address for several ldmatrix, the rest as offsets; a stage is counted, not divided."""
    kinds = main_loop(tw.compile(make(), target="cuda:sm_80").sass).kinds
    assert kinds["tensor"] == tensor and kinds["integer"] <= integer


@pytest.mark.nvrtc
@pytest.mark.skipif(missing_nvdisasm() is not None, reason="nvdisasm is not installed")
@pytest.mark.parametrize("block_N", [128, 256])
def test_descriptors_are_computed_for_a_warp_and_not_for_each_thread(block_N):
    """None is moved from a thread's registers: their loop has a third of the instructions then."""
    make = matmul(
        *(4096, 4096, 4096, T.float16),
        **{"block_M": 128, "block_N": block_N, "block_K": 64, "num_stages": 3},
        threads=block_N,
    )
    loop = main_loop(tw.compile(make, target="cuda:sm_90a").sass)
    assert not [each for each in loop.instructions if each.startswith("R2UR")]
    assert loop.kinds["integer"] <= 50


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    "make",
    [
        lambda: flash_attention(
            *(1, 16, 4096, 4096, 128, T.float16),
            causal=True,
            block_M=128,
            block_N=128,
            threads=256,
        ),
        lambda: mla_decode(16, 128, 4096, block_N=32, block_H=64, threads=256),
        lambda: chunk_scan(2, 16, 256, 64, 64, 128),
        lambda: dequant_matmul(4096, 4096, 4096, "int4", block_M=128),
    ],
    ids=["attention", "mla_decode", "chunk_scan", "dequant_matmul"],
)
def test_products_of_warpgroups_run_on_and_registers_suffice(make):
    """ptxas says C75xx where it makes wgmma wait for each other."""
    build = compile_cuda(tw.compile(make(), target="cuda:sm_90a").source, "sm_90a")
    assert not [each for each in build.warnings if "C75" in each]
    assert all(each.spill_store_bytes == 0 for each in build.kernels)


@pytest.mark.nvrtc
@pytest.mark.skipif(missing_nvdisasm() is not None, reason="nvdisasm is not installed")
def test_exponentials_are_taken_while_a_product_is_under_way():
    """Half of them at least, without spills and without products that ptxas makes wait."""
    make = flash_attention(
        *(1, 16, 4096, 4096, 128, T.float16), block_M=128, block_N=128, threads=256
    )
    kernel = tw.compile(make, target="cuda:sm_90a", fast_math=True)
    pattern = r"(HGMMA)|WARPGROUP\.DEPBAR\.LE gsb0, 0x(\d)|(MUFU\.EX2)"
    found = re.findall(pattern, kernel.sass)
    order = "".join(
        "P" if product else "E" if exponential else pending
        for product, pending, exponential in found
    )
    # Two products; a wait that leaves one under way, in the first iteration one that leaves none;
    # exponentials; the wait for the other product.
    assert re.search(r"P{16}10E{32,66}0", order)
    build = compile_cuda(kernel.source, "sm_90a")
    assert build.notes() == []  # neither spilled nor serialised
