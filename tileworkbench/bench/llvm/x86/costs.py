"""What an operation of x86 costs a core: the first row of a table whose pattern begins its name,
less the `v` of instructions with three operands, tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tileworkbench.bench.llvm.core_costs import (
    ADD,
    LATE,
    LOADS,
    MULTIPLY,
    ONE,
    STORES,
    CoreCosts,
    Cost,
)
from tileworkbench.bench.llvm.instructions import Instruction
from tileworkbench.bench.llvm.x86.operations import (
    ATOMIC,
    BLEND,
    CALL,
    CROSS,
    IDLE,
    LOADED,
    MOVE,
    PREFETCH,
    ZERO,
)
from tileworkbench.bench.operation_rates import (
    CHAIN,
    CONVERSION,
    DIVISION,
    INTEGER_PRODUCT,
    LARGER,
    LOAD,
    MULTIPLIED,
    NARROWING,
    PERMUTATION,
    SHIFT,
    SHUFFLE,
    STORE,
    WIDENING,
)

INWARD, OUTWARD, PRODUCTS = "into vectors", "out of vectors", "integer products"
"""Ports that do one in a cycle: a number from integers to vectors or masks, one from there to
integers or memory, and a product of integers."""

# In cycles: until a number is there from the other kind of registers, and a product of integers.
_CROSSING, _PRODUCT = 3.0, 3.0
# Which operand a product is added to; the factors come before and after it.
_ADDS_TO = {"132": 1, "213": 0, "231": 2}


class MachineCosts(CoreCosts):
    """The costs of x86's operations."""

    def cost(self, each: Instruction) -> Cost:
        name = each.op
        if (special := _SPECIAL.get(name)) is not None:
            return special(self, each)
        rows, name = (_VECTORS, name.removeprefix("v")) if each.kind.is_float else (_OTHERS, name)
        return next(cost for pattern, cost in rows if pattern.match(name))(self, each)

    def load(self, each: Instruction) -> Cost:
        """One that is part of an instruction is none by itself."""
        return self.loaded(each.kind, 1.0 if each.detail == LOADED else 0.0)

    def issued(self, each: Instruction) -> Cost:
        return Cost((), 1.0)

    def fetch(self, each: Instruction) -> Cost:
        return Cost(self.access(LOADS, LOAD, ONE), 1.0)

    def crossing(self, each: Instruction) -> Cost:
        """A number that goes from integers to vectors or masks, or back."""
        late = self.core.cycles(_CROSSING)
        return Cost((*self.busy(1.0, kind=ONE), self.way(each)), 1.0, (late,))

    def way(self, each: Instruction) -> tuple[str, float]:
        """The port by which a number leaves vectors and masks, or comes there."""
        is_inward = each.name[:1] in ("v", "k") and not each.op.startswith("vpextr")
        return INWARD if is_inward else OUTWARD, self.cycle_ns

    def integer(self, each: Instruction) -> Cost:
        return self.scalar()

    def integer_product(self, each: Instruction) -> Cost:
        scalar = self.scalar(1.0, _PRODUCT)
        return Cost((*scalar.busy, (PRODUCTS, self.cycle_ns)), 1.0, scalar.latencies)

    def mask(self, each: Instruction) -> Cost:
        return Cost(self.busy(1.0, kind=ONE), 1.0, (self.cycle_ns,))

    def tile_product(self, each: Instruction) -> Cost:
        return self.tile_products(each.op)

    def tile_load(self, each: Instruction) -> Cost:
        return self.tile_moved(LOADS, LOAD)

    def tile_store(self, each: Instruction) -> Cost:
        return self.tile_moved(STORES, STORE)

    def usual(self, each: Instruction) -> Cost:
        return self.integers(each.kind)

    def logic(self, each: Instruction) -> Cost:
        return self.arithmetic(each, "", self.cycle_ns)

    def multiply_add(self, each: Instruction) -> Cost:
        form = re.search(r"132|213|231", each.op)
        return self.fused(each.kind, _ADDS_TO[form[0]] if form else 2)

    def sum(self, each: Instruction) -> Cost:
        return self.arithmetic(each, ADD, self.add_ns)

    def scaling(self, each: Instruction) -> Cost:
        """By a power of two, as long as two sums."""
        return self.arithmetic(each, ADD, self.add_ns, 2.0)

    def product(self, each: Instruction) -> Cost:
        return self.arithmetic(each, MULTIPLY, self.core.rates.of(MULTIPLIED))

    def product_of_integers(self, each: Instruction) -> Cost:
        return self.arithmetic(each, MULTIPLY, self.core.rates.of(CHAIN))

    def quotient(self, each: Instruction) -> Cost:
        return self.divides(each, DIVISION, LATE)

    def root(self, each: Instruction) -> Cost:
        return self.divides(each, "sqrt", LATE + 1)

    def comparison(self, each: Instruction) -> Cost:
        return self.comparison_of(each.kind)

    def flags(self, each: Instruction) -> Cost:
        """A comparison that a branch or a choice of integers waits for."""
        return Cost((*self.busy(1.0, kind=ONE), self.way(each)), 1.0, (self.add_ns,))

    def number(self, each: Instruction) -> Cost:
        """A conversion between an integer and a float."""
        cost = self.measured(CONVERSION, each.kind)
        late = self.core.cycles(_CROSSING) + cost.latencies[0]
        return Cost((*cost.busy, self.way(each)), 2.0, (late,))

    def dot(self, each: Instruction) -> Cost:
        return self.dots(each.op, each.kind, 2)

    def permutation(self, each: Instruction) -> Cost:
        """Lanes of two vectors."""
        late = self.core.rates.latency(PERMUTATION)
        return Cost(self.moved(PERMUTATION, 1.0, each.kind), 1.0, (late,))

    def shuffle(self, each: Instruction) -> Cost:
        """Lanes that stay within their 128 bits."""
        return Cost(self.moved(SHUFFLE, 1.0, each.kind), 1.0, (self.cycle_ns,))

    def crossing_shuffle(self, each: Instruction) -> Cost:
        """Lanes that go to other 128 bits, or become wider or narrower; an integer to all."""
        late = self.core.rates.latency(SHUFFLE)
        busy = self.moved(SHUFFLE, 1.0, each.kind)
        if len(each.args) == 1 and each.args[0][0] == "r":
            busy = (*busy, self.way(each))
        return Cost(busy, 1.0, (late,))

    def element(self, each: Instruction) -> Cost:
        """An element into or out of a vector, from integers or to them two instructions."""
        busy, late = self.moved(SHUFFLE, 1.0, ONE), (self.cycle_ns,)
        crosses = "extr" in each.op or any(arg[0] == "r" for arg in each.args)
        return Cost((*busy, self.way(each)), 2.0, late) if crosses else Cost(busy, 1.0, late)

    def gather(self, each: Instruction) -> Cost:
        return self.gathered(each.kind.lanes, is_own=True)

    def scatter(self, each: Instruction) -> Cost:
        return self.scattered(each.kind.lanes)


