"""Functions of torch as kernels: values against torch, gradients, what stays in torch."""

import functools
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.backend import Settings, plain_name, tile_backend
from tileworkbench.pytorch.report import Operation, Report
from tileworkbench.workbench.inputs import make_inputs

EVERYTHING = Settings(least_work=1, least_elements=1)


def compiled(
    fn: Callable[..., Any], report: Report, settings: Settings = EVERYTHING, **options: Any
) -> Any:
    backend = functools.partial(tile_backend, report=report, settings=settings)
    return torch.compile(fn, backend=backend, fullgraph=True, **options)


def close(actual: Any, expected: Any) -> None:
    """Equal as far as rounding goes; narrow floats are rounded once here, in torch after each
    operation.
    """
    loose = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
    tolerance = loose.get(expected.dtype, 0)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert actual.stride() == expected.stride()
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


# --- every row of the table

X = torch.tensor([-3.5, -1.0, -0.0, 0.0, 0.25, 1.0, 2.5, 7.0])
SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0, -1.0, 0.5, -0.5, 0.0])
SECOND: dict[str, tuple[Any, ...]] = {  # what an operation takes behind its first operand
    "aten.pow.Tensor_Scalar": (2,),
    "aten.leaky_relu.default": (0.1,),
    "aten.hardtanh.default": (-1.0, 2.0),
    "aten.clamp.default": (-1.0, 2.0),
    "aten.clamp_min.default": (0.5,),
    "aten.clamp_max.default": (0.5,),
    "aten.threshold_backward.default": ("tensor", 0.5),
}
SECOND |= {name: ("tensor",) for name in aten.MAPS if name.endswith(("_backward.default",))}
SECOND["aten.threshold_backward.default"] = ("tensor", 0.5)
SECOND["aten.leaky_relu_backward.default"] = ("tensor", 0.1, False)
SECOND["aten.hardtanh_backward.default"] = ("tensor", -1.0, 2.0)
SECOND["aten.softplus_backward.default"] = ("tensor", 2.0, 3.0)
SECOND["aten.elu_backward.default"] = (1.5, 0.5, 2.0, False, "tensor")
SECOND["aten.threshold.default"] = (0.25, 2.0)
SECOND |= {f"aten.{name}.default": ("tensor", "tensor") for name in ("addcmul", "addcdiv")}
SECOND |= {f"aten.{name}": ("tensor",) for name in ("logaddexp.default", "xlogy.Tensor")}
SECOND |= {"aten.atan2.default": ("tensor",), "aten.pow.Tensor_Tensor": ("tensor",)}
SECOND |= {"aten.lerp.Scalar": ("tensor", 0.75), "aten.lerp.Tensor": ("tensor", "tensor")}
POSITIVE = (
    "aten.log.default",
    "aten.log2.default",
    "aten.log10.default",
    "aten.sqrt.default",
    "aten.rsqrt.default",
)


def operator_of(name: str) -> Any:
    _, op, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, op), overload)


def arguments_of(name: str, x: Any, other: Any) -> tuple[Any, ...]:
    if name in ("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf"):
        then = 2.0 if name.endswith("ScalarSelf") else x
        return x > 0, then, 3.0 if name.endswith("ScalarOther") else other
    if name == "aten.masked_fill.Scalar":
        return x, x > 0, -2.0
    if name == "aten.floor_divide.default":
        return (x > 0).int() * 7 - 3, 2
    if name in ("aten.pow.Scalar", "aten.remainder.Scalar_Tensor"):
        return 1.5, x
    if name == "aten.native_dropout_backward.default":
        return x, other > 0, 2.0
    if "shift" in name or "bitwise_xor" in name or ("bitwise" in name and name.endswith("Scalar")):
        return (x > 0).int() * 6, (other > 0).int() if name.endswith("Tensor") else 2
    if "logical" in name or "bitwise" in name:
        return (x > 0,) if "not" in name else (x > 0, other > 0)
    if name in SECOND:
        return x, *(other if each == "tensor" else each for each in SECOND[name])
    if name.removesuffix("_mode").endswith(".Tensor") or name.endswith("imum.default"):
        return x, other
    return (x, 1.5) if name.removesuffix("_mode").endswith(".Scalar") else (x,)


