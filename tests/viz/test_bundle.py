"""What outputs hold for which reader, and when the reader's front end hears of a widget."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import comm
import IPython
import ipywidgets
import nbformat
import pytest
from comm.base_comm import BaseComm

import tileworkbench as tw
from tests.viz.sample import full_view
from tileworkbench.compiler.layout import Layout
from tileworkbench.kernels import flash_attention, matmul
from tileworkbench.viz.display import layout_mimebundle, mimebundle, show
from tileworkbench.viz.model.bundle import (
    OUTPUT_BYTES,
    PLACE,
    SAVED,
    WIDGET,
    Live,
    live_form,
    wants_widgets,
)
from tileworkbench.viz.model.card import HTML_LIMIT, card_html
from tileworkbench.viz.model.text import plain_line

BOTH = {"text/plain", "text/html"}


class Opened(BaseComm):
    """A comm that remembers that it was opened."""

    states: list[dict[str, Any]] = []

    def publish_msg(self, msg_type: str, data: Any = None, **_rest: Any) -> None:
        if msg_type == "comm_open":
            self.states.append((data or {}).get("state", {}))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The states of the widgets that the front end heard of; layouts of their own left out."""
    monkeypatch.setattr(comm, "create_comm", Opened)
    monkeypatch.setattr(Opened, "states", [])
    yield Opened.states


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The variables of a process that is a kernel, opened by a Jupyter server's front end."""
    shell = SimpleNamespace(kernel=object(), user_ns={})
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    monkeypatch.delenv("TILEWORKBENCH_STATIC", raising=False)
    monkeypatch.setenv("JPY_SESSION_NAME", "/tests/a.ipynb")
    monkeypatch.setenv("JPY_PARENT_PID", str(os.getpid()))
    return shell.user_ns


def ours(states: list[dict[str, Any]]) -> list[str]:
    return [state["place"] for state in states if "place" in state]


def test_in_jupyterlab_an_output_names_the_place_of_the_view(
    user: dict[str, Any], opened: list[dict[str, Any]]
) -> None:
    assert live_form() is Live.PLACED
    widget = show(full_view())
    assert opened == []  # nobody has seen it
    data, metadata = widget._repr_mimebundle_()
    assert set(data) == BOTH | {SAVED}
    assert metadata == {}
    assert data["text/plain"] == plain_line(full_view())
    assert data[SAVED]["place"] == widget.model_id
    assert data["text/html"].startswith(
        f'<div class="tex2jax_ignore mathjax_ignore" {PLACE}="{widget.model_id}"><div style='
    )
    assert ours(opened) == [widget.model_id]  # known when the model comes to the browser
    assert widget._repr_mimebundle_()[0] == data  # shown twice, it is one widget
    assert len(ours(opened)) == 1


@pytest.mark.parametrize(
    ("running", "static", "form"),
    [(True, "", Live.WIDGET), (True, "1", Live.NEVER), (False, "", Live.NEVER)],
)
def test_marimo_draws_widgets_of_its_outputs(
    monkeypatch: pytest.MonkeyPatch, running: bool, static: str, form: Live
) -> None:
    """It has no IPython."""
    marimo = ModuleType("marimo")
    marimo.running_in_notebook = lambda: running  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "marimo", marimo)
    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    monkeypatch.setenv("TILEWORKBENCH_STATIC", static)
    assert live_form() is form
    data, _ = mimebundle(full_view())
    assert set(data) == (BOTH | {WIDGET} if form is Live.WIDGET else BOTH)


@pytest.mark.usefixtures("user")
def test_each_way_to_show_something_names_a_place(opened: list[dict[str, Any]]) -> None:
    bundles = [mimebundle(full_view()), mimebundle(full_view(), "passes")]
    bundles.append(layout_mimebundle(Layout.row_major((4, 4)), include=None))
    assert [set(data) for data, _ in bundles] == [BOTH | {SAVED}, BOTH, BOTH]
    for (data, _), place in zip(bundles, ours(opened), strict=True):
        assert f'{PLACE}="{place}"' in data["text/html"]


