"""Operands to functions: how an instruction reads its sources and writes its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tileworkbench.compiler.sim.ptx.errors import unsupported
from tileworkbench.compiler.sim.ptx.geometry import Geometry
from tileworkbench.compiler.sim.ptx.memory import GlobalMemory, Memory
from tileworkbench.compiler.sim.ptx.module import (
    TYPE_BITS,
    Address,
    Immediate,
    Instruction,
    Module,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from tileworkbench.compiler.sim.ptx.numeric import DTYPES, SIGNED, UNSIGNED, Array
from tileworkbench.compiler.sim.ptx.state import State, Step

Reader = Callable[[State], Array]
Writer = Callable[[State, Array], None]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the variables that one entry can name live: the space and the address of each."""

    places: dict[str, tuple[str, int]]
    shared_bytes: int  # static ones; external arrays begin at `dynamic_start`
    dynamic_start: int
    local_bytes: int

    def memory(
        self,
        global_memory: GlobalMemory,
        geometry: Geometry,
        dynamic_bytes: int,
        parameters: bytes,
    ) -> Memory:
        """The memory of a batch whose blocks get this much dynamic shared memory."""
        total = self.dynamic_start + dynamic_bytes if dynamic_bytes else self.shared_bytes
        return Memory(
            global_memory,
            blocks=len(geometry.blocks),
            lanes=geometry.lanes,
            shared_bytes=total,
            dynamic_bytes=dynamic_bytes,
            local_bytes=self.local_bytes,
            parameters=parameters,
        )


