"""The playground: typed layouts, an operation on them and its result, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.compiler.layout.cute import cute_text
from tileworkbench.compiler.layout.expression import TABLE_LIMIT, layout_expression
from tileworkbench.compiler.layout.maps import TableMap
from tileworkbench.compiler.layout.operations import OPERATIONS, Takes, apply_operation
from tileworkbench.compiler.machine.operands import (
    instruction_names,
    looks_like_instruction,
    whole_name,
)
from tileworkbench.viz.model import html
from tileworkbench.viz.model.layout import badges, layout_figure, layout_model
from tileworkbench.viz.model.packing import as_text
from tileworkbench.viz.model.text import clip
from tileworkbench.viz.model.typed_layout import check_size, read_layout, read_other
from tileworkbench.workbench.results import BufferLayout

EXAMPLES = (
    "(4,(2,2)):(2,(1,8))",
    "((4,2),(2,2)):((2,16),(1,8))",
    "Sw<3,3,3> o (8,64):(64,1)",
    "T.Layout((8, 8), lambda i, j: (i, i ^ j))",
    "Layout.swizzled((16, 32), 16, 64)",
    "ldmatrix.x4",
)
_ABOUT = (
    "Layouts without a kernel. A field reads CuTe's shape and strides, (4,(2,2)):(2,(1,8)); a "
    "swizzle of a layout, Sw<3,3,3> o (8,64):(64,1); an operand of an instruction, "
    "mma.m16n8k16.f16 A or ldmatrix.x4; and Python with your own names, T.Layout((8, 8), lambda i, "
    "j: (i, i ^ j)). A grid shows the offset of each element, or the thread and slot that hold it; "
    "pointing at one marks it in the other grids. The result's code can be pasted into a kernel. "
    "Texts are read a moment after the last key; Python runs in the kernel then."
)
_HTML_BYTES = 48_000  # of pictures in a saved notebook
_SHOWN = 16  # rows and columns of a grid in plain text


@dataclass(frozen=True, slots=True)
class Typed:
    """What was typed: a layout, the name of an operation, what it takes beside the layout, and how
    many bytes an element has, for banks.
    """

    layout: str
    operation: str = ""
    other: str = ""
    element_bytes: int = 2

    @property
    def takes(self) -> Takes:
        """What the operation takes beside the layout.

        Raises:
            LayoutError: there is no such operation.
        """
        if not self.operation:
            return Takes.NOTHING
        if self.operation not in OPERATIONS:
            message = f"'{self.operation}' is no operation on layouts."
            raise LayoutError(message, hint=f"One of {', '.join(OPERATIONS)}")
        return OPERATIONS[self.operation].takes

    @property
    def formula(self) -> str:
        """``compose(A, B)``, ``complement(A, 24)``."""
        second = {Takes.LAYOUT: ", B", Takes.NOTHING: ""}
        other = second.get(self.takes, f", {self.other.strip()}" if self.other.strip() else "")
        return f"{self.operation}(A{other})"


@dataclass(frozen=True, slots=True)
class Sheet:
    """One layout of the playground: ``A``, ``B`` or the result, and the text it was typed as."""

    label: str
    layout: Layout | Fragment
    typed: str = ""

    @property
    def named(self) -> str:
        """What the short name of an instruction was read as; empty for all others."""
        text = self.typed.strip("'\" ")
        if not isinstance(self.layout, Fragment) or not looks_like_instruction(text):
            return ""
        whole = whole_name(text)
        return f"read as {whole}" if whole != text else ""

    @property
    def cute(self) -> str:
        """CuTe's text; empty for a fragment, and where CuTe has none."""
        return cute_text(self.layout) if isinstance(self.layout, Layout) else ""

    @property
    def code(self) -> str:
        """The expression that gives the layout back; empty where it would be too long."""
        return layout_expression(self.layout)


def read_sheets(typed: Typed, names: Mapping[str, Any]) -> tuple[tuple[Sheet, ...], Any]:
    """The layouts in order, the result last, and what the operation took beside ``A``.

    Raises:
        LayoutError: a text is wrong, or the operation is not defined for these inputs.
    """
    sheets = [Sheet("A", read_layout(typed.layout, names), typed.layout.strip())]
    if not typed.operation:
        return tuple(sheets), None
    other = read_other(typed.takes, typed.other, names)
    if typed.takes is Takes.LAYOUT:
        sheets.append(Sheet("B", other, typed.other.strip()))
    return (*sheets, result_sheet(typed, sheets[0].layout, other)), other


def result_sheet(typed: Typed, layout: Layout | Fragment, other: Any) -> Sheet:
    """What the operation makes.

    Raises:
        LayoutError: it is not defined for these inputs, or too large.
    """
    made = apply_operation(typed.operation, layout, other)
    check_size(made)
    return Sheet(typed.formula, made)


def _buffer(sheet: Sheet, element_bytes: int) -> BufferLayout:
    return BufferLayout(sheet.label, sheet.layout, sheet.typed, element_bytes)


# For the browser


def menu() -> dict[str, Any]:
    """What the page offers: operations with what they take, examples, names of instructions."""
    operations = [
        {"name": name, "takes": each.takes.value, "makes": each.makes, "example": each.example}
        for name, each in OPERATIONS.items()
    ]
    named = [name if "matrix" in name else f"{name} A" for name in instruction_names()]
    return {"operations": operations, "examples": [*EXAMPLES, *named], "about": _ABOUT}


