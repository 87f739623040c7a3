"""Outputs of a notebook cell: a widget where one is wanted, HTML, and one line of text."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any

STATIC = "TILEWORKBENCH_STATIC"
WIDGET = "application/vnd.jupyter.widget-view+json"

Bundle = tuple[dict[str, Any], dict[str, Any]]


def wants_widgets() -> bool:
    """Whether outputs hold widgets: there is a kernel, `TILEWORKBENCH_STATIC` is not set, and
    anywidget is installed.
    """
    if os.environ.get(STATIC, "") not in ("", "0"):
        return False
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None and find_spec("anywidget") is not None


def make_bundle(text: str, html: str, model_id: str | None) -> Bundle:
    """An output ``(data, metadata)``; `model_id` names the widget, None for none."""
    data: dict[str, Any] = {"text/plain": text, "text/html": html}
    if model_id is not None and wants_widgets():
        data[WIDGET] = {"version_major": 2, "version_minor": 0, "model_id": model_id}
    return data, {}
