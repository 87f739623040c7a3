"""Random tile programs that are right by construction: in range, without races, fully initialised.

Every float stays a small integer (each stored value is clamped to [-8, 8]), so that all orders of
evaluation and all widths give the same bits, and results can be compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as hs

from tileworkbench.compiler.ir import build, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import add, binary, cast, const, int_const, mul, sub
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Region, Var
from tileworkbench.compiler.ir.program import Param, Program
from tileworkbench.compiler.ir.types import INT32, DType

FLOATS = ("float32", "float16", "bfloat16", "float64")
# No unsigned tile or output: a negative float has no value there.
SMALL_FLOATS = ("float8_e4m3fn", "float8_e5m2")  # of tiles; loaded as float32
INTEGERS = ("int32", "int8", "int64")
UNSIGNED = ("uint8", "uint32")
PRODUCTS = (
    ("float32", "float32"),
    ("float16", "float32"),
    ("int8", "int32"),
    ("float64", "float64"),
)
LIMIT = 8


@dataclass(frozen=True)
class Sample:
    """A program and the arguments to run it on."""

    program: Program
    arguments: dict[str, Any]


@hs.composite
def samples(draw: Callable[..., Any]) -> Sample:
    """A random program with arguments for it."""
    return _Writer(draw).sample()


class _Writer:
    """Writes one program, drawing every choice."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw
        self.count = 0
        sizes = [(4, 8), (3, 5), (8, 16), (1, 33), (16, 1), (16, 32), (32, 16)]
        self.rows, self.cols = draw(hs.sampled_from(sizes))
        self.shape = (self.integer(1, 2 * self.rows + 1), self.integer(1, 2 * self.cols + 1))
        self.bx, self.by = Var("bx", INT32), Var("by", INT32)
        self.n = Var("n", INT32)
        self.dynamic = draw(hs.booleans())
        self.symbols = (Var("m", INT32), Var("k", INT32)) if self.dynamic else ()
        self.inputs = [self.tensor("A", UNSIGNED), self.tensor("B", UNSIGNED)]
        self.outputs: list[Buffer] = []
        self.tiles: list[Buffer] = []

    # Choices

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(hs.integers(low, high)))

    def choose(self, options: Any) -> Any:
        return self.draw(hs.sampled_from(options))

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    # Pieces

    def extents(self) -> tuple[Expr, ...]:
        return self.symbols or tuple(map(int_const, self.shape))

    def tensor(self, name: str, more: tuple[str, ...]) -> Buffer:
        return Buffer(name, DType(self.choose(FLOATS + INTEGERS + more)), self.extents(), "global")

    def new_tile(self, shape: tuple[int, ...], dtype: str | None = None) -> Buffer:
        scope = self.choose(["shared", "local.fragment"])
        element = DType(dtype or self.choose(FLOATS + INTEGERS + SMALL_FLOATS))
        return Buffer(self.name("tile"), element, tuple(map(int_const, shape)), scope)

    def block_region(self, buffer: Buffer, shift: tuple[int, int] = (0, 0)) -> Region:
        mins = (
            add(mul(self.by, int_const(self.rows)), int_const(shift[0])),
            add(mul(self.bx, int_const(self.cols)), int_const(shift[1])),
        )
        return Region(buffer, mins, (int_const(self.rows), int_const(self.cols)))

    @staticmethod
    def whole(buffer: Buffer) -> Region:
        return Region(buffer, tuple(int_const(0) for _ in buffer.shape), buffer.shape)

    # Statements

    def sample(self) -> Sample:
        body: list[st.Stmt] = []
        for _ in range(self.integer(1, 3)):
            made = self.new_tile((self.rows, self.cols))
            body += [st.Alloc(made), self.initialise(made)]
            self.tiles.append(made)
        for _ in range(self.integer(1, 4)):
            body.append(self.statement(2))
        for number, made in enumerate(self.tiles):
            self.outputs.append(self.tensor(f"Out{number}", ()))
            body.append(tile.Copy(self.whole(made), self.block_region(self.outputs[-1])))
        grid = tuple(
            build.ceildiv(extent, int_const(size))
            for extent, size in zip(self.extents(), (self.rows, self.cols), strict=True)
        )
        kernel = st.Kernel((self.bx, self.by), (grid[1], grid[0]), (128,), st.seq(body))
        params = tuple(map(Param, (*self.inputs, *self.outputs, self.n)))
        program = Program("sample", params, self.symbols, kernel)
        return Sample(program, self.arguments())

    def arguments(self) -> dict[str, Any]:
        rng = np.random.default_rng(self.integer(0, 2**16))
        made: dict[str, Any] = {"n": self.integer(-2, 5)}
        for buffer in (*self.inputs, *self.outputs):
            name = str(buffer.dtype)
            storage = np.dtype(getattr(ml_dtypes, name, None) or name)
            low = 0 if name in UNSIGNED else -LIMIT
            made[buffer.name] = rng.integers(low, LIMIT + 1, self.shape).astype(storage)
        return made

    def initialise(self, made: Buffer) -> st.Stmt:
        if self.integer(0, 3) == 0:
            return tile.Fill(self.whole(made), const(self.integer(0, LIMIT), made.dtype))
        shift = (self.integer(-2, 2), self.integer(-2, 2))
        source = self.choose(self.inputs)
        return tile.Copy(self.block_region(source, shift), self.whole(made))

    def statement(self, depth: int) -> st.Stmt:
        kinds = [self.parallel, self.region_copy, self.fill, self.scan, self.reduce, self.product]
        kinds += [self.through_a_view, self.pipeline]
        kind = self.integer(0, len(kinds) + (2 if depth else 0) - 1)
        if kind < len(kinds):
            return kinds[kind]()
        if kind == len(kinds):
            var = Var(self.name("k"), INT32)
            bounds = (int_const(0), int_const(self.integer(0, 3)), int_const(1))
            if self.choose([True, False]):
                return tile.Pipelined(var, *bounds[:2], 2, self.statement(depth - 1))
            return st.For(var, *bounds, st.LoopKind.SERIAL, self.statement(depth - 1))
        cond = self.choose([self.block_condition, self.tile_condition])()
        orelse = self.statement(depth - 1) if self.choose([True, False]) else None
        return st.If(cond, self.statement(depth - 1), orelse)

    def block_condition(self) -> Expr:
        value = self.choose([self.bx, self.by, self.n])
        return binary(self.choose(["lt", "eq", "ge"]), value, int_const(self.integer(0, 2)))

    def tile_condition(self) -> Expr:
        """A condition on an element of a tile, which the branches may write."""
        tile_ = self.choose(self.tiles)
        place = (self.integer(0, self.rows - 1), self.integer(0, self.cols - 1))
        value = self.load(tile_, tuple(map(int_const, place)))
        return binary(self.choose(["lt", "ge"]), value, const(self.integer(0, 3), value.dtype))

    @staticmethod
    def load(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """An element; a small float as float32."""
        found = Load(buffer, indices)
        return cast(found, "float32") if str(buffer.dtype) in SMALL_FLOATS else found

    def through_a_view(self) -> st.Stmt:
        """The elements of a tile, backwards through a flat view, into another one."""
        source, target = self.choose(self.tiles), self.choose(self.tiles)
        if source.scope != "shared" or source is target:
            return self.parallel()
        size = self.rows * self.cols
        flat = Buffer(self.name("view"), source.dtype, (int_const(size),), "shared")
        i, j = Var(self.name("i"), INT32), Var(self.name("j"), INT32)
        at = sub(int_const(size - 1), add(mul(i, int_const(self.cols)), j))
        value = self.clamped(self.load(flat, (at,)), target)
        nest = tile.Parallel((i, j), target.shape, st.Store(target, (i, j), value))
        return st.seq([st.Alias(flat, source), nest])

    def pipeline(self) -> st.Stmt:
        """A loop whose copies may run ahead of its work, which may depend on a condition."""
        var, target = Var(self.name("k"), INT32), self.choose(self.tiles)
        body: list[st.Stmt] = []
        copied: list[Buffer] = []
        for _ in range(self.integer(1, 2)):
            copied.append(replace(self.new_tile((self.rows, self.cols)), scope="shared"))
            region = self.block_region(self.choose(self.inputs), (self.integer(-1, 1), 0))
            moved = (add(region.mins[0], mul(var, int_const(self.integer(0, 2)))), region.mins[1])
            source = Region(region.buffer, moved, region.extents)
            body.append(tile.Copy(source, self.whole(copied[-1])))
        for made in copied:
            i, j = Var(self.name("i"), INT32), Var(self.name("j"), INT32)
            turned = (sub(int_const(self.rows - 1), i), self.choose([j, int_const(0)]))
            value = binary("add", self.load(made, turned), self.load(target, (i, j)))
            store = st.Store(target, (i, j), self.clamped(value, target))
            work: st.Stmt = tile.Parallel((i, j), target.shape, store)
            kind = self.integer(0, 3)
            if kind == 1:
                work = st.If(binary("lt", var, int_const(self.integer(1, 3))), work)
            elif kind == 2:
                first = self.load(made, (int_const(0), int_const(0)))
                work = st.If(binary("ge", first, const(1, first.dtype)), work)
            elif kind == 3:
                work = st.If(self.block_condition(), work)
            body.append(work)
        stop = self.choose([int_const(self.integer(0, 5)), self.n])
        loop = tile.Pipelined(var, int_const(0), stop, self.integer(1, 4), st.seq(body))
        return st.seq([*map(st.Alloc, copied), loop])

    def parallel(self) -> st.Stmt:
        """`target[i, j] = ...`, from its own old value, other tiles, inputs and the indices."""
        target = self.choose(self.tiles)
        i, j = Var(self.name("i"), INT32), Var(self.name("j"), INT32)
        store: st.Stmt = st.Store(target, (i, j), self.clamped(self.value(target, i, j, 3), target))
        shape = self.integer(0, 3)
        if shape == 1:
            store = st.If(self.lane_condition(i, j), store)
        elif shape == 2:
            var = Var(self.name("k"), INT32)
            stop = binary("floormod", i, int_const(3))
            store = st.For(var, int_const(0), stop, int_const(1), st.LoopKind.SERIAL, store)
        elif shape == 3:
            store = self.through_a_name(target, i, j)
        return tile.Parallel((i, j), target.shape, store)

    def through_a_name(self, target: Buffer, i: Var, j: Var) -> st.Stmt:
        value = self.clamped(self.value(target, i, j, 2), target)
        var = Var(self.name("x"), value.dtype)
        again = binary("max", var, self.load(target, (i, j)))
        return st.seq([st.Let(var, value), st.Store(target, (i, j), self.clamped(again, target))])

    def lane_condition(self, i: Var, j: Var) -> Expr:
        """A condition that differs from one iteration to the next."""
        mixed = add(mul(i, int_const(self.integer(0, 2))), j)
        rest = binary("floormod", mixed, int_const(self.integer(2, 4)))
        return binary(self.choose(["eq", "lt", "ne"]), rest, int_const(1))

    def clamped(self, value: Expr, target: Buffer) -> Expr:
        """`value` in the target's dtype; floats are kept small."""
        if value.dtype.is_float:
            low, high = const(-LIMIT, value.dtype), const(LIMIT, value.dtype)
            value = binary("min", binary("max", value, low), high)
        elif target.dtype.is_float:
            value = binary("floormod", value, const(LIMIT, value.dtype))
        return cast(value, target.dtype)

    def value(self, target: Buffer, i: Var, j: Var, depth: int) -> Expr:
        kind = self.integer(0, 6) if depth else self.integer(0, 2)
        if kind == 0:
            return self.load(target, (i, j))
        if kind == 1:
            return self.elsewhere(target, i, j)
        if kind == 2:
            return self.choose([i, j, self.n, const(self.integer(-3, 3), INT32)])
        a = self.value(target, i, j, depth - 1)
        b = self.value(target, i, j, depth - 1)
        if kind == 3:
            return build.select(self.lane_condition(i, j), a, b)
        if kind == 4:
            return self.division(a)
        op = self.choose(["add", "sub", "min", "max", "mul"])
        if op == "mul":  # keeps floats small
            b = const(self.integer(-2, 2) if a.dtype.is_signed else 2, a.dtype)
        return binary(op, a, b)

    def division(self, a: Expr) -> Expr:
        """A quotient, rest or bit operation of integers; the negation of floats."""
        if not a.dtype.is_int:
            return build.unary("neg", a)
        op = self.choose(["floordiv", "floormod", "truncdiv", "truncmod", "xor", "and", "shr"])
        return binary(op, a, const(self.integer(1, 5), a.dtype))

    def elsewhere(self, target: Buffer, i: Var, j: Var) -> Expr:
        """An element of another tile, or of an input, which may lie outside."""
        source = self.choose([*self.tiles, *self.inputs])
        if source is target:
            return self.load(target, (i, j))
        if source.scope != "global":
            turned = (sub(int_const(self.rows - 1), i), sub(int_const(self.cols - 1), j))
            places = [(i, j), turned, (turned[0], j), (i, int_const(0))]
            return self.load(source, self.choose(places))
        corner = self.block_region(source, (self.integer(-2, 2), self.integer(-2, 2))).mins
        return self.load(source, (add(corner[0], i), add(corner[1], j)))

    def region_copy(self) -> st.Stmt:
        target = self.choose(self.tiles)
        height, width = self.integer(1, self.rows), self.integer(1, self.cols)
        low = (self.integer(0, self.rows - height), self.integer(0, self.cols - width))
        extents = (int_const(height), int_const(width))
        dst = Region(target, tuple(map(int_const, low)), extents)
        same = [found for found in self.tiles if found is not target]
        source = self.choose([*self.inputs, *same])
        if source.dtype.is_int and target.dtype.is_float and source.scope != "global":
            source = self.inputs[0]  # a tile of integers may hold any value
        start = tuple(map(int_const, low))
        if source.scope == "global":
            start = self.block_region(source, (self.integer(-1, 3), self.integer(-1, 3))).mins
        return tile.Copy(Region(source, start, extents), dst)

    def fill(self) -> st.Stmt:
        target = self.choose(self.tiles)
        row = self.integer(0, self.rows - 1)
        region = Region(target, (int_const(row), int_const(0)), (int_const(1), target.shape[1]))
        return tile.Fill(region, const(self.integer(0, LIMIT), target.dtype))

    def scan(self) -> st.Stmt:
        target = self.choose(self.tiles)
        if str(target.dtype) in SMALL_FLOATS:
            return self.fill()
        kind = tile.ReduceKind.MAX
        if target.dtype.is_int:
            kind = self.choose([tile.ReduceKind.SUM, tile.ReduceKind.MAX])
        region = self.whole(target)
        return tile.Scan(kind, region, region, self.integer(0, 1), self.choose([True, False]))

    def reduce(self) -> st.Stmt:
        """A reduction, and a loop that takes its result back into the tile."""
        target, dim = self.choose(self.tiles), self.integer(0, 1)
        if str(target.dtype) in SMALL_FLOATS:
            return self.parallel()
        kinds = [tile.ReduceKind.SUM, tile.ReduceKind.MAX, tile.ReduceKind.MIN]
        if target.dtype.is_int:
            kinds += [tile.ReduceKind.BITXOR, tile.ReduceKind.BITOR, tile.ReduceKind.BITAND]
        else:
            kinds += [tile.ReduceKind.ABSMAX, tile.ReduceKind.ABSSUM]
        kept = (self.rows, self.cols)[1 - dim]
        result = self.new_tile((kept,), str(target.dtype))
        i, j = Var(self.name("i"), INT32), Var(self.name("j"), INT32)
        clear = self.choose([True, False])
        found = binary("sub", Load(target, (i, j)), Load(result, ((i, j)[1 - dim],)))
        store = st.Store(target, (i, j), self.clamped(found, target))
        return st.seq([
            st.Alloc(result),
            tile.Fill(self.whole(result), const(1, result.dtype)),
            tile.Reduce(self.choose(kinds), target, result, dim, clear),
            tile.Parallel((i, j), target.shape, store),
        ])  # fmt: skip

    def product(self) -> st.Stmt:
        """`c += a @ b` of small matrices of ones and twos, and its corner into the tile."""
        target = self.choose(self.tiles)
        operand, result = self.choose(PRODUCTS)
        depth, transposed = (
            self.choose([*range(1, 10), 16, 32]),
            (self.choose([False, True]), self.choose([False, True])),
        )
        a = self.new_tile((depth, self.rows) if transposed[0] else (self.rows, depth), operand)
        b = self.new_tile((self.cols, depth) if transposed[1] else (depth, self.cols), operand)
        c = Buffer(self.name("tile"), DType(result), target.shape, "local.fragment")
        i, j = Var(self.name("i"), INT32), Var(self.name("j"), INT32)
        value = self.clamped(
            cast(binary("add", Load(c, (i, j)), self.load(target, (i, j))), result), target
        )
        clear = self.choose([build.TRUE, build.FALSE, self.block_condition()])
        return st.seq([
            *map(st.Alloc, (a, b, c)),
            self.pattern(a),
            self.pattern(b),
            tile.Fill(self.whole(c), const(3, c.dtype)),
            tile.Gemm(self.whole(a), self.whole(b), self.whole(c), *transposed, clear),
            tile.Parallel((i, j), target.shape, st.Store(target, (i, j), value)),
        ])  # fmt: skip

    def pattern(self, buffer: Buffer) -> st.Stmt:
        """Every element of `buffer` becomes one of -1, 0, 1 by its place."""
        i, j = Var(self.name("i"), INT32), Var(self.name("j"), INT32)
        mixed = add(mul(i, int_const(self.integer(1, 3))), mul(j, int_const(self.integer(1, 3))))
        value = sub(binary("floormod", mixed, int_const(3)), int_const(1))
        store = st.Store(buffer, (i, j), cast(value, buffer.dtype))
        return tile.Parallel((i, j), buffer.shape, store)
