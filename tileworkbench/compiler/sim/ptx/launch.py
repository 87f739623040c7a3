"""The public face of the interpreter: parse a module once, launch its kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tileworkbench.compiler.diagnostics import ArgumentError, TileValueError
from tileworkbench.compiler.sim.ptx.asynchronous import Asynchronous
from tileworkbench.compiler.sim.ptx.clusters import ClusterBarriers
from tileworkbench.compiler.sim.ptx.control import Call
from tileworkbench.compiler.sim.ptx.decode import decode
from tileworkbench.compiler.sim.ptx.execute import Control, Executor, Release
from tileworkbench.compiler.sim.ptx.geometry import WARP, Geometry, Triple
from tileworkbench.compiler.sim.ptx.memory import GlobalMemory, Memory
from tileworkbench.compiler.sim.ptx.module import Function, Module, Variable
from tileworkbench.compiler.sim.ptx.operands import Decoder, Frame
from tileworkbench.compiler.sim.ptx.parser import parse
from tileworkbench.compiler.sim.ptx.registers import Registers
from tileworkbench.compiler.sim.ptx.state import State, Step
from tileworkbench.compiler.sim.ptx.statistics import Statistics, Traffic
from tileworkbench.compiler.sim.ptx.tensormap import TensorMap

# Blocks run side by side up to this many lanes and this much shared memory.
_BATCH_LANES = 4096
_BATCH_SHARED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class AccessReport:
    """The traffic of one memory instruction over a launch.

    `space` is "shared" (units are wavefronts) or "global" (sectors of 32 bytes); `opcode` the
    instruction, `line` its line in the PTX text and `source_line` in the CUDA source (0: unknown).
    `requests` counts warps, `ideal` is the least number of units for as many bytes.
    """

    opcode: str
    line: int
    source_line: int
    space: str
    requests: int
    units: int
    ideal: int

    @property
    def ratio(self) -> float:
        """Units over ideal: 1.0 is perfect."""
        return self.units / self.ideal if self.ideal else 1.0


@dataclass(frozen=True, slots=True)
class PtxRun:
    """What a launch did: instructions by opcode and by line of the PTX text, as warps executed
    them, and the traffic of memory."""

    instructions: dict[str, int]
    lines: dict[int, int]
    accesses: tuple[AccessReport, ...]
    barriers: int
    divergent_branches: int
    printed: str

    @property
    def warp_instructions(self) -> int:
        """All instructions that warps executed."""
        return sum(self.instructions.values())


@dataclass(frozen=True, slots=True)
class _Entry:
    """One decoded kernel."""

    function: Function
    frame: Frame
    steps: list[Step | None]
    controls: dict[int, Control]
    releases: dict[int, Release]

    def execute(self, state: State, limit: int) -> None:
        """Run a batch of blocks to their end."""
        executor = Executor(state, self.steps, self.controls, self.releases, limit)
        executor.run(self.function.start)


class PtxProgram:
    """A parsed PTX module whose kernels run in numpy.

    The interpreter follows the PTX ISA and shares nothing with the compiler that wrote the text, so
    that agreement with it means something.
    """

    def __init__(self, module: Module, text: str) -> None:
        self.module, self.text = module, text
        self._entries: dict[str, _Entry] = {}

    @classmethod
    def parse(cls, text: str) -> PtxProgram:
        """Parse PTX as NVRTC writes it. Raises `PtxSyntaxError` with the line."""
        return cls(parse(text), text)

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of the kernels."""
        return tuple(each.name for each in self.module.functions.values() if each.is_entry)

    def launch(
        self,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[object],
        shared_bytes: int = 0,
        *,
        mode: str = "lazy",
        detectors: bool = True,
        instruction_limit: int = 20_000_000,
        cooperative: bool = False,
        cluster: Sequence[int] = (),
        blocks: Sequence[int] | None = None,
        printed: list[str] | None = None,
    ) -> PtxRun:
        """Run a kernel.

        `args` are contiguous numpy arrays, written in place, tensor maps, and scalars (also `bytes`
        for a structure), in the order of the parameters; `shared_bytes` is the dynamic shared
        memory of a block. In the mode "lazy" asynchronous copies land as late as is legal, in
        "eager" at once.
        With `detectors` reads of unwritten shared memory, races and unawaited copies are errors;
        accesses out of bounds or misaligned always are. A batch of blocks that executes more than
        `instruction_limit` instructions is stopped. All blocks of a `cooperative` launch run side
        by side, and so do those of a `cluster`, of which so many lie along x, y, z. Of other
        launches only the `blocks` of these numbers (x fastest) and those of their clusters run,
        None for all. What it prints is appended to `printed`, also where it fails then.

        Raises classes of `RunError` naming the thread and the PTX and source lines,
        `UnsupportedError` for an instruction that is not modelled.
        """
        if mode not in ("lazy", "eager"):
            raise TileValueError(f"'{mode}' is not a mode", hint="use 'lazy' or 'eager'")
        prepared = self._prepare(entry)
        shape, threads = _triple(grid), _triple(block)
        memory = GlobalMemory()
        _place_variables(memory, self.module)
        parameters, maps = _marshal(prepared.function, args, memory)
        memory.copy_in()
        statistics = Statistics([0] * len(self.module.code))
        printed = [] if printed is None else printed
        total_bytes = prepared.frame.dynamic_start + shared_bytes
        try:
            together, size = _triple(cluster), prod(_triple(cluster))
            whole = _by_cluster(shape, together)
            chosen = whole if blocks is None else _with_clusters(whole, blocks, size)
            batches = [whole] if cooperative else _batches(chosen, threads, total_bytes, size)
            for batch in batches:
                geometry = Geometry(shape, threads, batch, together)
                space = prepared.frame.memory(memory, geometry, shared_bytes, parameters)
                state = self._state(geometry, space, statistics, detectors, mode == "lazy")
                state.tensor_maps, state.printed = maps, printed
                prepared.execute(state, instruction_limit)
        finally:
            memory.copy_out()
        return _report(self.module, statistics, "".join(printed))

    def _state(
        self,
        geometry: Geometry,
        space: Memory,
        statistics: Statistics,
        detectors: bool,
        lazy: bool,
    ) -> State:
        """A batch of blocks before its first instruction."""
        bits, code = self.module.register_bits, self.module.code
        state = State(geometry, bits, code, space, statistics, detectors)
        state.asynchronous = Asynchronous(state, lazy)
        state.division = Registers(geometry)
        state.clusters = ClusterBarriers(state)
        return state

    def _prepare(self, name: str) -> _Entry:
        """Decode a kernel and the functions it may call, once."""
        known = self._entries.get(name)
        if known is not None:
            return known
        function = self.module.functions.get(name)
        if function is None or not function.is_entry:
            raise TileValueError(
                f"the PTX module has no kernel '{name}'", hint=f"it has {', '.join(self.entries)}"
            )
        frame = _lay_out(self.module, function)
        decoder = Decoder(self.module, frame)
        steps: list[Step | None] = [None] * len(self.module.code)
        controls: dict[int, Control] = {}
        releases: dict[int, Release] = {}
        calls: dict[int, Call] = {}
        for each in self.module.functions.values():
            if each.is_entry and each is not function:
                continue
            for place in range(each.start, each.end):
                step, control, release = decode(self.module.code[place], decoder, calls, place)
                steps[place] = step
                if control is not None:
                    controls[place] = control
                if release is not None:
                    releases[place] = release
        entry = _Entry(function, frame, steps, controls, releases)
        self._entries[name] = entry
        return entry


