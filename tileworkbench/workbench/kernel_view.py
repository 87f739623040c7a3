"""`Kernel.view`: a kernel and what was measured of it as plain data, for views to draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tileworkbench.bench.points import Trail
from tileworkbench.bench.units import rate_unit
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.lowering import EDITED
from tileworkbench.compiler.sim.report import AccessCount
from tileworkbench.viz.model.view import KernelView
from tileworkbench.workbench.counting import counted_for

if TYPE_CHECKING:
    from tileworkbench.bench.points import Machine, Point
    from tileworkbench.compiler.device.nvidia.nvrtc import KernelResources
    from tileworkbench.compiler.schedule.shared_memory import SharedMemory
    from tileworkbench.compiler.sim.footprint.result import Footprint
    from tileworkbench.workbench.kernel import Kernel
    from tileworkbench.workbench.validation import Validation


# Passes that note who does the copies and who starts them, and nothing else.
_SAY_WHO_COPIES = ("lower_to_threads", "specialize_warps")


def make_view(kernel: Kernel, roofline: bool) -> KernelView:
    """The data of all views; `roofline` measures the machine if that was not done yet."""
    from tileworkbench.bench.kernel import arithmetic_dtype

    stats, record = kernel.stats, kernel.record
    made = KernelView(
        record=record,
        grid="x".join(map(str, kernel.grid)),
        threads=kernel.threads,
        shared_bytes=stats.shared_bytes,
        scratch_bytes=stats.scratch_bytes,
        flops=stats.flops,
        bytes_=stats.bytes_,
        operation=rate_unit([arithmetic_dtype(kernel.program)])[1:-2],
        layouts=kernel._buffer_layouts,
        portable_layouts=kernel.target != "cpu",  # where the host chooses the vectors' width
        portable_code=_portable_code(kernel),
        accesses=_access_lines(kernel),
        requests=lambda: kernel.requests,
        unlisted=lambda: tuple((each.scope, each.text) for each in kernel.unlisted),
        resources=tuple(_resource_line(entry) for entry in stats.resources),
        edited=_edited(kernel),
        variants=(*_variant_lines(kernel), *_copy_lines(kernel)),
        shared=_shared_memories(kernel),
        pipelining=kernel,
        debugging=kernel,
        replays=kernel,
        line_traffic=kernel._counted if kernel._counts_lines else None,
        line=kernel._line,
        annotated=kernel._annotated,
        line_costs=lambda: [cost.to_dict() for cost in kernel.line_costs],
        occupancy=kernel.occupancy,
        check=kernel._check,
        errors=kernel.error_map,
        bisect=None if kernel._failed is None else _bisector(kernel, kernel._failed[1]),
        footprint=lambda block, records: footprint_of(kernel, block, records),
        masked=tuple((entry.text, entry.away or entry.from_data) for entry in kernel._masked),
        portable_masked=not kernel._masked_in_part,
        bench=None if kernel._bench is None else kernel._bench.record,
        place=lambda measures: place_of(kernel, measures),
    )
    machine, points = roofline_of(kernel, roofline)
    if machine is None or not points:
        return made
    return replace(made, machine=machine, points=_with_trail(kernel, machine, points))


def _with_trail(
    kernel: Kernel, machine: Machine, points: Sequence[Point]
) -> tuple[Point, ...]:
    """The points of a kernel with its earlier versions and what was counted of it."""
    trail = kernel.trail.on(machine.name)
    return tuple(replace(each, trail=trail, counted=counted_for(kernel, each)) for each in points)


def _edited(kernel: Kernel) -> str:
    """``code edited``, ``IR edited after plan_pipelines``: what an edit left of the original."""
    if kernel.compiled.options.code is not None:
        return "code edited"
    names = [snapshot.name for snapshot in kernel.record.snapshots]
    if EDITED not in names:
        return ""
    before = names[: names.index(EDITED)]
    return f"IR edited after {before[-1] if before else 'the front end'}"


def footprint_of(kernel: Kernel, block: int | None, records: bool) -> Footprint | None:
    """What was recorded of a call, or is now: of all blocks, or of one, on the same arguments."""
    if kernel._footprint is None or (block is None and records):
        if not records:
            return None
        kernel.footprint()
    assert kernel._footprint is not None
    footprint, args, alone = kernel._footprint
    if block is None:
        return footprint
    if block not in alone:
        alone.clear()  # one at a time: they are as large as the whole
        alone[block] = kernel.footprint(*args, blocks=(block,))
    return alone[block]


def _bisector(kernel: Kernel, args: Sequence[Any]) -> Callable[[bool], dict[str, Any]]:
    """What searches for the pass that broke the result of a call on `args`, a stage at a time."""
    steps: Iterator[Validation] = iter(())
    total = 1 + sum(snapshot.changed for snapshot in kernel.passes)

    def step(start: bool) -> dict[str, Any]:
        nonlocal steps
        from tileworkbench.workbench.validation import join_errors, validation_steps

        if start:
            steps = validation_steps(kernel, args)
        validation = next(steps, None)
        if validation is None:
            return {"done": 0, "total": total, "said": "the search was not started"}
        done = len(validation.stages)
        if done < total and validation.ok:
            return {"done": done, "total": total, "said": ""}
        join_errors(kernel, args, validation)
        return {
            "done": done,
            "total": total,
            "said": str(validation),
            "sentence": str(kernel.error_map),
        }

    return step


def roofline_of(kernel: Kernel, measures: bool) -> tuple[Machine | None, tuple[Point, ...]]:
    """The roofs and the kernel's points: measured where it was, else what a model expects.

    A GPU's roofs are published ones, which cost nothing; this machine's are measured, which is
    done only if it `measures`. Nothing where operations or bytes are not known.
    """
    on_cpu = kernel.compiled.target.kind == "cpu"
    return _on_cpu(kernel, measures) if on_cpu else _on_gpu(kernel)


def place_of(kernel: Kernel, measures: bool) -> tuple[Machine | None, tuple[Point, ...]]:
    """`roofline_of` with this machine's roofs where they are known; they are there without points
    too.
    """
    from tileworkbench.bench.ceilings import known_machine
    from tileworkbench.bench.published import published

    target = kernel.compiled.target
    if target.kind == "cpu" and not measures and known_machine() is None:
        return None, ()
    machine, points = roofline_of(kernel, True)
    if machine is not None:
        return machine, _with_trail(kernel, machine, points)
    return known_machine() if target.kind == "cpu" else published(target.arch), ()


def follow(kernel: Kernel, previous: Kernel | None, change: tuple[str, ...]) -> None:
    """Put `kernel` on the trail of `previous`, from which it differs by `change`.

    The place of `previous` is kept where it is known without measuring the machine.
    """
    from tileworkbench.bench.ceilings import known_machine
    from tileworkbench.bench.points import Machine, Point
    from tileworkbench.compiler.device.host.processor import machine_name
    from tileworkbench.viz.model.trail import next_trail

    if previous is None:
        kernel.trail = Trail(1)
        return
    machine, points = roofline_of(previous, known_machine() is not None)
    result = previous._bench
    if not points and result is not None and not math.isnan(result.flops + result.bytes_):
        # A measured time has a place under roofs that may be known later.
        time_us = 1e3 * result.median
        facts = (result.name, result.flops, result.bytes_, time_us, result.dtype, "DRAM")
        points = (Point(*facts, cold=result.cold),)
        machine = Machine(machine_name(), ())
    point = points[0] if points else None
    kernel.trail = next_trail(previous.trail, point, machine, change)


def _on_gpu(kernel: Kernel) -> tuple[Machine | None, tuple[Point, ...]]:
    from tileworkbench.bench.published import predicted_point, published

    arch, stats = kernel.compiled.target.arch, kernel.stats
    machine, causes = published(arch), kernel.causes
    if machine is None:
        return None, ()
    flops, bytes_ = stats.flops.value, stats.bytes_.value
    point = predicted_point(kernel.name, kernel.program, flops, bytes_, machine, causes)
    if point is None:
        return None, ()
    point = replace(point, traffic=tuple(kernel.traffic.items()))
    if kernel._bench is not None:
        time_us = 1e3 * kernel._bench.median
        point = replace(
            point,
            time_us=time_us,
            predicted_us=point.time_us,
            predicted=False,
            cold=kernel._bench.cold,
        )
    return machine, (point,)


def _on_cpu(kernel: Kernel, measures: bool) -> tuple[Machine | None, tuple[Point, ...]]:
    from tileworkbench.bench.ceilings import machine
    from tileworkbench.bench.kernel import arithmetic_dtype, host_peak
    from tileworkbench.bench.points import Point, least_us
    from tileworkbench.bench.roofline import home_level, result_points
    from tileworkbench.compiler.device.host.threads import get_num_threads

    if not measures:
        return None, ()
    causes, stats = kernel.causes, kernel.stats
    predicted_us = math.nan if causes is None else causes.total_us
    traffic = tuple(kernel.traffic.items())
    if kernel._bench is not None:
        measured = result_points(kernel._bench, machine())
        if kernel._bench.cold:  # the model is of a call whose data a call before it has left
            return machine(), measured
        return machine(), tuple(
            replace(point, predicted_us=predicted_us, causes=causes, traffic=traffic)
            for point in measured
        )
    if causes is None:
        return None, ()
    threads, bytes_ = get_num_threads(), stats.bytes_.value
    point = Point(
        kernel.name,
        stats.flops.value,
        bytes_,
        predicted_us,
        host_peak(arithmetic_dtype(kernel.program)),
        home_level(bytes_, threads, machine()),
        threads,
        predicted=True,
        causes=causes,
        traffic=traffic,
    )
    # Two threads of one core have a roof below twice that of one, which the model does not know.
    return machine(), (replace(point, time_us=max(predicted_us, least_us(point, machine()))),)


def _shared_memories(kernel: Kernel) -> tuple[SharedMemory, ...]:
    """None either where an extent is only known at run time."""
    try:
        return kernel.shared_memories
    except UnsupportedError:
        return ()


def _portable_code(kernel: Kernel) -> str:
    """The generated functions, where they are the same on every host."""
    if kernel.compiled.target.kind == "cpu":
        return ""
    code = kernel.source
    return code[max(code.find('extern "C"'), 0) :]


def _variant_lines(kernel: Kernel) -> tuple[str, ...]:
    """One line per variant, and which code the last call took."""
    compiled = kernel.compiled
    if not compiled.variants:
        return ()
    lines = {id(compiled): "code for every size"}
    for variant in compiled.variants:
        lines[id(variant)] = f"code where {' and '.join(variant.record.facts)}"
    return tuple(
        f"{line}: taken by the last call" if number == id(compiled.taken) else line
        for number, line in lines.items()
    )


def _copy_lines(kernel: Kernel) -> tuple[str, ...]:
    """Who does each copy where there is a copy engine, and why: "B: cp.async, because rows of 1000
    bytes are not multiples of 16 (copy, line 8)"; and which threads start those of a loop.
    """
    lines: list[str] = []
    for before, after in pairwise(kernel.record.snapshots):
        if after.name in _SAY_WHO_COPIES:
            known = set(before.program.notes)
            lines += (note for note in after.program.notes if note not in known)
    return tuple(lines)


def _access_lines(kernel: Kernel) -> tuple[str, ...]:
    """One line per tensor and shared buffer of a GPU kernel: its accesses and their cost."""
    if kernel.compiled.target.kind == "cpu":
        return ()
    by_buffer: dict[str, list[str]] = {}
    for access in kernel.accesses:
        if isinstance(access, AccessCount):
            waits = access.scope == "shared" and access.wavefronts > access.ideal
            alarm = " CONFLICT" if waits else ""
            by_buffer.setdefault(access.buffer, []).append(access.described + alarm)
    return tuple(f"{name}: {', '.join(dict.fromkeys(kinds))}" for name, kinds in by_buffer.items())


def _resource_line(function: KernelResources) -> str:
    spilled = function.spill_store_bytes + function.spill_load_bytes
    spills = f"{spilled} bytes spilled" if spilled else "no spills"
    return f"{function.name}: {function.registers} registers, {spills}"
