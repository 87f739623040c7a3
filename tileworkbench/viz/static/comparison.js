// Kernels side by side: for each view what it says of each, and below the views beside each other.
import * as tw from "./common.js";
import { openTab, tabButton, tabList } from "./tabs.js";
import { build } from "./views.js";

const HOW =
  "What differs stands on a coloured ground. A dash is what one kernel lacks; nothing stands where " +
  "its target has nothing of the kind. The number of a tab counts the rows that differ.";

/** @param {ViewArguments} given */
export function render({ model, el }) {
  const root = tw.root(el, "card");
  root.classList.add("tw-comparison");
  const { names, sources, views } = model.get("comparison");
  const tabs = tabList();
  const body = tw.div("tw-body");
  const panes = new Map();
  const ends = tw.scope(model);
  const models = sides(model);
  root.append(
    tw.div("tw-head", ...names.flatMap((/** @type {string} */ name) => [tw.span("tw-title", name), tw.faint("|")]).slice(0, -1)),
    tabs,
    body,
  );
  tabs.append(...views.map((/** @type {Fields} */ view) => tabButton(model, view.name, view.title, count(view))));
  models.then((found) => sources === 1 && shareSelection(found, ends));

  function open() {
    const view = views.find((/** @type {{ name: string }} */ { name }) => name === model.get("tab")) ?? views[0];
    openTab({ tabs, body, panes }, view.name, view.title, (_, pane) => {
      if (view.name === "card") pane.append(tw.div("tw-faint", HOW));
      pane.append(...tables(view, names));
      if (view.together) pane.append(tw.still(view.together));
      if (view.name !== "card") pane.append(beside(view));
    });
  }

  /** The view of each kernel; folded where one picture has all of them. */
  function beside(/** @type {Fields} */ view) {
    const columns = names.map((/** @type {string} */ name, /** @type {number} */ at) => {
      const pane = tw.div("tw-side-body");
      if (view.missing[at]) pane.append(tw.div("tw-note", view.missing[at]));
      return tw.el("section", { class: "tw-side", "aria-label": name }, tw.div("tw-side-name", name), pane);
    });
    const node = tw.el("details", { class: "tw-sides-fold" }, tw.el("summary", {}, "Each kernel's own view"));
    const grid = tw.div("tw-sides", ...columns);
    node.append(grid);
    let drawn = false;
    const draw = () => {
      if (drawn || !node.open) return;
      drawn = true;
      models.then((found) => found.forEach((side, at) => {
        if (!view.missing[at]) ends.add(build(side, view.name, columns[at].lastChild));
      }), (error) => grid.replaceChildren(tw.div("tw-note", error.message)));
    };
    node.addEventListener("toggle", draw);
    node.open = !view.together;
    draw();
    return node;
  }

  ends.on("change:tab", open);
  open();
  return ends.dispose;
}

/** The models of the kernels, which Python makes when it is asked for them. */
async function sides(/** @type {Model} */ model) {
  const manager = model.widget_manager;
  if (!manager?.get_model) throw new Error("this front end shows no view inside of another");
  const { models } = await tw.ask(model, { type: "sides" });
  return Promise.all(models.map((/** @type {string} */ id) => manager.get_model(id)));
}

/** Kernels of one text mark the same lines. */
function shareSelection(/** @type {Model[]} */ models, /** @type {Scope} */ ends) {
  for (const one of models) {
    const listener = () => {
      const selection = one.get("selection");
      for (const other of models)
        if (other !== one && other.get("selection").line !== selection.line)
          tw.set(other, { selection: { line: selection.line } });
    };
    one.on("change:selection", listener);
    ends.add(() => one.off("change:selection", listener));
  }
}

/** @param {any[]} given */
const differs = ([, ...values]) => new Set(values.filter((value) => value !== null)).size > 1;

/** How many rows of a view differ, for its tab. */
function count(/** @type {Fields} */ view) {
  const found = view.rows.filter(differs).length;
  if (!found) return null;
  return tw.el("span", { class: "tw-count", title: view.note }, String(found));
}

/** The rows that differ, and folded those that do not; the card has them all in one table. */
function tables(/** @type {Fields} */ view, /** @type {string[]} */ names) {
  if (view.name === "card" || !view.rows.length) return view.rows.length ? [table(view.rows, names)] : [];
  const [loud, quiet] = [view.rows.filter(differs), view.rows.filter((/** @type {any[]} */ row) => !differs(row))];
  const found = [tw.div("tw-faint", view.note)];
  if (loud.length) found.push(table(loud, names));
  if (quiet.length) {
    const summary = tw.el("summary", {}, `No difference in ${quiet.length} row${quiet.length === 1 ? "" : "s"}`);
    found.push(tw.el("details", { class: "tw-same" }, summary, table(quiet, names)));
  }
  return found;
}

function table(/** @type {any[][]} */ rows, /** @type {string[]} */ names) {
  const head = tw.el("tr", {}, tw.el("th", { scope: "col" }, "fact"), ...names.map((/** @type {string} */ name) => tw.el("th", { scope: "col" }, name)));
  const body = rows.map((/** @type {any[]} */ row) => {
    const [label, ...values] = row;
    const cells = values.map((/** @type {any} */ value) => tw.el("td", { class: value === null ? "tw-none" : null }, value === null ? "" : value || "–"));
    return tw.el("tr", { class: differs(row) ? "tw-differs" : null }, tw.el("th", { scope: "row" }, label), ...cells);
  });
  return tw.div("tw-wide", tw.el("table", { class: "tw-data" }, head, ...body));
}
