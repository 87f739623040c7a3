"""Our `dataclass` against the standard library's: every test runs with both."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import KW_ONLY, field, replace
from typing import Any, ClassVar

import pytest

from tileworkbench.compiler import fast_dataclass

BOTH = {"standard": dataclasses.dataclass, "ours": fast_dataclass.dataclass}
both = pytest.mark.parametrize("dataclass", BOTH.values(), ids=BOTH)


@fast_dataclass.dataclass(frozen=True, slots=True)
class Pickled:
    """At the top of a module, as pickle wants it."""

    x: int
    y: tuple[int, ...] = ()


def make_point(dataclass: Any, **options: Any) -> Any:
    @dataclass(**options)
    class Point:
        x: int
        y: float = 2.5
        note: str = field(default="", compare=False, repr=False)
        tags: list[str] = field(default_factory=list, compare=False)
        dimensions: ClassVar[int] = 2

    return Point


OPTIONS = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "slots": True, "repr": False},
    {"slots": True, "kw_only": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_signature_fields_and_match_args(options: dict[str, bool]) -> None:
    ours, standard = (make_point(made, **options) for made in reversed(BOTH.values()))
    signatures = [inspect.signature(each) for each in (ours, standard)]
    shown = [
        [(p.name, p.kind, p.annotation, p.default is p.empty) for p in each.parameters.values()]
        for each in signatures
    ]
    assert shown[0] == shown[1]
    assert [f.name for f in dataclasses.fields(ours)] == ["x", "y", "note", "tags"]
    assert ours.__match_args__ == standard.__match_args__
    assert hasattr(ours(x=1), "__dict__") == hasattr(standard(x=1), "__dict__")
    assert (ours.__hash__ is None) == (standard.__hash__ is None)


@both
def test_values_defaults_and_factories(dataclass: Any) -> None:
    point_class = make_point(dataclass, frozen=True, slots=True)
    one, other = point_class(1), point_class(1, note="seen")
    assert (one.x, one.y, one.note, one.tags) == (1, 2.5, "", [])
    assert one.tags is not other.tags
    assert repr(other).endswith("Point(x=1, y=2.5, tags=[])")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        point_class()
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        point_class(1, z=2)


@both
def test_what_is_compared_decides_equality_and_hash(dataclass: Any) -> None:
    point_class = make_point(dataclass, frozen=True, slots=True)
    assert point_class(1) == point_class(1, note="seen", tags=["a"])
    assert hash(point_class(1)) == hash(point_class(1, note="seen"))
    assert point_class(1) != point_class(2)
    assert point_class(1) != make_point(dataclass, frozen=True, slots=True)(1)
    assert point_class(1).__eq__(1) is NotImplemented


@both
def test_a_field_may_count_for_equality_alone(dataclass: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Table:
        name: str
        rows: dict[str, int] = field(hash=False)

    assert Table("a", {"x": 1}) != Table("a", {})
    assert hash(Table("a", {"x": 1})) == hash(Table("a", {}))


@both
def test_one_field_compares_as_a_tuple_of_it(dataclass: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Single:
        x: float

    @dataclass(frozen=True, slots=True)
    class Nothing:
        pass

    nan = float("nan")
    assert Single(nan) == Single(nan)  # the same object, as in a tuple
    assert hash(Single(1.0)) == hash((1.0,))
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(())


@both
def test_what_can_change_has_no_hash(dataclass: Any) -> None:
    point = make_point(dataclass, slots=True)(1)
    point.x = 3
    assert point.x == 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(point)


@both
def test_frozen_refuses(dataclass: Any) -> None:
    point = make_point(dataclass, frozen=True, slots=True)(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert replace(point, x=2).x == 2
    assert copy.copy(point) == point
    assert copy.deepcopy(point) == point


def test_pickle_keeps_the_fields() -> None:
    made = Pickled(1, (2, 3))
    assert pickle.loads(pickle.dumps(made)) == made


@both
def test_own_methods_stay(dataclass: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Own:
        x: int
        double: int = field(init=False)
        fixed: int = field(init=False, default=7)

        def __post_init__(self) -> None:
            object.__setattr__(self, "double", 2 * self.x)

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 5

    made = Own(4)
    assert (made.double, made.fixed, repr(made), hash(made)) == (8, 7, "own", 5)

    @dataclass(slots=True, init=False, eq=False)
    class Started:
        x: int

        def __init__(self) -> None:
            self.x = 9

    assert Started().x == 9


@both
def test_classes_inherit(dataclass: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Base:
        x: int
        y: int = 1

    @dataclass(frozen=True, slots=True)
    class Child(Base):
        z: int = 2
        y: int = 5

    assert (Child(0).x, Child(0).y, Child(0).z) == (0, 5, 2)
    assert Child(0, 1, 2) != Base(0, 1)
    assert repr(Child(0)).endswith("Child(x=0, y=5, z=2)")


@both
def test_fields_behind_kw_only_take_keywords(dataclass: Any) -> None:
    @dataclass(slots=True)
    class Keywords:
        x: int
        _: KW_ONLY
        store: int = 3
        missing: int = field(default=4)

    assert (Keywords(1).store, Keywords(1, missing=6).missing) == (3, 6)
    with pytest.raises(TypeError, match="positional argument"):
        Keywords(1, 2)
