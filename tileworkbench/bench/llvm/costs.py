"""What an instruction of LLVM IR costs a core, where it is not known what LLVM makes of it.

What LLVM makes no instruction of is free: parts of vectors that are whole registers, elements that
a load broadcasts, products that become part of a sum, addresses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from tileworkbench.bench.llvm.core import Core
from tileworkbench.bench.llvm.core_costs import (
    ADD,
    ARITHMETIC,
    FREE,
    LATE,
    LOADS,
    MULTIPLY,
    ONE,
    STORES,
    CoreCosts,
    Cost,
)
from tileworkbench.bench.llvm.instructions import Function, Instruction, Kind
from tileworkbench.bench.operation_rates import (
    CONVERSION,
    DIVISION,
    EXTREMUM,
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

_CONSTANT_QUOTIENT = 5.0  # cycles of a quotient of integers by a constant
_GATHERED_BITS = 32  # of the shortest lane that a core gathers by itself
_LANE_BITS = 128  # of a register, between which moves take longer


class Costs(CoreCosts):
    """The costs of the instructions of a function."""

    def __init__(self, core: Core, function: Function) -> None:
        super().__init__(core)
        self.defined: dict[str, Instruction] = {}
        self.users: dict[str, list[Instruction]] = {}
        for block in function.blocks.values():
            for each in block:
                self.defined[each.name] = each
                for arg in each.args:
                    if arg.startswith("%"):
                        self.users.setdefault(arg, []).append(each)

    def cost(self, each: Instruction) -> Cost:
        return _OPERATIONS.get(each.op, Costs.usual)(self, each)

    def usual(self, each: Instruction) -> Cost:
        """What any port for arithmetic does with integers."""
        return self.scalar() if each.kind.lanes <= 1 else self.integers(each.kind)

    def uses(self, each: Instruction) -> int:
        """How often a result is used."""
        return len(self.users.get(each.name, ()))

    def load(self, each: Instruction) -> Cost:
        """A vector that one operation uses is part of that instruction."""
        is_folded = each.kind.lanes > 1 and self.uses(each) == 1
        return self.loaded(each.kind, 0.0 if is_folded else self.core.registers(each.kind))

    def sum(self, each: Instruction) -> Cost:
        """An addition, with the product that LLVM makes part of it."""
        products = [self.is_fused(arg) for arg in each.args]
        if not any(products):
            return self.arithmetic(each, ADD, self.add_ns)
        return self.fused(each.kind, 1 - products.index(True))

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
        return self.divides(each, DIVISION, LATE)

    def integer_quotient(self, each: Instruction) -> Cost:
        if each.args[1].lstrip("-").isdigit():  # becomes a product
            return self.scalar(4.0, _CONSTANT_QUOTIENT)
        return self.integer_division(each)

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
        return self.comparison_of(each.kind)

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
        return Cost(self.moved(SHUFFLE, 1.0, ONE), 1.0, (self.add_ns / 2,))

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

    def free(self, each: Instruction) -> Cost:
        return FREE

    def call(self, each: Instruction) -> Cost:
        """An intrinsic, or a function of the C library."""
        for part, cost in _INTRINSICS.items():
            if part in each.detail:
                return cost(self, each)
        if each.detail.startswith("llvm."):
            return self.usual(each)
        return self.library(each)

    def multiply_add(self, each: Instruction) -> Cost:
        return self.fused(each.kind, 2)

    def dot(self, each: Instruction) -> Cost:
        return self.dots(each.detail, each.kind, 0)

    def tile_product(self, each: Instruction) -> Cost:
        return self.tile_products(each.detail)

    def tile_access(self, each: Instruction) -> Cost:
        port, rate = (STORES, STORE) if "stored" in each.detail else (LOADS, LOAD)
        return self.tile_moved(port, rate)

    def reduction(self, each: Instruction) -> Cost:
        """Registers are combined first, then halves of the last one, which are no whole ones."""
        kind = named_kind(each)
        registers = max(1.0, kind.lanes * kind.bits / self.core.vector_bits)
        halves = math.log2(min(kind.lanes, self.core.vector_bits // kind.bits))
        sums = registers - 1 + halves * self.core.part(SIMPLE, ONE)
        busy = (*self.busy(sums, ADD), *self.moved(SHUFFLE, halves, ONE))
        late = (math.log2(registers) + 1.75 * halves) * self.add_ns
        return Cost(busy, registers - 1 + 2 * halves, (late,))

    def root(self, each: Instruction) -> Cost:
        return self.divides(each, "sqrt", LATE + 1)

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
        """LLVM writes it out, but for lanes that a condition chooses."""
        is_chosen = each.args[-2].startswith("%") and each.kind.bits >= _GATHERED_BITS
        return self.gathered(each.kind.lanes, is_chosen)

    def stored_lanes(self, each: Instruction) -> Cost:
        """A masked or scattered store, whose type stands in its name."""
        kind = named_kind(each)
        if "scatter" in each.detail:
            return self.scattered(kind.lanes)
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
    **dict.fromkeys(("llvm.fma", "llvm.fmuladd"), Costs.multiply_add),
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
