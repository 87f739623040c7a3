"""The shared memory of a block as plain data: which buffer is where, and when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from math import prod
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import buffers_of, statements
from tileworkbench.compiler.ir.stmt import Alloc, Kernel
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.schedule.lifetimes import ALIGNMENT, Lifetime, Timeline, place, timeline

MOST_STAGES = 8  # of the pipelines that `SharedMemory.stages` tells of


@dataclass(frozen=True, slots=True)
class SharedBuffer:
    """One shared buffer: where it is and when it is in use.

    Attributes:
        name, dtype, shape: as in the lowered program; of a buffer with `versions` the first extent
            is their number, one per stage of the pipeline.
        line: of the user's text that allocates it, 0 where that is not known.
        offset, bytes_: its place in the block's shared memory.
        lines: of the user's text that allocate or use it, ascending.
        first, last: the steps (statements in program order) between which it is in use.
        shares: the buffers that have some of its bytes at another time.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    versions: int
    line: int
    lines: tuple[int, ...]
    offset: int
    bytes_: int
    first: int
    last: int
    shares: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The shared memory of one block of a launch.

    Attributes:
        launch, launches: its number from 1 on, and how many the program has.
        threads: of a block.
        bytes_: of all buffers together.
        buffers: by offset.
        lines: the line of the user's text of each step, 0 where it is not known.
        loops: first and last step of each loop.
        stages: (number of stages, bytes) for pipelines of other depths; empty without versions.
        num_stages: of these the kernel's own, 1 without versions.
    """

    launch: int
    launches: int
    threads: int
    bytes_: int
    buffers: tuple[SharedBuffer, ...]
    lines: tuple[int, ...]
    loops: tuple[tuple[int, int], ...]
    stages: tuple[tuple[int, int], ...] = ()
    num_stages: int = 1

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


def shared_memories(program: Program, single: Program | None = None) -> tuple[SharedMemory, ...]:
    """The shared memory of each launch of `program` that has any.

    Offsets are the program's own where it has them, else where the buffers would fit. `single` is
    the program before pipelines had versions: a buffer with one dimension more than there has them.
    """
    kernels = [stmt for stmt in statements(program.body) if isinstance(stmt, Kernel)]
    memories = []
    for number, kernel in enumerate(kernels, 1):
        timed = timeline(kernel, program)
        if timed.lives:
            memories.append(_memory(program, kernel, timed, single, (number, len(kernels))))
    return tuple(memories)


def _memory(
    program: Program,
    kernel: Kernel,
    timed: Timeline,
    single: Program | None,
    number: tuple[int, int],
) -> SharedMemory:
    offsets, size = place(timed.lives)
    sites: dict[Buffer, int] = {}
    for stmt in statements(kernel.body):
        if isinstance(stmt, Alloc):
            sites[stmt.buffer] = stmt.site
            if stmt.offset is not None and stmt.buffer in offsets:
                offsets[stmt.buffer] = stmt.offset
    before = {} if single is None else _ranks(single)
    versions = {life.buffer: _versions(life.buffer, before) for life in timed.lives}
    spared = _spared(single, versions)

    def line(site: int) -> int:
        return 0 if (span := program.span(site)) is None else span.line

    def touching(life: Lifetime) -> set[int]:
        return set(map(line, {sites.get(life.buffer, 0), *life.sites})) - {0}

    buffers = [
        SharedBuffer(
            name=life.buffer.name,
            dtype=str(life.buffer.dtype),
            shape=tuple(const_int(extent) or 0 for extent in life.buffer.shape),
            versions=versions[life.buffer],
            line=line(sites.get(life.buffer, 0)),
            lines=tuple(sorted(touching(life))),
            offset=offsets[life.buffer],
            bytes_=life.size,
            first=life.first,
            last=life.last,
        )
        for life in timed.lives
    ]
    return SharedMemory(
        launch=number[0],
        launches=number[1],
        threads=prod(kernel.threads),
        bytes_=size,
        buffers=tuple(sorted(_with_sharers(buffers), key=lambda each: (each.offset, each.first))),
        lines=tuple(line(site) for site in timed.sites),
        loops=timed.loops,
        stages=_stages(timed.lives, versions, spared),
        num_stages=max(versions.values(), default=1) + spared,
    )


def _ranks(program: Program) -> dict[str, int]:
    allocated = (stmt.buffer for stmt in statements(program.body) if isinstance(stmt, Alloc))
    return {buffer.name: len(buffer.shape) for buffer in allocated}


def _versions(buffer: Buffer, before: dict[str, int]) -> int:
    if len(buffer.shape) == before.get(buffer.name, len(buffer.shape)) + 1:
        return const_int(buffer.shape[0]) or 1
    return 1


def _with_sharers(buffers: list[SharedBuffer]) -> Iterable[SharedBuffer]:
    for each in buffers:
        names = (other.name for other in buffers if other is not each and _overlap(each, other))
        yield replace(each, shares=tuple(names))


def _overlap(one: SharedBuffer, other: SharedBuffer) -> bool:
    """Whether they have bytes in common."""
    end, other_end = one.offset + one.bytes_, other.offset + other.bytes_
    return one.offset < other_end and other.offset < end


def _spared(single: Program | None, versions: dict[Buffer, int]) -> int:
    """How many versions fewer than stages there are: what is loaded ahead may be in registers."""
    names = {buffer.name for buffer, count in versions.items() if count > 1}
    loops = [] if single is None else statements(single.body)
    stages = [
        max(loop.stage) + 1
        for loop in loops
        if isinstance(loop, Pipelined)
        and loop.stage
        and any(buffer.name in names for buffer in buffers_of(loop.body))
    ]
    return max(max(stages, default=0) - max(versions.values(), default=0), 0)


def _stages(
    lives: tuple[Lifetime, ...], versions: dict[Buffer, int], spared: int
) -> tuple[tuple[int, int], ...]:
    """The bytes that the same buffers take with other numbers of versions, by stages."""
    if all(count == 1 for count in versions.values()):
        return ()
    sizes = []
    for number in range(1, MOST_STAGES + 1):
        scaled = []
        for life in lives:
            count = versions[life.buffer]
            size = life.size if count == 1 else -(-life.size // count) * max(number - spared, 1)
            scaled.append(replace(life, size=-(-size // ALIGNMENT) * ALIGNMENT))
        sizes.append((number, place(scaled)[1]))
    return tuple(sizes)
