// A row of tabs, one of which is open; the arrow keys go along it.
import * as tw from "./common.js";

/** A tab that sets the model's `tab`; `children` stand behind its title. */
export function tabButton(
  /** @type {Model} */ model, /** @type {string} */ tab, /** @type {string} */ title, /** @type {Content[]} */ ...children
) {
  const onkeydown = (/** @type {KeyboardEvent} */ event) => {
    /** @type {Record<string, "previousElementSibling" | "nextElementSibling">} */
    const steps = { ArrowLeft: "previousElementSibling", ArrowRight: "nextElementSibling" };
    const step = steps[event.key];
    const next = step && button[step];
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    next.focus();
    next.click();
  };
  const attributes = { class: "", role: "tab", "data-tab": tab, onkeydown };
  const button = tw.button(title, () => tw.set(model, { tab }), attributes);
  // With spaces, for those who copy the text or hear it.
  button.append(...children.filter(Boolean).flatMap((child) => [" ", child]));
  return button;
}

/** The element of a row of tabs. */
export const tabList = () =>
  tw.el("div", { class: "tw-tabs", role: "tablist", "aria-label": "Views" });

/**
 * Open the tab `tab`: its pane is built by `build(tab, pane)` when it is first opened.
 * @param {{ tabs: HTMLElement, body: HTMLElement, panes: Map<string, HTMLElement> }} where
 * @param {string} tab
 * @param {string} label
 * @param {(tab: string, pane: HTMLElement) => void} build
 */
export function openTab({ tabs, body, panes }, tab, label, build) {
  for (const button of tabs.children) {
    const chosen = String(/** @type {HTMLElement} */ (button).dataset.tab === tab);
    button.setAttribute("aria-selected", chosen);
  }
  if (!panes.has(tab)) {
    const attributes = { class: `tw-pane-${tab}`, role: "tabpanel", "aria-label": label };
    const pane = tw.el("div", attributes);
    panes.set(tab, pane);
    body.append(pane);
    build(tab, pane);
  }
  for (const [key, pane] of panes) pane.hidden = key !== tab;
}
