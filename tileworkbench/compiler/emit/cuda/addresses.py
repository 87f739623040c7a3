"""Addresses in shared memory, in bytes, as the instructions on tiles take them.

`&tile[i]` would be as right, but compilers keep the conversion of a generic pointer as one piece:
they compute it again for every instruction. A sum of integers they take apart.
"""

from __future__ import annotations

from math import prod

from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.emit.c_like.statements import KernelWriter
from tileworkbench.compiler.emit.c_like.text import joined, wrapped
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int, int_const
from tileworkbench.compiler.ir.expr import Address, Binary, Buffer, Expr, Var
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.rewrite import statements, substitute, variables
from tileworkbench.compiler.ir.simt import LoadMatrix
from tileworkbench.compiler.ir.stmt import For, LoopKind, Stmt

_OPAQUE = 'unsigned {name} = {text}; asm volatile("" : "+r"({name}));'
_KEPT = 6  # rows
# Of every shared buffer, in bytes.
_ALIGNMENT = 128
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


def row_address(writer: KernelWriter, address: Address) -> str:
    """The address of a row of 16 bytes, as ldmatrix takes it: ``(rows ^ step) + number``.

    A swizzled row lies at (r ^ c) * 16 of a multiple of 128 bytes, where `r` is of the thread and
    `c` of the step along K, in other bits than the rest. So the steps are one exclusive or each of
    one sum, which has a name in front of the loops. It is opaque there: compilers make such sums
    again in each iteration, though they have the registers.
    """
    split = _swizzled(writer, address) if _has_many_rows(writer) else None
    if split is None:
        return shared_address(writer, address)
    rows, step = split.row, split.step
    fixed = [(text, factor) for rank, text, factor in split.others if rank == 0]
    running = [(text, factor) for rank, text, factor in split.others if rank == 1]
    numbers = [(text, factor) for rank, text, factor in split.others if rank == _NUMBER]
    base = _sum(_base(writer, address), [*fixed, (rows, split.unit)])
    name = f"rows_of_{writer.named(address.buffer)}"
    total = _sum(writer.front.hoisted(base, split.used, name, _OPAQUE), running)
    if step:
        total = f"({wrapped(total)} ^ {wrapped(_sum('', step))})"
    return _sum(total, numbers)


def _has_many_rows(writer: KernelWriter) -> bool:
    """Whether the loop around reads more swizzled rows than compilers keep sums for in registers
    (seen in SASS: they keep six, and the sums alone are shorter then).
    """
    front = writer.front
    if front.loop is not None and "rows" not in front.facts:
        front.facts["rows"] = _count_rows(front.loop.body, writer)
    return front.loop is not None and front.facts["rows"] > _KEPT


def _count_rows(body: Stmt, writer: KernelWriter) -> int:
    """How many different swizzled rows of a thread `body` reads."""
    extents: dict[Expr, int] = {}
    rows: dict[tuple[Buffer, str], int] = {}
    for stmt in statements(body):
        if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED:
            extents[stmt.var] = const_int(stmt.stop) or 1
    for stmt in statements(body):
        if isinstance(stmt, LoadMatrix):
            form = writer.expressions.ranges.linear(stmt.src.indices[0])
            for atom in (each for each, _ in form.terms if _is_xor(each)):
                counted = [var for var in variables(atom) if var in extents]
                # Loops of the same extent count the same rows.
                alike = substitute(atom, {var: int_const(extents[var]) for var in counted})
                key = stmt.src.buffer, print_expr(alike)
                rows[key] = prod(extents[var] for var in counted)
    return sum(rows.values())


@dataclass(frozen=True, slots=True)
class _Swizzled:
    """A place as a row that is swizzled by `unit` bytes: the text of the thread's part, the terms
    of the step along K (in bytes), and all else with its rank; `used` names what is fixed.
    """

    row: str
    unit: int
    step: list[tuple[str, int]]
    others: list[tuple[int, str, int]]
    used: frozenset[Var | Buffer]


