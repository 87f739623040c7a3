"""Loops, branches and variables, uniform and per lane, against the same code run by Python."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.kernels import block, program
from tileworkbench.compiler.diagnostics import ArgumentError, DeviceAssertError, RunError
from tileworkbench.compiler.sim import SimOptions, simulate

N = 12


def both_ways(body: str, **arrays: np.ndarray) -> np.ndarray:
    """Run `body`, the code of iteration `i` of N, in a serial and in a parallel loop; both must
    agree.
    """
    results = []
    for loop in ("serial", "Parallel"):
        names = "; ".join(f"{name}: ({N},) {array.dtype}" for name, array in arrays.items())
        made = program(
            f"{names}; Out: ({N},) int32",
            block(
                f"for i in T.{loop}({N}):\n"
                + "\n".join("    " + line for line in body.strip("\n").splitlines())
            ),
            outputs=["Out"],
            returns=["Out"],
        )
        result = simulate(made, arrays)
        assert result.report.ok, str(result.report)
        results.append(result.outputs[0])
    np.testing.assert_array_equal(*results)
    return results[0]


A = np.array([3, 0, 7, -2, 5, 11, 1, 4, -9, 6, 2, 8], "int32")


def test_branches_by_lane() -> None:
    found = both_ways(
        """
if A[i] > 4:
    Out[i] = A[i] * 10
else:
    if A[i] < 0:
        Out[i] = -1
    else:
        Out[i] = 0
""",
        A=A,
    )
    np.testing.assert_array_equal(found, np.where(A > 4, A * 10, np.where(A < 0, -1, 0)))


def test_loops_whose_bounds_differ_by_lane() -> None:
    found = both_ways(
        """
s = T.alloc_var("int32", 0)
for j in T.serial(A[i] - 3, A[i] + i, 2):
    s[()] = s[()] + j
Out[i] = s[()]
""",
        A=A,
    )
    assert found.tolist() == [sum(range(a - 3, a + i, 2)) for i, a in enumerate(A.tolist())]


def test_break_and_continue_by_lane() -> None:
    found = both_ways(
        """
s = T.alloc_var("int32", 0)
for j in T.serial(8):
    if j == A[i]:
        break
    if j % 2 == i % 2:
        continue
    s[()] = s[()] + j + 1
Out[i] = s[()]
""",
        A=A,
    )
    expected = []
    for i, a in enumerate(A.tolist()):
        total = 0
        for j in range(8):
            if j == a:
                break
            if j % 2 == i % 2:
                continue
            total += j + 1
        expected.append(total)
    assert found.tolist() == expected


def test_break_leaves_only_the_inner_loop() -> None:
    found = both_ways(
        """
s = T.alloc_var("int32", 0)
for j in T.serial(4):
    for k in T.serial(4):
        if k > j + i:
            break
        s[()] = s[()] + 1
    s[()] = s[()] + 100
Out[i] = s[()]
""".replace("j + i", "j + i % 2"),
        A=A,
    )
    expected = [sum(min(j + i % 2 + 1, 4) + 100 for j in range(4)) for i in range(N)]
    assert found.tolist() == expected


def test_while_loops_by_lane() -> None:
    found = both_ways(
        """
n = T.alloc_var("int32", T.abs(A[i]) + 1)
steps = T.alloc_var("int32", 0)
while n[()] != 1:
    n[()] = n[()] // 2 if n[()] % 2 == 0 else 3 * n[()] + 1
    steps[()] = steps[()] + 1
Out[i] = steps[()]
""",
        A=A,
    )
    expected = []
    for a in A.tolist():
        n, steps = abs(a) + 1, 0
        while n != 1:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        expected.append(steps)
    assert found.tolist() == expected


def test_a_let_keeps_the_value_it_was_given() -> None:
    found = both_ways(
        """
v = T.alloc_var("int32", 1)
before = v[()]
v[()] = 5
Out[i] = before * 10 + v[()]
""",
        A=A,
    )
    assert found.tolist() == [15] * N


def test_a_lazy_choice_does_not_touch_the_other_side() -> None:
    found = both_ways(
        """
