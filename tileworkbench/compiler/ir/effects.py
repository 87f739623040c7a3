"""What a statement does to memory and to other threads. It is declared on the class and queried
here.

Each class of statements has `effects`, which names the fields that say what it reads and writes.
`accesses` makes the accesses of one statement of it, together with the loads in its expressions.
No other module lists which classes touch memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from weakref import WeakKeyDictionary

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import (
    Address,
    AddressOf,
    Binary,
    Buffer,
    Const,
    Expr,
    Load,
    Region,
    Select,
    Var,
)
from tileworkbench.compiler.ir.node import InternedNode, Node


class Order(StrEnum):
    """What a statement orders, and for whom."""

    BLOCK = "block"  # all threads of the block meet
    WARP = "warp"  # lanes of a warp meet
    CLUSTER = "cluster"  # all threads of the blocks of a cluster meet
    CLUSTER_PHASE = "cluster_phase"  # waits for what threads of a cluster did before they arrived
    GRID = "grid"  # all threads of all blocks meet
    ARRIVE = "arrive"  # what was done before it, for whoever waits for that phase
    PHASE = "phase"  # waits for a phase: for what others did before they arrived
    COMMIT = "commit"  # ends a group of operations that were started
    GROUP = "group"  # waits for groups of operations that this thread has started
    FENCE = "fence"  # this thread's own accesses


@dataclass(frozen=True, slots=True)
class Place:
    """The `field` of a statement that says what is accessed: a region, an address, or a buffer;
    of that the element at the field `indices`, or all of it.

    `predicate` is a field that says where it happens, `unless` one without access where it holds,
    `count` one with the number of neighbouring elements from an address on. With `rows` the lanes
    of a warp name rows of 16 bytes, which other lanes read or write. An update does not read where
    `unread` holds, nor write where `unwritten` does.
    """

    field: str
    indices: str = ""
    predicate: str = ""
    unless: str = ""
    count: str = ""
    rows: bool = False
    unread: str = ""
    unwritten: str = ""


ELEMENT = Place("buffer", "indices", "predicate")
"""The element that statements with these fields are about."""


@dataclass(frozen=True, slots=True)
class Effects:
    """What the statements of a class do, apart from the loads in their expressions.

    `updates` are read and written in one step that nobody can interrupt. `starts` names the engine
    that does the accesses later, at any moment until somebody has waited for it. `orders` holds
    where the statement's attribute `when` is true, or always. A statement that `exposes` gives
    addresses away, and code that gets them may write there.
    """

    reads: tuple[Place, ...] = ()
    writes: tuple[Place, ...] = ()
    updates: tuple[Place, ...] = ()
    starts: str = ""
    orders: Order | None = None
    when: str = ""
    exposes: bool = False


NOTHING = Effects()
_WITHOUT_LOADS = (Const, Var)


@dataclass(frozen=True, slots=True)
class Access:
    """One access of `buffer`: the element at `indices`, `count` of them from there on (0: it is not
    known how many), a whole `region`, or without indices all of it.

    `certain`: it happens whenever its statement is executed; no `predicate`, no branch of an
    expression, no option of an operator decides. An `atomic` one is a single step; one that is
    `started` may happen later. `rows` is as in `Place`.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    reads: bool
    writes: bool
    certain: bool = True
    region: Region | None = None
    predicate: Expr | None = None
    count: int = 1
    atomic: bool = False
    started: bool = False
    rows: bool = False

    @property
    def of_element(self) -> bool:
        """Whether it names one element (or a vector of them)."""
        return self.region is None and len(self.indices) == len(self.buffer.shape)


def accesses(stmt: Node) -> Iterator[Access]:
    """What `stmt` itself reads and writes: as declared, and then by loads. Not what the statements
    inside it do.
    """
    yield from declared(stmt)
    for child in stmt.children():
        if isinstance(child, InternedNode) and not isinstance(child, _WITHOUT_LOADS):
            yield from _loads(child)


