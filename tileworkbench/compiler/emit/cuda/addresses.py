"""Addresses in shared memory, in bytes, as the instructions on tiles take them.

`&tile[i]` would be as right, but compilers keep the conversion of a generic pointer as one piece:
they compute it again for every instruction. A sum of integers they take apart.
"""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.statements import KernelWriter
from tileworkbench.compiler.emit.c_like.text import joined, wrapped
from tileworkbench.compiler.ir.expr import Address, Expr
from tileworkbench.compiler.ir.rewrite import variables

_NUMBER = 2  # the rank of what is a number in the end


def shared_address(writer: KernelWriter, address: Address) -> str:
    """The address of an element as a sum: first what no loop changes, then what running loops
    change, last what is a number once loops are unrolled.

    In this order compilers compute the first part once, the second once per iteration, and write
    the last into the instruction.
    """
    if address.buffer.dtype.bits % 8:  # two elements share a byte
        return f"{writer.expressions.use('smem_address')}({writer.expressions.address(address)})"
    terms = _terms(writer, address)
    return _sum(_base(writer, address), [(text, factor) for _, text, factor in terms])


def split_address(writer: KernelWriter, address: Address) -> tuple[str, str]:
    """The same in two parts, the second one a number once loops are unrolled."""
    terms = _terms(writer, address)
    first = [(text, factor) for rank, text, factor in terms if rank < _NUMBER]
    last = [(text, factor) for rank, text, factor in terms if rank == _NUMBER]
    return _sum(_base(writer, address), first), _sum("", last)


def _base(writer: KernelWriter, address: Address) -> str:
    known = writer.addresses.get(address.buffer)
    return known or f"{writer.expressions.use('smem_address')}({writer.named(address.buffer)})"


def _terms(writer: KernelWriter, address: Address) -> list[tuple[int, str, int]]:
    """The rank, the text and the factor in bytes of what is added to the base; a number has no
    text.
    """
    size = address.buffer.dtype.bits // 8
    form = writer.expressions.ranges.linear(address.indices[0])
    terms = [
        (_rank(writer, atom), wrapped(writer.expressions(atom), 13), factor * size)
        for atom, factor in sorted(form.terms, key=lambda term: _rank(writer, term[0]))
    ]
    return [*terms, (_NUMBER, "", form.constant * size)] if form.constant else terms


def _sum(base: str, terms: list[tuple[str, int]]) -> str:
    total = base
    for text, factor in terms:
        part = joined("mul", text, str(abs(factor))) if text else str(abs(factor))
        minus = "-" if factor < 0 else ""
        total = joined("sub" if minus else "add", total, part) if total else f"{minus}{part}"
    return total


def _rank(writer: KernelWriter, atom: Expr) -> int:
    """0 for what no loop changes, 1 for what a running loop does, 2 for a number in the end."""
    if writer.is_running(atom):
        return 1
    used = set(variables(atom))
    return _NUMBER if used and used <= writer.unrolled else 0