# A batch normalisation has parameters for its channels, and rows of its own beside pooling.
NAMES = [name for name in aten.MAPS if name != aten.BATCH_NORM]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_element_wise_operations_are_those_of_torch(dtype: Any) -> None:
    def each(values: Any) -> dict[str, Any]:
        made = {}
        for name in NAMES:
            x, other = values, values.flip(0)
            if name in POSITIVE:
                x = x.abs()
            if name == "aten.gelu.default":  # torch makes NaN of infinity
                x = x.clamp(max=100)
            mode = {"rounding_mode": "floor"} if name.endswith("_mode") else {}
            made[name] = operator_of(name)(*arguments_of(name, x, other), **mode)
        return made

    report = Report()
    call = compiled(each, report, dynamic=False)
    for values in (X.to(dtype), SPECIAL.to(dtype)):
        expected = each(values)
        for name, found in call(values).items():
            try:
                close(found, expected[name])
            except AssertionError as error:
                raise AssertionError(f"{name}: {found} for {expected[name]}") from error
    in_kernels = [name for part in report.parts for name in part.operations]
    assert len(in_kernels) >= len(NAMES), report
    assert {name for name, _ in report.in_torch} <= {"aten.flip.default"}


EDGES = torch.tensor(
    [
        *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, -7.25, 1e-3, 6.0, -6.0),
        *(float("inf"), -float("inf"), float("nan"), 1e-40, -1e-40, 3e38, -3e38, 1e9, -1e9),
        *(16777215.0, -16777215.0, 127.0, -149.0, 0.3333333, 1.0000001),
    ]
)
OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "atan2": torch.atan2,
    "pow": torch.pow,
}


@pytest.mark.parametrize("name", OF_TWO)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_functions_of_two_floats_at_their_edges(name: str, dtype: Any) -> None:
    """Each with each, and numbers on either side: values, and the signs of zeros."""
    call, edges = OF_TWO[name], EDGES.to(dtype)

    def each(x: Any, y: Any) -> list[Any]:
        made = [call(x, y), call(x, y[0])]
        if name != "atan2":
            made += [call(x, number) for number in (0.75, -3.0, 7, 0.0)]
        if name in ("pow", "remainder"):
            made += [call(number, y) for number in (2.0, 0.75, 10)]
        if name == "pow":
            made += [call(number, y) for number in (-3.0, 0.0, 1.0, -1)]
        return made

    x, y = (at.contiguous() for at in torch.meshgrid(edges, edges, indexing="ij"))
    report = Report()
    # Where a quotient is infinite as a float32 torch's vector code has NaN for the remainder, and
    # its code for single elements has the remainder.
    exact = name in ("fmod", "remainder")
    wanted = each(x.double(), y.double()) if exact else each(x, y)
    for found, expected in zip(compiled(each, report)(x, y), wanted, strict=True):
        expected = expected.to(dtype)
        at = (found != expected) & ~(found.isnan() & expected.isnan())
        close(found[at], expected[at])
        assert torch.equal(found.signbit() & (found == 0), expected.signbit() & (expected == 0))
    assert not report.in_torch, report


@pytest.mark.parametrize("call", list(OF_TWO.values()))
def test_functions_of_two_promote_as_in_torch(call: Callable[[Any, Any], Any]) -> None:
    def each(x: Any, n: Any, half: Any) -> list[Any]:
        return [call(x, n), call(n, x), call(half, x), call(half, n), call(n.bool(), x)]

    x, n = torch.randn(20, 40), torch.randint(1, 9, (40,), dtype=torch.int32)
    report, args = Report(), (x, n, torch.randn(20, 40).half())
    for found, expected in zip(compiled(each, report)(*args), each(*args), strict=True):
        close(found, expected)
    assert report.parts, report


def test_comparisons_of_comparisons_are_not_chained() -> None:
    def call(x: Any, y: Any) -> Any:
        same, other = (x > 0) == (y > 0), (x > 0) < (y > 1)
        return same & (x < 2), other | (x < -2), torch.logical_xor(x > 0, y > 0) & (y < 2)

    x, y = torch.randn(300), torch.randn(300)
    tiled = tw.tile(call, keep_slower=True)
    assert all(map(torch.equal, tiled(x, y), call(x, y)))
    assert tiled.report.parts and not tiled.report.in_torch


