"""Eager kernels: kinds of parameters, constants read from tensors, specialisations and keys."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

import tileworkbench.language as T
from tests.frontend.golden import define
from tileworkbench.compiler.diagnostics import ArgumentError, TileError
from tileworkbench.compiler.frontend.function import (
    EagerFunction,
    TensorType,
    is_lazy,
)
from tileworkbench.compiler.frontend.source import source_of
from tileworkbench.compiler.ir.printer import print_program


def add_rows(A, B, scale: T.float32, count: T.int32, block: int = 16, dtype=T.float32):
    M, N = T.const("M, N")
    A: T.Tensor[[M, N], dtype]
    B: T.Tensor[(N,), dtype]
    C = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(M, block)) as bx:
        for i, j in T.Parallel(block, N):
            C[bx * block + i, j] = A[bx * block + i, j] + B[j] * scale
    return C


ROWS = EagerFunction(add_rows)


def tensor(*shape: int, dtype: str = "float32") -> TensorType:
    strides: list[int] = []
    for extent in reversed(shape):
        strides.insert(0, strides[0] * shape[len(shape) - len(strides)] if strides else 1)
    return TensorType(shape, dtype, tuple(strides))


def test_kinds_of_parameters() -> None:
    assert ROWS.kinds == {
        "A": "tensor",
        "B": "tensor",
        "scale": "scalar",
        "count": "scalar",
        "block": "constant",
        "dtype": "constant",
    }


def test_binding_reads_constants_and_separates_arguments() -> None:
    a, b = tensor(40, 8), tensor(8)
    key, run_time = ROWS.bind((a, b, 2.0), {"count": 3, "block": 32})
    assert key.arguments == (("block", 32), ("dtype", "float32"))
    assert key.constants == (("M", 40), ("N", 8))
    assert run_time == (a, b, 2.0, 3)


def test_equal_calls_share_a_key_and_others_do_not() -> None:
    first = ROWS.specialise(tensor(40, 8), tensor(8), 2.0, 1)
    again = ROWS.specialise(tensor(40, 8), tensor(8), 9.0, 7, block=16)
    other = ROWS.specialise(tensor(41, 8), tensor(8), 2.0, 1)
    assert first == again
    assert hash(first) == hash(again)
    assert first != other


def test_numpy_arrays_are_tensors() -> None:
    a = np.zeros((6, 4), np.float32)
    assert TensorType.of(a) == TensorType((6, 4), "float32", (4, 1))
    assert TensorType.of(a.T) == TensorType((4, 6), "float32", (1, 4))
    key = ROWS.specialise(a, a[0], 1.0, 1)
    assert key.constants == (("M", 6), ("N", 4))


def test_torch_tensors_are_tensors() -> None:
    torch = pytest.importorskip("torch")
    t = torch.zeros(6, 4, dtype=torch.bfloat16)
    assert TensorType.of(t.t()) == TensorType((4, 6), "bfloat16", (1, 4))


def test_trace_uses_the_values_of_the_specialisation() -> None:
    program = ROWS.trace(ROWS.specialise(M=20, N=4, block=8, dtype="float16"))
    assert print_program(program) == (
        '@T.program(stage="tile", outputs=["C"], returns=["C"])\n'
        "def add_rows(\n"
        '    A: T.Tensor((20, 4), "float16"),\n'
        '    B: T.Tensor((4,), "float16"),\n'
        "    scale: T.float32,\n"
        "    count: T.int32,\n"
        '    C: T.Tensor((20, 4), "float16"),\n'
        "):\n"
        "    with T.Kernel(3, threads=128) as bx:\n"
        "        for i, j in T.Parallel(8, 4):\n"
        "            C[bx * 8 + i, j] = T.float16(T.float32(A[bx * 8 + i, j]) "
        "+ T.float32(B[j]) * scale)\n"
    )


def test_specialise_by_names() -> None:
    key = ROWS.specialise(M=20, N=4, block=8)
    assert key.arguments == (("block", 8), ("dtype", "float32"))
    assert key.constants == (("M", 20), ("N", 4))


def test_equal_arguments_of_different_types_have_different_keys() -> None:
    def kernel(A: T.Tensor((4,), "int32"), value):
        with T.Kernel(1):
            A[0] = A[1] + value

    eager = EagerFunction(kernel)
    keys = [eager.specialise(tensor(4), value) for value in (1, 1.0, True)]
    assert len(set(keys)) == 3
    stores = [print_program(eager.trace(key)).splitlines()[-1].strip() for key in keys]
    assert stores == [
        "A[0] = A[1] + 1",
        "A[0] = T.int32(T.float32(A[1]) + 1.0)",
        "A[0] = A[1] + 1",
    ]


def test_packed_elements_count_twice() -> None:
    def kernel(A):
        M, N = T.const("M, N")
        A: T.Tensor[[M, N], T.int4]
        with T.Kernel(M) as bx:
            A[bx, 0] = N

    eager = EagerFunction(kernel)
    key = eager.specialise(tensor(3, 4, dtype="int8"))
    assert key.constants == (("M", 3), ("N", 8))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"M": 20}, "'add_rows' needs a value for its constant 'N'"),
        (
            {"M": 20, "N": 4, "K": 1},
            "'add_rows' has no compile-time argument or constant 'K'",
        ),
        (
            {"M": 20, "B": np.zeros((2, 3), np.float32)[0, 0]},
            "'add_rows': the parameter 'B' has shape (), and extent 0 of it is the constant 'N'",
        ),
    ],
)
def test_specialise_with_wrong_names(values: dict[str, int], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        ROWS.specialise(**values)
    assert caught.value.message == message


def test_specialise_by_what_stands_for_tensors() -> None:
    by_place = ROWS.specialise(T.Tensor((20, 4), "float32"), T.Tensor[4, T.float32], block=8)
    assert by_place == ROWS.specialise(M=20, N=4, block=8)
    assert by_place == ROWS.specialise(A=T.Tensor[(20, 4), T.float32], block=8)
    assert by_place == ROWS.specialise(B=T.Tensor[4, T.float32], M=20, block=8)

    def strided(A):
        M, N, S = T.const("M, N, S")
        A: T.StridedTensor[[M, N], [S, 1], T.float32]
        with T.Kernel(M) as bx:
            A[bx, 0] = N

    def packed(A):
        N, S = T.const("N, S")
        A: T.StridedTensor[[3, N], [S, 1], T.int4]
        with T.Kernel(3) as bx:
            A[bx, 0] = N

    key = EagerFunction(strided).specialise(T.StridedTensor((3, 4), (10, 1), "float32"))
    assert key.constants == (("M", 3), ("N", 4), ("S", 10))
    key = EagerFunction(strided).specialise(T.Tensor((3, 4), "float32"))
    assert key.constants == (("M", 3), ("N", 4), ("S", 4))
    eager = EagerFunction(packed)
    of_tensor = eager.specialise(tensor(3, 4, dtype="int8"))
    assert eager.specialise(T.Tensor((3, 8), "int4")) == of_tensor


def test_what_is_a_call() -> None:
    a, b = tensor(4, 4), tensor(4)
    assert ROWS.is_call((a, b, 1.0, 2), {}) and ROWS.is_call((a, b), {"scale": 1.0, "count": 2})
    assert not ROWS.is_call((a, b), {"scale": 1.0})
    assert not ROWS.is_call((a, b, 1.0, 2), {"M": 4})
    assert not ROWS.is_call((T.Tensor((4, 4)), b, 1.0, 2), {})


def test_specialise_without_a_compile_time_argument() -> None:
    def kernel(A: T.Tensor((4,), "float32"), block):
        with T.Kernel(1):
            A[0] = block

    with pytest.raises(ArgumentError) as caught:
        EagerFunction(kernel).specialise()
    assert caught.value.message == "'kernel' needs a value for its compile-time argument 'block'"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "'add_rows': missing a required argument: 'A'"),
        (
            (tensor(4, 8), tensor(8), 1.0, 1, 2, 3, 4),
            "'add_rows': too many positional arguments",
        ),
        (
            (tensor(4, 8), tensor(9), 1.0, 1),
            "'add_rows': the constant 'N' is 8 in extent 1 of 'A' and 9 in extent 0 of 'B'",
        ),
        (
            (tensor(4), tensor(9), 1.0, 1),
            "'add_rows': the parameter 'A' has shape (4,), and extent 1 of it is the constant 'N'",
        ),
        (
            (3, tensor(9), 1.0, 1),
            "'add_rows': the parameter 'A' takes a tensor, not the number 3",
        ),
    ],
)
def test_calls_that_do_not_fit(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        ROWS.bind(arguments, {})
    assert caught.value.message == message


def test_unhashable_compile_time_argument() -> None:
    with pytest.raises(TypeError) as caught:
        ROWS.bind((tensor(4, 8), tensor(8), 1.0, 1), {"block": [1]})
    assert str(caught.value) == (
        "a compile-time argument of 'add_rows' cannot be part of a key: unhashable type: 'list'"
    )


def test_constant_read_from_strides() -> None:
    def kernel(A):
        M, S = T.const("M S")
        A: T.StridedTensor[(M, 4), (S, 1), T.float32]
        with T.Kernel(M) as bx:
            A[bx, 0] = S

    eager = EagerFunction(kernel)
    key = eager.specialise(TensorType((3, 4), "float32", (10, 1)))
    assert key.constants == (("M", 3), ("S", 10))
    text = print_program(eager.trace(key))
    assert 'A: T.StridedTensor((3, 4), (10, 1), "float32")' in text
    assert "A[bx, 0] = 10.0" in text


def test_constants_fold_and_may_decide_python_branches() -> None:
    def kernel(A):
        M = T.const("M")
        A: T.Tensor[[M], T.float32]
        with T.Kernel(1):
            if M % 2 == 0:
                A[0] = 1
            else:
                undefined_name  # noqa: F821

    eager = EagerFunction(kernel)
    assert "A[0] = 1.0" in print_program(eager.trace(eager.specialise(M=4)))
    with pytest.raises(NameError):
        eager.trace(eager.specialise(M=5))


def test_globals_may_be_defined_after_the_function() -> None:
    namespace = define(
        "def kernel(A: T.Tensor((4,), 'float32')):\n"
        "    with T.Kernel(LATER):\n"
        "        A[0] = LATER\n"
    )
    eager = EagerFunction(namespace["kernel"])
    namespace["LATER"] = 3
    assert "with T.Kernel(3" in print_program(eager.trace(eager.specialise()))
    namespace["LATER"] = 5
    assert "with T.Kernel(5" in print_program(eager.trace(eager.specialise()))


def test_postponed_annotations_see_the_enclosing_function() -> None:
    """This file postpones annotations, so M and dtype are not closed over by `kernel`."""

    def build(M: int, dtype: str) -> Any:
        @T.prim_func
        def kernel(A: T.Tensor((M, 2), dtype), n: T.int32, s: float16):  # noqa: F821
            with T.Kernel(1):
                A[0, 0] = n

        return kernel

    assert 'A: T.Tensor((6, 2), "int8"),\n    n: T.int32,\n    s: T.float16,' in (
        build(6, "int8").script()
    )


def test_postponed_body_declarations_see_the_enclosing_function() -> None:
    width = 6

    def kernel(A):
        A: T.Tensor[[width], T.int8]
        with T.Kernel(1):
            A[0] = 1

    eager = EagerFunction(kernel)
    assert 'A: T.Tensor((6,), "int8")' in print_program(eager.trace(eager.specialise()))


def lazy_by_decorator(M):
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32")):
        with T.Kernel(M):
            A[0] = 1

    return kernel


def lazy_by_delegation(M):
    return lazy_by_decorator(M)


def eager_by_annotation(A):
    A: T.Tensor[4, T.float32]
    body(A)  # noqa: F821


def eager_by_signature(A: T.Tensor[[8, 4], T.float32], factor: int = 2):
    body(A, factor)  # noqa: F821


def eager_by_strided_signature(A: T.StridedTensor[[8], [1], T.float32]):
    body(A)  # noqa: F821


@pytest.mark.parametrize(
    ("function", "lazy"),
    [
        (eager_by_signature, False),
        (eager_by_strided_signature, False),
        (lazy_by_decorator, True),
        (lazy_by_delegation, True),
        (add_rows, False),
        (eager_by_annotation, False),
    ],
)
def test_lazy_and_eager_are_told_apart(function: Any, lazy: bool) -> None:
    assert is_lazy(function) is lazy


def test_source_of_a_function_includes_its_decorators() -> None:
    source = source_of(lazy_by_delegation)
    assert source.text == "def lazy_by_delegation(M):\n    return lazy_by_decorator(M)\n"
    assert source.file == __file__
    lines = linecache.getlines(__file__)
    assert lines[source.first_line - 1].startswith("def lazy_by_delegation")
    kernel = lazy_by_decorator(2)
    assert kernel.source.text.startswith("    @T.prim_func\n    def kernel(A")


def test_source_that_is_not_available() -> None:
    namespace: dict[str, Any] = {"T": T}
    exec("def kernel(A: T.Tensor((4,), 'float32')):\n    pass\n", namespace)
    with pytest.raises(TileError) as caught:
        EagerFunction(namespace["kernel"])
    assert caught.value.render() == (
        "TileSyntaxError: the source of 'kernel' is not available\n"
        "hint: define the kernel in a file or a notebook cell; text run by exec() has no source "
        "to read"
    )


def test_lambda_has_no_kernel_source() -> None:
    with pytest.raises(TileError) as caught:
        EagerFunction(lambda A: A)
    assert caught.value.message == "the source of '<lambda>' is not available: it is a lambda"


def test_source_that_changed_on_disk() -> None:
    namespace = define("def kernel(A: T.Tensor((4,), 'float32')):\n    pass\n", "changed.py")
    broken = ["x = (\n"]
    linecache.cache["changed.py"] = (6, None, broken, "changed.py")
    with pytest.raises(TileError) as caught:
        EagerFunction(namespace["kernel"])
    assert caught.value.message == (
        "the source of 'kernel' is not available: it is not a plain 'def' of its file as it is now"
    )


def test_only_names_of_annotations_are_kept_from_the_enclosing_function() -> None:
    width, large = 6, [0] * 1000

    def kernel(A: T.Tensor((width,), T.int8), n: T.int32):
        with T.Kernel(1):
            A[0] = n

    assert set(EagerFunction(kernel)._namespace) == {"width"}
    assert 'A: T.Tensor((6,), "int8")' in T.prim_func(kernel).script()
