"""A real JupyterLab server for browser tests, and a notebook opened in it.

The server is this interpreter's, bound to the loopback interface, with settings, workspaces and
run-time files of its own, so that a developer's configuration neither helps nor harms.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileworkbench.labext import NAME, install

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

START_SECONDS = 180
OPEN_MS = 90_000  # a cold JupyterLab on two busy cores
RUN_MS = 300_000
WAIT_MS = 60_000  # what follows at once where nothing else runs

# Every request but the server's own. Only these come to Python: JupyterLab makes hundreds.
_OUTSIDE = re.compile(r"^(https?|wss?)://(?!127\.0\.0\.1[:/])")

# JupyterLab keeps only the visible cells in the page unless told otherwise.
_SETTINGS: dict[str, dict[str, Any]] = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {
        "checkForUpdates": False,
        "doNotDisturbMode": True,
        "fetchNews": "false",
    },
}

# Takes an extension out of what the page says is installed, before JupyterLab's scripts read it.
_WITHOUT = """name => {
  const observer = new MutationObserver(() => {
    const config = document.getElementById("jupyter-config-data");
    if (!config) return;
    observer.disconnect();
    const data = JSON.parse(config.textContent);
    data.federated_extensions = data.federated_extensions.filter((each) => each.name !== name);
    config.textContent = JSON.stringify(data);
  });
  observer.observe(document, { childList: true, subtree: true });
}"""


def find_chromium() -> str | None:
    """The path of an installed Chromium or Chrome, or None. CHROMIUM overrides the search."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    candidates = [os.environ.get("CHROMIUM"), *map(shutil.which, names)]
    return next((path for path in candidates if path), None)


def write_notebook(
    path: Path, *cells: str, kernel: str = "python3", raising: int | None = None
) -> None:
    """A notebook of these code cells, without outputs. After the one that is `raising` an error the
    others run.
    """
    import nbformat

    metadata = {"kernelspec": {"name": kernel, "display_name": "Python 3"}}
    made = [nbformat.v4.new_code_cell(cell) for cell in cells]
    if raising is not None:
        made[raising].metadata["tags"] = ["raises-exception"]
    nbformat.write(nbformat.v4.new_notebook(cells=made, metadata=metadata), path)


@dataclass(frozen=True, slots=True)
class LabServer:
    """A running JupyterLab: its address, token and the folder it serves."""

    url: str
    token: str
    root: Path

    def request(self, path: str, method: str = "GET") -> Any:
        """Call the server's REST API; returns the decoded JSON, or None for an empty body."""
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.url}{path}", method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            body = response.read()
        return json.loads(body) if body else None

    def stop_kernels(self) -> None:
        """End every session, so that one test's kernel takes no memory from the next."""
        for session in self.request("/api/sessions"):
            self.request(f"/api/sessions/{session['id']}", "DELETE")


@contextmanager
def serve(folder: Path) -> Iterator[LabServer]:
    """Run JupyterLab in `folder`, serving `folder/root`, until the block ends."""
    root, settings = folder / "root", folder / "settings"
    root.mkdir()
    for name, values in _SETTINGS.items():
        path = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = LabServer(f"http://127.0.0.1:{port}", secrets.token_hex(16), root)
    extensions = folder / "labextensions"  # the checkout's own, whatever is installed
    install(extensions)
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        "--expose-app-in-browser",
        "--JupyterNotebookApp.expose_app_in_browser=True",
        f"--LabServerApp.extra_labextensions_path={extensions}",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={server.token}",
        f"--ServerApp.root_dir={root}",
    ]
    environment = {
        **os.environ,
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_PREFER_ENV_PATH": "1",  # this environment's kernel, whatever the user installed
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
    }
    log = folder / "server.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=stream, stderr=subprocess.STDOUT
        )
        try:
            _wait_until_up(server, process, log)
            yield server
            server.stop_kernels()
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_up(server: LabServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            server.request("/api/status")
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text(errors='replace')[-4000:]}")


