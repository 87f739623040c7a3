"""Random numbers of a kernel: a counter-based generator whose state is two numbers per thread.

`T.rng_init` makes the state. Outside T.Parallel each draw takes the next number of the sequence.
Inside it the draws are numbered in the order in which one thread would make them: iteration by
iteration in row-major order, and in each iteration in the order written. So what an iteration gets
does not depend on when, or by whom, it is executed.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import TileRuntimeError, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.frontend.builder import Binding, Builder, in_kernel
from tileworkbench.compiler.frontend.values import Value, fitting
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.rewrite import substitute
from tileworkbench.compiler.ir.stmt import Alloc, Let, Store
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.ir.types import DType

_WORD, _LONG = DType("uint32"), DType("uint64")


@dataclass(slots=True)
class Generator:
    """The Philox4x32-10 generator of a thread: key, sequence, and how many numbers it has drawn.

    `drawn` counts the draws in the body of the T.Parallel that is being traced, and `per_iteration`
    stands for what that will be.
    """

    key: tuple[Expr, Expr]
    sequence: tuple[Expr, Expr]
    position: Buffer
    binding: Binding
    drawn: int = 0
    per_iteration: Var | None = None

    def number(self, builder: Builder, place: Expr) -> Expr:
        """Number `place` of the sequence. Four of them share a counter."""
        counter = build.binary("shr", place, build.const(2, _LONG))
        word = build.cast(build.binary("and", place, build.const(3, _LONG)), _WORD)
        low, high = _halves(counter)
        return build.call("philox", low, high, *self.sequence, *self.key, word)

    def place(self, builder: Builder) -> Expr:
        """The place of the next draw in the sequence."""
        position = Load(self.position, ())
        if builder.enclosing("parallel") is None:
            return position
        if self.per_iteration is None:
            self.per_iteration = builder.fresh_var("draws", _LONG)
        iteration = _iteration(builder)
        index = build.add(build.mul(iteration, self.per_iteration), build.const(self.drawn, _LONG))
        self.drawn += 1
        return build.add(position, index)

    def advance(self, builder: Builder, count: Expr) -> None:
        """Step over `count` numbers."""
        moved = build.add(Load(self.position, ()), count)
        builder.emit(Store(self.position, (), moved))

    def leave(self, builder: Builder, loop: Parallel) -> Parallel:
        """`loop`, now that the draws of an iteration are known."""
        if self.per_iteration is None:
            return loop
        count = build.const(self.drawn, _LONG)
        made: Parallel = substitute(loop, {self.per_iteration: count})
        self.drawn, self.per_iteration = 0, None
        return made


def start(seed: Any, sequence: Any, offset: Any) -> None:
    """Give the thread a generator. See `T.rng_init`."""
    builder = in_kernel("T.rng_init")
    _refuse_in_parallel(builder)
    names = ("rng_seed", "rng_sequence")
    parts: list[tuple[Expr, Expr]] = []
    for name, value in zip(names, (seed, sequence), strict=True):
        made, _ = fitting(value, _LONG)
        var = builder.fresh_var(name, _LONG)
        builder.emit(Let(var, made))
        parts.append(_halves(var))
    first, _ = fitting(offset, _LONG)
    position = Buffer(builder.fresh("rng_position"), _LONG, (), "local.var")
    builder.emit(Alloc(position, first))
    binding = builder.bind(position.name, allocated=True)
    builder.random = Generator(parts[0], parts[1], position, binding)


def draw(construct: str, count: int = 1) -> tuple[Value, ...]:
    """The next `count` numbers, each a `uint32` value."""
    builder = in_kernel(construct)
    generator = builder.random
    if generator is None:
        raise TileRuntimeError(
            f"{construct} draws from a generator that has not been started",
            hint="call T.rng_init(seed) at the start of the kernel",
        )
    generator.binding.check()
    inside = builder.enclosing("parallel")
    if inside is not None and any(frame.repeats for frame in builder.frames[inside.depth + 1 :]):
        raise UnsupportedError(
            f"{construct} in a loop inside T.Parallel is not supported",
            hint="make the loop one of the T.Parallel's own extents",
        )
    values = []
    for _ in range(count):
        var = builder.fresh_var("random", _WORD)
        builder.emit(Let(var, generator.number(builder, generator.place(builder))))
        values.append(Value(var, builder.bind(var.name)))
        if inside is None:
            generator.advance(builder, build.const(1, _LONG))
        else:
            builder.parallel[var] = frozenset(name for name, _ in builder.nest)
    return tuple(values)


def leave_parallel(builder: Builder, loop: Parallel) -> None:
    """Emit a T.Parallel that is nested in no other, and step over what it has drawn."""
    generator = builder.random
    if generator is None or not generator.drawn:
        builder.emit(loop)
        return
    drawn: Expr = build.const(generator.drawn, _LONG)
    builder.emit(generator.leave(builder, loop))
    for extent in loop.extents:
        drawn = build.mul(drawn, build.cast(extent, _LONG))
    generator.advance(builder, drawn)


def _iteration(builder: Builder) -> Expr:
    """The row-major number of the current iteration of the T.Parallel nest."""
    number: Expr = build.const(0, _LONG)
    for var, extent in builder.nest:
        number = build.add(build.mul(number, build.cast(extent, _LONG)), build.cast(var, _LONG))
    return number


def _halves(value: Expr) -> tuple[Expr, Expr]:
    """The low and the high 32 bits."""
    high = build.binary("shr", value, build.const(32, _LONG))
    return build.cast(value, _WORD), build.cast(high, _WORD)


def _refuse_in_parallel(builder: Builder) -> None:
    if builder.enclosing("parallel") is not None:
        raise UnsupportedError(
            "T.rng_init inside T.Parallel is not supported",
            hint="start the generator before the loop; its iterations get numbers of their own",
        )
