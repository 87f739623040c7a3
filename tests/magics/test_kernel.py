"""The magics in a real kernel process, spoken to as a front end does."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import BlockingKernelClient, KernelManager

from tests.magics.notebook import (
    MATMUL,
    MATMUL_SHAPES,
    SCALE,
    SCALE_TEXT,
    avx_levels,
    without_counts,
)

TIMEOUT = 120


@dataclass(slots=True)
class Messages:
    """What a kernel sent while it ran a cell."""

    streams: str = ""
    results: list[dict[str, Any]] = field(default_factory=list)
    displays: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    comms: list[dict[str, Any]] = field(default_factory=list)
    status: str = ""


class RemoteNotebook:
    """A kernel process and its client."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self.client = manager, client

    def run(self, cell: str, interrupt_at: str = "") -> Messages:
        """Run a cell; interrupt it a moment after it has printed `interrupt_at`."""
        found = Messages()

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            kinds = {
                "execute_result": found.results,
                "display_data": found.displays,
                "error": found.errors,
                "comm_open": found.comms,
                "comm_msg": found.comms,
            }
            if message["msg_type"] == "stream":
                found.streams += content["text"]
                if interrupt_at and interrupt_at in content["text"]:
                    time.sleep(0.3)
                    self.manager.interrupt_kernel()
            elif message["msg_type"] in kinds:
                kinds[message["msg_type"]].append(content)

        reply = self.client.execute_interactive(cell, output_hook=hear, timeout=TIMEOUT)
        found.status = reply["content"]["status"]
        return found

    def complete(self, text: str) -> list[str]:
        """What the line may read after a completion at its end."""
        content = self.client.complete(text, reply=True, timeout=TIMEOUT)["content"]
        assert content["status"] == "ok" and content["cursor_end"] == len(text)
        return [text[: content["cursor_start"]] + match for match in content["matches"]]


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteNotebook]:
    folder = tmp_path_factory.mktemp("kernel")
    environment = {**os.environ, "IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)}
    environment.pop("TILEWORKBENCH_STATIC", None)
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    environment["JPY_SESSION_NAME"] = str(folder / "a.ipynb")  # what a Jupyter server says
    manager = KernelManager(connection_file=str(folder / "connection.json"))
    manager.start_kernel(env=environment, extra_arguments=["--HistoryManager.enabled=False"])
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=TIMEOUT)
        opened = RemoteNotebook(manager, client)
        assert opened.run("%load_ext tileworkbench") == Messages(status="ok")
        yield opened
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def test_a_card_is_one_output_for_every_reader(remote: RemoteNotebook) -> None:
    done = remote.run(f"%%tile{SCALE}")
    assert (done.status, done.streams, done.displays, done.errors) == ("ok", "", [], [])
    (result,) = done.results
    saved = "application/vnd.tileworkbench+json"  # for our extension
    assert set(result["data"]) == {"text/plain", "text/html", saved}
    (opened,) = [comm["comm_id"] for comm in done.comms if "place" in comm["data"]["state"]]
    assert f'data-tileworkbench="{opened}"' in result["data"]["text/html"]
    assert without_counts(result["data"]["text/plain"]) == SCALE_TEXT
    assert len(json.dumps([result, done.comms])) < 1_000_000


def test_the_live_card_says_cached_and_the_static_one_does_not(remote: RemoteNotebook) -> None:
    cell = f"%%tile {MATMUL_SHAPES}{MATMUL}"
    first, again = remote.run(cell), remote.run(cell)
    assert "cached (memory)" not in json.dumps(first.comms)
    assert "cached (memory)" in json.dumps(again.comms)
    (one,), (two,) = first.results, again.results
    assert one["data"]["text/plain"] == two["data"]["text/plain"]
    assert without_place(one) == without_place(two)


def without_place(output: dict[str, Any]) -> str:
    """The HTML of an output, without the name of the live view's model."""
    return re.sub(' data-tileworkbench="[^"]+"', "", output["data"]["text/html"])


def test_without_widgets_where_static_output_is_asked_for(remote: RemoteNotebook) -> None:
    remote.run("import os; os.environ['TILEWORKBENCH_STATIC'] = '1'")
    card, views = remote.run(f"%%tile{SCALE}"), remote.run(f"%%tile --show card,passes{SCALE}")
    remote.run("del os.environ['TILEWORKBENCH_STATIC']")
    assert card.comms == []
    outputs = (*card.results, *views.results, *views.displays)
    assert [set(output["data"]) for output in outputs] == [{"text/plain", "text/html"}] * 3