def eventually(page: Page, check: Callable[[], None]) -> None:
    """Repeat `check` until it holds; what it says after `WAIT_MS` counts."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        page.wait_for_timeout(100)


@dataclass
class NotebookPage:
    """One notebook, open in the browser.

    `errors` collects uncaught exceptions of the page's scripts; `outside` collects requests to any
    host but the server, none of which is let through. Without `extension` JupyterLab does not see
    ours. `app` is the address of JupyterLab, or ``notebooks`` for Notebook 7.
    """

    page: Page
    server: LabServer
    extension: bool = True
    app: str = "lab/tree"
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.page.route(_OUTSIDE, self._guard)
        if not self.extension:
            self.page.add_init_script(f"({_WITHOUT})({json.dumps(NAME)})")

    def load(self, notebook: str, anew: bool = False) -> None:
        """Open `notebook` (a path under the server's root) and wait for its kernel.

        The notebook's metadata must name a kernel: JupyterLab asks for one otherwise. A page that
        shows JupyterLab already opens it there, which spares the start of JupyterLab's scripts,
        unless it is to be loaded `anew`.
        """
        self.page.set_default_timeout(OPEN_MS)
        if self.page.url.startswith(self.server.url) and not anew:
            self._command("docmanager:open", path=notebook, factory="Notebook")
        else:
            address = f"{self.server.url}/{self.app}/{notebook}?reset&token={self.server.token}"
            self.page.goto(address, timeout=OPEN_MS)
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=OPEN_MS)
        self.page.wait_for_function(
            "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel"
            "?.status === 'idle'",
            timeout=OPEN_MS,
        )

    def close(self) -> None:
        """Close every document without saving."""
        self.page.evaluate(
            "() => [...window.jupyterapp.shell.widgets('main')].forEach(shown => shown.dispose())"
        )
        self.page.wait_for_selector(".jp-Notebook", state="detached", timeout=OPEN_MS)

    def clear(self) -> None:
        """Close every document without saving, and forget what was collected."""
        self.close()
        # A panel at the side takes the room of the next notebook.
        self.page.evaluate(
            "() => { const { shell } = window.jupyterapp;"
            " shell.collapseRight?.(); shell.collapseLeft?.(); }"
        )
        self.page.emulate_media(media="null", color_scheme="null", reduced_motion="null")
        self.errors.clear()
        self.outside.clear()

    def _note(self, error: str) -> None:
        # JupyterLab drops its own requests to a kernel that restarts before it has answered.
        if not re.search(r"Canceled future for \w+ message before replies were done", error):
            self.errors.append(error)

    def _guard(self, route: Route) -> None:
        self.outside.append(route.request.url)
        route.abort()

    def execute(self, command: str) -> None:
        """Run a JupyterLab command, as its menu entry would, and wait until it is done."""
        self.page.set_default_timeout(RUN_MS)
        self._command(command)

    def _command(self, name: str, **arguments: str) -> None:
        """Its result stays in the page: a whole document, of which Playwright would make a copy."""
        self.page.evaluate(
            "async ([name, given]) => { await window.jupyterapp.commands.execute(name, given); }",
            [name, arguments],
        )

    def run_all(self) -> None:
        """Run every cell and wait until the kernel is idle again."""
        self.execute("notebook:run-all-cells")
        self.wait_idle()

    def run_cell(self, index: int) -> None:
        """Run the cell at `index` as a click into it and the run button would."""
        self.cell(index).locator(".jp-InputPrompt").click()
        self.execute("notebook:run-cell")
        self.wait_idle()

    def run_until(self, index: int, text: str) -> None:
        """Run a cell again until its output has `text`: the browser sends what was chosen when the
        kernel has taken the change before.
        """

        def has_text() -> None:
            self.run_cell(index)
            self.page.set_default_timeout(WAIT_MS)
            assert text in self.output(index).inner_text()

        eventually(self.page, has_text)

    def wait_idle(self) -> None:
        """Wait until no cell is queued or running and the kernel says it is idle."""
        self.page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status"
            " === 'idle' && ![...document.querySelectorAll('.jp-InputPrompt')]"
            ".some(prompt => prompt.textContent.includes('*'))",
            timeout=RUN_MS,
        )

    def cell(self, index: int) -> Locator:
        """The cell at `index`, counted from 0 with markdown cells included."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def output(self, index: int) -> Locator:
        """The output area of the code cell at `index`."""
        return self.cell(index).locator(".jp-OutputArea-output")

    def cell_errors(self) -> list[str]:
        """``Error: message`` of every error output in the notebook.

        Asked of the notebook's model: on the page an error looks like any text on stderr.
        """
        found: list[str] = self.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells"
            ".flatMap(cell => cell.outputs ?? [])"
            ".filter(output => output.output_type === 'error')"
            ".map(error => `${error.ename}: ${error.evalue}`)"
        )
        return found

    def screenshot(self, path: Path) -> None:
        """Write the page as it looks now to `path`, a PNG file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=path)
