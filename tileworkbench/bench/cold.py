"""Cold caches: what a call reads comes from memory, as if it had not been touched for long.

On a processor each cache line of the arguments, and of what the call before returned, is written
back and given up by all caches of all cores (CLFLUSH of x86, DC CIVAC of Arm), and nothing else is:
code, stack and the kernel's own tiles stay where they are. All threads do it, so that those of the
launch that follows are awake, as they are between warm calls. On a GPU a buffer of twice its L2 is
written, which leaves no room there for anything else (as Triton's ``do_bench`` does).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.launch import Launcher
from tileworkbench.compiler.device.host.native import build_native
from tileworkbench.compiler.device.host.threads import get_num_threads
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.runtime.arrays import view_array

_CHUNK = 1 << 16  # bytes of a block
# Gives up one line, and what waits for all of them, by architecture: declarations, then calls.
_INSTRUCTIONS = {
    "x86_64": (
        "declare void @llvm.x86.sse2.clflush(ptr)\ndeclare void @llvm.x86.sse2.mfence()",
        "call void @llvm.x86.sse2.clflush(ptr %line)",
        "call void @llvm.x86.sse2.mfence()",
    ),
    "aarch64": (
        "",
        'call void asm sideeffect "dc civac, $0", "r,~{memory}"(ptr %line)',
        'call void asm sideeffect "dsb sy", "~{memory}"()',
    ),
}
_TEXT = """
{declarations}
define i32 @evict(ptr %args, i64 %begin, i64 %end, ptr %flag, ptr %scratch) {{
entry:
  %start = load i64, ptr %args
  %stop_at = getelementptr i64, ptr %args, i64 1
  %stop = load i64, ptr %stop_at
  %skipped = mul i64 %begin, {chunk}
  %first = add i64 %start, %skipped
  %reached = mul i64 %end, {chunk}
  %last = add i64 %start, %reached
  %is_end = icmp slt i64 %last, %stop
  %to = select i1 %is_end, i64 %last, i64 %stop
  br label %head
head:
  %at = phi i64 [ %first, %entry ], [ %next, %body ]
  %more = icmp slt i64 %at, %to
  br i1 %more, label %body, label %done
body:
  %line = inttoptr i64 %at to ptr
  {evict}
  %next = add i64 %at, {line_bytes}
  br label %head
done:
  {wait}
  ret i32 0
}}
"""


class ColdCalls:
    """Calls on the same arguments, each of which is a cold one if `chill` was called before it."""

    def __init__(self, args: Sequence[Any]) -> None:
        self._args, self._returned = args, list[Any]()

    def of(self, fn: Callable[..., Any]) -> Callable[[], None]:
        """A call of `fn`."""

        def call() -> None:
            returned = fn(*self._args)
            self._returned += returned if isinstance(returned, list | tuple) else [returned]

        return call

    def chill(self) -> None:
        """Have no cache hold anything of the arguments, and of what the last call returned."""
        evict((*self._args, *self._returned))
        self._returned.clear()  # this memory is free for the next results, and as cold


def evict(values: Sequence[Any]) -> None:
    """Have all caches give up the memory of the arrays among `values`. Raises `UnsupportedError`
    where programs cannot do that.
    """
    launcher, line = _evictor(), processor.caches()[0].line_bytes
    for start, stop in _spans(values):
        begin = start // line * line
        blocks = max(-(-(stop - begin) // _CHUNK), get_num_threads())
        launcher((begin, stop), blocks)


def _spans(values: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """The first byte and the one after the last of each array that is not empty."""
    for value in values:
        view = view_array(value)
        if view is not None and view.pointer:
            low, high = view.byte_range
            if high > low:
                yield view.pointer + low, view.pointer + high


@functools.cache
def _evictor() -> Launcher:
    architecture = processor.architecture()
    if architecture not in _INSTRUCTIONS:
        raise UnsupportedError(
            f"caches cannot be made cold on '{architecture}': no instruction of programs gives up "
            "cache lines there",
            hint="measure with warm caches",
        )
    declarations, evict_line, wait = _INSTRUCTIONS[architecture]
    line_bytes = processor.caches()[0].line_bytes
    text = _TEXT.format(
        declarations=declarations,
        evict=evict_line,
        wait=wait,
        chunk=_CHUNK,
        line_bytes=line_bytes,
    )
    function = build_native(text, ("evict",)).functions["evict"]
    return Launcher(function, "evict", 2, chunk=1)
