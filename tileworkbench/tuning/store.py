"""What tuning has measured, in one SQLite file that processes and sessions share.

A row holds for one program (its text as traced), target, machine, forms of the tensors and version
of this package; a key is the digest of them. Trouble with the file is told once and never ends a
search.
"""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tileworkbench.compiler.device.host.cache import DisabledCache, default_cache
from tileworkbench.compiler.fast_dataclass import dataclass

FORMAT = 2
_NAME = "tuning.sqlite"
_READ_ONLY = 8  # SQLITE_READONLY, without what is in the upper bytes
_WAIT_SECONDS = 10.0  # for another process that writes
_MAKE = """
create table if not exists trials (
    key text primary key, kernel text, target text, machine text, config text,
    latency_ms real, ref_latency_ms real, error text, is_checked integer, predicted_ms real
)
"""
_warned: set[tuple[Path, str]] = set()


@dataclass(frozen=True, slots=True)
class Stored:
    """One configuration: milliseconds of a call and of the reference (None: unknown), why it was
    given up (empty: it was not), whether its results were compared with a reference, and the
    milliseconds that were predicted. With neither a time nor an error it was not measured.
    """

    latency: float | None
    ref_latency: float | None = None
    error: str = ""
    is_checked: bool = False
    predicted: float | None = None

    @property
    def is_tried(self) -> bool:
        """Whether it was measured, or failed."""
        return self.latency is not None or bool(self.error)


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
                    columns = "key, latency_ms, ref_latency_ms, error, is_checked, predicted_ms"
                    query = f"select {columns} from trials where key = ?"
                    rows += connection.execute(query, (key,)).fetchall()
        return {
            key: Stored(latency, reference, error, bool(is_checked), predicted)
            for key, latency, reference, error, is_checked, predicted in rows
        }

    def put(self, key: str, result: Stored, origin: Origin) -> None:
        """Write a result, over an older one."""
        facts = (origin.kernel, origin.target, origin.machine, origin.config)
        times = (result.latency, result.ref_latency)
        values = (*times, result.error, int(result.is_checked), result.predicted)
        with self._told():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with closing(self._open(create=True)) as connection:
                marks = ", ".join("?" * 10)
                connection.execute(
                    f"insert or replace into trials values ({marks})", (key, *facts, *values)
                )

    def clear(self) -> None:
        """Forget everything."""
        self.path.unlink(missing_ok=True)

    def _open(self, create: bool = False) -> sqlite3.Connection:
        """A connection on which each statement is a transaction of its own."""
        connection = sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)
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

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Go on without the file where it fails, and say so once."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if (self.path, str(error)) in _warned:
                return
            _warned.add((self.path, str(error)))
            said = (
                f"tuning results in '{self.path}' are read, and new ones are not kept: {error}"
                if _is_read_only(error)
                else f"tuning results in '{self.path}' are not used: {error}; remove the file to "
                "begin anew"
            )
            warnings.warn(said, RuntimeWarning, stacklevel=4)


def _is_read_only(error: Exception) -> bool:
    """Whether a file could be read, and not written."""
    return bool(getattr(error, "sqlite_errorcode", 0) & 0xFF == _READ_ONLY)


def default_store() -> TuningStore | None:
    """The file in the folder of the compilation cache (``TILEWORKBENCH_CACHE_DIR``); None where
    ``TILEWORKBENCH_DISABLE_CACHE`` turns that off.
    """
    cache = default_cache()
    return None if isinstance(cache, DisabledCache) else TuningStore(cache.directory / _NAME)
