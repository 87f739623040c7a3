"""A kernel's card as one HTML file that works without a kernel and without a network."""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import islice, product
from pathlib import Path
from typing import Any

from tileworkbench.viz.model.assets import read_static, script, stylesheet
from tileworkbench.viz.model.card import card_model
from tileworkbench.viz.model.html import text
from tileworkbench.viz.model.layout import layout_model
from tileworkbench.viz.model.passes import PassBrowser
from tileworkbench.viz.model.roofline_view import roofline_model
from tileworkbench.viz.model.text import plain_line
from tileworkbench.viz.model.view import BufferLayout, KernelView
from tileworkbench.viz.model.views import VIEWS, available, view_model

SLICE_LIMIT = 16  # slices of one buffer that are saved


def save_html(view: KernelView, path: str | Path) -> Path:
    """Write `page_html` to `path` and return its absolute path."""
    target = Path(path)
    target.write_text(page_html(view), encoding="utf-8")
    return target.resolve()


def page_html(view: KernelView) -> str:
    """The page: the live card's own code, with every answer of the kernel written beside it."""
    browser = PassBrowser(view.record)
    layouts = {buffer.name: _slices(buffer) for buffer in view.layouts}
    shown = view.layouts[0] if view.layouts else None
    selected = browser.first_changed()
    record = view.record
    state = {
        "card": card_model(view),
        "tab": "card",
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
        "selected_element": [],
        "selected_thread": -1,
        "thread_elements": [],
        "roofline": (
            roofline_model(view.points, view.machine) if view.machine and view.points else {}
        ),
    }
    answers = {
        "diffs": [browser.diff(index) for index in range(len(browser))],
        "views": {name: view_model(view, name) for name in available(view) if VIEWS[name].model},
        "layouts": layouts,
    }
    start = (
        f"const model = new $page.SavedModel({_as_script(state)}, {_as_script(answers)});\n"
        '$card.render({ model, el: document.getElementById("card") });'
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">\n"
        f"<title>{text(record.name)} – tileworkbench</title>\n"
        f"<style>\n{stylesheet('card')}\n{read_static('page.css')}</style>\n</head>\n<body>\n"
        f'<div id="card"></div>\n<footer>{text(plain_line(view))}</footer>\n'
        f'<script type="module">\n{script("card", "page")}\n{start}\n</script>\n'
        "</body>\n</html>\n"
    )


def _slices(buffer: BufferLayout) -> dict[str, Any]:
    """The first slices of a buffer by the text of their leading indices, ``0,1``."""
    leads = product(*(range(extent) for extent in buffer.layout.shape[:-2]))
    return {
        ",".join(map(str, lead)): layout_model(buffer, lead) for lead in islice(leads, SLICE_LIMIT)
    }


def _as_script(value: Any) -> str:
    """JSON that may stand inside a script element: no text of a user can end the element."""
    encoded = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_base64)
    return encoded.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _as_base64(value: object) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    raise TypeError(f"cannot save a {type(value).__name__}")
