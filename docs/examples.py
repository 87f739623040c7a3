"""The lines of the docstrings of `T`, and the kernels that they stand in."""

from __future__ import annotations

import inspect
import linecache
import re
import textwrap
from dataclasses import dataclass
from typing import Any

import tileworkbench as tw
import tileworkbench.language as T

HERE = "..."
_LINE = re.compile(r"^(?:>>>|\.\.\.)(?: |$)(.*)")

# A kernel, and what it is called; an example's lines stand at the place of HERE.
FRAMES = {
    "elements": """\
@T.prim_func
def kernel(
    A: T.Tensor((64,), T.float32),
    B: T.Tensor((64,), T.float32),
    N: T.Tensor((64,), T.int32),
):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            ...
""",
    "tiles": """\
@T.prim_func
def kernel(A: T.Tensor((64, 64), T.float16), C: T.Tensor((64, 64), T.float32)):
    with T.Kernel(1, threads=128) as bx:
        a = T.alloc_shared((64, 64), T.float16)
        b = T.alloc_shared((64, 64), T.float16)
        acc = T.alloc_fragment((64, 64), T.float32)
        row = T.alloc_fragment((64,), T.float32)
        bits = T.alloc_fragment((64, 64), T.int32)
        word = T.alloc_fragment((64,), T.int32)
        T.copy(A, a)
        T.copy(A, b)
        T.copy(A, acc)
        T.clear(row)
        T.clear(bits)
        ...
""",
    "threads": """\
@T.prim_func
def kernel(
    A: T.Tensor((128,), T.float32),
    B: T.Tensor((128,), T.float32),
    N: T.Tensor((128,), T.int32),
    W: T.Tensor((128,), T.uint64),
):
    with T.Kernel(1, threads=128) as bx:
        tx = T.get_thread_binding()
        s = T.alloc_shared((128,), T.float32)
        s[tx] = A[tx]
        T.sync_threads()
        ...
""",
    "a cluster": """\
@T.prim_func
def kernel(A: T.Tensor((256,), T.float32), B: T.Tensor((256,), T.float32)):
    with T.ClusterKernel(2, cluster_dims=2, threads=128) as bx:
        tx = T.get_thread_binding()
        s = T.alloc_shared((128,), T.float32)
        other = T.alloc_shared((128,), T.float32)
        ...
""",
}
# Of each group of names, and of single names that are not as their group.
GROUPS = {
    **dict.fromkeys(("math", "bits", "rounding", "atomics"), "elements"),
    **dict.fromkeys(("threads", "exchanges", "allreduce", "vectors"), "threads"),
    "clusters": "a cluster",
}
NAMES = {
    **dict.fromkeys(("assume", "call_intrin", "device_assert"), "elements"),
    **dict.fromkeys(
        ("Broadcast", "Ramp", "Shuffle", "atomic_addx2", "atomic_addx4", "ws"), "tiles"
    ),
    **dict.fromkeys(
        (
            *("cp_async_barrier_noinc", "mbarrier_arrive_expect_tx", "named_barrier_arrive"),
            *("ptx_commit_group", "ptx_cp_async", "ptx_wait_group"),
            *("sync_grid", "sync_threads", "sync_warp", "tvm_storage_sync"),
        ),
        "threads",
    ),
}


@dataclass(frozen=True, slots=True)
class Example:
    """The lines for one name of `T`. `frame` is the kernel they stand in, None for a whole file."""

    name: str
    group: str
    code: str
    frame: str | None

    @property
    def source(self) -> str:
        """The code with its kernel."""
        if self.frame is None:
            return self.code + "\n"
        before, after = FRAMES[self.frame].split(HERE)
        indent = before.rpartition("\n")[2]
        return before + textwrap.indent(self.code, indent).lstrip() + after


def example(name: str, group: str) -> Example:
    """The example in the docstring of `T.<name>`. Raises `ValueError` where there is none."""
    text = inspect.getdoc(getattr(T, name)) or ""
    lines = [found[1] for line in text.splitlines() if (found := _LINE.match(line))]
    if not lines:
        raise ValueError(f"the docstring of T.{name} has no line that begins with '>>>'")
    code = "\n".join(lines)
    if group == "dtypes" and name != "dtype":
        if getattr(T, name).kind == "handle":  # memory holds none; parameters do
            code = example("make_tensor", "memory").code.replace("T.ptr", f"T.{name}")
        code = code.replace("float16", name)
    whole = "def kernel(" in code or name == "dtype"
    frame = None if whole else NAMES.get(name) or GROUPS.get(group, "tiles")
    return Example(name, group, code, frame)


def description(name: str) -> str:
    """The docstring of `T.<name>` without its example."""
    text = inspect.getdoc(getattr(T, name)) or ""
    return "\n".join(line for line in text.splitlines() if not _LINE.match(line)).strip()


def run(made: Example) -> dict[str, Any]:
    """Run an example's source as a file would: its kernel is traced, not compiled."""
    file = f"<example of T.{made.name}>"
    linecache.cache[file] = (len(made.source), None, made.source.splitlines(True), file)
    namespace: dict[str, Any] = {"T": T, "tw": tw, "__name__": "example"}
    exec(compile(made.source, file, "exec"), namespace)
    return namespace
