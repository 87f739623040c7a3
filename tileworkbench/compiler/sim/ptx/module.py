"""A PTX module as data: variables, functions and instructions with their operands."""

from __future__ import annotations

from dataclasses import dataclass, field

# Bits of the PTX fundamental types (PTX ISA, "Fundamental Types"); predicates have their own kind.
TYPE_BITS = {
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    **{"b128": 128, "f16": 16, "f32": 32, "f64": 64, "f16x2": 32, "bf16": 16, "bf16x2": 32},
    **{"tf32": 32, "e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16, "pred": 1},
    **{"u16x2": 32, "s16x2": 32},
}


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register; `slot` counts over the whole module, `bits` is 1 for a predicate."""

    name: str
    slot: int
    bits: int


@dataclass(frozen=True, slots=True)
class Special:
    """A read-only special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant. `value` is an integer, or the bits of a float when `float_bits` is 32 or 64."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """The name of a variable, a function or a label, resolved in its scope."""

    name: str


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``; `coordinates` are those of a tensor copy."""

    base: Register | Immediate | Symbol
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, c, d}``: registers that one instruction reads or writes together."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``d|p``: a result and the predicate that goes with it."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """``!p``: the complement of a predicate operand."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a result that is dropped."""


Operand = Register | Special | Immediate | Symbol | Address | Vector | Pair | Negated | Sink


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `opcode` and its dot-separated `modifiers`, e.g. ``ld`` and
    ``("global", "v4", "u32")``.

    `guard` is the predicate register it runs under and `guard_negated` whether that is
    complemented. `line` is the line of the PTX text, `source_line` the line of the CUDA source
    that the latest ``.loc`` names, 0 without one.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    guard_negated: bool
    line: int
    source_line: int
    text: str

    def has(self, *modifiers: str) -> bool:
        """Whether any of these modifiers is there."""
        return any(modifier in self.modifiers for modifier in modifiers)

    @property
    def name(self) -> str:
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a state space ("global", "const", "shared", "local" or "param").

    `size` is in bytes, 0 for an external array whose size the launch gives.
    """

    name: str
    space: str
    align: int
    size: int
    initial: bytes = b""
    is_external: bool = False


@dataclass(slots=True)
class Function:
    """An entry or a device function: `start` and `end` are places in the module's code."""

    name: str
    is_entry: bool
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...] = ()
    start: int = 0
    end: int = 0
    variables: list[Variable] = field(default_factory=list)
    max_threads: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Module:
    """A parsed module. `code` holds the instructions of all functions one after the other.

    `labels` maps a label's name in its scope to a place in `code`, `tables` a ``.branchtargets``
    list to its labels, `registers` counts the register slots and `register_bits` has their widths.
    """

    target: str
    code: tuple[Instruction, ...]
    functions: dict[str, Function]
    variables: dict[str, Variable]
    labels: dict[str, int]
    tables: dict[str, tuple[str, ...]]
    register_bits: tuple[int, ...]
