// The list of passes: what each left, what it took, and a box for those that can be switched off.
import * as tw from "./common.js";

/**
 * `select(index)` shows a pass, `switched(names)` hears of the passes that are switched off.
 * @param {{ entries: any[], select(index: number): void, switched(names: string[]): void }} options
 */
export function passList({ entries, select, switched }) {
  const node = tw.el("div", { class: "tw-pass-list", role: "listbox", "aria-label": "Passes" });
  const usual = entries.filter((entry) => entry.disabled).map((entry) => entry.name);
  const off = new Set(usual);

  /**
   * @param {number} index
   * @param {{ selected: boolean, count: number | undefined, missed: string | boolean }} given
   */
  function item(index, { selected, count, missed }) {
    const entry = entries[index];
    const state = entry.disabled ? "off" : entry.changed ? entry.time ?? "" : "no-op";
    const note = entry.failed ? "failed" : state;
    const kinds = [
      entry.changed ? "" : "tw-noop", missed ? "tw-miss" : "", entry.failed ? "tw-stop" : "",
    ];
    const button = tw.el(
      "button",
      {
        type: "button", role: "option", class: `tw-pass ${kinds.join(" ")}`, title: entry.doc,
        "aria-selected": String(selected), onclick: () => select(index),
      },
      tw.span("tw-dot"),
      tw.span("tw-pass-name", entry.name),
      count ? tw.span("tw-hits", String(count)) : null,
      entry.nodes && entry.changed
        ? tw.el("span", { class: "tw-pass-nodes", title: "nodes of the IR after it" }, String(entry.nodes))
        : null,
      tw.span("tw-pass-note", note),
    );
    return tw.el("div", { class: "tw-pass-row", role: "presentation" }, box(entry), button);
  }

  /** A pass that stands twice in the list is switched as one. */
  function box(/** @type {Fields} */ entry) {
    if (!entry.lost) return tw.span("tw-pass-box");
    const input = tw.el("input", {
      type: "checkbox", class: "tw-pass-box", "data-pass": entry.name,
      "aria-label": `run ${entry.name}`, title: `Optional. Without it: ${entry.lost}`,
      onchange: () => turn(entry.name, input.checked),
    });
    input.checked = !off.has(entry.name);
    return input;
  }

  function turn(/** @type {string} */ name, /** @type {boolean} */ on) {
    if (on) off.delete(name);
    else off.add(name);
    for (const each of node.querySelectorAll("input"))
      each.checked = !off.has(each.dataset.pass);
    switched([...off]);
  }

  function reset() {
    off.clear();
    for (const name of usual) off.add(name);
    for (const each of node.querySelectorAll("input")) each.checked = !off.has(each.dataset.pass);
  }

  /** @param {number[]} shown */
  function draw(shown, /** @type {{ selected: number, hits: Map<number, number>, query: string }} */ { selected, hits, query }) {
    node.replaceChildren(...shown.map((index) => {
      const count = hits.get(index);
      return item(index, { selected: index === selected, count, missed: query && !count });
    }));
    const button = node.querySelector('[aria-selected="true"]');
    if (button) tw.reveal(node, button);
  }

  /** Whether the passes that are off are not those of the kernel. */
  const differs = () => off.size !== usual.length || usual.some((name) => !off.has(name));

  return { node, draw, reset, differs };
}
