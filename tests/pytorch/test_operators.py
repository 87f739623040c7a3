"""Kernels as operators of torch: its own checks of operators, graphs, gradients, vmap."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench import kernels

TARGETS = ("cpu", "sim:sm_80")
n = T.dynamic("n")


@T.prim_func
def halves(A: T.Tensor((n, 8), "float32"), factor: T.float32):
    Low = T.empty((n // 2 + 1, 8), "float32")
    High = T.empty((n, 8), "float16")
    with T.Kernel(n, threads=32) as row:
        for j in T.Parallel(8):
            High[row, j] = A[row, j] * factor
            if row < n // 2 + 1:
                Low[row, j] = A[row, j] - factor
    return Low, High


@T.prim_func
def add_to(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32"), times: T.int32):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            B[i] = B[i] + A[i] * times


@tw.jit
def scaled(A, power: int = 2):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(N):
            B[i] = A[i] * power
    return B


@tw.jit
def lazy(N: int = 8):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32):
            A[0] = 1.0

    return main


@T.prim_func
def product_backward(
    A: T.Tensor((32, 16), "float32"),
    B: T.Tensor((16, 32), "float32"),
    C: T.Tensor((32, 32), "float32"),
    dC: T.Tensor((32, 32), "float32"),
):
    dA = T.empty((32, 16), "float32")
    dB = T.empty((16, 32), "float32")
    with T.Kernel(1, threads=32):
        of_a = T.alloc_fragment((32, 16), "float32")
        of_b = T.alloc_fragment((16, 32), "float32")
        a = T.alloc_shared((32, 16), "float32")
        b = T.alloc_shared((16, 32), "float32")
        c = T.alloc_shared((32, 32), "float32")
        T.copy(A, a)
        T.copy(B, b)
        T.copy(dC, c)
        T.gemm(c, b, of_a, transpose_B=True, clear_accum=True)
        T.gemm(a, c, of_b, transpose_A=True, clear_accum=True)
        T.copy(of_a, dA)
        T.copy(of_b, dB)
    return dA, dB


def product(target: str = "cpu") -> Any:
    return tw.compile(kernels.matmul(32, 32, 16, "float32"), target=target)


def product_args(*, needs_gradients: bool = False) -> tuple[Any, Any]:
    torch.manual_seed(0)
    shapes = ((32, 16), (16, 32))
    a, b = (torch.randn(shape, requires_grad=needs_gradients) for shape in shapes)
    return a, b


def rendered(call: Callable[[], Any]) -> str:
    with pytest.raises(tw.ArgumentError) as caught:
        call()
    return caught.value.render()


# --- torch's own checks


@pytest.mark.parametrize("target", TARGETS)
def test_a_product_passes_the_checks_of_torch(target: str) -> None:
    op = tw.torch_op(product(target), backward=lambda a, b, c, dc: (dc @ b.T, a.T @ dc))
    torch.library.opcheck(op, product_args(needs_gradients=True))
    a, b = product_args()
    tolerance = 1e-5 if target == "cpu" else 5e-2  # tensor cores multiply in tf32
    torch.testing.assert_close(op(a, b), a @ b, rtol=tolerance, atol=tolerance)


def test_symbols_scalars_and_several_results_pass_the_checks_of_torch() -> None:
    op = tw.torch_op(tw.compile(halves))
    assert op._schema == "(Tensor A, float factor) -> (Tensor, Tensor)"
    a = torch.randn(5, 8)
    torch.library.opcheck(op, (a, 3.0))
    low, high = op(a, 3.0)
    assert low.shape == (3, 8) and high.dtype == torch.float16
    torch.testing.assert_close(low, a[:3] - 3.0)
    torch.testing.assert_close(high, (a * 3.0).half())


def test_a_kernel_that_writes_to_its_arguments_passes_the_checks_of_torch() -> None:
    op = tw.torch_op(tw.compile(add_to))
    assert op._schema == "(Tensor A, Tensor(a1!) B, SymInt times) -> ()"
    torch.library.opcheck(op, (torch.ones(8), torch.ones(8), 2))

    @torch.compile(backend="aot_eager", fullgraph=True)
    def twice(a: Any, b: Any) -> Any:
        op(a, b, 2)
        op(a, b, 3)
        return b * 10

    a, b = torch.ones(8), torch.ones(8)
    assert twice(a, b).tolist() == [60.0] * 8 and b.tolist() == [6.0] * 8


def test_a_function_is_an_operator_for_all_shapes() -> None:
    scaled.compile(A=T.Tensor((8,), "float32"))
    op = tw.torch_op(scaled)
    assert op._schema == "(Tensor A, int power=2) -> Tensor"
    for count in (8, 12):
        a = torch.randn(count)
        torch.library.opcheck(op, (a, 3))
        torch.testing.assert_close(op(a), a * 2)
        torch.testing.assert_close(op(a, 5), a * 5)


# --- graphs


def test_one_graph_serves_every_size() -> None:
    op, graphs = tw.torch_op(tw.compile(halves)), []

    def backend(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return module.forward

    @torch.compile(backend=backend, fullgraph=True, dynamic=True)
    def model(a: Any) -> Any:
        low, high = op(a * 2, 1.0)
        return low.sum() + high.float().sum()

    for rows in (4, 7, 12):
        a = torch.randn(rows, 8)
        expected = (a[: rows // 2 + 1] * 2 - 1).sum() + (a * 2).half().float().sum()
        torch.testing.assert_close(model(a), expected)
    assert len(graphs) == 1


def test_an_exported_program_holds_the_operator() -> None:
    op = tw.torch_op(tw.compile(halves), name="tests::exported_halves")

    class Model(torch.nn.Module):
        def forward(self, a: Any) -> Any:
            return op(a, 2.0)[0] + 1

    rows = torch.export.Dim("rows", min=2, max=100)
    program = torch.export.export(
        Model(), (torch.randn(6, 8),), dynamic_shapes={"a": {0: rows}}, strict=False
    )
    assert "torch.ops.tests.exported_halves.default" in str(program.graph)
    a = torch.randn(9, 8)
    torch.testing.assert_close(program.module()(a), a[:5] - 1)


def test_names_count_up_and_a_given_one_is_replaced() -> None:
    first, second = tw.torch_op(product()), tw.torch_op(product())
    assert first._qualname != second._qualname
    assert second._qualname.startswith("tileworkbench::matmul_")
    tw.torch_op(tw.compile(add_to), name="tests::replaced")
    op = tw.torch_op(product(), name="tests::replaced")
    torch.testing.assert_close(torch.ops.tests.replaced(*product_args()), op(*product_args()))


# --- gradients


def gradients(call: Any) -> list[Any]:
    a, b = product_args(needs_gradients=True)
    (call(a, b) * torch.arange(32.0)).sum().backward()
    assert a.grad is not None and b.grad is not None
    return [a.grad, b.grad]


WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "function": lambda: {"backward": lambda a, b, c, dc: (dc @ b.T, a.T @ dc)},
    "kernel": lambda: {"backward": tw.compile(product_backward)},
    "reference": lambda: {"reference": torch.matmul},
}


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_of_torch(way: str, is_compiled: bool) -> None:
    op = tw.torch_op(product(), **WAYS[way]())
    model = torch.compile(lambda a, b: op(a, b) + 0, backend="aot_eager", fullgraph=True)
    call = model if is_compiled else op
    torch.testing.assert_close(gradients(call), gradients(torch.matmul))


@pytest.mark.parametrize("way", WAYS)
def test_gradients_that_are_no_memory_of_their_own_are_copied(way: str) -> None:
    op = tw.torch_op(product(), **WAYS[way]())
    a, b = product_args(needs_gradients=True)
    op(a, b).sum().backward()  # its gradient is one number, expanded
    torch.testing.assert_close(a.grad, b.detach().sum(1).expand(32, 16))


def test_only_floats_have_gradients_of_a_reference() -> None:
    @tw.jit
    def shifted(A, Shift):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        Shift: T.Tensor[[N], T.int32]
        B = T.empty((N,), T.float32)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(N):
                B[i] = A[i] * A[i] + Shift[i]
        return B

    a, shift = torch.randn(8, requires_grad=True), torch.arange(8, dtype=torch.int32)
    shifted(a.detach(), shift)
    op = tw.torch_op(shifted, reference=lambda a, shift: a * a + shift)
    torch.library.opcheck(op, (a, shift))
    op(a, shift).sum().backward()
    torch.testing.assert_close(a.grad, 2 * a.detach())
    # The gradient of that gradient, beside what else depends on the argument.
    (first,) = torch.autograd.grad((op(a, shift).cos() + a**3).sum(), a, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), a)
    plain = (a * a + shift).cos() + a**3
    (first,) = torch.autograd.grad(plain.sum(), a, create_graph=True)
    torch.testing.assert_close(second, torch.autograd.grad(first.square().sum(), a)[0])


def test_the_report_says_that_an_operator_is_its_own() -> None:
    a, b = product_args()
    op = tw.torch_op(product())
    tiled = tw.tile(lambda a, b: op(a * 2, b).tanh(), a, b)
    (reason,) = (why for name, why in tiled.report.in_torch if not name.startswith("aten."))
    assert reason == "an operator of its own, no operation of ATen"


def test_without_a_gradient_a_backward_pass_says_so() -> None:
    a, b = product_args(needs_gradients=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        tw.torch_op(product())(a, b).sum().backward()


# --- vmap


def test_vmap_runs_the_kernel_for_each_member() -> None:
    op = tw.torch_op(product())
    a, b = torch.randn(32, 16, 3), torch.randn(16, 32)
    found = torch.vmap(op, in_dims=(2, None))(a, b)
    torch.testing.assert_close(found, a.permute(2, 0, 1) @ b)
    both = torch.vmap(tw.torch_op(tw.compile(halves)), in_dims=(0, None), out_dims=1)
    low, high = both(torch.ones(2, 4, 8), 3.0)
    assert low.shape == (3, 2, 8) and high.shape == (4, 2, 8)
    assert torch.all(low == -2) and torch.all(high == 3)


# --- errors


def test_what_is_no_operator() -> None:
    assert rendered(lambda: tw.torch_op(torch.relu)) == (  # type: ignore[arg-type]
        "ArgumentError: tw.torch_op takes a kernel or a function of tw.jit, not a "
        "'builtin_function_or_method'"
    )
    assert rendered(lambda: tw.torch_op(lazy)) == (
        "ArgumentError: 'lazy' returns a kernel and is none\nhint: tw.torch_op(lazy.compile(...))"
    )

    @tw.jit
    def fresh(A):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        with T.Kernel(1, threads=32):
            A[0] = 1.0

    assert rendered(lambda: tw.torch_op(fresh)) == (
        "ArgumentError: 'fresh' is not compiled yet, so that nobody knows what it returns\n"
        "hint: call it once, or fresh.compile(...), before tw.torch_op(fresh)"
    )

    @tw.jit
    def filled(A, count):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        with T.Kernel(1, threads=32):
            for i in T.serial(count):
                A[i] = 1.0

    filled(torch.ones(8), 4)
    assert rendered(lambda: tw.torch_op(filled)) == (
        "ArgumentError: 'filled': 'count' is a compile-time argument without a default value that "
        "is a number, a bool or a string, which is what operators of torch take\n"
        "hint: give it such a default, or make the operator of a kernel: "
        "tw.torch_op(filled.compile(...))"
    )
    assert rendered(lambda: tw.torch_op(product(), name="mine.product")) == (
        "ArgumentError: 'mine.product' is no name of an operator\nhint: as in 'mine::matmul'"
    )


def test_addresses_that_are_written_are_no_operator() -> None:
    @T.prim_func
    def at(p: T.ptr):
        with T.Kernel(1, threads=32):
            A = T.make_tensor(p, (8,), "float32")
            for i in T.Parallel(8):
                A[i] = 1.0

    assert rendered(lambda: tw.torch_op(tw.compile(at))) == (
        "ArgumentError: 'at' writes to the address 'p', and torch has to know the tensor that an "
        "operator writes to\nhint: declare the parameter as T.Tensor"
    )


def test_gradients_that_cannot_be() -> None:
    kernel = product()
    assert rendered(lambda: tw.torch_op(kernel, backward=torch.matmul, reference=torch.matmul)) == (
        "ArgumentError: 'matmul': 'backward' and 'reference' both say what the gradient is\n"
        "hint: give one of them"
    )
    assert rendered(lambda: tw.torch_op(tw.compile(add_to), reference=torch.add)) == (
        "ArgumentError: 'add_to' writes to 'B', and only results have gradients\n"
        "hint: let the kernel make its results: out_idx=[...], or T.empty"
    )
    assert rendered(lambda: tw.torch_op(kernel, backward=kernel)) == (
        "ArgumentError: 'matmul': its gradient 'matmul' takes 2 arguments, and is called with 4: "
        "the arguments, the results, their gradients\n"
        "hint: give a function that picks what the kernel takes"
    )
    a, b = product_args(needs_gradients=True)
    one = tw.torch_op(kernel, backward=lambda a, b, c, dc: dc @ b.T)
    assert rendered(lambda: one(a, b).sum().backward()) == (
        "ArgumentError: 'matmul' has 2 tensor arguments (A, B), and its gradient returns 1 values\n"
        "hint: one for each, None where there is none"
    )
    two = tw.torch_op(kernel, reference=lambda a, b: (a @ b, a))
    assert rendered(lambda: two(a, b).sum().backward()) == (
        "ArgumentError: 'matmul' returns 1 tensors, and its reference 2"
    )


def test_what_vmap_refuses() -> None:
    op = tw.torch_op(tw.compile(add_to))
    many = torch.ones(3, 8)
    assert rendered(lambda: torch.vmap(op, in_dims=(0, 0, None))(many, many, 1)) == (
        "ArgumentError: 'add_to' writes to 'B', and vmap takes operators that return what they "
        "make\nhint: let the kernel make its results: out_idx=[...], or T.empty"
    )
    op = tw.torch_op(product())
    assert rendered(lambda: torch.vmap(op)(torch.ones(0, 32, 16), torch.ones(0, 16, 32))) == (
        "ArgumentError: 'matmul' is called under vmap with an empty batch"
    )


def test_an_extent_that_no_symbol_of_torch_can_say() -> None:
    @T.prim_func
    def rooted(A: T.Tensor((n,), "float32")):
        B = T.empty((T.if_then_else(n > 4, n, 4),), "float32")
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                B[i] = A[i]
        return B

    op = tw.torch_op(tw.compile(rooted))
    assert op(torch.ones(6)).shape == (6,)
    model = torch.compile(lambda a: op(a) + 1, backend="aot_eager", fullgraph=True, dynamic=True)
    with pytest.raises(RuntimeError) as caught:
        model(torch.ones(7))
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, tw.ArgumentError):
        error = error.__cause__ or error.__context__
    assert error is not None and error.render() == (
        "ArgumentError: the extent 'n if n > 4 else 4' of a result cannot be computed from sizes "
        "that torch keeps open\n"
        "hint: compile or export with fixed sizes (dynamic=False)"
    )


def test_arguments_are_checked_as_in_a_direct_call() -> None:
    a, b = product_args()
    assert rendered(lambda: tw.torch_op(product())(a.T, b)) == rendered(lambda: product()(a.T, b))
