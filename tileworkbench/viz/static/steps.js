// How the layouts of a kernel came about: the steps in order, each with its line.
import * as tw from "./common.js";

const KINDS = /** @type {Record<string, string>} */ ({ rejected: "tw-bad", chosen: "tw-good", set: "tw-accent" });

/**
 * The list: `node` (empty without steps) and `mark(buffer, line)`, which marks the steps of a buffer and of a
 * line.
 * @param {Model} model
 * @param {{ verdict: string, said: string, line: number, buffer: string, text: string,
 *           layout: string, code: string }[]} steps
 */
export function stepList(model, steps) {
  if (!steps.length) return { node: tw.div(""), mark() {} };
  const only = tw.el("input", { type: "checkbox", onchange: () => mark(buffer, line) });
  const onlyName = tw.span("");
  let buffer = "", line = 0;
  const rows = steps.map((step) => {
    const select = () =>
      tw.set(model, { selection: { line: step.line, buffer: step.buffer || buffer } });
    const place = step.line
      ? tw.button(`line ${step.line}`, select, { class: "tw-link", title: step.code || null })
      : tw.faint("–");
    return tw.el("li", {},
      tw.span("tw-step-line", place), " ", tw.chip(step.said, KINDS[step.verdict] ?? ""), " ",
      tw.div("tw-step-text", step.text,
        ...(step.layout ? [tw.div("tw-step-layout", step.layout)] : [])));
  });

  /** Steps without a buffer are about a choice as a whole, and stay. */
  function mark(/** @type {string} */ chosen, /** @type {number} */ at) {
    [buffer, line] = [chosen, at];
    onlyName.textContent = `only ${buffer}`;
    steps.forEach((step, i) => {
      rows[i].classList.toggle("tw-current", line > 0 && step.line === line);
      rows[i].classList.toggle("tw-of-buffer", step.buffer === buffer);
      rows[i].hidden = only.checked && step.buffer !== buffer && step.buffer !== "";
    });
  }

  const count = `${steps.length} step${steps.length === 1 ? "" : "s"}, in order`;
  const node = tw.el("details", { class: "tw-steps", open: true },
    tw.el("summary", {}, tw.el("b", {}, "Why these layouts"), " ", tw.faint(count)),
    tw.div("tw-faint",
      "Instructions dictate first; what follows from known layouts is set next; the rest is " +
        "chosen, the cheapest of what works. A line's number selects it in all views."),
    tw.el("label", { class: "tw-check" }, only, onlyName),
    tw.el("ol", {}, ...rows));
  return { node, mark };
}
