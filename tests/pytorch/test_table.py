"""The table of operations: all of core ATen is in it, once, and what it names is in kernels."""

import functools
from collections import Counter
from typing import Any

import pytest
import torch

from tileworkbench.pytorch import aten, in_torch
from tileworkbench.pytorch.backend import Settings, tile_backend
from tileworkbench.pytorch.report import Report


def core() -> list[str]:
    """The operations that torch calls core."""
    names = []
    for full in torch._C._dispatch_get_all_op_names():
        space, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        packet = getattr(torch.ops.aten, name, None) if space == "aten" else None
        operation = getattr(packet, overload or "default", None)
        if operation is not None and torch.Tag.core in operation.tags:
            names.append(str(operation))
    return names


def test_each_operation_of_core_aten_has_a_group_or_a_reason() -> None:
    names = core()
    assert len(names) > 150
    missing = [n for n in names if aten.group_of(n) == "torch" and n not in in_torch.REASONS]
    assert not missing, "a group in pytorch/aten.py, or a reason in pytorch/in_torch.py"


def test_no_operation_is_in_two_places() -> None:
    groups = (aten.MAPS, aten.ROWS, aten.PRODUCTS, aten.GATHERS, aten.VIEWS, aten.TRANSPOSITIONS)
    others = (aten.SLICES, aten.CONSTANTS, in_torch.REASONS)
    one = (aten.CONVERSION, aten.CLONE, aten.EXPANSION, aten.ATTENTION, aten.BATCH_NORMS[0])
    counts = Counter([*one, *(name for names in (*groups, *others) for name in names)])
    assert [name for name, count in counts.items() if count > 1] == []
    assert sum(map(len, in_torch.BY_REASON.values())) == len(in_torch.REASONS)


def test_groups() -> None:
    named = {
        "aten.tanh.default": "element-wise",
        "aten._to_copy.default": "element-wise",
        "aten._softmax.default": "row",
        "aten.cumsum.default": "row",
        "aten.addmm.default": "product",
        "aten.embedding.default": "gather",
        "aten._scaled_dot_product_flash_attention_for_cpu.default": "attention",
        "aten.permute.default": "view",
        "aten.clone.default": "copy",
        "aten.full.default": "constant",
        "aten.convolution.default": "product",
        "aten.sort.default": "torch",
    }
    assert {name: aten.group_of(name) for name in named} == named
    assert all(hasattr(torch.ops.aten, name.split(".")[1]) for name in in_torch.REASONS)


# --- each row in a function of its own; `MAPS` have their test in `test_tile`

