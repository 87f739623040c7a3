"""Operators of a whole block in a program that runs thread by thread: executed once by the threads
that are active.

What they use of the threads' own memory must be the same in all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.ir.expr import Buffer, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.rewrite import bound_by, walk
from tileworkbench.compiler.ir.stmt import Alias, Alloc, Let, Stmt
from tileworkbench.compiler.sim.control import Execute
from tileworkbench.compiler.sim.memory import Storage
from tileworkbench.compiler.sim.report import located
from tileworkbench.compiler.sim.statements import StatementTranslator
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.registers import LaneStorage
from tileworkbench.compiler.sim.values import from_storage

Array = np.ndarray[Any, Any]


def translate_collective(stmt: Stmt, translate: StatementTranslator) -> Execute:
    """The closure of a tile operator or parallel loop."""
    variables, buffers = _free_names(stmt)
    slots = [(translate.slots.variable(var), var) for var in variables]
    places = [(translate.slots.buffer(buffer), buffer) for buffer in buffers]
    inner = [
        translate.slots.variable(var)
        for node in walk(stmt)
        if isinstance(node, Stmt)
        for var in bound_by(node)
    ]
    run = translate(stmt)

    def collective(frame: Any) -> None:
        active = frame.active()
        if not active.any():
            return
        lanes, mask = frame.lanes, frame.mask
        old_values = [(slot, frame.values[slot]) for slot, _ in slots]
        for slot, var in slots:
            frame.values[slot] = _agreed(frame, var.name, frame.values[slot], active, var)
        own = [
            (slot, frame.storages[slot], buffer)
            for slot, buffer in places
            if isinstance(frame.storages[slot], LaneStorage)
        ]
        first: dict[int, Storage] = {}  # by address: views of one memory stay such
        for slot, storage, buffer in own:
            made = _of_one_thread(frame, storage, buffer, active)
            whole = first.setdefault(storage.data.ctypes.data, made)
            frame.storages[slot] = made if whole is made else whole.view(buffer, made.shape)
        frame.lanes, frame.mask = (), True
        run(frame)
        frame.lanes, frame.mask = lanes, mask
        for slot, value in old_values:
            frame.values[slot] = value
        for slot in inner:  # its lanes were not threads
            frame.values[slot] = None
        for slot, storage, _ in own:
            made = frame.storages[slot]
            storage.data[active] = made.data
            if storage.written is not None:  # all of it has been written where marks are gone
                storage.written[active] = True if made.written is None else made.written
            frame.storages[slot] = storage

    return collective


def _free_names(stmt: Stmt) -> tuple[list[Var], list[Buffer]]:
    """The variables and the thread-private buffers from outside that `stmt` uses."""
    used: dict[Node, None] = {}
    made: set[Any] = set()
    for node in walk(stmt):
        if isinstance(node, Var | Buffer):
            used[node] = None
        if isinstance(node, Let):
            made.add(node.var)
        elif isinstance(node, Alloc | Alias):
            made.add(node.buffer)
        elif isinstance(node, Stmt):
            made.update(bound_by(node))
    free = [name for name in used if name not in made]
    return (
        [name for name in free if isinstance(name, Var)],
        [n for n in free if isinstance(n, Buffer) and n.scope in ("local", "local.var")],
    )


def _agreed(frame: ThreadFrame, name: str, value: Any, active: Array, var: Var) -> Any:
    """The value of a variable that all active threads agree about."""
    if type(value) is not np.ndarray:
        return value
    mine = np.broadcast_to(value, active.shape)[active]
    if not _same(mine, mine[0]).all():
        raise different_values(frame, name)
    return from_storage(mine[0], var.dtype)


def _of_one_thread(
    frame: ThreadFrame, storage: LaneStorage, buffer: Buffer, active: Array
) -> Storage:
    """The memory of the first active thread, which that of the others must equal."""
    lead = int(np.argmax(active))
    written = None if storage.written is None else storage.written[lead].copy()
    same = _same(storage.data[active], storage.data[lead])
    if written is not None and storage.written is not None:
        same |= ~written | ~storage.written[active]
    if not same.all():
        raise different_values(frame, buffer.name)
    return Storage(buffer, storage.data[lead].copy(), written=written)


def _same(values: Array, value: Any) -> Array:
    return np.asarray((values == value) | ((values != values) & (value != value)))


def different_values(frame: ThreadFrame, name: str) -> RunError:
    """The error where the threads of a block must agree and do not."""
    return located(
        RunError,
        f"the threads of block ({', '.join(map(str, frame.block))}) have different values of "
        f"'{name}', which an operator of the whole block uses",
        frame.recorder.program.span(frame.site),
        "let it depend on the block and on loops only, or write the operator as a loop of threads",
    )
