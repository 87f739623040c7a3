"""Asynchronous copies and the memory barriers (mbarrier) that count them."""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.cuda.features import BARRIER, BYTES, COPY, FENCE
from tileworkbench.compiler.emit.cuda.functions import asm, function


def _copy(size: int, guarded: bool) -> Helper:
    """cp.async; what is outside is not read, and zeros are written.

    Vectors have L2 fetch the 128 bytes around them: the rest of a row of a tile, or the beginning
    of the next tile's row.
    """
    cache, prefetch = ("cg", ".L2::128B") if size == 16 else ("ca", "")
    name, param, tail, operand = f"cp_async_{size}", "", "", ""
    if guarded:
        name, param, tail = f"{name}_or_zero", ", bool inside", ", %2"
        operand = f', "r"(inside ? {size} : 0)'
    text = f"cp.async.{cache}.shared.global{prefetch} [%0], [%1], {size}{tail};"
    body = asm(text, "", f'"r"(to), "l"(from){operand}', "memory")
    return Helper(function(f"void {name}(unsigned to, const void* from{param})", body), (), COPY)


def _ordered(name: str, text: str, feature: str) -> Helper:
    """An instruction without operands, in order with accesses to memory."""
    body = f'  asm volatile("{text}" ::: "memory");'
    return Helper(function(f"void {name}()", body), (), feature)


def _barrier(name: str, text: str, operand: str = "", feature: str = BARRIER) -> Helper:
    """ "Parallel Synchronization and Communication Instructions: mbarrier"."""
    given = f', "r"({operand})' if operand else ""
    param = f", unsigned {operand}" if operand else ""
    body = asm(text, "", f'"r"(barrier){given}', "memory")
    return Helper(function(f"void mbarrier_{name}(unsigned barrier{param})", body), (), feature)


def _wait(kind: str, feature: str) -> Helper:
    """Wait for the phase in a loop; `try_wait` lets the thread sleep meanwhile."""
    body = f"""  unsigned done;
  do {{
    asm volatile("{{ .reg .pred p; mbarrier.{kind}.parity.shared.b64 p, [%1], %2; "
                 "selp.u32 %0, 1, 0, p; }}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  }} while (!done);"""
    name = f"mbarrier_{kind.replace('test_', '')}"
    return Helper(function(f"void {name}(unsigned barrier, unsigned parity)", body), (), feature)


_TX = "_tx.relaxed.cta.shared.b64 [%0], %1;"

COPIES: dict[str, Helper] = {
    "cp_async_commit": _ordered("cp_async_commit", "cp.async.commit_group;", COPY),
    "fence_async": _ordered("fence_async", "fence.proxy.async.shared::cta;", FENCE),
    **{f"cp_async_{size}": _copy(size, False) for size in (4, 8, 16)},
    **{f"cp_async_{size}_or_zero": _copy(size, True) for size in (4, 8, 16)},
    "mbarrier_init": _barrier("init", "mbarrier.init.shared.b64 [%0], %1;", "count"),
    "mbarrier_arrive": _barrier("arrive", "{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }"),
    "mbarrier_expect": _barrier("expect", f"mbarrier.expect{_TX}", "bytes", BYTES),
    "mbarrier_complete": _barrier(
        "complete", f"fence.acq_rel.cta; mbarrier.complete{_TX}", "bytes", BYTES
    ),
    "mbarrier_wait": _wait("test_wait", BARRIER),
    "mbarrier_try_wait": _wait("try_wait", BYTES),
}


def wait_helper(pending: int) -> tuple[str, Helper]:
    """cp.async.wait_group takes its count as a literal."""
    name = f"cp_async_wait_{pending}"
    return name, _ordered(name, f"cp.async.wait_group {pending};", COPY)