def test_without_a_front_end_no_widget_is_heard_of(
    user: dict[str, Any], opened: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """nbclient, nbconvert and papermill run kernels that no session was named to."""
    monkeypatch.delenv("JPY_SESSION_NAME")
    assert live_form() is Live.NEVER
    widget = show(full_view(), "passes")
    widget.selected_pass = 2
    data, _ = widget._repr_mimebundle_()
    assert set(data) == BOTH
    assert PLACE not in data["text/html"]
    assert opened == []


def test_a_container_opens_what_it_holds(
    user: dict[str, Any], opened: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME")
    widget = show(full_view())
    box = ipywidgets.VBox([widget])
    assert box.get_state()["children"] == [f"IPY_MODEL_{widget.model_id}"]
    assert ours(opened) == [""]  # it is drawn by its container, in no place of its own
    widget.close()
    assert widget.comm is None


def test_a_session_that_the_parent_has_too_is_not_this_kernels(
    user: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """papermill in a cell: its kernel inherits the name of the notebook that it was called in."""
    with open(f"/proc/{os.getpid()}/environ", "rb") as file:
        names = dict(part.split(b"=", 1) for part in file.read().split(b"\0") if b"=" in part)
    monkeypatch.setattr(
        "tileworkbench.viz.model.bundle._SESSION", "PATH"
    )  # a variable that this process, which plays the parent, was started with
    monkeypatch.setenv("PATH", names[b"PATH"].decode())
    assert live_form() is Live.NEVER
    monkeypatch.setenv("PATH", "/another")
    assert live_form() is Live.PLACED
    monkeypatch.setenv("PATH", names[b"PATH"].decode())
    monkeypatch.setenv("JPY_PARENT_PID", "")
    assert live_form() is Live.PLACED


@pytest.mark.parametrize(("value", "form"), [("1", Live.NEVER), ("0", Live.PLACED)])
def test_an_environment_variable_decides(
    value: str, form: Live, user: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if value == "0":  # a front end that is not recognised
        monkeypatch.delenv("JPY_SESSION_NAME")
    monkeypatch.setenv("TILEWORKBENCH_STATIC", value)
    assert live_form() is form
    assert wants_widgets() is (form is Live.PLACED)


@pytest.mark.parametrize("host", ["Visual Studio Code", "Colab"])
def test_hosts_that_draw_widgets_of_outputs_only_get_the_widget(
    host: str,
    user: dict[str, Any],
    opened: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME")
    if host == "Colab":
        monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    else:
        user["__vsc_ipynb_file__"] = "/tests/a.ipynb"
    widget = show(full_view())
    data, _ = widget._repr_mimebundle_()
    assert set(data) == BOTH | {WIDGET}
    assert data[WIDGET]["model_id"] == widget.model_id
    assert PLACE not in data["text/html"]
    assert ours(opened) == [""]


def test_without_a_kernel_or_anywidget_there_is_html(
    user: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tileworkbench.viz.model.bundle.find_spec", lambda name: None)
    assert live_form() is Live.NEVER
    monkeypatch.undo()
    assert live_form() is Live.NEVER  # this process is no kernel
    assert set(mimebundle(full_view())[0]) == BOTH


@pytest.mark.usefixtures("user", "opened")
@pytest.mark.parametrize("target", ["cpu", "sim:sm_80", "ptx:sm_90a"])
@pytest.mark.parametrize("name", ["matmul", "flash_attention"])
def test_plain_and_counted_cards_fit_into_a_notebook(name: str, target: str) -> None:
    """As `%%tile` and `%%tile --count` leave them: fifteen such cells are less than a megabyte, and
    a card whose lines were asked for has them, whatever else there is no room for.
    """
    programs = {
        "matmul": lambda: matmul(256, 256, 256, "float16"),
        "flash_attention": lambda: flash_attention(1, 2, 256, 256, 64, dtype="float16"),
    }
    kernel = tw.compile(programs[name](), target=target)
    for counted in (False, True):
        view = kernel.with_costs(counted, counted).view()
        live, _ = mimebundle(view)
        for page in (live["text/html"], card_html(view)):
            assert len(page.encode()) <= HTML_LIMIT
            assert ("  counted  " in page) == counted
        assert live[SAVED]["packed"]
        assert notebook_bytes(live, cells=15) < 1_000_000


def notebook_bytes(data: dict[str, Any], cells: int) -> int:
    """The size of a notebook with so many such outputs."""
    shown = [nbformat.v4.new_output("display_data", data)]
    made = [nbformat.v4.new_code_cell("%%tile --count", outputs=shown) for _ in range(cells)]
    return len(nbformat.writes(nbformat.v4.new_notebook(cells=made)).encode())


@pytest.mark.usefixtures("user", "opened")
def test_an_output_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifteen of them are less than a megabyte; what the extension draws gives way to the HTML."""
    size = len(json.dumps(mimebundle(full_view())[0]))
    assert size <= OUTPUT_BYTES < 1_000_000 / 15
    monkeypatch.setattr("tileworkbench.viz.widgets.base.OUTPUT_BYTES", 31_000)
    assert set(mimebundle(full_view())[0]) == BOTH
