// The software pipeline: Python draws it, the browser shows what is behind each bar and links lines.
import * as tw from "./common.js";
import { ofLaunches } from "./launches.js";

/** @type {Render} */
export const render = ofLaunches("pipeline-launch", chart);

/** @param {ViewArguments} given */
function chart({ model, el, data }) {
  const root = tw.root(el, "pipeline");
  const scope = tw.scope(model);
  const plot = tw.el("div", { class: "tw-plot", tabindex: "0", role: "group",
    "aria-label": "Pipeline chart: arrow keys go from bar to bar" });
  const info = tw.el("div", { class: "tw-info tw-pipeline-info", "aria-live": "polite" });
  const verdict = tw.div("tw-sentence");
  const others = tw.div("tw-pipeline-stages");
  const place = tw.span("tw-faint");
  const range = tw.el("input", {
    type: "range", min: "0", max: String(Math.max(data.iterations - data.count, 0)), step: "1",
    "aria-label": "first iteration", oninput: () => ask(Number(range.value)),
    onkeydown: (/** @type {KeyboardEvent} */ event) => event.stopPropagation(), // JupyterLab takes the arrows for itself
  });
  range.value = String(data.first);
  const simulate = tw.button("Run in the simulator", () => {
    traced = !traced;
    ask(Number(range.value));
  }, { "aria-pressed": "false",
    title: "run this block on made-up inputs; what it does is drawn over the prediction" });
  const stages = tw.button("Other numbers of stages", askStages,
    { title: "lower the kernel again with each" });
  let traced = false;
  let asked = 0;
  let shown = data;
  let pinned = "";
  root.append(
    tw.about(data.about),
    tw.div("tw-bar", simulate, stages,
      data.iterations > data.count ? tw.el("label", { class: "tw-check" }, "iterations", range) : null,
      place),
    plot, info, verdict, others,
    ...data.sentences.map((/** @type {string} */ text) => tw.div("tw-sentence", text)),
    tw.el("details", {}, tw.el("summary", {}, "What the prediction assumes"),
      ...data.assumptions.map((/** @type {string} */ text) => tw.div("tw-faint", text))));

  const bars = () => [...plot.querySelectorAll("[data-event]")];

  /** Ask for the chart from another iteration on; only the last question counts. */
  async function ask(/** @type {number} */ first) {
    const mine = ++asked;
    let answer;
    try {
      answer = await tw.ask(model, { type: "pipeline", launch: data.launch, first, trace: traced });
    } catch (failure) {
      answer = { error: failure.message };
    }
    if (mine !== asked) return;
    if (answer.error) {
      traced = false;
      verdict.textContent = answer.error;
    } else {
      shown = answer;
      draw();
      verdict.textContent = answer.agreement;
    }
    simulate.setAttribute("aria-pressed", String(traced));
  }

  async function askStages() {
    try {
      showStages((await tw.ask(model, { type: "stages", launch: data.launch })).rows);
    } catch (failure) {
      others.replaceChildren(tw.div("tw-note", failure.message));
    }
  }

  function showStages(/** @type {any[]} */ rows) {
    if (!rows.length)
      return others.replaceChildren(tw.div("tw-note", "No loop is T.Pipelined: its stages are the kernel's own."));
    const heads = ["num_stages", "shared memory", "blocks at once", "per iteration"];
    others.replaceChildren(tw.el("table", { class: "tw-data" },
      tw.el("thead", {}, tw.el("tr", {}, ...heads.map((text) => tw.el("th", {}, text)))),
      tw.el("tbody", {}, ...rows.map(stageRow))));
  }

  function stageRow(/** @type {any} */ row) {
    const cells = row.problem
      ? [tw.el("td", { colspan: "3" }, row.problem)]
      : [tw.bytesText(row.shared_bytes), row.blocks || "–",
        row.period === null ? "not pipelined" : `${row.period} ${row.unit}`]
        .map((text) => tw.el("td", {}, String(text)));
    return tw.el("tr", { class: row.chosen ? "tw-current" : "" },
      tw.el("td", {}, String(row.num_stages)), ...cells);
  }

  function draw() {
    const drawing = tw.drawing(shown.svg, "Pipeline over time");
    drawing.addEventListener("mouseover", ({ target }) => hover(barOf(target)));
    drawing.addEventListener("mouseleave", () => hover(null));
    drawing.addEventListener("click", ({ target }) => choose(barOf(target)));
    plot.replaceChildren(drawing);
    const last = shown.first + shown.count;
    place.textContent = `iterations ${shown.first} to ${last - 1} of ${data.iterations}`;
    pinned = "";
    hover(null);
    select();
  }

  const barOf = (/** @type {EventTarget | null} */ target) =>
    /** @type {Element} */ (target).closest("[data-event]");

  /** Tell of a bar, and mark what is of the same event: the stage and the threads. */
  function hover(/** @type {Element | null} */ bar) {
    const event = bar?.getAttribute("data-event") ?? pinned;
    for (const each of bars())
      each.classList.toggle("tw-pointed", event !== "" && each.getAttribute("data-event") === event);
    const lines = shown.events[event] ?? [];
    const [head, ...rest] = lines.length ? lines : ["Point at a bar; click it to choose its line."];
    info.replaceChildren(lines.length ? tw.code(head) : tw.faint(head),
      ...rest.map((/** @type {string} */ text) => tw.div("", text)));
  }

  function choose(/** @type {Element | null} */ bar) {
    if (!bar) return;
    pinned = bar.getAttribute("data-event") ?? "";
    hover(bar);
    const line = Number(bar.getAttribute("data-line"));
    if (line) tw.set(model, { selection: { line } });
  }

  function select() {
    const { buffer } = model.get("selection");
    const lines = tw.chosenLines(model);
    for (const bar of bars()) {
      const mine = lines.includes(Number(bar.getAttribute("data-line")));
      const text = (shown.events[bar.getAttribute("data-event")] ?? []).join(" ");
      const named = buffer ? text.includes(` into ${buffer}`) : false;
      bar.classList.toggle("tw-chosen", mine || (!lines.length && named));
    }
  }

  plot.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const every = bars();
    const at = every.findIndex((bar) => bar.getAttribute("data-event") === pinned);
    choose(every[(at + step + every.length) % every.length]);
  });
  scope.on("change:selection", select);
  draw();
  return scope.dispose;
}
