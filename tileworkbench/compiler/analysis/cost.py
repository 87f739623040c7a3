"""How much work a kernel is: floating-point operations and bytes of global memory, with formulas.

Counted on the front end's program (stage TILE), whole tiles at a time, so ragged edges count as
full. A gemm is 2 m n k operations; an element-wise operation, an elementary function and a step of
a reduction are one each; casts, copies, indices and conditions are none. Of a branch the side with
more operations counts, a `while` loop counts as one iteration, and a loop whose bound depends on an
outer variable counts with the mean of its first and last trip count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field, replace

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.analysis.extremes import at_extreme
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import add, binary, const_int, int_const, sub
from tileworkbench.compiler.ir.expr import Binary, Buffer, Call, Const, Expr, Load, Region, Unary
from tileworkbench.compiler.ir.expr import Var as Variable
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, variables, walk
from tileworkbench.compiler.ir.types import INT64

_BY_THREADS = st.Store | st.Let | st.Atomic | simt.Exchange
_FREE_CALLS = ("isnan", "isinf")
_CHEAP_CALLS = ("fma", "max_nan", "min_nan", "floor", "ceil", "trunc", "round", "nearbyint", "sqrt")
_COUNTED = ("add", "sub", "mul", "div", "min", "max", "fmod", "pow", "floordiv", "floormod", "abs")


@dataclass(frozen=True, slots=True)
class Count:
    """A quantity with the formula it was computed by, in the kernel's symbols.

    `value` is NaN when the formula has a symbol.
    """

    value: float
    formula: str


@dataclass(frozen=True, slots=True)
class TensorTraffic:
    """Bytes of one tensor: the part that is touched, once (compulsory), and all that is moved."""

    name: str
    read: Count
    written: Count
    moved: Count


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one launch of every grid of a program.

    `flops` includes `transcendentals`, the calls of elementary functions. `bytes_` is the
    compulsory traffic of all tensors, `moved_bytes` what the copies and accesses as written move.
    """

    flops: Count
    transcendentals: Count
    bytes_: Count
    moved_bytes: Count
    tensors: tuple[TensorTraffic, ...]

    @property
    def intensity(self) -> float:
        """Operations per byte of compulsory traffic."""
        return self.flops.value / self.bytes_.value if self.bytes_.value else math.inf


Factor = tuple[float, str]


@dataclass(slots=True)
class _Sum:
    """A sum of products; products that differ only in their number are joined."""

    terms: dict[tuple[str, ...], list[float]] = field(default_factory=dict)

    def add(self, number: float, factors: list[Factor]) -> None:
        shown = tuple(text for value, text in factors if value != 1)
        product = math.prod(value for value, _ in factors)
        entry = self.terms.setdefault(shown, [0.0, product])
        entry[0] += number

    def extend(self, other: _Sum) -> None:
        for shown, (number, product) in other.terms.items():
            entry = self.terms.setdefault(shown, [0.0, product])
            entry[0] += number

    @property
    def value(self) -> float:
        return sum(number * product for number, product in self.terms.values() if number)

    def count(self) -> Count:
        texts = []
        for shown, (number, _) in self.terms.items():
            if number:
                parts = [f"{number:g}"] if number != 1 or not shown else []
                texts.append("*".join([*parts, *shown]))
        return Count(self.value, " + ".join(texts) or "0")


@dataclass(frozen=True, slots=True)
class SiteWork:
    """What the statements of one operation of the user's do in one launch: floating-point
    operations, and bytes moved to or from global and shared memory. NaN for symbolic shapes.
    """

    flops: float
    global_bytes: float
    shared_bytes: float


def count_work(program: Program) -> Work:
    """The operations and the traffic of `program`, a program of stage TILE."""
    counter = _Counter(_folded(program))
    counter.visit(counter.program.body, [])
    return counter.work()


def count_sites(program: Program) -> dict[int, SiteWork]:
    """The same by the site of each statement; of a branch both sides count."""
    counter = _Counter(_folded(program))
    counter.visit(counter.program.body, [])
    sites = {}
    for site, tally in counter.sites.items():
        moved = sum(total.value for total in tally.moved.values())
        sites[site] = SiteWork(tally.flops.value, moved, tally.shared.value)
    return sites


