"""Values that threads of a warp exchange, as the PTX ISA defines them ("shfl.sync", "vote.sync",
"match.sync").

A warp has the 32 threads of the language here, also where the machine's waves have 64, or `width`
threads where a shuffle has a larger one. All threads of a warp (or of the mask) must execute an
exchange together; reading from a thread that does not is recorded. Where a shuffle leaves the
segment a thread keeps its own value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import DivergenceError
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.arithmetic import binary_function
from tileworkbench.compiler.sim.expressions import ExpressionTranslator
from tileworkbench.compiler.sim.problems import ABSENT, remedy
from tileworkbench.compiler.sim.report import FindingKind, located
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.values import storage_dtype

Array = np.ndarray[Any, Any]
Execute = Callable[[ThreadFrame], None]
_COMBINE = {
    "warp_sum": "add",
    "warp_max": "max",
    "warp_min": "min",
    "warp_and": "and",
    "warp_or": "or",
    "warp_xor": "xor",
}


def translate_exchange(stmt: simt.Exchange, expr: ExpressionTranslator) -> Execute:
    """The closure of an exchange within warps."""
    args, slot = expr.all(stmt.args), expr.slots.variable(stmt.var)
    mask = None if stmt.mask is None else expr(stmt.mask)
    compute, size = _function(stmt), max(stmt.width, simt.LANGUAGE_WARP)
    dtype = stmt.args[0].dtype if stmt.args else stmt.var.dtype

    def exchange(frame: ThreadFrame) -> None:
        frame.counters.instruction("exchange", frame.active())
        active = _by_warp(frame.active(), size)
        taking = active
        if stmt.kind != "activemask":
            named = _named_lanes(frame, None if mask is None else mask(frame), active)
            _require_named(frame, stmt.kind, named, active)
            taking = named & active
        given = [
            _lanes_of(frame, arg(frame), dtype if at == 0 else None, size)
            for at, arg in enumerate(args)
        ]
        result = compute(frame, taking, *given)
        frame.values[slot] = result.reshape(-1)[: frame.threads]

    return exchange


def _by_warp(values: Array, size: int) -> Array:
    """Values by thread as [warp, lane] of warps of `size`, filled up with zeros."""
    missing = -len(values) % size
    if missing:
        values = np.concatenate([values, np.zeros(missing, values.dtype)])
    return values.reshape(-1, size)


def _lanes_of(frame: ThreadFrame, value: Any, dtype: DType | None, size: int) -> Array:
    made = np.asarray(value) if dtype is None else np.asarray(value, storage_dtype(dtype))
    return _by_warp(np.broadcast_to(made, frame.lanes), size)


def _named_lanes(frame: ThreadFrame, mask: Any, active: Array) -> Array:
    """The lanes that must take part: all of each warp that has an active thread, or those of the
    mask.
    """
    size = active.shape[1]
    exist = _by_warp(np.ones(frame.threads, np.bool_), size)
    running = active.any(axis=1, keepdims=True)
    if mask is None:
        return exist & running
    bits = _by_warp(np.broadcast_to(np.asarray(mask, np.uint64), frame.lanes), size)
    first = np.take_along_axis(bits, np.argmax(active, axis=1)[:, None], axis=1)
    lanes = np.arange(size, dtype=np.uint64)
    return np.asarray(exist & running & ((first >> lanes & np.uint64(1)) != 0))


def _require_named(frame: ThreadFrame, kind: str, named: Array, active: Array) -> None:
    absent = named & ~active
    if not absent.any():
        return
    warp = int(np.argmax(absent.any(axis=1)))
    count = int((named & active)[warp].sum())
    block = f" in block ({', '.join(map(str, frame.block))})"
    raise located(
        DivergenceError,
        f"'{kind}' is executed by {count} of the {int(named[warp].sum())} threads of warp {warp} "
        f"that must take part{block}",
        frame.recorder.program.span(frame.site),
        remedy(ABSENT),
    )


def _function(stmt: simt.Exchange) -> Any:
    kind = stmt.kind
    if kind.startswith("shfl"):
        return _shuffle(stmt)
    if kind in _COMBINE:
        return _combination(binary_function(_COMBINE[kind], stmt.args[0].dtype))
    return {
        "any_sync": lambda frame, taking, on: _spread((on & taking).any(axis=1), on, np.int32),
        "all_sync": lambda frame, taking, on: _spread((on | ~taking).all(axis=1), on, np.int32),
        "ballot": lambda frame, taking, on: _spread(
            _bits(on.astype(np.bool_) & taking), on, np.uint64
        ),
        "activemask": lambda frame, taking: _spread(_bits(taking), taking, np.uint64),
        "match_any": _match_any,
        "match_all": _match_all,
    }[kind]


def _spread(by_warp: Array, lanes: Array, dtype: Any) -> Array:
    """One value for each warp as one for each of its `lanes`."""
    return np.repeat(by_warp.astype(dtype)[:, None], lanes.shape[1], axis=1)


def _bits(chosen: Array) -> Array:
    """Lane i as bit i, along the last axis."""
    places = np.arange(chosen.shape[-1], dtype=np.uint64)
    return np.asarray((chosen.astype(np.uint64) << places).sum(axis=-1, dtype=np.uint64))


def _shuffle(stmt: simt.Exchange) -> Callable[..., Array]:
    """shfl.sync with the segments of `width` lanes: `low` and `high` are a segment's ends."""
    width, kind = stmt.width, stmt.kind

    def shuffle(frame: ThreadFrame, taking: Array, values: Array, operand: Array) -> Array:
        lanes = np.arange(values.shape[1])
        low, high = lanes // width * width, lanes // width * width + width - 1
        amount = operand.astype(np.int64)
        if kind == "shfl":
            source = low + amount % width
        elif kind == "shfl_xor":
            source = lanes ^ amount
            source = np.where(source <= high, source, lanes)
        elif kind == "shfl_up":
            source = np.where(lanes - amount >= low, lanes - amount, lanes)
        else:
            source = np.where(lanes + amount <= high, lanes + amount, lanes)
        source = np.broadcast_to(source, values.shape)
        absent = taking & ~np.take_along_axis(taking, source, axis=1)
        if absent.any() and frame.options.uninitialised:
            bad = absent.reshape(-1)[: frame.threads]
            frame.recorder.found(
                FindingKind.UNINITIALISED,
                ABSENT,
                stmt.var.name,
                (),
                frame.block,
                frame.site,
                int(bad.sum()),
                frame.thread_of(bad, frame.lanes),
            )
        return np.take_along_axis(values, source, axis=1)

    return shuffle


def _combination(combine: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    """A reduction as the butterfly of shuffles: the same in all lanes that take part."""

    def reduce(frame: ThreadFrame, taking: Array, values: Array) -> Array:
        made, has = values.copy(), taking.copy()
        lanes, distance = np.arange(values.shape[1]), values.shape[1]
        while distance := distance // 2:
            other, others = made[:, lanes ^ distance], has[:, lanes ^ distance]
            both = np.asarray(combine(made, other), made.dtype)
            made = np.where(has & others, both, np.where(others, other, made))
            has = has | others
        return made

    return reduce


def _match_any(frame: ThreadFrame, taking: Array, values: Array) -> Array:
    same = (values[:, :, None] == values[:, None, :]) & taking[:, None, :]
    return _bits(same)


def _match_all(frame: ThreadFrame, taking: Array, values: Array) -> Array:
    first = np.take_along_axis(values, np.argmax(taking, axis=1)[:, None], axis=1)
    equal = ((values == first) | ~taking).all(axis=1)
    return _spread(np.where(equal, _bits(taking), np.uint64(0)), values, np.uint64)
