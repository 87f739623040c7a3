"""Copies of boxes of tensors by the copy engine: PTX ISA, "cp.async.bulk.tensor" and "bulk
groups".
"""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.c_like.statements import KernelWriter
from tileworkbench.compiler.emit.cuda.addresses import shared_address
from tileworkbench.compiler.emit.cuda.features import BOX, BYTES
from tileworkbench.compiler.emit.cuda.functions import asm, function
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.expr import Address
from tileworkbench.compiler.ir.simt import Engine, TensorLoad, TensorStore
from tileworkbench.compiler.ir.stmt import Stmt, items

_MAP = "const TensorMap* map"
_DIMS = range(1, 6)


def _copy(dims: int, loads: bool, reduce: str = "", multicast: bool = False) -> Helper:
    """One box, whose first element has `dims` coordinates, innermost first; with `multicast` for
    all blocks of the cluster whose bits are set.
    """
    names = [f"x{at}" for at in range(dims)]
    at = ", ".join(f"%{2 + place}" for place in range(dims))
    box, given = f"[%1, {{{at}}}]", ", ".join(f'"r"({name})' for name in names)
    ints = ", ".join(f"int {name}" for name in names)
    inputs = f'"r"(tile), "l"(map), {given}'
    if loads:
        text = (
            f"cp.async.bulk.tensor.{dims}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            f"{'.multicast::cluster' * multicast} [%0], {box}, [%{2 + dims}]"
            f"{f', %{3 + dims}' * multicast};"
        )
        blocks = ', "h"(blocks)' * multicast
        body = asm(text, "", f'{inputs}, "r"(barrier){blocks}', "memory")
        name = f"tensor_{'multicast' if multicast else 'load'}_{dims}"
        last = "unsigned barrier" + ", unsigned short blocks" * multicast
        signature = f"void {name}(unsigned tile, {_MAP}, {ints}, {last})"
    else:
        name = f"cp.reduce.async.bulk.tensor.{dims}d" if reduce else f"cp.async.bulk.tensor.{dims}d"
        how = f".{reduce}.tile" if reduce else ".tile"
        text = f"{name}.global.shared::cta{how}.bulk_group {box}, [%0];"
        body = asm(text, "", inputs, "memory")
        called = f"tensor_{reduce or 'store'}_{dims}"
        signature = f"void {called}(unsigned tile, {_MAP}, {ints})"
    return Helper(function(signature, body), ("TensorMap",), BOX)


_PREFETCH = '  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");'
_SIGNAL = asm(
    "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;",
    "",
    '"r"(barrier), "r"(bytes)',
    "memory",
)
_ELECT = """\
  unsigned leads;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
               : "=r"(leads) :: "memory");
  return leads;"""
TENSORS: dict[str, Helper] = {
    "elected": Helper(function("bool elected()", _ELECT), (), BOX),
    "TensorMap": Helper("struct __align__(64) TensorMap { unsigned long long opaque[16]; };"),
    "tensor_prefetch": Helper(
        function(f"void tensor_prefetch({_MAP})", _PREFETCH), ("TensorMap",), BOX
    ),
    "mbarrier_arrive_expect": Helper(
        function("void mbarrier_arrive_expect(unsigned barrier, unsigned bytes)", _SIGNAL),
        (),
        BYTES,
    ),
    "tensor_commit": Helper(
        function(
            "void tensor_commit()",
            '  asm volatile("cp.async.bulk.commit_group;" ::: "memory");',
        ),
        (),
        BOX,
    ),
    **{f"tensor_load_{dims}": _copy(dims, True) for dims in _DIMS},
    **{f"tensor_multicast_{dims}": _copy(dims, True, multicast=True) for dims in _DIMS},
    **{f"tensor_store_{dims}": _copy(dims, False) for dims in _DIMS},
    **{f"tensor_add_{dims}": _copy(dims, False, "add") for dims in _DIMS},
}


def _wait(pending: int, sources: bool) -> tuple[str, Helper]:
    """cp.async.bulk.wait_group takes its count as a literal."""
    name = f"tensor_wait_{'read_' if sources else ''}{pending}"
    text = f"cp.async.bulk.wait_group{'.read' if sources else ''} {pending};"
    body = f'  asm volatile("{text}" ::: "memory");'
    return name, Helper(function(f"void {name}()", body), (), BOX)


def write(stmt: Stmt, writer: KernelWriter) -> list[str] | None:
    """The lines of a statement about copies of boxes, None for others."""
    use = writer.expressions.use
    match stmt:
        case simt.TensorMap(buffer):
            prefetch = f"{use('tensor_prefetch')}(&{writer.named(buffer)});"
            return [f"if ({writer.dialect.thread_index} == 0) {prefetch}"]
        case simt.CommitGroup(Engine.TMA_STORE):
            return [f"{use('tensor_commit')}();"]
        case simt.WaitGroup(pending, Engine.TMA_STORE, sources):
            return [f"{use(*_wait(pending, sources))}();"]
        case simt.BarrierSignal(barrier, 1, bytes_) if bytes_ > 0:
            place = shared_address(writer, barrier)
            return [f"{use('mbarrier_arrive_expect')}({place}, {bytes_});"]
    return None


def copies_of_boxes(stmt: simt.Start, writer: KernelWriter) -> list[str]:
    """The lines that start the copies of boxes in `stmt`."""
    lines = []
    for copy in items(stmt.body):
        if isinstance(copy, TensorLoad) and stmt.barrier is not None:
            barrier = shared_address(writer, stmt.barrier)
            blocks = [f"{copy.blocks:#x}"] if copy.blocks else []
            kind, rest = "multicast" if blocks else "load", [barrier, *blocks]
            lines.append(_call(kind, copy.dst, copy.src, rest, writer))
        elif isinstance(copy, TensorStore):
            lines.append(_call(copy.reduce or "store", copy.src, copy.dst, [], writer))
        else:
            raise TypeError(f"'{type(copy).__name__}' is no copy of a box")
    return lines


def _call(kind: str, tile: Address, place: Address, rest: list[str], writer: KernelWriter) -> str:
    name = writer.expressions.use(f"tensor_{kind}_{len(place.indices)}")
    indices = [writer.expressions(index) for index in reversed(place.indices)]
    there = [shared_address(writer, tile), f"&{writer.named(place.buffer)}", *indices]
    return f"{name}({', '.join([*there, *rest])});"