X, VECTOR, PICKED = torch.randn(64, 96), torch.randn(96), torch.arange(128) % 64
HEADS, IMAGE = torch.randn(1, 4, 64, 32), torch.randn(2, 8, 16, 16)
NARROW = torch.randn(64, 96).bfloat16()
MATRICES, ENDS = torch.randn(4, 128, 128), torch.tensor([10, 20, 40, 64], dtype=torch.int32)
DEPTHWISE = ([1], [3], [1], False, [0], 96)
CALLS: dict[str, tuple[Any, ...]] = {
    "aten.cumsum.default": (X, -1),
    aten.PICK: (X, 1, PICKED[:64, None]),
    "aten._softmax.default": (X, -1, False),
    "aten._log_softmax.default": (X, -1, False),
    "aten._softmax_backward_data.default": (X, X, -1, torch.float32),
    "aten._log_softmax_backward_data.default": (X, X, -1, torch.float32),
    "aten.native_layer_norm.default": (X, [96], VECTOR, VECTOR, 1e-5),
    "aten._fused_rms_norm.default": (X, [96], VECTOR, 1e-5),
    "aten.native_group_norm.default": (IMAGE, VECTOR[:8], VECTOR[8:16], 2, 8, 256, 4, 1e-5),
    "aten._native_batch_norm_legit.no_stats": (IMAGE[:1], VECTOR[:8], None, True, 0.1, 1e-5),
    aten.BATCH_NORMS[0]: (IMAGE, None, None, VECTOR[:8], VECTOR[:8] + 9, True, 0.1, 1e-5),
    "aten.mv.default": (X, VECTOR),
    **{f"aten.{name}": (X, [-1]) for name in ("sum.dim_IntList", "mean.dim", "amax.default")},
    "aten.amin.default": (X, [-1]),
    **{f"aten.{name}.correction": (X, [-1]) for name in ("var", "std", "var_mean", "std_mean")},
    **{f"aten.{name}.default": (X,) for name in ("sum", "mean", "max", "min")},
    "aten.prod.default": (X / X.abs().max(),),
    "aten.prod.dim_int": (X, -1),
    **{f"aten.{name}.default": (X,) for name in ("any", "all")},
    **{f"aten.{name}.dim": (X, -1) for name in ("any", "all")},
    **{f"aten.{name}.dims": (X, [-1]) for name in ("any", "all")},
    "aten.linalg_vector_norm.default": (X, 2, [-1]),
    "aten.logsumexp.default": (X, [-1]),
    "aten.mm.default": (X, X.t()),
    "aten.addmm.default": (VECTOR[:64], X, X.t()),
    "aten.bmm.default": (MATRICES, MATRICES),
    "aten.baddbmm.default": (MATRICES, MATRICES, MATRICES),
    aten.CONVOLUTION: (MATRICES[:, :96], MATRICES[0, :96, None, :4], None, *DEPTHWISE),
    "aten._grouped_mm.default": (NARROW, NARROW.view(4, 96, 16), ENDS),
    "aten.embedding.default": (X, PICKED),
    "aten.index_select.default": (X, 0, PICKED),
    "aten.index.Tensor": (X, [PICKED]),
    **dict.fromkeys(aten.POOLS, (IMAGE, [2, 2], [2, 2])),
    aten.ATTENTION: (HEADS, HEADS, HEADS),
    aten.CONVERSION: (X,),
    aten.CLONE: (X.t(),),
    "aten.full.default": ([64, 96], 2.5),
    "aten.full_like.default": (X, 2.5),
    "aten.scalar_tensor.default": (2.5,),
    "aten.new_full.default": (X, [64, 96], 2.5),
    **{f"aten.{name}.default": ([64, 96],) for name in ("zeros", "ones")},
    **{f"aten.{name}.default": (X,) for name in ("zeros_like", "ones_like")},
    **{f"aten.{name}.default": (X, [64, 96]) for name in ("new_zeros", "new_ones")},
    **dict.fromkeys(("aten.alias.default", "aten.detach.default", "aten.t.default"), (X,)),
    **{f"aten.{each}.default": (X, [96, 64]) for each in ("view", "_unsafe_view", "reshape")},
    "aten.unsqueeze.default": (X, 1),
    "aten.squeeze.dim": (X[:, None], 1),
    "aten.squeeze.dims": (X[:, None, :, None], [1, 3]),
    "aten.permute.default": (X, [1, 0]),
    "aten.transpose.int": (X, 0, 1),
    "aten.select.int": (HEADS, 1, 2),
    "aten.slice.Tensor": (X, 0, 8, 40),
    "aten.split.Tensor": (X, 32),
    "aten.split_with_sizes.default": (X, [16, 48]),
    "aten.unbind.int": (HEADS[0],),
    aten.EXPANSION: (X[:, None], [64, 3, 96]),
}
OPTIONS: dict[str, dict[str, Any]] = {
    aten.CONVERSION: {"dtype": torch.bfloat16},
    aten.CLONE: {"memory_format": torch.contiguous_format},
}
ELSEWHERE = {aten.GROUPED[1]}  # an operation of transformers, in `test_grouped`


def test_each_row_has_a_call() -> None:
    views = (*aten.VIEWS, *aten.TRANSPOSITIONS, *aten.SLICES, aten.EXPANSION)
    others = (
        *aten.ROWS,
        *aten.BATCH_NORMS,
        *aten.PRODUCTS,
        *aten.GROUPED,
        *aten.GATHERS,
        *aten.POOLS,
    )
    one = (*aten.CONSTANTS, aten.CONVERSION, aten.CLONE, aten.ATTENTION)
    assert {*views, *others, *one} == CALLS.keys() | ELSEWHERE


def test_what_graphs_have_by_another_name_is_in_a_kernel() -> None:
    def call(x: Any) -> Any:
        angle = torch.empty_like(x)
        torch.ops.aten.atan2.out(x, x * 2, out=angle)
        return torch.ops.aten.var.dim(x, [-1]) + angle.sum(-1)

    assert in_torch.BY_REASON["graphs have it by another name"] == (
        "aten.atan2.out",
        "aten.var.dim",
    )
    report = Report()
    torch.testing.assert_close(compiled(call, report)(X), call(X))
    assert report.parts and not report.in_torch, report


def compiled(call: Any, report: Report) -> Any:
    settings = Settings(least_work=1, least_elements=1)
    backend = functools.partial(tile_backend, report=report, settings=settings)
    return torch.compile(call, backend=backend, dynamic=False)


@pytest.mark.parametrize("name", CALLS)
def test_what_the_table_names_is_in_a_kernel(name: str) -> None:
    operation = functools.reduce(getattr, name.split(".")[1:], torch.ops.aten)
    options = OPTIONS.get(name, {})

    def call(x: Any, args: Any) -> Any:
        made = operation(*args, **options)
        made = made[0] if isinstance(made, tuple | list) else made
        return made * x.to(made.dtype) if aten.group_of(name) in ("view", "constant") else made

    report = Report()
    args = (X if aten.group_of(name) == "constant" else X[0, 0], CALLS[name])
    with torch.no_grad():
        found = compiled(call, report)(*args)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if found.dtype == torch.float32 else {}
    torch.testing.assert_close(found, call(*args), **tolerance)
    assert report.parts and not report.in_torch, report
