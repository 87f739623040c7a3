"""Comparison and selection (PTX ISA, "Comparison and Selection Instructions")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tileworkbench.compiler.sim.ptx.arithmetic import LOGIC
from tileworkbench.compiler.sim.ptx.errors import unsupported
from tileworkbench.compiler.sim.ptx.floats import FLOATS, read_float
from tileworkbench.compiler.sim.ptx.module import TYPE_BITS, Instruction, Operand, Pair, Sink
from tileworkbench.compiler.sim.ptx.numeric import DTYPES, Array
from tileworkbench.compiler.sim.ptx.operands import Decoder, Reader
from tileworkbench.compiler.sim.ptx.state import State, Step

_ORDERED: dict[str, Callable[..., Array]] = {
    **{"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal},
    **{"gt": np.greater, "ge": np.greater_equal},
    **{"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal},
}


def compare(name: str, a: Array, b: Array) -> Array:
    """A PTX comparison. `ne` of floats is ordered, unlike numpy's; the names that end in `u` hold
    for NaN too."""
    is_float = a.dtype.kind == "f"
    if name in _ORDERED and not (is_float and name == "ne"):
        return np.asarray(_ORDERED[name](a, b))
    unordered = np.isnan(a) | np.isnan(b)
    if name in ("num", "nan"):
        return np.asarray(unordered if name == "nan" else ~unordered)
    if name == "ne":
        return np.asarray((a != b) & ~unordered)
    return np.asarray(_ORDERED[name[:-1]](a, b) | unordered)


def _read_compared(i: Instruction, d: Decoder, operand: Operand, kind: str) -> Reader:
    if kind in FLOATS:
        return read_float(d, operand, kind, i.has("ftz"))
    return d.read(operand, kind)


def decode_setp(i: Instruction, d: Decoder) -> Step:
    """``setp.cmp{.bool}``: compare, combine with a predicate, and give the result and, as the
    second of a pair, the combination of the complement."""
    kind = i.modifiers[-1]
    comparison = i.modifiers[0]
    logic = next((name for name in i.modifiers if name in ("and", "or", "xor")), None)
    first, second = (_read_compared(i, d, operand, kind) for operand in i.operands[1:3])
    third = d.read(i.operands[3], "pred") if logic else None
    target = i.operands[0]
    result, other = (target.first, target.second) if isinstance(target, Pair) else (target, Sink())
    write, write_other = d.write(result, "pred"), d.write(other, "pred")
    packed = kind.endswith("x2")

    def step(state: State) -> None:
        holds = compare(comparison, first(state), second(state))
        # A packed comparison gives its two halves, any other the result and its complement.
        holds, opposite = (holds[:, 0], holds[:, 1]) if packed else (holds, ~holds)
        if logic and third is not None:
            with_ = third(state)
            holds, opposite = LOGIC[logic](holds, with_), LOGIC[logic](opposite, with_)
        write(state, holds)
        write_other(state, opposite)

    return step


def decode_set(i: Instruction, d: Decoder) -> Step:
    """``set``: a comparison whose result is all ones or 1.0."""
    result_kind, kind = i.modifiers[-2:]
    comparison = i.modifiers[0]
    logic = next((name for name in i.modifiers if name in ("and", "or", "xor")), None)
    first, second = (_read_compared(i, d, operand, kind) for operand in i.operands[1:3])
    third = d.read(i.operands[3], "pred") if logic else None
    write = d.write(i.operands[0], result_kind)
    if kind.endswith("x2"):
        raise unsupported(i, "a packed comparison")
    true = np.array(1.0 if result_kind.startswith("f") else -1).astype(DTYPES[result_kind])

    def step(state: State) -> None:
        holds = compare(comparison, first(state), second(state))
        if logic and third is not None:
            holds = LOGIC[logic](holds, third(state))
        write(state, np.where(holds, true, true * 0))

    return step


def decode_selp(i: Instruction, d: Decoder) -> Step:
    kind = f"b{TYPE_BITS[i.modifiers[-1]]}" if i.modifiers[-1] != "pred" else "pred"
    if i.modifiers[-1] in ("f32", "f64"):
        kind = i.modifiers[-1]
    first, second = d.read_all(i.operands[1:3], kind)
    choice = d.read(i.operands[3], "pred")
    write = d.write(i.operands[0], kind)
    return lambda state: write(state, np.where(choice(state), first(state), second(state)))


def decode_slct(i: Instruction, d: Decoder) -> Step:
    kind, selector = i.modifiers[-2:]
    first, second = d.read_all(i.operands[1:3], kind)
    choice = d.read(i.operands[3], selector)
    write = d.write(i.operands[0], kind)
    return lambda state: write(state, np.where(choice(state) >= 0, first(state), second(state)))
