"""Copies between shared memory and fragments by matrix instructions: ldmatrix and stmatrix.

They move matrices of rows of 16 bytes, which lie in registers as operands and results of tensor
cores do (`MatrixMove.fragment`). A copy of 16-bit elements whose loop has the pattern of such a
matrix, or of its transpose, in each of its tiles takes as many of them at once as it can. Results
in float32 that are stored as 16 bits are rounded first, two at a time, into registers of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, cast, const_int, int_const, mul
from tileworkbench.compiler.ir.expr import Address, Buffer, Cast, Expr, Load, Ramp, Region, Var
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.rewrite import substitute
from tileworkbench.compiler.ir.simt import LoadMatrix, StoreMatrix
from tileworkbench.compiler.ir.stmt import For, LoopKind, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Copy
from tileworkbench.compiler.layout.digits import Digit, DigitSum, NotDigitsError, Term
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.index import Index
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.shared.regions import wide_dims
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.formulas import sum_expr
from tileworkbench.compiler.lower.threads.iterations import Iterations
from tileworkbench.compiler.lower.threads.nests import Nest
from tileworkbench.compiler.lower.threads.partition import Partition, halved
from tileworkbench.compiler.lower.threads.registers import register_map

_Element = tuple[Buffer, tuple[Expr, ...]]


@dataclass(frozen=True, slots=True)
class _Pattern:
    """The dimensions of the loop that are rows and columns of the matrices of `edge` x `edge`
    elements on `lanes` lanes, and the step that walks the columns of a register.
    """

    row: int
    column: int
    pair: int
    edge: int
    lanes: int


def lower(op: Copy, nest: Nest, shared: Partition, context: ThreadContext) -> Stmt | None:
    """The copy as matrix instructions, None where it does not have the pattern."""
    loads = op.src.buffer.scope == "shared" and op.dst.buffer.scope == "local.fragment"
    stores = op.src.buffer.scope == "local.fragment" and op.dst.buffer.scope == "shared"
    move = context.target.machine.move(loads)
    if not (loads or stores) or move is None:
        return None
    memory, registers = (op.src, op.dst) if loads else (op.dst, op.src)
    bits = memory.buffer.dtype.bits
    rounded = stores and _is_rounded(op, context)
    if not rounded and op.src.buffer.dtype != op.dst.buffer.dtype:
        return None
    if bits != move.transposed_bits:
        return None
    matrix = move.fragment(bits)
    if matrix is None or len(nest.op.vars) != 2:
        return None
    if memory.buffer in context.peers:
        return None  # these instructions reach the block's own memory only
    if not _rows_are_whole(memory, matrix.shape[1], context):
        return None
    pattern = _pattern(shared, matrix)
    partial = shared.guards or shared.bounded or shared.base
    if pattern is None or partial or context.threads % matrix.threads:
        return None
    if context.start % matrix.threads:
        return None
    if stores and shared.sums[-1].terms:
        return None  # copies of the elements would be stored by several warps
    return _emit(op, nest, shared, pattern, registers, context)


def _is_rounded(op: Copy, context: ThreadContext) -> bool:
    """Whether a copy rounds to 16 bits, which the machine does in pairs."""
    narrow = str(op.dst.buffer.dtype) in context.target.machine.pairs
    return narrow and op.src.buffer.dtype == "float32"


def _store(op: Copy, place: Address, first: Address, count: int, transposed: bool,
           context: ThreadContext) -> Stmt:  # fmt: skip
    """Store `count` matrices, whose elements are in registers from `first` on."""
    dtype = op.dst.buffer.dtype
    if op.src.buffer.dtype == dtype:
        return StoreMatrix(place, first, count, transposed, site=op.site)
    halves = context.temporary(f"{op.dst.buffer.name}_pairs", dtype, 2 * count)
    pair = context.loop_var("pair")
    at = mul(pair, int_const(2))
    source = Ramp(add(first.indices[0], at), int_const(1), 2)
    value = cast(Load(first.buffer, (source,)), dtype.with_lanes(2))
    rounded = Store(halves, (Ramp(at, int_const(1), 2),), value, site=op.site)
    stop = int_const(count)
    loop = For(pair, int_const(0), stop, int_const(1), LoopKind.UNROLLED, rounded, site=op.site)
    here = Address(halves, (int_const(0),))
    return seq([loop, StoreMatrix(place, here, count, transposed, site=op.site)])


def _rows_are_whole(memory: Region, count: int, context: ThreadContext) -> bool:
    """Whether `count` neighbours of the last index, from a multiple of it on, are in one piece."""
    if wide_dims(memory)[-1:] != [len(memory.extents) - 1]:
        return False
    place = memory.buffer.layout
    if isinstance(place, Layout):
        whole = place.vector_width(count) == count
    else:
        whole = all((const_int(extent) or 0) % count == 0 for extent in memory.buffer.shape[-1:])
    return whole and context.ranges.divides(count, memory.mins[-1])


def _pattern(shared: Partition, matrix: Fragment) -> _Pattern | None:
    """The pattern of one register of `matrix` per row and pair of columns, if the loop has it."""
    thread, lanes = len(shared.steps), matrix.threads
    registers = register_map(matrix)
    # How rows and columns follow the lane, as terms of the loop's thread.
    rows, pairs = (
        Term((Digit(thread, digit.divisor, digit.extent),), term.stride)
        for (term,) in registers.lanes.digits or ()
        for digit in term.digits
    )
    for row, column in ((0, 1), (1, 0)):
        pair = [
            number
            for number, step in enumerate(shared.steps)
            if (step.dim, step.divisor, step.extent) == (column, 1, registers.run)
        ]
        if not pair:
            continue
        pattern = _Pattern(row, column, pair[0], matrix.shape[0], lanes)
        across, along = (_terms(shared.sums[d], thread, lanes) for d in (row, column))
        if rows not in across or pairs not in along:
            continue
        unit = Term((Digit(pair[0], 1, registers.run),), 1)
        rest = [t for t in across if t != rows] + [t for t in along if t not in (pairs, unit)]
        if all(_is_outer(term, thread, pattern) for term in rest):
            return pattern
    return None


def _terms(total: DigitSum, thread: int, lanes: int) -> list[Term]:
    """The terms of a sum, those of the thread cut where a warp of `lanes` threads begins."""
    terms: list[Term] = []
    for term in total.terms:
        digit = term.digits[0]
        cut = lanes // digit.divisor if digit.divisor < lanes else 0
        if len(term.digits) > 1 or digit.dim != thread or not cut or digit.extent <= cut:
            terms.append(term)
            continue
        terms.append(Term((Digit(thread, digit.divisor, cut),), term.stride))
        terms.append(Term((Digit(thread, lanes, digit.extent // cut),), term.stride * cut))
    return terms


def _is_outer(term: Term, thread: int, pattern: _Pattern) -> bool:
    """Whether a term moves whole matrices: with a step or with the warp."""
    return term.stride % pattern.edge == 0 and all(
        digit.dim != thread or digit.divisor >= pattern.lanes for digit in term.digits
    )


def _emit(
    op: Copy,
    nest: Nest,
    shared: Partition,
    pattern: _Pattern,
    registers: Region,
    context: ThreadContext,
) -> Stmt | None:
    iterations = Iterations.of(nest, shared, None, 1, context)
    fragment, memory = _sides(nest.op.body)
    access = iterations.accesses.get(fragment)
    slot = None if access is None or access.others else iterations.slot_digits(access)
    if slot is None:
        return None
    larger = _larger_step(slot[1], pattern, shared)
    if larger is not None:
        pair = pattern.pair + (pattern.pair > larger)
        moved = replace(pattern, pair=pair)
        return _emit(op, nest, halved(shared, larger), moved, registers, context)
    joined = _joined_steps(slot[1], pattern, shared)
    if joined is None:
        return None
    thread = len(shared.steps)
    variables = list(Index.variables(shared.box))
    lane = variables[thread]
    for number, step in enumerate(joined):
        variables[step] = lane // (pattern.edge << number) % 2
    inside = (lane % pattern.edge, lane * 0)  # of the matrix as it is stored
    values = list(iterations.values)
    for step in (*joined, pattern.pair):
        values[step] = int_const(0)
    point = [*values, context.thread]
    position: dict[Var, Expr] = {}
    try:
        for d, var in enumerate(nest.op.vars):
            index = _matrix_start(shared.sums[d], thread, variables, pattern) + inside[d]
            position[var] = sum_expr(shared.box, index.sum, point)
    except NotDigitsError:
        return None
    place = Address(memory[0], tuple(substitute(index, position) for index in memory[1]))
    first = Address(context.registers(registers.buffer), (sum_expr(slot[0], slot[1], point),))
    count, transposed = 1 << len(joined), pattern.row == 1
    if op.dst.buffer.scope == "local.fragment":
        body: Stmt = LoadMatrix(first, place, count, transposed, site=op.site)
    else:
        body = _store(op, place, first, count, transposed, context)
    for var, extent in reversed(iterations.loops):
        if var in values:
            body = counting(var, extent, body, op.site, kind=LoopKind.UNROLLED)
    return body


def _larger_step(slot: DigitSum, pattern: _Pattern, shared: Partition) -> int | None:
    """A step of more than 2 matrices next to each other, of which an instruction can take 2."""
    for stride in (2, 4):
        steps = [t.digits[0].dim for t in slot.terms if t.stride == stride]
        step = next((s for s in steps if s < len(shared.steps) and s != pattern.pair), None)
        if step is None or shared.steps[step].extent % 2:
            return None
        if shared.steps[step].extent > 2:
            return step
    return None


def _joined_steps(slot: DigitSum, pattern: _Pattern, shared: Partition) -> list[int] | None:
    """The steps of extent 2 (at most two) that walk registers next to each other, None unless the
    pair of columns is one register.
    """
    strides: dict[int, int] = {}
    for term in slot.terms:
        digit = term.digits[0]
        if len(term.digits) > 1 or digit.divisor > 1 or digit.dim >= len(shared.steps):
            return None
        strides[digit.dim] = term.stride
    if strides.pop(pattern.pair, 0) != 1:
        return None
    steps: list[int] = []
    for stride in (2, 4):
        steps += [s for s, at in strides.items() if at == stride and shared.steps[s].extent == 2]
    while True:  # registers of one instruction start at a multiple of their number
        size = 2 << len(steps)
        others = [at for step, at in strides.items() if step not in steps]
        if all(at % size == 0 for at in (*others, slot.constant)):
            return steps if len(steps) < 2 or strides[steps[0]] == 2 else None
        if not steps:
            return None
        steps.pop()


def _matrix_start(total: DigitSum, thread: int, variables: Sequence[Any], pattern: _Pattern) -> Any:
    """An index of the matrix's first element: steps and the warp, without the thread's own part."""
    result: Any = variables[thread] * 0 + total.constant
    for term in _terms(total, thread, pattern.lanes):
        if not _is_outer(term, thread, pattern):
            continue
        factor: Any = None
        for digit in term.digits:
            value = variables[digit.dim] // digit.divisor
            if digit.dim == thread:
                value = value % digit.extent
            factor = value if factor is None else factor ^ value
        result = result + factor * term.stride
    return result


def _sides(body: Stmt) -> tuple[_Element, _Element]:
    """The elements of the fragment and of shared memory that an iteration moves."""
    value = body.value if isinstance(body, Store) else None
    value = value.value if isinstance(value, Cast) else value
    if not isinstance(body, Store) or not isinstance(value, Load):
        raise TypeError("a copy is a store of a load")
    target, source = (body.buffer, body.indices), (value.buffer, value.indices)
    return (target, source) if body.buffer.scope == "local.fragment" else (source, target)
