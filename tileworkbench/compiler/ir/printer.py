"""IR as text that reads like the kernel the user wrote. `parser.parse` reads it back.

The text is Python syntax. `print_lines` keeps the site of each line, so that a view can link it to
the source.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Buffer, Const, Expr
from tileworkbench.compiler.ir.forms import FORM_OF
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Param, Program

INFIX = {
    "logical_or": ("or", 1),
    "logical_and": ("and", 2),
    **{
        op: (text, 4)
        for op, text in zip(ir.COMPARISONS, ("==", "!=", "<", "<=", ">", ">="), strict=True)
    },
    "or": ("|", 5),
    "xor": ("^", 6),
    "and": ("&", 7),
    "shl": ("<<", 8),
    "shr": (">>", 8),
    "add": ("+", 9),
    "sub": ("-", 9),
    "mul": ("*", 10),
    "div": ("/", 10),
    "floordiv": ("//", 10),
    "floormod": ("%", 10),
}
_TERNARY, _NOT, _NEGATE, _ATOM = 0, 3, 11, 12
_ALLOC = {
    "shared": "alloc_shared",
    "shared.barrier": "alloc_barrier",
    "local.fragment": "alloc_fragment",
    "local": "alloc_local",
    "global": "alloc_global",
}
_THREAD_STATEMENTS = {kind: name for name, kind in simt.NAMES.items()}
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class Line:
    """One printed line and the site of the statement it belongs to (0 for none)."""

    text: str
    site: int


def print_expr(value: Expr) -> str:
    """One expression as text."""
    return _expr(value, _TERNARY)


def print_program(program: Program) -> str:
    """The whole program as text, ending in a newline."""
    return "".join(f"{line.text}\n" for line in print_lines(program))


def print_node(node: Node) -> str:
    """Any node as text."""
    match node:
        case Program():
            return print_program(node)
        case st.Stmt():
            return print_stmt(node)
        case ir.Region():
            return print_region(node)
        case ir.Address():
            return _address(node)
        case Buffer():
            return node.name
        case Expr():
            return print_expr(node)
    raise TypeError(f"no text for {type(node).__name__}")


def print_stmt(stmt: st.Stmt) -> str:
    """One statement as text, without a final newline."""
    lines: list[Line] = []
    _print(stmt, 0, lines)
    return "\n".join(line.text for line in lines)


def print_head(stmt: st.Stmt) -> str:
    """The first line of a statement, without what it holds."""

    def emptied(child: Any) -> Any:
        return st.Seq(()) if isinstance(child, st.Stmt) else child

    return print_stmt(stmt.map_children(emptied)).split("\n", 1)[0]


def print_lines(program: Program) -> list[Line]:
    """The whole program, line by line."""
    lines = [Line(f"@T.program({_header(program)})", 0), Line(f"def {program.name}(", 0)]
    lines += [Line(f"{_INDENT}{_param(param)},", 0) for param in program.params]
    lines.append(Line("):", 0))
    _print(program.body, 1, lines)
    return lines


def _header(program: Program) -> str:
    parts = [f'stage="{program.stage}"']
    if program.target:
        parts.append(f'target="{program.target}"')
    if program.symbols:
        parts.append(
            f"symbols={_table([(var.name, _quoted(var.dtype)) for var in program.symbols])}"
        )
    outputs = [param.name for param in program.params if param.output]
    if outputs:
        parts.append(f"outputs={_names(outputs)}")
    if program.returns:
        parts.append(f"returns={_names([program.params[i].name for i in program.returns])}")
    if program.safe_values:
        parts.append(
            f"safe_values={_table([(name, print_expr(v)) for name, v in program.safe_values])}"
        )
    if program.scratch_bytes:
        parts.append(f"scratch_bytes={program.scratch_bytes}")
    if program.sources:
        parts.append(f"sources={list(program.sources)!r}")
    return ", ".join(parts)


def _quoted(text: str) -> str:
    return f'"{text}"'


def _names(names: list[str]) -> str:
    return f"[{', '.join(map(_quoted, names))}]"


def _table(rows: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f'"{name}": {text}' for name, text in rows) + "}"


def _param(param: Param) -> str:
    value = param.value
    if not isinstance(value, Buffer):
        return f"{value.name}: T.{value.dtype}"
    if value.strides:
        sizes = f"{show_shape(value.shape)}, {show_shape(value.strides)}"
        return f'{value.name}: T.StridedTensor({sizes}, "{value.dtype}"{_layout(value)})'
    return f'{value.name}: T.Tensor({show_shape(value.shape)}, "{value.dtype}"{_layout(value)})'


def _layout(buffer: Buffer) -> str:
    return "" if buffer.layout is None else f", layout={buffer.layout.to_text()}"


def show_shape(values: tuple[Expr, ...]) -> str:
    """Extents or strides, as Python writes a tuple."""
    inner = ", ".join(print_expr(value) for value in values)
    return f"({inner},)" if len(values) == 1 else f"({inner})"


# Expressions


def _expr(value: Expr, level: int) -> str:
    """`value` as text, in parentheses when it binds more loosely than `level`."""
    text, own = _render(value)
    return f"({text})" if own < level else text


def _render(value: Expr) -> tuple[str, int]:
    match value:
        case Const():
            text = _const(value)
            return text, _NEGATE if text.startswith("-") else _ATOM
        case ir.Var():
            return value.name, _ATOM
        case ir.Binary(op, a, b) if op in INFIX:
            text, level = INFIX[op]
            left = level + 1 if level == 4 else level  # comparisons do not chain
            return f"{_expr(a, left)} {text} {_expr(b, level + 1)}", level
        case ir.Binary(op, a, b):
            return f"T.{op}({print_expr(a)}, {print_expr(b)})", _ATOM
        case ir.Unary("not", a):
            return f"not {_expr(a, _NOT)}", _NOT
        case ir.Unary(op, a) if op in ("neg", "bitnot") and not isinstance(a, Const):
            return f"{'-' if op == 'neg' else '~'}{_expr(a, _NEGATE)}", _NEGATE
        case ir.Unary(op, a):
            return f"T.{op}({print_expr(a)})", _ATOM
        case ir.Select(cond, then, other, True):
            return f"{_expr(then, 1)} if {_expr(cond, 1)} else {_expr(other, 0)}", _TERNARY
        case ir.Select(cond, then, other):
            return f"T.Select({print_expr(cond)}, {print_expr(then)}, {print_expr(other)})", _ATOM
        case ir.Cast(inner, dtype) if isinstance(inner, Const) or dtype.lanes > 1:
            return f'T.cast({print_expr(inner)}, "{dtype}")', _ATOM
        case ir.Cast(inner, dtype):
            return f"T.{dtype}({print_expr(inner)})", _ATOM
        case ir.Reinterpret(inner, dtype):
            return f'T.reinterpret({print_expr(inner)}, "{dtype}")', _ATOM
        case ir.Call(name, args):
            return f"T.{name}({', '.join(map(print_expr, args))})", _ATOM
        case ir.Ramp(base, stride, lanes):
            return f"T.Ramp({print_expr(base)}, {print_expr(stride)}, {lanes})", _ATOM
        case ir.Broadcast(inner, lanes):
            return f"T.Broadcast({print_expr(inner)}, {lanes})", _ATOM
        case ir.AddressOf(buffer, indices):
            return f"T.address_of({_element(buffer, indices)})", _ATOM
        case ir.Load(buffer, indices, None):
            return _element(buffer, indices), _ATOM
        case ir.Load(buffer, indices, ir.Expr() as predicate, safe):
            tail = "" if safe is None else f", {print_expr(safe)}"
            return f"T.load({_element(buffer, indices)}, {print_expr(predicate)}{tail})", _ATOM
    raise TypeError(f"no text for {type(value).__name__}")


def _element(buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    return f"{buffer.name}[{', '.join(map(print_expr, indices)) or '()'}]"


def _const(value: Const) -> str:
    dtype, number = value.dtype, value.value
    if dtype == "bool":
        return str(bool(number))
    if dtype == "int32":
        return str(number)
    if dtype.is_int or dtype.kind == "handle":
        return f"T.{dtype}({number})"
    number = float(number)
    if not math.isfinite(number):
        return f'T.{dtype}("{number}")'
    if dtype == "float32":
        return _shortest_float32(number)
    return f"T.{dtype}({number!r})"


def _shortest_float32(number: float) -> str:
    """The shortest decimal that rounds to this float32."""
    import struct

    for digits in range(6, 10):
        text = f"{number:.{digits}g}"
        if struct.pack("f", float(text)) == struct.pack("f", number):
            return repr(float(text))
    return repr(number)


def print_region(region: ir.Region) -> str:
    """A region as slices; the bare name when it is the whole buffer."""
    buffer = region.buffer
    if region.extents == buffer.shape and all(low is int_const(0) for low in region.mins):
        return buffer.name
    pairs = zip(region.mins, region.extents, strict=True)
    return f"{buffer.name}[{', '.join(_slice(low, extent) for low, extent in pairs)}]"


def _slice(low: Expr, extent: Expr) -> str:
    if isinstance(low, Const) and isinstance(extent, Const):
        return f"{low.value}:{low.value + extent.value}"
    if low is int_const(0):
        return f"0:{print_expr(extent)}"
    return f"{print_expr(low)}:{_expr(low, 9)} + {_expr(extent, 10)}"


def _address(address: ir.Address) -> str:
    return f"T.address_of({_element(address.buffer, address.indices)})"


# Statements


def _print(stmt: st.Stmt, depth: int, lines: list[Line]) -> None:
    pad = _INDENT * depth
    if isinstance(stmt, st.Seq):
        for child in stmt.stmts:
            _print(child, depth, lines)
        if not stmt.stmts:
            lines.append(Line(f"{pad}pass", stmt.site))
        return
    if isinstance(stmt, st.If):
        lines.append(Line(f"{pad}if {print_expr(stmt.cond)}:", stmt.site))
        _print(stmt.then, depth + 1, lines)
        if stmt.orelse is not None:
            lines.append(Line(f"{pad}else:", stmt.site))
            _print(stmt.orelse, depth + 1, lines)
        return
    head = _head(stmt)
    if head is not None:
        lines.append(Line(f"{pad}{head}:", stmt.site))
        _print(stmt.body, depth + 1, lines)  # type: ignore[attr-defined]
        return
    lines.append(Line(f"{pad}{_simple(stmt)}", stmt.site))


def _head(stmt: st.Stmt) -> str | None:
    """The first line of a statement with a body, without its colon."""
    match stmt:
        case st.Kernel():
            return _kernel(stmt)
        case st.For(var, start, stop, step, kind):
            one, zero = step is int_const(1), start is int_const(0)
            bounds = [stop] if zero and one else [start, stop] if one else [start, stop, step]
            options = [] if var.dtype == "int32" else [f'dtype="{var.dtype}"']
            return f"for {var.name} in T.{kind}({', '.join([*map(print_expr, bounds), *options])})"
        case tile.Parallel(names, extents):
            arguments = ", ".join([*map(print_expr, extents), *_loop_options(stmt)])
            return f"for {', '.join(var.name for var in names)} in T.Parallel({arguments})"
        case tile.Pipelined(var, start, stop, stages):
            bounds = [stop] if start is int_const(0) else [start, stop]
            options = [
                f"num_stages={stages}",
                *_options(order=stmt.order or None, stage=stmt.stage or None),
            ]
            return (
                f"for {var.name} in T.Pipelined({', '.join([*map(print_expr, bounds), *options])})"
            )
        case st.While(cond):
            return f"while {print_expr(cond)}"
        case simt.Role(start, extent):
            return f"with T.threads({start}, {extent})"
        case simt.Start(_, engine, barrier):
            told = "" if barrier is None else f", {_address(barrier)}"
            return f'with T.started("{engine}"{told})'
    return None


def _loop_options(stmt: tile.Parallel) -> list[str]:
    options = _options(coalesced_width=stmt.coalesced_width)
    if stmt.loop_layout is not None:
        options.append(f"loop_layout={stmt.loop_layout.to_text()}")
    return options


def _kernel(stmt: st.Kernel) -> str:
    threads = str(stmt.threads[0]) if len(stmt.threads) == 1 else str(stmt.threads)
    parts = [*map(print_expr, stmt.grid), f"threads={threads}"]
    if stmt.swizzle is not None:
        parts.append(f'swizzle=({stmt.swizzle[0]}, "{stmt.swizzle[1]}")')
    if stmt.thread_vars:
        parts.append(f"thread_vars={_names([var.name for var in stmt.thread_vars])}")
    if stmt.cluster:
        parts.append(f"cluster={stmt.cluster}")
    if stmt.blocks != 1:
        parts.append(f"blocks={stmt.blocks}")
    names = ", ".join(var.name for var in stmt.vars)
    bound = f" as ({names})" if len(stmt.vars) > 1 else f" as {names}" if names else ""
    return f"with T.Kernel({', '.join(parts)}){bound}"


def _options(**values: object) -> list[str]:
    return [f"{name}={value}" for name, value in values.items() if value is not None]


def _simple(stmt: st.Stmt) -> str:
    match stmt:
        case st.Let(var, value):
            return f"{var.name} = {print_expr(value)}"
        case st.Alloc():
            return _alloc(stmt)
        case st.Store(buffer, indices, value, None):
            return f"{_element(buffer, indices)} = {print_expr(value)}"
        case st.Store(buffer, indices, value, ir.Expr() as predicate):
            element = _element(buffer, indices)
            return f"T.store({element}, {print_expr(value)}, {print_expr(predicate)})"
        case st.Alias(buffer, source):
            shape = f'{show_shape(buffer.shape)}, "{buffer.dtype}"{_layout(buffer)}'
            return f"{buffer.name} = T.view({source.name}, {shape})"
        case st.Pointer(buffer, address):
            return f"{buffer.name} = T.make_tensor({print_expr(address)}, {_tensor(buffer)})"
        case simt.TensorMap():
            return _tensor_map(stmt)
        case st.SourceKernel(grid, threads, source, entry):
            texts = [*map(print_expr, grid), f"threads={threads!r}"]
            return f"T.source_kernel({', '.join([*texts, f'entry={entry!r}'])}, source={source!r})"
        case st.ExternCall(called, args, var):
            result = ("", "void") if var is None else (f"{var.name} = ", str(var.dtype))
            texts = [f'"{result[1]}"', f'"{called}"', *map(print_expr, args)]
            return f"{result[0]}T.call_extern({', '.join(texts)})"
        case st.Atomic():
            return _atomic(stmt)
        case st.Print():
            return _print_line(stmt)
        case st.Break():
            return "break"
        case st.Continue():
            return "continue"
        case simt.Peer(buffer, source, rank):
            return f"{buffer.name} = T.peer({source.name}, {print_expr(rank)})"
        case simt.Exchange(var, kind, args):
            options = _options(width=None if stmt.width == 32 else stmt.width, mask=stmt.mask)
            return f"{var.name} = T.{kind}({', '.join([*map(print_expr, args), *options])})"
    name = _THREAD_STATEMENTS.get(type(stmt))
    return _call(stmt) if name is None else _thread_statement(name, stmt)


def _thread_statement(name: str, stmt: st.Stmt) -> str:
    """Nodes in order, then what is not at its default by name."""
    parts: list[str] = []
    for field in dataclasses.fields(stmt):  # type: ignore[arg-type]
        value = getattr(stmt, field.name)
        if field.name == "site" or (
            field.default is not dataclasses.MISSING and value == field.default
        ):
            continue
        value = str(value) if isinstance(value, simt.Engine) else value
        text = print_node(value) if isinstance(value, Node) else repr(value)
        optional = field.default is not dataclasses.MISSING
        parts.append(f"{field.name}={text}" if optional or not isinstance(value, Node) else text)
    return f"T.{name}({', '.join(parts)})"


def _tensor_map(stmt: simt.TensorMap) -> str:
    tensor = f"{stmt.source.name}, {_tensor(stmt.buffer)}"
    boxes = f"box={stmt.box}, swizzle={stmt.swizzle}"
    return f"{stmt.buffer.name} = T.tensor_map({tensor}, {boxes})"


def _tensor(buffer: Buffer) -> str:
    strides = f", strides={show_shape(buffer.strides)}" if buffer.strides else ""
    return f'{show_shape(buffer.shape)}, "{buffer.dtype}"{strides}'


def _atomic(stmt: st.Atomic) -> str:
    operands = [value for value in (stmt.value, stmt.predicate, stmt.safe) if value is not None]
    parts = [_element(stmt.buffer, stmt.indices), *map(print_expr, operands)]
    bound = "" if stmt.previous is None else f"{stmt.previous.name} = "
    return f"{bound}T.atomic_{stmt.kind}({', '.join(parts)})"


def _print_line(stmt: st.Print) -> str:
    rest = zip(map(print_expr, stmt.values), map(repr, stmt.parts[1:]), strict=False)
    texts = [repr(stmt.parts[0]), *(text for pair in rest for text in pair)]
    loops = zip(stmt.loops, map(print_expr, stmt.counters), strict=True)
    if named := ", ".join(f"{name!r}: {counter}" for name, counter in loops):
        texts.append(f"loops={{{named}}}")
    return f"T.print({', '.join(texts)})"


def _alloc(stmt: st.Alloc) -> str:
    buffer = stmt.buffer
    tail = "" if stmt.offset is None else f", offset={stmt.offset}"
    if buffer.scope == "local.var":
        init = "" if stmt.init is None else f", {print_expr(stmt.init)}"
        return f'{buffer.name} = T.alloc_var("{buffer.dtype}"{init})'
    options = f"{_layout(buffer)}{tail}"
    call = f"T.{_ALLOC[buffer.scope]}"
    return f'{buffer.name} = {call}({show_shape(buffer.shape)}, "{buffer.dtype}"{options})'


def _call(stmt: st.Stmt) -> str:
    """By the form of its class."""
    name, form, usual = FORM_OF[type(stmt)]
    values = {field: getattr(stmt, field) for field in (*form.arguments, *form.options.values())}
    given = {f: v for f, v in values.items() if f not in usual or v != usual[f]}
    texts = [_value(given[field], repr) for field in form.arguments if field in given]
    texts += [
        f"{keyword}={_value(given[field], _quoted)}"
        for keyword, field in form.options.items()
        if field in given
    ]
    stem = f"_{getattr(stmt, form.stem)}" if form.stem else ""
    return f"T.{name}{stem}({', '.join(texts)})"


def _value(value: Any, quoted: Callable[[str], str]) -> str:
    """The value of a field."""
    if isinstance(value, Node):
        return print_node(value)
    if isinstance(value, str):
        return quoted(value)
    return value.to_text() if hasattr(value, "to_text") else str(value)
