"""Addresses in shared memory, in bytes, as the instructions on tiles take them.

`&tile[i]` would be as right, but compilers keep the conversion of a generic pointer as one piece:
they compute it again for every instruction. A sum of integers they take apart.
"""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.statements import KernelWriter
from tileworkbench.compiler.emit.c_like.text import joined, wrapped
from tileworkbench.compiler.ir.expr import Address, Expr
from tileworkbench.compiler.ir.rewrite import variables


def shared_address(writer: KernelWriter, address: Address) -> str:
    """The address of an element as a sum: first what no loop changes, then what running loops
    change, last what is a number once loops are unrolled.

    In this order compilers compute the first part once, the second once per iteration, and write
    the last into the instruction.
    """
    base = f"{writer.expressions.use('smem_address')}({writer.named(address.buffer)})"
    size, rest = divmod(address.buffer.dtype.bits, 8)
    if rest:  # two elements share a byte
        return f"{writer.expressions.use('smem_address')}({writer.expressions.address(address)})"
    form = writer.expressions.ranges.linear(address.indices[0])
    text: str = base
    for atom, factor in sorted(form.terms, key=lambda term: _rank(writer, term[0])):
        scaled = joined("mul", wrapped(writer.expressions(atom), 13), str(abs(factor * size)))
        text = joined("add" if factor > 0 else "sub", text, scaled)
    offset = form.constant * size
    return joined("add" if offset > 0 else "sub", text, str(abs(offset))) if offset else text


def _rank(writer: KernelWriter, atom: Expr) -> int:
    """0 for what no loop changes, 1 for what a running loop does, 2 for a number in the end."""
    if writer.is_running(atom):
        return 1
    used = set(variables(atom))
    return 2 if used and used <= writer.unrolled else 0
