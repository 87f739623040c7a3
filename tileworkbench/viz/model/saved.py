"""What is kept of a kernel's views where no kernel is: in a saved page, and in an output.

`page.js` makes a model of it that answers what the kernel would have answered. In outputs it is
the data of the JupyterLab extension, packed and as much as there is room for; see
`extensions/README.md`.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from importlib.metadata import PackageNotFoundError, version
from itertools import islice, product
from typing import Any

import numpy as np

from tileworkbench.viz.model.assets import sheets
from tileworkbench.viz.model.card import card_model
from tileworkbench.viz.model.layout import layout_model
from tileworkbench.viz.model.layout_steps import layout_steps
from tileworkbench.viz.model.passes import PassBrowser
from tileworkbench.viz.model.roofline_view import roofline_model
from tileworkbench.viz.model.source import line_of
from tileworkbench.viz.model.source import model as source_model
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import VIEWS, available, view_model
from tileworkbench.workbench.results import BufferLayout

SLICE_LIMIT = 16  # slices of one buffer that are kept
STRIDE = 4  # bytes between those whose difference is packed: most tables hold words

Parts = tuple[dict[str, Any], dict[str, Any]]


def saved_parts(view: KernelView) -> Parts:
    """The state of a card's model, and the answers to what its views ask."""
    browser = PassBrowser(view.record)
    shown = view.layouts[0] if view.layouts else None
    selected = browser.first_shown()
    record = view.record
    state = {
        "card": card_model(view),
        "tab": "source" if view.annotated else "card",
        "selection": {},
        "passes": browser.overview(live=True) | {"diff": browser.diff(selected)},
        "selected_pass": selected,
        "source": {"first": record.first_line, "lines": record.source.splitlines()},
        "layout_names": [
            {"name": buffer.name, "shape": list(buffer.layout.shape)} for buffer in view.layouts
        ],
        "layout_name": shown.name if shown else "",
        "layout_data": layout_model(shown) if shown else {},
        "layout_lead": [],
        "layout_copy": 0,
        "layout_note": "",
        "layout_steps": layout_steps(record),
        "selected_element": [],
        "selected_thread": -1,
        "thread_elements": [],
        "roofline": (
            roofline_model(view.points, view.machine) if view.machine and view.points else {}
        ),
    }
    answers = {
        "diffs": [browser.diff(index) for index in range(len(browser))],
        "trees": [browser.tree(index) for index in range(len(browser))],
        "views": {name: view_model(view, name) for name in available(view) if VIEWS[name].model},
        "layouts": {buffer.name: _slices(buffer) for buffer in view.layouts},
        "lines": {
            line: line_of(browser, line)
            for line in range(record.first_line, record.first_line + record.source.count("\n") + 1)
        },
    }
    return state, answers


def _slices(buffer: BufferLayout) -> dict[str, Any]:
    """The first slices of a buffer by the text of their leading indices, ``0,1``."""
    leads = product(*(range(extent) for extent in buffer.layout.shape[:-2]))
    return {
        ",".join(map(str, lead)): layout_model(buffer, lead) for lead in islice(leads, SLICE_LIMIT)
    }


def saved_card(view: KernelView, room: int) -> dict[str, Any] | None:
    """What the extension draws a card from, in `room` bytes; None where that is too few for any.

    Trees of passes are left out first, then what became of each line, then the largest of the
    views and of what all passes changed; they say so.
    """
    state, answers = saved_parts(view)
    packed = pack((state, answers))
    for part in ("trees", "lines"):
        if len(packed) > room:
            del answers[part]
            packed = pack((state, answers))
    parts = [(answers, "diffs"), *((answers["views"], name) for name in answers["views"])]
    parts.sort(key=lambda part: len(pack(part[0][part[1]])))
    while len(packed) > room and parts:
        holder, name = parts.pop()
        del holder[name]
        packed = pack((state, answers))
    if len(packed) > room:
        return None
    return {
        "version": _version(),
        "styles": list(sheets("card")),
        "packed": packed,
    }


def saved_lines(view: KernelView) -> dict[str, str]:
    """What the extension shows beside the lines of the cell: small, and always kept."""
    return {"version": _version(), "lines": pack(source_model(view)) if view.record.source else ""}


def _version() -> str:
    """The version of this package, or "unknown" where it is not installed."""
    try:
        return version("tileworkbench")
    except PackageNotFoundError:
        return "unknown"


def pack(value: Any) -> str:
    """JSON and the tables in it as compressed base64 text; `unpack` in the extension undoes it.

    Little-endian length of the JSON (4 bytes), JSON, tables; in the JSON a table is ``{"$bytes":
    [offset, count]}``. Rows of a table differ little, so each byte is stored as its difference to
    the one `STRIDE` before it: an attention kernel's layouts take 2 KB instead of 100.
    """
    tables = bytearray()

    def table(data: object) -> dict[str, Any]:
        if not isinstance(data, bytes):
            raise TypeError(f"cannot save a {type(data).__name__}")
        values = np.frombuffer(data, np.uint8)
        differences = values.copy()
        differences[STRIDE:] -= values[:-STRIDE]
        place = {"$bytes": [len(tables), len(data)]}
        tables.extend(differences.tobytes())
        return place

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=table).encode()
    content = len(text).to_bytes(4, "little") + text + bytes(tables)
    return b64encode(zlib.compress(content, 9)).decode("ascii")
