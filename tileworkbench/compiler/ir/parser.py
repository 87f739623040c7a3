"""Reads back what `printer` prints: `parse(print_program(p))` equals `p` up to sites and notes.

The text is data: it is read with `ast` and never executed.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import CompileError, Span, TileSyntaxError
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const, int_const
from tileworkbench.compiler.ir.expr import Address, Buffer, Const, Expr, Region, Var
from tileworkbench.compiler.ir.forms import FORMS, Form
from tileworkbench.compiler.ir.printer import INFIX
from tileworkbench.compiler.ir.program import Param, Program, Stage
from tileworkbench.compiler.ir.types import BOOL, INT32, DType

_NO_FILE = "<ir>"
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
_ALLOC = {
    "alloc_shared": "shared",
    "alloc_barrier": "shared.barrier",
    "alloc_fragment": "local.fragment",
    "alloc_local": "local",
    "alloc_global": "global",
}


def parse(text: str, file: str = "") -> Program:
    """The program printed as `text`.

    With `file`, what tracebacks and diagnostics know the text by, each statement's site is its
    place in it. Raises `TileSyntaxError` with the place of text that is not IR.
    """
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        column = max((error.offset or 1) - 1, 0)
        raise TileSyntaxError(
            f"the IR text is not valid: {error.msg}",
            Span(file or _NO_FILE, error.lineno or 1, column),
        ) from None
    if len(module.body) != 1 or not isinstance(module.body[0], ast.FunctionDef):
        raise TileSyntaxError("the IR text is not one function", Span(file, 1) if file else None)
    return _Parser(file, text).program(module.body[0])


class _Parser:
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
            return Span(_NO_FILE, line)
        end = line if getattr(node, "body", None) else node.end_lineno
        text = self.lines[line - 1]
        start = self.column(line, node.col_offset)
        stop = self.column(line, node.end_col_offset) if end == node.end_lineno else len(text)
        return Span(self.file, line, start, end, stop)

    def column(self, line: int, offset: int) -> int:
        """A column in characters; `ast` counts bytes."""
        text = self.lines[line - 1]
        return offset if text.isascii() else len(text.encode()[:offset].decode())

    # Program

    def program(self, function: ast.FunctionDef) -> Program:
        with self.placed(function):
            return self.read_program(function)

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

    def read_program(self, function: ast.FunctionDef) -> Program:
        header = self.header(function)
        for name, dtype in header.get("symbols", {}).items():
            self.names[name] = Var(name, DType(dtype))
        symbols = tuple(self.names[name] for name in header.get("symbols", {}))
        outputs = header.get("outputs", [])
        for arg in function.args.args:  # first the scalars: shapes may be written in them
            if isinstance(arg.annotation, ast.Attribute):
                self.param(arg)
        values = [self.param(arg) for arg in function.args.args]
        params = tuple(Param(value, value.name in outputs) for value in values)
        order = [param.name for param in params]
        safe = header.get("safe_values", {})
        return Program(
            function.name,
            params,
            symbols,  # type: ignore[arg-type]
            self.body(function.body),
            Stage(header.get("stage", "tile")),
            header.get("target", ""),
            tuple(order.index(name) for name in header.get("returns", [])),
            tuple(safe.items()),
            header.get("scratch_bytes", 0),
            tuple(header.get("sources", ())),
            tuple(self.sites),
        )

    def header(self, function: ast.FunctionDef) -> dict[str, Any]:
        if (
            len(function.decorator_list) != 1
            or self.called(function.decorator_list[0]) != "program"
        ):
            self.fail(function, "a function decorated with '@T.program(...)'")
        decorator = function.decorator_list[0]
        values: dict[str, Any] = {}
        for keyword in decorator.keywords:  # type: ignore[attr-defined]
            if keyword.arg == "safe_values":
                pairs = zip(keyword.value.keys, keyword.value.values, strict=True)
                values["safe_values"] = {key.value: self.expr(value) for key, value in pairs}
            else:
                values[str(keyword.arg)] = self.literal(keyword.value)
        return values

    def param(self, arg: ast.arg) -> Buffer | Var:
        kind = arg.annotation
        if isinstance(kind, ast.Attribute):
            made: Buffer | Var = Var(arg.arg, DType(kind.attr))
        elif isinstance(kind, ast.Call) and self.called(kind) == "Tensor":
            shape, dtype = kind.args
            made = Buffer(
                arg.arg,
                DType(self.literal(dtype)),
                self.exprs(shape),
                "global",
                (),
                self.layout(kind),
            )
        elif isinstance(kind, ast.Call) and self.called(kind) == "StridedTensor":
            shape, strides, dtype = kind.args
            made = Buffer(
                arg.arg,
                DType(self.literal(dtype)),
                self.exprs(shape),
                "global",
                self.exprs(strides),
                self.layout(kind),
            )
        else:
            self.fail(arg, "a parameter")
        self.names[arg.arg] = made
        return made

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

    # Expressions

    def literal(self, node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except ValueError:
            self.fail(node, "a literal")

    def called(self, node: ast.AST) -> str:
        """`name` of a call `T.name(...)`, else an empty string."""
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            return node.func.attr if node.func.value.id == "T" else ""
        return ""

    def keywords(self, call: ast.Call) -> dict[str, ast.expr]:
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
                return ir.Ramp(self.expr(args[0]), self.expr(args[1]), self.literal(args[2]))
            case "Broadcast":
                return ir.Broadcast(self.expr(args[0]), self.literal(args[1]))
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

    # Statements

    def body(self, nodes: list[ast.stmt]) -> st.Stmt:
        stmts = [self.placed_stmt(node) for node in nodes if not isinstance(node, ast.Pass)]
        return st.seq(stmts)

    def placed_stmt(self, node: ast.stmt) -> st.Stmt:
        with self.placed(node):
            made = self.stmt(node)
        if not self.file:
            return made
        self.sites.append(self.span(node))
        return dataclasses.replace(made, site=len(self.sites) - 1)  # type: ignore[type-var]

    def stmt(self, node: ast.stmt) -> st.Stmt:
        match node:
            case ast.Assign(targets=[target], value=value):
                return self.assign(target, value)
            case ast.Expr(value=ast.Call() as call) if self.called(call):
                return self.operator(self.called(call), call)
            case ast.For():
                return self.loop(node)
            case ast.While(test=test, body=body):
                return st.While(self.expr(test), self.body(body))
            case ast.If(test=test, body=then, orelse=other):
                cond = self.expr(test)
                return st.If(cond, self.body(then), self.body(other) if other else None)
            case ast.With(items=[item], body=body) if self.called(item.context_expr) == "threads":
                start, extent = map(self.literal, item.context_expr.args)  # type: ignore[attr-defined]
                return simt.Role(start, extent, self.body(body))
            case ast.With(items=[item], body=body) if self.called(item.context_expr) == "started":
                engine, *told = item.context_expr.args  # type: ignore[attr-defined]
                barrier = self.address(told[0]) if told else None
                return simt.Start(self.body(body), simt.Engine(self.literal(engine)), barrier)
            case ast.With(items=[item], body=body):
                return self.kernel(item, body)
            case ast.Break():
                return st.Break()
            case ast.Continue():
                return st.Continue()
        self.fail(node, "a statement")

    def assign(self, target: ast.expr, value: ast.expr) -> st.Stmt:
        if isinstance(target, ast.Subscript):
            buffer, indices = self.element(target)
            return st.Store(buffer, indices, self.expr(value))
        if not isinstance(target, ast.Name):
            self.fail(target, "a name")
        kind = self.called(value)
        if kind in _ALLOC or kind == "alloc_var":
            return self.alloc(target.id, kind, value)  # type: ignore[arg-type]
        views = {"view": self.alias, "peer": self.peer, "make_tensor": self.tensor}
        views["tensor_map"] = self.tensor
        if kind in views:
            return views[kind](target.id, value)  # type: ignore[arg-type]
        if kind == "call_extern":
            return self.extern_call(value, target.id)  # type: ignore[arg-type]
        if kind.startswith("atomic_"):
            return self.atomic(kind, value, target.id)  # type: ignore[arg-type]
        if kind in simt.EXCHANGES:
            return self.exchange(target.id, kind, value)  # type: ignore[arg-type]
        bound = self.expr(value)
        var = Var(target.id, bound.dtype)
        self.names[target.id] = var
        return st.Let(var, bound)

    def alloc(self, name: str, kind: str, call: ast.Call) -> st.Stmt:
        if kind == "alloc_var":
            buffer = Buffer(name, DType(self.literal(call.args[0])), (), "local.var")
            init = self.expr(call.args[1]) if len(call.args) > 1 else None
        else:
            dtype, shape = DType(self.literal(call.args[1])), self.exprs(call.args[0])
            buffer = Buffer(name, dtype, shape, _ALLOC[kind], (), self.layout(call))
            init = None
        offset = self.keywords(call).get("offset")
        self.names[name] = buffer
        return st.Alloc(buffer, init, None if offset is None else self.literal(offset))

    def alias(self, name: str, call: ast.Call) -> st.Stmt:
        source = self.name(call.args[0], Buffer)
        dtype, shape = DType(self.literal(call.args[2])), self.exprs(call.args[1])
        buffer = Buffer(name, dtype, shape, source.scope, (), self.layout(call))
        self.names[name] = buffer
        return st.Alias(buffer, source)

    def peer(self, name: str, call: ast.Call) -> st.Stmt:
        source, rank = self.name(call.args[0], Buffer), self.expr(call.args[1])
        buffer = self.names[name] = dataclasses.replace(source, name=name)
        return simt.Peer(buffer, source, rank)

    def tensor(self, name: str, call: ast.Call) -> st.Stmt:
        options, dtype = self.keywords(call), DType(self.literal(call.args[2]))
        steps = self.exprs(options["strides"]) if "strides" in options else ()
        scope = "tensor_map" if "box" in options else "global"
        shape = self.exprs(call.args[1])
        buffer = self.names[name] = Buffer(name, dtype, shape, scope, steps)
        if "box" not in options:
            return st.Pointer(buffer, self.expr(call.args[0]))
        box, swizzle = (self.literal(options[each]) for each in ("box", "swizzle"))
        return simt.TensorMap(buffer, self.name(call.args[0], Buffer), box, swizzle)

    def source_kernel(self, call: ast.Call) -> st.Stmt:
        options = {key: self.literal(value) for key, value in self.keywords(call).items()}
        grid = tuple(map(self.expr, call.args))
        return st.SourceKernel(grid, options["threads"], options["source"], options["entry"])

    def extern_call(self, call: ast.Call, name: str | None = None) -> st.Stmt:
        args = tuple(map(self.expr, call.args[2:]))
        var = None
        if name is not None:
            var = self.names[name] = Var(name, DType(self.literal(call.args[0])))
        return st.ExternCall(self.literal(call.args[1]), args, var)

    def loop(self, node: ast.For) -> st.Stmt:
        kind = self.called(node.iter)
        call = node.iter
        if not isinstance(call, ast.Call) or not kind:
            self.fail(node.iter, "a loop")
        options = self.keywords(call)
        dtype = DType(self.literal(options["dtype"])) if "dtype" in options else INT32
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        bounds = [self.expr(arg) for arg in call.args]
        names = tuple(Var(target.id, dtype) for target in targets if isinstance(target, ast.Name))
        self.names.update({var.name: var for var in names})
        zero, one = int_const(0), int_const(1)
        if kind == "Parallel":
            body = self.body(node.body)
            return tile.Parallel(names, tuple(bounds), body, *self.loop_options(options))
        start, stop = (zero, bounds[0]) if len(bounds) == 1 else bounds[:2]
        if kind == "Pipelined":
            order, stage = (
                tuple(self.literal(options[key])) if key in options else ()
                for key in ("order", "stage")
            )
            return tile.Pipelined(
                names[0],
                start,
                stop,
                self.literal(options["num_stages"]),
                self.body(node.body),
                order,
                stage,
            )
        step = bounds[2] if len(bounds) > 2 else one
        return st.For(names[0], start, stop, step, st.LoopKind(kind), self.body(node.body))

    def kernel(self, item: ast.withitem, body: list[ast.stmt]) -> st.Stmt:
        call = item.context_expr
        if not isinstance(call, ast.Call) or self.called(call) != "Kernel":
            self.fail(call, "'T.Kernel(...)'")
        options = self.keywords(call)
        grid = tuple(self.expr(arg) for arg in call.args)
        bound = item.optional_vars
        targets = bound.elts if isinstance(bound, ast.Tuple) else [] if bound is None else [bound]
        names = tuple(Var(target.id, INT32) for target in targets if isinstance(target, ast.Name))
        self.names.update({var.name: var for var in names})
        threads = self.literal(options["threads"])
        swizzle = self.literal(options["swizzle"]) if "swizzle" in options else None
        threads = threads if isinstance(threads, tuple) else (threads,)
        indices = self.literal(options["thread_vars"]) if "thread_vars" in options else []
        thread_vars = tuple(Var(name, INT32) for name in indices)
        self.names.update({var.name: var for var in thread_vars})
        cluster = self.literal(options["cluster"]) if "cluster" in options else ()
        blocks = self.literal(options["blocks"]) if "blocks" in options else 1
        parts = (names, grid, threads, self.body(body), swizzle, thread_vars, cluster, blocks)
        return st.Kernel(*parts)

    def exchange(self, name: str, kind: str, call: ast.Call) -> st.Stmt:
        options = self.keywords(call)
        args = tuple(map(self.expr, call.args))
        var = Var(name, simt.exchange_dtype(kind, args))
        self.names[name] = var
        width = self.literal(options["width"]) if "width" in options else 32
        mask = self.expr(options["mask"]) if "mask" in options else None
        return simt.Exchange(var, kind, args, width, mask)

    def thread_statement(self, name: str, call: ast.Call) -> st.Stmt:
        kind = simt.NAMES[name]
        children = set(kind.child_fields)
        order = [field.name for field in dataclasses.fields(kind) if field.name in children]  # type: ignore[arg-type]
        values: dict[str, Any] = {
            field: self.operand(value) for field, value in zip(order, call.args, strict=False)
        }
        for field, value in self.keywords(call).items():
            values[field] = self.operand(value) if field in children else self.literal(value)
        if "engine" in values:
            values["engine"] = simt.Engine(values["engine"])
        return kind(**values)

    def operand(self, node: ast.expr) -> Expr | Address:
        return self.address(node) if self.called(node) == "address_of" else self.expr(node)

    def operator(self, name: str, call: ast.Call) -> st.Stmt:
        make: Callable[[ast.Call], st.Stmt] | None = {
            "call_extern": self.extern_call,
            "source_kernel": self.source_kernel,
            "store": self.store,
            "print": self.print_line,
        }.get(name)
        if make is not None:
            return make(call)
        if name in simt.NAMES:
            return self.thread_statement(name, call)
        if name.startswith("atomic_"):
            return self.atomic(name, call)
        stem = "" if name in FORMS else name.rpartition("_")[2]
        form = FORMS.get(name.removesuffix(f"_{stem}"))
        if form is None or bool(form.stem) != bool(stem) or len(call.args) > len(form.arguments):
            self.fail(call, "a statement")
        return self.formed(form, stem, call)

    def formed(self, form: Form, stem: str, call: ast.Call) -> st.Stmt:
        """A statement by the form of its class."""
        types, nodes = form.types(), dict(zip(form.arguments, call.args, strict=False))
        nodes |= {form.options[keyword]: node for keyword, node in self.keywords(call).items()}
        values = {field: self.value(types[field], node) for field, node in nodes.items()}
        if form.stem:
            kind = types[form.stem]
            values[form.stem] = tile.ReduceKind(stem) if kind == "ReduceKind" else stem
        return form.kind(**{**form.defaults(), **values})

    def value(self, kind: str, node: ast.expr) -> Any:
        """The value of a field that is annotated as `kind`."""
        read: dict[str, Callable[[ast.expr], Any]] = {
            "Region": self.region,
            "Address": self.address,
            "Buffer": lambda node: self.name(node, Buffer),
            "Expr": self.expr,
            "Fragment": self.layout_value,
            "WarpPolicy": lambda node: tile.WarpPolicy(self.literal(node)),
        }
        return read.get(kind.removesuffix(" | None"), self.literal)(node)

    def loop_options(self, options: dict[str, ast.expr]) -> tuple[int | None, Any]:
        width, layout = options.get("coalesced_width"), options.get("loop_layout")
        return (
            None if width is None else self.literal(width),
            None if layout is None else self.layout_value(layout),
        )

    def store(self, call: ast.Call) -> st.Stmt:
        buffer, indices = self.element(call.args[0])
        return st.Store(buffer, indices, self.expr(call.args[1]), self.expr(call.args[2]))

    def atomic(self, name: str, call: ast.Call, bound: str = "") -> st.Stmt:
        buffer, indices = self.element(call.args[0])
        value, predicate, safe = (*map(self.expr, call.args[1:]), None, None)[:3]
        kind = st.AtomicKind(name.removeprefix("atomic_"))
        previous = Var(bound, buffer.dtype) if bound else None
        if previous is not None:
            self.names[bound] = previous
        return st.Atomic(kind, buffer, indices, value, previous, predicate, safe)  # type: ignore[arg-type]

    def print_line(self, call: ast.Call) -> st.Stmt:
        parts = tuple(self.literal(part) for part in call.args[::2])
        return st.Print(parts, tuple(map(self.expr, call.args[1::2])))
