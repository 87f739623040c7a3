"""HIP C++ to a code object in this process, on a machine with ROCm: ctypes on the hiprtc C API.

Written by the HIP RTC programming guide; tests call it with libraries that record what they are
asked. Not run with ROCm.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from tileworkbench.compiler.device.amd.clang import HipCompileError, compile_error
from tileworkbench.compiler.device.amd.driver import load_library
from tileworkbench.compiler.device.runtime_compiler import declare, fetch

# As the other route compiles it; memory is read as elements, words and vectors.
_OPTIONS = ("-O3", "-fno-strict-aliasing", "-w")
_FAILED_COMPILATION = 6  # HIPRTC_ERROR_COMPILATION


@functools.cache
def find_hiprtc() -> Any | None:
    """The library, None where there is none."""
    try:
        return declared(load_library("libhiprtc", (7, 6)))
    except OSError:
        return None


def declared(library: Any) -> Any:
    """`library` with the types of its functions' arguments."""
    declare(library, "hiprtc", ("ProgramLog", "Code"))
    return library


def compile_code_object(
    library: Any, source: str, isa: str, *, name: str, options: tuple[str, ...] = ()
) -> bytes:
    """The code object of HIP C++ for a device such as ``gfx942:sramecc+:xnack-``.

    `name` is the file name that messages use; `options` are further ones. Raises `HipCompileError`
    with the log and the offending line.
    """
    program = ctypes.c_void_p()
    text, file = source.encode(), name.encode()
    _check(library, library.hiprtcCreateProgram(ctypes.byref(program), text, file, 0, None, None))
    try:
        given = [each.encode() for each in (f"--offload-arch={isa}", *_OPTIONS, *options)]
        texts = (ctypes.c_char_p * len(given))(*given)
        status = library.hiprtcCompileProgram(program, len(given), texts)
        if status == _FAILED_COMPILATION:
            said = fetch(library, "hiprtc", "ProgramLog", program, _check)
            raise compile_error(source, name, said.decode(errors="replace").strip("\0\n"))
        _check(library, status)
        return fetch(library, "hiprtc", "Code", program, _check)
    finally:
        library.hiprtcDestroyProgram(ctypes.byref(program))


def _check(library: Any, status: int) -> None:
    if status:
        said = (library.hiprtcGetErrorString(status) or b"").decode()
        raise HipCompileError(f"hiprtc failed: {said or f'error {status}'}", "")
