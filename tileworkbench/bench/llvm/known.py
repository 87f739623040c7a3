"""What registers have: in code without branches LLVM loads nothing again that no store may have
changed, and computes nothing again of what it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tileworkbench.bench.llvm.instructions import Instruction, Kind
from tileworkbench.bench.llvm.values import Place, Value

# Where an access begins and ends, and the type of its elements.
_Access = tuple[int, int, int, bool]


class Known:
    """The names of what was stored and loaded, by what their addresses point into: what arguments
    point to is never the same.
    """

    def __init__(
        self, defined: Mapping[str, Instruction], users: Mapping[str, Sequence[Instruction]]
    ) -> None:
        self._defined, self._users = defined, users  # instructions by their names, and of operands
        self._names: dict[str, dict[_Access, str]] = {}
        self._elsewhere: dict[tuple[str, Kind], str] = {}  # by the name of an unknown address
        # Other names of loads and of what was computed again, the vectors that others are put
        # together from again, and what was computed.
        self._same: dict[str, str] = {}
        self._whole: dict[str, str] = {}
        self._made: set[str] = set()

    def clear(self) -> None:
        """Anything may have changed."""
        self._names.clear()
        self._elsewhere.clear()
        self._same.clear()
        self._whole.clear()
        self._made.clear()

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

    def again(self, each: Instruction) -> str | None:
        """The result of the same operation on the same values, where it is one that was made."""
        self._made.add(each.name)
        if not self._same or self._same.keys().isdisjoint(each.args):
            return None
        args = tuple(self._same.get(arg, arg) for arg in each.args)
        alike = replace(each, name="", args=args)
        of = next((arg for arg in args if arg.startswith("%")), "")
        for made in self._users.get(of, ()):
            is_before = made is not each and made.name in self._made
            if is_before and replace(made, name="") == alike:
                self._same[each.name] = made.name
                return made.name
        return None

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
