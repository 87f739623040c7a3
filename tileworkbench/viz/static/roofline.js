// The roofline: Python draws it, the browser shows the verdict of each point.
import * as tw from "./common.js";
import { pressable } from "./keys.js";
import { joinTrails, trailTable } from "./trail.js";

/** @param {ViewArguments} given */
export function render({ model, el }) {
  const root = tw.root(el, "roofline");
  const scope = tw.scope(model);

  function verdict(/** @type {Fields} */ point) {
    const width = `width:${Math.min(100, point.fraction * 100).toFixed(1)}%`;
    const facts = `${point.dtype}, bytes at ${point.level}, ${point.time}`;
    const rate = `${point.achieved} of ${point.attainable} attainable`;
    const node = tw.div(
      `tw-verdict ${point.wrong ? "tw-wrong" : ""}`,
      tw.div("tw-verdict-head", tw.el("b", { class: "tw-mono" }, point.name), tw.faint(facts)),
      tw.div("tw-rate", tw.el("b", {}, point.percent), rate),
      tw.div("tw-meter", tw.el("div", { style: width })),
      point.sentence,
      tw.div("tw-next", point.next, ...(hasLine(point) ? [" ", lineLink(point.line)] : [])),
    );
    node.dataset.line = point.line;
    if (point.wrong) node.setAttribute("role", "alert");
    return node;
  }

  /** @param {Fields} point */
  const hasLine = (point) => point.line && model.get("selection") !== undefined;
  const lineLink = (/** @type {number} */ line) =>
    tw.link(`show line ${line}`, () => tw.set(model, { tab: "source", selection: { line } }));

  /** Time by cause, memory levels and the trail of a point. */
  function details(/** @type {Fields} */ point) {
    const parts = [];
    if (model.get("roofline").points.length > 1) parts.push(tw.div("tw-panel-title", point.name));
    if (point.bars) {
      const told = point.unexplained ? `${point.unexplained} ` : "";
      const note = `${told}Time by cause, by ${point.model}.`;
      const bars = tw.div("tw-bars", tw.drawing(point.bars, "Time by cause"),
        tw.div("tw-of-line"), tw.faint(note));
      bars.dataset.total = point.total_us;
      for (const part of bars.querySelectorAll("[data-line]")) linked(part);
      parts.push(bars);
    }
    if (point.levels) parts.push(tw.div("tw-levels", point.levels));
    if (point.traffic?.note) parts.push(traffic(point.traffic, !point.levels));
    const trail = trailTable(point.trail, model.get("roofline").kept);
    if (trail) parts.push(trail);
    return parts;
  }

  /**
   * Bytes by memory level: what the model expects beside what was counted.
   * @param {Fields} given
   * @param {boolean} told whether to say how, which the sentence of the levels does too
   */
  function traffic({ rows, note }, told) {
    const heads = Object.entries(model.get("roofline").traffic_heads);
    const head = tw.el("tr", {}, ...heads.map(([, text]) => tw.el("th", { scope: "col" }, text)));
    const body = rows.map((/** @type {Fields} */ row) => tw.el("tr", { "data-level": row.level },
      ...heads.map(([key]) => tw.el("td", {}, row[key]))));
    const table = tw.el("table", { class: "tw-data tw-traffic" }, tw.el("thead", {}, head),
      tw.el("tbody", {}, ...body));
    return tw.div("", rows.length ? table : null, told ? tw.faint(`Bytes by level: ${note}.`) : null);
  }

  /** A line's part of a bar chooses the line. */
  function linked(/** @type {any} */ part) {
    if (model.get("selection") === undefined) return;
    const line = Number(part.getAttribute("data-line"));
    pressable(part, () => tw.set(model, { selection: { line } }),
      part.querySelector("title").textContent);
  }

  /** Mark what the chosen lines have of each bar, and say how much that is. */
  function select() {
    if (model.get("selection") === undefined) return; // it stands alone
    const lines = tw.chosenLines(model);
    for (const bars of tw.all(root, ".tw-bars")) {
      let time = 0;
      for (const part of tw.all(bars, "[data-line]")) {
        const mine = lines.includes(Number(part.getAttribute("data-line")));
        part.classList.toggle("tw-chosen", mine);
        if (mine) time += Number(part.getAttribute("data-us"));
      }
      const share = Math.round((time / Number(bars.dataset.total)) * 100);
      const who = lines.length > 1 ? `Lines ${lines.join(", ")} have` : `Line ${lines[0]} has`;
      tw.all(bars, ".tw-of-line")[0].textContent = lines.length
        ? `${who} ${share} % of the predicted time${time ? " (framed)" : ""}.`
        : "A box is a cause; click into it for the line that spends most there.";
    }
    for (const told of tw.all(root, ".tw-verdict"))
      told.classList.toggle("tw-current", lines.includes(Number(told.dataset.line)));
  }

  function ceilings(/** @type {Fields} */ table) {
    /**
     * @param {string} name
     * @param {string[]} texts
     */
    const cells = (name, texts) => texts.map((/** @type {string} */ text) => tw.el(name, {}, text));
    const head = tw.el("tr", {}, ...cells("th", ["ceiling", ...table.columns]));
    const rows = table.rows.map((/** @type {Fields} */ row) =>
      tw.el("tr", {}, ...cells("td", [row.name, ...row.values])));
    const body = tw.el("tbody", {}, ...rows);
    return tw.el("table", { class: "tw-ceilings" }, tw.el("thead", {}, head), body);
  }

  function show() {
    const data = model.get("roofline");
    if (!data.svg) return;
    const measured = tw.el("details", {}, tw.el("summary", {}, "Ceilings and how they were found"));
    measured.append(ceilings(data.ceilings), tw.div("tw-faint tw-ceilings-note", data.note));
    const title = tw.div("tw-bar", tw.el("b", {}, data.machine), tw.faint(data.brief));
    const verdicts = tw.div("tw-verdicts", ...data.points.map(verdict), measured);
    const plot = tw.div("tw-plot", tw.drawing(data.svg), ...data.points.flatMap(details));
    const told = model.get("card") !== undefined || model.get("about"); // by who shows this view
    const about = data.about && !told ? [tw.about(data.about)] : [];
    root.replaceChildren(title, ...about, tw.div("tw-roof-columns", plot, verdicts));
    joinTrails(model, data, root);
    select();
  }

  scope.on("change:roofline", show);
  scope.on("change:selection", select);
  show();
  return scope.dispose;
}
