// What a line of a kernel costs, and what became of it.
import * as tw from "./common.js";

/** The numbers of a line, by which lines are shaded too. */
/** @type {Record<string, Metric>} */
export const METRICS = {
  weight: { label: "rough share of the time", show: (v) => `${(v * 100).toFixed(0)} %`, of: (c) => c.weight },
  global: { label: "global memory", show: tw.bytesText, of: (c) => c.global_bytes },
  shared: { label: "shared memory", show: tw.bytesText, of: (c) => c.shared_bytes },
  flops: { label: "operations", show: tw.countText, of: (c) => c.flops },
  conflicts: {
    label: "wavefronts over ideal", show: (v) => `${v.toFixed(2)}x`, floor: 1,
    of: (c) => (c.ideal ? c.wavefronts / c.ideal : null),
  },
  sectors: {
    label: "sectors over ideal", show: (v) => `${v.toFixed(2)}x`, floor: 1,
    of: (c) => (c.ideal_sectors ? c.sectors / c.ideal_sectors : null),
  },
  l1: { label: "through L1", show: tw.bytesText, of: (c) => c.l1_bytes },
  l2: { label: "from L2 or behind", show: tw.bytesText, of: (c) => c.l2_bytes },
  l3: { label: "from L3 or behind", show: tw.bytesText, of: (c) => c.l3_bytes },
  dram: { label: "from DRAM", show: tw.bytesText, of: (c) => c.dram_bytes },
  barriers: { label: "barriers", show: String, of: (c) => c.barriers },
  registers: { label: "registers held", show: String, of: (c) => c.registers },
  vectors: { label: "share of vectors", show: (v) => `${(v * 100).toFixed(0)} %`, of: (c) => c.vector_share },
};

/** The metrics that any line has a number of, with their names. */
export const usableMetrics = (/** @type {Cost[]} */ costs) =>
  Object.entries(METRICS).filter(([, { of }]) => costs.some((/** @type {Cost} */ cost) => of(cost)));

/**
 * Elements: the numbers and accesses of a line, its IR after the passes and its code. `data` is the
 * view's, `answer` what the kernel says of the line, with an `error` where it says nothing.
 * @param {LineCosts} data
 * @param {number} line
 * @param {Fields} answer
 */
export function lineDetail(data, line, answer) {
  const cost = data.costs.find((/** @type {Cost} */ each) => each.line === line);
  const facts = cost ? usableMetrics(data.costs).flatMap(([, { label, of, show }]) =>
    of(cost) ? [tw.div("tw-row", tw.faint(label), tw.el("b", {}, show(/** @type {number} */ (of(cost)))))] : []) : [];
  const accesses = (cost?.accesses ?? []).map((/** @type {string} */ text) => tw.div("tw-fact-line", text));
  const total = cost?.registers ? data.resources.map((/** @type {string} */ text) => tw.div("tw-faint", text)) : [];
  const nothing = answer.passes.length ? [] : [tw.div("tw-note", answer.error ?? "No code.")];
  return [tw.div("tw-panel-title", `line ${line}`), ...facts, ...accesses, ...total, ...nothing,
    ...forms(data, answer)];
}

/** The line's IR after a pass of the reader's choice, and its generated code. */
function forms(/** @type {LineCosts} */ data, /** @type {Fields} */ { passes, code }) {
  if (!passes.length) return [];
  const place = tw.div("");
  const show = () => {
    const at = choose.value;
    const lines = at === "code" ? code : passes[Number(at)].lines;
    const language = at === "code" ? data.language : "tile";
    place.replaceChildren(tw.listing(lines, 1, { language, class: "tw-form" }).node);
  };
  const choose = tw.el("select", {
    class: "tw-select", "aria-label": "What became of the line", onchange: show,
  }, ...passes.map((/** @type {{ name: string }} */ { name }, /** @type {number} */ i) => tw.el("option", { value: String(i) }, `IR after ${name}`)),
  code.length ? tw.el("option", { value: "code" }, "generated code") : null);
  choose.value = code.length ? "code" : String(passes.length - 1);
  show();
  return [choose, place];
}