S = T.alloc_local((4,), "int32")
S[i % 4] = i
Out[i] = S[i % 4] if i % 4 < 4 else S[i + 99]
""",
        A=A,
    )
    assert found.tolist() == [i % 12 for i in range(N)]
    found = both_ways("Out[i] = 1 if i < 4 and A[i % 4] > 0 else 2", A=A)
    assert found.tolist() == [1, 2, 1, 2] + [2] * 8


def test_lazy_conditions_do_not_touch_memory_they_need_not() -> None:
    made = program(
        "Out: (8,) int32",
        block("""
        S = T.alloc_shared((4,), "int32")
        T.fill(S, 3)
        for i in T.Parallel(8):
            Out[i] = 1 if i < 4 and S[i] == 3 else 0
        for i_1 in T.serial(8):
            if i_1 >= 4 or S[i_1] != 3:
                Out[i_1] = Out[i_1] + 10
        """),
        outputs=["Out"],
        returns=["Out"],
    )
    assert simulate(made, {}).outputs[0].tolist() == [1, 1, 1, 1, 10, 10, 10, 10]


def test_loops_run_backwards_and_not_at_all() -> None:
    made = program(
        "Out: (5,) int32",
        block("""
        n = T.alloc_var("int32", 0)
        for i in T.serial(4, -1, -1):
            Out[i] = n[()]
            n[()] = n[()] + 1
        for j in T.serial(3, 3):
            Out[j] = 99
        for p in T.Parallel(0):
            Out[p] = 98
        """),
        outputs=["Out"],
        returns=["Out"],
    )
    assert simulate(made, {}).outputs[0].tolist() == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    "loop", ["T.serial(3)", "T.unroll(3)", "T.vectorized(3)", "T.Pipelined(3, num_stages=2)"]
)
def test_every_serial_kind_of_loop_means_the_same(loop: str) -> None:
    made = program(
        "Out: (1,) int32",
        block(f"""
        n = T.alloc_var("int32", 1)
        for i in {loop}:
            n[()] = n[()] * 10 + i
        Out[0] = n[()]
        """),
        outputs=["Out"],
        returns=["Out"],
    )
    assert simulate(made, {}).outputs[0].tolist() == [1012]


def test_blocks_run_x_first_and_every_order_gives_the_same() -> None:
    made = program(
        "Out: (2, 3, 4) int32",
        """
        with T.Kernel(4, 3, 2, threads=128) as (bx, by, bz):
            Out[bz, by, bx] = bz * 100 + by * 10 + bx
        """,
        outputs=["Out"],
        returns=["Out"],
    )
    expected = np.add.outer(np.add.outer(np.arange(2) * 100, np.arange(3) * 10), np.arange(4))
    for seed in (None, 0, 1):
        result = simulate(made, {}, options=SimOptions(seed=seed))
        np.testing.assert_array_equal(result.outputs[0], expected)
        assert result.report.blocks == 24 and result.report.ok


def test_several_launches_run_one_after_another() -> None:
    made = program(
        "A: (4,) int32",
        """
        with T.Kernel(4, threads=128) as bx:
            A[bx] = A[bx] + 1
        with T.Kernel(2, threads=128) as bx_1:
            A[bx_1] = A[bx_1] * A[3 - bx_1]
        """,
    )
    result = simulate(made, {"A": np.arange(4, dtype=np.int32)}, options=SimOptions(seed=3))
    assert result.arrays["A"].tolist() == [4, 6, 3, 4]
    assert result.report.ok


def test_executions_count_iterations() -> None:
    made = program(
        "Out: (8,) int32",
        block("""
        for i in T.Parallel(8):
            if i < 3:
                Out[i] = 1
        """),
        outputs=["Out"],
        returns=["Out"],
    )
    # Parsed statements share one site: the kernel, the loop, 8 branches, 3 stores.
    assert sum(simulate(made, {}).report.executions) == 1 + 1 + 8 + 3


def test_device_assert_stops_the_kernel() -> None:
    made = program(
        "A: (8,) int32",
        """
        with T.Kernel(2, threads=128) as bx:
            for i in T.Parallel(4):
                if A[bx * 4 + i] > 0:
                    T.device_assert(A[bx * 4 + i] < 6, 'too large')
        """,
    )
    values = np.array([1, 2, 3, 4, 5, -9, 5, 5], "int32")
    assert simulate(made, {"A": values}).report.ok
    values[6] = 6
    with pytest.raises(DeviceAssertError) as caught:
        simulate(made, {"A": values})
    assert caught.value.message == "device assert failed: too large, in block (1)"


def test_a_broken_assumption_is_an_error() -> None:
    made = program("A: (4,) int32; n: int32", block("T.assume(n % 4 == 0)"))
    a = np.zeros(4, np.int32)
    assert simulate(made, {"A": a, "n": 8}).report.ok
    with pytest.raises(RunError) as caught:
        simulate(made, {"A": a, "n": 9})
    assert (
        caught.value.message == "an assumption of the kernel (T.assume) does not hold, in block (0)"
    )


def test_an_endless_loop_is_stopped() -> None:
    made = program("A: (4,) int32", block("while A[0] == 0:\n    A[1] = A[1] + 1"))
    with pytest.raises(RunError) as caught:
        simulate(made, {"A": np.zeros(4, np.int32)}, options=SimOptions(loop_limit=50))
    assert caught.value.message == "'while' loops ran more than 50 iterations"
    assert caught.value.hint == "check that the loop ends, or raise SimOptions.loop_limit"


@pytest.mark.parametrize("loop", ["Parallel", "serial"])
def test_a_loop_without_a_step_is_an_error(loop: str) -> None:
    made = program(
        "A: (4,) int32",
        block(f"for i in T.{loop}(4):\n    for j in T.serial(0, 4, A[i]):\n        A[j] = 1"),
    )
    with pytest.raises(RunError) as caught:
        simulate(made, {"A": np.zeros(4, np.int32)})
    assert caught.value.message == "the step of a loop is zero"


def test_an_empty_grid_is_an_error() -> None:
    made = program(
        "A: (m,) int32",
        "with T.Kernel(m // 8, 2, threads=128) as (bx, by):\n    A[bx] = 1",
        symbols={"m": "int32"},
    )
    with pytest.raises(ArgumentError) as caught:
        simulate(made, {"A": np.zeros(7, np.int32)})
    assert caught.value.message == "'kernel': the grid is empty, there is no block to run"
