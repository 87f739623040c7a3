// What a kernel prints: groups by block and thread, filtered by either, by line and by text.
import * as tw from "./common.js";

/** @param {ViewArguments} given */
export function render({ model, el, data }) {
  const root = tw.root(el, "prints");
  const scope = tw.scope(model);
  const message = tw.el("div", { class: "tw-sentence", "aria-live": "polite" });
  const groups = tw.div("tw-prints-groups");
  const run = tw.button("Run in the simulator", start, { title: "run the kernel and collect what it prints" });
  const block = tw.el("select", { class: "tw-select", "aria-label": "Block", onchange: draw });
  const thread = tw.el("select", { class: "tw-select", "aria-label": "Thread", onchange: draw });
  const line = tw.el("select", { class: "tw-select", "aria-label": "Line", onchange: draw });
  const text = tw.el("input", { class: "tw-input", type: "search", "aria-label": "Text to find",
    placeholder: "text", oninput: draw });
  const filters = tw.span("tw-bar tw-prints-filters", block, thread, line, text);
  root.append(tw.div("tw-bar", run, filters), message, groups);
  let shown = data;

  /** Run the kernel; what was shown before stays where that fails. */
  async function start() {
    run.disabled = true;
    message.textContent = "running …";
    try {
      const answer = await tw.ask(model, { type: "prints-run" });
      message.textContent = answer.error ?? "";
      if (!answer.error) {
        shown = answer;
        choices();
        draw();
      }
    } catch (failure) {
      message.textContent = failure.message;
    }
    run.disabled = false;
  }

  const blockName = (/** @type {PrintedLine} */ each) => `block (${each.block.join(", ")})`;

  /** What the filters offer: what there is. */
  function choices() {
    filters.hidden = !shown.ran;
    if (!shown.ran) return;
    /**
     * @param {HTMLSelectElement} select
     * @param {string} all
     * @param {(each: PrintedLine) => string} name
     */
    const fill = (select, all, name) => {
      const names = new Map(shown.lines.map((/** @type {PrintedLine} */ each) => [name(each), each]));
      const sorted = select === block ? [...names.keys()]
        : [...names].sort((a, b) => a[1].thread - b[1].thread || a[1].line - b[1].line).map(([key]) => key);
      select.replaceChildren(tw.el("option", { value: "" }, all),
        ...sorted.map((each) => tw.el("option", { value: each }, each)));
    };
    fill(block, "every block", blockName);
    fill(thread, "every thread", (/** @type {PrintedLine} */ each) => each.who);
    fill(line, "every line", (/** @type {PrintedLine} */ each) => `line ${each.line}`);
  }

  const wanted = (/** @type {PrintedLine} */ each) =>
    (!block.value || blockName(each) === block.value) && (!thread.value || each.who === thread.value)
    && (!line.value || `line ${each.line}` === line.value)
    && (!text.value || `${each.message} ${each.value}`.toLowerCase().includes(text.value.toLowerCase()));

  function draw() {
    if (!shown.ran) {
      groups.replaceChildren(tw.faint("Nothing has run yet. It runs on the kernel's inputs: "
        + "those of kernel.with_inputs(...), of a check that failed, or made-up ones."));
      return;
    }
    const kept = shown.lines.filter(wanted);
    const byBlock = grouped(kept, blockName);
    const few = byBlock.size < 5;
    groups.replaceChildren(
      tw.div("tw-sentence", tw.faint(counted(kept.length))),
      ...(shown.stopped ? [tw.div("tw-sentence", `Not all of it: ${shown.stopped}.`)] : []),
      ...[...byBlock].map(([name, lines]) => blockGroup(name, lines, few)));
    mark();
  }

  function counted(/** @type {PrintedLine[]} */ kept) {
    const rest = shown.total > shown.lines.length ? `; the first ${shown.lines.length} are here` : "";
    return `${kept} of ${shown.total} lines, on ${shown.inputs}${rest}.`;
  }

  /**
   * @param {PrintedLine[]} lines
   * @param {(each: PrintedLine) => string} name
   */
  function grouped(lines, name) {
    const made = new Map();
    for (const each of lines) {
      if (!made.has(name(each))) made.set(name(each), []);
      made.get(name(each)).push(each);
    }
    return made;
  }

  /**
   * @param {string} name
   * @param {PrintedLine[]} lines
   * @param {boolean} open
   */
  function blockGroup(name, lines, open) {
    const threads = [...grouped(lines, (/** @type {PrintedLine} */ each) => each.who)].sort((a, b) => a[1][0].thread - b[1][0].thread);
    return tw.el("details", { class: "tw-prints-block", open },
      tw.el("summary", {}, tw.el("b", {}, name), " ", tw.faint(lines.length === 1 ? "1 line" : `${lines.length} lines`)),
      ...threads.map(([who, own]) => threadGroup(who, own, threads.length)));
  }

  /**
   * @param {string} who
   * @param {PrintedLine[]} lines
   * @param {number} count
   */
  function threadGroup(who, lines, count) {
    const rows = lines.map((/** @type {PrintedLine} */ each) => tw.el("tr", { "data-line": String(each.line) },
      tw.el("td", {}, each.line
        ? tw.link(`line ${each.line}`, () => tw.set(model, { selection: { line: each.line } })) : "–"),
      tw.el("td", {}, each.where), tw.el("td", {}, each.message), tw.el("td", { class: "tw-mono" }, each.value)));
    return tw.el("details", { class: "tw-prints-thread", open: count < 9 },
      tw.el("summary", {}, who, " ", tw.faint(lines.length === 1 ? "1 line" : `${lines.length} lines`)),
      tw.el("table", { class: "tw-data" },
        tw.el("thead", {}, tw.el("tr", {}, ...["line", "where", "message", "value"].map((head) =>
          tw.el("th", { scope: "col" }, head)))),
        tw.el("tbody", {}, ...rows)));
  }

  function mark() {
    const chosen = model.get("selection").line;
    for (const row of groups.querySelectorAll("[data-line]"))
      row.classList.toggle("tw-current", chosen > 0 && Number(row.getAttribute("data-line")) === chosen);
  }

  scope.on("change:selection", mark);
  choices();
  draw();
  return scope.dispose;
}
