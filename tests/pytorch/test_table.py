"""The table of operations: all of core ATen is in it, once."""

from collections import Counter

import torch

from tileworkbench.pytorch import aten, in_torch


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
    one = (aten.CONVERSION, aten.EXPANSION, aten.ATTENTION)
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
        "aten.full.default": "constant",
        "aten.convolution.default": "product",
        "aten.sort.default": "torch",
    }
    assert {name: aten.group_of(name) for name in named} == named
    assert all(hasattr(torch.ops.aten, name.split(".")[1]) for name in in_torch.REASONS)
