"""Statements. Every statement has a `site`: the id of the user's operation it came from, kept by
every pass.

`Program.sites[site]` is that operation's Span; 0 means none. Sites do not take part in equality.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import StrEnum
from typing import ClassVar

from tileworkbench.compiler.ir.effects import ELEMENT, NOTHING, Effects
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.node import Node, node


class LoopKind(StrEnum):
    """How the iterations of a `For` are executed."""

    SERIAL = "serial"
    UNROLLED = "unroll"
    VECTORIZED = "vectorized"
    BLOCKS = "blocks"  # CPU stage: independent grid blocks, spread over worker threads


class AtomicKind(StrEnum):
    """What an atomic access does to its element."""

    ADD = "add"
    MAX = "max"
    MIN = "min"
    AND = "and"
    OR = "or"
    XOR = "xor"
    STORE = "store"
    LOAD = "load"


class Stmt(Node):
    """Base of all statements."""

    __slots__ = ()
    site: int
    effects: ClassVar[Effects]


@node
class Seq(Stmt):
    """Statements one after another. A `Let` or `Alloc` in it is visible in the rest of the
    sequence.
    """

    stmts: tuple[Stmt, ...]
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class Let(Stmt):
    """Evaluate `value` once, here, and name it for the rest of the enclosing sequence."""

    var: Var
    value: Expr
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(exposes=True)


@node
class Alloc(Stmt):
    """Make `buffer` (contents undefined) for the rest of the enclosing sequence.

    A `local.var` has an initial value. In the CPU stage `offset` is the place in bytes in the
    worker's scratch arena; None is a stack slot of the block.
    """

    buffer: Buffer
    init: Expr | None = None
    offset: int | None = None
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class Alias(Stmt):
    """Make `buffer` another view of the memory of `source`, for the rest of the enclosing sequence.

    Both are row-major, have one scope and as many bits; the elements of `buffer` are those bits in
    the same order.
    """

    buffer: Buffer
    source: Buffer
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class Pointer(Stmt):
    """Make `buffer`, in global memory, name the elements from `address` on (a number of bytes, of
    type `handle`), for the rest of the enclosing sequence.

    The caller of the kernel promises that the memory exists; other buffers may overlap it.
    """

    buffer: Buffer
    address: Expr
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(exposes=True)


@node
class ExternCall(Stmt):
    """Call the function `name` of the program's sources, or else of the C library.

    `var` names its result, of the variable's type, for the rest of the enclosing sequence; None
    when it has none. What a pointer among the operands points to may be read and written.
    """

    name: str
    args: tuple[Expr, ...]
    var: Var | None = None
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(exposes=True)


@node
class Store(Stmt):
    """`buffer[indices] = value` where `predicate` holds. The value has the buffer's dtype (or its
    vector).
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    predicate: Expr | None = None
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(writes=(ELEMENT,))


@node
class Atomic(Stmt):
    """`buffer[indices] = kind(buffer[indices], value)` as one step that no other thread or block
    can interrupt, where `predicate` holds.

    `previous` names what the element held before, for the rest of the enclosing sequence; `safe`
    (zero when None) where the predicate does not hold. A load leaves the element as it is and its
    value is not used. Outside a parallel loop every thread of the block executes it. The memory is
    global, shared, or a fragment: a contribution to a reducer. With a vector of indices each
    element is a step of its own, and there is no `previous`.
    """

    kind: AtomicKind
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    previous: Var | None = None
    predicate: Expr | None = None
    safe: Expr | None = None
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(
        updates=(replace(ELEMENT, unread="is_store", unwritten="is_load"),)
    )

    @property
    def is_load(self) -> bool:
        """Whether it leaves the element as it is."""
        return self.kind is AtomicKind.LOAD

    @property
    def is_store(self) -> bool:
        """Whether it does not ask what the element holds."""
        return self.kind is AtomicKind.STORE


@node
class For(Stmt):
    """`for var in range(start, stop, step)`; the trip count is fixed on entry."""

    var: Var
    start: Expr
    stop: Expr
    step: Expr
    kind: LoopKind
    body: Stmt
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class While(Stmt):
    """Repeat `body` while `cond` holds."""

    cond: Expr
    body: Stmt
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class If(Stmt):
    """`then` when `cond` holds, else `orelse`."""

    cond: Expr
    then: Stmt
    orelse: Stmt | None = None
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class Break(Stmt):
    """Leave the innermost `For` or `While`."""

    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class Continue(Stmt):
    """Go on with the next iteration of the innermost `For` or `While`."""

    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class Assume(Stmt):
    """A fact the compiler may rely on."""

    cond: Expr
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class DeviceAssert(Stmt):
    """Stop the kernel with `message` when `cond` does not hold; `value` is an integer that belongs
    to it.
    """

    cond: Expr
    message: str
    value: Expr | None = None
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class Print(Stmt):
    """Write a line to the standard output: `parts` with one of `values` between each two.

    The threads of a block, which would all write the same, write it once; iterations of a parallel
    loop write one line each. `loops` are the variables of the loops around it as the user calls
    them and `counters` their values, whatever lowering makes of those loops: nothing is written of
    them, and those who watch a run are told.
    """

    parts: tuple[str, ...]
    values: tuple[Expr, ...]
    loops: tuple[str, ...] = ()
    counters: tuple[Expr, ...] = ()
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class Breakpoint(Stmt):
    """A replay of the simulator opens here; everything else passes over it."""

    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class Kernel(Stmt):
    """One launch: `vars[d]` runs over `grid[d]`, x first, blocks unordered; `threads` are the
    block's extents x, y, z.

    `thread_vars` are the thread's indices x, y, z in a kernel that names them, else empty.
    `swizzle` is the rasterisation hint `(panel size, order)` of `T.use_swizzle`, which permutes the
    blocks. Blocks that cooperate are neighbours: `cluster[d]` of them along each extent, if any. A
    block may stand for several `blocks` of a cluster, whose threads follow each other by rank.
    """

    vars: tuple[Var, ...]
    grid: tuple[Expr, ...]
    threads: tuple[int, ...]
    body: Stmt
    swizzle: tuple[int, str] | None = None
    thread_vars: tuple[Var, ...] = ()
    cluster: tuple[int, ...] = ()
    blocks: int = 1
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class SourceKernel(Stmt):
    """A launch of the `__global__` function `entry` of CUDA source, with the program's parameters
    in order; `grid` and `threads` are as in `Kernel`.
    """

    grid: tuple[Expr, ...]
    threads: tuple[int, ...]
    source: str
    entry: str
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING  # nobody looks into its text


def seq(stmts: list[Stmt] | tuple[Stmt, ...]) -> Stmt:
    """`stmts` as one statement: nested sequences are flattened, a single statement stays itself."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, Seq):
            flat.extend(stmt.stmts)
        else:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def items(body: Stmt) -> tuple[Stmt, ...]:
    """The statements of a sequence, or the only one: what `seq` makes `body` of."""
    return body.stmts if isinstance(body, Seq) else (body,)


def declares(stmt: Stmt) -> bool:
    """Whether `stmt` only makes a name: it has no place in the schedule of a pipelined loop."""
    return isinstance(stmt, Let | Alloc | Alias)


SCALAR = (
    Seq,
    Let,
    Alloc,
    Alias,
    Pointer,
    ExternCall,
    Store,
    Atomic,
    For,
    While,
    If,
    Break,
    Continue,
    Assume,
    DeviceAssert,
    Print,
    Breakpoint,
)
"""What a program may hold at every stage."""
