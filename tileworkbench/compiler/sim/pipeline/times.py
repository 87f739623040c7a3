"""When each step of a block's threads begins and ends, by the rates of a machine.

Threads issue in order. Copies share one path from global memory and land after its latency, matrix
instructions share the tensor cores, and a group that waits goes on when all that it waits for is
complete. Without rates every step takes 1 and a copy lands 1 later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.machine.rates import Rates
from tileworkbench.compiler.sim.pipeline.leaves import Kind
from tileworkbench.compiler.sim.pipeline.walk import Group, Slot, Step


@dataclass(slots=True)
class Timed:
    """A step with its times, in cycles. `landed` is when its data have come, `waits_for` are the
    copies (positions in the list) that it waits for, `reason` is what it waits for in words.
    """

    group: int
    step: Step
    start: float
    end: float
    landed: float
    waits_for: tuple[int, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class _Phases:
    """An mbarrier: when each of its phases was complete, and the copies (positions in the list)
    whose bytes it waited for.
    """

    count: int
    arrived: int = 0
    bytes_: float = 0
    latest: float = 0
    copies: list[int] = field(default_factory=list)
    done: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)

    def arrive(self, number: int, bytes_: float, at: float) -> None:
        """`number` arrivals; the phase waits for `bytes_` more, or has got them."""
        self.arrived += number
        self.bytes_ += bytes_
        self.latest = max(self.latest, at)
        while self.arrived >= self.count > 0 and self.bytes_ <= 0:
            self.arrived -= self.count
            self.done.append((self.latest, tuple(self.copies)))
            self.copies.clear()

    def bring(self, copy: int, bytes_: float, at: float) -> None:
        """The bytes of a copy are there."""
        self.copies.append(copy)
        self.arrive(0, -bytes_, at)

    def completed(self, parity: int) -> tuple[float, tuple[int, ...]] | None:
        """When the phase of that parity was complete and with which copies, None where it is
        open.
        """
        if len(self.done) & 1 == parity:
            return None
        return self.done[-1] if self.done else (0.0, ())


@dataclass(slots=True)
class _Queue:
    """Operations of an engine: not committed yet, and in committed groups."""

    open: list[int] = field(default_factory=list)
    committed: list[list[int]] = field(default_factory=list)
    waited: int = 0


@dataclass(slots=True)
class _Thread:
    """How far a group of threads has come, and what it has started; `loading` has the copies
    (positions in the list) that fill registers.
    """

    number: int
    group: Group
    now: float = 0
    at: int = 0
    since: float = 0
    queues: dict[str, _Queue] = field(default_factory=dict)
    loading: dict[Buffer, int] = field(default_factory=dict)

    def queue(self, engine: str) -> _Queue:
        """What one engine does for them."""
        return self.queues.setdefault(engine, _Queue())


class Schedule:
    """The steps of all groups with their times; `stuck`: some wait for what never comes."""

    def __init__(
        self,
        groups: tuple[Group, ...],
        barriers: Mapping[Slot, int],
        rates: Rates | None,
        fresh: float,
    ) -> None:
        self.timed: list[Timed] = []
        self.copies_busy = self.products_busy = 0.0  # until then
        self._rates, self._fresh = rates, fresh
        self._threads = [_Thread(number, group) for number, group in enumerate(groups)]
        self._total = sum(group.count for group in groups)
        self._phases = {place: _Phases(count) for place, count in barriers.items()}
        self._meetings: dict[int, list[tuple[_Thread, int]]] = {}
        self.stuck = False
        self._run()

    def _run(self) -> None:
        while True:
            waiting = [t for t in self._threads if t.at < len(t.group.steps)]
            # Groups that are behind go first, so that they get the shared engines first.
            for thread in sorted(waiting, key=lambda each: each.now):
                if self._advance(thread):
                    break
            else:
                self.stuck = bool(waiting)
                return

    # What a step takes

    def copy_cycles(self, step: Step) -> float:
        """How long the path from global memory is busy."""
        return 1.0 if self._rates is None else self._rates.copy_cycles(step.bytes_, self._fresh)

    def issue_cycles(self, step: Step) -> float:
        """How long the threads are busy."""
        if self._rates is None:
            return 1.0
        rates = self._rates
        return max(step.issues / rates.warps, step.shared_bytes / rates.shared_bytes)

    def product_cycles(self, step: Step) -> float:
        """How long the tensor cores, or the threads, are busy with a product."""
        rates = self._rates
        if rates is None:
            return 1.0
        name = "float8" if step.dtype.startswith("float8") else step.dtype
        rate = rates.flops.get(name)
        return max(self.issue_cycles(step), step.flops / rate if rate else 0)

    # Steps

    def _advance(self, thread: _Thread) -> bool:
        """Do the next step of a group; False where it has to wait."""
        step = thread.group.steps[thread.at]
        self._wait_for_registers(thread, step)
        match step.kind:
            case Kind.COPY | Kind.STORE:
                self._transfer(thread, step)
            case Kind.PRODUCT:
                self._product(thread, step)
            case Kind.COMMIT:
                assert isinstance(step.stmt, simt.CommitGroup)
                queue = thread.queue(step.stmt.engine)
                queue.committed.append(queue.open)
                queue.open = []
            case Kind.SIGNAL:
                if step.place in self._phases:
                    self._phases[step.place].arrive(step.amount, step.expected, thread.now)
                self._note(thread, step, thread.now, thread.now)
            case Kind.WAIT:
                return self._wait(thread, step)
            case _:
                self._note(thread, step, thread.now, thread.now + self.issue_cycles(step))
        thread.at += 1
        return True

    def _note(self, thread: _Thread, step: Step, start: float, end: float) -> Timed:
        made = Timed(thread.number, step, start, end, end)
        self.timed.append(made)
        thread.now = end
        return made

    def _transfer(self, thread: _Thread, step: Step) -> None:
        begin = max(thread.now, self.copies_busy)
        issued = thread.now + self.issue_cycles(step)
        latency = 1 if self._rates is None else self._rates.latency
        self.copies_busy = begin + self.copy_cycles(step)
        landed = max(self.copies_busy + latency, issued)
        # The threads wait for what they store to shared memory themselves.
        behind = step.kind is Kind.COPY and not step.started and not step.fetches
        made = self._note(thread, step, thread.now, landed if behind else issued)
        self._started(thread, made, landed)
        thread.loading |= dict.fromkeys(step.fetches, len(self.timed) - 1)

    def _wait_for_registers(self, thread: _Thread, step: Step) -> None:
        """Threads go on after a load until a statement uses its registers."""
        copies = sorted({thread.loading.pop(each) for each in step.uses if each in thread.loading})
        landed = max((self.timed[at].landed for at in copies), default=thread.now)
        if landed <= thread.now:
            return
        waiting = Step(
            Kind.WAIT, "registers", site=step.site, loop=step.loop, iteration=step.iteration,
            threads=step.threads,
        )  # fmt: skip
        made = self._note(thread, waiting, thread.now, landed)
        made.waits_for, made.reason = tuple(copies), "loads to registers"

    def _product(self, thread: _Thread, step: Step) -> None:
        start = max(thread.now, self.products_busy)
        end = self.products_busy = start + self.product_cycles(step)
        if step.started:  # the threads go on
            issued = thread.now + self.issue_cycles(step)
            self._started(thread, self._note(thread, step, thread.now, issued), end)
        else:
            self._note(thread, step, start, end)

    def _started(self, thread: _Thread, made: Timed, landed: float) -> None:
        """Note that what was issued is complete at `landed`: somebody may wait for that."""
        step, number = made.step, len(self.timed) - 1
        made.landed = landed
        if step.place in self._phases:
            self._phases[step.place].bring(number, step.bytes_, landed)
        elif step.started:
            thread.queue(step.engine).open.append(number)

    def _wait(self, thread: _Thread, step: Step) -> bool:
        if isinstance(step.stmt, simt.WaitGroup):
            self._wait_for_groups(thread, step, step.stmt.engine)
            return True
        if isinstance(step.stmt, simt.Barrier):
            return self._wait_at_barrier(thread, step, step.stmt)
        if isinstance(step.stmt, simt.BarrierWait) and step.place in self._phases:
            phases = self._phases[step.place]
            completed = phases.completed(step.amount)
            if completed is None:
                return False
            done, copies = completed
            made = self._note(thread, step, thread.now, max(thread.now, done))
            made.waits_for = copies
            name, at = step.place
            made.reason = f"phase {len(phases.done) - 1} of {name}[{at}]"
            if not phases.done:
                made.reason = f"{name}[{at}], which is free in the beginning"
        else:  # within a warp, or of blocks that are not looked at
            self._note(thread, step, thread.now, thread.now).reason = step.how
        thread.at += 1
        return True

    def _wait_for_groups(self, thread: _Thread, step: Step, engine: str) -> None:
        queue = thread.queue(engine)
        until = len(queue.committed) - step.amount
        started = [at for group in queue.committed[queue.waited : max(until, 0)] for at in group]
        queue.waited = max(queue.waited, until)
        landed = max([thread.now, *(self.timed[at].landed for at in started)])
        made = self._note(thread, step, thread.now, landed)
        made.waits_for = tuple(started)
        made.reason = f"{step.how}, all but the latest {step.amount} groups"
        thread.at += 1

    def _wait_at_barrier(self, thread: _Thread, step: Step, stmt: simt.Barrier) -> bool:
        here = self._meetings.setdefault(stmt.id, [])
        if all(other is not thread for other, _ in here):
            here.append((thread, len(self.timed)))
            self._note(thread, step, thread.now, thread.now)
            if not stmt.wait:
                thread.at += 1
        expected = stmt.count or self._total
        if sum(self.timed[at].step.threads for _, at in here) < expected:
            return not stmt.wait
        del self._meetings[stmt.id]
        latest = max(self.timed[at].end for _, at in here)
        for other, at in here:
            waited_at = self.timed[at].step.stmt
            if isinstance(waited_at, simt.Barrier) and waited_at.wait:
                other.now = self.timed[at].end = self.timed[at].landed = latest
                other.at += 1
            self.timed[at].reason = f"{expected} threads at barrier {stmt.id}"
        return True
