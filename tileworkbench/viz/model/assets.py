"""The browser's side of the views: hand-written modules, joined here into one per view.

A widget's code must be one module without imports, so what views share (`common.js`, `common.css`)
is put in front of each. The files hold plain declarations with names of their own.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

PARTS = {
    "card": ("common", "passes", "grid", "layouts", "roofline", "card"),
    "passes": ("common", "passes"),
    "layouts": ("common", "grid", "layouts"),
    "roofline": ("common", "roofline"),
}
"""View name to the files it consists of; the last one declares ``render_<view>({model, el})``."""


@cache
def read_static(name: str) -> str:
    """The text of one file of `viz/static`."""
    return files("tileworkbench.viz").joinpath("static", name).read_text(encoding="utf-8")


@cache
def script(view: str) -> str:
    """All declarations of a view's code, without an export."""
    return "\n".join(read_static(f"{part}.js") for part in PARTS[view])


@cache
def module(view: str) -> str:
    """The ES module of a view, as anywidget loads it."""
    return f"{script(view)}\nexport default {{ render: render_{view} }};\n"


@cache
def stylesheet(view: str) -> str:
    """The style sheet of a view."""
    return "\n".join(read_static(f"{part}.css") for part in PARTS[view])