def declared(stmt: Node) -> Iterator[Access]:
    """The accesses that the class declares, without loads in expressions."""
    effects = _effects(stmt)
    started = bool(effects.starts)
    for places, reads, writes in (
        (effects.reads, True, False),
        (effects.writes, False, True),
        (effects.updates, True, True),
    ):
        for place in places:
            access = _access(stmt, place, reads, writes, started)
            if access is not None:
                yield access
    if effects.exposes:
        for buffer in exposed(stmt):
            yield Access(buffer, (), False, True, certain=False)


def order_of(stmt: Node) -> Order | None:
    """What `stmt` orders, None for nothing."""
    effects = _effects(stmt)
    return effects.orders if not effects.when or getattr(stmt, effects.when) else None


def exposed(stmt: Node) -> list[Buffer]:
    """The buffers whose address the expressions of `stmt` take: code that gets it may do anything
    to them.
    """
    children = [child for child in stmt.children() if isinstance(child, InternedNode)]
    return [
        node.buffer for child in children for node in _nodes(child) if isinstance(node, AddressOf)
    ]


def _effects(stmt: Node) -> Effects:
    return stmt.effects  # type: ignore[attr-defined,no-any-return]


def _access(stmt: Node, place: Place, reads: bool, writes: bool, started: bool) -> Access | None:
    """The access of a place of `stmt`; None where an option says that there is none."""
    option = getattr(stmt, place.unless) if place.unless else False
    if isinstance(option, Const):
        option = bool(option.value)
    if option is True:
        return None
    where = getattr(stmt, place.field)
    region, count = None, 1
    if where is None:
        return None
    if isinstance(where, Region):
        buffer, indices, region = where.buffer, where.mins, where
    elif isinstance(where, Address):
        buffer, indices = where.buffer, where.indices
        count = 128 // buffer.dtype.bits if place.rows else 0
        count = getattr(stmt, place.count) if place.count else count
    else:
        buffer, indices = where, getattr(stmt, place.indices) if place.indices else ()
    predicate = getattr(stmt, place.predicate) if place.predicate else None
    return Access(
        buffer,
        indices,
        reads and not (place.unread and getattr(stmt, place.unread)),
        writes and not (place.unwritten and getattr(stmt, place.unwritten)),
        certain=option is False and predicate is None,
        region=region,
        predicate=predicate,
        count=count,
        atomic=reads and writes,
        started=started,
        rows=place.rows,
    )


def _loads(root: InternedNode) -> tuple[Access, ...]:
    """The loads of an expression, or of the indices of a region or an address."""
    known = _KNOWN_LOADS.get(root)
    if known is None:
        known = _KNOWN_LOADS[root] = tuple(
            Access(
                node.buffer,
                node.indices,
                reads=True,
                writes=False,
                certain=certain and node.predicate is None,
                predicate=node.predicate,
            )
            for node, certain in _nodes(root).items()
            if isinstance(node, Load)
        )
    return known


# Passes ask for the same expressions again and again. An entry goes with its expression.
_KNOWN_LOADS: WeakKeyDictionary[InternedNode, tuple[Access, ...]] = WeakKeyDictionary()


def _nodes(root: Node) -> dict[Node, bool]:
    """The nodes of an expression, parents first, each with whether it is evaluated in any case."""
    nodes: dict[Node, bool] = {}
    stack: list[tuple[Node, bool]] = [(root, True)]
    while stack:
        node, certain = stack.pop()
        if node in nodes and (nodes[node] or not certain):
            continue
        nodes[node] = certain
        match node:
            case Select(cond, then, other):
                stack += [(other, False), (then, False), (cond, certain)]
            case Binary("logical_and" | "logical_or", a, b):
                stack += [(b, False), (a, certain)]
            case Buffer():
                pass
            case _:
                stack.extend([(child, certain) for child in reversed(node.children())])
    return nodes