class _Tally:
    """The counts so far."""

    def __init__(self) -> None:
        self.flops = _Sum()
        self.transcendentals = _Sum()
        self.shared = _Sum()
        self.moved: dict[Buffer, _Sum] = {}

    def extend(self, other: _Tally) -> None:
        self.flops.extend(other.flops)
        self.transcendentals.extend(other.transcendentals)
        self.shared.extend(other.shared)
        for buffer, total in other.moved.items():
            self.moved.setdefault(buffer, _Sum()).extend(total)


class _Counter:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.ranges = Ranges(program)
        self.tally = _Tally()
        self.sites: dict[int, _Tally] = {}
        self.box: dict[Variable, Expr] = {}
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.touched: dict[tuple[Buffer, bool], list[tuple[Expr, ...]]] = {}
        self.uniformity: Uniformity | None = None  # of a kernel that names its threads
        self.threads: list[Factor] = []

    # Walking ------------------------------------------------------------------------------------

    def visit(self, stmt: st.Stmt, loops: list[Factor]) -> None:
        """Count `stmt`, executed as often as the product of `loops`."""
        match stmt:
            case st.Seq(stmts):
                for child in stmts:
                    self.visit(child, loops)
            case st.Kernel(variables, extents, _, body) | tile.Parallel(variables, extents, body):
                zero = int_const(0)
                inner = [
                    self.enter(var, zero, extent, zero)
                    for var, extent in zip(variables, extents, strict=True)
                ]
                if isinstance(stmt, st.Kernel):
                    self.enter_threads(stmt)
                self.visit(body, [*inner, *loops])
            case st.For(var, start, stop, step, _, body):
                self.visit(body, [self.enter(var, start, stop, step), *loops])
            case tile.Pipelined(var, start, stop, _, body):
                self.visit(body, [self.enter(var, start, stop, int_const(0)), *loops])
            case st.While(_, body) | simt.Role(_, _, body) | simt.Start(body):
                self.visit(body, loops)
            case st.If(cond, then, orelse):
                self.expression(cond, loops, operations=False)
                self.branch(then, orelse, loops)
            case _:
                outer, self.tally = self.tally, _Tally()
                self.operator(stmt, loops)
                self.sites.setdefault(stmt.site, _Tally()).extend(self.tally)
                outer.extend(self.tally)
                self.tally = outer

    def enter_threads(self, kernel: st.Kernel) -> None:
        """Declare the thread indices of a kernel that names them."""
        self.uniformity, self.threads = None, []
        if kernel.thread_vars:
            self.uniformity = Uniformity(kernel)
            zero = int_const(0)
            self.threads = [
                self.enter(var, zero, int_const(extent), zero)
                for var, extent in zip(kernel.thread_vars, kernel.threads, strict=True)
            ]

    def by_threads(self, stmt: st.Stmt, loops: list[Factor]) -> list[Factor]:
        """How often `stmt` is executed: by every thread, unless all would do the same."""
        if self.uniformity is None or not isinstance(stmt, _BY_THREADS):
            return loops
        parts = [child for child in stmt.children() if not isinstance(child, Buffer)]
        alike = not isinstance(stmt, st.Atomic) and not any(map(self.uniformity.varies, parts))
        return loops if alike else [*self.threads, *loops]

    def branch(self, then: st.Stmt, orelse: st.Stmt | None, loops: list[Factor]) -> None:
        outer, tallies = self.tally, []
        for side in (then, orelse):
            self.tally = _Tally()
            if side is not None:
                self.visit(side, loops)
            tallies.append(self.tally)
        self.tally = outer
        more = tallies[1].flops.value > tallies[0].flops.value
        self.tally.extend(tallies[1] if more else tallies[0])

    def enter(self, var: Variable, start: Expr, stop: Expr, step: Expr) -> Factor:
        """Declare a loop variable and return its trip count. A step of 0 stands for 1."""
        trips = sub(stop, start)
        stride = min(abs(const_int(step) or 1), int(INT64.max_value))
        if (const_int(step) or 1) < 0:
            trips = sub(start, stop)
        if stride > 1:
            trips = binary("floordiv", add(trips, int_const(stride - 1)), int_const(stride))
        if const_int(start) == 0 and stride == 1:
            self.box[var] = stop
        counts = [self.number(trips, env) for env in (self.first, self.last)]
        low, high = (self.number(end, self.first) for end in (start, sub(stop, int_const(1))))
        if not math.isnan(low) and not math.isnan(high):
            self.first[var.name], self.last[var.name] = int(low), int(high)
        return max(sum(counts) / 2, 0.0), formula(trips)

    def remember(self, var: Variable, value: Expr) -> None:
        """A bound of loops may have a name, such as the last key that a block of queries sees."""
        for env in (self.first, self.last):
            number = self.number(value, env)
            if var.dtype.is_int and not math.isnan(number):
                env[var.name] = int(number)

    def number(self, value: Expr, env: dict[str, int]) -> float:
        try:
            return float(evaluate(value, env))
        except (KeyError, OverflowError, ValueError, ZeroDivisionError):
            return math.nan

    def factor(self, value: Expr) -> Factor:
        return self.number(value, self.last), formula(value)

    # Statements ---------------------------------------------------------------------------------

    def operator(self, stmt: st.Stmt, loops: list[Factor]) -> None:
        loops = self.by_threads(stmt, loops)
        match stmt:
            case tile.Gemm(a, _, c):
                k = a.extents[-2 if stmt.transpose_a else -1]
                sizes = [self.factor(extent) for extent in (*c.extents[-2:], k)]
                self.tally.flops.add(2, [*sizes, *loops])
                for region in (a, stmt.b, c):
                    self.region(region, loops, region is c)
            case tile.Copy(src, dst):
                nearer = dst if src.buffer.scope == "global" else src
                self.region(src, loops, False, nearer)
                self.region(dst, loops, True, nearer)
            case tile.Fill(dst):
                self.region(dst, loops, True)
            case tile.Reduce(_, src):
                self.tally.flops.add(1, [*map(self.factor, src.shape), *loops])
            case tile.Scan(_, src, dst):
                self.tally.flops.add(1, [*map(self.factor, src.extents), *loops])
                self.region(src, loops, False)
                self.region(dst, loops, True)
            case st.Store(buffer, indices, value):
                self.expression(value, loops)
                for index in indices:
                    self.expression(index, loops, operations=False)
                self.element(buffer, indices, loops, True)
            case st.Atomic(kind, buffer, indices, value):
                self.expression(value, loops)
                for index in indices:
                    self.expression(index, loops, operations=False)
                self.tally.flops.add(kind not in (st.AtomicKind.LOAD, st.AtomicKind.STORE), loops)
                for write in (False, True):
                    self.element(buffer, indices, loops, write)
            case st.Let(var, value):
                self.expression(value, loops, operations=value.dtype.is_float or has_loads(value))
                self.remember(var, value)
            case simt.Exchange(_, kind, args):
                self.tally.flops.add(kind.startswith("warp_"), loops)
                for value in args:
                    self.expression(
                        value, loops, operations=value.dtype.is_float or has_loads(value)
                    )
            case st.Print(_, values):
                for value in values:
                    self.expression(value, loops, operations=False)

    def expression(self, value: Expr, loops: list[Factor], operations: bool = True) -> None:
        """Count the operations and the loads of an expression, each distinct one once."""
        indices: set[Expr] = set()
        for node in _distinct(value):
            if isinstance(node, Load):
                self.element(node.buffer, node.indices, loops, False)
                indices.update(part for index in node.indices for part in _distinct(index))
        for node in _distinct(value) if operations else ():
            if node in indices or not (node.dtype.is_float or has_loads(node)):
                continue  # arithmetic on indices is no work
            if isinstance(node, Binary | Unary) and node.op in _COUNTED:
                self.tally.flops.add(1, loops)
            elif isinstance(node, Call) and node.name not in _FREE_CALLS:
                self.tally.flops.add(2 if node.name == "fma" else 1, loops)
                if node.name not in _CHEAP_CALLS:
                    self.tally.transcendentals.add(1, loops)

    # Memory -------------------------------------------------------------------------------------

    def element(
        self, buffer: Buffer, indices: tuple[Expr, ...], loops: list[Factor], write: bool
    ) -> None:
        if buffer.scope == "shared":
            self.tally.shared.add(buffer.dtype.bits / 8, loops)
        if buffer.scope == "global":
            self.move(buffer, loops)
            extents = tuple(int_const(1) for _ in indices)
            self.touch(Region(buffer, indices, extents), write)

    def region(
        self, region: Region, loops: list[Factor], write: bool, size: Region | None = None
    ) -> None:
        """Count a region; `size` is the one that says how many elements are moved."""
        if region.buffer.scope == "shared":
            sizes = [self.factor(extent) for extent in region.extents]
            self.tally.shared.add(region.buffer.dtype.bits / 8, [*sizes, *loops])
        if region.buffer.scope == "global":
            sizes = [self.factor(extent) for extent in (size or region).extents]
            self.move(region.buffer, [*sizes, *loops])
            self.touch(region, write)

    def move(self, buffer: Buffer, factors: list[Factor]) -> None:
        total = self.tally.moved.setdefault(buffer, _Sum())
        total.add(buffer.dtype.bits / 8, factors)

    def touch(self, region: Region, write: bool) -> None:
        """Remember the part of the tensor that all executions of the region cover together."""
        extents = tuple(
            self.covered(low, extent, bound)
            for low, extent, bound in zip(
                region.mins, region.extents, region.buffer.shape, strict=True
            )
        )
        self.touched.setdefault((region.buffer, write), []).append(extents)

    def covered(self, low: Expr, extent: Expr, bound: Expr) -> Expr:
        """How many indices lie between the least and the greatest one touched."""
        linear = self.ranges.linear(low)
        if any(self.hides_loops(atom) for atom, _ in linear.terms):
            return bound
        ends = [at_extreme(linear, self.box, highest, low.dtype) for highest in (False, True)]
        if ends[0] is None or ends[1] is None or any(has_loads(end) for end in ends if end):
            return bound
        size = add(sub(ends[1], ends[0]), extent)
        return bound if self.ranges.proves(binary("ge", size, bound)) else size

    def hides_loops(self, atom: Expr) -> bool:
        """Whether a variable of loops occurs inside a quotient, or inside another term that is no
        sum.
        """
        if atom in self.box:
            return False
        values = {param.value for param in self.program.params} | set(self.program.symbols)
        return any(var not in values and var not in self.box for var in variables(atom))

    def footprint(self, buffer: Buffer, write: bool) -> _Sum:
        total = _Sum()
        shapes = self.touched.get((buffer, write), [])
        if shapes:
            whole = [extents for extents in shapes if extents == buffer.shape]
            largest = max(
                shapes, key=lambda parts: math.prod(self.factor(part)[0] for part in parts)
            )
            extents = whole[0] if whole else largest
            total.add(buffer.dtype.bits / 8, [self.factor(extent) for extent in extents])
        return total

    def work(self) -> Work:
        compulsory, moved, tensors = _Sum(), _Sum(), []
        for param in self.program.params:
            buffer = param.value
            if not isinstance(buffer, Buffer):
                continue
            read, written = self.footprint(buffer, False), self.footprint(buffer, True)
            traffic = self.tally.moved.get(buffer, _Sum())
            for total, parts in ((compulsory, (read, written)), (moved, (traffic,))):
                for part in parts:
                    total.extend(part)
            tensors.append(
                TensorTraffic(buffer.name, read.count(), written.count(), traffic.count())
            )
        tally = self.tally
        return Work(
            tally.flops.count(),
            tally.transcendentals.count(),
            compulsory.count(),
            moved.count(),
            tuple(tensors),
        )


def formula(value: Expr) -> str:
    """An extent as a factor of a product: a quotient rounded up reads `ceildiv(n, 128)`."""
    if isinstance(value, Binary) and value.op == "floordiv" and isinstance(value.a, Binary):
        total, divisor = value.a, const_int(value.b)
        if divisor and total.op == "add" and const_int(total.b) == divisor - 1:
            return f"ceildiv({print_expr(total.a)}, {divisor})"
    text = print_expr(value)
    return text if isinstance(value, Const | Variable) else f"({text})"


def _distinct(value: Expr) -> Iterator[Expr]:
    seen: set[object] = set()
    for node in walk(value):
        if isinstance(node, Expr) and node not in seen:
            seen.add(node)
            yield node


def _folded(program: Program) -> Program:
    """`program` with operations on literals computed, as after the substitution of a symbol."""

    def fold(node: object) -> object:
        if isinstance(node, Binary) and isinstance(node.a, Const) and isinstance(node.b, Const):
            try:
                return binary(node.op, node.a, node.b)
            except (TypeError, ValueError, ZeroDivisionError):
                return node
        return node

    folding = Rewriter(fold)
    params = tuple(replace(param, value=folding(param.value)) for param in program.params)
    return replace(program, params=params, body=folding(program.body))
