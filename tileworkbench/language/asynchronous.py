"""Operators that a GPU may finish later, and the waits for them.

Each is started where it stands, and done at any moment until somebody has waited for it. Code for a
GPU starts copies of tiles with cp.async where it is plain that the kernel waits for them; all else
is done at once, which a program that waits as it must cannot tell apart. The simulator does it as
late as the waits allow, and reports who reads or writes too early.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import in_kernel
from tileworkbench.compiler.frontend.tensors import TensorValue, check_access, store_vector
from tileworkbench.compiler.frontend.threads import (
    arrive_once,
    barrier_address,
    emit_arrival,
    started,
)
from tileworkbench.compiler.frontend.values import Value, condition, describe, to_value
from tileworkbench.compiler.frontend.vectors import VectorValue
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import AddressOf, Expr, Load
from tileworkbench.compiler.ir.simt import CommitGroup, Engine, WaitGroup
from tileworkbench.language.tile import GemmWarpPolicy, copy, gemm


def async_copy(src: Any, dst: Any, annotations: Any = None) -> None:
    """`T.copy` whose result may be read after `T.ptx_commit_group` and `T.ptx_wait_group`.

    >>> T.async_copy(A, a)
    >>> T.ptx_commit_group()
    >>> T.ptx_wait_group(0)
    >>> T.sync_threads()
    """
    with started(Engine.CP_ASYNC):
        copy(src, dst)


def ptx_commit_group() -> None:
    """End a group: the asynchronous copies of this thread since the last one.

    >>> T.ptx_cp_async(T.address_of(s[tx]), T.address_of(A[tx]), 1)
    >>> T.ptx_commit_group()
    >>> T.ptx_wait_group(0)
    """
    in_kernel("T.ptx_commit_group").emit(CommitGroup(Engine.CP_ASYNC))


def ptx_wait_group(count: int = 0) -> None:
    """Wait until at most `count` groups of asynchronous copies of this thread are left.

    >>> T.ptx_cp_async(T.address_of(s[tx]), T.address_of(A[tx]), 1)
    >>> T.ptx_commit_group()
    >>> T.ptx_wait_group(0)
    """
    _wait("T.ptx_wait_group", count, Engine.CP_ASYNC)


def ptx_cp_async(
    dst_access_ptr: Any, src_access_ptr: Any, num_elems: int, predicate: Any = None
) -> None:
    """Copy `num_elems` neighbouring elements from one address of `T.access_ptr` or `T.address_of`
    to another; where `predicate` does not hold, store zeros. They may be read after
    `T.ptx_commit_group` and `T.ptx_wait_group`.

    Raises `TileTypeError` for anything but addresses of elements of equal dtypes, and
    `TileValueError` for a number that is not positive.

    >>> T.ptx_cp_async(T.address_of(s[tx]), T.address_of(A[tx]), 1)
    >>> T.ptx_commit_group()
    >>> T.ptx_wait_group(0)
    >>> B[tx] = s[tx]
    """
    construct = "T.ptx_cp_async"
    target = _addressed(construct, "destination", dst_access_ptr)
    source = _addressed(construct, "source", src_access_ptr)
    if target.buffer.dtype != source.buffer.dtype:
        raise TileTypeError(
            f"{construct} moves bytes and converts nothing: '{source.buffer.name}' is "
            f"'{source.buffer.dtype}', '{target.buffer.name}' is '{target.buffer.dtype}'",
            hint="see one of them as the other's dtype with T.view",
        )
    if isinstance(num_elems, bool) or not hasattr(num_elems, "__index__") or int(num_elems) <= 0:
        raise TileValueError(
            f"the number of elements of {construct} must be a positive integer, not {num_elems!r}"
        )
    taken = None if predicate is None else condition(predicate, f"the predicate of {construct}")
    zero = build.const(0, source.buffer.dtype)

    def at(lane: Expr) -> Expr:
        place = (*source.indices[:-1], build.add(source.indices[-1], lane))
        check_access(source.buffer, place)
        element = Load(source.buffer, place)
        return element if taken is None else build.select(taken.expr, element, zero, lazy=True)

    first, count = Value(target.indices[-1]), int(num_elems)
    index = (*map(Value, target.indices[:-1]), slice(first, first + count))
    with started(Engine.CP_ASYNC):
        store_vector(TensorValue(target.buffer), index, VectorValue(count, at, None))


def _addressed(construct: str, role: str, value: Any) -> AddressOf:
    """The element whose address `value` is."""
    address = to_value(value).expr if isinstance(value, Value) else None
    if not isinstance(address, AddressOf):
        raise TileTypeError(
            f"the {role} of {construct} must be the address of an element",
            hint="write T.access_ptr(A[i, j], 'r')",
        )
    return address


def cp_async_barrier_noinc(barrier: Any) -> None:
    """Arrive at a memory barrier once the thread's asynchronous copies so far are done.

    >>> full = T.alloc_barrier(128)
    >>> T.ptx_cp_async(T.address_of(s[tx]), T.address_of(A[tx]), 1)
    >>> T.cp_async_barrier_noinc(full)
    >>> T.mbarrier_wait_parity(full, 0)
    """
    emit_arrival("T.cp_async_barrier_noinc", barrier, Engine.CP_ASYNC)


def wgmma_gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: Any = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    annotations: Any = None,
) -> None:
    """`T.gemm` whose result may be read, and its operands written, after `T.wait_wgmma`. Each is a
    group of its own; products into the same C follow each other without a wait. A CPU is done
    with it where it starts. Raises as `T.gemm`, and `UnsupportedError` when compiled for a GPU that
    lacks the instruction: all but `sm_90a`.

    >>> T.wgmma_gemm(a, b, acc)
    >>> T.wait_wgmma(0)
    """
    builder = in_kernel("T.wgmma_gemm")
    builder.uses.append(("T.wgmma_gemm", builder.site))
    with started(Engine.WGMMA):
        gemm(A, B, C, transpose_A, transpose_B, policy, clear_accum)
    builder.emit(CommitGroup(Engine.WGMMA))


def tcgen05_gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: Any = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    *,
    mbar: Any,
    use_2cta: bool = False,
    annotations: Any = None,
) -> None:
    """`T.gemm` whose result may be read once the memory barrier `mbar` has its arrival.

    Raises as `T.gemm`; there is no code for an architecture with tensor memory.

    >>> done = T.alloc_barrier(1)
    >>> T.tcgen05_gemm(a, b, acc, mbar=done)
    >>> T.mbarrier_wait_parity(done, 0)
    """
    builder = in_kernel("T.tcgen05_gemm")
    builder.uses.append(("T.tcgen05_gemm", builder.site))
    barrier_address("T.tcgen05_gemm", mbar)
    with started(Engine.TENSOR):
        gemm(A, B, C, transpose_A, transpose_B, policy, clear_accum)
    arrive_once("T.tcgen05_gemm", mbar, Engine.TENSOR)


def wait_wgmma(count: int = 0) -> None:
    """Wait until at most `count` asynchronous products are left.

    >>> T.wgmma_gemm(a, b, acc)
    >>> T.wait_wgmma(0)
    """
    _wait("T.wait_wgmma", count, Engine.WGMMA)


def warpgroup_fence_operand(
    buffer_or_ptr: Any, offset: Any = 0, num_regs: Any = None, dtype: Any = None
) -> None:
    """Keep a compiler from moving uses of accumulators over a wait: no effect.

    >>> T.warpgroup_fence_operand(acc)
    """
    in_kernel("T.warpgroup_fence_operand")


def warpgroup_arrive() -> None:
    """Announce that a warp group's operands are there: no effect.

    >>> T.warpgroup_arrive()
    """
    in_kernel("T.warpgroup_arrive")


def warpgroup_commit_batch() -> None:
    """End a group of asynchronous products: no effect, each T.wgmma_gemm is a group of its own.

    >>> T.warpgroup_commit_batch()
    """
    in_kernel("T.warpgroup_commit_batch")


def warpgroup_wait(num_mma: int = 0) -> None:
    """Wait until at most `num_mma` asynchronous products are left.

    >>> T.wgmma_gemm(a, b, acc)
    >>> T.warpgroup_wait(0)
    """
    _wait("T.warpgroup_wait", num_mma, Engine.WGMMA)


def _wait(construct: str, count: Any, engine: Engine) -> None:
    builder = in_kernel(construct)
    if isinstance(count, bool) or not isinstance(count, int):
        raise TileTypeError(f"{construct} takes an integer, not {describe(count)}")
    if count < 0:
        raise TileValueError(f"{construct} cannot wait for {count} operations")
    builder.emit(WaitGroup(count, engine))
