// The playground: typed layouts, an operation on them, and its result. Python reads and computes.
import * as tw from "./common.js";
import { watch } from "./redraw.js";
import { COLOURINGS, Sheet, firstFastest } from "./sheet.js";

const PAUSE = 250; // milliseconds without a key until what was typed is read
const PARTS = ["layout", "other", "result"];
const NARROWEST = 250; // pixels of a sheet
const BYTES = [1, 2, 4, 8, 16];
let lists = 0; // of examples; their ids are the page's

/** @param {ViewArguments} given */
export function render({ model, el }) {
  const root = tw.root(el, "playground");
  const scope = tw.scope(model);
  const menu = model.get("menu");
  const operations = new Map(menu.operations.map((/** @type {Fields} */ each) => [each.name, each]));
  const leads = /** @type {Record<string, number[]>} */ ({}); // of each part, the slice that is shown
  let asked = 0;
  let waiting = 0;

  // Fields
  const list = tw.el("datalist", { id: `tw-layouts-${++lists}` },
    ...menu.examples.map((/** @type {string} */ value) => tw.el("option", { value })));
  const field = (/** @type {string} */ label) => tw.el("input", {
    class: "tw-input tw-typed", type: "text", spellcheck: "false", autocomplete: "off",
    list: list.id, "aria-label": label, oninput: typed, onkeydown: (/** @type {Event} */ event) => event.stopPropagation(),
  });
  const fields = { layout: field("Layout A"), other: field("Second input") };
  const problems = /** @type {Record<string, ReturnType<typeof problem>>} */ ({ layout: problem(), other: problem(), result: problem() });
  const operation = tw.el("select",
    { class: "tw-select", "aria-label": "Operation", onchange: choose },
    tw.el("option", { value: "" }, "no operation"),
    ...menu.operations.map((/** @type {{ name: string }} */ { name }) => tw.el("option", { value: name }, name)));
  const bytes = tw.el("select", { class: "tw-select", onchange: send },
    ...BYTES.map((value) => tw.el("option", { value }, `${value} byte${value > 1 ? "s" : ""}`)));
  const colours = /** @type {Record<string, any>} */ ({});
  for (const [kind, labels] of Object.entries(COLOURINGS))
    colours[kind] = tw.el("select", { class: "tw-select", onchange: recolour },
      ...Object.entries(labels).map(([value, label]) => tw.el("option", { value }, label)));
  const takes = tw.span("tw-faint");
  const second = tw.el("label", { class: "tw-check tw-play-field" }, takes, fields.other);
  const colourings = Object.entries(colours).map(([kind, select]) =>
    tw.el("label", { class: "tw-check", "data-kind": kind }, `Colour ${kind}s by`, select));
  const makes = tw.div("tw-faint tw-makes");
  const sheets = Object.fromEntries(PARTS.map((part) => [part, new Sheet({
    themed: root,
    hovered: (/** @type {number[] | null} */ index) => hover(part, index),
    sliced: (/** @type {number[]} */ lead) => { leads[part] = lead; ask(); },
    insert,
  })]));
  const columns = tw.div("tw-sheets", ...PARTS.map((part) => sheets[part].node));
  root.append(
    list, tw.about(menu.about),
    tw.div("tw-bar",
      tw.el("label", { class: "tw-check tw-play-field" }, "A", fields.layout), operation, second),
    problems.layout.node, problems.other.node,
    tw.div("tw-bar", makes, tw.space(), ...colourings,
      tw.el("label", { class: "tw-check" }, "Elements of", bytes)),
    problems.result.node, columns);

  /** Where a text is wrong and why: `show(text, problem)`, null for nothing. */
  function problem() {
    const at = tw.div("tw-caret");
    const said = tw.span("tw-problem");
    const hint = tw.div("tw-faint");
    const node = tw.el("div", { class: "tw-problem-at", role: "alert", hidden: true },
      at, said, hint);
    const show = (/** @type {string} */ text, /** @type {Fields} */ found) => {
      node.hidden = !found;
      if (!found) return;
      const [start, end] = [found.start, Math.max(found.end, found.start + 1)];
      at.textContent = start < 0 ? "" : `${text}\n${" ".repeat(start)}${"^".repeat(end - start)}`;
      [said.textContent, hint.textContent] = [found.message, found.hint];
    };
    return { node, show };
  }

  function typed() {
    clearTimeout(waiting);
    waiting = setTimeout(send, PAUSE);
  }

  /** Another operation starts with an input that it takes. */
  function choose() {
    const [next, before] = [operations.get(operation.value), operations.get(model.get("typed").operation)];
    if (next && next.takes !== before?.takes) fields.other.value = next.example;
    send();
  }

  /** What was typed is the model's, so that all views of it agree. */
  function send() {
    clearTimeout(waiting);
    tw.set(model, { typed: {
      layout: fields.layout.value, operation: operation.value, other: fields.other.value,
      element_bytes: Number(bytes.value),
    } });
  }

  function receive() {
    const now = model.get("typed");
    for (const [name, input] of Object.entries(fields))
      if (input.value !== now[name]) input.value = now[name];
    [operation.value, bytes.value] = [now.operation, String(now.element_bytes)];
    const found = operations.get(now.operation);
    second.hidden = !found?.takes;
    takes.textContent = found?.takes === "another layout" ? "B" : found?.takes ?? "";
    makes.textContent = found ? `${found.name}: ${found.makes}` : "";
    ask();
  }

  /** Only the last of several questions counts; what was right stays until its answer is. */
  async function ask() {
    const mine = ++asked;
    const now = model.get("typed");
    let answer;
    try {
      answer = await tw.ask(model, { type: "play", ...now, lead: leads });
    } catch (failure) {
      answer = { result: { problem: { message: failure.message, hint: "", start: -1, end: -1 } } };
    }
    if (mine !== asked) return;
    const wrong = PARTS.find((part) => answer[part]?.problem);
    for (const part of PARTS) problems[part].show(now[part] ?? "", answer[part]?.problem);
    root.dataset.state = wrong ? "wrong" : "good";
    const known = PARTS.filter((part) => answer[part] && part !== wrong);
    for (const part of PARTS) {
      const { node, data } = sheets[part];
      const stale = Boolean(wrong) && !known.includes(part);
      node.classList.toggle("tw-stale", stale);
      node.hidden = !known.includes(part) && !(stale && data && !node.hidden);
    }
    for (const part of known) sheets[part].show(answer[part], by(answer[part].kind), room());
    lay();
  }

  const shown = () => PARTS.map((part) => sheets[part]).filter(({ node }) => !node.hidden);
  const by = (/** @type {string} */ kind) => colours[kind].value;

  /** The width of a sheet, where all that are shown stand side by side if they can. */
  function room() {
    const [width, count] = [root.clientWidth || 840, Math.max(shown().length, 1)];
    const across = Math.max(1, Math.min(count, Math.floor(width / NARROWEST)));
    return Math.floor(width / across) - 20;
  }

  function lay() {
    const kinds = new Set(shown().map(({ data }) => data.kind));
    for (const label of colourings) label.hidden = !kinds.has(label.dataset.kind);
    for (const sheet of shown()) sheet.resize(room());
  }

  function recolour() {
    for (const sheet of shown()) sheet.colour(by(sheet.data.kind));
  }

  /** Mark the element in all sheets: the same index, or where `compose` goes from there. */
  function hover(/** @type {string} */ part, /** @type {number[] | null} */ index) {
    const source = sheets[part].grid.slice;
    for (const [name, sheet] of Object.entries(sheets)) {
      if (sheet.node.hidden) continue;
      const same = sheet.data.shape.join() === source.shape.join();
      sheet.mark(name === part || (same && index) ? index : index && composed(part, name, index));
    }
  }

  /**
   * The element of A that `compose(A, B)` takes for an index of B; null where it cannot be said.
   * @param {string} part
   * @param {string} name
   * @param {number[] | null} index
   */
  function composed(part, name, index) {
    const { operation: now } = model.get("typed");
    const inner = sheets.other;
    if (now !== "compose" || part === "layout" || name !== "layout" || inner.node.hidden) return null;
    const cell = inner.grid.slice.cellOf(index);
    if (cell === null || inner.data.outputs.length !== 1) return null;
    return firstFastest(sheets.layout.data.shape, inner.grid.slice.first(cell));
  }

  async function insert(/** @type {string} */ text, /** @type {any} */ sheet) {
    const inserted = tw.insertCell(text, root);
    const copied = !inserted && await tw.copyText(text);
    sheet.done.textContent = inserted ? "In a new cell."
      : copied ? "Copied: paste it into a cell." : "Select the code to copy it.";
  }

  scope.on("change:typed", receive);
  watch(root, scope, lay);
  scope.add(() => clearTimeout(waiting));
  receive();
  return scope.dispose;
}
