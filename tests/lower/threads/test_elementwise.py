"""Element-wise operators on threads: the results of the front end's program, in wide accesses."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lower.threads.cases import CASES, Case
from tests.lower.threads.planned import lowered
from tileworkbench.compiler.ir.expr import Broadcast, Load
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.ir.simt import AsyncCopy
from tileworkbench.compiler.ir.stmt import Store
from tileworkbench.compiler.sim import simulate


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_threads_compute_what_the_kernel_says(case: Case) -> None:
    source = case.program()
    expected = simulate(source, case.arguments()).arrays
    found = simulate(lowered(source), case.arguments(), signature=source)
    assert found.report.ok, str(found.report)
    for name, value in expected.items():
        np.testing.assert_array_equal(found.arrays[name], value, name)


def widths(program: Program) -> dict[str, set[int]]:
    """The numbers of elements that accesses to each buffer take, as `load A` and `store A`."""
    found: dict[str, set[int]] = {}
    for node in walk(program.body):
        if isinstance(node, Load | Store):
            kind = "load" if isinstance(node, Load) else "store"
            lanes = max((index.dtype.lanes for index in node.indices), default=1)
            found.setdefault(f"{kind} {node.buffer.name}", set()).add(lanes)
        elif isinstance(node, AsyncCopy):
            found.setdefault(f"copy {node.dst.buffer.name}", set()).add(node.elements)
    return found


WIDTHS = [
    ("a copy converts in memory", {"load A": {4}, "load S": {8}, "store B": {8}}),
    ("a copy converts in registers", {"load A": {8}, "store B": {8}}),
    ("rows are gathered", {"load A": {4}, "store B": {4}, "load I": {1}}),
    ("memory is transposed directly", {"load A": {1}, "store B": {1}}),
    ("a symbolic number of rows", {"load A": {4}, "store B": {4}}),
    ("a symbolic width", {"load A": {1}, "store B": {1}}),
    ("codes of four bits in shared memory", {"load S": {4}, "load A": {16}}),
    ("iterations choose what to store", {"store B": {1}}),
    ("names inside the body", {"load A": {4}, "store B": {4}}),
    ("a tensor is updated in place", {"load A": {4}, "store A": {4}}),
    ("a store is read again by its iteration", {"load A": {1}, "store A": {1}, "store B": {4}}),
    ("bytes are filled", {"store S": {16}, "store R": {8}, "load S": {16}, "store B": {16}}),
    ("the element before", {"load A": {1}, "store B": {1}}),
    ("a shared tile of three dimensions", {"store S": {8}, "load S": {8}, "store B": {8}}),
    ("a user's vector loop", {"load A": {4}, "store B": {4}}),
    ("a vector loop of single threads", {"load A": {4}, "store B": {4}}),
    ("a ragged corner", {"load A": {1}, "load S": {4}, "store B": {1}}),
]


@pytest.mark.parametrize(("name", "expected"), WIDTHS, ids=[name for name, _ in WIDTHS])
def test_memory_decides_how_wide_accesses_are(name: str, expected: dict[str, set[int]]) -> None:
    found = widths(lowered(CASES[name].program()))
    assert {key: found[key] for key in expected} == expected


def test_a_fill_is_a_vector_of_one_constant() -> None:
    made = lowered(CASES["bytes are filled"].program())
    stores = [s for s in walk(made.body) if isinstance(s, Store) and s.buffer.name == "S"]
    assert [type(store.value) for store in stores] == [Broadcast]


def test_a_condition_that_always_holds_leaves_nothing() -> None:
    body = """
    F = T.alloc_fragment((64,), "float32")
    T.fill(F, 1.0)
    for i in T.Parallel(64):
        F[i] = F[i]
    T.copy(F, A)
    """
    made = lowered(Case({"A": ((64,), "float32")}, body).program())
    assert sum(isinstance(node, Store) for node in walk(made.body)) == 2


def test_an_assumed_divisor_makes_symbolic_rows_wide() -> None:
    body = """
    T.assume(n % 8 == 0)
    for i, j in T.Parallel(64, n):
        B[i, j] = A[i, j]
    """
    case = Case({"A": ((64, "n"), "float16"), "B": ((64, "n"), "float16")}, body, symbols={"n": 40})
    source = case.program()
    program = lowered(source)
    assert widths(program)["load A"] == widths(program)["store B"] == {8}
    found = simulate(program, case.arguments(), signature=source)
    np.testing.assert_array_equal(found.arrays["B"], case.arguments()["A"])


def test_a_swizzle_keeps_vectors_whole() -> None:
    body = """
    S = T.alloc_shared((64, 64), "float16", layout=Layout((64, 64), lambda i, j: \
(64*i + 4*(i%16 ^ j//4) + j%4,)))
    T.copy(A, S)
    """
    found = widths(lowered(Case({"A": ((64, 64), "float16")}, body).program()))
    assert found["store S"] == {4}


@pytest.mark.parametrize(
    ("tensors", "target", "expected"),
    [
        ({"A": ((64, 64), "float16")}, "cuda:sm_80", {"copy S": {8}}),
        ({"A": ((64, 64), "float16")}, "cuda:sm_75", {"store S": {8}}),
        ({"A": ((64, 66), "float16")}, "cuda:sm_80", {"copy S": {2}}),
        ({"A": ((64, 63), "float16")}, "cuda:sm_80", {"store S": {1}}),
        ({"A": ((64, 64), "float32")}, "cuda:sm_80", {"store S": {4}}),
    ],
)
def test_pipelined_copies_are_asynchronous_where_the_engine_takes_them(
    tensors: dict[str, tuple[tuple[int | str, ...], str]],
    target: str,
    expected: dict[str, set[int]],
) -> None:
    body = """
    S = T.alloc_shared((64, 32), "float16")
    for k in T.Pipelined(2, num_stages=2, order=(0,), stage=(0,)):
        T.copy(A[0:64, k * 32 : k * 32 + 32], S)
    """
    found = widths(lowered(Case(tensors, body).program(), target))
    assert {key: found.get(key) for key in expected} == expected
