"""Our JavaScript's arithmetic, called from tests: modules run in a blank page of Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tileworkbench.viz.model.assets import script

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def call(browser: Browser, modules: tuple[str, ...], body: str, data: Any) -> Any:
    """What the body of a JavaScript function of `data` returns; the module ``memory.js`` is
    ``$memory`` in it.
    """
    context = browser.new_context(offline=True)
    try:
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        result = page.evaluate(f"(data) => {{\n{script(*modules)}\n{body}\n}}", data)
        assert errors == []
        return result
    finally:
        context.close()
