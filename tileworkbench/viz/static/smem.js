// Shared memory over time: Python draws it, the browser links it with the lines of the kernel.
import * as tw from "./common.js";
import { pressable } from "./keys.js";
import { ofLaunches } from "./launches.js";

/** @type {Render} */
export const render = ofLaunches("smem-launch", chart);

/** @param {ViewArguments} given */
function chart({ model, el, data }) {
  const root = tw.root(el, "smem");
  const scope = tw.scope(model);
  const plot = tw.div("tw-plot", tw.drawing(data.svg, "Shared memory over time"));
  const groups = [...plot.querySelectorAll("[data-buffer]")];
  const rows = data.buffers.map(row);
  const table = tw.el("table", { class: "tw-data" },
    tw.el("thead", {}, tw.el("tr", {}, ...["buffer", "bytes", "from", "stages", "line"].map((text) =>
      tw.el("th", {}, text)))),
    tw.el("tbody", {}, ...rows));
  const facts = tw.div("tw-smem-facts", table,
    ...data.sentences.map((/** @type {string} */ text) => tw.div("tw-sentence", text)), stages());
  root.append(tw.about(data.about), tw.div("tw-roof-columns", plot, facts));

  /** A buffer is chosen together with the lines that use it. */
  function choose(/** @type {SharedBuffer} */ { name, lines }) {
    tw.set(model, { selection: { buffer: name, lines } });
  }

  function row(/** @type {SharedBuffer} */ buffer) {
    const name = tw.link(buffer.name, () => choose(buffer));
    const cells = [name, `${buffer.bytes_}`, `${buffer.offset}`, `${buffer.versions}`,
      buffer.line ? `${buffer.line}` : "–"];
    const node = tw.el("tr", {}, ...cells.map((cell) => tw.el("td", {}, cell)));
    if (buffer.shares.length) node.title = `shares bytes with ${buffer.shares.join(", ")}`;
    return node;
  }

  /** Bytes for other depths of the pipeline. */
  function stages() {
    if (!data.stages.length) return null;
    const now = Math.max(...data.buffers.map((/** @type {SharedBuffer} */ buffer) => buffer.versions));
    const cells = data.stages.map((/** @type {[number, number]} */ [number, bytes]) =>
      tw.el("tr", { class: number === now ? "tw-current" : "" },
        tw.el("td", {}, `num_stages = ${number}`), tw.el("td", {}, `${bytes} bytes`)));
    return tw.el("details", {}, tw.el("summary", {}, "Other numbers of stages"),
      tw.el("table", { class: "tw-data" }, tw.el("tbody", {}, ...cells)));
  }

  function select() {
    const { buffer } = model.get("selection");
    const chosen = tw.chosenLines(model);
    const touched = (/** @type {SharedBuffer} */ each) =>
      buffer ? each.name === buffer : each.lines.some((line) => chosen.includes(line));
    const names = data.buffers.filter(touched).map((/** @type {SharedBuffer} */ { name }) => name);
    data.buffers.forEach((/** @type {SharedBuffer} */ { name }, /** @type {number} */ i) =>
      rows[i].classList.toggle("tw-current", names.includes(name)));
    for (const group of groups)
      group.classList.toggle("tw-chosen", names.includes(group.dataset.buffer));
  }

  for (const group of groups) {
    const buffer = data.buffers.find((/** @type {SharedBuffer} */ { name }) => name === group.dataset.buffer);
    pressable(group, () => choose(buffer), `${buffer.name} in shared memory`);
  }
  scope.on("change:selection", select);
  select();
  return scope.dispose;
}
