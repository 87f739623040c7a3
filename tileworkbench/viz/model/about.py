""" "What am I looking at": a few sentences for each view that has none of its own, with the numbers
of this kernel. Views of memory have theirs beside what they count.
"""

from __future__ import annotations

from tileworkbench.bench.points import judge
from tileworkbench.bench.units import format_bytes, format_count
from tileworkbench.compiler.layout import Fragment
from tileworkbench.viz.model.code import helper_lines
from tileworkbench.viz.model.source import weighted
from tileworkbench.viz.model.text import passes_changed
from tileworkbench.viz.model.view import KernelView


def source(view: KernelView) -> str:
    """The kernel's text and its shading."""
    record = view.record
    count = len(record.source.splitlines())
    costs = [cost for cost in weighted(view) if cost["weight"] > 0]
    if not costs:
        return f"The {count} lines of your kernel. Click one to see what became of it."
    most = max(costs, key=lambda cost: cost["weight"])
    cached = (
        " Bytes of L1, L2, L3 and DRAM are estimated from the sizes of this machine's caches; no "
        "counter of the processor is read."
        if any(cost["l1_bytes"] > 0 for cost in costs)
        else ""
    )
    return (
        f"The {count} lines of your kernel. The number before a line is what it costs, and the "
        f"darker its ground, the more; {len(costs)} lines cost something. By a rough estimate of "
        "the time, with rates that are the same for every machine, most goes to line "
        f"{most['line']}, {100 * most['weight']:.0f} %; the roofline predicts the time on one "
        "machine. Click a line to see its intermediate representation after each pass and its "
        f"generated code.{cached}"
    )


def passes(view: KernelView) -> str:
    """The list of passes and the differences beside it."""
    changed, total = passes_changed(view.record)
    return (
        f"How the program of your kernel became code for {view.record.target}: {total} passes "
        f"rewrite it one after the other, and {changed} of them changed something here. Choose a "
        "pass to see the program before (left, − lines) and after it (right, + lines)."
    )


def layouts(view: KernelView) -> str:
    """The grid of elements."""
    tiles = ", ".join(buffer.name for buffer in view.layouts[:6])
    more = f" and {len(view.layouts) - 6} more" if len(view.layouts) > 6 else ""
    text = (
        f"Where each element of {len(view.layouts)} tile{'s' if len(view.layouts) != 1 else ''} "
        f"lives: {tiles}{more}. A cell is an element, in its row and column of the tile."
    )
    fragments = [each for each in view.layouts if isinstance(each.layout, Fragment)]
    if len(fragments) < len(view.layouts):
        text += " The number in it is its place in memory, counted in elements."
    if fragments:
        text += (
            f" {fragments[0].name} is in registers: the number is the thread of "
            f"{view.threads} that holds the element, s0, s1, ... the register there."
        )
    return (
        f"{text} The second picture is the hardware's: threads by registers, or memory in rows, "
        "with the element that each place holds. Black frames are what one instruction takes."
    )


def roofline(view: KernelView) -> str:
    """The ceilings and where the kernel stands."""
    assert view.machine is not None  # see `roofline_missing`
    point = view.points[0]
    verdict = judge(point, view.machine)
    work = ""
    if view.intensity is not None and view.flops is not None and view.bytes_ is not None:
        work = (
            f" This kernel does {format_count(view.flops.value)} operations on "
            f"{format_bytes(view.bytes_.value)}, {format_count(view.intensity)} per byte, which is "
            "how far right it stands."
        )
    how = "it is expected to reach" if point.predicted else "it reaches"
    return (
        "How fast any kernel can be on this machine: slanted lines are what each memory can "
        f"deliver, flat ones what arithmetic can do, and no point is above them.{work} The higher, "
        f"the faster: {how} {100 * verdict.fraction:.0f} % of what is possible there."
    )


def code(view: KernelView) -> str:
    """The generated text."""
    text = view.record.code
    helpers = helper_lines(text, view.record.entry)
    language = "LLVM IR" if view.target_kind == "cpu" else "CUDA C++"
    folded = f" The first {helpers} lines are helpers and folded." if helpers else ""
    named = (
        " A comment names the line of your kernel that the code below it comes from; click the "
        "code to mark that line in all views."
        if "// line " in text
        else ""
    )
    return (
        f"The {len(text.splitlines())} lines of {language} that were generated for "
        f"{view.record.target}.{folded}{named}"
    )
