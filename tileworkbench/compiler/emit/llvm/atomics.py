"""Atomic accesses: one instruction where there is one, a compare-and-exchange loop elsewhere."""

from __future__ import annotations

from tileworkbench.compiler.emit.llvm.emitter import Value, memory_type
from tileworkbench.compiler.emit.llvm.expressions import Expressions
from tileworkbench.compiler.emit.llvm.text import VectorType
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.stmt import AtomicKind
from tileworkbench.compiler.ir.types import DType

_ORDER = "seq_cst"  # the strongest order: on x86 every atomic update has it anyway


@dataclass(frozen=True, slots=True)
class AtomicWriter:
    """Writes accesses of one kind; those of memory that is not `shared` with other workers are
    plain ones.
    """

    exprs: Expressions
    kind: AtomicKind
    shared: bool

    def write(self, address: str, value: Value) -> Value:
        """Write the access and return what the element held before."""
        dtype = value.dtype
        if not self.shared or self.kind is AtomicKind.LOAD:
            return self._plain(address, value)
        instruction = self._instruction(dtype)
        if instruction is None:
            return self._loop(address, value)
        kind, stored = memory_type(dtype), self.exprs.to_memory(value)
        text = self.exprs.out.let(
            f"atomicrmw {instruction} ptr {address}, {kind} {stored} {_ORDER}, align {dtype.bytes}"
        )
        return self.exprs.from_memory(text, dtype, 1)

    def _instruction(self, dtype: DType) -> str | None:
        """The operation of `atomicrmw`; None where values must be converted in between."""
        if self.kind is AtomicKind.STORE:
            return "xchg"
        if dtype.is_float:  # LLVM's fmax and fmin leave the sign of a zero open
            return "fadd" if self.kind is AtomicKind.ADD and dtype.bits >= 32 else None
        if self.kind in (AtomicKind.MAX, AtomicKind.MIN):
            return str(self.kind) if dtype.kind == "int" else f"u{self.kind}"
        return str(self.kind)

    def _plain(self, address: str, value: Value) -> Value:
        out, dtype = self.exprs.out, value.dtype
        kind = memory_type(dtype)
        order = (
            f"atomic {kind}, ptr {address} {_ORDER}" if self.shared else f"{kind}, ptr {address}"
        )
        before = self.exprs.from_memory(out.let(f"load {order}, align {dtype.bytes}"), dtype, 1)
        if self.kind is not AtomicKind.LOAD:
            stored = self.exprs.to_memory(self._combined(before, value))
            out.do(f"store {kind} {stored}, ptr {address}, align {dtype.bytes}")
        return before

    def _combined(self, before: Value, value: Value) -> Value:
        if self.kind is AtomicKind.STORE:
            return value
        return self.exprs.combine(str(self.kind), before, value)

    def _loop(self, address: str, value: Value) -> Value:
        """Combine and exchange until no other worker came in between."""
        out, dtype = self.exprs.out, value.dtype
        kind = VectorType(f"i{8 * dtype.bytes}", 1)  # bits are compared, not values
        first = out.let(f"load atomic {kind}, ptr {address} {_ORDER}, align {dtype.bytes}")
        entry, loop, done = out.block, out.fresh_label("exchange"), out.fresh_label("exchanged")
        out.jump(loop)
        out.place(loop)
        held, current = out.let_later(), out.let_later()
        out.do(f"{held} = phi {kind} [ {first}, %{entry} ], [ {current}, %{loop} ]")
        before = self.exprs.from_memory(self._cast(held, kind, memory_type(dtype)), dtype, 1)
        made = self.exprs.to_memory(self._combined(before, value))
        stored = self._cast(made, memory_type(dtype), kind)
        pair = out.let(
            f"cmpxchg ptr {address}, {kind} {held}, {kind} {stored} {_ORDER} {_ORDER}, "
            f"align {dtype.bytes}"
        )
        out.do(f"{current} = extractvalue {{ {kind}, i1 }} {pair}, 0")
        out.branch(out.let(f"extractvalue {{ {kind}, i1 }} {pair}, 1"), done, loop)
        out.place(done)
        return before

    def _cast(self, text: str, have: VectorType, want: VectorType) -> str:
        """The same bits as another type."""
        out = self.exprs.out
        return text if have == want else out.let(f"bitcast {have} {text} to {want}")
