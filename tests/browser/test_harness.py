"""The harness itself: a stock widget and an anywidget render and reach the kernel.

When this fails, the machine's Jupyter or Chromium is at fault; when only others fail, we are.
"""

from __future__ import annotations

from collections.abc import Callable

import nbformat

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

COUNTER = '''\
import anywidget
import traitlets

class Counter(anywidget.AnyWidget):
    _esm = """
    function render({ model, el }) {
      const button = document.createElement("button");
      button.className = "harness-button";
      const show = () => { button.textContent = "doubled: " + model.get("doubled"); };
      button.addEventListener("click", () => {
        model.set("clicks", model.get("clicks") + 1);
        model.save_changes();
      });
      model.on("change:doubled", show);
      show();
      el.append(button);
    }
    export default { render };
    """
    clicks = traitlets.Int(0).tag(sync=True)
    doubled = traitlets.Int(0).tag(sync=True)

    @traitlets.observe("clicks")
    def _double(self, change):
        self.doubled = 2 * change.new

counter = Counter()
counter
'''


def test_widgets_render_and_reach_the_kernel(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    cells = [
        nbformat.v4.new_markdown_cell("# Harness"),
        nbformat.v4.new_code_cell("import ipywidgets\nipywidgets.IntSlider(description='size')"),
        nbformat.v4.new_code_cell(COUNTER),
        *(nbformat.v4.new_code_cell(f"print({n})\n" + "#\n" * 30) for n in range(8)),
        nbformat.v4.new_code_cell("counter.clicks"),
    ]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    content = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    nbformat.write(content, lab.root / "harness.ipynb")

    notebook = open_notebook("harness.ipynb")
    notebook.run_all()

    assert notebook.cell_errors() == []
    assert notebook.output(1).locator(".jupyter-widgets").first.inner_text().startswith("size")
    button = notebook.output(2).locator(".harness-button")
    button.click()
    button.get_by_text("doubled: 2").wait_for(timeout=WAIT_MS)
    assert notebook.output(11).inner_text().strip() == "0"  # far below, and still in the page
    notebook.run_until(11, "1")
    assert notebook.errors == []
    assert notebook.outside == []


def test_errors_of_cells_and_requests_to_other_hosts_are_seen(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    outside = (
        "from IPython.display import HTML\nHTML('<img src=\"https://outside.invalid/a.png\">')"
    )
    sources = ("import sys\nprint('no error', file=sys.stderr)", "1 / 0", outside)
    write_notebook(lab.root / "errors.ipynb", *sources, raising=1)

    notebook = open_notebook("errors.ipynb")
    notebook.run_all()
    notebook.output(2).locator("img").wait_for(state="attached")

    assert notebook.cell_errors() == ["ZeroDivisionError: division by zero"]
    assert set(notebook.outside) == {"https://outside.invalid/a.png"}