def test_without_anywidget_the_static_card_is_shown(remote: RemoteNotebook) -> None:
    remote.run(
        "import sys\n"
        "ours = ('anywidget', 'tileworkbench.viz.widgets')\n"
        "kept = {n: sys.modules.pop(n) for n in list(sys.modules) if n.startswith(ours)}\n"
        "sys.modules['anywidget'] = None"
    )
    done, passes = remote.run(f"%%tile{SCALE}"), remote.run("%tile show scale passes")
    remote.run("del sys.modules['anywidget']; sys.modules.update(kept)")
    assert done.errors == [] and done.comms == []
    assert passes.errors[0]["traceback"] == [
        "UnsupportedError: the view 'passes' needs 'anywidget', which is not installed",
        "hint: pip install anywidget",
    ]
    (result,) = done.results
    assert set(result["data"]) == {"text/plain", "text/html"}
    assert without_place(result) == result["data"]["text/html"]
    assert remote.run(f"%%tile{SCALE}").comms != []


def test_completions_reach_the_front_end(remote: RemoteNotebook) -> None:
    remote.run(f"%%tile -q{SCALE}")
    assert remote.complete("%%tile --ro") == ["%%tile --roofline"]
    assert remote.complete("%%tile sca") == ["%%tile scale"]
    assert remote.complete("%%tile -t cpu:av") == [f"%%tile -t cpu:{each}" for each in avx_levels()]
    assert remote.complete("%%tile --show card,pa") == ["%%tile --show card,passes"]
    assert remote.complete("x = 1\n%tile show sc") == ["x = 1\n%tile show scale"]


def test_errors_are_what_the_front_end_shows(remote: RemoteNotebook) -> None:
    done = remote.run(f"%%tile{SCALE.replace('return', 'yield')}")
    (error,) = done.errors
    assert error["ename"] == "TileSyntaxError" and done.streams == ""
    assert error["traceback"][0] == "TileSyntaxError: 'yield' has no meaning in a kernel"
    assert re.fullmatch(r"  --> Cell In\[\d+\], line 7", error["traceback"][1])
    assert error["traceback"][2:] == ["7 | yield B", "  | ^^^^^^^"]
    (error,) = remote.run("%%tile -D X=1\n\nX\nprint(nope)").errors
    plain = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error["traceback"]))
    assert re.search(r"\nCell In\[\d+\], line 4\n", plain) and "\n----> 4 print(nope)\n" in plain
    assert "run_cell_magic" not in plain
    (error,) = remote.run("%%tile\nx = (").errors
    assert error["ename"] == "SyntaxError" and "run_cell_magic" not in "".join(error["traceback"])
    done = remote.run(f"%%tile --cehck x{SCALE}")
    assert done.streams == "UsageError: there is no flag '--cehck'; did you mean '--check'?\n"
    assert done.status == "error"


SLOW = """
def slow(A: T.Tensor((1,), "float32")):
    B = T.empty((1 << 16,), "float32")
    with T.Kernel(1 << 16, threads=1) as block:
        x = T.alloc_var("float32")
        x = A[0]
        for i in T.serial(1 << 22):
            x = x * FACTOR + 1.0
        B[block] = x
    return B
"""


def test_an_interrupt_stops_a_kernel_and_leaves_everything_usable(remote: RemoteNotebook) -> None:
    remote.run(f"%%tile -q{SCALE}")
    remote.run("import torch; FACTOR = 'mine'; x = torch.ones(1)")
    call = "slow.compile(); print('running', flush=True); slow(x)"
    done = remote.run(f'%%tile -D FACTOR=0.5 --run "{call}"{SLOW}', interrupt_at="running")
    (error,) = done.errors
    assert error["ename"] == "Interrupted" and done.status == "error"
    after = remote.run("FACTOR, float(x), slow, scale(torch.ones(64, 32)).sum().item()")
    assert after.results[0]["data"]["text/plain"].startswith("('mine', 1.0, <tw.jit slow: eager")
    assert after.results[0]["data"]["text/plain"].endswith("4096.0)")


def test_an_interrupt_of_the_cells_python_leaves_the_namespace(remote: RemoteNotebook) -> None:
    remote.run("FACTOR = 'mine'")
    cell = "%%tile -D FACTOR=2\nimport time\nprint('running', flush=True)\ntime.sleep(60 * FACTOR)"
    done = remote.run(cell, interrupt_at="running")
    (error,) = done.errors
    assert error["ename"] == "KeyboardInterrupt"
    assert "run_cell_magic" not in "".join(error["traceback"])
    after = remote.run("FACTOR, '_tile_jit' in globals()")
    assert after.results[0]["data"]["text/plain"] == "('mine', False)"
