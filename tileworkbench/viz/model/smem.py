"""The shared memory of a block as a view: buffers over address and time, and what would fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tileworkbench.bench.units import format_bytes, format_percent
from tileworkbench.compiler.analysis.occupancy import Occupancy, occupancy
from tileworkbench.compiler.machine.rates import rates_of
from tileworkbench.compiler.machine.tables import ARCHITECTURES, machine_of
from tileworkbench.compiler.schedule.shared_memory import SharedMemory
from tileworkbench.viz.model import html
from tileworkbench.viz.model.smem_svg import WIDTH, smem_svg
from tileworkbench.viz.model.svg import THEMED, as_image
from tileworkbench.viz.model.text import numbered
from tileworkbench.viz.model.view import KernelView

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.pipeline.model import Pipeline

_STAGES = 4  # numbers of stages that a comparison tells of


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where there is."""
    return "" if view.shared else "the kernel has no buffer in shared memory"


def limits() -> dict[str, list[str]]:
    """Bytes of shared memory that a block may have, and the architectures that have as many."""
    by_size: dict[int, list[str]] = {}
    for arch in ARCHITECTURES:
        by_size.setdefault(machine_of(arch).shared.most, []).append(arch)
    return {str(bytes_): by_size[bytes_] for bytes_ in sorted(by_size)}


def model(view: KernelView) -> dict[str, Any]:
    """The drawing, a row per buffer, and sentences about limits, stages and occupancy; of the first
    launch that has shared memory.
    """
    return _model(view, view.shared[0])


def launch_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """The same of the launch that is asked for."""
    return _model(view, next(m for m in view.shared if m.launch == int(content["launch"])))


def _model(view: KernelView, shared: SharedMemory) -> dict[str, Any]:
    occupancy = held(view, shared)
    return {
        **shared.to_dict(),
        "choices": [[m.launch, launch_label(m, m.lines)] for m in view.shared],
        "svg": smem_svg(shared, limits(), THEMED),
        "about": about(shared),
        "sentences": sentences(view, shared),
        "occupancy": None if occupancy is None else occupancy.to_dict(),
    }


def launch_label(launch: SharedMemory | Pipeline, lines: Iterable[int]) -> str:
    """``launch 2 of 3 (line 14)``."""
    line = next((line for line in lines if line), 0)
    return f"launch {launch.launch} of {launch.launches}{f' (line {line})' if line else ''}"


def held(view: KernelView, shared: SharedMemory) -> Occupancy | None:
    """How many blocks of a launch a multiprocessor holds."""
    if view.occupancy is None or shared.launches == 1:
        return view.occupancy
    return occupancy(view.occupancy.arch, shared.threads, shared.bytes_)


def about(shared: SharedMemory) -> str:
    """What the picture means, with this kernel's numbers."""
    count = len(shared.buffers)
    return (
        f"Each box is a buffer: its height are the bytes it takes, its width the statements of a "
        f"block between its first and its last use. {count} buffer{'s' if count != 1 else ''} "
        f"take {format_bytes(shared.bytes_)}; boxes one above the other are in use at once, boxes "
        "side by side share their bytes. Dashed lines are what a block may have on a GPU."
    )


def sentences(view: KernelView, shared: SharedMemory) -> list[str]:
    """Sharing, other numbers of stages, and occupancy, a sentence each."""
    texts = []
    apart = sum(buffer.bytes_ for buffer in shared.buffers) - shared.bytes_
    if apart > 0:
        texts.append(f"Sharing bytes saves {format_bytes(apart)}.")
    for number, bytes_ in shared.stages:
        if abs(number - shared.num_stages) == 1 and number > 0:
            texts.append(f"num_stages = {number} would need {format_bytes(bytes_)}.")
    arch = view.record.target.partition(":")[2]
    if arch in ARCHITECTURES:
        most = machine_of(arch).shared.most
        share = f"{shared.bytes_ / most * 100:.0f} %"
        texts.append(
            f"It takes {share} of the {format_bytes(most)} that a block may have on {arch}."
        )
    if view.target_kind == "cpu":
        size = format_bytes(view.shared_bytes)
        texts.append(
            f"On this target the tiles of a block are ordinary memory of a worker ({size} as "
            "written; with what the compiler adds, see 'scratch' on the card). They are fast while "
            "they fit its L1 and L2 caches."
        )
    blocks = held(view, shared)
    if blocks is not None:
        rates = rates_of(blocks.arch)
        unit, warp = (rates.unit, rates.warp) if rates is not None else ("multiprocessor", "warp")
        texts.append(
            f"On {blocks.arch} a {unit} holds {blocks.blocks} "
            f"block{'s' if blocks.blocks != 1 else ''} at once, {blocks.warps} of "
            f"{blocks.warps_most} {warp}s ({format_percent(blocks.fraction)}); the limit is "
            f"{blocks.limited_by}."
        )
        if blocks.advice:
            texts.append(f"{blocks.advice[0].upper()}{blocks.advice[1:]}.")
    return texts


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of the buffers, of other numbers of stages, and of occupancy."""
    return numbered(row for shared in view.shared for row in _rows(view, shared))


def _rows(view: KernelView, shared: SharedMemory) -> Iterator[tuple[str, str]]:
    yield "all buffers", format_bytes(shared.bytes_)
    for buffer in shared.buffers:
        stages = f", {buffer.versions} stages" if buffer.versions > 1 else ""
        place = f"{format_bytes(buffer.bytes_)} at byte {buffer.offset}{stages}"
        also = f", bytes shared with {', '.join(buffer.shares)}" if buffer.shares else ""
        yield buffer.name, place + also
    for number, bytes_ in shared.stages[:_STAGES]:
        yield f"with num_stages = {number}", format_bytes(bytes_)
    if (blocks := held(view, shared)) is not None:
        yield "blocks at once", f"{blocks.blocks}, limited by {blocks.limited_by}"


def section(view: KernelView, opened: bool = False) -> str:
    """The drawing and the sentences of each launch for readers without a kernel."""
    parts = []
    for shared in view.shared:
        address = as_image(smem_svg(shared, limits()))
        names = ", ".join(f"{each.name} {format_bytes(each.bytes_)}" for each in shared.buffers)
        if shared.launches > 1:
            parts.append(html.tag("b", "", html.text(launch_label(shared, shared.lines))))
        parts.append(html.image(address, f"shared memory over time: {names}", WIDTH))
        parts += [html.tag("div", "", html.text(text)) for text in sentences(view, shared)]
        parts.append(html.tag("div", f"{html.FAINT};font-size:12px", html.text(about(shared))))
    note = format_bytes(max(shared.bytes_ for shared in view.shared))
    return html.details("Shared memory", *parts, note=note, opened=opened)
