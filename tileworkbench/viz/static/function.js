// A function of torch operations: what became of each, and a tab with the text of each kernel.
import * as tw from "./common.js";
import { openTab, tabButton, tabList } from "./tabs.js";

const HOW =
  "Each operation of the function, in the order in which torch captured it, beside the line that " +
  "it comes from. A kernel's name opens its program. What has no kernel runs in torch as before.";

/** @param {ViewArguments} given */
export function render({ model, el }) {
  const root = tw.root(el, "card");
  root.classList.add("tw-function");
  const scope = tw.scope(model);
  const tabs = tabList();
  const body = tw.div("tw-body");
  root.append(tabs, body);

  function fill() {
    const shown = model.get("function");
    const panes = new Map();
    body.replaceChildren();
    tabs.replaceChildren(
      tabButton(model, "function", "Function"),
      ...shown.kernels.map((/** @type {Fields} */ { name }) => tabButton(model, name, name)));
    const open = () => {
      const kernel = shown.kernels.find((/** @type {Fields} */ { name }) => name === model.get("tab"));
      openTab({ tabs, body, panes }, kernel?.name ?? "function", kernel?.name ?? "Function",
        (_, pane) => pane.append(...(kernel ? program(kernel, root) : overview(model, shown))));
    };
    return open;
  }

  let open = fill();
  scope.on("change:function", () => { open = fill(); open(); });
  scope.on("change:tab", () => open());
  open();
  return scope.dispose;
}

/** The function's own tab. */
function overview(/** @type {Model} */ model, /** @type {Fields} */ shown) {
  const rows = shown.groups.flatMap((/** @type {Fields} */ { line, text, operations }) =>
    operations.map((/** @type {Fields} */ each, /** @type {number} */ place) => tw.el(
      "tr", { class: place ? null : "tw-first" },
      tw.el("td", { class: "tw-number" }, place || !line ? "" : String(line)),
      tw.el("td", { class: "tw-text" }, place ? "" : tw.code(text, [], "", "tile")),
      tw.el("td", {}, each.name, each.in_backward ? tw.faint(" gradient") : null),
      tw.el("td", {}, each.kernel
        ? tw.link(each.kernel, () => tw.set(model, { tab: each.kernel }))
        : tw.span("tw-in-torch", "torch", tw.faint(each.reason && `: ${each.reason}`))))));
  const heads = ["line", "your code", "operation", "runs in"];
  const table = tw.el("table", { class: "tw-data" },
    tw.el("thead", {}, tw.el("tr", {}, ...heads.map((head) => tw.el("th", { scope: "col" }, head)))),
    tw.el("tbody", {}, ...rows));
  return [
    tw.div("tw-head",
      tw.span("tw-title", shown.name),
      tw.chip(shown.summary, "tw-accent"),
      shown.agreement ? tw.chip(shown.agreement, "tw-good") : null),
    shown.times ? tw.div("tw-fact-line", shown.times) : null,
    ...shown.breaks.map((/** @type {string} */ text) =>
      tw.div("tw-message tw-warning", `Python runs between graphs: ${text}`)),
    tw.about(HOW),
    rows.length ? tw.div("tw-wide", table) : tw.div("tw-note", "Torch captured no operation."),
  ].filter(Boolean);
}

/** A kernel's tab: its program, which becomes a cell. */
function program(/** @type {Fields} */ kernel, /** @type {HTMLElement} */ root) {
  const said = tw.faint("");
  const open = tw.button("Open as cell", async () => {
    const inserted = tw.insertCell(kernel.cell, root);
    const copied = !inserted && await tw.copyText(kernel.cell);
    said.textContent = inserted ? "In a new cell, with its check against torch."
      : copied ? "Copied: paste it into a new cell." : "Select the text below to copy it.";
  });
  const lines = kernel.source.trimEnd().split("\n");
  return [
    tw.div("tw-bar", tw.chip(kernel.target, "tw-accent"), tw.faint(`${lines.length} lines`), tw.space(), said, open),
    tw.listing(lines, 1, { language: "tile", class: "tw-tall" }).node,
  ];
}
