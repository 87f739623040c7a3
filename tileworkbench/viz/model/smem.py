"""The shared memory of a block as a view: buffers over address and time, and what would fit."""

from __future__ import annotations

from typing import Any

from tileworkbench.bench.units import format_bytes
from tileworkbench.compiler.machine.tables import ARCHITECTURES, machine_of
from tileworkbench.viz.model import html
from tileworkbench.viz.model.smem_svg import HEIGHT, WIDTH, smem_svg
from tileworkbench.viz.model.svg import THEMED, as_image
from tileworkbench.viz.model.view import KernelView

_STAGES = 4  # numbers of stages that a comparison tells of


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where there is."""
    return "" if view.shared is not None else "the kernel has no buffer in shared memory"


def limits() -> dict[str, list[str]]:
    """Bytes of shared memory that a block may have, and the architectures that have as many."""
    found: dict[int, list[str]] = {}
    for arch in ARCHITECTURES:
        found.setdefault(machine_of(arch).shared.most, []).append(arch)
    return {str(bytes_): found[bytes_] for bytes_ in sorted(found)}


def model(view: KernelView) -> dict[str, Any]:
    """The drawing, a row per buffer, and sentences about limits, stages and occupancy."""
    shared = view.shared
    assert shared is not None  # see `missing`
    return {
        **shared.to_dict(),
        "svg": smem_svg(shared, limits(), THEMED),
        "about": about(view),
        "sentences": sentences(view),
        "occupancy": None if view.occupancy is None else view.occupancy.to_dict(),
    }


def about(view: KernelView) -> str:
    """What the picture means, with this kernel's numbers."""
    shared = view.shared
    assert shared is not None
    count = len(shared.buffers)
    return (
        f"Each box is a buffer: its height are the bytes it takes, its width the statements of a "
        f"block between its first and its last use. {count} buffer{'s' if count != 1 else ''} "
        f"take {format_bytes(shared.bytes_)}; boxes one above the other are in use at once, boxes "
        "side by side share their bytes. Dashed lines are what a block may have on a GPU."
    )


def sentences(view: KernelView) -> list[str]:
    """Sharing, other numbers of stages, and occupancy, a sentence each."""
    shared = view.shared
    assert shared is not None
    found = []
    apart = sum(buffer.bytes_ for buffer in shared.buffers) - shared.bytes_
    if apart > 0:
        found.append(f"Sharing bytes saves {format_bytes(apart)}.")
    versions = max(buffer.versions for buffer in shared.buffers)
    for number, bytes_ in shared.stages:
        if number in (versions - 1, versions + 1) and number > 0:
            found.append(f"num_stages = {number} would need {format_bytes(bytes_)}.")
    if view.target_kind == "cpu":
        size = format_bytes(view.shared_bytes)
        found.append(
            f"On this target the tiles of a block are ordinary memory of a worker ({size} as "
            "written): they are fast while they fit its L1 and L2 caches."
        )
    occupancy = view.occupancy
    if occupancy is not None:
        found.append(
            f"On {occupancy.arch} a multiprocessor holds {occupancy.blocks} "
            f"block{'s' if occupancy.blocks != 1 else ''} at once, {occupancy.warps} of "
            f"{occupancy.warps_most} warps ({occupancy.fraction * 100:.0f} %); the limit is "
            f"{occupancy.limited_by}."
        )
        if occupancy.advice:
            found.append(f"{occupancy.advice[0].upper()}{occupancy.advice[1:]}.")
    return found


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of the buffers, of other numbers of stages, and of occupancy."""
    shared, held = view.shared, view.occupancy
    assert shared is not None
    found = {"all buffers": format_bytes(shared.bytes_)}
    for buffer in shared.buffers:
        stages = f", {buffer.versions} stages" if buffer.versions > 1 else ""
        place = f"{format_bytes(buffer.bytes_)} at byte {buffer.offset}{stages}"
        also = f", bytes shared with {', '.join(buffer.shares)}" if buffer.shares else ""
        found[buffer.name] = place + also
    for number, bytes_ in shared.stages[:_STAGES]:
        found[f"with num_stages = {number}"] = format_bytes(bytes_)
    if held is not None:
        found["blocks at once"] = f"{held.blocks}, limited by {held.limited_by}"
    return found


def section(view: KernelView, opened: bool = False) -> str:
    """The drawing and the sentences for readers without a kernel."""
    shared = view.shared
    assert shared is not None
    address = as_image(smem_svg(shared, limits()))
    names = ", ".join(f"{buffer.name} {format_bytes(buffer.bytes_)}" for buffer in shared.buffers)
    lines = [html.tag("div", "", html.text(text)) for text in sentences(view)]
    picture = html.image(address, f"shared memory over time: {names}", WIDTH, HEIGHT)
    explained = html.tag("div", f"{html.FAINT};font-size:12px", html.text(about(view)))
    note = format_bytes(shared.bytes_)
    return html.details("Shared memory", picture, *lines, explained, note=note, opened=opened)