def test_powers() -> None:
    def call(x: Any) -> Any:
        return sum(x.abs() ** power for power in (-2, -1, -0.5, 0.5, 1, 1.5, 2, 3, 4))

    report, x = Report(), torch.randn(16, 64)
    close(compiled(call, report)(x), call(x))
    assert not report.in_torch


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.softmax(x, -1),
        lambda x: torch.log_softmax(x, -1),
        lambda x: F.layer_norm(x, (96,)),
        lambda x: F.layer_norm(x, (4, 96)),
        lambda x: F.layer_norm(x, (96,), x[0, 0] + 1, x[1, 1]),
        lambda x: F.rms_norm(x, (96,), x[0, 0], 1e-5),
        lambda x: x.sum(-1),
        lambda x: x.mean((-1, -2), keepdim=True),
        lambda x: x.amax(-1),
        lambda x: x.logsumexp(-1) + torch.logsumexp(x, (1, 2), keepdim=True)[:, 0],
        lambda x: x.amin((1, 2)),
        lambda x: x.prod(-1) + x.exp().prod(-1, keepdim=True)[..., 0],
        lambda x: (x > 2).any(-1) | (x > -3).all(-1) | x[..., :1].bool()[..., 0],
        lambda x: x.sum() + x.mean(),
        lambda x: x.max() - x.min(),
        lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True),
        lambda x: x * (x.var((1, 2), unbiased=False, keepdim=True) + 1e-5).rsqrt(),
        lambda x: (
            x.sub(*torch.var_mean(x, -1, keepdim=True)[1:]) / torch.std_mean(x, (1, 2))[0].sum()
        ),
        lambda x: torch.std_mean(x, -1, unbiased=False)[0] * torch.var_mean(x, -1)[1],
        lambda x: F.normalize(x, dim=-1),
        lambda x: x.norm(1, dim=-1) + x.norm(float("inf"), dim=-1),
        lambda x: (x - x.mean(-1, keepdim=True)).square().mean(-1),
        lambda x: x / x.square().sum(-1, keepdim=True).sqrt(),
        lambda x: torch.softmax(x * 2 + x.mean(-1, keepdim=True), -1).sum(-1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows(call: Callable[[Any], Any], dtype: Any) -> None:
    report = Report()
    x = torch.randn(5, 4, 96).to(dtype)
    close(compiled(call, report)(x), call(x))
    assert report.parts and not report.in_torch, report


def test_questions_of_rows_have_the_dtypes_of_torch() -> None:
    def call(x: Any) -> list[Any]:
        small = x.to(torch.uint8)
        made = [small.any(-1), small.all(), x.int().any(-1, keepdim=True), (x > 0).all((1, 2))]
        return [*made, torch.any(x > 0, dim=()), (x > 2).any(0)]

    x = torch.randn(3, 5, 40).abs()
    x[1, 2, 3], x[0, 0], x[2] = 100.0, 0, 4
    report = Report()
    for found, expected in zip(compiled(call, report)(x), call(x), strict=True):
        close(found, expected)
    reasons = [reason for name, reason in report.in_torch if name.startswith("aten.any")]
    assert sorted(reasons) == ["a reduction of no dimensions", "not along the last dimensions"]


def test_nan_and_infinity_in_rows() -> None:
    x = torch.randn(4, 64)
    x[0, 3], x[1, 5], x[2] = float("nan"), float("inf"), -float("inf")
    row = [torch.softmax, torch.amax, torch.amin, torch.logsumexp]
    for call in (functools.partial(each, dim=-1) for each in row):
        close(compiled(call, Report())(x), call(x))


# --- random graphs

UNARY = [torch.tanh, torch.sigmoid, F.gelu, F.silu, F.relu, torch.abs, torch.square, torch.neg]
BINARY = [torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum]


def some_slow(count: int, fast: int) -> list[Any]:
    """Seeds, of which all but the first are for the slow tests."""
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(fast, count)]
    return [*range(fast), *slow]


def random_function(seed: int) -> Callable[..., Any]:
    """Element-wise operations, reductions, broadcasts and views of three tensors."""
    choose = random.Random(seed)
    steps = [(choose.random(), choose.random(), choose.random()) for _ in range(12)]

    def call(x: Any, column: Any, row: Any) -> Any:
        values = [x, column, row]
        for kind, which, other in steps:
            a = values[int(which * len(values))]
            b = values[int(other * len(values))]
            if kind < 0.35:
                made = UNARY[int(other * len(UNARY))](a)
            elif kind < 0.75:
                a, b = (a, b) if a.dim() == b.dim() else (x, column)
                made = BINARY[int(which * len(BINARY))](a, b)
            elif kind < 0.85:
                made = a.mean(-1, keepdim=True)
            elif kind < 0.92:
                made = torch.softmax(a, -1)
            elif kind < 0.96:
                made = a.reshape(-1, a.shape[-1]).tanh().reshape(a.shape)
            else:
                made = torch.where(a > 0, a, 0.5)
            values.append(made)
        return values[-1], values[-2], values[-4]

    return call


