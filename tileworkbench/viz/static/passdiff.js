// The difference of two programs as a table of lines, with the words that differ.
import * as tw from "./common.js";

const FOLD_CONTEXT = 3;

/**
 * The table of a difference. `options.opened` is the set of folds that the reader has opened,
 * `options.open` is called when another one is; `options.query` is marked wherever it stands.
 * @param {any} diff
 * @param {{ split: boolean, query: string, opened: Set<number | string>, open(): void }} options
 */
export function diffTable(diff, options) {
  const changes = diff.rows.some((/** @type {any} */ row) => row.kind !== "same" && row.kind !== "fold");
  const split = changes && options.split;
  const span = changes ? 4 : 2;
  const rows = split ? splitRows(diff.rows) : unifiedRows(diff.rows);
  const widths = split ? ["40px", "", "40px", ""] : ["40px", "40px", "18px", ""];
  const columns = (changes ? widths : ["40px", ""]).map((width) =>
    tw.el("col", width ? { style: `width:${width}` } : {}));
  if (diff.problem) place(rows, diff.problem);
  return tw.el("table", { class: split ? "tw-split" : "tw-unified" },
    tw.el("colgroup", {}, ...columns), tw.el("tbody", {}, ...rows));

  /**
   * Put what went wrong below the line that it is about, or above all.
   * @param {HTMLElement[]} rows
   * @param {{ text: string, number: number }} given
   */
  function place(rows, { text, number }) {
    const lines = text.split("\n").map((/** @type {string} */ line) => tw.div("", line));
    const row = tw.el("tr", { class: "tw-problem" },
      tw.el("td", { colspan: String(span) }, tw.div("tw-message tw-failed", ...lines)));
    const at = rows.findIndex((/** @type {HTMLElement} */ each) => each.dataset.after === String(number));
    if (number && at >= 0) rows[at].classList.add("tw-wrong");
    rows.splice(number && at >= 0 ? at + 1 : 0, 0, row);
  }

  /** Rows with long unchanged runs replaced by {kind: "gap"} until opened. */
  function folded(/** @type {Fields[]} */ rows) {
    const out = /** @type {Fields[]} */ ([]);
    for (let i = 0; i < rows.length; ) {
      let end = i;
      while (end < rows.length && rows[end].kind === "same") end++;
      const [head, tail] = [i === 0 ? 0 : FOLD_CONTEXT, end === rows.length ? 0 : FOLD_CONTEXT];
      const count = end - i - head - tail;
      const closed = !options.opened.has(i) && !options.opened.has("all");
      if (count > 2 && closed && !hasHit(rows.slice(i + head, end - tail))) {
        out.push(...rows.slice(i, i + head), { kind: "gap", count, at: i });
        out.push(...rows.slice(end - tail, end));
      } else out.push(...rows.slice(i, end));
      if (end < rows.length) out.push(rows[end++]);
      i = end;
    }
    return out;
  }

  function hasHit(/** @type {Fields[]} */ rows) {
    return options.query &&
      rows.some((/** @type {any} */ row) => tw.finds(row.after?.text ?? "", options.query).length);
  }

  function gapRow(/** @type {any} */ row) {
    const text = `⋯ ${row.count} unchanged lines`;
    const open = () => { options.opened.add(row.at); options.open(); };
    const cell = row.kind === "fold" ? text : tw.button(text, open, { class: "" });
    return tw.el("tr", { class: "tw-gap" }, tw.el("td", { colspan: String(span) }, cell));
  }

  function number(/** @type {Fields | null} */ side) {
    return tw.el("td", { class: "tw-n" }, side ? String(side.number) : "");
  }

  function text(/** @type {Fields | null} */ side, /** @type {string} */ kind, before = false) {
    if (!side) return tw.el("td", { class: "tw-t tw-none" });
    const indent = side.text.length - side.text.trimStart().length; // wrapped text hangs below it
    const cell = tw.el("td", { class: `tw-t ${kind}`, style: `--indent:${indent}` });
    if (side.source) cell.dataset.source = String(side.source);
    if (before) cell.dataset.side = "before";
    cell.append(tw.code(side.text, side.words, options.query));
    return cell;
  }

  /**
   * @param {string} kind
   * @param {any} row
   * @param {Content[]} cells
   */
  function line(kind, row, ...cells) {
    const [before, after] = [row.before?.number ?? null, row.after?.number ?? null];
    return tw.el("tr", { class: kind, "data-before": before, "data-after": after }, ...cells);
  }

  function splitRows(/** @type {Fields[]} */ rows) {
    return folded(rows).map((row) => {
      if (row.kind === "gap" || row.kind === "fold") return gapRow(row);
      const same = row.kind === "same";
      const before = same ? { ...row.after, number: row.before.number } : row.before;
      const left = [number(before), text(before, same ? "" : "tw-old", true)];
      const right = [number(row.after), text(row.after, same ? "" : "tw-new")];
      return line(`tw-${row.kind}`, row, ...left, ...right);
    });
  }

  function unifiedRows(/** @type {Fields[]} */ rows) {
    if (!changes)
      return rows.map((/** @type {any} */ row) => line("", row, number(row.after), text(row.after, "")));
    const out = /** @type {Fields[]} */ ([]);
    const added = []; // a run of changes shows what went before what came
    /**
     * @param {string} text
     * @param {string} kind
     */
    const sign = (text, kind) => tw.el("td", { class: `tw-sign ${kind}` }, text);
    for (const row of folded(rows)) {
      const { kind, before, after } = row;
      const between = kind === "gap" || kind === "fold" || kind === "same";
      if (between) out.push(...added.splice(0));
      if (kind === "same")
        out.push(line("", row, number(before), number(after), sign("", ""), text(after, "")));
      else if (between) out.push(gapRow(row));
      else {
        const old = [sign("−", "tw-old"), text(before, "tw-old", true)];
        if (before) out.push(line("tw-removed", { before }, number(before), number(null), ...old));
        const now = [sign("+", "tw-new"), text(after, "tw-new")];
        if (after) added.push(line("tw-added", { after }, number(null), number(after), ...now));
      }
    }
    return [...out, ...added];
  }
}
