"""The view of pipelines in a real JupyterLab."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

CELLS = [
    "import tileworkbench as tw\nfrom tileworkbench.kernels import matmul\n"
    "kernel = tw.compile(matmul(512, 512, 512, 'float16', num_stages=3), target='sim:sm_80')",
    "view = kernel.show('pipeline')\nview",
    "print(view.selection)",
    "gemm = next(o.line for o in kernel.pipeline.operations if o.kind == 'product')\n"
    "view.selection = {'line': gemm}",
    "kernel",
    "from tests.sim.pipelines import launched_twice\ntwice = launched_twice()",
    "twice.show('pipeline')",
    "twice.show('smem')",
]


def test_pipelines(lab: LabServer, open_notebook: Callable[[str], NotebookPage]) -> None:
    write_notebook(lab.root / "p.ipynb", *CELLS)
    notebook = open_notebook("p.ipynb")
    notebook.run_cell(0)
    notebook.run_cell(1)
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.output(1).locator("g[data-event]").first.wait_for()
    check_hover_and_selection(notebook)
    check_the_simulator_and_other_stages(notebook)
    check_a_launch_is_chosen(notebook)
    check_the_card_and_the_saved_chart(notebook, lab)
    assert (notebook.errors, notebook.outside) == ([], [])


def check_hover_and_selection(notebook: NotebookPage) -> None:
    view = notebook.output(1)
    bar = view.locator("g[data-style=flight]").nth(2)
    bar.hover()
    info = view.locator(".tw-pipeline-info")
    assert "cp.async into A_shared stage" in info.inner_text()
    assert "data there at" in info.inner_text()
    bar.click()
    line = bar.get_attribute("data-line")
    notebook.run_until(2, f"'line': {line}")
    assert "tw-chosen" in (bar.get_attribute("class") or "")
    # And from Python: the line of the product marks the products.
    notebook.run_cell(3)
    chosen = view.locator("g[data-style=product].tw-chosen")
    chosen.first.wait_for()
    assert chosen.count() == view.locator("g[data-style=product]").count() == 8
    assert "tw-chosen" not in (bar.get_attribute("class") or "")
    # Keys go from bar to bar.
    view.locator(".tw-plot").focus()
    notebook.page.keyboard.press("ArrowRight")
    assert "line" in info.inner_text()


def check_the_simulator_and_other_stages(notebook: NotebookPage) -> None:
    view = notebook.output(1)
    assert view.locator("g[data-style=simulated]").count() == 0
    button = view.get_by_role("button", name="Run in the simulator")
    button.click()
    view.get_by_text("in the predicted order").wait_for()
    assert button.get_attribute("aria-pressed") == "true"
    assert view.locator("g[data-style=simulated]").count() > 8
    assert "Its time is logical: it counts statements and measures nothing." in view.inner_text()
    button.click()
    view.locator("g[data-style=simulated]").first.wait_for(state="detached")
    view.get_by_role("button", name="Other numbers of stages").click()
    view.locator("tr.tw-current").wait_for()
    assert view.locator("tr.tw-current").inner_text().startswith("3")
    view.get_by_label("first iteration").fill("8")
    view.get_by_text("8 to 15 of 16").wait_for()
    assert "epilogue" in view.locator("svg").inner_html()


def check_the_card_and_the_saved_chart(notebook: NotebookPage, lab: LabServer) -> None:
    notebook.run_cell(4)
    card = notebook.output(4)
    card.get_by_role("tab", name="Pipeline").click()
    card.locator("g[data-style=product]").first.wait_for()
    notebook.execute("docmanager:save")
    lab.stop_kernels()
    # Opened again without its kernel: the still chart, with the text that stands for it.
    notebook.close()
    notebook.load("p.ipynb")
    still = notebook.output(1).get_by_role("img", name="copies into A_shared stage 0")
    still.wait_for()
    width = still.evaluate("picture => picture.naturalWidth")
    assert width > 500
    assert "num_stages = 4 would need 64.0 KiB" in notebook.output(1).inner_text()


def check_a_launch_is_chosen(notebook: NotebookPage) -> None:
    notebook.run_cell(5)
    for number, name in ((6, "T_shared stage 1"), (7, "T_shared 32.0 KiB")):
        notebook.run_cell(number)
        view = notebook.output(number)
        chooser = view.get_by_label("Launch")
        words = view.locator("svg text")
        assert words.filter(has_text=name).count() == 0
        chooser.select_option("2")
        words.filter(has_text=name).first.wait_for()
    view = notebook.output(6)
    assert "A_shared" not in view.locator("svg").inner_html()
    view.get_by_role("button", name="Run in the simulator").click()
    view.get_by_text("in the predicted order").wait_for()  # of this launch
    view.get_by_role("button", name="Other numbers of stages").click()
    assert view.locator("tr.tw-current").inner_text().startswith("2")
