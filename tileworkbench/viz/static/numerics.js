// Rounding errors of one block: Python runs it and draws them, the browser tells of each statement.
import * as tw from "./common.js";

/** @param {ViewArguments} given */
export function render({ model, el, data }) {
  const root = tw.root(el, "numerics");
  const scope = tw.scope(model);
  const message = tw.el("div", { class: "tw-sentence", "aria-live": "polite" });
  const body = tw.div("tw-numerics-body");
  const block = tw.el("input", { class: "tw-input tw-numerics-block", "aria-label": "Block, indices x first",
    placeholder: "block 0, 0" });
  const run = tw.button("Run beside float64", start,
    { title: "run one block twice in the simulator, as it is and in float64" });
  root.append(tw.div("tw-bar", run, block, message), body);
  let shown = data;
  let metric = "scaled";
  let at = /** @type {string | null} */ ("");

  /** Run a block; what was shown before stays where that fails. */
  async function start() {
    const text = block.value.trim();
    const asked = text ? { block: text.split(/[\s,]+/).map(Number) } : {};
    run.disabled = true;
    message.textContent = "running …";
    try {
      const answer = await tw.ask(model, { type: "numerics-run", ...asked });
      message.textContent = answer.error ?? "";
      if (!answer.error) {
        shown = answer;
        at = "";
        draw();
      }
    } catch (failure) {
      message.textContent = failure.message;
    }
    run.disabled = false;
  }

  const plot = tw.el("div", { class: "tw-plot", tabindex: "0", role: "group",
    "aria-label": "Errors over executed statements: arrow keys go from statement to statement" });
  const info = tw.el("div", { class: "tw-info tw-numerics-info", "aria-live": "polite" });

  function draw() {
    if (!shown.ran) {
      body.replaceChildren(tw.faint("Nothing has run yet. The first block runs on the kernel's inputs: "
        + "those of kernel.with_inputs(...), of a check that failed, or made-up ones."));
      return;
    }
    const said = [
      ...shown.origins.map((/** @type {Fields} */ origin) => tw.div("tw-finding tw-is-bad", "⚠ ", capital(origin.text), " ",
        lineLink(origin))),
      tw.div("tw-sentence", shown.sentence),
      tw.div("tw-sentence", tw.faint(`Block (${shown.block.join(", ")}), on ${shown.inputs}.`)),
    ];
    if (shown.stopped) said.push(tw.div("tw-sentence", `Not all of it: ${shown.stopped}.`));
    if (shown.exact.length)
      said.push(tw.div("tw-sentence", tw.faint(`Exact throughout: ${shown.exact.join(", ")}.`)));
    const kinds = tw.choice({ scaled: "ulp of the largest", ulp: "own ulp", relative: "relative", absolute: "absolute" }, metric,
      (value) => { metric = value; picture(); });
    const drawn = shown.charts.scaled ? [tw.div("tw-bar", kinds.node), plot, info] : [];
    body.replaceChildren(...said, ...drawn, table());
    picture();
  }

  function picture() {
    if (!shown.charts[metric]) return;
    const drawing = tw.drawing(shown.charts[metric], shown.metrics[metric]);
    drawing.addEventListener("mousemove", (/** @type {any} */ event) => point(nearest(drawing, event)));
    drawing.addEventListener("click", (/** @type {any} */ event) => choose(nearest(drawing, event)));
    plot.replaceChildren(drawing);
    point(null);
  }

  const points = () => [...plot.querySelectorAll("[data-step]")];
  /** @param {Element} node */
  const place = (node) => [Number(node.getAttribute("cx")), Number(node.getAttribute("cy"))];

  /** The point nearest to the pointer, sideways first: lines are near each other. */
  function nearest(/** @type {any} */ drawing, /** @type {MouseEvent} */ event) {
    const box = drawing.getBoundingClientRect();
    const scale = drawing.viewBox.baseVal.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let best = null;
    let least = Infinity;
    for (const node of points()) {
      const [cx, cy] = place(node);
      const distance = 4 * Math.abs(cx - x) + Math.abs(cy - y);
      if (distance < least) [best, least] = [node, distance];
    }
    return best;
  }

  /** Tell of a point; of the chosen one, or of none. */
  function point(/** @type {Element | null} */ node) {
    const step = node ? node.getAttribute("data-step") : at;
    for (const each of points())
      each.classList.toggle("tw-pointed", each.getAttribute("data-step") === step);
    const facts = shown.steps[/** @type {string} */ (step)];
    if (!facts) {
      info.replaceChildren(tw.faint("Point at the picture to see a statement; click it to choose its line."));
      return;
    }
    const element = named(facts);
    info.replaceChildren(
      tw.div("", tw.el("b", {}, `line ${facts.line}`), facts.where ? `, ${facts.where}` : "",
        `: writes ${facts.elements} elements of ${facts.buffer} (${facts.dtype})`),
      tw.div("", `largest errors: ${facts.scaled} ulp of the largest element, ${facts.ulp} ulp of its own, relative ${facts.relative}, absolute ${facts.absolute}`),
      tw.div("", `${element} is ${facts.value}, float64 has ${facts.exact}`));
  }

  /** @param {any} given */
  const named = ({ buffer, element }) => (element.length ? `${buffer}[${element.join(", ")}]` : buffer);
  const capital = (/** @type {string} */ text) => text[0].toUpperCase() + text.slice(1);

  function choose(/** @type {Element | null} */ node) {
    if (!node) return;
    at = node.getAttribute("data-step");
    point(node);
    select(shown.steps[/** @type {string} */ (at)]);
  }

  function select(/** @type {Fields} */ { line, buffer, element }) {
    if (line) tw.set(model, { selection: { line, buffer, element } });
  }

  /** @param {Fields} place */
  const lineLink = (place) => (place.line ? tw.link(`show line ${place.line}`, () => select(place)) : "");

  function table() {
    const heads = ["line", "writes", "times", "first", "worst", "in ulp of", "of its own", "relative", "absolute", "where", "is", "float64"];
    return tw.el("table", { class: "tw-data tw-numerics-lines" },
      tw.el("thead", {}, tw.el("tr", {}, ...heads.map((text) => tw.el("th", { scope: "col" }, text)))),
      tw.el("tbody", {}, ...shown.lines.map(row)));
  }

  function row(/** @type {Fields} */ line) {
    const where = `${named(line)}${line.where ? ` at ${line.where}` : ""}`;
    const cells = [line.buffer, line.executions, line.first, line.scaled, line.dtype, line.ulp,
      line.relative, line.absolute, where, line.value, line.exact];
    const node = tw.el("tr", { "data-line": String(line.line) },
      tw.el("td", {}, line.line ? tw.link(String(line.line), () => select(line)) : "–"),
      ...cells.map((text) => tw.el("td", {}, String(text))));
    return node;
  }

  function mark() {
    const { line } = model.get("selection");
    for (const node of body.querySelectorAll("[data-line]"))
      node.classList.toggle("tw-current", line > 0 && Number(node.getAttribute("data-line")) === line);
    for (const node of points()) {
      const facts = shown.steps[node.getAttribute("data-step")];
      node.classList.toggle("tw-chosen", line > 0 && facts.line === line);
    }
  }

  plot.addEventListener("mouseleave", () => point(null));
  plot.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const step = (/** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowLeft: -1 }))[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const every = points().sort((a, b) =>
      Number(a.getAttribute("data-step")) - Number(b.getAttribute("data-step")));
    const place = every.findIndex((node) => node.getAttribute("data-step") === at);
    choose(every[Math.min(Math.max(place + step, 0), every.length - 1)]);
  });
  scope.on("change:selection", mark);
  draw();
  mark();
  return scope.dispose;
}
