"""Expressions of the printed IR: read with `ast`, never executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import CompileError, Span, TileSyntaxError
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.build import const, int_const
from tileworkbench.compiler.ir.calls import takes
from tileworkbench.compiler.ir.expr import Address, Buffer, Const, Expr, Region, Var
from tileworkbench.compiler.ir.printer import INFIX
from tileworkbench.compiler.ir.types import BOOL, INT32, DType

NO_FILE = "<ir>"  # of text that is in no file
_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_UNARY: dict[type[ast.unaryop], str] = {ast.Not: "not", ast.USub: "neg", ast.Invert: "bitnot"}
_CALLED_BINARY = tuple(op for op in (*ir.ARITHMETIC, *ir.BITWISE) if op not in INFIX)


class ExpressionParser:
    """Holds the names in scope; every method turns one kind of syntax node into IR."""

    def __init__(self, file: str, text: str) -> None:
        self.names: dict[str, Var | Buffer] = {}
        self.file = file
        self.lines = text.splitlines()
        self.sites: list[Span | None] = [None]

    def fail(self, node: ast.AST, expected: str) -> NoReturn:
        text = ast.unparse(node)
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise TileSyntaxError(f"'{shown}' is not {expected}", self.span(node))

    def span(self, node: Any) -> Span:
        """The place of a syntax node, of a statement with a body its first line."""
        line = getattr(node, "lineno", 1)
        if not self.file:
            return Span(NO_FILE, line)
        end = line if getattr(node, "body", None) else node.end_lineno
        text = self.lines[line - 1]
        start = self.column(line, node.col_offset)
        stop = self.column(line, node.end_col_offset) if end == node.end_lineno else len(text)
        return Span(self.file, line, start, end, stop)

    def column(self, line: int, offset: int) -> int:
        """A column in characters; `ast` counts bytes."""
        text = self.lines[line - 1]
        return offset if text.isascii() else len(text.encode()[:offset].decode())

    @contextmanager
    def placed(self, node: ast.AST) -> Iterator[None]:
        """Give errors of types, of values and of missing operands the place of `node`."""
        try:
            yield
        except CompileError as error:
            error.span = error.span or self.span(node)
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            # What a well-formed call would have had: an operand, an option, a name.
            self.fail(node, "well-formed IR")

    # Expressions

    def literal(self, node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except ValueError:
            self.fail(node, "a literal")

    def lanes(self, node: ast.expr) -> int:
        """The number of elements of a vector."""
        lanes = self.literal(node)
        if not isinstance(lanes, int) or lanes < 1:
            self.fail(node, "a number of lanes")
        return lanes

    def called(self, node: ast.AST) -> str:
        """`name` of a call `T.name(...)`, else an empty string."""
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            return node.func.attr if node.func.value.id == "T" else ""
        return ""

    def check_calls(self, node: ast.AST) -> None:
        """Raise for the first call of the text that has what such a call does not take."""
        calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
        for call in sorted(calls, key=lambda each: (each.lineno, each.col_offset)):
            if name := self.called(call):
                self.check_call(name, call)

    def check_call(self, name: str, call: ast.Call) -> None:
        most, known = takes(name)
        for keyword in call.keywords:
            if keyword.arg not in known:
                self.unknown(name, keyword, known)
        if most is not None and len(call.args) > most:
            count = f"{most or 'no'} argument{'s' * (most != 1)}"
            raise TileSyntaxError(
                f"'T.{name}' takes {count}, not {len(call.args)}", self.span(call.args[most])
            )

    def unknown(self, name: str, keyword: ast.keyword, known: tuple[str, ...]) -> NoReturn:
        """Raise for a keyword that a call does not take."""
        given = keyword.arg or "**"
        near = get_close_matches(given, known, 1)
        listed = ", ".join(f"'{each}'" for each in known) or "no keywords"
        hint = f"did you mean '{near[0]}'?" if near else f"it takes {listed}"
        raise TileSyntaxError(f"'T.{name}' has no keyword '{given}'", self.span(keyword), hint=hint)

    def keywords(self, call: ast.Call) -> dict[str, ast.expr]:
        """The keyword arguments of a call."""
        return {str(keyword.arg): keyword.value for keyword in call.keywords}

    def exprs(self, node: ast.expr) -> tuple[Expr, ...]:
        elements = node.elts if isinstance(node, ast.Tuple) else [node]
        return tuple(self.expr(element) for element in elements)

    def name(self, node: ast.AST, kind: type[Any]) -> Any:
        value = self.names.get(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(value, kind):
            self.fail(node, "a known buffer" if kind is Buffer else "a known variable")
        return value

    def expr(self, node: ast.expr) -> Expr:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return self.number(value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return self.number(-value)
            case ast.Name():
                return self.name(node, Var)  # type: ignore[no-any-return]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self.binary(_BINARY[type(op)], self.expr(left), self.expr(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.binary(_COMPARE[type(op)], self.expr(left), self.expr(right))
            case ast.BoolOp(op=op, values=values):
                return self.bool_op(
                    "logical_and" if isinstance(op, ast.And) else "logical_or", values
                )
            case ast.UnaryOp(op=op, operand=operand):
                inner = self.expr(operand)
                return ir.Unary(_UNARY[type(op)], inner, inner.dtype)
            case ast.IfExp(test=test, body=then, orelse=other):
                return self.select(self.expr(test), self.expr(then), self.expr(other), True)
            case ast.Subscript():
                return ir.Load(*self.element(node))
            case ast.Call() if self.called(node):
                return self.call(self.called(node), node)
        self.fail(node, "an expression")

    def number(self, value: bool | int | float) -> Const:
        if isinstance(value, bool):
            return const(value, BOOL)
        return const(value, INT32 if isinstance(value, int) else DType("float32"))

    def binary(self, op: str, a: Expr, b: Expr) -> Expr:
        compared = op in ir.COMPARISONS or op in ir.LOGICAL
        return ir.Binary(op, a, b, BOOL.with_lanes(a.dtype.lanes) if compared else a.dtype)

    def bool_op(self, op: str, values: list[ast.expr]) -> Expr:
        # Python flattens `a and b and c`; the printer writes a left-nested chain without
        # parentheses.
        result = self.expr(values[0])
        for value in values[1:]:
            result = self.binary(op, result, self.expr(value))
        return result

    def select(self, cond: Expr, then: Expr, other: Expr, lazy: bool) -> Expr:
        lanes = max(cond.dtype.lanes, then.dtype.lanes)
        return ir.Select(cond, then, other, lazy, then.dtype.with_lanes(lanes))

    def element(self, node: ast.expr) -> tuple[Buffer, tuple[Expr, ...]]:
        if not isinstance(node, ast.Subscript):
            self.fail(node, "an element")
        return self.name(node.value, Buffer), self.exprs(node.slice)

    def call(self, name: str, node: ast.Call) -> Expr:
        args = node.args
        if name in _CALLED_BINARY:
            return self.binary(name, self.expr(args[0]), self.expr(args[1]))
        if name in ir.UNARY:
            value = self.expr(args[0])
            return ir.Unary(name, value, value.dtype)
        if name in ir.INTRINSICS:
            return self.intrinsic(name, self.exprs(ast.Tuple(args)))
        match name:
            case "Select":
                cond, then, other = map(self.expr, args)
                return self.select(cond, then, other, False)
            case "cast":
                return ir.Cast(self.expr(args[0]), DType(self.literal(args[1])))
            case "reinterpret":
                return ir.Reinterpret(self.expr(args[0]), DType(self.literal(args[1])))
            case "Ramp":
                return ir.Ramp(self.expr(args[0]), self.expr(args[1]), self.lanes(args[2]))
            case "Broadcast":
                return ir.Broadcast(self.expr(args[0]), self.lanes(args[1]))
            case "address_of":
                return ir.AddressOf(*self.element(args[0]))
            case "load":
                safe = self.expr(args[2]) if len(args) > 2 else None
                return ir.Load(*self.element(args[0]), self.expr(args[1]), safe)
        return self.typed(name, node)

    def intrinsic(self, name: str, args: tuple[Expr, ...]) -> Expr:
        dtype = args[0].dtype
        if name.startswith("lanes_"):
            dtype = dtype.scalar
        elif name == "lane_at":
            dtype = dtype.scalar.with_lanes(args[1].dtype.lanes)
        elif name == "lookup":
            dtype = args[1].dtype.with_lanes(dtype.lanes)
        elif name in ("isnan", "isinf"):
            dtype = BOOL.with_lanes(dtype.lanes)
        return ir.Call(name, args, dtype)

    def typed(self, name: str, node: ast.Call) -> Expr:
        """`T.float16(1.5)` is a constant, `T.float16(x)` a cast."""
        try:
            dtype = DType(name)
        except TypeError:
            self.fail(node, "an expression")
        argument = node.args[0]
        try:
            value = ast.literal_eval(argument)
        except ValueError:
            return ir.Cast(self.expr(argument), dtype)
        return const(float(value) if isinstance(value, str) else value, dtype)

    def region(self, node: ast.expr) -> Region:
        if isinstance(node, ast.Name):
            buffer = self.name(node, Buffer)
            return Region(buffer, (int_const(0),) * len(buffer.shape), buffer.shape)
        if not isinstance(node, ast.Subscript):
            self.fail(node, "a region")
        slices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        pairs = [self.slice(item) for item in slices]
        return Region(
            self.name(node.value, Buffer), tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
        )

    def slice(self, node: ast.expr) -> tuple[Expr, Expr]:
        if not isinstance(node, ast.Slice) or node.lower is None or node.upper is None:
            self.fail(node, "a slice 'start:stop'")
        low, high = self.expr(node.lower), self.expr(node.upper)
        if isinstance(low, Const) and isinstance(high, Const):
            return low, const(high.value - low.value, low.dtype)
        if low is int_const(0):
            return low, high
        if isinstance(high, ir.Binary) and high.op == "add" and high.a is low:
            return low, high.b
        self.fail(node, "a slice 'start:start + extent'")

    def address(self, node: ast.expr) -> Address:
        if self.called(node) != "address_of":
            self.fail(node, "an address")
        return Address(*self.element(node.args[0]))  # type: ignore[attr-defined]

    # Layouts

    def layout(self, call: ast.Call) -> Any:
        node = self.keywords(call).get("layout")
        return None if node is None else self.layout_value(node)

    def layout_value(self, node: ast.expr) -> Any:
        from tileworkbench.compiler.layout import Fragment, Layout

        text = ast.unparse(node)
        return (
            Fragment.from_text(text)
            if "Fragment" in text.split("(", 1)[0]
            else Layout.from_text(text)
        )
