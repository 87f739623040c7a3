"""Which chapters `make test` runs; the others run with the slow tests."""

from __future__ import annotations

import pytest

QUICK = (
    "00_index",
    "01_quickstart",
    "02_layouts",
    "03_roofline",
    "04_gpu_without_a_gpu",
    "05_elementwise_and_masks",
)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.suffix == ".ipynb" and item.path.stem not in QUICK:
            item.add_marker(pytest.mark.slow)
