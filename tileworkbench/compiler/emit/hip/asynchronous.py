"""Copies to shared memory that no register sees, and waits for them.

They are inline assembly: clang waits for all copies that its own builtin has started in front of
every barrier (``s_waitcnt vmcnt(0)``), so that none would be under way for longer than a step. What
clang counts for loads of its own stays right: there are never fewer under way than it thinks.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.c_like.statements import KernelWriter
from tileworkbench.compiler.emit.hip.functions import function
from tileworkbench.compiler.emit.hip.tensors import in_bytes, place_in_tensor, split_place
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int, int_const
from tileworkbench.compiler.ir.expr import Address, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, substitute

FIRST = "wave_tx"  # the first thread of a wave, which is the same number for all of its threads
_MOST = 63  # that vmcnt can say

# M0 has the place of the first lane; the load has to wait for who writes it, and four cycles more
# for a vector instruction that wrote another of its scalars ("Manually inserted wait states"). The
# compiler does neither for what stands in assembly.
_LOAD = """  asm volatile("s_nop 3\\n\\t{instruction}" : : "{{m0}}"(to), {given} : "memory");"""


def _load(signature: str, instruction: str, given: str) -> Helper:
    return Helper(function(f"void {signature}", _LOAD.format(instruction=instruction, given=given)))


COPIES: dict[str, Helper] = {
    "lds_address": Helper(
        function(
            "unsigned lds_address(const void* at)",
            "  return (unsigned)(unsigned long long)"
            "(const __attribute__((address_space(3))) void*)at;",
        )
    ),
    "load_lds_16": _load(
        "load_lds_16(unsigned to, u32x4 tensor, int more, int at)",
        "buffer_load_dwordx4 %1, %2, %3 offen lds",
        '"v"(more), "s"(tensor), "s"(at)',
    ),
    "load_lds_16_behind": _load(
        "load_lds_16_behind(unsigned to, const void* from, unsigned more)",
        "global_load_lds_dwordx4 %2, %1",
        '"s"(from), "v"(more)',
    ),
    "load_lds_16_from": _load(
        "load_lds_16_from(unsigned to, const void* from)",
        "global_load_lds_dwordx4 %1, off",
        '"v"(from)',
    ),
}


def wait_helper(pending: int) -> tuple[str, Helper]:
    """All but the latest `pending` loads have come; s_waitcnt takes its count as a literal."""
    pending = min(pending, _MOST)
    body = f'  asm volatile("s_waitcnt vmcnt({pending})" : : : "memory");'
    return f"wait_loads_{pending}", Helper(function(f"void wait_loads_{pending}()", body))


def copy_in_line(stmt: simt.AsyncCopy, writer: KernelWriter) -> str:
    """A wave's copy: the place of its first thread's, and where each thread's comes from: a place
    that is the wave's, in scalar registers, and how many bytes behind it.
    """
    use, address = writer.expressions.use, writer.expressions.address
    thread = writer.kernel.thread_vars[0]
    first = Var(FIRST, thread.dtype)
    threads = int_const(prod(writer.kernel.threads))
    writer.expressions.ranges.enter(first, int_const(0), threads, 1)
    places = tuple(substitute(index, {thread: first}) for index in stmt.dst.indices)
    to = f"{use('lds_address')}({address(Address(stmt.dst.buffer, places))})"
    index, source = stmt.src.indices[0], stmt.src.buffer
    if (place := place_in_tensor(index, source, writer)) is not None:
        return f"{use('load_lds_16')}({', '.join([to, *place])});"
    if (parts := split_place(index, source, writer)) is None:
        return f"{use('load_lds_16_from')}({to}, {address(stmt.src)});"
    base, more = parts
    start = address(Address(source, (base,)))
    return f"{use('load_lds_16_behind')}({to}, {start}, {in_bytes(more, source, writer)});"


def with_first(lines: tuple[str, ...] | list[str], thread: str) -> list[str]:
    """The lines of a kernel, with the first thread of a wave where they name it."""
    if not any(FIRST in line for line in lines):
        return list(lines)
    value = f"__builtin_amdgcn_readfirstlane({thread} & -64)"
    return [f"  const int {FIRST} = {value};", *lines]


def least_copies(program: Program, wait: simt.WaitGroup) -> int:
    """The fewest copies of a group, of those that have any, in the kernel of `wait`."""
    for kernel in statements(program.body):
        if isinstance(kernel, st.Kernel) and any(each is wait for each in statements(kernel)):
            return min(filter(None, _groups(kernel.body)), default=0)
    return 0


def _groups(body: st.Stmt) -> Iterator[int]:
    """The copies between one end of a group and the next, as they stand in the text."""
    number = 0
    stack = [(body, 1)]
    while stack:
        stmt, times = stack.pop()
        match stmt:
            case simt.AsyncCopy():
                number += times
            case simt.CommitGroup(simt.Engine.CP_ASYNC):
                yield number
                number = 0
            case st.For(start=start, stop=stop):
                trips = (const_int(stop) or 0) - (const_int(start) or 0)
                inner = times * trips if not _commits(stmt) else 1
                stack.append((stmt.body, inner))
            case _:
                below = [child for child in stmt.children() if isinstance(child, st.Stmt)]
                stack += [(child, times) for child in reversed(below)]


def _commits(stmt: st.Stmt) -> bool:
    return any(isinstance(each, simt.CommitGroup) for each in statements(stmt))
