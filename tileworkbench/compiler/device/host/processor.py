"""Facts about this machine: processor, features, cores, cache sizes, and the way to LLVM.

Importing this module touches nothing; every fact is looked up on first use and kept.
"""

from __future__ import annotations

import functools
import os
import platform
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.runtime.forks import fresh_lock

_SYSFS_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CPUINFO = Path("/proc/cpuinfo")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

_llvm_lock = fresh_lock()


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Data cache sizes in bytes as one core sees them; `l3` is 0 on a machine without one."""

    l1: int
    l2: int
    l3: int


@dataclass(frozen=True, slots=True)
class Cache:
    """One data cache: its level (1 to 3), bytes, ways of a set, bytes of a line, and the numbers of
    the processors that share it (empty where the system does not say).
    """

    level: int
    bytes_: int
    ways: int
    line_bytes: int
    sharers: frozenset[int] = frozenset()


# What nearly every processor of the last ten years has at least; used where the system tells
# nothing.
_TYPICAL = CacheSizes(l1=32 << 10, l2=512 << 10, l3=8 << 20)
_TYPICAL_WAYS, _TYPICAL_LINE = {1: 8, 2: 8, 3: 16}, 64


@functools.cache
def _initialized_llvm() -> ModuleType:
    try:
        import llvmlite.binding as binding
    except (ImportError, OSError) as error:
        raise UnsupportedError(
            f"running kernels on the CPU needs llvmlite, which cannot be imported ({error})",
            hint="pip install llvmlite",
        ) from error
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module: ModuleType = binding
    return module


def llvm_binding() -> ModuleType:
    """`llvmlite.binding` with the native target initialised; `UnsupportedError` without
    llvmlite."""
    with _llvm_lock:
        return _initialized_llvm()


@functools.cache
def llvm_version() -> str:
    """The versions of llvmlite and of the LLVM in it, e.g. ``llvmlite 0.50.0, LLVM 22.1.0``."""
    binding = llvm_binding()
    import llvmlite

    llvm = ".".join(map(str, binding.llvm_version_info))
    return f"llvmlite {llvmlite.__version__}, LLVM {llvm}"


@functools.cache
def cpu_name() -> str:
    """LLVM's name of this processor, e.g. ``znver5``; on a virtual machine it may name another
    model."""
    return str(llvm_binding().get_host_cpu_name())


@functools.cache
def cpu_features() -> frozenset[str]:
    """LLVM's names of the instruction set extensions that this processor has and the system
    enables."""
    return frozenset(name for name, present in _feature_table().items() if present)


@functools.cache
def cpu_feature_string() -> str:
    """Every feature LLVM knows for this architecture as ``+name`` or ``-name``, sorted, with
    commas."""
    table = _feature_table()
    return ",".join(f"{'+' if table[name] else '-'}{name}" for name in sorted(table))


def _feature_table() -> dict[str, bool]:
    # llvmlite raises where LLVM has no detection for the architecture; then only the baseline is
    # known.
    try:
        return dict(llvm_binding().get_host_cpu_features())
    except RuntimeError:
        return {}


def architecture() -> str:
    """``x86_64``, ``aarch64`` or what the system calls it, in one spelling on every system."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}.get(name, name)


def core_count() -> int:
    """Cores that this process may use (its affinity mask where the system has one), at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)


assumed_caches: ContextVar[CacheSizes | None] = ContextVar("caches", default=None)
"""What `cache_sizes` says instead, where another processor is reckoned with."""


def cache_sizes() -> CacheSizes:
    """Data cache sizes as the first processor has them; typical sizes for a level that the system
    does not describe.
    """
    if (assumed := assumed_caches.get()) is not None:
        return assumed
    sizes = {cache.level: cache.bytes_ for cache in caches()}
    return CacheSizes(sizes[1], sizes[2], sizes.get(3, 0))


@functools.cache
def caches() -> tuple[Cache, ...]:
    """The data caches of the first processor, innermost first; typical ones where the system does
    not describe them.
    """
    known = _read_sysfs_caches(_SYSFS_CACHES)
    typical = {1: _TYPICAL.l1, 2: _TYPICAL.l2, **({} if known else {3: _TYPICAL.l3})}
    for level in typical.keys() - known.keys():
        known[level] = Cache(level, typical[level], _TYPICAL_WAYS[level], _TYPICAL_LINE)
    return tuple(known[level] for level in sorted(known) if level in _TYPICAL_WAYS)


def _read_sysfs_caches(root: Path) -> dict[int, Cache]:
    """The data caches by level, from a directory like /sys/devices/system/cpu/cpu0/cache."""
    known: dict[int, Cache] = {}
    for index in sorted(root.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = _parse_size((index / "size").read_text())
        except (OSError, ValueError):
            continue
        if kind != "Instruction":
            ways = _number(index / "ways_of_associativity", _TYPICAL_WAYS.get(level, 16))
            line = _number(index / "coherency_line_size", _TYPICAL_LINE)
            known[level] = Cache(level, size, ways, line, _sharers(index / "shared_cpu_list"))
    return known


def _number(file: Path, otherwise: int) -> int:
    """The number in a file of sysfs; `otherwise` where there is none, or zero."""
    try:
        return int(file.read_text()) or otherwise
    except (OSError, ValueError):
        return otherwise


def _sharers(file: Path) -> frozenset[int]:
    """The numbers in a list of sysfs such as ``0-3,8``; none where there is no such list."""
    try:
        parts = [part.partition("-") for part in file.read_text().strip().split(",")]
        ranges = [range(int(first), int(last or first) + 1) for first, _, last in parts]
    except (OSError, ValueError):
        return frozenset()
    return frozenset(number for each in ranges for number in each)


def _parse_size(text: str) -> int:
    """Bytes in a sysfs size such as ``48K``; `ValueError` for anything else."""
    text = text.strip()
    if text and text[-1] in _UNITS:
        return int(text[:-1]) * _UNITS[text[-1]]
    return int(text)


@functools.cache
def machine_name() -> str:
    """A short name for reports, e.g. ``AMD EPYC, 2 cores``; needs no LLVM."""
    cores = core_count()
    return f"{_processor_brand()}, {cores} core{'' if cores == 1 else 's'}"


def _processor_brand() -> str:
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return " ".join(value.split())
    return platform.processor() or architecture()


@functools.cache
def is_guest() -> bool | None:
    """Whether this is a virtual machine, whose host may run others meanwhile; None where the
    system does not say.
    """
    if platform.system() == "Darwin":
        return _darwin_says("kern.hv_vmm_present")
    if platform.system() != "Linux" or architecture() != "x86_64":
        return None
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        return None
    # CPUID has a bit that hypervisors set and processors leave clear.
    flags = next((line for line in lines if line.startswith("flags")), None)
    return None if flags is None else "hypervisor" in flags.split()


def _darwin_says(name: str) -> bool | None:
    """A number of sysctl(3) as a truth value; None where it has no such name."""
    import ctypes

    value, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    call = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if call is None or call(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0):
        return None
    return bool(value.value)


@functools.cache
def request_tiles() -> bool:
    """Ask the system for the tile registers of AMX, which Linux gives a process on request only
    (arch_prctl, ARCH_REQ_XCOMP_PERM for component 18)."""
    if platform.system() != "Linux" or architecture() != "x86_64":
        return False
    import ctypes

    arch_prctl, request, tile_data = 158, 0x1023, 18
    return int(ctypes.CDLL(None).syscall(arch_prctl, request, tile_data)) == 0
