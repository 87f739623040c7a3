"""A notebook without a browser: cells run in a real IPython shell inside the test's process."""

from __future__ import annotations

import atexit
import contextlib
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from tileworkbench.bench.probes import host_isa

SCALE = """
def scale(A: T.Tensor((64, 32), "float32")):
    B = T.empty((64, 32), "float32")
    with T.Kernel(2, threads=32) as block:
        for i, j in T.Parallel(32, 32):
            B[block * 32 + i, j] = A[block * 32 + i, j] * 2.0
    return B
"""
SCALE_TEXT = "<TileKernel scale cpu grid=2 threads=32 | N passes, N changed | AI 0.125 FLOP/B>"

MATMUL = """
def matmul(A: T.Tensor((M, K), "float32"), B: T.Tensor((K, N), "float32")):
    C = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(N, BLOCK), T.ceildiv(M, BLOCK), threads=128) as (bx, by):
        A_shared = T.alloc_shared((BLOCK, BLOCK), "float32")
        B_shared = T.alloc_shared((BLOCK, BLOCK), "float32")
        C_local = T.alloc_fragment((BLOCK, BLOCK), "float32")
        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(K, BLOCK), num_stages=2):
            T.copy(A[by * BLOCK, k * BLOCK], A_shared)
            T.copy(B[k * BLOCK, bx * BLOCK], B_shared)
            T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[by * BLOCK, bx * BLOCK])
    return C
"""
MATMUL_SHAPES = "-D M=64 -D N=48 -D K=32 -D BLOCK=16"


def avx_levels() -> list[str]:
    """The levels that 'cpu:a' may become here. It asks LLVM, which may be absent."""
    return [level for level in ("avx512", "avx2") if level in ("avx2", host_isa().level)]


def without_counts(text: str) -> str:
    """`text` without the numbers of passes, which are no business of these tests."""
    return re.sub(r"\d+ passes, \d+ changed", "N passes, N changed", text)


@dataclass(frozen=True, slots=True)
class Output:
    """What running a cell left behind: its text, the value of `Out[n]`, and the exception."""

    out: str
    err: str
    value: Any
    error: BaseException | None

    @property
    def text(self) -> str:
        """Everything printed, without trailing blanks and the numbers of passes."""
        return without_counts(self.out + self.err).rstrip()


class Notebook:
    """A shell, its extension loaded."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell

    def run(self, cell: str) -> Output:
        """Run one cell as a front end would."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            done = self.shell.run_cell(cell, store_history=True)
        error = done.error_before_exec or done.error_in_exec
        return Output(out.getvalue(), err.getvalue(), done.result, error)

    def value(self, expression: str) -> Any:
        """The value of an expression in the user's namespace."""
        return eval(expression, self.shell.user_ns)

    def names(self) -> set[str]:
        """The names the user sees, without the notebook's own."""
        hidden = self.shell.user_ns_hidden
        return {name for name in self.shell.user_ns if name not in hidden and name[0] != "_"}


@contextlib.contextmanager
def open_notebook(extension: bool = True) -> Iterator[Notebook]:
    """A notebook in a fresh shell, with our extension loaded where wanted; IPython's own until it
    ends, and then the one that was open before is again.
    """
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.cache_size = 100
    main = sys.modules["__main__"]
    before = InteractiveShell._instance
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=config)
    notebook = Notebook(shell)
    try:
        if extension:
            loaded = notebook.run("%load_ext tileworkbench")
            assert loaded.error is None and loaded.text == ""
        yield notebook
    finally:
        # Every shell would collect garbage once more when the process ends: minutes, after a suite.
        atexit.unregister(shell.atexit_operations)
        InteractiveShell.clear_instance()
        for owner in InteractiveShell._walk_mro() if before is not None else ():
            owner._instance = before
        sys.modules["__main__"] = main
