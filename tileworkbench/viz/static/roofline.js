// The roofline: Python draws it, the browser shows the verdict of each point.
import * as tw from "./common.js";
import { joinTrails, trailTable } from "./trail.js";

/** @param {ViewArguments} given */
export function render({ model, el }) {
  const root = tw.root(el, "roofline");
  const scope = tw.scope(model);

  function verdict(point) {
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
    if (point.wrong) node.setAttribute("role", "alert");
    return node;
  }

  const hasLine = (point) => point.line && model.get("selection") !== undefined;
  const lineLink = (line) =>
    tw.link(`show line ${line}`, () => tw.set(model, { tab: "source", selection: { line } }));

  /** Time by cause, memory levels and the trail of a point. */
  function details(point) {
    const parts = [];
    if (point.bars) {
      const told = point.unexplained ? `${point.unexplained} ` : "";
      const note = `${told}Time by cause, by ${point.model}.`;
      parts.push(tw.div("tw-bars", tw.drawing(point.bars), tw.faint(note)));
    }
    if (point.levels) parts.push(tw.div("tw-levels", point.levels));
    const trail = trailTable(point.trail, model.get("roofline").kept);
    if (trail) parts.push(trail);
    return parts;
  }

  function ceilings(table) {
    const cells = (name, texts) => texts.map((text) => tw.el(name, {}, text));
    const head = tw.el("tr", {}, ...cells("th", ["ceiling", ...table.columns]));
    const rows = table.rows.map((row) =>
      tw.el("tr", {}, ...cells("td", [row.name, ...row.values])));
    const body = tw.el("tbody", {}, ...rows);
    return tw.el("table", { class: "tw-ceilings" }, tw.el("thead", {}, head), body);
  }

  function show() {
    const data = model.get("roofline");
    if (!data.svg) return;
    const measured = tw.el("details", {}, tw.el("summary", {}, "Ceilings"));
    measured.append(ceilings(data.ceilings));
    const title = tw.div("tw-bar", tw.el("b", {}, data.machine), tw.faint(data.note));
    const verdicts = tw.div("tw-verdicts", ...data.points.map(verdict), measured);
    const plot = tw.div("tw-plot", tw.drawing(data.svg), ...data.points.flatMap(details));
    const told = model.get("card") !== undefined || model.get("about"); // by who shows this view
    const about = data.about && !told ? [tw.about(data.about)] : [];
    root.replaceChildren(title, ...about, tw.div("tw-roof-columns", plot, verdicts));
    joinTrails(model, data, root);
  }

  scope.on("change:roofline", show);
  show();
  return scope.dispose;
}
