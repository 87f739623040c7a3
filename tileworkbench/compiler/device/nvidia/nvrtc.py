"""CUDA C++ to PTX and cubin in this process, without a driver: ctypes on the NVRTC C API.

The library comes from the wheel `nvidia-cuda-nvrtc` (the extra `cuda`), from a CUDA toolkit or from
the loader's path. Every name used here exists since CUDA 11.2.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tileworkbench.compiler.device.nvidia.files import (
    INSTALL,
    toolkit_directories,
    wheel_directories,
)
from tileworkbench.compiler.device.runtime_compiler import declare, fetch
from tileworkbench.compiler.diagnostics import CompileError, Note, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass


class CudaCompileError(CompileError):
    """NVRTC refused a CUDA source; `log` is all it said."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message, notes=tuple(Note(line) for line in log.splitlines() if line))
        self.log = log


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What ptxas gave one kernel: registers and stack per thread, static shared memory and
    barriers per block, and the bytes of register spills per thread."""

    name: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    barriers: int


@dataclass(frozen=True, slots=True)
class CudaBuild:
    """One compiled translation unit: the same code as PTX text and as an ELF image for `arch`.

    `warnings` holds what the front end and ptxas warned about, each once; `log` everything said.
    """

    arch: str
    ptx: str
    cubin: bytes
    log: str
    kernels: tuple[KernelResources, ...]
    warnings: tuple[str, ...]

    @property
    def assembly(self) -> str:
        """The PTX."""
        return self.ptx

    def notes(self) -> list[Note]:
        """What ptxas reports that costs time: spills, and what it serialised or ignored (C75xx)."""
        notes = [Note(text) for text in self.warnings if "C75" in text]
        for kernel in self.kernels:
            if kernel.spill_store_bytes or kernel.spill_load_bytes:
                notes.append(
                    Note(
                        f"'{kernel.name}' needs more than its {kernel.registers} registers: "
                        f"{kernel.spill_store_bytes} bytes are spilled to memory"
                    )
                )
        return notes

    def resources(self, kernel: str) -> KernelResources:
        """The resources of the kernel of this (mangled) name. Raises `KeyError`."""
        for each in self.kernels:
            if each.name == kernel:
                return each
        raise KeyError(kernel)


def nvrtc_version() -> tuple[int, int]:
    """Major and minor version of the NVRTC library. Raises `UnsupportedError` without one."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library = _library()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def missing_nvrtc() -> str | None:
    """One sentence saying that NVRTC cannot be used here, or None where it can."""
    try:
        _library()
    except UnsupportedError as error:
        return error.message
    return None


def compile_cuda(
    source: str, arch: str, *, name: str = "kernel.cu", options: Iterable[str] = ()
) -> CudaBuild:
    """Compile CUDA C++ for one real architecture such as ``sm_80`` or ``sm_90a``.

    `name` is the file name that messages use; `options` are further NVRTC options, one each
    (``-Xptxas=-O1``; several ptxas options need several). Line information is always generated,
    which changes no instruction. Raises `CudaCompileError` with the log and the offending line,
    `UnsupportedError` where NVRTC is missing or does not know `arch`.
    """
    library = _library()
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise UnsupportedError(f"'{arch}' is not a CUDA architecture", hint="write e.g. 'sm_80'")
    given = (f"-arch={arch}", "--std=c++17", "-Xptxas=-v", "--generate-line-info", *options)
    program = ctypes.c_void_p()
    created = library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), name.encode(), 0, None, None
    )
    _check(library, created)
    try:
        texts = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
        status = library.nvrtcCompileProgram(program, len(given), texts)
        said = fetch(library, "nvrtc", "ProgramLog", program, _check)
        log = said.decode(errors="replace").strip("\0\n")
        if status:
            raise _compile_error(library, status, source, arch, name, log)
        ptx = fetch(library, "nvrtc", "PTX", program, _check).decode().rstrip("\0")
        cubin = fetch(library, "nvrtc", "CUBIN", program, _check)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return CudaBuild(arch, ptx, cubin, log, _read_resources(log), _read_warnings(log))


