"""Arguments of `simulate`: symbols, shapes, dtypes, strides and packed elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.sim.kernels import block, program
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.program import Stage
from tileworkbench.compiler.sim import simulate, solve_symbols


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


DYNAMIC = program(
    "A: (m, n * 4 + 2) float32; B: (n,) float32; C: (m, n) float32",
    """
    with T.Kernel(m, threads=128) as bx:
        for i in T.Parallel(n):
            C[bx, i] = A[bx, i * 4 + 2] + B[i]
    """,
    symbols={"m": "int32", "n": "int32"},
    outputs=["C"],
    returns=["C"],
)


def test_symbols_follow_from_the_shapes() -> None:
    a, b = ramp(3, 22), ramp(5)
    assert solve_symbols(DYNAMIC, {"A": a, "B": b}) == {"m": 3, "n": 5}
    np.testing.assert_array_equal(simulate(DYNAMIC, {"A": a, "B": b}).outputs[0], a[:, 2::4] + b)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((3, 21), (5,), "extent 1 of 'A' is 21, for which the symbol 'n' has no solution"),
        ((3, 22), (6,), "extent 0 of 'B' is 6, expected 5"),
        ((3, 22, 1), (5,), "'A' has 3 dimensions, expected 2"),
    ],
)
def test_shapes_that_do_not_fit(a: tuple[int, ...], b: tuple[int, ...], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        simulate(DYNAMIC, {"A": ramp(*a), "B": ramp(*b)})
    assert caught.value.message == message


def test_a_symbol_that_nothing_determines() -> None:
    made = program("A: (m * n,) float32", block("pass"), symbols={"m": "int32", "n": "int32"})
    with pytest.raises(ArgumentError) as caught:
        simulate(made, {"A": ramp(12)})
    assert caught.value.message == "the symbol 'm' of 'kernel' does not follow from its arguments"
    assert simulate(made, {"A": ramp(12)}, {"m": 3}).report.ok
    with pytest.raises(ArgumentError, match="extent 0 of 'A' is 12, expected 20"):
        simulate(made, {"A": ramp(12)}, {"m": 4, "n": 5})


def test_missing_and_wrong_arguments() -> None:
    made = program("A: (4,) float16; n: int32", block("A[n] = T.float16(1.0)"))
    a = np.zeros(4, np.float16)
    with pytest.raises(ArgumentError, match="the argument 'A' is missing"):
        simulate(made, {"n": 1})
    with pytest.raises(ArgumentError, match="the argument 'n' is missing"):
        simulate(made, {"A": a})
    with pytest.raises(ArgumentError, match="'A' has dtype 'float32', expected 'float16'"):
        simulate(made, {"A": ramp(4), "n": 1})


def test_the_callers_arrays_are_not_changed() -> None:
    made = program("A: (4,) float32", block("for i in T.Parallel(4):\n    A[i] = A[i] + 1.0"))
    a = ramp(4)
    assert simulate(made, {"A": a}).arrays["A"].tolist() == [1, 2, 3, 4]
    assert a.tolist() == [0, 1, 2, 3]


def test_strides_are_the_callers() -> None:
    made = program(
        'A: StridedTensor((3, 4), (s, 2), "float32"); B: (3, 4) float32',
        block("T.copy(A, B)\nA[2, 3] = 9.0"),
        symbols={"s": "int32"},
    )
    a = ramp(3, 10)[:, :8:2]
    found = simulate(made, {"A": a, "B": ramp(3, 4)}).arrays
    np.testing.assert_array_equal(found["B"], a)
    assert found["A"][2, 3] == 9.0 and found["A"].shape == (3, 4)
    with pytest.raises(ArgumentError, match="stride 1 of 'A' is 1, expected 2"):
        simulate(made, {"A": ramp(3, 4), "B": ramp(3, 4)})


def test_flat_programs_take_the_same_arrays() -> None:
    flat = program(
        "A: (12,) float32; B: (m * 4,) float32",
        """
        for block in T.blocks(m):
            for i in T.vectorized(4):
                B[block * 4 + i] = A[block * 4 + i] * 2.0
        """,
        stage=str(Stage.CPU),
        symbols={"m": "int32"},
        outputs=["B"],
        returns=["B"],
    )
    found = simulate(flat, {"A": ramp(3, 4)}, {"m": 3})
    assert found.outputs[0].tolist() == (ramp(12) * 2).tolist()
    assert found.arrays["A"].shape == (3, 4)
    written = program(
        "A: (m, 4) float32; B: (m, 4) float32",
        block("T.copy(A, B)"),
        symbols={"m": "int32"},
        outputs=["B"],
        returns=["B"],
    )
    found = simulate(flat, {"A": ramp(3, 4)}, signature=written)
    np.testing.assert_array_equal(found.outputs[0], ramp(3, 4) * 2)


def test_two_4_bit_integers_in_a_byte() -> None:
    made = program(
        "A: (6,) int4; B: (6,) int32",
        block("for i in T.Parallel(6):\n    B[i] = T.int32(A[i])\n    A[i] = A[i] + A[i]"),
    )
    packed = np.array([0x7F, 0x80, 0x21], np.uint8).view(np.int8)
    found = simulate(made, {"A": packed, "B": np.zeros(6, np.int32)}).arrays
    assert found["B"].tolist() == [-1, 7, 0, -8, 1, 2]
    assert found["A"].view(np.uint8).tolist() == [0xEE, 0x00, 0x42]


def test_torch_tensors_are_taken_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    made = program("A: (4,) bfloat16; B: (4,) float32", block("T.copy(A, B)"))
    a = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.bfloat16)
    found = simulate(made, {"A": a, "B": torch.zeros(4)}).arrays
    assert found["B"].tolist() == [1.0, -2.0, 0.5, 3.0]
    assert found["A"].dtype == ml_dtypes.bfloat16


def test_scalars_take_their_dtype() -> None:
    made = program(
        "n: int8; x: float16; Out: (2,) float32",
        block("Out[0] = T.float32(n)\nOut[1] = T.float32(x)"),
    )
    found = simulate(made, {"n": 300, "x": 0.1, "Out": ramp(2)}).arrays["Out"]
    assert found.tolist() == [44.0, float(np.float16(0.1))]
