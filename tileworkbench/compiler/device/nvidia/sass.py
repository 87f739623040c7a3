"""The main loop of a kernel in its SASS: the instructions of one iteration, by what executes them.

Instruction names are those of "CUDA Binary Utilities", section "Instruction Set Reference".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from tileworkbench.compiler.fast_dataclass import dataclass

_LABEL = re.compile(r"\s*(\.L_[\w$.]+):")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(.*?);")
_JUMP = re.compile(r"\bBRA\b.*`\((\.L_[\w$.]+)\)")
_LEAVES = re.compile(r"BRA `|EXIT|RET")  # in any case: without a guard
_GUARD = re.compile(r"^@!?U?P\w+\s+")
_KINDS = {
    "tensor": r"[HIDQO]MMA|HGMMA|IGMMA|QGMMA|OMMA|UTC\w*MMA",
    "global": r"LDG|STG|LDGSTS|LDGDEPBAR|DEPBAR|RED|ATOMG?|UTMA\w+|UBLK\w+|CCTL\w*|PREFETCH",
    "shared": r"LDS|STS|LDSM|STSM|ATOMS",
    "spill": r"LDL|STL",
    "special": r"MUFU",
    "barrier": r"BAR|WARPSYNC|SYNCS|MEMBAR|FENCE|ERRBAR|NANOSLEEP",
    "shuffle": r"SHFL|VOTE\w*|REDUX|MATCH",
    "control": r"BRA|BRX|BSYNC|BSSY|EXIT|CALL|RET|NOP|WARPGROUP\w*|BREAK|YIELD",
    "convert": r"F2F\w*|I2F\w*|F2I\w*|I2I\w*|FRND\w*",
    "float": r"F(?!LO)[A-Z]\w*|H[A-Z]+2|D(ADD|MUL|FMA|SETP)",
}
_ARITHMETIC = {"integer", "float", "convert", "special"}
_CLASSES = {kind: re.compile(f"(?:{pattern})$") for kind, pattern in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class Loop:
    """The instructions of one iteration, in order, without what guards them: `HMMA.16816.F32`;
    `start` is the place of the first one in the kernel. `skipped` are those of them that a jump
    leaves out in some iterations: arithmetic, like the masks of causal attention.
    """

    start: int
    instructions: tuple[str, ...]
    skipped: tuple[str, ...] = ()

    @property
    def kinds(self) -> dict[str, int]:
        """How many there are of each kind; the rest is "integer"."""
        return dict(Counter(kind_of(each) for each in self.instructions))

    def contains(self, other: Loop) -> bool:
        """Whether `other` is a loop inside this one."""
        end, other_end = (loop.start + len(loop.instructions) for loop in (self, other))
        return other is not self and self.start <= other.start and other_end <= end


def kind_of(instruction: str) -> str:
    """What executes an instruction: tensor, global, shared, ..., integer."""
    name = instruction.split(".")[0]
    return next((kind for kind, match in _CLASSES.items() if match.match(name)), "integer")


def loops_of(sass: str) -> list[Loop]:
    """The loops of a disassembly (`nvdisasm -c`): from each label to the jumps back to it. Code
    that compilers put behind a kernel jumps back, too, to where it came from; that is no loop.
    """
    lines, jumps = _parsed(sass)
    names = _names(lines)
    ends: dict[int, int] = {}
    for at, start in jumps.items():
        # Padding behind the end of a kernel jumps to itself.
        if start < at and at not in _reached(lines, jumps, without=start):
            ends[start] = at
    return [
        Loop(start, names[start : end + 1], _skipped(names, jumps, start, end))
        for start, end in ends.items()
    ]


def whole(sass: str) -> Loop:
    """All instructions of a disassembly of one kernel, without the padding behind it."""
    lines, jumps = _parsed(sass)
    end = next((at for at, to in jumps.items() if at == to), len(lines))
    return Loop(0, _names(lines[:end]))


def _parsed(sass: str) -> tuple[list[str], dict[int, int]]:
    """The instructions, and where each jump goes, both as places among them."""
    labels: dict[str, int] = {}
    lines: list[str] = []
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(lines)
        elif instruction := _INSTRUCTION.match(line):
            lines.append(instruction[1].strip())
    matches = ((at, _JUMP.search(line)) for at, line in enumerate(lines))
    return lines, {at: labels[jump[1]] for at, jump in matches if jump}


def _names(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(_GUARD.sub("", line).split()[0] for line in lines)


def _skipped(
    names: tuple[str, ...], jumps: Mapping[int, int], start: int, end: int
) -> tuple[str, ...]:
    """The most arithmetic that one jump forward inside of a loop leaves out."""
    parts = [names[at + 1 : to] for at, to in jumps.items() if start <= at < to <= end]
    alone = [part for part in parts if {kind_of(each) for each in part} <= _ARITHMETIC]
    return max(alone, key=len, default=())


def _reached(lines: Sequence[str], jumps: Mapping[int, int], without: int) -> set[int]:
    """The jumps that are reached from the first instruction, but not by way of one of them."""
    reached: set[int] = set()
    entered, todo = {without}, [0]
    while todo:
        at = todo.pop()
        while at < len(lines) and at not in entered:
            entered.add(at)
            if at in jumps:
                reached.add(at)
                todo.append(jumps[at])
            if _LEAVES.match(lines[at]):
                break
            at += 1
    return reached


def main_loop(sass: str) -> Loop | None:
    """The loop with most tensor instructions, of those the shortest; where no loop has any the
    longest one that contains no other. None without loops.
    """
    loops = loops_of(sass)
    tensors = [loop.kinds.get("tensor", 0) for loop in loops]
    if any(tensors):
        most = max(tensors)
        loops = [loop for loop, count in zip(loops, tensors, strict=True) if count == most]
        return min(loops, key=lambda loop: len(loop.instructions))
    inner = (one for one in loops if not any(one.contains(other) for other in loops))
    return max(inner, key=lambda loop: len(loop.instructions), default=None)
