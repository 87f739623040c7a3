"""What observers of a run are told: each event with its statement, its places and its threads."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.sim.frame import SimOptions
from tileworkbench.compiler.sim.observers import Observer
from tileworkbench.compiler.sim.simulate import simulate
from tileworkbench.compiler.sim.statements import StatementTranslator


class Told(Observer):
    """Keeps what it is told; accesses as row-major positions."""

    def __init__(self) -> None:
        self.tensors: dict[str, int] = {}
        self.statements: list[tuple[str, int, str]] = []
        self.asks: list[tuple[str, str, int, int]] = []
        self.reads: list[tuple[str, list[int], list[int]]] = []
        self.writes: list[tuple[str, list[int], list[int], list[int]]] = []
        self.values: list[list[float]] = []

    def bound(self, storage: Any) -> None:
        self.tensors[storage.name] = storage.data.size

    def began(self, frame: Any, stmt: Any) -> None:
        self.statements.append(("began", frame.block_number, type(stmt).__name__))

    def ended(self, frame: Any, stmt: Any) -> None:
        self.statements.append(("ended", frame.block_number, type(stmt).__name__))

    def asked(self, frame: Any, storage: Any, access: str, active: int, lanes: int) -> None:
        self.asks.append((storage.name, access, active, lanes))

    def read(self, frame: Any, storage: Any, place: Any, threads: Any) -> None:
        self.reads.append((storage.name, flat(storage, place), numbers(threads)))

    def wrote(self, frame: Any, storage: Any, place: Any, threads: Any, registers: Any) -> None:
        told = flat(storage, place), numbers(threads), numbers(registers)
        self.writes.append((storage.name, *told))
        self.values.append(storage.data[place].reshape(-1).astype(float).tolist())

    def of(self, name: str) -> tuple[list[Any], list[Any]]:
        """What was read and written of one buffer."""
        return (
            [rest for found, *rest in self.reads if found == name],
            [rest for found, *rest in self.writes if found == name],
        )


def flat(storage: Any, place: Any) -> list[int]:
    return numbers(np.arange(storage.data.size).reshape(storage.data.shape)[place])


def numbers(value: Any) -> list[int]:
    return np.asarray(value).reshape(-1).tolist()


def run(program: Any, origin: Any, *args: Any) -> Told:
    told = Told()
    names = [param.name for param in origin.params if not param.output]
    named = dict(zip(names, args, strict=True))
    options = SimOptions(observers=(told,))
    watched = simulate(program, named, options=options, signature=origin)
    plain = simulate(program, named, signature=origin)
    for name, array in plain.arrays.items():
        np.testing.assert_array_equal(watched.arrays[name], array)
    return told


@tw.jit
def ragged(A: T.Tensor((6,), "float32")):
    B = T.empty((6,), "float32")
    with T.Kernel(2, threads=32) as bx:
        tile = T.alloc_fragment((4,), "float32")
        T.copy(A[bx * 4 : bx * 4 + 4], tile)
        for i in T.Parallel(4):
            tile[i] = tile[i] * 2.0
        T.copy(tile, B[bx * 4 : bx * 4 + 4])
    return B


def test_operators_of_the_tile_program_are_told_as_boxes() -> None:
    kernel = ragged.with_target("cpu").compile()
    told = run(kernel.program, kernel.program, np.arange(6, dtype=np.float32))
    assert told.tensors == {"A": 6, "B": 6}
    assert told.of("A") == ([[[0, 1, 2, 3], [-1]], [[4, 5], [-1]]], [])
    assert told.of("B") == ([], [[[0, 1, 2, 3], [-1], [-1]], [[4, 5], [-1], [-1]]])
    assert told.asks == [
        ("A", "load", 4, 4), ("B", "store", 4, 4), ("A", "load", 2, 4), ("B", "store", 2, 4)
    ]  # fmt: skip


def test_statements_are_told_in_order_and_what_they_wrote_is_there() -> None:
    kernel = ragged.with_target("cpu").compile()
    told = run(kernel.program, kernel.program, np.arange(6, dtype=np.float32))
    assert told.statements == [
        (when, block, what)
        for block in (1, 2)
        for what in ("Alloc", "Copy", "Store", "Copy")
        for when in ("began", "ended")
    ]
    written = [value for (name, *_), value in zip(told.writes, told.values, strict=True)]
    assert written[:3] == [[0, 1, 2, 3], [0, 2, 4, 6], [0, 2, 4, 6]]


@tw.jit
def by_threads(A: T.Tensor((70,), "float32")):
    B = T.empty((70,), "float32")
    with T.Kernel(2, threads=32) as bx:
        tx = T.get_thread_binding()
        own = T.alloc_local((2,), "float32")
        shared = T.alloc_shared((32,), "float32")
        own[1] = A[bx * 38 + tx]
        shared[31 - tx] = own[1]
        T.sync_threads()
        if tx < 4:
            B[bx * 38 + tx] = shared[0]
            B[bx * 38 + tx + 4] = own[1]
    return B


def test_accesses_of_threads_are_told_with_thread_and_register() -> None:
    kernel = by_threads.with_target("sim:sm_80").compile()
    told = run(kernel.passes[-1].program, kernel.program, np.arange(70, dtype=np.float32))
    lanes = list(range(32))
    assert told.of("A")[0] == [[lanes, lanes], [[38 + lane for lane in lanes], lanes]]
    read, written = told.of("shared")
    assert written[0] == [[31 - lane for lane in lanes], lanes, [-1] * 32]
    assert read[0] == [[0] * 4, [0, 1, 2, 3]]
    assert told.of("B")[1][:2] == [
        [[0, 1, 2, 3], [0, 1, 2, 3], [-1] * 4], [[4, 5, 6, 7], [0, 1, 2, 3], [1] * 4]
    ]  # fmt: skip
    assert told.of("own")[1][0] == [[2 * lane + 1 for lane in lanes], lanes, [-1] * 32]
    assert told.asks[:3] == [("A", "load", 32, 32), ("B", "store", 4, 32), ("B", "store", 4, 32)]
    assert ("began", 1, "Barrier") in told.statements
    assert ("ended", 2, "Barrier") in told.statements


@tw.jit
def product(A: T.Tensor((20, 16), "float16"), B: T.Tensor((16, 16), "float16")):
    C = T.empty((20, 16), "float32")
    with T.Kernel(1, T.ceildiv(20, 16), threads=32) as (_, by):
        left = T.alloc_shared((16, 16), "float16")
        right = T.alloc_shared((16, 16), "float16")
        total = T.alloc_fragment((16, 16), "float32")
        T.clear(total)
        for _ in T.Pipelined(1, num_stages=1):
            T.copy(A[by * 16, 0], left)
            T.copy(B, right)
            T.gemm(left, right, total)
        T.copy(total, C[by * 16, 0])
    return C


def test_copies_and_matrix_instructions_are_told_by_element() -> None:
    kernel = product.with_target("sim:sm_80").compile()
    program = kernel.passes[-1].program
    ones = np.ones((20, 16), np.float16), np.ones((16, 16), np.float16)
    told = run(program, kernel.program, *ones)
    read = sorted(at for places, _ in told.of("A")[0] for at in places)
    assert read == list(range(320))
    assert {thread for _, threads in told.of("A")[0] for thread in threads} == set(range(32))
    assert sum(active for name, _, active, _ in told.asks if name == "A") == 320
    assert sum(lanes for name, _, _, lanes in told.asks if name == "A") == 512
    fed = sorted(at for places, _ in told.of("left")[0] for at in places)
    assert fed == sorted([*range(256), *range(256)])  # both blocks, by ldmatrix
    stored = sorted(at for places, *_ in told.of("C")[1] for at in places)
    assert stored == list(range(320))
    assert told.of("total")[0] and {"Mma", "LoadMatrix"} <= {what for *_, what in told.statements}


def test_an_atomic_load_writes_nothing() -> None:
    @tw.jit(target="sim:sm_80")
    def count(A: T.Tensor((2,), "int32")):
        B = T.empty((32,), "int32")
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            T.atomic_add(A[1], tx)
            B[tx] = T.atomic_load(A[0])
        return B

    kernel = count.compile()
    told = run(kernel.passes[-1].program, kernel.program, np.zeros(2, np.int32))
    read, written = told.of("A")
    assert [places for places, *_ in written] == [[1] * 32]
    assert [places for places, _ in read] == [[1] * 32, [0] * 32]


def test_where_nobody_watches_statements_are_the_plain_closures() -> None:
    def execute(frame: Any) -> None:
        raise AssertionError("never called")

    leaf, around = simt.CommitGroup(simt.Engine.CP_ASYNC), st.Seq((st.Break(),))
    assert StatementTranslator().watched(leaf, execute) is execute
    watching = StatementTranslator(observers=(Observer(),))
    assert watching.watched(around, execute) is execute
    assert watching.watched(leaf, execute) is not execute


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_an_observer_that_overrides_nothing_changes_nothing(target: str) -> None:
    kernel = ragged.with_target(target).compile()
    program = kernel.program if target == "cpu" else kernel.passes[-1].program
    options = SimOptions(observers=(Observer(),))
    data = np.arange(6, dtype=np.float32)
    found = simulate(program, {"A": data}, options=options, signature=kernel.program)
    np.testing.assert_array_equal(found.outputs[0], 2 * data)
