"""Machine code by the blocks of the LLVM IR it was made of, with what each access to memory is of.

Its lines are the numbers of instructions of the IR (`numbered.py`). Some have none: what LLVM adds,
moves out of loops or loads apart from where it is used; they are found out here from what stands
around them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tileworkbench.bench.llvm.instructions import Function, Instruction
from tileworkbench.bench.llvm.values import Place
from tileworkbench.bench.llvm.x86.operations import LOADED, Memory, Operation, operations_of
from tileworkbench.compiler.fast_dataclass import dataclass

_FUNCTION = re.compile(r"_?([A-Za-z]\w*):")
_LABEL = re.compile(r"(\.?LBB\w+):")
_JUMP = re.compile(r"\tj\w+\t(\.?LBB\w+)")
_LINE = re.compile(r"\t\.loc\t\d+ (\d+)")
_INSTRUCTION = re.compile(r"\t([a-z]\w*)(?:\t(.*))?$")
_STACK = ("rsp", "rbp")
_AHEAD = 40  # operations in which what was loaded is used
# Through which a value comes to where it is used without an instruction of its own.
_PASSED = frozenset(
    (
        *("bitcast", "fpext", "zext", "sext", "sitofp", "uitofp"),
        *("shufflevector", "insertelement", "fmul", "shl"),
    )
)
_VECTOR = 16  # bytes of the shortest
_FEW = 40  # values that are looked through
# Two registers, how often the second one counts, and how often they had changed before.
_Pointer = tuple[str, str, int, int, int]


@dataclass(frozen=True, slots=True)
class Coded:
    """An operation of machine code; the instruction that it was made of, if that is known. Of an
    access the name of its address in the IR, how many bytes behind it, and its place on the stack.
    """

    operation: Instruction
    source: Instruction | None = None
    address: str = ""
    offset: int = 0
    slot: Place | None = None


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


def coded(lines: Sequence[str], function: Function) -> Mapping[str, list[Coded]]:
    """The machine code of each block of a function by its label."""
    blocks = list(_blocks(lines))
    source = _Source(function)
    labels = [source.label(block) for block in blocks]
    code: dict[str, list[Coded]] = {}
    for block, label in zip(blocks, _nearest(blocks, labels), strict=True):
        code.setdefault(label or function.entry, []).extend(source.coded(block))
    return code


@dataclass(slots=True)
class _Block:
    """Operations that are executed one after the other, each with a line, 0 for none; the loop of
    the machine code that they stand in, by where it begins.
    """

    loop: int
    operations: list[tuple[Operation, int]]


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    """The blocks of a function: from a label or a jump to the next."""
    loops, line = _loops(lines), 0
    block = _Block(-1, [])
    for at, text in enumerate(lines):
        if match := _LINE.match(text):
            line = int(match[1])
        is_label, instruction = _LABEL.match(text), _INSTRUCTION.match(text)
        if instruction:
            operations = operations_of(instruction[1], instruction[2] or "")
            block.operations += [(each, line) for each in operations]
        if is_label or _JUMP.match(text):
            yield block
            after = at if is_label else at + 1
            inside = [first for first, last in loops if first <= after <= last]
            block = _Block(max(inside, default=-1), [])
    yield block


def _loops(lines: Sequence[str]) -> list[tuple[int, int]]:
    """The first line of each loop, and the last jump back to it."""
    places = {match[1]: at for at, line in enumerate(lines) if (match := _LABEL.match(line))}
    ends: dict[int, int] = {}
    for at, line in enumerate(lines):
        match = _JUMP.match(line)
        if match and (start := places.get(match[1], at + 1)) <= at:
            ends[start] = at
    return sorted(ends.items())


def _nearest(blocks: Sequence[_Block], labels: Sequence[str]) -> list[str]:
    """The labels of blocks; of one that has none that of the nearest in the same loop."""
    known = [at for at, label in enumerate(labels) if label]
    nearest = []
    for at, (block, label) in enumerate(zip(blocks, labels, strict=True)):
        same = [other for other in known if blocks[other].loop == block.loop] or known
        other = min(same, key=lambda other: abs(other - at), default=at)
        nearest.append(label or labels[other])
    return nearest


class _Source:
    """The IR of a function, by the numbers of its instructions."""

    def __init__(self, function: Function) -> None:
        self.instructions = dict(enumerate(function.instructions, 1))
        self.numbers = {each.name: at for at, each in self.instructions.items() if each.name}
        labels = {
            each.name or id(each): label for label, body in function.blocks.items() for each in body
        }
        self.labels = {at: labels[each.name or id(each)] for at, each in self.instructions.items()}

    def label(self, block: _Block) -> str:
        """The block of the IR that most operations of a block of machine code come from: its end
        may be that of another one, which LLVM puts behind each block before it.
        """
        lines = Counter(self.labels[line] for _, line in block.operations if line)
        return max(lines, key=lines.__getitem__, default="")

    def coded(self, block: _Block) -> Iterator[Coded]:
        """The operations of a block with what they access."""
        pointers = _pointers([each for each, _ in block.operations])
        strays = _strays(block.operations, pointers)
        lines = [self.line(block.operations, at, at in strays) for at in range(len(pointers))]
        pairs = [(each, line) for (each, _), line in zip(block.operations, lines, strict=True)]
        accesses = {
            at: _Access(operation.instruction, operation.memory, line, pointer)
            for at, ((operation, line), pointer) in enumerate(zip(pairs, pointers, strict=True))
            if operation.memory is not None and pointer is not None
        }
        all_ = _Accesses(self, list(accesses.values()))
        for at, (operation, line) in enumerate(pairs):
            source = self.instructions.get(line)
            place = all_.place(accesses[at]) if at in accesses else ("", 0)
            yield Coded(operation.instruction, source, *place, _slot(operation.memory))

    def line(self, operations: Sequence[tuple[Operation, int]], at: int, is_stray: bool) -> int:
        """The line of an operation. That of what is loaded by itself, if it is not its load's, is
        that of what uses it.
        """
        operation, line = operations[at]
        each, source = operation.instruction, self.instructions.get(line)
        if source is None or operation.memory is None:
            return line
        if _address(source, each.op) and not is_stray:
            return line
        if each.detail != LOADED:
            return line
        following = operations[at + 1 : at + _AHEAD]
        return next((to for user, to in following if each.name in user.instruction.args), 0)

    def loads(self, source: Instruction) -> list[Instruction]:
        """The loads that an instruction may have as its operands."""
        work, loads = [source], list[Instruction]()
        for each in work:
            for arg in each.args:
                made = self.instructions.get(self.numbers.get(arg, 0))
                if made is not None and _address(made, "load"):
                    loads.append(made)
                elif made is not None and made.op in _PASSED and len(work) < _FEW:
                    work.append(made)
        return loads


@dataclass(frozen=True, slots=True)
class _Access:
    """An operation that accesses memory, its line, and what its displacement is added to."""

    operation: Instruction
    memory: Memory
    line: int
    pointer: _Pointer


class _Accesses:
    """The accesses of a block."""

    def __init__(self, source: _Source, accesses: Sequence[_Access]) -> None:
        self.source = source
        self.apart = {each.line for each in accesses if each.operation.detail == LOADED}
        # The first displacement at which a pointer is the address of a name; large values are
        # accessed in parts.
        self.first: dict[tuple[_Pointer, str], int] = {}
        self.known: dict[_Pointer, str] = {}  # the name of an address whose line tells it
        for each in accesses:
            if own := self.own(each):
                self.known.setdefault(each.pointer, own)
                self.note(each, own)
        for each in accesses:
            if not self.told(each):
                self.note(each, self.likely(each))

    def note(self, access: _Access, name: str) -> None:
        """An access to the address of a name, by what tells the address."""
        at, key = access.memory.displacement, (access.pointer, name)
        self.first[key] = min(self.first.get(key, at), at)

    def own(self, access: _Access) -> str:
        """The name of an address where the access is made of a load or store."""
        made = self.source.instructions.get(access.line)
        return _address(made, access.operation.op) if made else ""

    def told(self, access: _Access) -> str:
        """The name of an address that is told by its line, or by that of an access with the same
        registers; what has no line of its own on the stack was put there by LLVM.
        """
        is_known = access.memory.base not in _STACK
        return self.own(access) or (self.known.get(access.pointer, "") if is_known else "")

    def place(self, access: _Access) -> tuple[str, int]:
        """The name of an address, and how many bytes behind it an access is."""
        name = self.told(access) or self.likely(access)
        return name, access.memory.displacement - self.first[access.pointer, name]

    def likely(self, access: _Access) -> str:
        """The name of the address of what the instruction at a line loads: of as many bytes, and
        not by an instruction of its own.
        """
        source, size = self.source.instructions.get(access.line), access.operation.kind.bytes_
        if source is None or access.operation.op != "load":
            return ""

        def unlikely(load: Instruction) -> tuple[bool, bool]:
            own = load.kind.bytes_
            is_alike = own == size or (own > size and load.kind.lanes > 1 and size >= _VECTOR)
            return self.source.numbers[load.name] in self.apart, not is_alike

        loads = self.source.loads(source)
        return _address(min(loads, key=unlikely), "load") if loads else ""


def _pointers(operations: Sequence[Operation]) -> list[_Pointer | None]:
    """What the operations of a block that access memory add their displacements to: the same where
    it is the same registers, which have not changed.
    """
    changes = Counter[str]()
    pointers = list[_Pointer | None]()
    for each in operations:
        memory = each.memory
        if memory is None or memory.base == "rip":
            pointers.append(None)
        else:
            times = changes[memory.base], changes[memory.index]
            pointers.append((memory.base, memory.index, memory.scale, *times))
        if each.instruction.name:  # a store changes no register
            changes[each.instruction.name] += 1
    return pointers


def _strays(
    operations: Sequence[tuple[Operation, int]], pointers: Sequence[_Pointer | None]
) -> set[int]:
    """What is loaded by itself, from elsewhere than the load before it whose line it has: LLVM
    writes none in front of an instruction that it does not know the line of.
    """
    first: dict[int, _Pointer | None] = {}
    return {
        at
        for at, ((each, line), pointer) in enumerate(zip(operations, pointers, strict=True))
        if each.instruction.detail == LOADED and first.setdefault(line, pointer) != pointer
    }


def _address(source: Instruction, op: str) -> str:
    """The address of what an instruction of the IR loads or stores; "" if it does not."""
    if source.op == op:
        return source.args[-1]
    if source.op == "call" and source.detail.startswith(f"llvm.masked.{op}"):
        return source.args[0 if op == "load" else 1]
    return ""


def _slot(memory: Memory | None) -> Place | None:
    """Where an access to the stack is, or to a constant."""
    if memory is None or memory.index or memory.base not in (*_STACK, "rip"):
        return None
    return Place(memory.base, memory.displacement)