@pytest.mark.parametrize("seed", some_slow(30, fast=8))
def test_random_graphs_agree_with_torch(seed: int) -> None:
    fn, report = random_function(seed), Report()
    args = (torch.randn(3, 8, 64), torch.randn(1, 1, 64), torch.randn(3, 8, 1))
    for found, expected in zip(compiled(fn, report)(*args), fn(*args), strict=True):
        close(found.contiguous(), expected.contiguous())
    assert report.parts


@pytest.mark.parametrize("seed", some_slow(10, fast=2))
def test_gradients_of_random_graphs_agree_with_torch(seed: int) -> None:
    fn = random_function(seed)

    def gradients(call: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(seed)
        shapes = ((3, 8, 64), (1, 1, 64), (3, 8, 1))
        args = [torch.randn(shape, requires_grad=True) for shape in shapes]
        sum(each.square().sum() for each in call(*args)).backward()
        return [torch.zeros(()) if each.grad is None else each.grad for each in args]

    for found, expected in zip(gradients(compiled(fn, Report())), gradients(fn), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


# --- products


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        lambda x, w, b: torch.relu(x.reshape(-1, 48) @ w.mT) + b,
        lambda x, w, b: F.silu(F.linear(x, w)) * b + F.linear(x, w).tanh(),
        lambda x, w, b: F.linear(x, w, b) + F.linear(x, w).sum(-1, keepdim=True),
    ],
)
def test_products_with_what_follows_them(call: Callable[..., Any]) -> None:
    report = Report()
    args = (torch.randn(2, 20, 48), torch.randn(80, 48) / 7, torch.randn(80))
    close(compiled(call, report)(*args), call(*args))
    assert any("mm" in operation for part in report.parts for operation in part.operations)


# --- as a user meets it


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
        self.up = torch.nn.Linear(64, 128)
        self.down = torch.nn.Linear(128, 64)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def test_a_module_and_its_gradients() -> None:
    module = Block()
    tiled = tw.tile(module)
    x = torch.randn(4, 64, 64)
    with torch.no_grad():
        close(tiled(x), module(x))
    found = torch.autograd.grad(tiled(x).square().sum(), list(module.parameters()))
    expected = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    assert tiled.kernels


def test_layers_without_names() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU())
    tiled = tw.tile(layers)
    x = torch.randn(128, 64)
    with torch.no_grad():
        close(tiled(x), layers(x))
    assert "    layer_0_weight: T.Tensor((64, 64), T.float32),\n" in tiled.source


def test_the_source_runs_by_itself() -> None:
    def scaled_softmax(scores: Any, mask: Any) -> Any:
        return torch.softmax(scores * 0.125 + mask, -1)

    scores, mask = torch.randn(4, 32, 64), torch.randn(32, 64)
    tiled = tw.tile(scaled_softmax, scores, mask)
    assert re.sub(r"line \d+", "line 7", tiled.source) == SOURCE
    (kernel,) = tiled.kernels.values()
    made = kernel(scores.reshape(-1, 64), mask)
    torch.testing.assert_close(made, scaled_softmax(scores, mask).reshape(-1, 64))
    assert str(tiled.report) == (
        "3 of 3 operations run in 1 kernel\n  mul_add_softmax: mul, add, softmax"
    )


SOURCE = """\
import tileworkbench.language as T


# mul, add, softmax
# line 7: return torch.softmax(scores * 0.125 + mask, -1)
# A block has 32 whole rows of 64, kept in fast memory.
@T.prim_func
def mul_add_softmax(
    scores: T.Tensor((128, 64), T.float32),
    mask: T.Tensor((32, 64), T.float32),
):
    out = T.empty((128, 64), T.float32)
    with T.Kernel(T.ceildiv(128, 32), threads=128) as by:
        add = T.alloc_fragment((32, 64), T.float32)
        row_max = T.alloc_fragment((32,), T.float32)
        weights = T.alloc_fragment((32, 64), T.float32)
        row_sum = T.alloc_fragment((32,), T.float32)
        for i, j in T.Parallel(32, 64):
            row = by * 32 + i
            add[i, j] = scores[row, j] * 0.125 + mask[row % 32, j]
        T.reduce_max(add, row_max, dim=1, nan_propagate=True)
        for i, j in T.Parallel(32, 64):
            weights[i, j] = T.exp(add[i, j] - row_max[i])
        T.reduce_sum(weights, row_sum, dim=1)
        for i, j in T.Parallel(32, 64):
            row = by * 32 + i
            out[row, j] = weights[i, j] / row_sum[i]
    return out
"""


