"""Binding arguments: every error with its whole text, and what a good call becomes."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy
import pytest

from tileworkbench.compiler.diagnostics import ArgumentError, UnsupportedError
from tileworkbench.compiler.runtime.arguments import ArgumentBinder
from tileworkbench.compiler.runtime.parameters import Dim, DimSpec, ParameterSpec

torch = pytest.importorskip("torch")


def tensor(
    name: str, *shape: Dim, dtype: str = "float32", written: bool = False, output: bool = False
) -> ParameterSpec:
    return ParameterSpec(name, "tensor", dtype, shape, None, output, written or output)


def scalar(name: str, dtype: str = "int32") -> ParameterSpec:
    return ParameterSpec(name, "scalar", dtype)


MATMUL = (tensor("A", "M", "K"), tensor("B", "K", "N"), tensor("C", "M", "N", written=True))


def matmul() -> ArgumentBinder:
    return ArgumentBinder("matmul", MATMUL, ("M", "N", "K"))


def make(kind: str, *shape: int, dtype: str = "float32") -> Any:
    if kind == "torch":
        return torch.zeros(shape, dtype=getattr(torch, dtype))
    small = dtype.startswith(("bfloat", "float8"))
    return numpy.zeros(shape, getattr(ml_dtypes, dtype) if small else dtype)


def pointer(array: Any) -> int:
    if isinstance(array, torch.Tensor):
        return array.data_ptr()
    return array.__array_interface__["data"][0]


def message(binder: ArgumentBinder, *args: Any) -> str:
    """The text of the error that `args` raise. A form that was bound before must not change it."""
    texts = []
    for _ in range(2):
        with pytest.raises(ArgumentError) as raised:
            binder.bind(args)
        texts.append(str(raised.value))
    assert texts[0] == texts[1]
    return texts[0]


# --- good calls


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_slots_are_pointers_then_symbols(kind: str) -> None:
    binder = matmul()
    for m, n, k in ((4, 6, 8), (5, 1, 2), (4, 6, 8)):
        args = make(kind, m, k), make(kind, k, n), make(kind, m, n)
        bound = binder.bind(args)
        assert bound.slots == [*map(pointer, args), m, n, k]
        assert bound.symbols == (m, n, k)
        assert bound.outputs == ()
    assert binder.slot_count == 6


def test_kinds_may_be_mixed() -> None:
    args = make("numpy", 2, 3), make("torch", 3, 4), make("numpy", 2, 4)
    assert matmul().bind(args).slots == [*map(pointer, args), 2, 4, 3]


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize(
    "dtype",
    [
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
    ],
)
def test_every_dtype_is_recognised_and_allocated(kind: str, dtype: str) -> None:
    binder = ArgumentBinder(
        "copy", (tensor("A", 3, dtype=dtype), tensor("B", 3, dtype=dtype, output=True))
    )
    source = make(kind, 3, dtype=dtype)
    bound = binder.bind((source,))
    [result] = bound.outputs
    assert type(result) is type(source)
    assert (result.dtype, tuple(result.shape)) == (source.dtype, (3,))
    assert bound.slots == [pointer(source), pointer(result)]


def test_storage_types() -> None:
    binder = ArgumentBinder("k", (tensor("A", 2, dtype="tfloat32"), tensor("P", 2, dtype="handle")))
    binder.bind((make("torch", 2), make("torch", 2, dtype="int64")))


def test_tensor_without_dimensions() -> None:
    binder = ArgumentBinder("k", (tensor("A"),))
    for array in (torch.tensor(3.0), numpy.array(3.0, numpy.float32)):
        assert binder.bind((array,)).slots == [pointer(array)]


def test_outputs_are_allocated_anew_in_the_kind_of_the_inputs() -> None:
    parameters = (tensor("C", "M", DimSpec(2, "N", 3), output=True), tensor("A", "M", "N"))
    binder = ArgumentBinder("k", parameters, ("M", "N"))
    first, second = (binder.bind((make("torch", 2, 5),)) for _ in range(2))
    assert isinstance(first.outputs[0], torch.Tensor)
    assert tuple(first.outputs[0].shape) == (2, 17)
    assert first.slots[0] == pointer(first.outputs[0]) != second.slots[0]
    assert isinstance(binder.bind((make("numpy", 2, 5),)).outputs[0], numpy.ndarray)


@pytest.mark.parametrize("torch_is_loaded", [True, False])
def test_outputs_without_inputs(monkeypatch: pytest.MonkeyPatch, torch_is_loaded: bool) -> None:
    if not torch_is_loaded:
        monkeypatch.delitem(sys.modules, "torch")
    [output] = ArgumentBinder("k", (tensor("A", 3, output=True),)).bind(()).outputs
    assert isinstance(output, torch.Tensor if torch_is_loaded else numpy.ndarray)


class Producer:
    """A library of its own that exports a torch tensor by DLPack."""

    def __init__(self, array: Any, old: bool = False, read_only: bool = False) -> None:
        self.array, self.old, self.read_only = array, old, read_only

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("unexpected keyword argument")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "uint8", "float64"])
def test_any_dlpack_producer_is_accepted(old: bool, dtype: str) -> None:
    array = make("torch", 4, 6, dtype=dtype)[:, 1:5]
    parameter = ParameterSpec("A", "tensor", dtype, ("M", "N"), (6, 1))
    bound = ArgumentBinder("k", (parameter,), ("M", "N")).bind((Producer(array, old),))
    assert bound.slots == [pointer(array), 4, 4]
    assert bound.owners


def test_subclass_of_a_tensor_is_a_tensor() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    assert ArgumentBinder("k", (tensor("A", 3),)).bind((parameter,)).slots == [pointer(parameter)]


def test_declared_strides_bind_symbols() -> None:
    parameter = ParameterSpec("A", "tensor", "float32", ("M", 4), ("S", 1))
    binder = ArgumentBinder("k", (parameter,), ("M", "S"))
    assert binder.bind((torch.zeros(3, 10)[:, :4],)).symbols == (3, 10)
    assert binder.bind((numpy.zeros((3, 12), numpy.float32)[:, 2:6],)).symbols == (3, 12)


def test_strides_of_single_elements_and_empty_tensors_do_not_matter() -> None:
    binder = ArgumentBinder("k", (tensor("A", "M", 4),), ("M",))
    assert binder.bind((torch.zeros(1, 10)[:, :4],)).symbols == (1,)
    assert binder.bind((torch.zeros(0, 10)[:, :4],)).symbols == (0,)


def test_linear_extents_are_solved_from_the_plainest_occurrence() -> None:
    parameters = (tensor("A", DimSpec(0, "n", 4)), tensor("B", DimSpec(1, "n")), tensor("C", "n"))
    binder = ArgumentBinder("k", parameters, ("n",))
    assert binder.bind((torch.zeros(12), torch.zeros(4), torch.zeros(3))).symbols == (3,)
    only = ArgumentBinder("k", parameters[:2], ("n",))
    assert only.bind((torch.zeros(12), torch.zeros(4))).symbols == (3,)


def test_scalar_gives_a_symbol_its_value() -> None:
    binder = ArgumentBinder("k", (tensor("A", DimSpec(0, "n", 2)), scalar("n")), ("n",))
    array = torch.zeros(6)
    assert binder.bind((array, 3)).slots == [pointer(array), 3, 3]
    assert message(binder, array, 4) == "'k': dimension 0 of 'A' is 6, expected 2*n = 8 as 'n' says"


def test_more_forms_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tileworkbench.compiler.runtime.arguments._MAX_PLANS", 3)
    binder = ArgumentBinder("k", (tensor("A", "n"),), ("n",))
    for size in (1, 2, 3, 4, 5, 1):
        assert binder.bind((torch.zeros(size),)).symbols == (size,)
        assert len(binder._plans) <= 3


# --- errors


def test_wrong_count() -> None:
    a = torch.zeros(2, 2)
    assert message(matmul(), a, a) == "'matmul' takes 3 arguments (A, B, C), got 2"
    one = ArgumentBinder("k", (tensor("A", 2), tensor("C", 2, output=True)))
    assert message(one, a, a) == "'k' takes 1 argument (A), got 2"
    none = ArgumentBinder("k", (tensor("C", 2, output=True),))
    assert message(none, a) == "'k' takes 0 arguments, got 1"


def test_not_a_tensor() -> None:
    a = torch.zeros(2, 2)
    assert message(matmul(), a, [[1.0]], a) == (
        "'matmul': 'B' must be a tensor, not 'list'\n"
        "hint: a torch tensor, a numpy array, or anything with DLPack"
    )


@pytest.mark.parametrize(
    ("kind", "hint"), [("torch", ".to(torch.float32)"), ("numpy", ".astype('float32')")]
)
def test_wrong_dtype(kind: str, hint: str) -> None:
    args = make(kind, 2, 2), make(kind, 2, 2, dtype="float64"), make(kind, 2, 2)
    assert message(matmul(), *args) == (
        f"'matmul': 'B' has dtype 'float64', expected 'float32'\nhint: convert it with {hint}"
    )


def test_wrong_rank() -> None:
    a = torch.zeros(2, 2)
    assert message(matmul(), a, torch.zeros(2), a) == (
        "'matmul': 'B' has 1 dimension, expected 2: (K, N)"
    )
    one = ArgumentBinder("k", (tensor("A", DimSpec(-1, "n", 2)),), ("n",))
    assert message(one, a) == "'k': 'A' has 2 dimensions, expected 1: (2*n - 1,)"


def test_wrong_static_extent() -> None:
    binder = ArgumentBinder("k", (tensor("A", "M", 64),), ("M",))
    assert message(binder, torch.zeros(2, 65)) == "'k': dimension 1 of 'A' is 65, expected 64"


def test_inconsistent_symbol() -> None:
    args = torch.zeros(2, 3), torch.zeros(4, 5), torch.zeros(2, 5)
    assert message(matmul(), *args) == (
        "'matmul': dimension 0 of 'B' is 4, expected K = 3 as dimension 1 of 'A' says"
    )


def test_extent_that_no_symbol_gives() -> None:
    binder = ArgumentBinder("k", (tensor("A", DimSpec(1, "n", 4)),), ("n",))
    assert message(binder, torch.zeros(12)) == (
        "'k': dimension 0 of 'A' is 12, which is not 4*n + 1 for any n"
    )
    assert message(binder, torch.zeros(0)) == (
        "'k': dimension 0 of 'A' is 0, which is not 4*n + 1 for any n"
    )


def test_extent_that_only_a_negative_symbol_gives() -> None:
    binder = ArgumentBinder("k", (tensor("A", DimSpec(6, "n", 2)),), ("n",))
    assert message(binder, torch.zeros(4)) == (
        "'k': dimension 0 of 'A' is 4, which is not 2*n + 6 for any n"
    )


def test_inconsistent_stride_symbol() -> None:
    parameter = ParameterSpec("A", "tensor", "float32", ("M", 4), ("S", 1))
    other = ParameterSpec("B", "tensor", "float32", ("S",))
    binder = ArgumentBinder("k", (parameter, other), ("M", "S"))
    assert message(binder, torch.zeros(3, 10)[:, :4], torch.zeros(9)) == (
        "'k': 'A' has strides (10, 1), expected (9, 1)"
    )
    assert binder.bind((torch.zeros(3, 10)[:, :4], torch.zeros(10))).symbols == (3, 10)


def test_tensor_that_is_not_contiguous() -> None:
    a = torch.zeros(3, 3)
    assert message(matmul(), a, a.T, torch.zeros(3, 3)) == (
        "'matmul': 'B' has strides (1, 3), expected (3, 1)\n"
        "hint: pass a contiguous copy, or declare the parameter as T.StridedTensor"
    )
    reverse = numpy.zeros((3, 3), numpy.float32)[::-1]
    assert message(matmul(), reverse, a, torch.zeros(3, 3)).startswith(
        "'matmul': 'A' has strides (-3, 1), expected (3, 1)"
    )


@pytest.mark.parametrize("device", ["meta"])
def test_wrong_device(device: str) -> None:
    a = torch.zeros(3, 3)
    assert message(matmul(), a, a.to(device), torch.zeros(3, 3)) == (
        f"'matmul': 'B' is on device '{device}', expected 'cpu'"
    )


def test_wrong_device_of_a_dlpack_producer() -> None:
    class OnGpu:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 1

        def __dlpack__(self, **options: Any) -> Any:
            raise AssertionError("must not be exported")

    a = torch.zeros(3, 3)
    assert message(matmul(), a, OnGpu(), a) == (
        "'matmul': 'B' is on device 'cuda:1', expected 'cpu'"
    )


def test_dlpack_producer_that_refuses() -> None:
    class Refusing(Producer):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("not now")

    a = torch.zeros(3, 3)
    assert message(matmul(), a, Refusing(a), a) == (
        "'matmul': 'B' cannot be exported by DLPack (not now)"
    )


def test_read_only_array_for_a_written_parameter() -> None:
    a, c = numpy.zeros((2, 2), numpy.float32), numpy.zeros((2, 2), numpy.float32)
    binder = matmul()
    binder.bind((a, a, c))
    c.flags.writeable = False
    assert message(binder, a, a, c) == "'matmul': 'C' is read-only, but the kernel writes to it"
    assert message(binder, a, a, Producer(c)) == (
        "'matmul': 'C' is read-only, but the kernel writes to it"
    )
    binder.bind((c, c, a))


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_written_tensor_that_overlaps_an_input(kind: str) -> None:
    base = make(kind, 5, 2)
    binder = matmul()
    binder.bind((base[:2], make(kind, 2, 2), base[3:]))
    text = (
        "'matmul': 'C' is written and overlaps 'A' in memory\n"
        "hint: pass tensors of their own, or compile with allow_alias=True"
    )
    assert message(binder, base[:2], make(kind, 2, 2), base[1:3]) == text
    assert message(binder, base[1:3], make(kind, 2, 2), base[:2]) == text
    assert message(binder, base[:2], make(kind, 2, 2), base[:2]) == text
    binder.bind((base[:2], base[1:3], make(kind, 2, 2)))  # inputs may overlap
    lenient = ArgumentBinder("matmul", MATMUL, ("M", "N", "K"), allow_alias=True)
    lenient.bind((base[:2], make(kind, 2, 2), base[1:3]))


def test_written_tensors_that_overlap_each_other() -> None:
    both = (tensor("A", 4, written=True), tensor("B", 4, written=True))
    base = torch.zeros(8)
    assert message(ArgumentBinder("k", both), base[:4], base[3:7]) == (
        "'k': 'A' is written and overlaps 'B' in memory\n"
        "hint: pass tensors of their own, or compile with allow_alias=True"
    )
    ArgumentBinder("k", both).bind((base[:4], base[4:]))


def test_range_of_negative_strides_counts() -> None:
    parameters = (
        ParameterSpec("A", "tensor", "float32", (4,), (-1,)),
        tensor("B", 4, written=True),
    )
    base = numpy.zeros(8, numpy.float32)
    binder = ArgumentBinder("k", parameters)
    binder.bind((base[3::-1], base[4:]))
    assert message(binder, base[4:0:-1], base[4:]).startswith(
        "'k': 'B' is written and overlaps 'A'"
    )


def test_same_tensor_is_allowed_for_elementwise_kernels_only() -> None:
    parameters = (tensor("A", 4), tensor("B", 4, written=True))
    binder = ArgumentBinder("k", parameters, elementwise_alias_ok=True)
    base = torch.zeros(8)
    binder.bind((base[:4], base[:4]))
    assert "overlaps" in message(binder, base[:4], base[1:5])
    assert "overlaps" in message(ArgumentBinder("k", parameters), base[:4], base[:4])


def test_same_memory_in_another_form_is_no_elementwise_alias() -> None:
    parameters = (tensor("A", 2, 4), tensor("B", 4, 2, written=True))
    binder = ArgumentBinder("k", parameters, elementwise_alias_ok=True)
    base = torch.zeros(8)
    assert "overlaps" in message(binder, base.view(2, 4), base.view(4, 2))


def test_empty_tensors_overlap_nothing() -> None:
    parameters = (tensor("A", "n"), tensor("B", "m", written=True))
    base = torch.zeros(8)
    ArgumentBinder("k", parameters, ("n", "m")).bind((base[2:2], base))


def test_misaligned_data() -> None:
    raw = numpy.zeros(33, numpy.uint8)
    start = 1 if pointer(raw) % 4 == 0 else 0
    array = raw[start : start + 16].view(numpy.float32)
    assert message(ArgumentBinder("k", (tensor("A", 4),)), array) == (
        "'k': 'A' begins at an address that is no multiple of 4"
    )


def test_arrays_whose_memory_is_not_their_elements() -> None:
    binder = ArgumentBinder("k", (tensor("A", 2),))
    negated = torch.ones(2, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    assert message(binder, negated) == (
        "'k': 'A' is a lazily negated or conjugated view\n"
        "hint: call .resolve_neg() or .resolve_conj()"
    )
    assert message(binder, torch.ones(2).to_sparse()) == (
        "'k': 'A' has layout 'torch.sparse_coo', expected 'torch.strided'"
    )
    foreign = numpy.zeros(2, numpy.dtype("f4").newbyteorder())
    assert message(binder, foreign) == (
        f"'k': 'A' has byte order '{foreign.dtype.byteorder}', not that of this machine"
    )
    record = numpy.zeros(2, [("x", "f4"), ("y", "u1")])["x"]
    assert message(binder, record) == (
        "'k': 'A' has elements that are not a whole number of elements apart"
    )


def test_dtype_that_kernels_do_not_have() -> None:
    binder = ArgumentBinder("k", (tensor("A", 2),))
    assert message(binder, numpy.zeros(2, numpy.complex64)).startswith(
        "'k': 'A' has dtype 'complex64', expected 'float32'"
    )


def test_symbol_that_no_argument_determines() -> None:
    parameters = (tensor("A", "n"), tensor("C", "m", output=True))
    with pytest.raises(UnsupportedError) as raised:
        ArgumentBinder("k", parameters, ("n", "m"))
    assert str(raised.value) == (
        "'k': no argument determines 'm'\n"
        "hint: an extent or a stride of an input must be linear in 'm' alone"
    )


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (DimSpec(7), "7"),
        (DimSpec(0, "n"), "n"),
        (DimSpec(0, "n", 4), "4*n"),
        (DimSpec(3, "n"), "n + 3"),
        (DimSpec(-3, "n", -2), "-2*n - 3"),
    ],
)
def test_dimensions_print_as_written(dim: DimSpec, text: str) -> None:
    assert str(dim) == text


# --- scalars


def slot(dtype: str, value: Any) -> int:
    return ArgumentBinder("k", (scalar("n", dtype),)).bind((value,)).slots[0]


@pytest.mark.parametrize(
    ("dtype", "value", "bits"),
    [
        ("int32", -5, -5),
        ("int8", numpy.int64(-128), -128),
        ("uint8", 255, 255),
        ("uint64", (1 << 64) - 1, -1),
        ("int64", -(1 << 63), -(1 << 63)),
        ("bool", True, 1),
        ("bool", numpy.bool_(False), 0),
        ("int32", True, 1),
        ("handle", 0xFFFF_8000_0000_0000, 0xFFFF_8000_0000_0000 - (1 << 64)),
        ("float32", 1, 0x3F80_0000),
        ("float32", -2.0, 0xC000_0000),
        ("tfloat32", 1.0, 0x3F80_0000),
        ("float32", numpy.float64(1.5), 0x3FC0_0000),
        ("float32", float("inf"), 0x7F80_0000),
        ("float64", -1.0, 0xBFF0_0000_0000_0000 - (1 << 64)),
        ("float16", 1.0, 0x3C00),
        ("bfloat16", 1.0, 0x3F80),
        ("bfloat16", ml_dtypes.bfloat16(-2.0), 0xC000),
        ("bfloat16", float("-inf"), 0xFF80),
        ("float8_e4m3fn", 1.0, 0x38),
        ("float8_e5m2", 1.0, 0x3C),
        ("int32", torch.tensor(7), 7),
    ],
)
def test_scalar_slots(dtype: str, value: Any, bits: int) -> None:
    assert slot(dtype, value) == bits


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        ("int8", 128, "is 128, which 'int8' cannot hold"),
        ("uint32", -1, "is -1, which 'uint32' cannot hold"),
        ("bool", 2, "is 2, which 'bool' cannot hold"),
        ("int32", 1.0, "must be an integer ('int32'), not 'float'"),
        ("int32", None, "must be an integer ('int32'), not 'NoneType'"),
        ("bool", 1.0, "must be an integer ('bool'), not 'float'"),
        ("float32", "1", "must be a number ('float32'), not 'str'"),
        ("float32", None, "must be a number ('float32'), not 'NoneType'"),
        ("float32", numpy.zeros(2), "must be a number ('float32'), not 'ndarray'"),
        ("float32", 1e300, "is 1e+300, which 'float32' cannot hold"),
        ("float16", 70000, "is 70000, which 'float16' cannot hold"),
        ("bfloat16", 3.4e38, "is 3.4e+38, which 'bfloat16' cannot hold"),
        ("float8_e4m3fn", 449.0, "is 449.0, which 'float8_e4m3fn' cannot hold"),
        ("float64", 10**400, f"is {10**400}, which 'float64' cannot hold"),
        ("float32", 1j, "must be a number ('float32'), not 'complex'"),
    ],
)
def test_scalar_errors(dtype: str, value: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        slot(dtype, value)
    assert str(raised.value) == f"'k': 'n' {text}"


def test_error_leaves_the_arguments_alone() -> None:
    a, b, c = torch.ones(2, 3), torch.ones(4, 5), torch.full((2, 5), 7.0)
    message(matmul(), a, b, c)
    assert c.eq(7.0).all()
