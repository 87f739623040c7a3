// What each line moves, counted from a run, beside what the model expects.
import * as tw from "./common.js";
import { pressable } from "./keys.js";

/**
 * The table of viz/model/counted_lines.py and what marks the rows of lines; `choose(line)` when one
 * is pressed.
 * @param {CountedLines} counted
 * @param {(line: number) => void} choose
 */
export function countedLines({ note, groups, rows }, choose) {
  const said = tw.div("tw-sentence tw-counted-note", note);
  if (!rows.length) return { node: said, mark: () => {} };
  const above = tw.el("tr", {}, tw.el("th", { colspan: "2" }),
    ...groups.map(([name, names]) => tw.el("th", { colspan: String(names.length), scope: "colgroup" }, name)));
  const begins = (/** @type {number} */ place) => (place ? "" : "tw-first");
  const starts = groups.flatMap(([, names]) => names.map((_, place) => begins(place)));
  const heads = tw.el("tr", {}, tw.el("th", { scope: "col" }, "line"), tw.el("th", {}),
    ...groups.flatMap(([, names]) => names).map((name, i) =>
      tw.el("th", { scope: "col", class: starts[i] }, name)));
  const body = rows.map((row) => tw.el("tr", { "data-line": String(row.line) },
    tw.el("td", {}, row.line ? String(row.line) : ""),
    tw.el("th", { scope: "row", class: row.line ? "tw-mono" : "" }, row.name),
    ...row.cells.map((text, i) => tw.el("td", { class: starts[i] }, text))));
  rows.forEach((row, i) => {
    if (row.line) pressable(body[i], () => choose(row.line), `line ${row.line}: ${row.name}`);
  });
  const table = tw.el("table", { class: "tw-data tw-counted-lines", "aria-label": "Counted by line" },
    tw.el("thead", {}, above, heads), tw.el("tbody", {}, ...body));
  return {
    node: tw.div("", tw.div("tw-counted-scroll", table), said),
    mark: (/** @type {number[]} */ lines) => rows.forEach((row, i) =>
      body[i].classList.toggle("tw-current", Boolean(row.line) && lines.includes(row.line))),
  };
}
