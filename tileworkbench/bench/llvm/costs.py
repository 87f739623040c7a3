"""What an instruction of LLVM IR costs a core: time of its ports, and until its result is there.

Times are those that were measured of such operations (`operation_rates.py`). Multiplications and
additions have ports of their own, half of those for arithmetic, as on most processors: two fused
multiply-adds at once are the peak. How much of them other operations take was measured beside sums
and products; rounding is done where conversions are.
What LLVM makes no instruction of is free: parts of vectors that are whole registers, elements that
a load broadcasts, products that become part of a sum, addresses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping

from tileworkbench.bench.llvm.core import Core
from tileworkbench.bench.llvm.instructions import Function, Instruction, Kind
from tileworkbench.bench.operation_rates import (
    ACCESS,
    ACCUMULATED,
    CHAIN,
    COMPARISON,
    CONVERSION,
    DIVISION,
    EXTREMUM,
    GATHER,
    INTEGER,
    INTEGER_PRODUCT,
    LARGER,
    LOAD,
    MULTIPLIED,
    NARROWING,
    PERMUTATION,
    SHIFT,
    SHUFFLE,
    SIMPLE,
    STORE,
    WIDENING,
)
from tileworkbench.compiler.fast_dataclass import dataclass

ARITHMETIC, MULTIPLY, ADD, LANES = "arithmetic", "multiply", "add", "lanes"
SCALARS = "integers"
LOADS, STORES, ACCESSES, DIVIDER, DIVIDER_OF_INTEGERS = (
    *("load", "store", "access", "divider", "integer divider"),
)
WAIT = "wait"
MEMORY = frozenset((LOADS, STORES, ACCESSES))

ISSUED = 6.0  # instructions a cycle
# In cycles: until a number from the innermost cache is there, a quotient of integers, by a constant
# and by another, an update that no other core may interrupt, a lane that is scattered, a function
# of the C library.
_LOADED, _CONSTANT_QUOTIENT, _QUOTIENT, _DIVIDES, _ATOMIC = 5.0, 5.0, 12.0, 6.0, 20.0
_SCATTERED, _LIBRARY = 1.0, 40.0
_GATHERED, _GATHERED_BITS = 2.5, 32  # instructions of a lane that is gathered; of the shortest
_INTEGERS = 4.0  # integers in a cycle
_TILE_ROWS = 16  # of AMX
_LATE = 4.0  # quotients and roots, in additions
_LANE_BITS = 128  # of a register, between which moves take longer
_WHOLE, _ONE = Kind(64, 64), Kind(1, 32)  # as many lanes as any register has, and one
_ONE_OF_MANY = 0.5  # a quotient or root of one element takes so much of a vector's


@dataclass(frozen=True, slots=True)
class Cost:
    """Nanoseconds of ports, the number of instructions, and nanoseconds from each operand to the
    result; the last one counts for operands that are not listed.
    """

    busy: tuple[tuple[str, float], ...] = ()
    instructions: float = 0.0
    latencies: tuple[float, ...] = (0.0,)

    def latency(self, operand: int) -> float:
        """From an operand by its number."""
        return self.latencies[min(operand, len(self.latencies) - 1)]


FREE = Cost()


class Costs:
    """The costs of the instructions of a function."""

    def __init__(self, core: Core, function: Function) -> None:
        self.core = core
        self.defined: dict[str, Instruction] = {}
        self.users: dict[str, list[Instruction]] = {}
        for block in function.blocks.values():
            for each in block:
                self.defined[each.name] = each
                for arg in each.args:
                    if arg.startswith("%"):
                        self.users.setdefault(arg, []).append(each)
        self.add_ns, self.cycle_ns = core.rates.of(CHAIN), core.cycles(1)
        self._known: dict[int, Cost] = {}

    def of(self, each: Instruction) -> Cost:
        """What an instruction of the function costs; loads and stores as those within a line of the
        cache.
        """
        known = self._known.get(id(each))
        if known is None:
            known = self._known[id(each)] = self._cost(each)
        return known

    def _cost(self, each: Instruction) -> Cost:
        return _OPERATIONS.get(each.op, Costs.usual)(self, each)

    def usual(self, each: Instruction) -> Cost:
        """What any port for arithmetic does with integers."""
        if each.kind.lanes <= 1:
            return self.scalar()
        registers = self.core.registers(each.kind)
        time_ns = registers * self.core.part(SIMPLE, each.kind) * self.core.rates.of(INTEGER)
        return Cost(((ARITHMETIC, time_ns),), registers, (self.cycle_ns,))

    def scalar(self, count: float = 1.0, cycles: float = 1.0) -> Cost:
        """So many instructions on single integers, of which a core does some in a cycle."""
        time_ns = count * self.cycle_ns / _INTEGERS
        return Cost(((SCALARS, time_ns),), count, (self.core.cycles(cycles),))

    def uses(self, each: Instruction) -> int:
        """How often a result is used."""
        return len(self.users.get(each.name, ()))

    def busy(
        self, registers: float, port: str = "", kind: Kind = _WHOLE
    ) -> tuple[tuple[str, float], ...]:
        """So many vectors of arithmetic on values of a type, on a port of their own if named."""
        registers *= self.core.part(SIMPLE, kind)
        ports = ((ARITHMETIC, registers * self.core.rates.of(SIMPLE)),)
        return (*ports, (port, registers * self.core.fused_ns)) if port else ports

    def arithmetic(self, each: Instruction, port: str, latency: float, times: float = 1.0) -> Cost:
        registers = times * self.core.registers(each.kind)
        return Cost(self.busy(registers, port, each.kind), registers, (latency,))

    def mixed(self, operation: str, registers: float, kind: Kind) -> tuple[tuple[str, float], ...]:
        """The ports of an operation that was measured beside others, on values of a type."""
        registers *= self.core.part(SIMPLE, kind)
        shares = self.core.rates.shares(operation)
        return tuple(
            (port, registers * time_ns)
            for port, time_ns in zip((ARITHMETIC, ADD, MULTIPLY), shares, strict=True)
            if time_ns
        )

    def measured(self, operation: str, kind: Kind, instructions: float = 1.0) -> Cost:
        """Such an operation on a value of a type, so many instructions for each register."""
        registers, late = self.core.registers(kind), self.core.rates.latency(operation)
        return Cost(self.mixed(operation, registers, kind), instructions * registers, (late,))

    def moved(self, operation: str, registers: float, kind: Kind) -> tuple[tuple[str, float], ...]:
        """The ports of what moves lanes of so many vectors; one of these has all of them."""
        own = registers * self.core.part(SIMPLE, kind) * self.core.fused_ns
        return (*self.mixed(operation, registers, kind), (LANES, own))

    def access(self, port: str, operation: str, kind: Kind) -> tuple[tuple[str, float], ...]:
        """A value that is loaded or stored."""
        core, registers = self.core, self.core.registers(kind)
        return tuple(
            (name, registers * core.rates.of(each) * core.part(each, kind))
            for name, each in ((port, operation), (ACCESSES, ACCESS))
        )

    def load(self, each: Instruction) -> Cost:
        """A vector that one operation uses is part of that instruction."""
        is_folded = each.kind.lanes > 1 and self.uses(each) == 1
        count = 0.0 if is_folded else self.core.registers(each.kind)
        return Cost(self.access(LOADS, LOAD, each.kind), count, (self.core.cycles(_LOADED),))

    def store(self, each: Instruction) -> Cost:
        return Cost(self.access(STORES, STORE, each.kind), self.core.registers(each.kind))

    def sum(self, each: Instruction) -> Cost:
        """An addition, with the product that LLVM makes part of it."""
        products = [self.is_fused(arg) for arg in each.args]
        if not any(products):
            return self.arithmetic(each, ADD, self.add_ns)
        registers, rate = self.core.registers(each.kind), self.core.rates.of
        product = products.index(True)
        late = tuple(rate(MULTIPLIED if at == product else ACCUMULATED) for at in range(2))
        return Cost(self.busy(registers, MULTIPLY, each.kind), registers, late)

    def product(self, each: Instruction) -> Cost:
        if self.is_fused(each.name):
            return FREE
        return self.arithmetic(each, MULTIPLY, self.core.rates.of(MULTIPLIED))

    def is_fused(self, name: str) -> bool:
        """Whether a value is a product that only sums use."""
        made, users = self.defined.get(name), self.users.get(name, ())
        return (
            self.core.has_fma
            and made is not None
            and made.op == "fmul"
            and len(users) == 1
            and users[0].op in ("fadd", "fsub")
            and users[0].is_contract
        )

    def floats(self, each: Instruction) -> Iterator[tuple[str, float]]:
        """Bytes of vectors that an instruction multiplies ("fmul") or adds ("fadd")."""
        size = float(each.kind.bytes_)
        if each.op == "fmul" and not self.is_fused(each.name):
            yield "fmul", size
        elif each.op in ("fadd", "fsub"):
            yield ("fmul" if any(map(self.is_fused, each.args)) else "fadd"), size
        elif each.detail.startswith(("llvm.fma", "llvm.fmuladd")):
            yield "fmul", size
        elif each.detail.startswith("llvm.vector.reduce.fadd"):
            kind = named_kind(each)
            for half in range(1, kind.lanes.bit_length()):
                yield "fadd", kind.bytes_ / 2**half

    def integer_product(self, each: Instruction) -> Cost:
        if each.kind.lanes <= 1 or each.kind.bits <= 16:
            return self.usual(each)
        return self.measured(INTEGER_PRODUCT, each.kind)

    def shift(self, each: Instruction) -> Cost:
        return self.usual(each) if each.kind.lanes <= 1 else self.measured(SHIFT, each.kind)

    def logic(self, each: Instruction) -> Cost:
        """Signs and choices, which any port for arithmetic does; the larger of what is compared is
        one instruction.
        """
        if each.op == "select" and self.is_larger(each):
            return self.measured(LARGER, each.kind)
        if each.mask:
            return FREE
        if each.op == "select" and each.kind.lanes <= 1 and not each.kind.is_float:
            return self.scalar()
        return self.arithmetic(each, "", self.cycle_ns)

    def quotient(self, each: Instruction) -> Cost:
        return self.divides(each, DIVISION, _LATE)

    def divides(self, each: Instruction, operation: str, additions: float) -> Cost:
        registers = self.core.registers(each.kind)
        part = _ONE_OF_MANY if each.kind.lanes == 1 else self.core.part(DIVISION, each.kind)
        time_ns = part * registers * self.core.rates.of(operation)
        busy = (*self.busy(registers, MULTIPLY, each.kind), (DIVIDER, time_ns))
        return Cost(busy, registers, (additions * self.add_ns,))

    def integer_quotient(self, each: Instruction) -> Cost:
        if each.args[1].lstrip("-").isdigit():  # becomes a product
            return self.scalar(4.0, _CONSTANT_QUOTIENT)
        busy = ((DIVIDER_OF_INTEGERS, self.core.cycles(_DIVIDES)),)
        return Cost(busy, 2.0, (self.core.cycles(_QUOTIENT),))

    def comparison(self, each: Instruction) -> Cost:
        if each.kind.lanes > 1:
            return self.compared(each)
        is_branch = [user.op for user in self.users.get(each.name, ())] == ["br"]
        return Cost((), 0.0, (self.cycle_ns,)) if is_branch else self.scalar()

    def is_larger(self, each: Instruction) -> bool:
        """Whether a choice is between floats that its condition compares."""
        made = self.defined.get(each.args[0])
        return made is not None and made.op == "fcmp" and set(made.args) == set(each.args[1:])

    def compared(self, each: Instruction) -> Cost:
        """Floats, or vectors of integers: measured with a choice, which is an instruction besides;
        nothing where that is the larger.
        """
        users = self.users.get(each.name, ())
        if users and all(user.op == "select" and self.is_larger(user) for user in users):
            return FREE
        registers, simple = self.core.registers(each.kind), self.core.rates.of(SIMPLE)
        (port, both_ns), *others = self.mixed(COMPARISON, registers, each.kind)
        choice_ns = registers * self.core.part(SIMPLE, each.kind) * simple
        busy = (port, max(both_ns - choice_ns, choice_ns)), *others
        late = max(self.core.rates.latency(COMPARISON) - self.cycle_ns, self.cycle_ns)
        return Cost(busy, registers, (late,))

    def conversion(self, each: Instruction) -> Cost:
        """A change of width moves lanes besides."""
        if each.kind.lanes <= 1 or each.kind.bits == each.source.bits:
            return self.measured(CONVERSION, wider(each))
        name = WIDENING if each.kind.bits > each.source.bits else NARROWING
        return self.measured(name, wider(each), instructions=2.0)

    def extension(self, each: Instruction) -> Cost:
        """Integers of other widths, free in an address unless they were loaded."""
        users = self.users.get(each.name, ())
        if each.kind.lanes <= 1 and each.op == "sext" and self.is_loaded(each.args[0]):
            return self.scalar()
        if each.kind.lanes <= 1 or any(map(self.is_narrow_distance, users)):
            return FREE
        kind = wider(each)
        registers = self.core.registers(kind)
        return Cost(self.mixed(SHUFFLE, registers, kind), registers, (self.cycle_ns,))

    def is_loaded(self, name: str) -> bool:
        """Whether an integer is computed of one that was loaded, which no loop counts."""
        made = self.defined.get(name)
        while made is not None and made.op in ("add", "sub", "mul", "shl", "or"):
            made = self.defined.get(made.args[0])
        return made is not None and made.op == "load"

    def address(self, each: Instruction) -> Cost:
        """An address is part of the loads and stores there; a choice of two needs them before."""
        users = self.users.get(each.name, ())
        if any(user.op == "select" for user in users) and each.kind.lanes == 1:
            return self.scalar()
        return FREE

    def difference(self, each: Instruction) -> Cost:
        return FREE if self.is_narrow_distance(each) else self.usual(each)

    def is_narrow_distance(self, each: Instruction) -> bool:
        """Whether a difference is of integers that were shorter, and only its size counts: LLVM
        takes the smaller from the larger of the short ones.
        """
        users = self.users.get(each.name, ())
        if each.op != "sub" or each.kind.lanes <= 1:
            return False
        if [user.detail[:8] for user in users] != ["llvm.abs"]:
            return False
        first, second = (self.defined.get(arg) for arg in each.args)
        return (
            first is not None
            and second is not None
            and first.op == second.op == "zext"
            and first.source == second.source
            and self.uses(first) == self.uses(second) == 1
        )

    def distance(self, each: Instruction) -> Cost:
        """The size of an integer: one instruction, or what is done with short ones."""
        made = self.defined.get(each.args[0])
        if made is None or not self.is_narrow_distance(made):
            return self.usual(each)
        short = self.defined[made.args[0]].source
        # Each part but the first is taken out before it is made longer.
        registers, moves = self.core.registers(short), 2 * self.core.registers(each.kind) - 1
        time_ns = 3 * registers * self.core.part(SIMPLE, short) * self.core.rates.of(INTEGER)
        busy = ((ARITHMETIC, time_ns), *self.mixed(SHUFFLE, moves, each.kind))
        return Cost(busy, 3 * registers + moves, (3 * self.cycle_ns,))

    def operands(self, each: Instruction) -> tuple[str, ...]:
        """What the result of an instruction waits for: an element not for others that were put
        into its vector.
        """
        if each.op != "extractelement":
            return each.args
        name, lane = each.args
        while (made := self.defined.get(name)) is not None and made.op == "insertelement":
            if made.args[2] == lane:
                return (made.args[1],)
            name = made.args[0]
        return (name,)

    def element(self, each: Instruction) -> Cost:
        """An element into or out of a vector; the first one is where a number is anyway, and one
        that was just put there still is where it was.
        """
        if each.op == "extractelement":
            made = self.defined.get(self.operands(each)[0])
            if made is not None and made.kind.lanes == 1:
                return FREE
        first = each.args[0] in ("poison", "undef") or each.args[-1] == "0"
        if first and (each.op == "extractelement" or each.args[0] in ("poison", "undef")):
            return FREE
        return Cost(self.moved(SHUFFLE, 1.0, _ONE), 1.0, (self.add_ns / 2,))

    def shuffle(self, each: Instruction) -> Cost:
        if self.takes_registers(each) or self.is_broadcast_load(each) or is_widened(each):
            return FREE
        lanes = max(1, self.core.vector_bits // max(each.kind.bits, 1))
        parts = {each.mask[at : at + lanes] for at in range(0, len(each.mask), lanes)}
        kind, registers = Kind(min(len(each.mask), lanes), each.kind.bits), float(len(parts))
        of_two = len({lane < each.kind.lanes for lane in each.mask if lane is not None}) > 1
        name = PERMUTATION if of_two else SHUFFLE
        late = self.core.rates.latency(name) if self.crosses(each) else self.cycle_ns
        return Cost(self.moved(name, registers, kind), registers, (late,))

    def crosses(self, each: Instruction) -> bool:
        """Whether lanes of a shuffle come from another 128 bits than they go to."""
        lanes = max(1, _LANE_BITS // max(each.kind.bits, 1))
        return any(
            lane is not None and lane % each.kind.lanes // lanes != at // lanes
            for at, lane in enumerate(each.mask)
        )

    def takes_registers(self, each: Instruction) -> bool:
        """Whether every register of the result is one of the operands'."""
        lanes = max(1, self.core.vector_bits // max(each.kind.bits, 1))
        for start in range(0, len(each.mask), lanes):
            part = enumerate(each.mask[start : start + lanes])
            offsets = {lane - at for at, lane in part if lane is not None}
            if len(offsets) > 1 or any(offset % lanes for offset in offsets):
                return False
        return True

    def is_broadcast_load(self, each: Instruction) -> bool:
        """Whether all lanes are a number that a load can put there."""
        if any(each.mask):
            return False
        made = self.defined.get(each.args[0])
        while made is not None and made.op == "bitcast":
            made = self.defined.get(made.args[0])
        if made is None or made.op != "insertelement":
            return False
        number = self.defined.get(made.args[1])
        return number is not None and number.op == "load"

    def atomic(self, each: Instruction) -> Cost:
        time_ns = self.core.cycles(_ATOMIC)
        return Cost(((WAIT, time_ns),), 1.0, (time_ns,))

    def free(self, each: Instruction) -> Cost:
        return FREE

    def call(self, each: Instruction) -> Cost:
        """An intrinsic, or a function of the C library."""
        for part, cost in _INTRINSICS.items():
            if part in each.detail:
                return cost(self, each)
        if each.detail.startswith("llvm."):
            return self.usual(each)
        time_ns = self.core.cycles(_LIBRARY)
        return Cost(((ARITHMETIC, time_ns),), _LIBRARY, (time_ns,))

    def fused(self, each: Instruction) -> Cost:
        registers, rate = self.core.registers(each.kind), self.core.rates.of
        late = (rate(MULTIPLIED), rate(MULTIPLIED), rate(ACCUMULATED))
        return Cost(self.busy(registers, MULTIPLY, each.kind), registers, late)

    def dot(self, each: Instruction) -> Cost:
        """Products of pairs or fours that are added to a register of sums."""
        dtype = "bfloat16" if "bf16" in each.detail else "int16" if "wss" in each.detail else "int8"
        registers, rate = self.core.registers(each.kind), self.core.rates.of
        busy = ((MULTIPLY, registers * self.core.dots_ns[dtype]), *self.busy(registers))
        return Cost(busy, registers, (rate(ACCUMULATED), rate(MULTIPLIED)))

    def tile_product(self, each: Instruction) -> Cost:
        """AMX: sixteen rows by sixteen columns of sums, sixteen registers of operands each."""
        dtype = "bfloat16" if "bf16" in each.detail else "int8"
        time_ns = _TILE_ROWS * _TILE_ROWS * self.core.dots_ns[dtype]
        return Cost(((MULTIPLY, time_ns),), 1.0, (time_ns,))

    def tile_access(self, each: Instruction) -> Cost:
        """AMX: a tile is loaded or stored a row after the other."""
        port, rate = (STORES, STORE) if "stored" in each.detail else (LOADS, LOAD)
        return Cost(((port, _TILE_ROWS * self.core.rates.of(rate)),), 1.0)

    def reduction(self, each: Instruction) -> Cost:
        """Registers are combined first, then halves of the last one, which are no whole ones."""
        kind = named_kind(each)
        registers = max(1.0, kind.lanes * kind.bits / self.core.vector_bits)
        halves = math.log2(min(kind.lanes, self.core.vector_bits // kind.bits))
        sums = registers - 1 + halves * self.core.part(SIMPLE, _ONE)
        busy = (*self.busy(sums, ADD), *self.moved(SHUFFLE, halves, _ONE))
        late = (math.log2(registers) + 1.75 * halves) * self.add_ns
        return Cost(busy, registers - 1 + 2 * halves, (late,))

    def root(self, each: Instruction) -> Cost:
        return self.divides(each, "sqrt", _LATE + 1)

    def power_of_two(self, each: Instruction) -> Cost:
        return self.arithmetic(each, ADD, self.add_ns, 2.0)

    def permutation(self, each: Instruction) -> Cost:
        registers = self.core.registers(each.kind)
        name = PERMUTATION if "vpermi2" in each.detail or "vpermt2" in each.detail else SHUFFLE
        busy, late = self.moved(name, registers, each.kind), self.core.rates.latency(name)
        return Cost(busy, registers, (late,))

    def extremum(self, each: Instruction) -> Cost:
        """One instruction, or a comparison, a choice and NaN."""
        return self.measured(EXTREMUM, each.kind, 1.0 if "range" in each.detail else 3.0)

    def rounding(self, each: Instruction) -> Cost:
        return self.measured(CONVERSION, each.kind)

    def gather(self, each: Instruction) -> Cost:
        """Lane by lane: an address out of a vector, and an element into one. LLVM writes it out,
        but for lanes that a condition chooses, which the core does by itself.
        """
        registers, moves = each.kind.lanes * 32 / self.core.vector_bits, _GATHERED * each.kind.lanes
        loads = (LOADS, registers * self.core.rates.of(GATHER))
        own = self.busy(moves, kind=_ONE)
        is_chosen = each.args[-2].startswith("%") and each.kind.bits >= _GATHERED_BITS
        busy = (loads, *own) if is_chosen else (*own, loads)
        return Cost(busy, moves, (self.core.cycles(_ATOMIC),))

    def stored_lanes(self, each: Instruction) -> Cost:
        """A masked or scattered store, whose type stands in its name."""
        kind = named_kind(each)
        if "scatter" in each.detail:
            time_ns = kind.lanes * self.core.cycles(_SCATTERED)
            return Cost(((STORES, time_ns),), 1.5 * kind.lanes)
        return Cost(self.access(STORES, STORE, kind), self.core.registers(kind))

    def block_of_memory(self, each: Instruction) -> Cost:
        """Vectors of bytes that are set or copied."""
        size = int(each.args[2]) if each.args[2].isdigit() else 64
        vectors = 8 * size / self.core.vector_bits
        return Cost(((STORES, vectors * self.core.rates.of(STORE)),), vectors)


def wider(cast: Instruction) -> Kind:
    """The wider type of a cast."""
    return Kind(cast.kind.lanes, max(cast.kind.bits, cast.source.bits))


def is_widened(shuffle: Instruction) -> bool:
    """Whether lanes that are constants follow a value, as zeros do when a part of a register is
    loaded.
    """
    own = shuffle.kind.lanes
    return (
        not shuffle.args[1].startswith("%")
        and all(lane == at for at, lane in enumerate(shuffle.mask[:own]))
        and all(lane is None or lane >= own for lane in shuffle.mask[own:])
    )


def named_kind(call: Instruction) -> Kind:
    """The type in the name of an intrinsic, ``llvm.masked.store.v16f32.p0``; a number's if none."""
    match = re.search(r"\.v(\d+)(?:bf|[if])(\d+)", call.detail)
    return Kind(int(match[1]), int(match[2])) if match else Kind(1, 32)


Costing = Callable[[Costs, Instruction], Cost]

_OPERATIONS: Mapping[str, Costing] = {
    **{"load": Costs.load, "store": Costs.store, "fadd": Costs.sum, "fsub": Costs.sum},
    **{"fmul": Costs.product, "fdiv": Costs.quotient, "frem": Costs.quotient},
    **dict.fromkeys(("fneg", "select"), Costs.logic),
    **{"fcmp": Costs.compared, "mul": Costs.integer_product},
    **dict.fromkeys(("shl", "lshr", "ashr"), Costs.shift),
    **dict.fromkeys(("udiv", "sdiv", "urem", "srem"), Costs.integer_quotient),
    **dict.fromkeys(("sitofp", "uitofp", "fptosi", "fptoui", "fpext", "fptrunc"), Costs.conversion),
    **dict.fromkeys(("sext", "zext", "trunc"), Costs.extension),
    **{
        "sub": Costs.difference,
        "icmp": Costs.comparison,
        "shufflevector": Costs.shuffle,
        "call": Costs.call,
    },
    **dict.fromkeys(("insertelement", "extractelement"), Costs.element),
    "getelementptr": Costs.address,
    **dict.fromkeys(("cmpxchg", "atomicrmw"), Costs.atomic),
    **dict.fromkeys(
        (
            *("bitcast", "freeze", "alloca", "ptrtoint", "inttoptr", "fence"),
            *("ret", "unreachable", "phi"),
        ),
        Costs.free,
    ),
}

# The first that is part of a name.
_INTRINSICS: Mapping[str, Costing] = {
    **dict.fromkeys(("llvm.fma", "llvm.fmuladd"), Costs.fused),
    **{"x86.tdp": Costs.tile_product, "x86.tileload": Costs.tile_access},
    "x86.tilestore": Costs.tile_access,
    **dict.fromkeys(("x86.tilezero", "x86.tilerelease", "x86.ldtilecfg"), Costs.free),
    **dict.fromkeys(("dpbf16", "vpdpbus", "vpdpwss"), Costs.dot),
    **{"vector.reduce": Costs.reduction, "llvm.sqrt": Costs.root, "gather": Costs.gather},
    **{"masked.load": Costs.load, "masked.store": Costs.stored_lanes},
    **{"scatter": Costs.stored_lanes, "scalef": Costs.power_of_two, "range": Costs.extremum},
    **dict.fromkeys(("permvar", "vpermi", "pshuf", "vperm", "avx2.perm"), Costs.permutation),
    **dict.fromkeys(
        ("floor", "ceil", "rint", "nearbyint", "trunc", "rndscale", "llvm.round"), Costs.rounding
    ),
    **dict.fromkeys(("maximum", "minimum", "maxnum", "minnum"), Costs.extremum),
    **dict.fromkeys(("fabs", "copysign"), Costs.logic),
    "llvm.abs": Costs.distance,
    **dict.fromkeys(("lifetime", "assume", "expect", "prefetch", "dbg."), Costs.free),
    **dict.fromkeys(("memset", "memcpy", "memmove"), Costs.block_of_memory),
}
