"""The page of torch's operations: which are parts of kernels, and which torch runs itself."""

from __future__ import annotations

from collections.abc import Iterator

from docs import markdown
from tileworkbench.pytorch import aten, in_torch

GROUPS = {
    "element-wise": "One element of the result follows from one of each operand, broadcast.",
    "row": "Goes over whole rows, which are the last dimensions.",
    "product": "Products of matrices, batches of them, convolutions and grouped products.",
    "gather": "Picks rows of a table by an index.",
    "window": "Goes over windows of an image.",
    "attention": "Scaled dot products, a softmax, and products with the values.",
    "copy": "Puts elements in another order in memory, which tiles turn around.",
    "view": "Only says how memory is read; costs nothing in a kernel.",
    "constant": "A tensor of one number, which the kernel has as that number.",
}


def pages() -> Iterator[tuple[str, str]]:
    names = sorted({*aten.NAMES, *in_torch.REASONS})
    inside = [name for name in names if aten.group_of(name) != "torch"]
    parts = [
        "# Operations of torch",
        "What `tw.tile` and `torch.compile(backend=\"tileworkbench\")` make of each operation of "
        "ATen that torch calls core, and of some others. An operation of a group can be part of a "
        "kernel with others; whether it is depends on shapes, dtypes and what it is beside, and "
        "the function's report says why not. What is not listed runs in torch.",
        "Three things are not as in torch's own kernels. 16-bit floats are computed in float32 in "
        "a kernel, and rounded once. A float that becomes an integer of 32 or 64 bits that has "
        "no room for it becomes the nearest one there is, and NaN 0: torch leaves that open. A "
        "remainder of floats is exact, and a quotient that is rounded down follows from it; torch "
        "has NaN where the quotient has no float32, but for single elements.",
        "## Parts of kernels",
        markdown.table(
            ["group", "what", "operations"],
            (
                [group, what, _listed(each for each in inside if aten.group_of(each) == group)]
                for group, what in GROUPS.items()
            ),
        ),
        "## Run by torch",
        "Some of these are kernels in some cases, written as others: pooling whose places nobody "
        "reads, batch normalisation by known statistics, the gradient of a convolution's image "
        "where its stride is 1, losses of classes without weights, and their gradients.",
        markdown.table(
            ["why", "operations"],
            ([reason, _listed(sorted(each))] for reason, each in in_torch.BY_REASON.items()),
        ),
    ]  # fmt: skip
    yield "operations.md", markdown.page(*parts)


def _listed(names: Iterator[str] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
