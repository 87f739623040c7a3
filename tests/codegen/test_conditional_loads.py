"""Loads that only one side of a choice makes."""

import tileworkbench as tw
from tileworkbench.kernels import chunk_scan


def test_one_element_for_all_lanes_is_no_gather() -> None:
    """The causal mask of chunk_scan chooses by lane; the row's decay is one element of a tile."""
    kernel = tw.compile(chunk_scan(1, 2, 64, 2, 32, 32, dtype="float32"), target="cpu")
    assert "gather" not in kernel.source
