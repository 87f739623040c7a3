"""What a core does for an instruction of x86: registers that are read and written, and memory.

The text is what LLVM writes (AT&T's order: the result comes last). An instruction with an operand
in memory is a load and an operation, or an operation and a store.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from tileworkbench.bench.llvm.instructions import Instruction, Kind
from tileworkbench.compiler.fast_dataclass import dataclass

ATOMIC, BLEND, CALL, CROSS, IDLE, MOVE, PREFETCH, ZERO = (
    *("atomic", "blend", "call", "cross", "idle", "move", "prefetch", "zero"),
)
"""Operations with names of their own: an update that others see, lanes that are chosen, a call, a
number that goes from integers to vectors or back, what is only issued, a register that is renamed,
what is loaded for later, and a register that is cleared."""
LOADED = "loaded"
"""Of a load: its result is all that the instruction is for."""

_FLAGS, _PART, _RESULT = "flags", "part", "result"  # registers without a name
_MEMORY = re.compile(r"([-+.$\w@]*)\((?:%(\w+))?(?:,%(\w+)(?:,(\d))?)?\)")
_REGISTER = re.compile(r"%(\w+)")
_VECTOR_BITS = {"x": 128, "y": 256, "z": 512}
_ELEMENT_BYTES = {"b": 1, "w": 2, "l": 4, "d": 4, "q": 8, "t": 10}

_IDLE = re.compile(
    r"(nop|ret|push|pop)[wlq]?$|vzero|c[lqw]t[dlqo]$|ud2|[lms]fence|rep|data|ldtile|tile(zero|rel)"
)
_COMPARES = re.compile(
    r"(cmp[bwlq]?|test[bwlq]?|bt[wlq]?|v?u?comis[sdh]|v?ptest|vtestp[sd]|k(or)?test\w)$"
)
_EXTENDS = re.compile(r"mov[sz][bwl][wlq]$")
_MOVES = re.compile(
    r"(mov(abs)?[bwlq]?|mov[sz][bwl][wlq]|kmov[bwdq]"
    r"|v?mov(nt)?(dq)?[aunt]*(ps|pd|dqa|dqu)?(8|16|32|64)?|v?movs[sdh]|v?mov[dqw]|v?mov[lh]p[sd]"
    r"|v?lddqu|vp?maskmov(ps|pd|d|q))$"
)
_SPREADS = re.compile(r"v(p?broadcast|movddup)")  # by a load itself
_CLEARS = re.compile(r"(v?p?xor|v?pandn|sub|vpsub|pcmpgt)")
_FILLS = re.compile(r"vpternlog|v?pcmpeq")
_READS_RESULT = re.compile(
    r"vf(n?m(add|sub)|maddsub)|vpdp|vdpbf|tdp|vperm[it]2|vpternlog|vgather|vpgather|vpsh[lr]dv|vfixup"
)
_UNARY = re.compile(
    r"(mov|lea|set|bs[rf]|[tl]zcnt|popcnt|cvt|sqrt|pshuf[dlh]|pmov|pabs|round|lddqu)"
)
_READS_FLAGS = re.compile(r"(cmov|set|adc|sbb)")
_ONLY_STORES = re.compile(r"(v?pmov|v?extract|v?pextr|vcvt|vcompress|vpcompress|set)")
_SCALAR = re.compile(r"(?!v?p|vbroadcast|v?cvt\w*2si$).*s[sdh]$")
_RESIZES = re.compile(r"v?pmov(?:us|s|z|sx|zx)?([bwdq])([bwdq])$")
_HALVES = re.compile(r"vcvt(ps2ph|ph2ps|neps2bf16|ps2pd|pd2ps|dq2pd|udq2pd)")


@dataclass(frozen=True, slots=True)
class Memory:
    """An operand in memory: so many bytes behind `base` and `scale` times `index`. Constants of the
    code are addressed from `rip`, what is on the stack from `rsp` or `rbp`.
    """

    displacement: int
    base: str
    index: str
    scale: int = 1

    @property
    def registers(self) -> tuple[str, ...]:
        """Those that an access waits for."""
        return tuple(each for each in (self.base, self.index) if each and each not in _FIXED)


_FIXED = ("rip", "rsp")


@dataclass(frozen=True, slots=True)
class Operation:
    """A load, a store, or what is done with registers, which are named as the widest of their kind.
    `detail` of a call is what is called.
    """

    instruction: Instruction
    memory: Memory | None = None


@functools.lru_cache(1 << 14)
def operations_of(name: str, operands: str) -> tuple[Operation, ...]:
    """What a core does for an instruction with such operands, in order."""
    if name[0] == "j" and name != "jmp":  # one instruction with the comparison before it
        return ()
    if name == "jmp" or _IDLE.match(name):
        return (Operation(Instruction("", IDLE)),)
    if name.startswith("call"):
        return (Operation(Instruction("", CALL, detail=operands.split("@")[0])),)
    if name == "lock" or (name.startswith("xchg") and "(" in operands):
        return (Operation(Instruction("", ATOMIC)),)
    if name.startswith("prefetch"):
        return (Operation(Instruction("", PREFETCH)),)
    return tuple(_Decoder(name, operands).operations())


def register(name: str) -> str:
    """A register by the name of the widest that it is part of."""
    if match := re.fullmatch(r"[xyz]mm(\d+)", name):
        return f"v{match[1]}"
    if match := re.fullmatch(r"(r\d+)[bwd]?", name):
        return match[1]
    if match := re.fullmatch(r"[er]?([abcd])[xlh]|[er]?([sd]i|[sb]p)l?", name):
        return f"r{match[1]}x" if match[1] else f"r{match[2]}"
    return name


def _split(operands: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    return re.findall(r"(?:\([^)]*\)|\{[^}]*\}|[^,(){}])+", operands.replace(", ", ","))


def _memory(operand: str) -> Memory | None:
    match = _MEMORY.search(operand)
    if match is None:
        return None
    distance = int(match[1]) if re.fullmatch(r"-?\d+", match[1]) else 0  # others are names
    base, index = (register(match[at] or "") for at in (2, 3))
    return Memory(distance, base, index, int(match[4] or 1))


class _Decoder:
    """An instruction with its operands."""

    def __init__(self, name: str, operands: str) -> None:
        self.name, parts = name, _split(operands)
        vectors = re.findall(r"%([xyz])mm", operands)
        self.bits = max((_VECTOR_BITS[each] for each in vectors), default=0)
        self.is_vex = name[0] == "v"
        self.spread = re.search(r"\{1to(\d+)\}", operands)
        *sources, last = parts or [""]
        if _COMPARES.match(name):
            sources, last = parts, ""
        # The registers of its address are operands, and no load is to be seen.
        self.computes_address = name.startswith("lea") or "gather" in name
        self.masks = tuple(re.findall(r"\{%(k\d)\}", last))
        self.keeps = bool(self.masks) and "{z}" not in last
        self.sources, self.last = sources, last
        self.result = _FLAGS if not last else ""
        if last and "(" not in last and (match := _REGISTER.match(last)):
            self.result = register(match[1])
        self.kind = self.own_kind()

    def own_kind(self) -> Kind:
        """The type that it works on: the widest vector, one float, or an integer."""
        if not self.bits:
            return Kind(1, 32)
        return Kind(1 if _SCALAR.match(self.name) else self.bits // 32, 32, True)

    def operations(self) -> Iterator[Operation]:
        """Its loads, itself and its stores."""
        reads, target = self.reads(), _memory(self.last)
        load = (
            None if self.computes_address else next(filter(None, map(_memory, self.sources)), None)
        )
        if self.name.startswith("tile"):  # all of it is one operation
            yield Operation(Instruction(self.result, self.name, reads, self.kind))
        elif target is not None:
            yield from self.stores(reads, target)
        elif self.is_cleared():
            yield Operation(Instruction(self.result, ZERO))
        elif load is not None:
            yield from self.loads(reads, load)
        else:
            yield Operation(self.own(reads))

    def reads(self) -> tuple[str, ...]:
        """The registers that it waits for, besides those of an address; what is loaded is
        `_PART`. What a sum adds to comes where its operand stands.
        """
        names = list[str]()
        for each in self.sources:
            if "(" in each and not self.computes_address:
                names.append(_PART)
            else:
                names += [register(name) for name in _REGISTER.findall(re.sub(r"\{.*", "", each))]
        if self.result and self.result != _FLAGS and self.reads_result():
            names.append(self.result)
        if _READS_FLAGS.match(self.name):
            names.append(_FLAGS)
        return (*names, *self.masks)

    def reads_result(self) -> bool:
        """Whether the result is an operand as well."""
        if _bank(self.result) == "k":
            return False
        if self.keeps or _READS_RESULT.match(self.name):
            return True
        if self.is_vex or self.name[0] == "k" or _UNARY.match(self.name):
            return False
        is_of_three = not self.bits and len(self.sources) == 2  # as a product with a constant
        return not is_of_three or self.name.startswith(("shld", "shrd"))

    def is_cleared(self) -> bool:
        """Whether the result is the same whatever was in its registers."""
        names = [register(each) for text in self.sources for each in _REGISTER.findall(text)]
        if not self.is_vex:
            return bool(_CLEARS.match(self.name)) and names == [self.result]
        if self.name.startswith("vpternlog"):
            return self.sources[0] == "$255"
        same = len(names) == 2 and names[0] == names[1] and "(" not in "".join(self.sources)
        return same and bool(_CLEARS.match(self.name) or (_FILLS.match(self.name) and self.bits))

    def loads(self, reads: tuple[str, ...], memory: Memory) -> Iterator[Operation]:
        """An instruction that loads."""
        kind = _kind_of_bytes(self.accessed_bytes())
        is_move = bool(_MOVES.match(self.name) or _SPREADS.match(self.name))
        if is_move and not self.keeps and (len(self.sources) == 1 or "maskmov" in self.name):
            args = (*memory.registers, *self.masks)
            yield Operation(Instruction(self.result, "load", args, kind, detail=LOADED), memory)
            return
        yield Operation(Instruction(_PART, "load", memory.registers, kind), memory)
        if is_move:
            yield Operation(Instruction(self.result, BLEND, reads, self.kind))
        else:
            yield Operation(Instruction(self.result, self.name, reads, self.kind))

    def stores(self, reads: tuple[str, ...], memory: Memory) -> Iterator[Operation]:
        """An instruction whose result is in memory."""
        kind, value = _kind_of_bytes(self.accessed_bytes()), reads
        if "scatter" in self.name:
            yield Operation(Instruction("", self.name, reads, self.kind))
            return
        if not _MOVES.match(self.name):
            if not _ONLY_STORES.match(self.name):
                yield Operation(Instruction(_PART, "load", memory.registers, kind), memory)
                reads = (*reads, _PART)
            yield Operation(Instruction(_RESULT, self.name, reads, self.kind))
            value = (_RESULT,)
        yield Operation(Instruction("", "store", (*value, *memory.registers), kind), memory)

    def own(self, reads: tuple[str, ...]) -> Instruction:
        """An instruction on registers."""
        if not _MOVES.match(self.name) or _EXTENDS.match(self.name):
            return Instruction(self.result, self.name, reads, self.kind)
        if self.masks or len(reads) > 1:
            return Instruction(self.result, BLEND, reads, self.kind)
        if not reads:  # a constant
            return Instruction(self.result, IDLE)
        kinds = [_bank(each) for each in (reads[0], self.result)]
        return Instruction(self.result, MOVE if kinds[0] == kinds[1] else CROSS, reads, self.kind)

    def accessed_bytes(self) -> int:
        """How many bytes it loads or stores."""
        name, whole = self.name, self.bits // 8
        if match := re.search(r"(?:insert|extract|broadcast)[fi]?(\d+)(?:x(\d+))?$", name):
            return int(match[1]) * int(match[2] or 1) // 8
        if self.spread or name.endswith("insertps") or name.endswith("extractps"):
            return 8 if self.spread and name.endswith(("pd", "q")) else 4
        if match := re.match(r"vp?broadcasts?([bwdqs])|v?p(?:insr|extr)([bwdq])", name):
            element = match[1] or match[2]
            return 4 if element == "s" else 8 if name.endswith("sd") else _ELEMENT_BYTES[element]
        if match := _RESIZES.match(name):
            sizes = [_ELEMENT_BYTES[each] for each in match.groups()]
            return whole * min(sizes) // max(sizes)
        if _HALVES.match(name):
            return whole // 2
        if match := re.match(r"v?mov(?:([dqw])|[lh]p[sd]|ddup)$", name) if self.bits else None:
            return _ELEMENT_BYTES[match[1] or "q"]
        if self.bits and self.kind.lanes == 1:
            return {"s": 4, "d": 8, "h": 2}[name[-1]]
        if self.bits:
            return 4 if name.startswith(("vcvtsi2", "cvtsi2")) else whole
        if match := re.match(r"mov[sz]([bwl])[wlq]$", name):
            return _ELEMENT_BYTES[match[1]]
        return _ELEMENT_BYTES.get(name[-1], 8)


def _bank(name: str) -> str:
    """The kind of a register: of vectors, of masks, or of integers."""
    return name[0] if name[0] in "vk" else "r"


def _kind_of_bytes(size: int) -> Kind:
    return Kind(size // 4, 32) if size >= 4 else Kind(1, 8 * size)
