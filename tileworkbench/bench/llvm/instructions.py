"""The text of LLVM IR as functions, blocks and instructions: as much as their time depends on."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from tileworkbench.compiler.fast_dataclass import dataclass

_TYPE = r"<\d+ x \w+>|\[\d+ x [^\]]+\]|\{[^}]*\}|\w+"
_ASSIGNED = re.compile(r"(%[-\w.$]+) = (.*)")
_TYPED = re.compile(rf"({_TYPE}) (.*)")
_FUNCTION = re.compile(r"define .*?@([-\w.$]+)\((.*)\)")
_INCOMING = re.compile(r"\[ (.+?), %([-\w.$]+) \]")
_LABEL = re.compile(r"label %([-\w.$]+)")
_CALL = re.compile(rf"(?:\w+(?:\([^)]*\))? )*?({_TYPE}) @([-\w.$]+)\((.*)\)")
# How other threads may see an access to memory; of an address, what stands behind it.
_ORDER = re.compile(r" (monotonic|acquire|release|acq_rel|seq_cst)\b.*$")
_FLAGS = frozenset(
    (
        *("fast", "contract", "reassoc", "nnan", "ninf", "nsz", "arcp", "afn", "nuw", "nsw"),
        *("exact", "disjoint", "nneg", "samesign", "inbounds", "nusw", "tail", "notail"),
        *("volatile", "atomic"),
    )
)
_CASTS = frozenset(
    (
        *("sext", "zext", "trunc", "sitofp", "uitofp", "fptosi", "fptoui", "fpext", "fptrunc"),
        *("bitcast", "ptrtoint", "inttoptr"),
    )
)
_UPDATES = frozenset(("cmpxchg", "atomicrmw", "fence"))
_ACCESSING = re.compile(r"llvm\.(prefetch|masked\.|mem|x86\.(tile|tdp|ldtile))")
_FLOATS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


@dataclass(frozen=True, slots=True)
class Kind:
    """A type: lanes of so many bits; pointers are integers of 64, everything else has no lanes."""

    lanes: int = 0
    bits: int = 0
    is_float: bool = False

    @property
    def bytes_(self) -> int:
        return self.lanes * self.bits // 8


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `args` are names (``%x``), numbers as text, or whatever else was written.

    `kind` is the type of the result, of what is stored, or of what is compared; `source` that which
    a cast begins with. `detail` is a predicate or the function called. `mask` has the lanes that a
    shuffle takes, None for any, or those of a constant condition of a select; `strides` the bytes
    of each index of an address; `labels` the blocks a branch goes to or a phi comes from.
    """

    name: str
    op: str
    args: tuple[str, ...] = ()
    kind: Kind = Kind()
    source: Kind = Kind()
    detail: str = ""
    mask: tuple[int | None, ...] = ()
    strides: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    is_contract: bool = False


@dataclass(slots=True)
class Function:
    """The blocks of a function by label, the first one first, its parameters in order, and its
    instructions in the order of the text.
    """

    name: str
    params: tuple[str, ...]
    blocks: dict[str, list[Instruction]] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def entry(self) -> str:
        """The label of the first block."""
        return next(iter(self.blocks))


def touches_memory(instruction: Instruction) -> bool:
    """Whether an instruction besides loads and stores stands where it is among them: calls of
    functions and of intrinsics that access or fetch memory, and updates that others see.
    """
    if instruction.op != "call":
        return instruction.op in _UPDATES
    return not instruction.detail.startswith("llvm.") or bool(_ACCESSING.match(instruction.detail))


