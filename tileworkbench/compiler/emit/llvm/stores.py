"""Memory statements of the CPU stage as LLVM IR: allocations, stores, atomics."""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.diagnostics import CompileError
from tileworkbench.compiler.emit.llvm import packed
from tileworkbench.compiler.emit.llvm.atomics import AtomicWriter
from tileworkbench.compiler.emit.llvm.emitter import Emitter, Value, memory_type
from tileworkbench.compiler.emit.llvm.expressions import Expressions
from tileworkbench.compiler.emit.llvm.lane_access import store_apart
from tileworkbench.compiler.emit.llvm.module import ModuleState
from tileworkbench.compiler.emit.llvm.text import VectorType
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.types import DType


class Stores:
    """Writes to memory in an emitter's current place."""

    def __init__(self, module: ModuleState, emitter: Emitter) -> None:
        self.module, self.program, self.isa = module, module.program, module.isa
        self.out = emitter
        self.exprs = Expressions(
            emitter, module.functions, module.ranges, module.fetched, module.quiet
        )
        # Whether the stores being written may bypass the caches; None where it does not matter.
        self.streams: bool | None = None

    def alloc(self, stmt: st.Alloc) -> None:
        buffer = stmt.buffer
        if stmt.offset is not None:
            place = self.out.scratch(stmt.offset)
        else:
            count = 1
            for extent in buffer.shape:
                count *= const_int(extent) or 1
            place = self.out.alloca(str(memory_type(buffer.dtype)), count)
        self.out.pointers[buffer] = place
        if stmt.init is not None:
            self.write(place, self.exprs.evaluate(stmt.init), buffer.dtype)

    def write(self, address: str, value: Value, dtype: DType) -> None:
        kind = memory_type(dtype, value.lanes)
        stored = self.exprs.to_memory(value)
        self.out.do(f"store {kind} {stored}, ptr {address}, align {dtype.bytes}")

    def store(self, stmt: st.Store) -> None:
        buffer = stmt.buffer
        index = stmt.indices[0] if stmt.indices else None
        value = self.exprs.evaluate(stmt.value)
        if buffer in self.module.quiet.accumulators and not self.module.quiet.holds(stmt.value):
            value = self.exprs.quieted(value)
        predicate = None if stmt.predicate is None else self.exprs.evaluate(stmt.predicate)
        if index is None:
            self.guarded(
                predicate, lambda: self.write(self.exprs.pointer(buffer, None), value, buffer.dtype)
            )
            return
        run = self.exprs.contiguous(index)
        lanes = self.exprs.evaluate(index).lanes if run is None else run[1]
        if self.out.lane_var is not None and lanes == 1:
            self.last_lane(stmt, value, predicate)
            return
        value = self.exprs.spread(value, lanes)
        masked = predicate is not None and predicate.lanes > 1
        if self.out.is_packed(buffer):
            self.store_packed(buffer, index, value, predicate)
            return
        if run is not None or lanes == 1:
            first = index if run is None else run[0]

            def write() -> None:
                address = self.exprs.pointer(buffer, first)
                if masked and predicate is not None:
                    self.masked_store(address, value, predicate, buffer.dtype)
                elif self.streams and self.is_streamed(buffer, first, lanes):
                    self.write_past_caches(address, value, buffer.dtype)
                else:
                    self.write(address, value, buffer.dtype)

            self.guarded(None if masked else predicate, write)
            return
        self.guarded(
            None if masked else predicate,
            lambda: self.scatter(buffer, index, value, predicate if masked else None),
        )

    def store_packed(
        self, buffer: Buffer, index: Expr, value: Value, predicate: Value | None
    ) -> None:
        """Elements of which two share a byte: whole bytes where they are written together, else
        each element apart.
        """
        lanes, base = value.lanes, self.out.pointers[buffer]
        run = self.exprs.contiguous(index) if lanes > 1 else None
        halves = packed.low_bits(self.out, self.exprs.to_memory(value), lanes)
        masked = predicate is not None and predicate.lanes > 1
        if run is not None and not masked and self.exprs.has_whole_bytes(run):
            first, kind = run[0], VectorType("i8", lanes // 2)

            def write() -> None:
                address = self.exprs.packed_bytes(buffer, first)
                stored = packed.deinterleave(self.out, halves, lanes)
                self.out.do(f"store {kind} {stored}, ptr {address}, align 1")

        else:
            place = self.exprs.evaluate_in(index, lanes)

            def write() -> None:
                if lanes == 1:
                    packed.replace_element(self.out, base, place, halves)
                else:
                    mask = predicate.text if masked and predicate is not None else None
                    packed.replace_elements(self.out, base, place, halves, mask)

        self.guarded(None if masked else predicate, write)

    def write_past_caches(self, address: str, value: Value, dtype: DType) -> None:
        kind = memory_type(dtype, value.lanes)
        stored, align = self.exprs.to_memory(value), value.lanes * dtype.bytes
        self.out.do(f"store {kind} {stored}, ptr {address}, align {align}, !nontemporal !0")

    def is_streamed(self, buffer: Buffer, first: Expr | None, lanes: int) -> bool:
        """Whether a store of `lanes` elements from index `first` on may bypass the caches: the
        output is large, and the vector lies at a multiple of its own size.
        """
        module = self.module
        whole_vector = lanes * buffer.dtype.bytes in (16, 32, 64)
        return (
            whole_vector
            and first is not None
            and buffer in module.streamed
            and module.ranges.divides(lanes, first)
        )

    def last_lane(self, stmt: st.Store, value: Value, predicate: Value | None) -> None:
        """Every iteration of a vector loop writes one element: the last one stays."""
        if value.lanes > 1 or (predicate is not None and predicate.lanes > 1):
            raise CompileError(
                "a vector loop stores different values in one element",
                self.program.span(stmt.site),
            )
        if self.out.is_packed(stmt.buffer):
            self.store_packed(stmt.buffer, stmt.indices[0], value, predicate)
            return
        address = self.exprs.pointer
        self.guarded(
            predicate,
            lambda: self.write(address(stmt.buffer, stmt.indices[0]), value, stmt.buffer.dtype),
        )

    def guarded(self, predicate: Value | None, write: Callable[[], None]) -> None:
        """Run `write` where a scalar predicate holds."""
        if predicate is None:
            write()
            return
        then, after = self.out.fresh_label("store"), self.out.fresh_label("after")
        self.out.branch(predicate.text, then, after)
        self.out.place(then)
        with self.out.scope():
            write()
        self.out.jump(after)
        self.out.place(after)

    def atomic(self, stmt: st.Atomic) -> None:
        """One atomic access. Blocks run at the same time, but each on one worker: memory that only
        one block has needs no more than a load and a store.
        """
        index = stmt.indices[0]
        value = self.exprs.evaluate(stmt.value)
        predicate = None if stmt.predicate is None else self.exprs.evaluate(stmt.predicate)
        safe = None if stmt.safe is None else self.exprs.evaluate(stmt.safe)
        writer = AtomicWriter(self.exprs, stmt.kind, shared=stmt.buffer.scope == "global")
        before, written = self.out.block, ["", ""]

        def access() -> None:
            written[0] = writer.write(self.exprs.pointer(stmt.buffer, index), value).text
            written[1] = self.out.block

        self.guarded(predicate, access)
        if stmt.previous is None:
            return
        text = written[0]
        if predicate is not None:
            other = value.type.constant(0) if safe is None else safe.text
            chosen = f"[ {text}, %{written[1]} ], [ {other}, %{before} ]"
            text = self.out.let(f"phi {value.type} {chosen}")
        self.out.bind(stmt.previous, Value(text, value.dtype))

    def masked_store(self, address: str, value: Value, mask: Value, dtype: DType) -> None:
        kind, lanes = memory_type(dtype, value.lanes), VectorType("i1", value.lanes)
        stored = self.exprs.to_memory(value)
        callee = f"llvm.masked.store.{kind.mangled}.p0"
        place = (("ptr", address), ("i32", str(dtype.bytes)))
        self.out.run(callee, (kind, stored), *place, (lanes, mask.text))

    def scatter(self, buffer: Buffer, index: Expr, value: Value, mask: Value | None) -> None:
        kind, lanes = memory_type(buffer.dtype, value.lanes), VectorType("i1", value.lanes)
        stored, moves = self.exprs.to_memory(value), self.exprs.pattern(index)
        if mask is None and moves is not None and moves.repeat == 1:
            first = self.exprs.pointer(buffer, moves.base)
            store_apart(self.out, first, stored, kind, moves.stride, buffer.dtype.bytes)
            return
        addresses = self.exprs.pointers(buffer, index)
        active = "splat (i1 true)" if mask is None else mask.text
        pointers = VectorType("ptr", value.lanes)
        callee = f"llvm.masked.scatter.{kind.mangled}.v{value.lanes}p0"
        places = ((pointers, addresses), ("i32", str(buffer.dtype.bytes)))
        self.out.run(callee, (kind, stored), *places, (lanes, active))