Costing = Callable[[MachineCosts, Instruction], Cost]

_SPECIAL: dict[str, Costing] = {
    **{"load": MachineCosts.load, "store": MachineCosts.store, BLEND: MachineCosts.logic},
    **{IDLE: MachineCosts.issued, MOVE: MachineCosts.issued, ZERO: MachineCosts.issued},
    **{PREFETCH: MachineCosts.fetch, ATOMIC: MachineCosts.atomic, CROSS: MachineCosts.crossing},
    CALL: MachineCosts.library,  # of C; functions of the module are walked
}


def _rows(*rows: tuple[str, Costing]) -> tuple[tuple[re.Pattern[str], Costing], ...]:
    """The rows of a table."""
    return tuple((re.compile(pattern), cost) for pattern, cost in rows)


def _measured(operation: str, instructions: float = 1.0) -> Costing:
    """What was measured of such an operation."""
    return lambda costs, each: costs.measured(operation, each.kind, instructions)


_OTHERS = _rows(
    (r"i?div", MachineCosts.integer_division),
    (r"i?mul", MachineCosts.integer_product),
    (r"k", MachineCosts.mask),
    (r"tdp", MachineCosts.tile_product),
    (r"tileload", MachineCosts.tile_load),
    (r"tilestore", MachineCosts.tile_store),
    (r"", MachineCosts.integer),
)

_VECTORS = _rows(
    (r"fn?m(add|sub)", MachineCosts.multiply_add),
    (r"(h|)(add|sub|addsub)[ps][sdh]$", MachineCosts.sum),
    (r"mul[ps][sdh]$", MachineCosts.product),
    (r"div[ps][sdh]$", MachineCosts.quotient),
    (r"sqrt", MachineCosts.root),
    (r"(max|min|range)[ps][sdh]$", _measured(LARGER)),
    (r"u?comis|p?movmsk", MachineCosts.flags),
    (r"cmp\w*[ps][sdh]$|pcmp|ptestn?m|fpclass", MachineCosts.comparison),
    (r"scalef", MachineCosts.scaling),
    (r"cvtu?si2|cvtt?s[sd]2u?si", MachineCosts.number),
    (r"cvt(ph2|ps2pd|u?dq2pd)", _measured(WIDENING, 2.0)),
    (r"cvt(\w*2ph|ne|t?pd2)", _measured(NARROWING, 2.0)),
    (r"rndscale|round|reduce|getexp|getmant|fixupimm|cvt", _measured(CONVERSION)),
    (r"(andn?|x?or|blend\w*)[ps][sd]$|p(andn?|x?or|ternlog|blend)", MachineCosts.logic),
    (r"p(s[lr]l|sra|ro[lr]|sh[lr]d)v?[wdq]|popcnt|plzcnt|psadbw", _measured(SHIFT)),
    (r"pmull[dq]", _measured(INTEGER_PRODUCT)),
    (r"pmul|pmadd", MachineCosts.product_of_integers),
    (r"pdp|dpbf16", MachineCosts.dot),
    (r"perm[it]2", MachineCosts.permutation),
    (r"p?gather", MachineCosts.gather),
    (r"p?scatter", MachineCosts.scatter),
    (r"pmov(us|s|z|)x?[bwdq][bwdq]$", MachineCosts.crossing_shuffle),
    (r"pinsr|pextr|insertps|extractps", MachineCosts.element),
    (
        r"perm(?!il)|extract|insert|align|p?broadcast|p?expand|p?compress|shuf[fi]",
        MachineCosts.crossing_shuffle,
    ),
    (
        r"shufp|pshuf|p?unpck|permil|movs[hl]dup|movddup|palign|ps[lr]ldq|pack|mov[hl]",
        MachineCosts.shuffle,
    ),
    (r"", MachineCosts.usual),
)
