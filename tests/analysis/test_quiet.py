"""Floats that are no signalling NaNs."""

import pytest

from tileworkbench.compiler.analysis.quiet import QuietFloats
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Store


def stored(value: str, before: str = "pass") -> tuple[QuietFloats, Store]:
    """The facts of a program whose last store is of `value`."""
    program = parse(
        f"""
@T.program(stage="cpu")
def kernel(
    A: T.Tensor((64,), "float32"), H: T.Tensor((64,), "float16"), I: T.Tensor((64,), "int32")
):
    for block in T.blocks(1):
        p = T.alloc_local((16,), "float32")
        {before}
        p[T.Ramp(0, 1, 16)] = T.max(p[T.Ramp(0, 1, 16)], A[T.Ramp(0, 1, 16)])
        A[0] = {value}
"""
    )
    stores = [stmt for stmt in statements(program.body) if isinstance(stmt, Store)]
    return QuietFloats.of(program.body), stores[-1]


@pytest.mark.parametrize(
    ("value", "quiet"),
    [
        ("1.0", True),
        ('T.float32("nan")', False),
        ("A[1]", False),
        ("-A[1]", False),
        ("A[1] + A[2]", True),
        ("T.max(A[1], A[2])", True),
        ("T.max_nan(A[1], 1.0)", False),
        ("T.max_nan(A[1] * 2.0, 1.0)", True),
        ("T.exp(A[1])", True),
        ("A[1] if I[0] > 0 else 1.0", False),
        ("T.exp(A[1]) if I[0] > 0 else 1.0", True),
        ("T.float32(H[1])", True),
        ("T.float32(I[1])", True),
        ('T.reinterpret(I[1], "float32")', False),
        ("T.lanes_max(A[T.Ramp(0, 1, 16)])", True),
        ("p[1]", True),
    ],
)
def test_values(value: str, quiet: bool) -> None:
    facts, store = stored(value)
    assert facts.holds(store.value) == quiet


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("p[T.Ramp(0, 1, 16)] = A[T.Ramp(0, 1, 16)]", True),
        ("p[0] = A[0]", False),
        ('q = T.view(p, (16,), "float32")', False),
    ],
)
def test_partial_maxima_are_stored_as_vectors_alone(before: str, found: bool) -> None:
    facts, _ = stored("1.0", before)
    assert bool(facts.accumulators) == found


@pytest.mark.parametrize(
    ("before", "value", "quiet"),
    [
        ("s = A[1] - A[2]", "s", True),
        ("s = A[1]", "s", False),
        ("s = -A[1]\n        r = s + 1.0", "r", True),
    ],
)
def test_names_stand_for_their_values(before: str, value: str, quiet: bool) -> None:
    facts, store = stored(value, before)
    assert facts.holds(store.value) == quiet


@pytest.mark.parametrize(
    ("writes", "quiet"),
    [
        ("t[0] = A[0] * 2.0", True),
        ("t[0] = A[0] * 2.0\n        t[1] = A[1]", False),
        ("t[0] = A[0] * 2.0\n        u[0] = A[1]", True),
        ("t[0] = 0.0\n        t[1] = T.max(t[0], A[1])", True),
        ("t[0] = u[0]\n        u[0] = t[1]", True),  # nothing loud gets into either
        ("t[0] = u[0]\n        u[0] = A[1]", False),
        ("t[0] = A[0] + 1.0\n        T.atomic_add(t[0], A[1])", False),
        ('t[0] = A[0] + 1.0\n        v = T.view(t, (4,), "float32")\n        v[0] = A[1]', False),
    ],
)
def test_tiles_into_which_only_quiet_floats_are_stored(writes: str, quiet: bool) -> None:
    tiles = [f'{name} = T.alloc_local((4,), "float32")' for name in "tu"]
    facts, store = stored("t[2]", "\n        ".join((*tiles, writes)))
    assert facts.holds(store.value) == quiet


@pytest.mark.parametrize(("start", "quiet"), [("0.0", True), ("A[1]", False)])
def test_what_a_variable_begins_with_is_stored_too(start: str, quiet: bool) -> None:
    facts, store = stored(
        "v[()]", f'v = T.alloc_var("float32", {start})\n        v[()] = A[0] + 1.0'
    )
    assert facts.holds(store.value) == quiet