def parse_functions(text: str) -> dict[str, Function]:
    """The functions that a module defines, by name; blocks of which one is always behind another
    one are one.
    """
    functions: dict[str, Function] = {}
    current: Function | None = None
    label = "0"
    # The targets of a switch stand in lines of their own.
    for line in re.sub(r"\[\n([^\]]*)\]", lambda m: m[1].replace("\n", ","), text).splitlines():
        if match := _FUNCTION.match(line):
            params = tuple(_value(part) for part in _split(match[2]))
            current, label = Function(match[1], params), "0"
            functions[match[1]] = current
        elif line.startswith("}") and current is not None:
            current.instructions = [each for body in current.blocks.values() for each in body]
            _join(current)
            current = None
        elif current is not None and line.strip() and not line.lstrip().startswith(";"):
            if not line.startswith(" "):
                label = line.split(":")[0].strip('"')
                current.blocks.setdefault(label, [])
            else:
                current.blocks.setdefault(label, []).append(_parse(line.strip()))
    return functions


def _join(function: Function) -> None:
    """Make one of blocks that always follow each other."""
    came = Counter(to for body in function.blocks.values() for to in body[-1].labels)
    blocks, first = function.blocks, dict[str, str]()
    for label in list(blocks):
        body = blocks.get(label, [])
        while body and body[-1].op == "br" and len(body[-1].labels) == 1:
            (to,) = body[-1].labels
            if came[to] > 1 or to == label:
                break
            body += blocks.pop(to)
            first[to] = label
    for body in blocks.values():
        for at, each in enumerate(body):
            if each.op == "phi":
                labels = tuple(_resolved(first, label) for label in each.labels)
                op = "phi" if len(labels) > 1 else "freeze"
                body[at] = replace(each, op=op, labels=labels)


def _resolved(first: Mapping[str, str], label: str) -> str:
    while label in first:
        label = first[label]
    return label


@functools.cache
def parse_kind(text: str) -> Kind:
    """A type from its text."""
    match = re.fullmatch(r"<(\d+) x (\w+)>", text)
    lanes, element = (int(match[1]), match[2]) if match else (1, text)
    if element in _FLOATS:
        return Kind(lanes, _FLOATS[element], True)
    if element == "ptr":
        return Kind(lanes, 64)
    return Kind(lanes, int(element[1:])) if re.fullmatch(r"i\d+", element) else Kind()


def _parse(text: str) -> Instruction:
    text = re.sub(r",? ![\w.]+( !\d+)?", "", re.sub(r"\s+;.*$", "", text))
    match = _ASSIGNED.match(text)
    name, text = (match[1], match[2]) if match else ("", text)
    op, _, rest = text.partition(" ")
    flags = {op}
    while op in _FLAGS:
        op, _, rest = rest.partition(" ")
    while (word := rest.partition(" ")[0]) in _FLAGS:
        flags.add(word)
        rest = rest[len(word) + 1 :]
    if op in _SPECIAL:
        return _SPECIAL[op](name, op, rest, flags)
    if op in _CASTS:
        source, _, to = rest.rpartition(" to ")
        kinds = parse_kind(to.strip()), parse_kind(_type_of(source))
        return Instruction(name, op, (_value(source),), *kinds)
    match = _TYPED.match(rest)
    if match is None:
        return Instruction(name, op)
    args = tuple(map(_value, _split(match[2])))
    return Instruction(name, op, args, parse_kind(match[1]), is_contract="contract" in flags)


def _phi(name: str, op: str, rest: str, flags: set[str]) -> Instruction:
    pairs = _INCOMING.findall(rest)
    args, labels = (tuple(pair[at] for pair in pairs) for at in range(2))
    return Instruction(name, op, args, parse_kind(_type_of(rest)), labels=labels)


def _load(name: str, op: str, rest: str, flags: set[str]) -> Instruction:
    kind, place = _split(_ORDER.sub("", rest))[:2]
    detail = next((flag for flag in ("atomic", "volatile") if flag in flags), "")
    return Instruction(name, op, (_value(place),), parse_kind(kind), detail=detail)


def _store(name: str, op: str, rest: str, flags: set[str]) -> Instruction:
    value, place = _split(_ORDER.sub("", rest))[:2]
    return Instruction(name, op, (_value(value), _value(place)), parse_kind(_type_of(value)))


