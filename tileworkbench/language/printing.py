"""Printing from the kernel."""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError
from tileworkbench.compiler.frontend.builder import Builder, in_kernel
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.values import Operators, describe, is_number, to_expr
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Expr, Load, Var
from tileworkbench.compiler.ir.stmt import For, LoopKind, Print, Stmt


def print(obj: Any = None, msg: str = "", warp_group_id: int = 0, warp_id: int = 0) -> None:
    """Write a line with `msg` and a value, or a line for each element of a tensor, to the standard
    output of the process.

    Outside T.Parallel the threads of a block hold the same value, which is written once; inside,
    each iteration writes a line. `warp_group_id` and `warp_id` have no effect. Raises
    `TileTypeError` for anything but values, numbers and tensors.
    """
    builder = in_kernel("T.print")
    if not isinstance(msg, str):
        raise TileTypeError(f"'msg' of T.print must be a text, not {describe(msg)}")
    if isinstance(obj, TensorValue):
        _print_tensor(builder, obj, msg)
    elif obj is None:
        builder.emit(_line(builder, msg, "", ()))
    elif isinstance(obj, Operators) or is_number(obj):
        value = to_expr(obj)
        builder.emit(_line(builder, msg, f": dtype={value.dtype} value=", (value,)))
    else:
        raise TileTypeError(f"T.print takes a value or a tensor, not {describe(obj)}")


def _line(builder: Builder, msg: str, text: str, values: tuple[Expr, ...]) -> Print:
    """`msg='...' BlockIdx=(x, y, z)`, then `text` and the value, or the index and the value."""
    blocks: list[Expr] = [*builder.blocks, *[build.int_const(0)] * 3][:3]
    ends = {0: (), 1: ("",), 2: (" value=", "")}[len(values)]
    parts = (f"msg='{msg}' BlockIdx=(", ", ", ", ", f"){text}", *ends)
    return Print(parts, (*blocks, *values), site=builder.site)


def _print_tensor(builder: Builder, tensor: TensorValue, msg: str) -> None:
    buffer = tensor.use()
    names = tuple(builder.fresh_var("ijklmnop"[d % 8], e.dtype) for d, e in enumerate(buffer.shape))
    number: Expr = build.int_const(0)
    for var, extent in zip(names, buffer.shape, strict=True):
        number = build.add(build.mul(number, extent), var)
    text = f": buffer={buffer.name}, dtype={buffer.dtype}, index="
    body: Stmt = _line(builder, msg, text, (number, Load(buffer, names)))
    for var, extent in zip(reversed(names), reversed(buffer.shape), strict=True):
        body = _loop(var, extent, body)
    builder.emit(body)


def _loop(var: Var, extent: Expr, body: Stmt) -> For:
    zero, one = build.const(0, extent.dtype), build.const(1, extent.dtype)
    return For(var, zero, extent, one, LoopKind.SERIAL, body, site=body.site)