def _compile_error(
    library: ctypes.CDLL, status: int, source: str, arch: str, name: str, log: str
) -> CompileError:
    """The error for a failed compilation: the first complaint with the line it is about."""
    if "invalid value for --gpu-architecture" in log:
        major, minor = nvrtc_version()
        return UnsupportedError(f"NVRTC {major}.{minor} does not know the architecture '{arch}'")
    match = re.search(rf"^{re.escape(name)}\((\d+)\): (?:catastrophic )?error: (.*)$", log, re.M)
    if match is None:
        lines = [line for line in log.splitlines() if "error" in line.lower()]
        said = lines[0] if lines else library.nvrtcGetErrorString(status).decode()
        return CudaCompileError(f"NVRTC cannot compile '{name}': {said}", log)
    number, said = int(match[1]), match[2]
    lines = source.splitlines()
    quoted = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return CudaCompileError(f"'{name}', line {number}: {said} in '{quoted}'", log)


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")


def _read_resources(log: str) -> tuple[KernelResources, ...]:
    """The report of ``ptxas -v`` in a log, one record a kernel."""
    resources: list[KernelResources] = []
    kernel, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            kernel, frame = match[1], (0, 0, 0)
        elif match := _FRAME.search(line):
            frame = (int(match[1]), int(match[2]), int(match[3]))
        elif (match := _USED.search(line)) and kernel:
            shared = re.search(r"(\d+) bytes smem", match[2])
            barriers = re.search(r"used (\d+) barriers", match[2])
            sizes = (int(size[1]) if size else 0 for size in (shared, barriers))
            resources.append(KernelResources(kernel, int(match[1]), *frame, *sizes))
            kernel = ""
    return tuple(resources)


def _read_warnings(log: str) -> tuple[str, ...]:
    """The lines of a log that warn, e.g. ``C7510`` of a serialised wgmma, each once."""
    lines = (line.strip() for line in log.splitlines())
    warnings = (line for line in lines if re.search(r"\bwarning\b|\bC75\d\d\b", line))
    return tuple(dict.fromkeys(warnings))


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        raise CompileError(f"NVRTC failed: {library.nvrtcGetErrorString(status).decode()}")


@functools.cache
def _library() -> ctypes.CDLL:
    """The loaded library. Raises `UnsupportedError` where there is none."""
    for candidate in _candidates():
        try:
            library = _load(candidate)
        except OSError:
            continue
        declare(library, "nvrtc", ("ProgramLog", "PTX", "CUBIN"))
        return library
    raise UnsupportedError("the CUDA compiler library NVRTC is not installed", hint=INSTALL)


def _load(candidate: str) -> ctypes.CDLL:
    # NVRTC looks for its builtins by bare name, which is on no search path when the library was
    # loaded by its full path: whoever is loaded first is found.
    directory = Path(candidate).parent
    if directory != Path("."):
        for sibling in sorted(directory.glob(_patterns()[1])):
            ctypes.CDLL(str(sibling))
    return ctypes.CDLL(candidate)


def _patterns() -> tuple[str, str]:
    """File name patterns of the library and of its builtins."""
    if sys.platform == "win32":
        return "nvrtc64_*_0.dll", "nvrtc-builtins64_*.dll"
    return "libnvrtc.so.1[0-9]", "libnvrtc-builtins.so.1[0-9]*"


def _candidates() -> Iterator[str]:
    pattern = _patterns()[0]
    folders = (*wheel_directories("lib"), *wheel_directories("bin"))
    for directory in (*folders, *toolkit_directories("lib64"), *toolkit_directories("bin")):
        yield from (str(path) for path in sorted(directory.glob(pattern), reverse=True))
    if sys.platform != "win32":
        yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
