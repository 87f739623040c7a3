// The user's text, each line shaded by what it costs; a line opens on what became of it.
import * as tw from "./common.js";
import { countedLines } from "./countedlines.js";
import { pickLines } from "./keys.js";
import { METRICS, lineDetail, usableMetrics } from "./linedetail.js";

/** @param {ViewArguments} given */
export function render({ model, el, data }) {
  const root = tw.root(el, "annotated");
  const scope = tw.scope(model);
  const costs = new Map(data.costs.map((/** @type {Cost} */ cost) => [cost.line, cost]));
  const listing = tw.listing(data.lines, data.first, { class: "tw-tall" });
  const cells = listing.rows.map((row) => {
    const cell = tw.span("tw-cost");
    row.prepend(cell);
    return cell;
  });
  const opened = tw.div("tw-line-detail");
  for (const { line, text } of data.warnings) {
    const row = listing.rows[line - data.first];
    if (!row) continue;
    row.classList.add("tw-warned");
    row.title = text;
  }
  const usable = usableMetrics(data.costs);
  if (usable.length) root.append(toolbar());
  root.append(tw.div("tw-source-columns", listing.node, opened));
  const choose = (/** @type {number} */ line) => tw.set(model, { selection: { line } });
  const counted = data.counted ? countedLines(data.counted, choose) : null;
  if (counted) root.append(counted.node);

  function toolbar() {
    const choose = tw.el("select", {
      class: "tw-select", "aria-label": "Shade by", onchange: () => shade(choose.value),
    }, ...usable.map(([name, { label }]) => tw.el("option", { value: name }, label)));
    shade(usable[0][0]);
    return tw.div("tw-bar", tw.el("label", { class: "tw-check" }, "Shade by", choose),
      tw.faint("click a line to see what became of it"));
  }

  /** Numbers and colours: the darkest is the largest; a floor is what nothing is lost at. */
  function shade(/** @type {string} */ name) {
    const { of, show, floor = 0 } = METRICS[name];
    const most = Math.max(...data.costs.map((/** @type {Cost} */ cost) => (of(cost) ?? 0) - floor));
    cells.forEach((cell, i) => {
      const cost = costs.get(data.first + i);
      const value = cost ? of(cost) : null;
      const part = value && most > 0 ? (value - floor) / most : 0;
      cell.textContent = value ? show(value) : "";
      cell.style.backgroundColor = part > 0 ? `rgba(240, 150, 0, ${0.08 + 0.42 * part})` : "";
    });
  }

  let asked = 0;
  async function detail(/** @type {number} */ line) {
    const mine = ++asked;
    if (!line) return opened.replaceChildren();
    let answer;
    try {
      answer = await tw.ask(model, { type: "line", line });
    } catch (error) {
      answer = { passes: [], code: [], error: error.message };
    }
    if (mine !== asked) return undefined;
    return opened.replaceChildren(...lineDetail(data, line, answer));
  }

  const select = () => {
    listing.mark(tw.chosenLines(model));
    counted?.mark(tw.chosenLines(model));
    detail(model.get("selection").line);
  };
  pickLines(listing.node, choose, "The kernel's lines");
  scope.on("change:selection", select);
  select();
  return scope.dispose;
}