def play_model(content: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The sheets of what was typed, each with its data or with what is wrong, as JSON.

    `content` has the fields of `Typed`, and `lead`: for each sheet the indices of the dimensions
    before the last two.
    """
    texts = {key: str(content.get(key, "")) for key in ("layout", "operation", "other")}
    typed = Typed(**texts, element_bytes=_bytes(content))
    leads = content.get("lead") or {}
    sheets: dict[str, Any] = {}

    def show(part: str, sheet: Sheet) -> Sheet:
        sheets[part] = sheet_model(sheet, typed.element_bytes, leads.get(part, ()))
        return sheet

    part = "layout"
    try:
        first = show(part, Sheet("A", read_layout(typed.layout, names), typed.layout))
        if typed.operation:
            part = "other"
            other = read_other(typed.takes, typed.other, names)
            if typed.takes is Takes.LAYOUT:
                show(part, Sheet("B", other, typed.other))
            part = "result"
            show(part, result_sheet(typed, first.layout, other))
    except LayoutError as error:
        sheets[part] = {"problem": problem(error)}
    return sheets


def _bytes(content: Mapping[str, Any]) -> int:
    given = content.get("element_bytes", 2)
    return given if given in (1, 2, 4, 8, 16) else 2


def problem(error: LayoutError) -> dict[str, Any]:
    """An error as data, with the characters of the text that it is about (-1: with all)."""
    span = error.span
    place = (span.column, span.end_column) if span else (-1, -1)
    return {"message": error.message, "hint": error.hint or "", "start": place[0], "end": place[1]}


def sheet_model(sheet: Sheet, element_bytes: int, lead: Sequence[int] = ()) -> dict[str, Any]:
    """One sheet for the browser, its tables as base64 text."""
    model = layout_model(_buffer(sheet, element_bytes), lead)
    outputs = list(sheet.layout.output_shape) if isinstance(sheet.layout, Layout) else []
    code = sheet.code
    missing = f"No formula, and a table of more than {TABLE_LIMIT} places is too long to paste."
    return {
        **as_text(model),
        "outputs": outputs,
        "named": sheet.named,
        "cute": sheet.cute,
        "code": code,
        "cell": cell_of(sheet) if code else "",
        "why_no_code": "" if code else missing,
    }


def cell_of(sheet: Sheet) -> str:
    """A cell that makes the layout, and says how a kernel uses it."""
    kind = "fragment" if isinstance(sheet.layout, Fragment) else "tile"
    shape = "x".join(map(str, sheet.layout.shape))
    use = f"In a kernel with a {kind} of {shape}: T.annotate_layout({{{kind}: layout}})"
    if isinstance(sheet.layout.mapping, TableMap):
        use = "It has no formula, which kernels need."
    return f"import tileworkbench.language as T\n\nlayout = {sheet.code}\n# {use}\n"


# Without a browser


def play_html(sheets: Sequence[Sheet], element_bytes: int) -> str:
    """Pictures of the sheets, with formulas and the result's code, as sanitiser-safe HTML.

    The result comes first where there is not room for the pictures of all.
    """
    parts: dict[str, str] = {}
    room = _HTML_BYTES
    for sheet in reversed(sheets):
        figure = layout_figure(_buffer(sheet, element_bytes))
        if len(figure) > room:
            note = f"{sheet.label}: a picture of it would be too large for a notebook"
            figure = html.tag("div", html.FAINT, html.text(note))
        room -= len(figure)
        lines = (line for line in (sheet.named, sheet.cute, str(sheet.layout)) if line)
        style = f"{html.MONO};font-size:11px;max-width:420px;overflow:auto"
        below = "".join(html.tag("div", style, html.text(clip(line, 400))) for line in lines)
        outer = "display:inline-block;vertical-align:top"
        parts[sheet.label] = html.tag("div", outer, figure, below)
    code = sheets[-1].code
    figures = (parts[sheet.label] for sheet in sheets)
    return html.panel(*figures, html.code_block([html.text(clip(code, 4000))]) if code else "")


def play_text(sheets: Sequence[Sheet]) -> str:
    """The sheets as text: what they are, and their numbers."""
    blocks = []
    for sheet in sheets:
        facts = ", ".join(badges(sheet.layout)).replace("×", "x")
        head = f"{sheet.label} = {sheet.typed}" if sheet.typed else sheet.label
        facts_of = (sheet.named, sheet.cute, str(sheet.layout), facts)
        lines = [line for line in facts_of if line]
        grid = [f"    {line}".rstrip() for line in _grid(sheet.layout)]
        blocks.append("\n".join([head, *(f"    {line}" for line in lines), *grid]))
    code = sheets[-1].code
    return "\n\n".join([*blocks, *([code] if code else [])])


def _grid(layout: Layout | Fragment) -> Iterator[str]:
    """Rows of offsets, or of ``thread:slot``, under the numbers of the columns."""
    lead = (0,) * max(layout.rank - 2, 0)
    rows, columns = (1, *layout.shape)[-2:]
    cells = [["", *map(str, range(min(columns, _SHOWN)))]]
    for i in range(min(rows, _SHOWN)):
        places = [(*lead, *(i, j)[-layout.rank :]) for j in range(min(columns, _SHOWN))]
        cells.append([str(i), *(_place_text(layout, place) for place in places)])
    if lead:
        yield f"[{', '.join(map(str, lead))}, :, :]"
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        more = " …" if columns > _SHOWN else ""
        yield " ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) + more
    if rows > _SHOWN:
        yield "…"


def _place_text(layout: Layout | Fragment, index: Sequence[int]) -> str:
    if isinstance(layout, Fragment):
        return f"{layout.thread_of(*index)}:{layout.slot_of(*index)}"
    return str(layout.offset(*index))
