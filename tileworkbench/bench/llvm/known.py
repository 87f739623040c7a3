"""What registers have of memory: in code without branches LLVM loads nothing again that no store
may have changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from tileworkbench.bench.llvm.instructions import Instruction, Kind
from tileworkbench.bench.llvm.values import Place, Value

# Where an access begins and ends, and the type of its elements.
_Access = tuple[int, int, int, bool]


class Known:
    """The names of what was stored and loaded, by what their addresses point into: what arguments
    point to is never the same.
    """

    def __init__(self, defined: Mapping[str, Instruction]) -> None:
        self._defined = defined  # instructions by their names
        self._names: dict[str, dict[_Access, str]] = {}
        self._elsewhere: dict[tuple[str, Kind], str] = {}  # by the name of an unknown address
        # What loads gave by their names, and vectors of which others are put together again.
        self._same: dict[str, str] = {}
        self._whole: dict[str, str] = {}

    def clear(self) -> None:
        """Anything may have changed."""
        self._names.clear()
        self._elsewhere.clear()
        self._same.clear()
        self._whole.clear()

    def note(self, each: Instruction, place: Value | None) -> str | None:
        """Note a load, a store or an element that is put into a vector; the name of what it makes,
        where a register has it.
        """
        if each.op == "insertelement":
            return self._together(each)
        if each.op == "store":
            self._store(each, place)
            return None
        if isinstance(place, Place):
            first = self._names.setdefault(place.base, {}).setdefault(
                _access(place, each.kind), each.name
            )
        else:
            first = self._elsewhere.setdefault((each.args[-1], each.kind), each.name)
        if first == each.name or each.detail:  # others may change it
            return None
        self._same[each.name] = first
        return first

    def _together(self, each: Instruction) -> str | None:
        """The vector whose elements an `insertelement` puts where they were in it, as those before
        it did, which LLVM leaves out.
        """
        vector, element, lane = each.args
        taken = self._defined.get(self._same.get(element, element))
        if taken is None or taken.op != "extractelement" or taken.args[1] != lane:
            return None
        source = taken.args[0]
        if vector not in ("poison", "undef") and self._whole.get(vector) != source:
            return None
        self._whole[each.name] = source
        return source

    def _store(self, each: Instruction, place: Value | None) -> None:
        if not isinstance(place, Place):
            self.clear()
            self._elsewhere[each.args[-1], each.kind] = each.args[0]
            return
        self._elsewhere.clear()
        start, end, *_ = access = _access(place, each.kind)
        names = {
            other: name
            for other, name in self._names.get(place.base, {}).items()
            if other[1] <= start or end <= other[0]
        }
        names[access] = each.args[0]
        self._names[place.base] = names


def _access(place: Place, kind: Kind) -> _Access:
    return place.offset, place.offset + kind.bytes_, kind.bits, kind.is_float
