"""From a compilation to its `Pipeline`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.machine.rates import Rates
from tileworkbench.compiler.record import CompileRecord
from tileworkbench.compiler.sim.pipeline.leaves import Kind
from tileworkbench.compiler.sim.pipeline.model import Event, Loop, Operation, Pipeline
from tileworkbench.compiler.sim.pipeline.structure import (
    Launch,
    blocks_to_look_at,
    counted_parts,
    find_launches,
    grid_of,
    group_label,
    product_sites,
    role_starts,
    thread_groups,
)
from tileworkbench.compiler.sim.pipeline.times import Schedule, Timed
from tileworkbench.compiler.sim.pipeline.trace import Trace, TraceEvent, TraceRecorder
from tileworkbench.compiler.sim.pipeline.walk import Slot, Step, Walked, walk_block

_WORK = (Kind.PRODUCT, Kind.COMPUTE, Kind.MOVE)
_REPEATS = 3  # iterations that are enough to see what repeats
_FULL = 0.97  # what is busy for at least this part of an iteration is the limit


def find_pipelines(
    record: CompileRecord, rates: Rates | None, fresh: float
) -> tuple[Pipeline, ...]:
    """The pipelines of a compiled kernel, one per launch that has any; without any a single one
    that says why. `fresh` is the part of its global traffic that no cache has.
    """
    lowered = threads_program(record)
    if lowered is None:
        return (Pipeline(record.name, record.target, _on_cpu(record.program)),)
    planned = _planned(record)
    launches = find_launches(lowered, planned)
    if not launches:
        return (Pipeline(record.name, record.target, _no_loop(record, planned)),)
    pipelines = []
    for launch in launches:
        walked = _walked(lowered, launch, product_sites(record.program))
        schedule = Schedule(walked.groups, walked.barriers, rates, fresh)
        made = _Builder(record, lowered, planned, launch, walked, schedule, rates, fresh)
        pipelines.append(made.run())
    return tuple(pipelines)


def _walked(lowered: Program, launch: Launch, products: frozenset[int]) -> Walked:
    """The block in the middle; where its loops do not repeat, the one with the most iterations."""
    walks: list[Walked] = []
    for block in blocks_to_look_at(launch.kernel):
        walks.append(walk_block(lowered, launch, products, block))
        if min(walks[0].turns.values(), default=0) >= _REPEATS:
            return walks[0]
    return max(walks, key=lambda each: sum(each.turns.values()))


def threads_program(record: CompileRecord) -> Program | None:
    """The program whose threads run as hardware runs them, with buffers as tiles still; None for a
    CPU.
    """
    programs = (snapshot.program for snapshot in record.snapshots)
    return next((program for program in programs if program.stage is Stage.SIMT), None)


def _planned(record: CompileRecord) -> dict[int, Pipelined]:
    """The loops that have a schedule, by site."""
    for snapshot in record.snapshots:
        if snapshot.name == "plan_pipelines":
            below = statements(snapshot.program.body)
            return {stmt.site: stmt for stmt in below if isinstance(stmt, Pipelined) and stmt.stage}
    return {}


def _on_cpu(program: Program) -> str:
    text = "on a CPU one worker runs the iterations of a loop one after another"
    if any(isinstance(stmt, Pipelined) for stmt in statements(program.body)):
        text += "; num_stages is for GPUs"
    return text


def _no_loop(record: CompileRecord, planned: Mapping[int, Pipelined]) -> str:
    """Why a kernel for a GPU has no pipelined loop."""
    for stmt in statements(record.program.body):
        if isinstance(stmt, Pipelined) and stmt.site not in planned:
            span = record.program.span(stmt.site)
            where = f" on line {span.line}" if span is not None else ""
            if stmt.num_stages < 2:
                return (
                    f"num_stages of the loop{where} is {stmt.num_stages}; copies run ahead with 2 "
                    "or more"
                )
            name = f"loop '{stmt.var.name}' is not pipelined: "
            notes = (note for snapshot in record.snapshots for note in snapshot.program.notes)
            reason = next((note for note in notes if note.startswith(name)), "")
            return reason or f"the loop{where} was lowered without one"
    return "no loop is T.Pipelined, or waits for copies of its own"


class _Builder:
    def __init__(
        self,
        record: CompileRecord,
        lowered: Program,
        planned: Mapping[int, Pipelined],
        launch: Launch,
        walked: Walked,
        schedule: Schedule,
        rates: Rates | None,
        fresh: float,
    ) -> None:
        self._record, self._lowered, self._planned = record, lowered, planned
        self._launch, self._walked, self._schedule = launch, walked, schedule
        self._rates, self._fresh = rates, fresh
        self._operations: dict[tuple[int, str, int], int] = {}
        self._described: list[Operation] = []
        order = sorted(range(len(schedule.timed)), key=lambda at: (schedule.timed[at].start, at))
        self._timed = [schedule.timed[at] for at in order]
        self._places = {old: new for new, old in enumerate(order)}

    def run(self) -> Pipeline:
        record, walked = self._record, self._walked
        numbers = [self._operation(timed) for timed in self._timed]
        loops = tuple(self._loop(site, number) for site, number in self._heads())
        released = self._released()
        events = tuple(
            Event(
                operation=number,
                iteration=timed.step.iteration,
                phase=_phase(timed, loops),
                slots=_slots_of(timed.step),
                start=timed.start,
                end=timed.end,
                landed=timed.landed,
                released=released.get(at, timed.landed),
                waits_for=tuple(self._places[other] for other in timed.waits_for),
                reason=timed.reason,
            )
            for at, (number, timed) in enumerate(zip(numbers, self._timed, strict=True))
        )
        return Pipeline(
            kernel=record.name,
            target=record.target,
            unit="steps" if self._rates is None else "cycles",
            launch=self._launch.number,
            launches=self._launch.count,
            grid=grid_of(self._launch.kernel),
            block=walked.block,
            roles=tuple(group.label for group in walked.groups),
            loops=loops,
            operations=tuple(self._described),
            events=events,
            assumptions=tuple(self._assumptions()),
            guessed=walked.guessed or self._schedule.stuck,
        )

    def _heads(self) -> list[tuple[int, int]]:
        """A site per number: loops of roles that work together have one."""
        heads: dict[int, int] = {}
        for site, number in self._launch.loops.items():
            heads.setdefault(number, site)
        return [(site, number) for number, site in sorted(heads.items())]

    # Operations

    def _operation(self, timed: Timed) -> int:
        step = timed.step
        key = (step.site, f"{step.kind} {step.how}", timed.group)
        number = self._operations.get(key)
        if number is None:
            number = self._operations[key] = len(self._described)
            line = self._line(step.site)
            self._described.append(
                Operation(
                    kind="compute" if step.kind is Kind.MOVE else str(step.kind),
                    text=self._text(line),
                    line=line,
                    role=self._walked.groups[timed.group].label,
                    how=step.how,
                    buffers=tuple(sorted({name for name, _ in step.writes or step.reads})),
                    bytes_=int(step.bytes_),
                    flops=int(step.flops),
                    loop=step.loop,
                    ahead=self._ahead(step.site),
                )
            )
        return number

    def _line(self, site: int) -> int:
        span = self._lowered.span(site)
        return span.line if span is not None else 0

    def _text(self, line: int) -> str:
        lines, at = self._record.source.splitlines(), line - self._record.first_line
        return lines[at].strip() if line and 0 <= at < len(lines) else ""

    def _ahead(self, site: int) -> int | None:
        for loop in self._planned.values():
            copies = [
                s for s in st.items(loop.body) if not isinstance(s, st.Let | st.Alloc | st.Alias)
            ]
            for stmt, stage in zip(copies, loop.stage, strict=True):
                if site in {below.site for below in statements(stmt) if below.site}:
                    return max(loop.stage) - stage
        return None

    # Times

    def _released(self) -> dict[int, float]:
        """When the last operation that reads what a copy brought has ended, by event."""
        ends: dict[int, float] = {}
        filled: dict[tuple[str, int], list[int]] = {}
        for at, timed in enumerate(self._timed):
            if timed.step.kind is Kind.COPY:
                for slot in timed.step.writes:
                    filled.setdefault(slot, []).append(at)
        for timed in self._timed:
            for slot in timed.step.reads:
                landed = [at for at in filled.get(slot, ()) if self._timed[at].landed <= timed.end]
                until = max(timed.end, timed.landed) if timed.step.started else timed.end
                for at in landed[-1:]:
                    ends[at] = max(ends.get(at, 0.0), until)
        return ends

    def _loop(self, site: int, number: int) -> Loop:
        mine = [timed for timed in self._timed if timed.step.loop == number]
        copies = [timed for timed in mine if timed.step.kind is Kind.COPY]
        work = [timed for timed in mine if timed.step.kind is Kind.PRODUCT]
        work = work or [timed for timed in mine if timed.step.kind in _WORK]
        first = min((timed.start for timed in mine), default=0.0)
        last = max((timed.landed for timed in mine), default=0.0)
        drain = max((timed.end for timed in copies), default=first)
        steady = min((timed.start for timed in work), default=first)
        period = _period(work)
        busy = self._busy(mine, period)
        planned = self._planned.get(site)
        stages = planned.num_stages if planned is not None else self._slots(mine)
        loop = next(
            s for s in statements(self._lowered.body) if isinstance(s, st.For) and s.site == site
        )
        return Loop(
            name=(planned or loop).var.name,
            line=self._line(site),
            iterations=self._walked.turns.get(number, 0),
            skipped=self._walked.skipped.get(number, 0),
            num_stages=stages,
            first=first,
            steady=min(steady, last),
            drain=max(drain, steady),
            last=last,
            period=period,
            busy=busy,
            limit=_limit(dict(busy), self._rates),
        )

    def _busy(self, mine: list[Timed], period: float) -> tuple[tuple[str, float], ...]:
        """The fractions of an iteration in which the path from memory and the tensor cores are
        busy.
        """
        if not period:
            return ()
        copies = products = 0.0
        seen: set[tuple[int, int]] = set()
        for timed in mine:
            key = (timed.step.site, timed.group)
            if key in seen or timed.step.kind not in (Kind.COPY, Kind.STORE, Kind.PRODUCT):
                continue
            seen.add(key)
            if timed.step.kind is Kind.PRODUCT:
                products += self._schedule.product_cycles(timed.step)
            else:
                copies += self._schedule.copy_cycles(timed.step)
        return (("copies", min(copies / period, 1)), ("products", min(products / period, 1)))

    @staticmethod
    def _slots(mine: list[Timed]) -> int:
        slots = [slot for timed in mine for slot in timed.step.writes]
        return max((stage for _, stage in slots), default=0) + 1

    def _assumptions(self) -> list[str]:
        walked, rates = self._walked, self._rates
        unit, warp = (rates.unit, rates.warp) if rates is not None else ("multiprocessor", "warp")
        texts = [f"One block, {walked.block}, alone on its {unit}."]
        if self._launch.count > 1:
            texts.insert(0, f"Launch {self._launch.number} of {self._launch.count}.")
        if rates is None:
            texts.append(
                f"The rates of '{self._record.target}' are not known here: every operation takes "
                "one step, and a copy lands one step later."
            )
        else:
            texts += [
                f"{rates.product}: {rates.multiprocessors} {rates.units} at {rates.clock_mhz} "
                f"MHz, {rates.matrix_units} at their published peak.",
                f"Of what is copied {self._fresh * 100:.0f} % comes from memory, at this {unit}'s "
                f"share of {rates.memory_bytes:.1f} bytes per cycle, the rest from the L2 cache at "
                f"{rates.cache_bytes}; a copy lands {rates.latency} cycles after that.",
                f"Threads issue {rates.warps} instructions of {warp}s per cycle, in order; shared "
                f"memory serves {rates.shared_bytes} bytes per cycle.",
            ]
        if walked.guessed:
            texts.append("Sizes and conditions that only a call knows were guessed.")
        if self._schedule.stuck:
            texts.append("It ends where threads wait for what could not be foreseen.")
        return texts


def _slots_of(step: Step) -> tuple[Slot, ...]:
    """The stages that a step fills, or the registers that it loads; for other steps the stages that
    it reads.
    """
    registers = {(buffer.name, 0) for buffer in step.fetches}
    return tuple(sorted(step.writes or registers or step.reads))


def _period(work: list[Timed]) -> float:
    """The time from one iteration to the next in the steady state: that of the later half of the
    iterations.
    """
    starts: dict[int, float] = {}
    for timed in work:
        starts.setdefault(timed.step.iteration, timed.start)
    near = [
        (starts[after] - starts[before]) / (after - before)
        for before, after in pairwise(sorted(starts))
        if after == before + 1
    ]
    settled = near[len(near) // 2 :]
    return sum(settled) / len(settled) if settled else 0.0


def _phase(timed: Timed, loops: tuple[Loop, ...]) -> str:
    number = timed.step.loop
    if number < 0:
        return "before" if not loops or timed.start <= loops[0].first else "after"
    loop = loops[number]
    if timed.start < loop.steady and timed.step.kind is not Kind.PRODUCT:
        return "prologue"
    return "epilogue" if timed.start >= loop.drain else "steady"


def _limit(busy: Mapping[str, float], rates: Rates | None) -> str:
    """What an iteration waits for."""
    if not busy:
        return "too few iterations to tell"
    if rates is None:
        return "not known without rates"
    copies, products = busy["copies"], busy["products"]
    if max(copies, products) >= _FULL:
        return "copies from global memory" if copies >= products else f"the {rates.matrix_units}"
    if copies + products >= _FULL:
        return "copies and products in turn: more stages would let them overlap"
    return "latency: neither copies nor products are busy all the time"


# Traces


def recorder_for(
    record: CompileRecord, number: int, block: tuple[int, ...], limit: int
) -> TraceRecorder:
    """What records the threads of one block of launch `number`, which has a pipeline."""
    _, launch = _looked_at(record, number)
    products, groups = product_sites(record.program), thread_groups(launch.kernel)
    return TraceRecorder(block, groups, products, limit, parts=counted_parts(launch))


def _looked_at(record: CompileRecord, number: int) -> tuple[Program, Launch]:
    lowered = threads_program(record)
    assert lowered is not None, "the kernel has no pipeline"
    launches = find_launches(lowered, _planned(record))
    return lowered, next(launch for launch in launches if launch.number == number)


def read_trace(record: CompileRecord, number: int, recorder: TraceRecorder) -> Trace:
    """What was recorded of launch `number`, with the user's lines."""
    lowered, launch = _looked_at(record, number)
    roles = role_starts(launch.kernel)
    events = []
    for each in recorder.events_by_start():
        span = lowered.span(each.site)
        events.append(
            TraceEvent(
                kind="compute" if each.kind is Kind.MOVE else str(each.kind),
                how=each.how,
                line=span.line if span is not None else 0,
                role=group_label(*recorder.groups[each.group], roles),
                iteration=each.iteration,
                start=each.start,
                end=each.end,
                landed=max(each.landed, each.end),
            )
        )
    return Trace(
        kernel=record.name,
        target=record.target,
        block=recorder.block,
        events=tuple(events),
        limit=recorder.limit,
        dropped=recorder.dropped,
        launch=number,
    )