def test_other_sizes_are_compiled_when_they_come() -> None:
    @tw.tile
    def gated(x: Any, y: Any) -> Any:
        return F.silu(x) * y

    for rows in (64, 96, 64, 160):
        x, y = torch.randn(rows, 128), torch.randn(rows, 128)
        close(gated(x, y), F.silu(x) * y)
    assert list(gated.kernels) == ["silu_mul", "silu_mul_2"]
    report = Report()
    call = compiled(lambda x: torch.tanh(x) * 2, report, Settings(), dynamic=True)
    for rows in (64, 96):
        x = torch.randn(rows, 128)
        close(call(x), torch.tanh(x) * 2)
    assert len(report.parts) == 1  # a kernel for every size


def test_a_simulated_gpu_computes_the_same() -> None:
    x = torch.randn(64, 128)
    tiled = tw.tile(lambda x: torch.softmax(x.tanh() * 3, -1), x, target="sim:sm_80")
    close(tiled(x), torch.softmax(x.tanh() * 3, -1))
    assert next(iter(tiled.kernels.values())).target == "sim:sm_80"


def test_what_stays_in_torch_is_named_with_the_reason() -> None:
    def mixed(x: Any, y: Any) -> Any:
        ordered = torch.sort(torch.tanh(x) * 2, -1).values
        return ordered.cumprod(-1) + y.t().exp().sin() + y.double().sin().t(), x[:4, :4].sin().cos()

    x, y = torch.randn(128, 128), torch.randn(128, 128)
    tiled = tw.tile(mixed)
    for found, expected in zip(tiled(x, y), mixed(x, y), strict=True):
        close(found.float().contiguous(), expected.float().contiguous())
    reasons = dict(tiled.report.in_torch)
    assert reasons["aten.sort.default"] == "sorting and searching is torch's own"
    assert reasons["aten.cumprod.default"] == "no rule for it"
    assert "aten.exp.default" not in reasons  # of a transposed matrix, in the order of memory
    assert reasons["aten.cos.default"] == "on few elements, it is as fast in torch"
    lines = str(tiled.report).splitlines()
    assert lines[:5] == [
        "6 of 12 operations run in 3 kernels",
        "  tanh_mul: tanh, mul",
        "  exp_sin: exp, sin",
        "  add: add, add",
        "6 run in torch:",
    ]


def test_the_report_counts_what_is_the_same() -> None:
    reason = "no rule for it"
    sort, mm = ("aten.sort.default", 1, "x.sort()"), ("aten.mm.default", 2, "x @ x")
    report = Report(operations=[Operation(*sort, reason=reason), Operation(*mm, reason="alone")])
    report.operations.append(Operation(*sort, reason=reason))
    assert str(report) == (
        "0 of 3 operations run in 0 kernels\n3 run in torch:\n"
        "  aten.sort.default (2 times): no rule for it\n  aten.mm.default: alone"
    )


def test_functions_that_torch_has_to_break_or_repeat() -> None:
    def branching(x: Any) -> Any:
        if x.sum() > 0:
            return torch.tanh(x) * 2
        return torch.sigmoid(x) * 3

    def mutating(x: Any) -> Any:
        x.mul_(2).add_(1)
        return torch.tanh(x) * 2

    def dropping(x: Any) -> Any:
        return F.dropout(torch.tanh(x) * 2, 0.5, training=True) * 2

    for sign in (1.0, -1.0):
        x = torch.full((128, 64), sign)
        close(tw.tile(branching)(x), branching(x))
    a, b = torch.ones(128, 64), torch.ones(128, 64)
    close(tw.tile(mutating)(a), mutating(b))
    assert torch.equal(a, b)
    dropped = tw.tile(dropping)(torch.ones(128, 64))
    share = (dropped == 0).float().mean().item()
    assert 0.3 < share < 0.7


