"""What is measured once for a machine and kept for all processes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from tileworkbench.bench.ceilings import machine_key
from tileworkbench.compiler.device.host.cache import default_cache
from tileworkbench.compiler.runtime.forks import fresh_lock

Numbers = Mapping[str, float]
Measured = TypeVar("Measured")


class MeasuredOnce(Generic[Measured]):
    """Positive numbers by name that `measure` finds on one thread, as what `make` makes of them.
    Another `schema` or other `names` are measured again.
    """

    def __init__(
        self,
        name: str,
        schema: int,
        names: frozenset[str],
        measure: Callable[[], Numbers],
        make: Callable[[Numbers], Measured],
    ) -> None:
        self._about, self._names = f"{name} {schema}", names
        self._measure, self._make = measure, make
        self._known: dict[str, Measured] = {}
        self._lock = fresh_lock()

    def get(self) -> Measured:
        """From this process, from the disk, or measured now."""
        key = hashlib.sha256(f"{self._about} {machine_key(1)}".encode()).hexdigest()
        with self._lock:
            known = self._known.get(key)
            if known is None:
                numbers = self._read(key)
                if numbers is None:
                    numbers = dict(self._measure())
                    default_cache().put(key, json.dumps(numbers).encode())
                known = self._known[key] = self._make(numbers)
            return known

    def forget(self) -> None:
        """Drop what this process knows; the disk keeps it."""
        with self._lock:
            self._known.clear()

    def _read(self, key: str) -> Numbers | None:
        data = default_cache().get(key)
        try:
            kept = {} if data is None else json.loads(data)
        except ValueError:
            return None
        if not isinstance(kept, dict) or set(kept) != self._names:
            return None
        usable = all(isinstance(value, float) and value > 0 for value in kept.values())
        return kept if usable else None
