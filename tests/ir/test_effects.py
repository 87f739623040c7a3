"""What each class of statements declares about memory and order, and what is made of it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tileworkbench.compiler.ir import build, simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import binary, int_const
from tileworkbench.compiler.ir.effects import Order, accesses, order_of
from tileworkbench.compiler.ir.expr import Address, AddressOf, Buffer, Expr, Load, Region, Var
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.types import UINT64, DType

CLASSES = [
    found
    for module in (st, tile, simt)
    for found in vars(module).values()
    if isinstance(found, type)
    and found.__module__ == module.__name__
    and issubclass(found, Stmt)
    and found is not Stmt
]
# Fields that name memory without touching it.
NAMES = {"Alloc.buffer", "Alias.buffer", "Alias.source", "Pointer.buffer"}
NAMES |= {"TensorMap.buffer", "TensorMap.source"}


def test_no_class_is_left_out():
    assert {cls.__name__ for cls in Stmt.__subclasses__()} == {cls.__name__ for cls in CLASSES}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_statement_declares_each_field_that_names_memory(cls):
    assert "effects" in vars(cls), f"{cls.__name__} declares no effects"
    effects = cls.effects
    places = (*effects.reads, *effects.writes, *effects.updates)
    own = {field.name for field in fields(cls)}
    for place in places:
        options = (place.unless, place.unread, place.unwritten, effects.when)
        named = {place.field, place.indices, place.predicate, place.count, *options} - {""}
        assert all(name in own or hasattr(cls, name) for name in named)
    kinds = {field.name: str(field.type).removesuffix(" | None") for field in fields(cls)}
    memory = {name for name, kind in kinds.items() if kind in ("Buffer", "Region", "Address")}
    named = {name.split(".")[1] for name in NAMES if name.startswith(f"{cls.__name__}.")}
    assert memory - named == {place.field for place in places}


I32, F16 = DType("int32"), DType("float16")
X, P = Var("x", I32), Var("p", DType("bool"))
ZERO, ONE, EIGHT = int_const(0), int_const(1), int_const(8)
TRUE, FALSE = build.const(1, P.dtype), build.const(0, P.dtype)
A = Buffer("A", F16, (EIGHT,), "global")
S = Buffer("S", F16, (EIGHT,), "shared")
C = Buffer("C", F16, (EIGHT,), "local.fragment")
BARS = Buffer("bars", UINT64, (ONE,), "shared.barrier")
BAR = Address(BARS, (ZERO,))


def load(buffer: Buffer, predicate: Expr | None = None) -> Load:
    return Load(buffer, (X,), predicate)


def region(buffer: Buffer) -> Region:
    return Region(buffer, (ZERO,), (EIGHT,))


def atomic(kind: st.AtomicKind, predicate: Expr | None = None) -> st.Atomic:
    return st.Atomic(kind, S, (X,), load(A), predicate=predicate)


def gemm(clear: Expr) -> tile.Gemm:
    return tile.Gemm(region(A), region(S), region(C), False, False, clear)


CASES: dict[str, tuple[st.Stmt, str]] = {
    "a load in a condition": (st.If(binary("lt", load(A), load(S)), st.Seq(())), "A:r S:r"),
    "a store": (st.Store(S, (X,), load(A)), "S:w A:r"),
    "a store under a predicate": (st.Store(S, (X,), load(A), P), "S:w? A:r"),
    "a load under a predicate": (st.Store(S, (X,), load(A, P)), "S:w A:r?"),
    "what a selection leaves out": (
        st.Store(S, (X,), build.select(P, load(A), load(C), lazy=True)),
        "S:w A:r? C:r?",
    ),
    "an addition": (atomic(st.AtomicKind.ADD), "S:rw A:r"),
    "an atomic load": (atomic(st.AtomicKind.LOAD), "S:r A:r"),
    "an atomic store": (atomic(st.AtomicKind.STORE, P), "S:w? A:r"),
    "a copy": (tile.Copy(region(A), region(S)), "A:r S:w"),
    "a product": (gemm(FALSE), "A:r S:r C:r C:w"),
    "a product that clears": (gemm(TRUE), "A:r S:r C:w"),
    "a product that may clear": (gemm(P), "A:r S:r C:r? C:w"),
    "a reduction": (tile.Reduce(tile.ReduceKind.SUM, A, C, 0, True), "A:r C:w"),
    "a reduction that goes on": (tile.Reduce(tile.ReduceKind.SUM, A, C, 0, False), "A:r C:r C:w"),
    "an address given away": (
        st.ExternCall("f", (AddressOf(S, (ZERO,)), load(A))),
        "S:w? A:r",
    ),
    "an asynchronous copy": (
        simt.AsyncCopy(Address(S, (ZERO,)), Address(A, (X,)), 8, P),
        "A:r S:w",
    ),
    "an arrival": (simt.BarrierArrive(BAR), "bars:rw"),
    "a signal": (simt.BarrierSignal(BAR, 1, 16), "bars:rw"),
    "a peer": (simt.Peer(S, A, X), "S:w A:w"),
    "a barrier": (simt.Barrier(), ""),
}


@pytest.mark.parametrize(("stmt", "expected"), CASES.values(), ids=list(CASES))
def test_the_accesses_of_a_statement(stmt, expected):
    found = []
    for one in accesses(stmt):
        how = "r" * one.reads + "w" * one.writes + "?" * (not one.certain)
        found.append(f"{one.buffer.name}:{how}")
    assert " ".join(found) == expected


def test_what_is_inside_a_statement_is_not_its_own():
    inner = st.Store(S, (X,), load(A))
    assert list(accesses(st.Seq((inner, inner)))) == []


@pytest.mark.parametrize(
    ("stmt", "expected"),
    [
        (simt.Barrier(), Order.BLOCK),
        (simt.Barrier(1, 64, wait=False), None),
        (simt.Exchange(X, "block_any", (P,)), Order.BLOCK),
        (simt.Exchange(X, "ballot", (P,)), None),
        (simt.BarrierWait(BAR, ZERO), Order.PHASE),
        (tile.Copy(region(A), region(S)), Order.BLOCK),
    ],
)
def test_what_a_statement_orders(stmt, expected):
    assert order_of(stmt) is expected