def test_torch_finds_the_backend_by_name() -> None:
    call = torch.compile(lambda x: torch.tanh(x) * 2, backend="tileworkbench", fullgraph=True)
    x = torch.randn(128, 64)
    close(call(x), torch.tanh(x) * 2)
    assert "tileworkbench" in torch.compiler.list_backends()


def test_names_of_inputs() -> None:
    assert plain_name("L_self_modules_l_parameters_weight_") == "l_weight"
    assert plain_name("L_x_") == "x"
    assert plain_name("L_self_modules_norm_modules_0_buffers_mean_") == "norm_0_mean"


def test_what_cannot_be_called() -> None:
    with pytest.raises(tw.ArgumentError) as caught:
        tw.tile(3)
    assert caught.value.message == "tw.tile takes a function or a module, not a 'int'"


# --- what a function in kernels is held against


def test_results_of_another_kind_are_refused() -> None:
    tiled = tw.tile(lambda x: x * 2 + 1)
    x = torch.ones(128, 128)
    for wrong, message in [
        (lambda x: (x, x), "there are 1 result, torch has 2"),
        (
            lambda x: (x * 2 + 1).double(),
            "result 0 of '<lambda>' is float32 (128, 128), that of torch float64 (128, 128)",
        ),
        (lambda x: x * 2, "'<lambda>' in kernels disagrees with torch in 16384 of 16384 elements"),
    ]:
        tiled.fn = wrong
        with pytest.raises(tw.TileError) as info:
            tiled.check(x)
        assert str(info.value).startswith(message)
        assert tiled.agreement is None


def test_a_difference_says_where_and_what_to_do() -> None:
    def twice(x: Any) -> Any:
        return x * 2 + 1

    tiled = tw.tile(twice)
    tiled.fn = lambda x: x * 2 + 1 + (x > 2)
    x = torch.ones(128, 128)
    x[5, 7] = 3
    with pytest.raises(tw.TileError) as info:
        tiled.check(x)
    assert str(info.value) == (
        "'twice' in kernels disagrees with torch in 1 of 16384 elements of result 0: first at "
        "[5, 7], where it is 7 instead of 8; the relative tolerance is 0.0001\n"
        "hint: twice['NAME'] is a kernel of it, with its source and a reference for a check"
    )


def test_a_kernel_before_the_first_call() -> None:
    with pytest.raises(tw.TileError) as info:
        tw.tile(torch.tanh)["tanh"]
    assert str(info.value) == (
        "'tanh' is no kernel of 'tanh'\nhint: there is none yet: call it first"
    )


def test_the_references_of_kernels_are_torch_itself() -> None:
    def layer(x: Any, w: Any, b: Any) -> Any:
        h = F.gelu(F.linear(x, w, b[:, 0]))
        return torch.softmax(h.view(4, 32, 256) * b.mT, -1), h.sum(-1, keepdim=True) * h

    torch.manual_seed(0)
    args = torch.randn(128, 64), torch.randn(256, 64), torch.randn(256, 1)
    report = Report()
    compiled(layer, report)(*args)
    for part in report.parts:
        inputs = make_inputs(part.kernel.program)
        assert part.kernel.check(part.reference, *inputs).ok
    assert sum(len(part.operations) for part in report.parts) == 6


def test_a_random_function_is_compared_with_the_same_numbers() -> None:
    def noisy(x: Any) -> Any:
        return F.dropout(torch.tanh(x) * 2, 0.5)

    tiled = tw.tile(noisy)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert str(tiled.check(torch.randn(128, 128))).startswith("agrees with torch in 1 result: ")
    torch.manual_seed(3)
    assert torch.equal(before, torch.get_rng_state())


def test_values_have_the_names_of_the_users_code() -> None:
    def layer(x: Any, scale: Any) -> Any:
        spread = x.abs().amax(-1, keepdim=True)
        scaled = x / spread * scale
        return torch.softmax(scaled, -1), scaled

    report = Report()
    compiled(layer, report)(torch.randn(128, 64), torch.rand(64))
    assert [line.strip() for line in report.source.splitlines() if "T.empty" in line] == [
        "scaled_out = T.empty((128, 64), T.float32)",
        "out = T.empty((128, 64), T.float32)",
    ]
    assert "spread = T.alloc_fragment" not in report.source  # used in its own loop alone
    assert "scaled[i, j] = x[row, j] / row_max[i] * scale[j]" in report.source
