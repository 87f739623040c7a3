"""Reads back what `printer` prints: `parse(print_program(p))` equals `p` up to sites and notes.

The text is data: it is read with `ast` and never executed.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable
from typing import Any

from tileworkbench.compiler.diagnostics import Span, TileSyntaxError
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Var
from tileworkbench.compiler.ir.forms import FORMS, Form
from tileworkbench.compiler.ir.parser_expressions import NO_FILE, ExpressionParser
from tileworkbench.compiler.ir.program import Param, Program, Stage
from tileworkbench.compiler.ir.types import INT32, DType

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
            Span(file or NO_FILE, error.lineno or 1, column),
        ) from None
    if len(module.body) != 1 or not isinstance(module.body[0], ast.FunctionDef):
        raise TileSyntaxError("the IR text is not one function", Span(file, 1) if file else None)
    return _Parser(file, text).program(module.body[0])


class _Parser(ExpressionParser):
    """Reads programs and their statements."""

    # Program

    def program(self, function: ast.FunctionDef) -> Program:
        with self.placed(function):
            self.check_calls(function)
            return self.read_program(function)

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
            case ast.For(orelse=[]):
                return self.loop(node)
            case ast.While(test=test, body=body, orelse=[]):
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
            # As T writes it, or as the printer does.
            given = [*call.args[1:], *self.keywords(call).values()]
            buffer = Buffer(name, DType(self.literal(call.args[0])), (), "local.var")
            init = self.expr(given[0]) if given else None
            self.names[name] = buffer
            return st.Alloc(buffer, init)
        dtype, shape = DType(self.literal(call.args[1])), self.exprs(call.args[0])
        buffer = Buffer(name, dtype, shape, _ALLOC[kind], (), self.layout(call))
        offset = self.keywords(call).get("offset")
        self.names[name] = buffer
        return st.Alloc(buffer, None, None if offset is None else self.literal(offset))

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
        options = self.keywords(call)
        dtype = DType(self.literal(call.args[2]))
        steps = self.exprs(options["strides"]) if "strides" in options else ()
        scope = "tensor_map" if "box" in options else "global"
        shape = self.exprs(call.args[1])
        buffer = self.names[name] = Buffer(name, dtype, shape, scope, steps)
        if "box" not in options:
            return st.Pointer(buffer, self.expr(call.args[0]))
        box, swizzle = (self.literal(options[each]) for each in ("box", "swizzle"))
        return simt.TensorMap(buffer, self.name(call.args[0], Buffer), tuple(box), swizzle)

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
        if form is None or bool(form.stem) != bool(stem):
            self.fail(call, "a statement")
        return self.formed(form, stem, call)

    def formed(self, form: Form, stem: str, call: ast.Call) -> st.Stmt:
        """A statement by the form of its class."""
        types, nodes = form.types(), dict(zip(form.arguments, call.args, strict=False))
        options = self.keywords(call)
        nodes |= {form.options[keyword]: node for keyword, node in options.items()}
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
        values = tuple(map(self.expr, call.args[1::2]))
        loops = self.keywords(call).get("loops", ast.Dict([], []))
        if not isinstance(loops, ast.Dict):
            self.fail(loops, "the loops by name, {'k': k}")
        names = tuple(map(self.literal, filter(None, loops.keys)))
        return st.Print(parts, values, names, tuple(map(self.expr, loops.values)))
