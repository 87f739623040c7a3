"""Functions that the driver provides: ``vprintf`` and ``__assertfail``."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np

from tileworkbench.compiler.diagnostics import DeviceAssertError
from tileworkbench.compiler.sim.ptx.errors import unsupported
from tileworkbench.compiler.sim.ptx.memory import LOCAL_WINDOW
from tileworkbench.compiler.sim.ptx.module import Instruction, Symbol, Vector
from tileworkbench.compiler.sim.ptx.operands import Decoder
from tileworkbench.compiler.sim.ptx.state import State, Step


def _argument_places(i: Instruction, d: Decoder) -> list[int]:
    operands = i.operands[2]
    items = operands.items if isinstance(operands, Vector) else ()
    places = []
    for item in items:
        if not isinstance(item, Symbol):
            raise unsupported(i, "an argument that is no parameter variable")
        places.append(d.address_of(item))
    return places


def _read_local(state: State, lane: int, place: int, size: int) -> bytes:
    start = lane * state.memory.local_stride + place
    return state.memory.local[start : start + size].tobytes()


def read_text(state: State, address: int) -> str:
    """The zero-terminated text at an address of global memory."""
    return state.memory.global_memory.read_text(address).decode(errors="replace")


def _number(state: State, lane: int, place: int, size: int) -> int:
    return int.from_bytes(_read_local(state, lane, place, size), "little")


def decode_vprintf(i: Instruction, d: Decoder) -> Step:
    """Print, thread after thread: each argument is aligned to its own size, in local memory."""
    text_place, values_place = _argument_places(i, d)

    def step(state: State) -> None:
        for lane in state.index:
            address = _number(state, lane, text_place, 8)
            at = _number(state, lane, values_place, 8) - LOCAL_WINDOW
            arguments = _Arguments(state, int(lane), at)
            text = read_text(state, address)
            state.printed.append(format_text(text, arguments.take, partial(read_text, state)))

    return step


_FORMAT = re.compile(r"%(?:%|([-+ #0]*\d*(?:\.\d+)?)(hh|h|ll|l|z)?([diouxXeEfgGcsp]))")


def format_text(
    text: str, take: Callable[[str], int | float], read_text: Callable[[int], str]
) -> str:
    """C's printf: `take` gives the next argument as an integer ("i", "l") or a double ("d"), and
    `read_text` the string at an address."""

    def replace(match: re.Match[str]) -> str:
        flags, length, kind = match[1], match[2], match[3]
        if kind is None:
            return "%"
        if kind in "eEfgG":
            return f"%{flags}{kind}" % take("d")
        value = int(take("l" if length in ("ll", "l", "z") or kind in "ps" else "i"))
        if kind in "di":
            return f"%{flags}d" % value
        bits = 64 if length in ("ll", "l", "z") or kind == "p" else 32
        if kind == "s":
            return f"%{flags}s" % read_text(value)
        if kind == "c":
            return chr(value & 0xFF)
        return f"%{flags}{'x' if kind == 'p' else kind}".replace("u", "d") % (
            value & ((1 << bits) - 1)
        )

    return _FORMAT.sub(replace, text)


class _Arguments:
    """The argument area of one thread's printf."""

    def __init__(self, state: State, lane: int, start: int) -> None:
        self.state, self.lane, self.start, self.offset = state, lane, start, 0

    def take(self, kind: str) -> int | float:
        size = 4 if kind == "i" else 8
        self.offset = -(-self.offset // size) * size
        data = _read_local(self.state, self.lane, self.start + self.offset, size)
        self.offset += size
        if kind == "d":
            return float(np.frombuffer(data, dtype=np.float64)[0])
        return int.from_bytes(data, "little", signed=True)


def decode_assertfail(i: Instruction, d: Decoder) -> Step:
    """Stop with the text of the assertion, its file and its line."""
    message_place, file_place, line_place = _argument_places(i, d)[:3]

    def step(state: State) -> None:
        lane = int(state.index[0])
        message = read_text(state, _number(state, lane, message_place, 8))
        file = read_text(state, _number(state, lane, file_place, 8))
        line = _number(state, lane, line_place, 4)
        raise DeviceAssertError(
            f"{state.geometry.thread_name(lane)}: assertion '{message}' failed, {file}, line {line}"
        )

    return step


EXTERNAL: dict[str, Callable[[Instruction, Decoder], Step]] = {
    "vprintf": decode_vprintf,
    "__assertfail": decode_assertfail,
}
