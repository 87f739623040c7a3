"""The rules of well-formed programs, one table of legal nodes per stage.

Run after the front end and after every pass. A violation is a bug of the compiler: `VerifyError`
names the rule, the node and the pass. User-facing checks live in the front end and in the checking
passes.
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.diagnostics import VerifyError
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.counts import count_fault
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Region, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.printer import print_expr, print_stmt
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import bound_by
from tileworkbench.compiler.ir.shapes import shape_fault
from tileworkbench.compiler.ir.sizes import MOST_BYTES, least_bytes
from tileworkbench.compiler.ir.types import BOOL, HANDLE

_TILE = (
    *st.SCALAR,
    st.Kernel,
    st.SourceKernel,
    *tile.COLLECTIVE,
    *simt.THREAD_LEVEL,
    *simt.ASYNCHRONOUS,
    simt.SetRegisters,
)
_SIMT = (*simt.THREAD_LEVEL, *simt.ASYNCHRONOUS, *simt.LOWERED)
LEGAL: dict[Stage, tuple[type[st.Stmt], ...]] = {
    Stage.TILE: _TILE,
    Stage.PLANNED: (*_TILE, *simt.LOWERED, tile.Pack, tile.MicroGemm),
    Stage.SIMT: (*st.SCALAR, st.Kernel, st.SourceKernel, *_SIMT),
    Stage.CPU: (*st.SCALAR, tile.Pack, tile.MicroGemm),
}
_OPERATORS = frozenset((*ir.ARITHMETIC, *ir.BITWISE, *ir.COMPARISONS, *ir.LOGICAL))
_VECTOR_BODY = (st.Seq, st.Let, st.Store, st.DeviceAssert)
_COLLECTIVE = (tile.Copy, tile.Gemm, tile.Fill, tile.Reduce, tile.Scan, tile.Pipelined)


def verify(program: Program) -> None:
    """Raise `VerifyError` unless `program` obeys every rule of its stage."""
    _Verifier(program).run()


class _Verifier:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.scope: set[Var | Buffer] = set()
        self.names: dict[str, object] = {}
        self.loops = 0
        self.cluster = False  # whether the launch around has clusters
        self.peers: set[Buffer] = set()
        self.checked: set[Node] = set()
        self.in_scope: set[Node] = set()  # what has been checked where this scope or one around is

    def run(self) -> None:
        program = self.program
        for symbol in program.symbols:
            self.declare(symbol, None)
        for param in program.params:
            self.declare(param.value, None)
            if isinstance(param.value, Buffer) and param.value.scope != "global":
                self.fail(f"parameter '{param.name}' has scope '{param.value.scope}'", None)
        for index in program.returns:
            if not 0 <= index < len(program.params) or not program.params[index].output:
                self.fail(f"return {index} is not an output parameter", None)
        self.stmt(program.body, None)

    def fail(self, message: str, stmt: st.Stmt | None) -> None:
        where = "" if stmt is None else f" in '{print_stmt(stmt).strip().splitlines()[0]}'"
        span = self.program.span(stmt.site) if stmt is not None else None
        raise VerifyError(f"malformed IR at stage '{self.program.stage}': {message}{where}", span)

    def declare(self, name: Var | Buffer, stmt: st.Stmt | None) -> None:
        if isinstance(name, Buffer) and least_bytes(name) > MOST_BYTES:
            self.fail(f"'{name.name}' has {least_bytes(name)} bytes, more than {MOST_BYTES}", stmt)
        if self.names.get(name.name, name) is not name:
            self.fail(f"the name '{name.name}' is used twice", stmt)
        self.names[name.name] = name
        self.scope.add(name)

    # Statements

    def stmt(self, stmt: st.Stmt, parent: st.Stmt | None) -> None:
        if not isinstance(stmt, LEGAL[self.program.stage]):
            self.fail(f"'{type(stmt).__name__}' is not legal here", stmt)
        if (
            isinstance(parent, st.For)
            and parent.kind is st.LoopKind.VECTORIZED
            and self.program.stage is Stage.CPU
        ):
            self.vector_body(stmt)
        if isinstance(stmt, st.Seq):
            outer = set(self.scope), set(self.in_scope)
            for child in stmt.stmts:
                if isinstance(child, st.Seq):
                    self.fail("a sequence directly inside a sequence", stmt)
                self.stmt(child, parent)
            self.scope, self.in_scope = outer
        elif not self.is_definition(stmt):
            self.operands(stmt)
            self.special(stmt)
            self.nested(stmt)
            if isinstance(stmt, st.Atomic) and stmt.previous is not None:
                self.declare(stmt.previous, stmt)
            if isinstance(stmt, simt.Exchange):
                self.declare(stmt.var, stmt)
            if isinstance(stmt, st.ExternCall) and stmt.var is not None:
                self.declare(stmt.var, stmt)

    def is_definition(self, stmt: st.Stmt) -> bool:
        """Whether `stmt` does nothing but define a name, which is checked and declared."""
        match stmt:
            case st.Let(var, value):
                self.value(value, stmt)
                if var.dtype != value.dtype:
                    self.fail(
                        f"'{var.name}' has dtype '{var.dtype}' but its value '{value.dtype}'", stmt
                    )
                self.declare(var, stmt)
            case st.Alloc(buffer, init):
                self.alloc(buffer, init, stmt)
            case st.Alias(buffer, source):
                self.buffer(source, stmt)
                if buffer.scope != source.scope or buffer.strides or source.strides:
                    self.fail(f"'{buffer.name}' cannot share the memory of '{source.name}'", stmt)
                self.declare(buffer, stmt)
            case simt.Peer(buffer, source, rank):
                self.peer(buffer, source, rank, stmt)
            case simt.TensorMap():
                self.tensor_map(stmt)
            case st.Pointer(buffer, address):
                for value in (address, *buffer.shape, *buffer.strides):
                    self.value(value, stmt)
                if address.dtype != HANDLE or buffer.scope != "global":
                    self.fail(f"'{buffer.name}' cannot be at '{print_expr(address)}'", stmt)
                self.declare(buffer, stmt)
            case _:
                return False
        return True

    def vector_body(self, stmt: st.Stmt) -> None:
        if not isinstance(stmt, _VECTOR_BODY):
            self.fail(f"'{type(stmt).__name__}' inside a vector loop", stmt)

    def alloc(self, buffer: Buffer, init: Expr | None, stmt: st.Alloc) -> None:
        if buffer.scope not in ir.SCOPES:
            self.fail(f"unknown scope '{buffer.scope}'", stmt)
        if buffer.scope == "local.var" and buffer.shape:
            self.fail(f"scalar variable '{buffer.name}' has a shape", stmt)
        if any(const is not None and const < 1 for const in map(const_int, buffer.shape)):
            self.fail(f"'{buffer.name}' has an extent below 1", stmt)
        if init is not None:
            self.value(init, stmt)
        self.declare(buffer, stmt)

    def peer(self, buffer: Buffer, source: Buffer, rank: Expr, stmt: st.Stmt) -> None:
        self.buffer(source, stmt)
        self.value(rank, stmt)
        if source.scope not in ("shared", "shared.barrier"):
            self.fail(f"other blocks have no access to '{source.name}'", stmt)
        if replace(source, name=buffer.name) is not buffer:
            self.fail(f"'{buffer.name}' is not like '{source.name}'", stmt)
        if rank.dtype.lanes > 1 or not rank.dtype.is_int:
            self.fail(f"the rank '{print_expr(rank)}' has dtype '{rank.dtype}'", stmt)
        if source in self.peers:
            self.fail(f"'{source.name}' belongs to another block", stmt)
        self.peers.add(buffer)
        if not self.cluster:
            self.fail("a launch without clusters", stmt)
        self.declare(buffer, stmt)

    def tensor_map(self, stmt: simt.TensorMap) -> None:
        buffer, source = stmt.buffer, stmt.source
        self.buffer(source, stmt)
        for value in (*buffer.shape, *buffer.strides):
            self.value(value, stmt)
        if (source.scope, buffer.scope) != ("global", "tensor_map") or source.dtype != buffer.dtype:
            self.fail(f"'{buffer.name}' is no map of '{source.name}'", stmt)
        for what, sizes in (("a box", stmt.box), ("strides", buffer.strides)):
            if len(sizes) != len(buffer.shape):
                self.fail(f"{what} of {len(sizes)} dimensions", stmt)
        self.declare(buffer, stmt)

    def operands(self, stmt: st.Stmt) -> None:
        """Check every expression, region and address that the statement holds directly."""
        for child in stmt.children():
            if isinstance(child, Expr):
                self.value(child, stmt)
            elif isinstance(child, Region | Address):
                self.buffer(child.buffer, stmt)
                indices = child.mins if isinstance(child, Region) else child.indices
                if len(indices) != len(child.buffer.shape):
                    self.fail(
                        f"'{child.buffer.name}' has {len(child.buffer.shape)} dimensions, "
                        f"not {len(indices)}",
                        stmt,
                    )
                for operand in child.children():
                    if isinstance(operand, Expr):
                        self.value(operand, stmt)
            elif isinstance(child, Buffer):
                self.buffer(child, stmt)

    def special(self, stmt: st.Stmt) -> None:
        match stmt:
            case st.Store(buffer, indices, value, predicate):
                self.element(buffer, indices, stmt)
                lanes = max((index.dtype.lanes for index in indices), default=1)
                if value.dtype != buffer.dtype.with_lanes(lanes):
                    self.fail(
                        f"a '{value.dtype}' is stored in '{buffer.name}' of '{buffer.dtype}'", stmt
                    )
                self.condition(predicate, stmt)
            case st.Atomic():
                self.atomic(stmt)
            case st.Print(parts, values) if len(parts) != len(values) + 1:
                self.fail(f"{len(values)} values between {len(parts)} texts", stmt)
            case st.If(cond) | st.While(cond) | st.Assume(cond) | st.DeviceAssert(cond):
                self.condition(cond, stmt)
            case st.Break() | st.Continue():
                if not self.loops:
                    self.fail(f"'{type(stmt).__name__}' outside a loop", stmt)
            case tile.Fill(dst, value) if value.dtype != dst.buffer.dtype:
                self.fail(
                    f"'{dst.buffer.name}' of '{dst.buffer.dtype}' is filled with a '{value.dtype}'",
                    stmt,
                )
            case st.For(kind=st.LoopKind.VECTORIZED) if self.program.stage is Stage.CPU:
                bounds = (const_int(stmt.start), const_int(stmt.step))
                if bounds != (0, 1) or const_int(stmt.stop) not in (2, 4, 8, 16, 32, 64):
                    self.fail("a vector loop runs from 0 to a power of two up to 64", stmt)
            case st.For(kind=st.LoopKind.BLOCKS) if self.program.stage is not Stage.CPU:
                self.fail("a block loop", stmt)
            case simt.Exchange():
                self.exchange(stmt)
            case tile.Reduce(src=src, dim=dim) if not 0 <= dim < len(src.shape):
                self.fail(f"dimension {dim} of '{src.name}'", stmt)
            case tile.Gemm() | tile.Copy() | tile.Scan() | tile.Reduce():
                if fault := shape_fault(stmt):
                    self.fail(fault, stmt)
            case tile.Pipelined() if self.program.stage is Stage.TILE:
                pass  # the schedule may be the user's: `plan_pipelines` checks it
            case _:
                if fault := count_fault(stmt):
                    self.fail(fault, stmt)

    def atomic(self, stmt: st.Atomic) -> None:
        self.element(stmt.buffer, stmt.indices, stmt)
        if stmt.buffer.scope == "local" and self.program.stage in (Stage.TILE, Stage.SIMT):
            self.fail(f"'{stmt.buffer.name}' is in scope '{stmt.buffer.scope}'", stmt)
        lanes = max((index.dtype.lanes for index in stmt.indices), default=1)
        if lanes > 1 and stmt.previous is not None:
            self.fail("the previous contents of a vector", stmt)
        for value in (stmt.value, stmt.previous, stmt.safe):
            if value is not None and value.dtype != stmt.buffer.dtype.with_lanes(lanes):
                self.fail(f"a '{value.dtype}' beside an element of '{stmt.buffer.dtype}'", stmt)
        self.condition(stmt.predicate, stmt)

    def exchange(self, stmt: simt.Exchange) -> None:
        if simt.EXCHANGES.get(stmt.kind) != len(stmt.args):
            self.fail(f"'{stmt.kind}' of {len(stmt.args)} operands", stmt)
        if stmt.var.dtype != simt.exchange_dtype(stmt.kind, stmt.args):
            self.fail(f"'{stmt.var.name}' has dtype '{stmt.var.dtype}'", stmt)

    def nested(self, stmt: st.Stmt) -> None:
        bodies = [child for child in stmt.children() if isinstance(child, st.Stmt)]
        if not bodies:
            return
        outer, loops = (set(self.scope), set(self.in_scope)), self.loops
        for var in bound_by(stmt):
            self.declare(var, stmt)
        if isinstance(stmt, st.For | st.While | tile.Pipelined):
            self.loops += 1
        elif isinstance(stmt, st.Kernel | tile.Parallel):
            self.loops = 0
        if isinstance(stmt, st.Kernel):
            self.cluster = bool(stmt.cluster)
        if isinstance(stmt, tile.Parallel):
            self.parallel(stmt)
        for body in bodies:
            self.stmt(body, stmt)
        (self.scope, self.in_scope), self.loops = outer, loops

    def parallel(self, stmt: tile.Parallel) -> None:
        stack: list[st.Stmt] = [stmt.body]
        while stack:
            inner = stack.pop()
            if isinstance(inner, _COLLECTIVE):
                self.fail(f"'{type(inner).__name__}' inside a Parallel loop", stmt)
            stack.extend(child for child in inner.children() if isinstance(child, st.Stmt))

    # Expressions

    def buffer(self, buffer: Buffer, stmt: st.Stmt) -> None:
        if buffer not in self.scope:
            self.fail(f"buffer '{buffer.name}' is not in scope", stmt)
        chosen = buffer.scope in ("shared", "local.fragment")  # the user may have annotated it
        if buffer.layout is not None and not chosen and self.program.stage is Stage.TILE:
            self.fail(f"buffer '{buffer.name}' has a layout", stmt)

    def element(self, buffer: Buffer, indices: tuple[Expr, ...], stmt: st.Stmt) -> None:
        self.buffer(buffer, stmt)
        if len(indices) != len(buffer.shape):
            self.fail(
                f"'{buffer.name}' has {len(buffer.shape)} dimensions, not {len(indices)}", stmt
            )
        for index in indices:
            if not index.dtype.is_int:
                self.fail(f"index '{print_expr(index)}' has dtype '{index.dtype}'", stmt)
        if self.program.stage is Stage.CPU and len(buffer.shape) > 1:
            self.fail(f"buffer '{buffer.name}' is not flat", stmt)

    def condition(self, cond: Expr | None, stmt: st.Stmt) -> None:
        if cond is not None and cond.dtype.scalar != BOOL:
            self.fail(f"condition '{print_expr(cond)}' has dtype '{cond.dtype}'", stmt)

    def value(self, root: Expr, stmt: st.Stmt) -> None:
        """`root` and all below it: names in scope, operand dtypes that agree."""
        stack: list[Node] = [root]
        while stack:
            node = stack.pop()
            if node in self.in_scope:
                continue
            self.in_scope.add(node)
            if isinstance(node, Var):
                if node not in self.scope:
                    self.fail(f"variable '{node.name}' is not in scope", stmt)
                continue
            if isinstance(node, ir.Load | ir.AddressOf):
                self.element(node.buffer, node.indices, stmt)
                self.condition(getattr(node, "predicate", None), stmt)
                stack.extend(child for child in node.children() if isinstance(child, Expr))
                continue
            if node not in self.checked:
                self.types(node, stmt)
                self.checked.add(node)
            stack.extend(node.children())

    def types(self, value: Node, stmt: st.Stmt) -> None:
        match value:
            case ir.Binary(op, a, b, dtype):
                if op not in _OPERATORS:
                    self.fail(f"unknown operator '{op}'", stmt)
                shifts = op in ("shl", "shr") and b.dtype.is_int
                if a.dtype != b.dtype and not shifts:
                    self.fail(f"'{op}' of '{a.dtype}' and '{b.dtype}'", stmt)
                compared = op in ir.COMPARISONS or op in ir.LOGICAL
                if dtype != (BOOL.with_lanes(a.dtype.lanes) if compared else a.dtype):
                    self.fail(f"'{op}' of '{a.dtype}' typed as '{dtype}'", stmt)
            case ir.Unary(op, a, dtype):
                if op not in ir.UNARY or dtype != a.dtype:
                    self.fail(f"'{op}' of '{a.dtype}' typed as '{dtype}'", stmt)
            case ir.Select(cond, then, other, _, dtype):
                if (
                    cond.dtype.scalar != BOOL
                    or then.dtype != other.dtype
                    or dtype.scalar != then.dtype.scalar
                ):
                    self.fail(f"select of '{cond.dtype}', '{then.dtype}' and '{other.dtype}'", stmt)
            case ir.Call(name, args):
                alike = args[1:] if name in ("lookup", "lane_at") else args
                if name == "lookup" and not all(isinstance(arg, ir.Const) for arg in alike):
                    self.fail("a table of 'lookup' that is not constant", stmt)
                if ir.INTRINSICS.get(name) != len(args) or any(
                    arg.dtype != alike[0].dtype for arg in alike
                ):
                    self.fail(f"call of '{name}' with {[str(arg.dtype) for arg in args]}", stmt)
            case ir.Reinterpret(inner, dtype):
                if inner.dtype.bits * inner.dtype.lanes != dtype.bits * dtype.lanes:
                    self.fail(f"'{inner.dtype}' reinterpreted as '{dtype}'", stmt)
            case ir.Cast(inner, dtype):
                if inner.dtype.lanes != dtype.lanes:
                    self.fail(f"'{inner.dtype}' cast to '{dtype}'", stmt)
