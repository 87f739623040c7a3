"""Linear layers with weights in few bits: one kernel that makes the weight in its tiles."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.bench.products import product_rates
from tileworkbench.pytorch import rules
from tileworkbench.pytorch.axes import CutError, regrouped, text_of_axes, whole
from tileworkbench.pytorch.backend import Settings, tile_backend
from tileworkbench.pytorch.report import Report
from tileworkbench.workbench.inputs import make_inputs


def int8_by_row(x: Any, codes: Any, scales: Any) -> Any:
    weight = codes.to(x.dtype) * scales[:, None]
    return F.silu(F.linear(x, weight, scales))


def int8_by_column(x: Any, codes: Any, scales: Any) -> Any:
    return x @ ((codes.T - 3).to(x.dtype) * scales)


def int4_by_group(x: Any, packed: Any, scales: Any, zeros: Any) -> Any:
    rows, groups = scales.shape
    codes = torch.stack([packed & 15, (packed >> 4) & 15], -1).view(rows, groups, -1)
    weight = (codes.to(x.dtype) - zeros[:, :, None].to(x.dtype)) * scales[:, :, None]
    return F.linear(x, weight.view(rows, -1))


def int4_in_halves(x: Any, packed: Any, scales: Any, zeros: Any) -> Any:
    codes = torch.cat([packed & 15, packed >> 4], -1).to(torch.int8) - 8
    size = codes.shape[1] // scales.shape[1]
    return x @ (codes.to(x.dtype) * scales.repeat_interleave(size, 1)).t() + 1


def int4_in_words(x: Any, words: Any, scales: Any, zeros: Any) -> Any:
    rows, groups = scales.shape
    codes = (words[:, :, None] >> torch.arange(0, 32, 4)) & 15
    weight = (codes.view(rows, groups, -1) - 8) * scales[:, :, None]
    return torch.relu(x @ weight.reshape(rows, -1).to(x.dtype).t())


def codes(kind: Any, *shape: int) -> Any:
    room = torch.iinfo(kind)
    return torch.randint(room.min, room.max, shape, dtype=kind)


@pytest.fixture(autouse=True)
def _without_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch is faster where a processor multiplies 16 bits by itself."""
    rates = rules.product_rates
    monkeypatch.setattr(rules, "product_rates", lambda dtype: rates(dtype, ()))


