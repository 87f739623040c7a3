"""What a float64 replay of a block says, as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from math import isfinite
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.report import element

Loops = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What one executed statement wrote to one floating-point buffer, beside the same statement in
    float64.

    Attributes:
        number: of the executed statement, from 0.
        line: of the user's text; 0 where that is not known.
        site: of the statement in the program.
        loops: the loops around it that have several iterations, each with its variable's value.
        buffer, dtype, elements: what was written, and how many elements of it.
        absolute, relative, ulp, scaled: the largest errors of all its elements; ulp is in units in
            the last place of `dtype`, scaled in those of the largest element: one near zero that is
            the difference of large ones is many of its own units off. Infinite where a value is
            infinite or NaN and the exact one is not.
        element: the one with the largest absolute error; `value` is what it holds, `exact` what
            float64 has there.
        comparable: False where the replay wrote other elements; there are no errors then.
    """

    number: int
    line: int
    site: int
    loops: Loops
    buffer: str
    dtype: str
    elements: int
    absolute: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0
    scaled: float = 0.0
    element: tuple[int, ...] = ()
    value: float = 0.0
    exact: float = 0.0
    comparable: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data: lists for tuples, texts for what JSON has no number for."""
        row = asdict(self)
        row["loops"] = dict(self.loops)
        row["element"] = list(self.element)
        return {key: plain(value) for key, value in row.items()}


@dataclass(frozen=True, slots=True)
class Operand:
    """What a statement read: one element, or the elements from the least to the largest."""

    name: str
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.high or self.low != self.low:
            return f"{self.name} = {number(self.low)}"
        return f"{self.name} from {number(self.low)} to {number(self.high)}"


@dataclass(frozen=True, slots=True)
class Origin:
    """The statement that has the first NaN or infinity of a block.

    Attributes:
        kind: "NaN" or "infinity".
        made: whether the statement makes it; else it reads it from memory that the block has not
            written: an input, or a tile that was never written.
        step, line, site, loops: when and where, as in `Step`.
        buffer, element: where it stands; `value` is what it holds.
        exact: the same element in float64; None where that is not known.
        operands: what the statement reads for this element.
    """

    kind: str
    made: bool
    step: int
    line: int
    site: int
    loops: Loops
    buffer: str
    element: tuple[int, ...]
    value: float
    exact: float | None
    operands: tuple[Operand, ...]

    def __str__(self) -> str:
        at = element(self.buffer, self.element)
        if not self.made:
            return (
                f"line {self.line} reads {at} = {number(self.value)}{when(self.loops)}, "
                "which the block has not written"
            )
        text = f"line {self.line} makes the first {self.kind}: {at} = {number(self.value)}"
        text += when(self.loops)
        if self.exact is not None:
            known = isfinite(self.exact)
            text += f", where float64 has {number(self.exact)}" if known else ", in float64 too"
        read = " and ".join(map(str, self.operands[:3]))
        return f"{text}; it reads {read}" if read else text

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        row = asdict(self)
        row["loops"] = dict(self.loops)
        row["element"] = list(self.element)
        row["operands"] = [
            {key: plain(value) for key, value in operand.items()} for operand in row["operands"]
        ]
        row["text"] = str(self)
        return {key: plain(value) for key, value in row.items()}


@dataclass(frozen=True, slots=True)
class LineErrors:
    """What a line wrote to one buffer in all its executions: how often, the first and the worst
    error (scaled, as in `Step`), and the step with the worst one.
    """

    line: int
    buffer: str
    dtype: str
    executions: int
    first: float
    worst: Step

    @property
    def row(self) -> dict[str, Any]:
        """As plain data, with what the worst step has."""
        errors = ("absolute", "relative", "ulp", "scaled")
        kept = ("number", "loops", *errors, "element", "value", "exact")
        worst = self.worst.to_dict()
        return {
            "line": self.line,
            "buffer": self.buffer,
            "dtype": self.dtype,
            "executions": self.executions,
            "first_scaled": plain(self.first),
            **{key: worst[key] for key in kept},
        }


@dataclass(frozen=True, slots=True)
class Numerics:
    """The errors of one block of a kernel against its replay in float64 on the same inputs.

    Attributes:
        kernel: its name.
        block: the indices of the block, x first.
        steps: what each executed statement wrote to floating-point buffers, in order.
        origins: the first infinity and the first NaN, in the order in which they appear.
        inputs: which inputs these are, in a few words.
        stopped: why the steps are not all; empty where they are.
    """

    kernel: str
    block: tuple[int, ...]
    steps: tuple[Step, ...]
    origins: tuple[Origin, ...]
    inputs: str = ""
    stopped: str = ""

    @property
    def worst(self) -> Step | None:
        """The step with the largest error (scaled); None without steps."""
        comparable = [step for step in self.steps if step.comparable]
        return max(comparable, key=lambda step: step.scaled, default=None)

    @property
    def lines(self) -> tuple[LineErrors, ...]:
        """The errors by line and buffer, in the order in which lines first run."""
        groups: dict[tuple[int, str], list[Step]] = {}
        for step in self.steps:
            groups.setdefault((step.line, step.buffer), []).append(step)
        return tuple(_line_errors(steps) for steps in groups.values())

    def rows(self) -> list[dict[str, Any]]:
        """A row per step."""
        return [step.to_dict() for step in self.steps]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data; infinities and NaN are texts."""
        return {
            "kernel": self.kernel,
            "block": list(self.block),
            "inputs": self.inputs,
            "stopped": self.stopped,
            "origins": [origin.to_dict() for origin in self.origins],
            "lines": [each.row for each in self.lines],
            "steps": self.rows(),
        }

    @property
    def worst_text(self) -> str:
        """The step with the largest error in words; empty without steps."""
        worst = self.worst
        if worst is None:
            return ""
        at = element(worst.buffer, worst.element)
        text = f"line {worst.line} has the largest error{when(worst.loops)}: {at} is "
        value, exact = apart(worst.value, worst.exact)
        text += f"{value}, float64 has {exact}"
        if isfinite(worst.scaled):
            text += f"; apart by {number(worst.scaled)} ulp ({worst.dtype}) of the largest element"
        return text

    def __str__(self) -> str:
        nothing = "no statement wrote a floating-point number that float64 writes too"
        said = [*map(str, self.origins), self.worst_text or nothing, self.stopped]
        return "; ".join(filter(None, said))


def _line_errors(steps: list[Step]) -> LineErrors:
    first = steps[0]
    worst = max(steps, key=lambda step: (step.comparable, step.scaled))
    return LineErrors(first.line, first.buffer, first.dtype, len(steps), first.scaled, worst)


def when(loops: Iterable[tuple[str, int]]) -> str:
    """The iteration in words, with a space in front; empty outside loops."""
    named = ", ".join(f"{name}={value}" for name, value in loops)
    return f" at {named}" if named else ""


def number(value: float) -> str:
    """A number as a text of a few digits."""
    return f"{value:.6g}"


def apart(value: float, exact: float) -> tuple[str, str]:
    """Two numbers as texts of as many digits as tell them apart, one more to see by how much."""
    for digits in range(6, 17):
        texts = f"{value:.{digits}g}", f"{exact:.{digits}g}"
        if value == exact or texts[0] != texts[1]:
            break
    more = digits if digits == 6 else digits + 1
    return f"{value:.{more}g}", f"{exact:.{more}g}"


def plain(value: Any) -> Any:
    """A value as JSON has it: infinities and NaN are texts."""
    if isinstance(value, float) and not isfinite(value):
        return number(value)
    return value
