"""`loop_layout`: which thread executes which iteration is the user's choice (conflicts are told in
tests/messages/targets).
"""

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.layout.fragment import Fragment

SHAPE = (32, 64)
LAYOUTS = {
    "rows": T.Fragment(SHAPE, lambda i, j: (i * 4 + j // 16, j % 16)),
    "columns": T.Fragment(SHAPE, lambda i, j: (j * 2 + i // 16, i % 16)),
    "backwards": T.Fragment(SHAPE, lambda i, j: (127 - i * 4 - j // 16, 15 - j % 16)),
    "half of the threads": T.Fragment(SHAPE, lambda i, j: (i * 2 + j // 32, j % 32)),
    "twice": T.Fragment(SHAPE, lambda i, j, rep: (rep * 64 + i * 2 + j // 32, j % 32), replicate=2),
    "in order of its own": T.Fragment(SHAPE, lambda i, j: (i * 4 + j % 4, j // 4)),
}


def scaled(copy: Any, update: Any, store: Any, fragment: bool) -> Any:
    """Twice the input, through a fragment or in memory, with a layout for each loop."""

    @T.prim_func
    def main(A: T.Tensor(SHAPE, "float32"), B: T.Tensor(SHAPE, "float32")):
        with T.Kernel(1, threads=128):
            if fragment:
                F = T.alloc_fragment(SHAPE, "float32")
            else:
                F = T.alloc_shared(SHAPE, "float32")
            T.copy(A, F, loop_layout=copy)
            for i in T.Parallel(32, loop_layout=update):
                for j in T.Parallel(64):
                    F[i, j] = F[i, j] * 2
            for i, j in T.Parallel(32, 64, loop_layout=store):
                B[i, j] = F[i, j]

    return main


def run(page: Any) -> tw.Kernel:
    """Run on every target, compare, and return the simulated kernel."""
    require("nvrtc", missing_nvrtc())
    a = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    targets = ("cpu", "sim:sm_80", "ptx:sm_80")
    kernels = {target: tw.compile(page, target=target) for target in targets}
    for kernel in kernels.values():
        b = np.zeros_like(a)
        kernel(a, b)
        np.testing.assert_array_equal(b, a * 2)
    return kernels["sim:sm_80"]


def chosen(kernel: tw.Kernel) -> list[Fragment | None]:
    program = kernel.passes["infer_thread_layouts"].program
    return [s.loop_layout for s in statements(program.body) if isinstance(s, Parallel)]


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("loop", ["copy", "update", "store"])
def test_a_fragment_follows_the_loop(loop: str, name: str) -> None:
    layouts = {"copy": None, "update": None, "store": None, loop: LAYOUTS[name]}
    found = chosen(run(scaled(**layouts, fragment=True)))
    assert loop == "copy" or found[loop == "store"] == LAYOUTS[name]


@pytest.mark.parametrize("name", LAYOUTS)
def test_loops_over_memory_have_layouts_of_their_own(name: str) -> None:
    page = scaled(LAYOUTS["rows"], LAYOUTS[name], LAYOUTS["columns"], fragment=False)
    assert chosen(run(page)) == [LAYOUTS[name], LAYOUTS["columns"]]


def test_threads_of_a_role_count_from_zero() -> None:
    @T.prim_func
    def main(A: T.Tensor(SHAPE, "float32"), B: T.Tensor(SHAPE, "float32")):
        with T.Kernel(1, threads=256):  # noqa: SIM117
            with T.ws(1):
                F = T.alloc_fragment(SHAPE, "float32")
                T.copy(A, F)
                for i, j in T.Parallel(32, 64, loop_layout=LAYOUTS["columns"]):
                    B[i, j] = F[i, j] * 2

    run(main)


def test_each_thread_stores_what_the_layout_says() -> None:
    """Seen in the program, whatever the values."""

    @T.prim_func
    def main(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            layout = T.Fragment((64,), lambda i: (i // 8 + i % 8 * 8, 0))
            for i in T.Parallel(64, loop_layout=layout):
                B[i] = tx

    b = np.zeros(64, np.int32)
    tw.compile(main, target="sim:sm_80")(b)
    i = np.arange(64)
    np.testing.assert_array_equal(b, i // 8 + i % 8 * 8)