def _swizzled(writer: KernelWriter, address: Address) -> _Swizzled | None:
    """`address` in that form, None where it has another one."""
    ranges, size = writer.expressions.ranges, address.buffer.dtype.bits // 8
    form = ranges.linear(address.indices[0])
    mixed = [(atom, factor * size) for atom, factor in form.terms if _is_xor(atom)]
    if len(mixed) != 1 or address.buffer in writer.addresses:
        return None
    atom, unit = mixed[0]
    row = _row_and_step(writer, atom)
    if row is None or unit <= 0 or unit & (unit - 1):
        return None
    thread, step, span = row
    others = [(each, factor) for each, factor in form.terms if each is not atom]
    plain = Linear(tuple(others), form.constant)
    if span * unit > _ALIGNMENT or not ranges.linear_divides(max(span * unit // size, 1), plain):
        return None
    texts = [
        (_rank(writer, each), wrapped(writer.expressions(each), 13), factor * size)
        for each, factor in others
    ]
    if form.constant:
        texts.append((_NUMBER, "", form.constant * size))
    fixed = [each for each, _ in others if _rank(writer, each) == 0]
    used = frozenset({*variables(atom), *(var for each in fixed for var in variables(each))})
    steps = [(text, factor * unit) for text, factor in step]
    numbers = frozenset(writer.unrolled)
    return _Swizzled(thread, unit, steps, texts, (used - numbers) | {address.buffer})


def _is_xor(atom: Expr) -> bool:
    return isinstance(atom, Binary) and atom.op == "xor"


def _row_and_step(
    writer: KernelWriter, atom: Expr
) -> tuple[str, list[tuple[str, int]], int] | None:
    """``p ^ (c + t)`` as the text of ``p ^ t``, the terms of `c`, which loops that are written out
    count, and the power of two that all are below; None where `c` and `t` may share bits.
    """
    assert isinstance(atom, Binary)
    ranges = writer.expressions.ranges
    fixed, mixed = sorted((atom.a, atom.b), key=lambda part: _counts(writer, part))
    if _counts(writer, fixed) or writer.is_running(atom):
        return None
    form = ranges.linear(mixed)
    step = [term for term in form.terms if _rank(writer, term[0]) == _NUMBER]
    own = [term for term in form.terms if _rank(writer, term[0]) != _NUMBER]
    if any(_counts(writer, each) for each, _ in own):
        return None
    c, t = Linear(tuple(step), form.constant), Linear(tuple(own), 0)
    ends = [ranges.bounds(fixed), ranges.linear_bounds(c), ranges.linear_bounds(t)]
    if any(each.low is None or each.high is None or each.low < 0 for each in ends):
        return None
    most = [each.high or 0 for each in ends]
    unit = 1 << most[2].bit_length()
    if not ranges.linear_divides(unit, c):
        return None
    span = 1 << max(most[0], most[1] // unit * unit + most[2]).bit_length()
    thread = _sum("", [(wrapped(writer.expressions(each), 13), f) for each, f in own]) or "0"
    text = f"({wrapped(writer.expressions(fixed), 9)} ^ {wrapped(thread, 9)})"
    steps = [(wrapped(writer.expressions(each), 13), factor) for each, factor in step]
    if form.constant:
        steps.append(("", form.constant))
    return text, steps, span


def _counts(writer: KernelWriter, part: Expr) -> bool:
    """Whether `part` has a variable that a loop counts that is written out."""
    return not writer.unrolled.isdisjoint(variables(part))


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
        part = text or str(abs(factor))
        if text and abs(factor) != 1:
            part = joined("mul", text, str(abs(factor)))
        minus = "-" if factor < 0 else ""
        total = joined("sub" if minus else "add", total, part) if total else f"{minus}{part}"
    return total


def _rank(writer: KernelWriter, atom: Expr) -> int:
    """0 for what no loop changes, 1 for what a running loop does, 2 for a number in the end."""
    if writer.is_running(atom):
        return 1
    used = set(variables(atom))
    return _NUMBER if used and used <= writer.unrolled else 0
