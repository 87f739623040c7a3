"""Printing from the kernel, and stopping there."""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import Builder, in_kernel
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.values import Operators, describe, is_number, to_expr
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Expr, Load, Var
from tileworkbench.compiler.ir.stmt import Breakpoint, For, LoopKind, Print, Stmt
from tileworkbench.compiler.ir.tile import Parallel


def print(obj: Any = None, msg: str = "", warp_group_id: int = 0, warp_id: int = 0) -> None:
    """Write a line with `msg` and a value, or a line for each element of a tensor, to the standard
    output of the process.

    Outside T.Parallel the threads of a block hold the same value, which is written once; inside,
    each iteration writes a line. The elements of a fragment are written by the threads that hold
    them, on a GPU in any order. In a kernel that names its threads, every thread that executes it
    writes a value with its index; tensors that threads share are written once. `warp_group_id` and
    `warp_id` have no effect. Raises `TileValueError` for anything but values, numbers and tensors.

    >>> T.print(A[0, 0], msg="the first")
    """
    builder = in_kernel("T.print")
    if not isinstance(msg, str):
        raise TileTypeError(f"'msg' of T.print must be a text, not {describe(msg)}")
    if isinstance(obj, TensorValue):
        _print_tensor(builder, obj, msg)
    elif obj is None:
        builder.emit(_line(builder, msg, "", (), own=True))
    elif isinstance(obj, Operators) or is_number(obj):
        value = to_expr(obj)
        builder.emit(_line(builder, msg, f": dtype={value.dtype} value=", (value,), own=True))
    else:
        hint = "a text alone is T.print(msg=...)" if isinstance(obj, str) else None
        raise TileValueError(f"T.print takes a value or a tensor, not {describe(obj)}", hint=hint)


def breakpoint() -> None:
    """Open the replay here: ``kernel.replay()`` and ``kernel.show("replay")``, which run the kernel
    in the simulator, stop at each execution of this statement, at every stage of lowering.

    Calls, checks and measurements pass over it on every target; the kernel's warnings say so.

    >>> T.breakpoint()
    """
    builder = in_kernel("T.breakpoint")
    builder.emit(Breakpoint(site=builder.site))


def _line(
    builder: Builder, msg: str, text: str, values: tuple[Expr, ...], own: bool = False
) -> Print:
    """`msg='...' BlockIdx=(x, y, z)`, then `text` and the value, or the index and the value; with
    the thread's index when each thread has a value of its `own`.
    """
    zeros = [build.int_const(0)] * 3
    places: list[Expr] = [*builder.blocks, *zeros][:3]
    starts = [f"msg='{msg}' BlockIdx=(", ", ", ", "]
    if own and builder.thread_vars and builder.enclosing("parallel") is None:
        places += [*builder.thread_vars, *zeros][:3]
        starts += ["), ThreadIdx=(", ", ", ", "]
    ends = {0: (), 1: ("",), 2: (" value=", "")}[len(values)]
    names, counters = zip(*builder.counters, strict=True) if builder.counters else ((), ())
    return Print((*starts, f"){text}", *ends), (*places, *values), names, counters, builder.site)


def _print_tensor(builder: Builder, tensor: TensorValue, msg: str) -> None:
    buffer = tensor.use()
    names = tuple(builder.fresh_var("ijklmnop"[d % 8], e.dtype) for d, e in enumerate(buffer.shape))
    number: Expr = build.int_const(0)
    for var, extent in zip(names, buffer.shape, strict=True):
        number = build.add(build.mul(number, extent), var)
    text = f": buffer={buffer.name}, dtype={buffer.dtype}, index="
    own = buffer.scope in ("local", "local.var")
    body: Stmt = _line(builder, msg, text, (number, Load(buffer, names)), own)
    if buffer.scope == "local.fragment" and builder.enclosing("parallel") is None:
        # Each thread holds some elements, and writes these.
        builder.emit(Parallel(names, buffer.shape, body, site=body.site))
        return
    for var, extent in zip(reversed(names), reversed(buffer.shape), strict=True):
        body = _loop(var, extent, body)
    builder.emit(body)


def _loop(var: Var, extent: Expr, body: Stmt) -> For:
    zero, one = build.const(0, extent.dtype), build.const(1, extent.dtype)
    return For(var, zero, extent, one, LoopKind.SERIAL, body, site=body.site)
