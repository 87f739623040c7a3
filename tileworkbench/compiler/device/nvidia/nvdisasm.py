"""The instructions of a cubin as text (SASS), by NVIDIA's `nvdisasm`.

The program comes from the wheel `nvidia-cuda-nvdisasm` (the extra `cuda`), from the search path or
from a CUDA toolkit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tileworkbench.compiler.device.nvidia.files import (
    INSTALL,
    toolkit_directories,
    wheel_directories,
)
from tileworkbench.compiler.diagnostics import RunError, UnsupportedError


def missing_nvdisasm() -> str | None:
    """One sentence saying that there is no disassembler here, or None where there is one."""
    return None if _find() else "the CUDA disassembler nvdisasm is not installed"


def disassemble(cubin: bytes, source: str) -> str:
    """The instructions of a cubin under comments of `source`, the CUDA text that it was made of.

    A comment ``// line 12: T.copy(A, B)`` stands above the instructions that come from what follows
    it in the text. Raises `UnsupportedError` without nvdisasm, `RunError` where it fails.
    """
    program = _find()
    if program is None:
        raise UnsupportedError("the CUDA disassembler nvdisasm is not installed", hint=INSTALL)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        # -c: code alone; -gi: with the lines it comes from, through inlined functions.
        command = [program, "-c", "-gi", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"nvdisasm failed: {done.stderr.strip() or done.returncode}")
    return "\n".join(_with_comments(done.stdout, comments_above(source))) + "\n"


def _find() -> str | None:
    folders = (*wheel_directories("bin"), *toolkit_directories("bin"))
    wheels = os.pathsep.join(map(str, folders))
    return shutil.which("nvdisasm", path=wheels) or shutil.which("nvdisasm")


_PLACE = re.compile(r'\s*//## File ".*", line (\d+)(?: inlined at .*)?$')
_COMMENT = re.compile(r"\s*(// line \d+: .*)$")


def comments_above(source: str) -> list[str]:
    """For each line of the text the comment that it stands under; empty above the first one of its
    function.
    """
    comments, current = [], ""
    for line in source.splitlines():
        match = _COMMENT.match(line)
        current = match[1] if match else "" if line.startswith("}") else current
        comments.append(current)
    return comments


def _with_comments(text: str, comments: list[str]) -> Iterator[str]:
    """The disassembly with each change of place as the comment there."""
    shown = place = ""
    for line in text.splitlines():
        if match := _PLACE.match(line):
            at = int(match[1]) - 1  # of several in a row the last is the outermost
            place = comments[at] if at < len(comments) else ""
            continue
        if place != shown and line.lstrip().startswith("/*"):
            shown = place
            if place:
                yield f"        {place}"
        yield line
