// The difference of two programs as trees: which statements were kept, rewritten, moved, and made.
import * as tw from "./common.js";

/** @type {Record<string, string>} */
const SIGNS = { same: "", inside: "", changed: "~", removed: "−", added: "+", moved: "↷" };
/** @type {Record<string, string>} */
const WORDS = {
  changed: "rewritten", removed: "removed", added: "added", moved: "moved here",
};
/** @type {Record<string, string>} */
const KINDS = { changed: "tw-rewritten", removed: "tw-old", added: "tw-new", moved: "tw-moved" };

/**
 * The tree as a list of rows; `query` is marked wherever it stands.
 * @param {{ rows: any[] }} tree
 * @param {string} query
 */
export function treeList({ rows }, query) {
  return tw.el("div", { class: "tw-tree", role: "tree", "aria-label": "Statements" },
    ...rows.map((row) => treeRow(row, query)));
}

function treeRow(/** @type {any} */ row, /** @type {string} */ query) {
  const kind = KINDS[row.kind] ?? "";
  const node = tw.el("div", {
    class: `tw-branch tw-tree-${row.kind} ${kind}`, role: "treeitem", "aria-level": row.depth + 1,
    style: `--depth:${row.depth}`, "data-source": row.after?.source || row.before?.source || null,
  });
  node.append(tw.el("span", { class: "tw-sign", title: WORDS[row.kind] ?? null }, SIGNS[row.kind]));
  if (row.count) {
    node.append(tw.faint(`${row.count} unchanged`));
    return node;
  }
  const { before, after } = row;
  const line = (/** @type {any} */ side, /** @type {string} */ name) => {
    const code = tw.code(side.text, [], query);
    if (name) code.dataset.side = name;
    return code;
  };
  const lines = tw.div("tw-branch-lines");
  const fields = (row.fields ?? []).filter((/** @type {string[]} */ [name]) => name);
  if (before && after && !fields.length) lines.append(tw.div("tw-was", line(before, "before")));
  lines.append(tw.div("", line(after ?? before, after ? "" : "before")));
  if (row.inside) lines.append(tw.div("tw-tree-field", `${row.inside} unchanged inside`));
  for (const [name, was, is] of fields)
    lines.append(tw.div("tw-tree-field", tw.span("tw-tree-field-name", name),
      tw.span("tw-minus", was || "none"), " → ", tw.span("tw-plus", is || "none")));
  node.append(lines);
  return node;
}
