"""Exchanges between threads as lines of CUDA C++."""

from __future__ import annotations

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.expressions import Expressions
from tileworkbench.compiler.emit.c_like.text import wrapped
from tileworkbench.compiler.emit.cuda.helpers import WARP_TYPES
from tileworkbench.compiler.ir import simt

_SHUFFLES = {
    "shfl": "__shfl_sync",
    "shfl_xor": "__shfl_xor_sync",
    "shfl_up": "__shfl_up_sync",
    "shfl_down": "__shfl_down_sync",
}
_MASKED = {"any_sync": "__any_sync", "all_sync": "__all_sync", "ballot": "__ballot_sync"} | {
    "match_any": "__match_any_sync"
}
_BLOCK = {
    "block_count": "__syncthreads_count",
    "block_all": "__syncthreads_and",
    "block_any": "__syncthreads_or",
}


def exchange(stmt: simt.Exchange, expressions: Expressions) -> list[str]:
    """The declaration of what an exchange gives. Raises `UnsupportedError` for a dtype that the
    exchange is not there for.
    """
    args = [expressions(arg) for arg in stmt.args]
    c_type, name = expressions.c_type(stmt.var.dtype), expressions.named(stmt.var)
    mask = "0xffffffffu"
    if stmt.mask is not None:
        mask = f"(unsigned){wrapped(expressions(stmt.mask))}"
    kind = stmt.kind
    if kind in _SHUFFLES:
        tail = f", {stmt.width}" if stmt.width != 32 else ""
        narrow = stmt.var.dtype.bits < 32
        value = f"(int){wrapped(args[0])}" if narrow else args[0]
        text = f"{_SHUFFLES[kind]}({mask}, {value}, {args[1]}{tail})"
        text = f"({c_type}){text}" if narrow else text
    elif kind in _MASKED:
        text = f"{_MASKED[kind]}({', '.join([mask, *args])})"
    elif kind == "activemask":
        text = "__activemask()"
    elif kind == "match_all":
        flag = f"{name}_all_"
        text = f"__match_all_sync({mask}, {args[0]}, &{flag})"
        return [f"int {flag};", f"const {c_type} {name} = {text};"]
    elif kind in _BLOCK:
        text = f"{_BLOCK[kind]}({args[0]})"
    elif c_type in WARP_TYPES:
        text = f"{expressions.use(f'{kind}_{WARP_TYPES[c_type]}')}({args[0]})"
    else:
        raise UnsupportedError(
            f"'T.{kind.replace('_', '_reduce_')}' of '{stmt.var.dtype}' is not there on CUDA",
            hint="convert the value to 'float32' or 'int32' first",
        )
    return [f"const {c_type} {name} = {text};"]
