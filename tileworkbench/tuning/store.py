"""What tuning has measured, in one SQLite file that processes and sessions share.

A row holds for one program (its text as traced), target, machine, forms of the tensors and version
of this package; a key is the digest of them. Trouble with the file is told once and never ends a
search.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tileworkbench.compiler.device.host.cache import DisabledCache, default_cache
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.fast_dataclass import dataclass

FORMAT = 3
_NAME = "tuning.sqlite"
_BUSY, _READ_ONLY = sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY
_WAIT_SECONDS = 10.0  # for another process that writes
_WAIT_AGAIN_SECONDS = 0.2  # where that was in vain before
_MAKE = """
create table if not exists trials (
    key text primary key, kernel text, target text, machine text, config text,
    latency_ms real, ref_latency_ms real, predicted_ms real,
    error text, limit_s real, checked text, date text
)
"""
_COLUMNS = "latency_ms, ref_latency_ms, predicted_ms, error, limit_s, checked, date"  # of `Stored`
_warned: set[tuple[Path, str]] = set()


@dataclass(frozen=True, slots=True)
class Stored:
    """One configuration.

    Attributes:
        latency, ref_latency, predicted: milliseconds of a call, of the reference, and by the time
            model; None is unknown.
        error: why it was given up, empty where it was not. With neither a time nor an error it was
            not measured.
        limit: seconds after which it was given up, None where that was not the reason.
        checked: what its results were compared with, or differ from: see `digest_of`.
        date: when, as in 2026-01-31.
    """

    latency: float | None = None
    ref_latency: float | None = None
    predicted: float | None = None
    error: str = ""
    limit: float | None = None
    checked: str = ""
    date: str = ""

    def answers(self, checked: str, timeout: float, retry: bool) -> bool:
        """Whether it says enough for a search whose results are compared with `checked` (empty:
        with nothing), which gives a configuration up after so many seconds; with `retry` no
        failure does.
        """
        if not self.error:
            return self.latency is not None and checked in ("", self.checked)
        is_shorter = self.limit is not None and self.limit < timeout
        return not retry and not is_shorter and self.checked in ("", checked)

    @property
    def told_error(self) -> str:
        """The error as a later search tells it."""
        longer = " or a longer timeout" if self.limit is not None else ""
        return f"{self.error}; on {self.date}, not tried again: pass retry=True{longer}"


@dataclass(frozen=True, slots=True)
class Origin:
    """What is written beside a result, for people who read the file."""

    kernel: str
    target: str
    machine: str
    config: str


def key_of(*parts: Any) -> str:
    """The key of what was measured on `parts`, which have a text each."""
    facts = (FORMAT, version("tileworkbench"), *parts)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


class TuningStore:
    """Results in a file, made with the first result."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def find(self, keys: Sequence[str]) -> dict[str, Stored]:
        """The results that there are for some keys; none where the file cannot be read."""
        rows: list[tuple[Any, ...]] = []
        if self.path.exists():
            with self._told(), closing(self._open()) as connection:
                for key in keys:
                    query = f"select key, {_COLUMNS} from trials where key = ?"
                    rows += connection.execute(query, (key,)).fetchall()
        return {key: Stored(*values) for key, *values in rows}

    def put(self, key: str, result: Stored, origin: Origin) -> None:
        """Write a result, over an older one."""
        facts = (origin.kernel, origin.target, origin.machine, origin.config)
        values = astuple(result)
        with self._told():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with closing(self._open(create=True)) as connection:
                marks = ", ".join("?" * (1 + len(facts) + len(values)))
                connection.execute(
                    f"insert or replace into trials values ({marks})", (key, *facts, *values)
                )

    def clear(self) -> None:
        """Forget everything."""
        self.path.unlink(missing_ok=True)

    def _open(self, create: bool = False) -> sqlite3.Connection:
        """A connection on which each statement is a transaction of its own."""
        in_vain = any(path == self.path for path, _ in _warned)
        wait = _WAIT_AGAIN_SECONDS if in_vain else _WAIT_SECONDS
        connection = sqlite3.connect(self.path, timeout=wait, isolation_level=None)
        try:
            (known,) = connection.execute("pragma user_version").fetchone()
            if known not in (0, FORMAT):
                raise sqlite3.NotSupportedError(
                    f"it is of format {known}, and this version reads {FORMAT}"
                )
            if create and known == 0:
                connection.execute(_MAKE)
                connection.execute(f"pragma user_version = {FORMAT}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _remedy(self, error: Exception) -> str:
        if _code(error) == _BUSY:
            return "wait for the process that holds it"
        return "remove the file to begin anew" if self.path.is_file() else "name another file"

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Go on without the file where it fails, and say so once."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if (self.path, str(error)) in _warned:
                return
            _warned.add((self.path, str(error)))
            if _code(error) == _READ_ONLY:
                said = f"are read, and new ones are not kept: {error}"
            else:
                said = f"are not used: {error}; {self._remedy(error)}"
            said = f"tuning results in '{self.path}' {said}"
            warnings.warn(said, RuntimeWarning, stacklevel=4)


def _code(error: Exception) -> int:
    """SQLite's own number of an error, without what is in the upper bytes; 0 for others."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def default_store() -> TuningStore | None:
    """The file in the folder of the compilation cache (``TILEWORKBENCH_CACHE_DIR``); None where
    ``TILEWORKBENCH_DISABLE_CACHE`` turns that off.
    """
    cache = default_cache()
    return None if isinstance(cache, DisabledCache) else TuningStore(cache.directory / _NAME)


def store_of(given: bool | str | Path) -> TuningStore | None:
    """The file that a user asks for: True for the default one, False for none, or a path."""
    if isinstance(given, bool):
        return default_store() if given else None
    if not isinstance(given, str | os.PathLike):
        raise ArgumentError(f"store is True, False or a path, not {given!r}")
    return TuningStore(given)
