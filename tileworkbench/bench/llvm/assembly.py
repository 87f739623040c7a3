"""What only the machine code of a loop tells: how many instructions it is, and what it spills.

Code has as many values as it likes in LLVM IR. Where more of them are needed later than there are
registers, vectors are stored to the stack and loaded again, and constants are loaded where they are
used. Integers that addresses are computed of become more instructions, or fewer. The assembly has
the loops of the IR, in the same order; where it has others, or is not x86's, nothing is said.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tileworkbench.bench.llvm.costs import Costs
from tileworkbench.bench.llvm.instructions import Function, Instruction
from tileworkbench.bench.llvm.loops import Loop, Shape
from tileworkbench.compiler.fast_dataclass import dataclass

_FUNCTION = re.compile(r"_?([A-Za-z]\w*):")
_LABEL = re.compile(r"(\.?LBB\w+):")
_JUMP = re.compile(r"\tj\w+\t(\.?LBB\w+)")
_BRANCH, _INSTRUCTION = re.compile(r"\tj(?!mp)"), re.compile(r"\t[a-z]")
_VECTOR = re.compile(r"%([xyz])mm")
_TO_STACK, _CONSTANT = re.compile(r"\(%r[sb]p\b[^)]*\)$"), re.compile(r"\(%rip\)")
_STACK = re.compile(r"\(%r[sb]p\b")
_BYTES = {"x": 16, "y": 32, "z": 64}
_PRODUCT = re.compile(r"\tv(mul|fn?m(add|sub)\d*)[ps][sd]\t")
_SUM = re.compile(r"\tv(add|sub)[ps][sd]\t")
KINDS = ("load", "store", "fmul", "fadd")
"""What there may be more of in machine code, as operations of the IR."""
_LEAST = 32  # bytes that an operation takes as long for as for fewer


@dataclass(frozen=True, slots=True)
class LoopCode:
    """The code of a loop, without the loops inside, for each instruction of the IR: how many
    instructions, and `more` bytes of vectors than the IR says, by `KINDS`: loaded from the stack or
    as constants, stored to the stack, multiplied and added.
    """

    instructions: float = 0.0
    more: tuple[float, ...] = (0.0,) * len(KINDS)


UNKNOWN = LoopCode()


def lines_of(text: str) -> dict[str, list[str]]:
    """The lines of each function of an assembly file."""
    functions: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if not _LABEL.match(line) and (match := _FUNCTION.match(line)):
            lines = functions.setdefault(match[1], [])
        elif "Lfunc_end" in line:
            lines = []
        lines.append(line.split("#")[0].rstrip())
    return functions


def machine_code(
    lines: Sequence[str],
    function: Function,
    shape: Shape,
    costs: Costs,
    constant: Callable[[Loop], Collection[str]],
) -> Mapping[Loop | None, LoopCode]:
    """What the loops of a function, and the code in none of them (None), are in assembly.
    `constant` gives what is the same in each iteration of a loop.
    """
    loops = sorted(shape.loops.values(), key=lambda each: shape.order[each.header])
    spans = _spans(lines)
    if not lines or [_depth(each) for each in loops] != [_within(spans, each) for each in spans]:
        return {}
    own = _in_ir(function, shape, costs, constant)
    made = {}
    for loop, part in zip((None, *loops), _own_lines(lines, spans), strict=True):
        here = _in_assembly(part)
        each = 1 / max(own[loop, ""], 1.0)
        more = tuple(max(here[kind] - own[loop, kind], 0.0) * each for kind in KINDS)
        made[loop] = LoopCode(here[""] * each, more)
    return made


def _spans(lines: Sequence[str]) -> list[tuple[int, int]]:
    """The first line of each loop and the last jump back to it, outer loops first."""
    places = {match[1]: at for at, line in enumerate(lines) if (match := _LABEL.match(line))}
    ends: dict[int, int] = {}
    for at, line in enumerate(lines):
        match = _JUMP.match(line)
        if match and (start := places.get(match[1], at + 1)) <= at:
            ends[start] = at
    return sorted(ends.items())


def _within(spans: Sequence[tuple[int, int]], span: tuple[int, int]) -> int:
    """How many spans a span stands in."""
    return sum(start < span[0] <= end for start, end in spans)


def _depth(loop: Loop) -> int:
    depth = 0
    while loop.parent is not None:
        loop, depth = loop.parent, depth + 1
    return depth


def _own_lines(lines: Sequence[str], spans: Sequence[tuple[int, int]]) -> Iterator[list[str]]:
    """The lines in no span, and those of each span that are in none inside of it."""
    owners = [0] * len(lines)
    for number, (start, end) in enumerate(spans, 1):
        owners[start : end + 1] = itertools.repeat(number, end + 1 - start)
    for number in range(len(spans) + 1):
        yield [line for line, owner in zip(lines, owners, strict=True) if owner == number]


def _in_assembly(lines: Sequence[str]) -> defaultdict[str, float]:
    """Bytes of each of `KINDS`, and the number of instructions (""): a comparison and its branch
    are one.
    """
    total = defaultdict[str, float](float)
    for line in lines:
        total[""] += bool(_INSTRUCTION.match(line)) - bool(_BRANCH.match(line))
        registers = _VECTOR.findall(line)
        if not registers:
            continue
        size = max(_BYTES[each] for each in registers)
        if _TO_STACK.search(line):
            total["store"] += size
        elif _STACK.search(line):
            total["load"] += size
        elif _CONSTANT.search(line):
            total["load"] += size / 2 if "broadcast" in line or "{1to" in line else size
        if _PRODUCT.match(line):
            total["fmul"] += max(size, _LEAST)
        elif _SUM.match(line):
            total["fadd"] += max(size, _LEAST)
    return total


def _in_ir(
    function: Function,
    shape: Shape,
    costs: Costs,
    constant: Callable[[Loop], Collection[str]],
) -> defaultdict[tuple[Loop | None, str], float]:
    """The same of each loop, or of the code in none, in the IR; of accesses those of what it has on
    the stack itself.
    """
    total = defaultdict[tuple[Loop | None, str], float](float)
    for label, body in function.blocks.items():
        around = [loop for loop in shape.loops.values() if label in loop.blocks]
        loop = min(around, key=lambda each: len(each.blocks), default=None)
        before = constant(loop) if loop is not None else ()
        total[loop, ""] += len(body)
        for each in body:
            if each.op in ("load", "store"):
                if _is_on_stack(each, costs.defined):
                    total[loop, each.op] += each.kind.bytes_
            elif each.name not in before:
                for kind, size in costs.floats(each):
                    total[loop, kind] += max(size, _LEAST)
    return total


def _is_on_stack(access: Instruction, defined: Mapping[str, Instruction]) -> bool:
    made = defined.get(access.args[-1])
    while made is not None and made.op == "getelementptr":
        made = defined.get(made.args[0])
    return made is not None and made.op == "alloca"
