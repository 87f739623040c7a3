// A table of accesses, one of which is chosen; what the views of banks, sectors and cache lines share.
import * as tw from "./common.js";

/** @type {Record<string, string>} */
const SIDES = { write: "writes", read: "reads", update: "updates" };

/**
 * The table. `groups` are `{ name, note, accesses: [{ index, line, side, described, cells, used,
 * ideal, bad }] }`; `heads` name the `cells`; `choose(index)` is called for the chosen one. Returns
 * `{ node, mark(index), select(selection) }`.
 */
export function accessTable(/** @type {AccessTable} */ { groups, heads, choose }) {
  const rows = new Map();
  const body = tw.el("tbody");
  const lines = new Map();
  for (const { name, note, accesses } of groups) {
    const head = tw.el("th", { colspan: heads.length + 4, scope: "rowgroup" },
      tw.el("b", { class: "tw-mono" }, name), " ", tw.faint(note));
    body.append(tw.el("tr", { class: "tw-group" }, head));
    for (const access of accesses) {
      const { index, line, side, described, cells, bad } = access;
      const button = tw.link(described, () => choose(index));
      const row = tw.el("tr", { "data-access": index, class: bad ? "tw-conflict" : "",
        onclick: (/** @type {MouseEvent} */ event) => event.target === button || choose(index) },
      tw.el("td", {}, button), tw.el("td", {}, SIDES[side]),
      tw.el("td", {}, line ? `line ${line}` : "–"), ...cells.map((/** @type {string} */ cell) => tw.el("td", {}, cell)),
      tw.el("td", {}, meter(access)));
      rows.set(index, row);
      lines.set(index, { line, name });
      body.append(row);
    }
  }
  const node = tw.div("tw-access-list", tw.el("table", { class: "tw-data" },
    tw.el("thead", {}, tw.el("tr", {}, ...["access", "", "", ...heads, "used / needed"].map((text) =>
      tw.el("th", { scope: "col" }, text)))), body));
  const mark = (/** @type {number} */ chosen) => {
    for (const [index, row] of rows) row.setAttribute("aria-selected", String(index === chosen));
    if (rows.has(chosen)) tw.reveal(node, rows.get(chosen));
  };
  /** Marks the accesses of the selected lines; returns the first of them, of its buffer if it has one. */
  const select = (/** @type {Chosen} */ { line, lines: several, buffer }) => {
    let first = null;
    const chosen = several ?? (line ? [line] : []);
    for (const [index, row] of rows) {
      const at = lines.get(index);
      const here = chosen.includes(at.line) && (!several || at.name === buffer);
      row.classList.toggle("tw-current", here);
      if ((here || (!line && buffer)) && (!buffer || buffer === at.name)) first ??= index;
    }
    return first;
  };
  return { node, mark, select };
}

/** The accesses whose addresses are not known before the kernel runs, with the reasons. */
export const notListed = (/** @type {string[]} */ texts) => (texts?.length
  ? tw.el("details", { class: "tw-about-view", open: true },
    tw.el("summary", {}, `${texts.length} more ${texts.length === 1 ? "access is" : "accesses are"} not counted`),
    ...texts.map((/** @type {string} */ text) => tw.div("tw-sentence", text)))
  : tw.span(""));

/** The factor in numbers and as a bar: what is needed, and what is used beyond it. */
function meter(/** @type {AccessRow} */ { used, ideal, bad }) {
  const factor = ideal ? used / ideal : 1;
  const needed = Math.max(100 / Math.max(factor, 1), 2);
  const bar = tw.span("tw-cost-bar", tw.el("span", { style: `width:${needed}%` }));
  const text = tw.span(bad ? "tw-factor tw-is-bad" : "tw-factor tw-is-good", `${factor.toFixed(2)}×`);
  return tw.span("tw-used", bar, text);
}

/**
 * A picture with its title and a note below.
 * @param {string} title
 * @param {HTMLElement} canvas
 * @param {string} note
 */
export function figure(title, canvas, note) {
  const caption = tw.div("tw-figure-title", title);
  const below = tw.div("tw-figure-note", note);
  return { node: tw.el("figure", { class: "tw-figure" }, caption, canvas, below), caption, below };
}

/** A picture's canvas, which takes keys. */
export const canvas = () => tw.el("canvas", { class: "tw-cells", role: "img", tabindex: "0" });

/** A number to slide through, with buttons on both sides: `{ node, set(value), limit(count) }`. */
export function stepper(/** @type {string} */ label, /** @type {(value: number) => void} */ move) {
  const range = tw.el("input", { type: "range", min: "0", value: "0", class: "tw-range",
    "aria-label": label, oninput: () => move(Number(range.value)) });
  const step = (/** @type {number} */ by) => {
    const next = Math.min(Number(range.max), Math.max(0, Number(range.value) + by));
    if (next !== Number(range.value)) move(next);
  };
  const [back, on] = [
    tw.button("◀", () => step(-1), { "aria-label": `Previous ${label}` }),
    tw.button("▶", () => step(1), { "aria-label": `Next ${label}` })];
  const node = tw.span("tw-stepper", back, range, on);
  return {
    node,
    set: (/** @type {number} */ value) => { range.value = String(value); },
    limit: (/** @type {number} */ count) => {
      range.max = String(Math.max(count - 1, 0));
      for (const part of [back, range, on]) part.disabled = count < 2;
    },
  };
}

/** The width of a picture: two stand side by side where there is room for both. */
export const roomOf = (/** @type {HTMLElement} */ root) =>
  root.clientWidth < 744 ? root.clientWidth - 2 : Math.floor((root.clientWidth - 24) / 2);

/** `name[i, j:j + n]`, from the row-major number of the first element. */
export function elementName(/** @type {string} */ name, /** @type {number[]} */ shape, /** @type {number} */ first, count = 1) {
  let rest = first;
  const index = [...shape].reverse().map((extent) => {
    const at = rest % extent;
    rest = Math.floor(rest / extent);
    return at;
  }).reverse();
  const last = index.at(-1) ?? 0;
  const end = count > 1 ? `${last}:${last + count}` : `${last}`;
  return `${name}[${[...index.slice(0, -1), end].join(", ")}]`;
}

/**
 * What is in a panel, without the parts that are null.
 * @param {HTMLElement} panel
 * @param {(Node | string | null)[]} parts
 */
export const fill = (panel, ...parts) =>
  panel.replaceChildren(...parts.filter((part) => part !== null));

/** Label and value in a panel. */
export const row = (/** @type {string} */ label, /** @type {Content} */ value, kind = "") =>
  tw.div(`tw-row ${kind}`, tw.faint(label), tw.el("b", {}, value));
