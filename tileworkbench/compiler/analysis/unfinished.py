"""Operations that are started, and what is certainly wrong about waiting for them.

A walk in program order with the operations under way. A loop is judged by its first iteration;
behind a loop or a branch that starts something or waits, nothing is known. Groups are counted
outside loops only, and arrivals at memory barriers where no loop repeats them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tileworkbench.compiler.analysis.arrival_counts import arrival_counts
from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.analysis.pending import Operation, Pending
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.effects import Access, Order, accesses, order_of
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.loops import iterations
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Engine

_PRODUCTS = (Engine.WGMMA, Engine.TENSOR)
_START = {Engine.WGMMA: "T.wgmma_gemm", Engine.TMA_STORE: "T.tma_copy"}
_COMMIT = {Engine.TMA_STORE: "T.tma_store_arrive()"}
_WAIT = {
    Engine.WGMMA: "T.wait_wgmma(0)",
    Engine.TMA_STORE: "T.tma_store_arrive() and T.tma_store_wait(0, read=False)",
    Engine.TMA: "a wait at its memory barrier",
    Engine.CLUSTER: "a wait at its memory barrier",
    Engine.TENSOR: "a wait at its memory barrier",
}
_WAITS = (Order.GROUP, Order.PHASE, Order.COMMIT)
Found = tuple[int, str]


def unfinished(kernel: st.Kernel) -> Iterator[Found]:
    """The site and the sentence of every such access and wait."""
    started = {stmt.engine for stmt in statements(kernel.body) if isinstance(stmt, simt.Start)}
    for stmt in statements(kernel.body):
        if isinstance(stmt, simt.WaitGroup) and stmt.engine not in started:
            yield stmt.site, _nothing_to_wait_for(stmt.engine)
    if started:
        walk = _Walk(owners(kernel.body))
        walk.visit(kernel.body, Pending(), False)
        yield from walk.found
    yield from arrival_counts(kernel)


@dataclass(slots=True)
class _Walk:
    owner: dict[Buffer, Buffer]
    found: list[Found] = field(default_factory=list)

    def visit(self, stmt: st.Stmt, state: Pending, repeated: bool) -> None:
        """Check `stmt`, which is certainly executed; `repeated`: by a loop."""
        match stmt:
            case st.Seq(stmts):
                for part in stmts:
                    self.visit(part, state, repeated)
            case simt.Start():
                self.check(stmt.body, state)
                state.start(stmt)
            case simt.Role(body=body):
                self.visit(body, Pending(), repeated)
            case tile.Parallel() if _is_asynchronous(stmt):
                state.forget()
            case _ if order_of(stmt) is not None:
                if isinstance(stmt, simt.WaitGroup) and not repeated:
                    self.check_count(stmt, state)
                self.check(stmt, state)
                state.order(stmt)
            case _ if not _is_asynchronous(stmt):
                self.check(stmt, state)
            case st.For() | tile.Pipelined() if iterations(stmt):
                self.visit(stmt.body, state, True)
                state.forget()
            case _:
                state.forget()

    def check_count(self, stmt: simt.WaitGroup, state: Pending) -> None:
        """Report a wait that leaves as many groups under way as there are."""
        count = state.committed[stmt.engine]
        if state.complete and state.in_groups(stmt.engine) and stmt.pending >= count:
            self.found.append((stmt.site, _never_reached(stmt.engine, stmt.pending, count)))

    def check(self, stmt: st.Stmt, state: Pending) -> None:
        """Report accesses that `stmt` certainly makes to what an operation under way reads or
        writes.
        """
        if not state.operations:
            return
        for part in _certain(stmt):
            for access in accesses(part):
                for one in state.operations:
                    sentence = self.sentence(one, access, isinstance(stmt, tile.Gemm))
                    if sentence is not None and access.certain:
                        self.found.append((part.site, sentence))
                        return

    def sentence(self, one: Operation, access: Access, product: bool) -> str | None:
        if product and one.engine in _PRODUCTS:
            return None  # products into one accumulator follow each other
        met = [each for each in one.touched if self.same(each, access)]
        what = "product" if one.engine in _PRODUCTS else "copy"
        wait = _WAIT.get(one.engine, "T.ptx_commit_group() and T.ptx_wait_group(0)")
        name, remedy = access.buffer.name, f"put {wait} between the two"
        if any(each.writes for each in met):
            if access.reads:
                return (
                    f"'{name}' is read before the wait for the asynchronous {what} that writes "
                    f"it: {remedy}"
                )
            into = "into" if what == "product" else "to"
            return (
                f"'{name}' is written while an asynchronous {what} {into} it is under way: {remedy}"
            )
        if met and access.writes:
            remedy = remedy.replace(", read=False", "")
            return f"'{name}' is written while an asynchronous {what} still reads it: {remedy}"
        return None

    def same(self, a: Access, b: Access) -> bool:
        """Whether two accesses certainly have an element in common."""
        if self.owner.get(a.buffer, a.buffer) is not self.owner.get(b.buffer, b.buffer):
            return False
        if _is_whole(a) or _is_whole(b):
            return True
        return a.buffer is b.buffer and a.region is not None and a.region is b.region


def _is_whole(access: Access) -> bool:
    """Whether an access is of all of its buffer."""
    region = access.region
    if region is None:
        return not access.indices and bool(access.buffer.shape)
    starts = all(const_int(low) == 0 for low in region.mins)
    return starts and region.extents == access.buffer.shape


def _is_asynchronous(stmt: st.Stmt) -> bool:
    return any(
        isinstance(inner, simt.Start | simt.Role) or order_of(inner) in _WAITS
        for inner in statements(stmt)
    )


def _certain(stmt: st.Stmt) -> Iterator[st.Stmt]:
    """The statements of `stmt` that are executed whenever it is."""
    yield stmt
    match stmt:
        case st.For(body=body) if iterations(stmt):
            yield from _certain(body)
        case tile.Parallel(extents=extents, body=body) if all(map(const_int, extents)):
            yield from _certain(body)
        case st.Seq(stmts):
            for part in stmts:
                yield from _certain(part)


def _nothing_to_wait_for(engine: Engine) -> str:
    what = "products" if engine in _PRODUCTS else "copies"
    start = _START.get(engine, "T.async_copy")
    return (
        f"this waits for asynchronous {what}, and the kernel starts none: start them with "
        f"{start}, or leave the wait out"
    )


def _never_reached(engine: Engine, pending: int, count: int) -> str:
    if count == 0:
        commit = _COMMIT.get(engine, "T.ptx_commit_group()")
        return f"this waits for nothing: no group has been ended, with {commit}"
    return (
        f"this waits for nothing: it leaves {pending} groups under way, and there "
        f"{'is' if count == 1 else 'are'} {count}"
    )
