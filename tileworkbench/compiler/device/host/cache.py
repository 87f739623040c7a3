"""Object files on disk, by content: a second process links a kernel instead of compiling it.

Entries are machine code that will run, so nothing is read from a directory or file that somebody
else could have written: the directory must belong to this user and be writable by nobody else, and
so must each entry. An entry that is no file, or whose header or checksum is wrong, is removed and
made anew. Nothing in here raises: a cache that cannot be used is not used.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import struct
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.llvm import COMPILER_VERSION, NativeTarget
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.runtime.forks import fresh_lock

MAX_BYTES = 256 << 20

_MAGIC = b"tilewb\x00\x01"
# magic, key, sha256 of the object, length of the object
_HEADER = struct.Struct("<8s32s32sQ")
_SUFFIX, _TEMPORARY_SUFFIX = ".object", ".writing"
# A temporary file this old was left by a process that died while writing.
_ABANDONED_SECONDS = 3600
# Trimming goes below the limit by a quarter, so that it is rare.
_TRIMMED_FRACTION = 0.75

_warned: set[str] = set()


@dataclass(slots=True)
class CacheCounters:
    """What a cache did since it was made; `errors` counts entries that were corrupt or could not be
    written."""

    hits: int = 0
    misses: int = 0
    stores: int = 0
    errors: int = 0


def object_key(ir_text: str, target: NativeTarget, passes: tuple[str, ...]) -> str:
    """The name of an object: a digest of all that determines it."""
    digest = hashlib.sha256()
    fields = (
        *(str(COMPILER_VERSION), processor.llvm_version(), target.triple, target.cpu),
        *(target.feature_string, ",".join(passes), ir_text),
    )
    for text in fields:
        data = text.encode()
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()


class DiskCache:
    """Objects in `directory`, by default the user's cache directory; at most `max_bytes` of them.

    The least recently used entries make room for new ones. Safe for any number of processes at
    once.
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, max_bytes: int = MAX_BYTES
    ) -> None:
        self.directory = Path(directory) if directory is not None else _default_directory()
        self.max_bytes = max_bytes
        self.counters = CacheCounters()
        self._bytes: int | None = None  # what the directory holds, as far as this process knows
        self._lock = fresh_lock()

    def get(self, key: str) -> bytes | None:
        """The object stored under `key`, None if there is none that can be trusted."""
        data = self._read(key) if self._is_usable() else None
        if data is None:
            self.counters.misses += 1
        else:
            self.counters.hits += 1
        return data

    def put(self, key: str, data: bytes) -> bool:
        """Store an object; False where that is not possible (a read-only or full disk)."""
        if not self._is_usable(create=True):
            return False
        header = _HEADER.pack(_MAGIC, bytes.fromhex(key), hashlib.sha256(data).digest(), len(data))
        try:
            self._write(self._path(key), header + data)
        except OSError:
            self.counters.errors += 1
            return False
        self.counters.stores += 1
        self._make_room(len(header) + len(data))
        return True

    def clear(self) -> int:
        """Remove every entry; how many there were."""
        removed = 0
        if self._is_usable():
            for path, _ in self._entries():
                # Files being written belong to other processes.
                removed += _remove(path) if path.suffix == _SUFFIX else 0
        self._bytes = None
        return removed

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}{_SUFFIX}"

    def _is_usable(self, create: bool = False) -> bool:
        try:
            if create:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = os.stat(self.directory)
        except OSError:
            return False
        if not stat.S_ISDIR(status.st_mode):
            return False
        if is_private(status):
            return True
        if str(self.directory) not in _warned:
            _warned.add(str(self.directory))
            warnings.warn(
                f"the cache directory '{self.directory}' is not used: "
                "it belongs to somebody else, or others may write to it",
                RuntimeWarning,
                stacklevel=2,
            )
        return False

    def _read(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            with open(path, "rb", opener=_open_at_once) as file:
                status = os.fstat(file.fileno())
                is_ours = stat.S_ISREG(status.st_mode) and is_private(status)
                content = file.read() if is_ours else b""
        except OSError:
            return None
        data = _unpack(key, content)
        if data is None:
            self.counters.errors += 1
            _remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of last use, for trimming
        return data

    def _write(self, path: Path, content: bytes) -> None:
        descriptor, temporary = tempfile.mkstemp(_TEMPORARY_SUFFIX, "", self.directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(temporary, path)
        except BaseException:
            _remove(Path(temporary))
            raise

    def _make_room(self, added: int) -> None:
        with self._lock:
            known = self._bytes
            self._bytes = known + added if known is not None else None
            if self._bytes is not None and self._bytes <= self.max_bytes:
                return
            self._trim()

    def _trim(self) -> None:
        """Count what is there and, above the limit, remove what was not used for longest."""
        now = time.time()
        entries: list[tuple[float, int, Path]] = []
        for path, status in self._entries():
            if path.suffix == _SUFFIX:
                entries.append((status.st_mtime, status.st_size, path))
            elif now - status.st_mtime > _ABANDONED_SECONDS:
                _remove(path)
        total = sum(size for _, size, _ in entries)
        if total > self.max_bytes:
            for _, size, path in sorted(entries):
                _remove(path)
                total -= size
                if total <= self.max_bytes * _TRIMMED_FRACTION:
                    break
        self._bytes = total

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Our files in the directory, finished and unfinished."""
        try:
            names = os.listdir(self.directory)
        except OSError:
            return
        for name in names:
            path = self.directory / name
            if path.suffix in (_SUFFIX, _TEMPORARY_SUFFIX):
                with contextlib.suppress(OSError):
                    yield path, path.stat()


class DisabledCache(DiskCache):
    """A cache that holds nothing, for TILEWORKBENCH_DISABLE_CACHE=1 and users without a home
    directory."""

    def __init__(self) -> None:
        super().__init__(os.devnull)

    def _is_usable(self, create: bool = False) -> bool:
        return False


def default_cache() -> DiskCache:
    """The cache that the environment asks for.

    ``TILEWORKBENCH_DISABLE_CACHE=1`` turns it off, ``TILEWORKBENCH_CACHE_DIR`` names its directory.
    The same object as long as these stay as they are.
    """
    disabled = os.environ.get("TILEWORKBENCH_DISABLE_CACHE", "") not in ("", "0")
    return _cache_for(disabled, os.environ.get("TILEWORKBENCH_CACHE_DIR") or None)


@functools.cache
def _cache_for(disabled: bool, directory: str | None) -> DiskCache:
    if disabled:
        return DisabledCache()
    try:
        return DiskCache(directory)
    except RuntimeError:  # there is no home directory
        return DisabledCache()


def _default_directory() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("tileworkbench", appauthor=False))


def _open_at_once(path: str, flags: int) -> int:
    """A descriptor of `path`, whatever it is: to open a pipe would wait for who writes to it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def is_private(status: os.stat_result) -> bool:
    """Whether only this user can have written what `status` describes. Always true without POSIX
    owners."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _unpack(key: str, content: bytes) -> bytes | None:
    """The object in a file's content; None if the content is not exactly the entry `key`."""
    if len(content) < _HEADER.size:
        return None
    magic, stored_key, checksum, length = _HEADER.unpack_from(content)
    data = content[_HEADER.size :]
    if magic != _MAGIC or stored_key.hex() != key or length != len(data):
        return None
    return data if hashlib.sha256(data).digest() == checksum else None


def _remove(path: Path) -> int:
    """1 if this call removed the file, else 0."""
    try:
        path.unlink()
    except OSError:
        return 0
    return 1
