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
from tileworkbench.compiler.emit.c_like.text import wrapped
from tileworkbench.compiler.emit.hip.functions import function
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import add, cast, const, const_int, int_const, mul
from tileworkbench.compiler.ir.expr import Address, Expr, Load, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, substitute, variables, walk

FIRST = "wave_tx"  # the first thread of a wave, which is the same number for all of its threads
_MOST = 63  # that vmcnt can say

# M0 has the place of the first lane; who writes it has to wait a cycle, and four more behind a
# vector instruction that wrote what `from` is in ("Manually inserted wait states"). The compiler
# does neither for what stands in assembly.
_LOAD = """  asm volatile("s_mov_b32 m0, %0\\n\\ts_nop 3\\n\\tglobal_load_lds_dwordx4 {place}"
               : : "s"(to), {given} : "m0", "memory");"""

COPIES: dict[str, Helper] = {
    "lds_address": Helper(
        function(
            "unsigned lds_address(const void* at)",
            "  return (unsigned)(unsigned long long)"
            "(const __attribute__((address_space(3))) void*)at;",
        )
    ),
    "load_lds_16": Helper(
        function(
            "void load_lds_16(unsigned to, const void* from, unsigned more)",
            _LOAD.format(place="%2, %1", given='"s"(from), "v"(more)'),
        )
    ),
    "load_lds_16_from": Helper(
        function(
            "void load_lds_16_from(unsigned to, const void* from)",
            _LOAD.format(place="%1, off", given='"v"(from)'),
        )
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
    kernels = [each for each in statements(writer.program.body) if isinstance(each, st.Kernel)]
    kernel = next(each for each in kernels if any(inner is stmt for inner in statements(each)))
    thread = kernel.thread_vars[0]
    first = Var(FIRST, thread.dtype)
    writer.expressions.ranges.enter(first, int_const(0), int_const(prod(kernel.threads)), 1)
    places = tuple(substitute(index, {thread: first}) for index in stmt.dst.indices)
    to = f"{use('lds_address')}({address(Address(stmt.dst.buffer, places))})"
    parts = _split(stmt, kernel, writer)
    if parts is None:
        return f"{use('load_lds_16_from')}({to}, {address(stmt.src)});"
    base, more = parts
    size = stmt.src.buffer.dtype.bits // 8
    bytes_ = wrapped(writer.expressions(more))
    text = f"{use('load_lds_16')}({to}, {address(Address(stmt.src.buffer, (base,)))}, "
    return f"{text}{bytes_} * {size});" if size > 1 else f"{text}{bytes_});"


def _split(
    stmt: simt.AsyncCopy, kernel: st.Kernel, writer: KernelWriter
) -> tuple[Expr, Expr] | None:
    """The index of what is copied as a sum of what all threads share and what is a thread's own,
    None where the latter is not known to have 32 bits. What loops that are written out count is
    with the latter: no loop changes it.
    """
    (index,), ranges = stmt.src.indices, writer.expressions.ranges
    size = stmt.src.buffer.dtype.bits // 8
    scalars = (param.value for param in writer.program.params if isinstance(param.value, Var))
    shared = {*kernel.vars, *scalars}
    for loop in statements(kernel.body):
        if isinstance(loop, st.For) and shared.issuperset(variables(loop.start)):
            shared.add(loop.var)
    form = ranges.linear(index)
    base: Expr = const(form.constant, index.dtype)
    more: Expr = const(0, index.dtype)
    for atom, factor in form.terms:
        part = mul(cast(atom, index.dtype), const(factor, index.dtype))
        used = set(variables(atom))
        loaded = any(isinstance(node, Load) for node in walk(atom))
        if used <= shared and writer.unrolled.isdisjoint(used) and not loaded:
            base = add(base, part)
        else:
            more = add(more, part)
    bounds = ranges.bounds(more)
    if bounds.low is None or bounds.high is None or bounds.low < 0:
        return None
    return (base, more) if (bounds.high + 1) * size <= 1 << 31 else None


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
