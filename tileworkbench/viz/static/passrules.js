// The rules that a pass applied: how often, and the single rewrites, to step through in their order. Of
// a pass without rules the same for what it did to statements.
import * as tw from "./common.js";

const MOST_LISTED = 200; // rewrites of one rule

/**
 * The panel: `node`, `show(index)` for another pass, `step(by)`. It asks for the rules of a pass when
 * it is open; `go(rewrite)` is told which rewrite the reader looks at.
 * @param {{ ask(index: number): Promise<PassRules>, go(rewrite: PassRewrite): void }} given
 */
export function ruleList({ ask, go }) {
  const count = tw.faint("what was rewritten, and by which rule");
  const body = tw.div("tw-rules-body");
  const node = tw.el("details", { class: "tw-rules", ontoggle: () => load() },
    tw.el("summary", {}, tw.el("b", {}, "Rules"), " ", count), body);
  const place = tw.span("tw-rule-place");
  const current = tw.el("div", { class: "tw-rewrite-now", "aria-live": "polite" });
  let index = 0, at = -1;
  let found = /** @type {PassRules | null} */ (null);

  /** Show the rules of pass `next`, now or when the panel is opened. */
  function show(/** @type {number} */ next) {
    if (next === index && found) return;
    [index, at, found] = [next, -1, null];
    count.textContent = "what was rewritten, and by which rule";
    load();
  }

  async function load() {
    if (!node.open || found?.index === index) return;
    const asked = index;
    try {
      const made = await ask(asked);
      if (asked !== index) return;
      found = made;
    } catch (error) {
      body.replaceChildren(tw.faint(error.message));
      return;
    }
    draw();
  }

  function draw() {
    const { rules, rewrites, total, whole } = /** @type {PassRules} */ (found);
    const times = (/** @type {number} */ n, /** @type {string} */ word) => `${n} ${word}${n === 1 ? "" : "s"}`;
    count.textContent = !total ? "none" : whole ? `${times(total, "change")} to statements, without rules`
      : `${times(total, "rewrite")} by ${times(rules.length, "rule")}`;
    node.dataset.total = String(total);
    const about = tw.div("tw-whole", whole || (total ? "" : "This pass changed nothing."));
    if (!total) {
      body.replaceChildren(about);
      return;
    }
    const bar = tw.div("tw-bar",
      tw.button("‹", () => step(-1), { "aria-label": "Previous rewrite", title: "previous rewrite  ( [ )" }),
      tw.button("›", () => step(1), { "aria-label": "Next rewrite", title: "next rewrite  ( ] )" }),
      place);
    place.textContent = `step through all ${rewrites.length} in their order`;
    current.replaceChildren();
    body.replaceChildren(about, bar, current, ...rules.map(ruleRow));
    if (total > rewrites.length)
      body.append(tw.faint(`The last ${total - rewrites.length} are not shown.`));
  }

  function ruleRow(/** @type {{ name: string, doc: string, count: number }} */ { name, doc, count: times }) {
    const list = tw.el("ol", { class: "tw-rewrites-of" });
    const row = tw.el("details", { class: "tw-rule", "data-rule": name, ontoggle: () => fill() },
      tw.el("summary", {}, tw.chip(`${times}×`), " ", tw.el("code", {}, name), " ", tw.faint(doc)), list);

    function fill() {
      if (!row.open || list.childElementCount) return;
      const { rewrites } = /** @type {PassRules} */ (found);
      const mine = [...rewrites.entries()].filter(([, each]) => each.rule === name);
      list.append(...mine.slice(0, MOST_LISTED).map(([number, each]) =>
        tw.el("li", {}, tw.button(each.source ? `line ${each.source}` : `number ${number + 1}`,
          () => look(number), { class: "tw-link" }), " ", ...change(each))));
      if (mine.length > MOST_LISTED)
        list.append(tw.el("li", { class: "tw-faint" }, `and ${mine.length - MOST_LISTED} more: step to them`));
    }
    return row;
  }

  /** What was there and what is, as code. */
  const change = (/** @type {PassRewrite} */ { before, after }) => [
    before ? tw.el("span", { class: "tw-was-code" }, tw.code(before)) : null,
    before && after ? tw.span("tw-arrow", " → ") : null,
    after ? tw.el("span", { class: "tw-is-code" }, tw.code(after)) : null,
  ].filter(Boolean);

  /** Look at rewrite `number`: its change, its statement, its line. */
  function look(/** @type {number} */ number) {
    const { rewrites } = /** @type {PassRules} */ (found);
    const each = rewrites[number];
    at = number;
    place.textContent = `${number + 1} of ${rewrites.length}`;
    node.dataset.at = String(number + 1);
    const inside = [each.before, each.after].includes(each.statement) ? [] : [tw.div("tw-rule-in", tw.faint("in "), tw.code(each.statement))];
    current.replaceChildren(
      tw.div("", tw.el("code", {}, each.rule), each.source ? tw.faint(`, line ${each.source}`) : ""),
      tw.div("tw-rule-change", ...change(each)), ...inside);
    go(each);
  }

  /** The next rewrite, or the one before. */
  function step(/** @type {number} */ by) {
    if (!found?.rewrites.length) {
      node.open = true;
      return;
    }
    look(Math.min(Math.max(at + by, 0), found.rewrites.length - 1));
  }

  return { node, show, step };
}
