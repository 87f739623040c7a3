"""`k.accesses`: bytes at once, pattern and line of each access to a tensor."""

from __future__ import annotations

import re

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Address, Buffer, Load, Ramp
from tileworkbench.compiler.ir.program import Param, Program, Stage
from tileworkbench.compiler.ir.stmt import Store, seq
from tileworkbench.compiler.ir.tile import Pack
from tileworkbench.compiler.ir.types import DType
from tileworkbench.kernels import flash_attention, matmul
from tileworkbench.workbench.accesses import GlobalAccess, global_accesses


@tw.jit(target="cpu:generic")
def gather(A, rows):
    N = T.const("N")
    A: T.Tensor[[N, 4], T.float32]
    rows: T.Tensor[[N], T.int32]
    B = T.empty((N,), T.float32)
    C = T.empty((N, 4), T.float32)
    with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[rows[bx * 64 + i], 1] * A[0, 0]
        flat = T.reshape(C, (N * 4,))
        for i in T.Parallel(256):
            flat[bx * 256 + i] = 1.0
    return B, C


def test_patterns_bytes_and_lines() -> None:
    gather(torch.randn(128, 4), torch.zeros(128, dtype=torch.int32))
    kernel = gather.kernel
    assert kernel is not None
    width = kernel._compiled.target.vector_bits // 8
    first = kernel.record.first_line
    lines = {
        name: first + kernel.record.source.splitlines().index(text)
        for name, text in (
            ("gather", "            B[bx * 64 + i] = A[rows[bx * 64 + i], 1] * A[0, 0]"),
            ("fill", "            flat[bx * 256 + i] = 1.0"),
        )
    }
    found = set(kernel.accesses)
    assert found == {
        GlobalAccess("rows", "load", "contiguous", width, lines["gather"]),
        GlobalAccess("A", "load", "scattered", 4, lines["gather"]),
        GlobalAccess("A", "load", "uniform", 4, lines["gather"]),
        GlobalAccess("B", "store", "contiguous", width, lines["gather"]),
        GlobalAccess("C", "store", "contiguous", width, lines["fill"]),
    }
    assert len(found) == len(kernel.accesses)


def test_scalars_and_atomics() -> None:
    @tw.jit
    def count(A, S):
        N = T.const("N")
        A: T.Tensor[[N], T.int32]
        S: T.Tensor[[1], T.int32]
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(N):
                T.atomic_add(S[0], A[i])

    count(torch.ones(5, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))
    assert count.kernel is not None
    found = {(each.buffer, each.kind, each.vector_bytes) for each in count.kernel.accesses}
    assert found == {("A", "load", 4), ("S", "atomic", 4)}


def flat(name: str, scope: str = "global") -> Buffer:
    return Buffer(name, DType("float32"), (int_const(64),), scope)


@pytest.mark.parametrize(("stride", "expected"), [(1, ("contiguous", 32)), (2, ("scattered", 4))])
def test_explicit_vectors(stride: int, expected: tuple[str, int]) -> None:
    a, b = flat("a"), flat("b")
    lanes = Ramp(int_const(0), int_const(stride), 8)
    body = Store(a, (lanes,), Load(b, (lanes,)))
    program = Program("copy", (Param(a), Param(b)), (), body, Stage.CPU)
    assert global_accesses(program) == (
        GlobalAccess("b", "load", *expected, 0),
        GlobalAccess("a", "store", *expected, 0),
    )


def test_routines_name_their_tensors_and_no_width() -> None:
    a, panel = flat("a"), flat("panel", "shared")
    zero, one, eight = int_const(0), int_const(1), int_const(8)
    pack = Pack(
        "a", Address(a, (zero,)), eight, one, Address(panel, (zero,)), 8, 8, eight, eight, 1, 1
    )
    program = Program("pack", (Param(a),), (), seq([pack, pack]), Stage.CPU)
    assert global_accesses(program) == (GlobalAccess("a", "pack", "", None, 0),)


def test_the_card_shows_what_tensors_and_tiles_cost() -> None:
    """A fragment of tensor cores has rows in pieces of 16 bytes, half of each sector, so it leaves
    through a tile.
    """
    page = flash_attention(1, 1, 64, 64, 64, "float16")
    assert tw.compile(page, target="sim:sm_80").view().accesses == (
        "Q: load 1.00x",
        "Q_shared: store 1.00x, load (ldmatrix.x4) 1.00x",
        "K: load (cp.async) 1.00x",
        "K_shared: store (cp.async) 1.00x, load (ldmatrix.x4) 1.00x",
        "V: load (cp.async) 1.00x",
        "V_shared: store (cp.async) 1.00x, load (ldmatrix.x4.trans) 1.00x",
        "Output_tile: store 1.00x, load 1.00x",
        "Output: store 1.00x",
        "L: store 1.00x",
    )


def test_the_card_says_who_copies_what_and_why() -> None:
    """Rows of 1000 bytes are none for the copy engine, so the threads of the loop stay together."""
    lines = tw.compile(matmul(512, 512, 500, "float16"), target="sim:sm_90a").view().variants
    assert re.match(
        r"A: cp\.async, because rows of 1000 bytes are not multiples of 16 \(copy, line \d+\)$",
        lines[0],
    )
    assert re.match(r"B: TMA, 128-byte swizzle \(copy, line \d+\)$", lines[1])
    assert lines[2].startswith(
        "loop 'k': its threads start the copies, too, because threads do some of its copies"
    )
    lines = tw.compile(matmul(512, 512, 512, "float16"), target="sim:sm_90a").view().variants
    assert lines[0].startswith("A: TMA, 64-byte swizzle")
    assert lines[2].startswith("loop 'k': threads 0 to 127 multiply; threads 128 to 255 start")
