"""Exchanges between threads as lines of CUDA C++."""

from __future__ import annotations

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.expressions import Expressions
from tileworkbench.compiler.emit.c_like.text import wrapped
from tileworkbench.compiler.ir import simt

_SHUFFLES = {
    "shfl": "__shfl_sync",
    "shfl_xor": "__shfl_xor_sync",
    "shfl_up": "__shfl_up_sync",
    "shfl_down": "__shfl_down_sync",
}
_VOTES = {"any_sync": "__any_sync", "all_sync": "__all_sync", "ballot": "__ballot_sync"}
_BLOCK = {
    "block_count": "__syncthreads_count",
    "block_all": "__syncthreads_and",
    "block_any": "__syncthreads_or",
}
_WARP_TYPES = {"int": "i32", "unsigned": "u32", "float": "f32", "double": "f64"}


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
    before: list[str] = []
    if kind in _SHUFFLES:
        tail = f", {stmt.width}" if stmt.width != 32 else ""
        text = f"{_SHUFFLES[kind]}({mask}, {args[0]}, {args[1]}{tail})"
        if stmt.var.dtype.bits < 32:
            wide = f"(int){wrapped(args[0])}"
            text = f"({c_type}){_SHUFFLES[kind]}({mask}, {wide}, {args[1]}{tail})"
    elif kind in _VOTES:
        text = f"{_VOTES[kind]}({mask}, {args[0]})"
    elif kind == "activemask":
        text = "__activemask()"
    elif kind == "match_any":
        text = f"__match_any_sync({mask}, {args[0]})"
    elif kind == "match_all":
        before = [f"int {name}_all_;"]
        text = f"__match_all_sync({mask}, {args[0]}, &{name}_all_)"
    elif kind in _BLOCK:
        text = f"{_BLOCK[kind]}({args[0]})"
    else:
        suffix = _WARP_TYPES.get(c_type)
        if suffix is None:
            raise UnsupportedError(
                f"'T.{kind.replace('_', '_reduce_')}' of '{stmt.var.dtype}' is not there on CUDA",
                hint="convert the value to 'float32' or 'int32' first",
            )
        text = f"{expressions.use(f'{kind}_{suffix}')}({args[0]})"
    return [*before, f"const {c_type} {name} = {text};"]
