"""Which accesses of tensors are by an index that comes from data and that nothing guards."""

from __future__ import annotations

import pytest

from tests.frontend.golden import program_of
from tests.kernels.test_gpu import CASES
from tileworkbench.compiler.analysis.data_indices import unguarded_accesses

# (lines of a kernel over I: 64 int32, A: 64 float32, B: 8 float32, n: int32, where it is found)
KERNELS = {
    "an element": ("for i in T.Parallel(64):\n    B[I[i]] = 1.0", ["B"]),
    "a read": ("for i in T.Parallel(64):\n    A[i] = B[I[i]]", ["B"]),
    "an update": ("for i in T.Parallel(64):\n    T.atomic_add(B[I[i]], 1.0)", ["B"]),
    "arithmetic on it": ("for i in T.Parallel(64):\n    A[I[i] * 4 + i % 4] = 1.0", ["A"]),
    "a name": ("for i in T.Parallel(64):\n    j = I[i]\n    k = j + 1\n    B[k] = 1.0", ["B"]),
    "through a tile": (
        'S = T.alloc_shared((64,), "int32")\nT.copy(I, S)\n'
        "for i in T.Parallel(64):\n    B[S[i]] = 1.0",
        ["B"],
    ),
    "a loop's bounds": ("for i in T.serial(I[0], I[1]):\n    B[i] = 1.0", ["B"]),
    "a variable": ('v = T.alloc_var("int32", 0)\nv = I[0]\nB[v] = 1.0', ["B"]),
    "loop variables and arguments": ("for i in T.Parallel(64):\n    A[i * 2 + n] = 1.0", []),
    "a region": ("T.copy(A[I[0]:I[0] + 8], B)", []),
    "an if": ("for i in T.Parallel(64):\n    if I[i] < 8:\n        B[I[i]] = 1.0", []),
    "an if of the name": (
        "for i in T.Parallel(64):\n    j = I[i]\n    if j < 8:\n        B[j] = 1.0",
        [],
    ),
    "an if around": ("for i in T.Parallel(64):\n    if i < n:\n        B[I[i]] = 1.0", []),
    "an if about something else": (
        "if n > 0:\n    for i in T.Parallel(64):\n        B[I[i]] = 1.0",
        ["B"],
    ),
    "a conditional expression": (
        "for i in T.Parallel(64):\n    A[i] = T.if_then_else(I[i] < 8, B[I[i]], 0.0)",
        [],
    ),
    "and": ("for i in T.Parallel(64):\n    if I[i] < 8 and B[I[i]] > 0:\n        A[i] = 1.0", []),
    "a safe value": (
        "T.annotate_safe_value({B: 1.0})\nfor i in T.Parallel(64):\n    A[i] = B[I[i]]",
        [],
    ),
    "an index of a tile": (
        'S = T.alloc_shared((8,), "float32")\nfor i in T.Parallel(64):\n    S[I[i]] = 1.0',
        [],
    ),
    "one of two": ("for i in T.Parallel(64):\n    A[i] = B[I[i]] + A[i + 1]", ["B"]),
}


@pytest.mark.parametrize(("body", "expected"), KERNELS.values(), ids=list(KERNELS))
def test_where_it_is_found(body: str, expected: list[str]) -> None:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    program = program_of(
        '@T.prim_func\ndef kernel(I: T.Tensor((64,), "int32"), A: T.Tensor((64,), "float32"), '
        'B: T.Tensor((8,), "float32"), n: T.int32):\n'
        f"    with T.Kernel(2, threads=64) as bx:\n{lines}"
    )
    found = unguarded_accesses(program)
    assert sorted(access.buffer.name for access in found) == expected
    spans = [program.span(access.site) for access in found]
    assert all(span is not None and span.file == "kernel.py" for span in spans)


@pytest.mark.parametrize("name", CASES)
def test_the_library_has_none(name: str) -> None:
    assert not unguarded_accesses(CASES[name]()[0].program)