class Decoder:
    """Resolves the operands of one entry's instructions."""

    def __init__(self, module: Module, frame: Frame) -> None:
        self.module = module
        self.frame = frame
        self.instruction: Instruction = module.code[0]

    def read(self, operand: Operand, kind: str) -> Reader:
        """A function that gives the operand's value as the PTX type `kind`, as a vector over the
        lanes or as a scalar."""
        dtype = DTYPES[kind]
        if isinstance(operand, Register):
            return self._read_register(operand, kind)
        if isinstance(operand, Negated):
            inner = self.read(operand.operand, "pred")
            return lambda state: ~inner(state)
        if isinstance(operand, Special):
            name = operand.name
            return lambda state: _as_bits(state.read_special(name), dtype)
        if isinstance(operand, Vector):
            return self._read_packed(operand.items, kind)
        constant = self.constant(operand, kind)
        return lambda state: constant

    def _read_packed(self, items: tuple[Operand, ...], kind: str) -> Reader:
        """``{lo, hi}`` as one wider value, the first item lowest."""
        dtype = DTYPES[kind]
        bits = TYPE_BITS[kind] // len(items)
        wide = UNSIGNED[TYPE_BITS[kind]]
        parts = [self.read(item, f"b{bits}") for item in items]

        def read(state: State) -> Array:
            value = parts[0](state).astype(wide)
            for number, part in enumerate(parts[1:], 1):
                value = value | (part(state).astype(wide) << wide(bits * number))
            return _as_bits(value, dtype)

        return read

    def _read_register(self, register: Register, kind: str) -> Reader:
        slot, dtype = register.slot, DTYPES[kind]
        bits = TYPE_BITS[kind]
        storage = UNSIGNED[register.bits]
        if register.bits == bits and dtype == storage:
            return lambda state: state.registers[slot]
        if register.bits == bits:
            return lambda state: state.registers[slot].view(dtype)
        if register.bits > bits > 1:
            narrow = UNSIGNED[bits]
            return lambda state: state.registers[slot].astype(narrow).view(dtype)
        raise unsupported(self.instruction, f"'{register.name}' is too small for '{kind}'")

    def constant(self, operand: Operand, kind: str) -> Array:
        """The value of a constant operand as a scalar."""
        bits = TYPE_BITS[kind]
        if isinstance(operand, Immediate) and operand.float_bits:
            source = np.array(operand.value).astype(UNSIGNED[operand.float_bits])
            value = source.view(np.float32 if operand.float_bits == 32 else np.float64)
            if kind in ("f32", "f64"):
                return np.asarray(value.astype(DTYPES[kind]))
            return _as_bits(source, DTYPES[kind])
        if isinstance(operand, Immediate):
            if kind in ("f32", "f64"):  # an integer constant of a float instruction is its value
                return np.asarray(operand.value, dtype=DTYPES[kind])
            if kind == "pred":
                return np.asarray(bool(operand.value))
            number = operand.value & ((1 << bits) - 1)
        elif isinstance(operand, Symbol):
            number = self.address_of(operand) & ((1 << bits) - 1)
        elif isinstance(operand, Address) and isinstance(operand.base, Symbol):
            number = (self.address_of(operand.base) + operand.offset) & ((1 << bits) - 1)
        else:
            raise unsupported(self.instruction, "an operand that is no value")
        return np.array(number, dtype=UNSIGNED[max(bits, 8)]).view(DTYPES[kind])

    def address_of(self, symbol: Symbol) -> int:
        """The address of a variable in its own space."""
        if symbol.name not in self.frame.places:
            raise unsupported(self.instruction, f"'{symbol.name}' has no address")
        return self.frame.places[symbol.name][1]

    def space_of(self, operand: Operand) -> str:
        """The state space of the variable that an address names, or ""."""
        if isinstance(operand, Address) and isinstance(operand.base, Symbol):
            return self.frame.places.get(operand.base.name, ("", 0))[0]
        return ""

    def read_address(self, operand: Operand) -> Reader:
        """A function that gives an address operand as signed 64-bit numbers; a sum of 32 bits
        wraps, as NVRTC relies on where it splits a negative offset from a shared address."""
        if not isinstance(operand, Address):
            raise unsupported(self.instruction, "the operand is no address")
        base, offset = operand.base, operand.offset
        if isinstance(base, Register):
            slot = base.slot
            wrap = (1 << base.bits) - 1 if base.bits < 64 else -1

            def read(state: State) -> Array:
                address = state.registers[slot].astype(np.int64)
                return (address + offset) & wrap if offset else address

            return read
        start = base.value if isinstance(base, Immediate) else self.address_of(base)
        fixed = start + offset
        return lambda state: np.full(state.lanes, fixed, dtype=np.int64)

    def write(self, operand: Operand, kind: str) -> Writer:
        """A function that sets the operand in the active lanes from a value of type `kind`,
        extended to the register's width (by sign for a signed type)."""
        if isinstance(operand, Sink):
            return lambda state, value: None
        if isinstance(operand, Vector):
            return self._write_parts(operand.items, kind)
        if not isinstance(operand, Register):
            raise unsupported(self.instruction, "the result is no register")
        slot = operand.slot
        storage = UNSIGNED[operand.bits]
        bits = TYPE_BITS[kind]
        if operand.bits == bits:

            def write(state: State, value: Array) -> None:
                state.put(slot, value if value.dtype == storage else value.view(storage))

            return write
        if operand.bits < bits or bits == 1:
            raise unsupported(self.instruction, f"'{operand.name}' is too small for '{kind}'")
        narrow = SIGNED[bits] if kind.startswith("s") else UNSIGNED[bits]

        def extend(state: State, value: Array) -> None:
            state.put(slot, value.view(narrow).astype(storage))

        return extend

    def _write_parts(self, items: tuple[Operand, ...], kind: str) -> Writer:
        bits = TYPE_BITS[kind] // len(items)
        whole, part = UNSIGNED[TYPE_BITS[kind]], UNSIGNED[bits]
        writers = [self.write(item, f"b{bits}") for item in items]

        def write(state: State, value: Array) -> None:
            unsigned = value.view(whole)
            for number, writer in enumerate(writers):
                writer(state, (unsigned >> whole(bits * number)).astype(part))

        return write

    def read_all(self, operands: Sequence[Operand], kind: str) -> list[Reader]:
        return [self.read(operand, kind) for operand in operands]


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """The registers of a vector operand, or the one that stands for itself."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def _as_bits(value: Array, dtype: type) -> Array:
    """`value` reinterpreted as `dtype`, after cutting or extending it to that size."""
    wanted = np.dtype(dtype)
    if value.dtype == wanted:
        return value
    if value.dtype.itemsize != wanted.itemsize:
        value = value.astype(UNSIGNED[wanted.itemsize * 8])
    return value.view(wanted)


DecodeStep = Callable[[Instruction, Decoder], Step]
