"""A kernel's card as one HTML file that works without a kernel and without a network."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

from tileworkbench.viz.model.assets import read_static, script, stylesheet
from tileworkbench.viz.model.html import text
from tileworkbench.viz.model.saved import saved_parts
from tileworkbench.viz.model.text import plain_line
from tileworkbench.viz.model.view import KernelView


def save_html(view: KernelView, path: str | Path) -> Path:
    """Write `page_html` to `path` and return its absolute path."""
    target = Path(path)
    target.write_text(page_html(view), encoding="utf-8")
    return target.resolve()


def page_html(view: KernelView) -> str:
    """The page: the live card's own code, with every answer of the kernel written beside it."""
    state, answers = saved_parts(view)
    start = (
        f"const model = new $page.SavedModel({_as_script(state)}, {_as_script(answers)});\n"
        '$card.render({ model, el: document.getElementById("card") });'
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">\n"
        f"<title>{text(view.record.name)} – tileworkbench</title>\n"
        f"<style>\n{stylesheet('card')}\n{read_static('page.css')}</style>\n</head>\n<body>\n"
        f'<div id="card"></div>\n<footer>{text(plain_line(view))}</footer>\n'
        f'<script type="module">\n{script("card", "page")}\n{start}\n</script>\n'
        "</body>\n</html>\n"
    )


def _as_script(value: Any) -> str:
    """JSON that may stand inside a script element: no text of a user can end the element."""
    encoded = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_base64)
    return encoded.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _as_base64(value: object) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    raise TypeError(f"cannot save a {type(value).__name__}")
