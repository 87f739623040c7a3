"""Operands of MFMA are read from LDS without bank conflicts, by each machine's rules."""

from __future__ import annotations

import numpy as np
import pytest

import tileworkbench as tw
from tileworkbench.compiler.machine.tables import machine_of
from tileworkbench.compiler.sim.threads.counters import phase_costs, service_of
from tileworkbench.kernels import flash_attention, matmul

TRANSPOSES = [(False, False), (False, True), (True, False), (True, True)]
EACH = ["gfx942", *(pytest.param(arch, marks=pytest.mark.slow) for arch in ("gfx90a", "gfx950"))]


def factors(kernel: tw.Kernel) -> dict[str, float]:
    return {
        f"{access.buffer}: {access.kind} of {access.width}": access.factor
        for access in kernel.accesses
        if access.scope == "shared"
    }


@pytest.mark.parametrize("arch", EACH)
@pytest.mark.parametrize(("trans_a", "trans_b"), TRANSPOSES)
@pytest.mark.parametrize(
    "dtype", ["float16", pytest.param("float32", marks=pytest.mark.slow), "int8"]
)
def test_matmul(dtype: str, trans_a: bool, trans_b: bool, arch: str) -> None:
    page = matmul(256, 256, 256, dtype, trans_A=trans_a, trans_B=trans_b, num_stages=1)
    found = factors(tw.compile(page, target=f"sim:{arch}"))
    assert len(found) == 4, found  # a store and a load of each operand
    assert set(found.values()) == {1.0}


@pytest.mark.parametrize("arch", EACH)
@pytest.mark.parametrize("dim", [64, 128])
def test_attention(dim: int, arch: str) -> None:
    page = flash_attention(1, 2, 256, 256, dim, "float16", num_stages=1, block_M=64, block_N=64)
    assert set(factors(tw.compile(page, target=f"sim:{arch}")).values()) == {1.0}


def test_operands_along_k_are_read_sixteen_bytes_at_once() -> None:
    page = matmul(256, 256, 256, "float16", trans_B=True, num_stages=1)
    found = factors(tw.compile(page, target="sim:gfx942"))
    assert {"A_shared: load of 16", "B_shared: load of 16"} <= found.keys()


# Lanes that are served at once, as AMD and users of its GPUs published them.
PHASES = {
    ("gfx942", 16, True): [(0, 1, 2, 3, 20, 21, 22, 23), (4, 5, 6, 7, 16, 17, 18, 19)],
    ("gfx942", 16, False): [(0, 1, 2, 3, 4, 5, 6, 7), (8, 9, 10, 11, 12, 13, 14, 15)],
    ("gfx942", 8, True): [tuple(range(16)), tuple(range(16, 32))],
    ("gfx942", 4, True): [tuple(range(32)), tuple(range(32, 64))],
    ("gfx950", 16, True): [
        (0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27),
        (4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 28, 29, 30, 31),
    ],
    ("gfx950", 8, True): [tuple(range(32)), tuple(range(32, 64))],
    ("gfx950", 4, True): [tuple(range(64))],
}


@pytest.mark.parametrize(("arch", "width", "reads"), PHASES)
def test_lanes_that_are_served_at_once(arch: str, width: int, reads: bool) -> None:
    found = machine_of(arch).shared.phases(64, width, reads)
    assert list(found[: len(PHASES[arch, width, reads])]) == PHASES[arch, width, reads]
    assert sorted(lane for phase in found for lane in phase) == list(range(64))


@pytest.mark.parametrize(
    ("lanes", "kind", "worst"),
    [((0, 20), "load", 2), ((0, 20), "store", 1), ((0, 4), "load", 1), ((0, 4), "store", 2)],
)
def test_conflicts_are_counted_in_the_order_of_the_machine(
    lanes: tuple[int, int], kind: str, worst: int
) -> None:
    """Two lanes want 16 bytes of the same banks: they wait where they are served together."""
    addresses, active = np.zeros(64, np.int64), np.isin(np.arange(64), lanes)
    addresses[lanes[1]] = 128
    service = service_of(machine_of("gfx942").shared, 64, 16, kind)
    assert phase_costs(addresses, active, service)[0].max() == worst