def _address(name: str, op: str, rest: str, flags: set[str]) -> Instruction:
    parts = _split(rest)
    inner = re.fullmatch(r"\[(\d+) x (.+)\]", parts[0])
    strides = (_size(parts[0]), *((_size(inner[2]),) if inner else ()))
    return Instruction(name, op, tuple(map(_value, parts[1:])), Kind(1, 64), strides=strides)


def _update(name: str, op: str, rest: str, flags: set[str]) -> Instruction:
    place, value = _split(_ORDER.sub("", rest))[:2]
    return Instruction(name, op, (_value(place), _value(value)), parse_kind(_type_of(value)))


def _compare(name: str, op: str, rest: str, flags: set[str]) -> Instruction:
    predicate, _, rest = rest.partition(" ")
    args = _split(rest)
    kind = parse_kind(_type_of(args[0]))
    return Instruction(name, op, tuple(map(_value, args)), kind, detail=predicate)


def _branch(name: str, op: str, rest: str, flags: set[str]) -> Instruction:
    args = (_value(_split(rest)[0]),) if rest.startswith("i1") else ()
    return Instruction(name, op, args, labels=tuple(_LABEL.findall(rest)))


def _call(name: str, op: str, rest: str, flags: set[str]) -> Instruction:
    match = _CALL.match(rest)
    if match is None:
        return Instruction(name, op, detail="?")
    args = tuple(map(_value, _split(match[3])))
    return Instruction(name, op, args, parse_kind(match[1]), detail=match[2])


def _select(name: str, op: str, rest: str, flags: set[str]) -> Instruction:
    parts = _split(rest)
    kind, lanes = parse_kind(_type_of(parts[1])), re.findall(r"i1 (true|false)", parts[0])
    mask = tuple(int(lane == "true") for lane in lanes) if len(lanes) == kind.lanes else ()
    return Instruction(name, op, tuple(map(_value, parts)), kind, mask=mask)


def _lanes(name: str, op: str, rest: str, flags: set[str]) -> Instruction:
    parts = _split(rest)
    mask = _shuffled(parts[2]) if op == "shufflevector" else ()
    return Instruction(name, op, tuple(map(_value, parts)), parse_kind(_type_of(rest)), mask=mask)


_SPECIAL = {
    **{"phi": _phi, "load": _load, "store": _store, "getelementptr": _address},
    "atomicrmw": _update,
    **{"icmp": _compare, "fcmp": _compare, "br": _branch, "switch": _branch, "call": _call},
    **{"select": _select, "insertelement": _lanes, "extractelement": _lanes},
    "shufflevector": _lanes,
}


@functools.cache
def _shuffled(mask: str) -> tuple[int | None, ...]:
    """The lanes of ``<4 x i32> <i32 0, i32 poison, ...>``."""
    kind, _, lanes = mask.partition("> ")
    count = int(re.findall(r"\d+", kind)[0])
    if lanes == "zeroinitializer":
        return (0,) * count
    taken = re.findall(r"i32 (\d+|poison|undef)", lanes)
    taken = taken * count if "splat" in lanes else taken
    return tuple(int(each) if each.isdigit() else None for each in taken)


def _size(text: str) -> int:
    inner = re.fullmatch(r"\[(\d+) x (.+)\]", text)
    return int(inner[1]) * _size(inner[2]) if inner else parse_kind(text).bytes_


def _type_of(text: str) -> str:
    match = _TYPED.match(text.strip())
    return match[1] if match else ""


def _value(text: str) -> str:
    """The last word of an operand, without its type and attributes."""
    return text.strip().rpartition(" ")[2]


def _split(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    return list(_parts(text)) if any(c in text for c in "<([{") else text.split(", ")


def _parts(text: str) -> Iterator[str]:
    depth = start = 0
    for at, character in enumerate(text):
        if character in "<([{":
            depth += 1
        elif character in ">)]}":
            depth -= 1
        elif character == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()
