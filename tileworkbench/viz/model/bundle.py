"""Outputs of a notebook cell: HTML, one line of text, and how a live view comes to them.

A notebook is read without its kernel more often than with it, and JupyterLab shows an error for a
widget that is gone, whatever else the output holds. So where the front end lets us, no output
holds a widget: the HTML names a place, and the live view, whose model the front end knows, takes
the place of what is in it (`viz/static/place.js`). Saved, exported or reopened, the HTML is left.
"""

from __future__ import annotations

import os
import sys
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tileworkbench.viz.model import html

STATIC = "TILEWORKBENCH_STATIC"
WIDGET = "application/vnd.jupyter.widget-view+json"
SAVED = "application/vnd.tileworkbench+json"
PLACE = "data-tileworkbench"
OUTPUT_BYTES = 64_000  # of one output, so that a notebook with fifteen stays below a megabyte

_SESSION = "JPY_SESSION_NAME"
_PARENT = "JPY_PARENT_PID"

Bundle = tuple[dict[str, Any], dict[str, Any]]


class Live(Enum):
    """How live views reach the reader of this process's outputs."""

    NEVER = "nobody is there to show them"
    PLACED = "the view takes the place of the HTML"
    WIDGET = "the output holds a widget beside the HTML"


def _shell() -> Any:
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None


def in_notebook() -> bool:
    """Whether outputs go to a notebook, which keeps them, and not to a terminal."""
    return getattr(_shell(), "kernel", None) is not None


def in_marimo() -> bool:
    """Whether outputs go to a notebook or an app of marimo, which draws widgets without IPython."""
    marimo = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook())


def live_form() -> Live:
    """How views of this process are shown live, from what its environment says of the reader.

    A Jupyter server names the session to a kernel that a front end opened (`JPY_SESSION_NAME`);
    nbclient, and with it nbconvert and papermill, does not. VS Code, Colab and marimo draw widgets
    of their outputs only. `TILEWORKBENCH_STATIC` decides where it is set: 1 for no live views, 0
    for views in their place, where a front end is not recognised.
    """
    static = os.environ.get(STATIC, "")
    if static not in ("", "0") or find_spec("anywidget") is None:
        return Live.NEVER
    if in_marimo():
        return Live.WIDGET
    if not in_notebook():
        return Live.NEVER
    shell = _shell()
    if "google.colab" in sys.modules or "__vsc_ipynb_file__" in getattr(shell, "user_ns", {}):
        return Live.WIDGET
    session = os.environ.get(_SESSION, "")
    if static == "0" or (session and not _inherited(session)):
        return Live.PLACED
    return Live.NEVER


def _inherited(session: str) -> bool:
    """Whether the process that started this kernel already had the session's name.

    Then the name is that of a notebook in which papermill or nbconvert was called.
    """
    parent = os.environ.get(_PARENT, "")
    try:
        environment = Path(f"/proc/{int(parent)}/environ").read_bytes()
    except (OSError, ValueError):
        return False
    return f"{_SESSION}={session}".encode() in environment.split(b"\0")


def wants_widgets() -> bool:
    """Whether outputs have live views."""
    return live_form() is not Live.NEVER


def make_bundle(
    text: str, content: str, model_id: str | None, saved: dict[str, Any] | None = None
) -> Bundle:
    """An output ``(data, metadata)``; `model_id` names the model of the live view, None for none.

    `saved` is what the JupyterLab extension draws where no kernel is. The classes keep MathJax from
    reading formulas into generated code.
    """
    form = live_form() if model_id is not None else Live.NEVER
    place = {PLACE: model_id or ""} if form is Live.PLACED else {}
    ignored = {"class": "tex2jax_ignore mathjax_ignore"}
    data: dict[str, Any] = {
        "text/plain": text,
        "text/html": html.tag("div", "", content, **ignored, **place),
    }
    if saved is not None and form is Live.PLACED:
        data[SAVED] = {**saved, "place": model_id}
    if form is Live.WIDGET:
        data[WIDGET] = {"version_major": 2, "version_minor": 0, "model_id": model_id}
    return data, {}