def one_kernel(call: Callable[..., Any], *args: Any, name: str = "dequantised") -> None:
    tiled = tw.tile(call)
    tiled.check(*args)
    assert not tiled.report.in_torch, tiled.report
    (part,) = tiled.report.parts
    assert part.name.startswith(name)
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 5, 130])
def test_codes_of_8_bits(rows: int, dtype: Any) -> None:
    x, scales = torch.randn(rows, 136).to(dtype), (torch.rand(72) / 50).to(dtype)
    name = "to_copy" if rows == 1 else "dequantised"
    one_kernel(int8_by_row, x, codes(torch.int8, 72, 136), scales, name=name)
    one_kernel(int8_by_column, x, codes(torch.int8, 72, 136), scales)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, s, v: F.linear(x, w.to(x.dtype) * s[:, None], s),
        lambda x, w, s, v: F.silu(F.linear(x, (w.to(x.dtype) - 3) * s[:, None] * v)) * s,
        lambda x, w, s, v: x.view(1, 1, -1) @ (w.to(x.dtype) * (v.exp() + s[0])).t(),
        lambda x, w, s, v: torch.mv(w.to(x.dtype) * s[:, None], x[0]),
        lambda x, w, s, v: F.linear(x, torch.where(w > 5, v, w.to(x.dtype)) / 50),
        lambda x, w, s, v: F.linear(x, (w.view(72, 4, 34).to(x.dtype) * v[:4, None]).view(72, 136)),
        lambda x, w, s, v: F.linear(x, (w.to(x.dtype).view(72, 4, 34) * v.view(4, 34)).flatten(1)),
    ],
)
def test_a_row_meets_a_weight_that_is_computed(call: Callable[..., Any], dtype: Any) -> None:
    x, scales, by_column = (torch.randn(n).to(dtype) / 9 for n in ((1, 136), (72,), (136,)))
    args = x, codes(torch.int8, 72, 136), scales, by_column
    tiled = tw.tile(call)
    tiled.check(*args)
    (part,) = [part for part in tiled.report.parts if "mv" in part.operations]
    assert len(part.operations) >= 3 and part.source.count("T.empty(") == 1, tiled.report
    assert not any("mm" in name or "to_copy" in name for name, _ in tiled.report.in_torch)
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, s: (F.linear(x, made := w * s[:, None]), made),
        lambda x, w, s: F.linear(x, (w * s[:, None]).softmax(-1)),
        lambda x, w, s: F.linear(x, w.flatten().mul(2).view(72, 136)),
        lambda x, w, s: F.linear(
            x, (w.view(72, 4, 34) * s[:4, None]).view(72, 2, 68).mul(2).view(72, 136)
        ),
    ],
)
def test_other_weights_are_made_before(call: Callable[..., Any]) -> None:
    tiled = tw.tile(call)
    tiled.check(torch.randn(1, 136), torch.randn(72, 136), torch.randn(72))
    assert not any("mv" in part.operations for part in tiled.report.parts), tiled.report


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "width", "size"), [(1, 96, 24), (70, 160, 16)])
@pytest.mark.parametrize("call", [int4_by_group, int4_in_halves, int4_in_words])
def test_codes_of_4_bits(
    call: Callable[..., Any], rows: int, width: int, size: int, dtype: Any
) -> None:
    x, scales = torch.randn(rows, width).to(dtype), torch.rand(100, width // size).to(dtype)
    zeros = torch.randint(0, 15, scales.shape, dtype=torch.uint8)
    kind, count = (torch.int32, 8) if call is int4_in_words else (torch.uint8, 2)
    one_kernel(call, x, codes(kind, 100, width // count), scales, zeros)


def test_rows_of_every_number() -> None:
    tiled = tw.tile(int8_by_row, dynamic=True)
    weight, scales = codes(torch.int8, 72, 136), torch.rand(72)
    for rows in (3, 40, 150):
        x = torch.randn(rows, 136)
        found, expected = tiled(x, weight, scales), int8_by_row(x, weight, scales)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-2)
    assert len(tiled.report.parts) == 1


def test_gradients_of_activations_and_scales() -> None:
    x, scales = torch.randn(40, 136, requires_grad=True), torch.rand(72, requires_grad=True)
    agreement = tw.tile(int8_by_row).check(x, codes(torch.int8, 72, 136), scales)
    assert agreement.gradients == 2


def test_a_weight_that_others_read_is_made_once() -> None:
    def call(x: Any, codes: Any, scales: Any) -> Any:
        weight = codes.to(x.dtype) * scales[:, None]
        return F.linear(x, weight), weight

    tiled = tw.tile(call)
    tiled.check(torch.randn(64, 136), codes(torch.int8, 72, 136), torch.rand(72))
    assert not any(name.startswith("dequantised") for name in tiled.kernels)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sim:sm_80", "sim:gfx942"])
def test_codes_on_a_simulated_gpu(target: str) -> None:
    x, scales = torch.randn(20, 128).half(), torch.rand(64, 4).half()
    zeros = torch.randint(0, 15, scales.shape, dtype=torch.uint8)
    args = x, codes(torch.uint8, 64, 64), scales, zeros
    tiled = tw.tile(int4_by_group, target=target)
    torch.testing.assert_close(tiled(*args), int4_by_group(*args), rtol=1e-2, atol=0.5)
    assert list(tiled.kernels) == ["dequantised_mm"]


def test_the_text_reads_codes_in_the_loop() -> None:
    zeros = torch.randint(0, 15, (100, 4), dtype=torch.uint8)
    args = torch.randn(4, 128), codes(torch.uint8, 100, 64), torch.rand(100, 4), zeros
    lines = [line.strip() for line in tw.tile(int4_by_group, *args).source.splitlines()]
    start = lines.index("for i, j in T.Parallel(128, 64):")
    assert lines[start : start + 8] == [
        "for i, j in T.Parallel(128, 64):",
        "column = bx * 128 + i",
        "depth = k * 64 + j",
        "stack = T.cast(packed[column, depth // 2], T.int32) >> (depth % 2 * 4) & 15",
        "to_copy_1 = T.cast(T.cast(zeros[column, depth // 32], T.int32), T.float32)",
        "weight = (T.cast(stack, T.float32) - to_copy_1) * scales[column, depth // 32]",
        "weight_tile[i, j] = weight",
        "T.gemm(x_shared, weight_tile, product, transpose_B=True)",
    ]


def test_many_rows_are_multiplied_by_torch() -> None:
    rates = product_rates("float32")
    assert rates.kernel_dequantises_faster(16, 2)
    assert not rates.kernel_dequantises_faster(4096, 2)
    assert product_rates("bfloat16", ()).kernel_dequantises_faster(4096, 2)


def test_indices_of_views() -> None:
    rows, columns = whole("row", [6]), whole("column", [4, 8])
    index = regrouped((rows, columns), (6, 4, 8))
    texts = [text_of_axes(axes) for axes in index]
    assert texts == ["row", "column // 8", "column % 8"]
    (one,) = regrouped(index, (192,))
    assert text_of_axes(one) == "row * 32 + column"
    with pytest.raises(CutError) as caught:
        regrouped((rows, columns), (3, 2, 32))
    assert (caught.value.axis, caught.value.outer) == (rows[0], 3)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_integers_are_those_of_torch(dtype: Any) -> None:
    def call(x: Any, y: Any, count: Any) -> Any:
        made = [x + y, x * 3, x - y, (x & 15) - 8, x >> 4, (x + y) >> 1, x << 3, -x, x.abs()]
        made += [x ^ y, ~x, x | 7, x & y, torch.maximum(x, y), x < y, x == y, x * 0.5, x / 3]
        return *made, x.float() * 2, (x - 100).to(torch.bfloat16), x.clamp(3, 9), x >> count

    x, y = codes(dtype, 64, 128), codes(dtype, 64, 128)
    report, everything = Report(), Settings(least_work=1, least_elements=1)
    backend = functools.partial(tile_backend, report=report, settings=everything)
    count = torch.randint(0, 40, (64, 128), dtype=dtype)
    made = torch.compile(call, backend=backend)(x, y, count)
    for found, expected in zip(made, call(x, y, count), strict=True):
        torch.testing.assert_close(found, expected)
    assert not report.in_torch


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 40])
def test_weights_in_the_packed_form_of_torch(rows: int, dtype: Any) -> None:
    def layer(x: Any, weight: Any, scales: Any) -> Any:
        return torch.relu(torch._weight_int8pack_mm(x, weight, scales))

    x, scales = torch.randn(rows, 128).to(dtype), (torch.rand(96) / 50).to(dtype)
    name = "to_copy" if rows == 1 else "dequantised"
    one_kernel(layer, x, codes(torch.int8, 96, 128), scales, name=name)


def test_packed_weights_that_no_kernel_takes_stay_one_operation() -> None:
    def layer(x: Any, weight: Any, scales: Any) -> Any:
        return torch.relu(torch._weight_int8pack_mm(x, weight, scales))

    tiled = tw.tile(layer)
    tiled.check(torch.randn(20, 64), codes(torch.int8, 48, 64), torch.rand(48) / 50)  # few
    packed = "a product with weights of int8 is as fast in torch"
    assert tiled.report.in_torch[0] == ("aten._weight_int8pack_mm.default", packed)
