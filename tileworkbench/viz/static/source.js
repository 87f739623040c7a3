// The user's text, each line shaded by what it costs; a line opens on what became of it.
import * as tw from "./common.js";
import { pickLines } from "./keys.js";

const METRICS = {
  weight: { label: "estimated time", show: (v) => `${(v * 100).toFixed(0)} %`, of: (c) => c.weight },
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

/** @param {ViewArguments} given */
export function render({ model, el, data }) {
  const root = tw.root(el, "annotated");
  const scope = tw.scope(model);
  const costs = new Map(data.costs.map((cost) => [cost.line, cost]));
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
  const usable = Object.entries(METRICS).filter(([, { of }]) => data.costs.some((c) => of(c)));
  if (usable.length) root.append(toolbar());
  root.append(tw.div("tw-source-columns", listing.node, opened));

  function toolbar() {
    const choose = tw.el("select", {
      class: "tw-select", "aria-label": "Shade by", onchange: () => shade(choose.value),
    }, ...usable.map(([name, { label }]) => tw.el("option", { value: name }, label)));
    shade(usable[0][0]);
    return tw.div("tw-bar", tw.el("label", { class: "tw-check" }, "Shade by", choose),
      tw.faint("click a line to see what became of it"));
  }

  /** Numbers and colours: the darkest is the largest; a floor is what nothing is lost at. */
  function shade(name) {
    const { of, show, floor = 0 } = METRICS[name];
    const most = Math.max(...data.costs.map((cost) => (of(cost) ?? 0) - floor));
    cells.forEach((cell, i) => {
      const cost = costs.get(data.first + i);
      const value = cost ? of(cost) : null;
      const part = value && most > 0 ? (value - floor) / most : 0;
      cell.textContent = value ? show(value) : "";
      cell.style.backgroundColor = part > 0 ? `rgba(240, 150, 0, ${0.08 + 0.42 * part})` : "";
    });
  }

  let asked = 0;
  async function detail(line) {
    const mine = ++asked;
    if (!line) return opened.replaceChildren();
    let answer;
    try {
      answer = await tw.ask(model, { type: "line", line });
    } catch (error) {
      answer = { passes: [], code: [], error: error.message };
    }
    if (mine !== asked) return undefined;
    const cost = costs.get(line);
    const about = tw.div("tw-panel-title", `line ${line}`);
    const facts = cost ? usable.flatMap(([, { label, of, show }]) =>
      of(cost) ? [tw.div("tw-row", tw.faint(label), tw.el("b", {}, show(of(cost))))] : []) : [];
    const accesses = (cost?.accesses ?? []).map((text) => tw.div("tw-fact-line", text));
    const total = cost?.registers ? data.resources.map((text) => tw.div("tw-faint", text)) : [];
    const nothing = answer.passes.length ? [] : [tw.div("tw-note", answer.error ?? "No code.")];
    return opened.replaceChildren(
      about, ...facts, ...accesses, ...total, ...nothing, ...forms(answer));
  }

  /** The line's IR after a pass of the reader's choice, and its generated code. */
  function forms({ passes, code }) {
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
    }, ...passes.map(({ name }, i) => tw.el("option", { value: String(i) }, `IR after ${name}`)),
    code.length ? tw.el("option", { value: "code" }, "generated code") : null);
    choose.value = code.length ? "code" : String(passes.length - 1);
    show();
    return [choose, place];
  }

  const select = () => {
    listing.mark(tw.chosenLines(model));
    detail(model.get("selection").line);
  };
  pickLines(listing.node, (line) => tw.set(model, { selection: { line } }), "The kernel's lines");
  scope.on("change:selection", select);
  select();
  return scope.dispose;
}