def _triple(shape: Sequence[int]) -> Triple:
    x, y, z = (*shape, 1, 1, 1)[:3]
    return int(x), int(y), int(z)


def _lanes(block: Triple) -> int:
    """The threads of a block, rounded up to whole warps."""
    return -(-block[0] * block[1] * block[2] // WARP) * WARP


def _by_cluster(grid: Triple, cluster: Triple) -> Sequence[int]:
    """The numbers of all blocks, those of a cluster behind each other by their rank.

    Raises `ArgumentError` for a grid that is not made of whole clusters.
    """
    if cluster == (1, 1, 1):
        return range(prod(grid))
    if any(extent % count for extent, count in zip(grid, cluster, strict=True)):
        raise ArgumentError(f"a grid of {grid} blocks is not made of clusters of {cluster}")
    numbers = np.arange(prod(grid)).reshape(grid[::-1])
    (z, y, x), (cz, cy, cx) = grid[::-1], cluster[::-1]
    parts = numbers.reshape(z // cz, cz, y // cy, cy, x // cx, cx)
    return [int(each) for each in parts.transpose(0, 2, 4, 1, 3, 5).ravel()]


def _with_clusters(whole: Sequence[int], blocks: Sequence[int], size: int) -> Sequence[int]:
    """The blocks to run: those chosen, and all of their clusters."""
    if size == 1:
        return blocks
    wanted = set(blocks)
    starts = range(0, len(whole), size)
    parts = [whole[start : start + size] for start in starts]
    return [block for part in parts if wanted.intersection(part) for block in part]


def _batches(
    blocks: Sequence[int], block: Triple, shared_bytes: int, cluster: int
) -> Iterator[Sequence[int]]:
    """The blocks of a launch in the groups that run side by side: whole clusters of so many."""
    lanes = _lanes(block)
    together = max(1, min(_BATCH_LANES // lanes, _BATCH_SHARED_BYTES // max(shared_bytes, 1)))
    together = max(1, together // cluster) * cluster
    for start in range(0, len(blocks), together):
        yield blocks[start : start + together]


def _align(size: int, alignment: int) -> int:
    return -(-size // max(alignment, 1)) * max(alignment, 1)


def _lay_out(module: Module, entry: Function) -> Frame:
    """Addresses for all variables that the entry or a device function can name."""
    places: dict[str, tuple[str, int]] = {}
    functions = [each for each in module.functions.values() if each is entry or not each.is_entry]
    others = {
        variable.name
        for each in module.functions.values()
        if each not in functions
        for variable in each.variables
    }
    offset = 0
    for parameter in entry.parameters:
        offset = _align(offset, parameter.align)
        places[parameter.name] = ("param", offset)
        offset += parameter.size
    local, shared, dynamic = 0, 0, 16
    mine = [each for name, each in module.variables.items() if name not in others]
    for each in functions:
        if each is not entry:
            mine += (*each.parameters, *each.results)
    for variable in mine:
        if variable.space in ("local", "param"):
            local = _align(local, variable.align)
            places[variable.name] = ("local", local)
            local += variable.size
        elif variable.space == "shared" and not variable.is_external:
            shared = _align(shared, variable.align)
            places[variable.name] = ("shared", shared)
            shared += variable.size
        elif variable.space == "shared":
            dynamic = max(dynamic, variable.align)
    start = _align(shared, dynamic)
    for variable in mine:
        if variable.space == "shared" and variable.is_external:
            places[variable.name] = ("shared", start)
    _place_variables(GlobalMemory(), module, places)
    return Frame(places, shared, start, local)


def _place_variables(
    memory: GlobalMemory, module: Module, places: dict[str, tuple[str, int]] | None = None
) -> None:
    """Make room for the module's own variables, first of all so that their addresses are fixed."""
    for variable in module.variables.values():
        if variable.space not in ("global", "const"):
            continue
        size = max(variable.size, 1)
        address = memory.reserve(f"'{variable.name}'", size, variable.space == "global")
        memory.place(address, variable.initial.ljust(size, b"\0"))
        if places is not None:
            places[variable.name] = ("global", address)


def _marshal(
    function: Function, args: Sequence[object], memory: GlobalMemory
) -> tuple[bytes, list[tuple[TensorMap, int]]]:
    """The parameter memory of a launch, where arrays become addresses, and the tensor maps with
    the addresses of their tensors."""
    if len(args) != len(function.parameters):
        raise ArgumentError(
            f"'{function.name}' takes {len(function.parameters)} arguments, not {len(args)}"
        )
    arrays = [
        (f"argument {number}", value.array if isinstance(value, TensorMap) else value)
        for number, value in enumerate(args)
        if isinstance(value, np.ndarray | TensorMap)
    ]
    addresses = iter(memory.add_arrays(arrays))
    maps: list[tuple[TensorMap, int]] = []
    data = b""
    for number, (value, parameter) in enumerate(zip(args, function.parameters, strict=True)):
        data = data.ljust(_align(len(data), parameter.align), b"\0")
        if isinstance(value, TensorMap):
            maps.append((value, next(addresses)))
            value = value.encode(len(maps) - 1)
        data += _encode(value, parameter, number, addresses)
    return data, maps


def _encode(value: object, parameter: Variable, number: int, addresses: Iterator[int]) -> bytes:
    if isinstance(value, np.ndarray):
        encoded = next(addresses).to_bytes(8, "little")
    elif isinstance(value, bytes | bytearray):
        encoded = bytes(value)
    elif isinstance(value, np.generic):
        encoded = value.tobytes()
    elif isinstance(value, bool | int):
        mask = (1 << 8 * parameter.size) - 1
        encoded = (int(value) & mask).to_bytes(parameter.size, "little")
    elif isinstance(value, float):
        kind = {4: np.float32, 8: np.float64, 2: np.float16}[parameter.size]
        encoded = np.asarray(value, dtype=kind).tobytes()
    else:
        kind_name = type(value).__name__
        raise ArgumentError(f"argument {number} is a '{kind_name}', not an array or a number")
    if len(encoded) != parameter.size:
        raise ArgumentError(
            f"argument {number} has {len(encoded)} bytes where the kernel takes {parameter.size}"
        )
    return encoded


def _report(module: Module, statistics: Statistics, printed: str) -> PtxRun:
    counts: dict[str, int] = {}
    lines: dict[int, int] = {}
    for instruction, count in zip(module.code, statistics.warp_instructions, strict=True):
        if count:
            counts[instruction.name] = counts.get(instruction.name, 0) + count
            lines[instruction.line] = lines.get(instruction.line, 0) + count
    accesses = []
    for place, traffic in sorted(statistics.traffic.items()):
        accesses.append(_access(module, place, traffic))
    return PtxRun(
        counts, lines, tuple(accesses), statistics.barriers, statistics.divergent_branches, printed
    )


def _access(module: Module, key: tuple[int, str], traffic: Traffic) -> AccessReport:
    instruction = module.code[key[0]]
    return AccessReport(
        *(instruction.name, instruction.line, instruction.source_line, traffic.space),
        *(traffic.requests, traffic.units, traffic.ideal),
    )
