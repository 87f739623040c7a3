// The trail of a kernel: the versions of its cell, which the notebook keeps from session to session.
import { ask, div, el, faint, keepTrail, readTrail } from "./common.js";

/**
 * Versions as a table, the last one marked; null for fewer than two.
 * @param {any[]} steps
 * @param {number} kept
 */
export function trailTable(steps, kept) {
  if (steps.length < 2) return null;
  const head = el("tr", {}, ...["version", "time", "change"].map((text) => el("th", {}, text)));
  const rows = steps.map((step, at) => {
    const how = step.predicted ? ", predicted" : step.cold ? ", cold caches" : "";
    const time = `${step.time}${how}`;
    const change = el("td", { class: "tw-change" });
    step.change.forEach((/** @type {string} */ line) => change.append(div(changeClass(line), line)));
    const row = el("tr", { "data-step": step.number }, el("td", {}, String(step.number)),
      el("td", {}, time), change);
    if (at === steps.length - 1) row.className = "tw-current";
    return row;
  });
  const table = el("table", { class: "tw-data tw-trail" }, el("thead", {}, head),
    el("tbody", {}, ...rows));
  return div("", faint(`Trail: the last ${kept} versions are kept.`), table);
}

const changeClass = (/** @type {string} */ line) =>
  `tw-mono ${line[0] === "+" ? "tw-gained" : line[0] === "-" ? "tw-lost" : ""}`;

/**
 * Join the trails of `data` with what the notebook keeps of them, once for each version: the kernel
 * draws the joined ones. Where nobody answers (no kernel, no extension) nothing changes.
 * @param {Model} model
 * @param {any} data what the model has of the roofline
 * @param {HTMLElement} node
 */
export async function joinTrails(model, data, node) {
  if (!data?.points || data.joined) return;
  const named = data.points.filter((/** @type {any} */ point) => point.trail?.length);
  const trails = Object.fromEntries(named.map((/** @type {any} */ { name }) => [name, readTrail(name, node)]));
  if (!Object.keys(trails).length) return;
  try {
    const { kept } = await ask(model, { type: "join-trails", trails });
    for (const [name, steps] of Object.entries(kept))
      if (JSON.stringify(steps) !== JSON.stringify(trails[name])) keepTrail(name, steps, node);
  } catch {
    // a saved card: what it was saved with stays
  }
}
