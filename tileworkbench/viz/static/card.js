// The kernel card: the facts, and a tab for each further view.
import * as tw from "./common.js";
import * as bench from "./bench.js";
import { sliders } from "./sliders.js";
import { openTab, tabButton, tabList } from "./tabs.js";
import { joinTrails } from "./trail.js";
import { build } from "./views.js";

/** @param {ViewArguments} given */
export function render({ model, el }) {
  const root = tw.root(el, "card");
  const scope = tw.scope(model);
  const views = tw.scope(model); // of the panes, which end when the card shows another kernel
  const panes = new Map();
  const title = tw.div("tw-head");
  const tabs = tabList();
  const body = tw.div("tw-body");
  let card = model.get("card");
  root.append(...[title, sliders(model), tabs, body].filter(Boolean));

  /** Show the model's kernel, which a slider may have changed. */
  function show() {
    views.dispose();
    panes.clear();
    card = model.get("card");
    title.replaceChildren(...head());
    tabs.replaceChildren(...card.tabs.map((/** @type {[string, string]} */ [tab, title]) => tabButton(model, tab, title, ...counts(tab))));
    body.replaceChildren();
    open();
    joinTrails(model, model.get("roofline"), root);
  }

  /** Show what became known of the kernel: what other views have open stays as it is. */
  function more() {
    card = model.get("card");
    card.tabs.forEach((/** @type {[string, string]} */ [tab, title], /** @type {number} */ at) => {
      const there = /** @type {HTMLElement | undefined} */ (tabs.children[at]);
      if (there?.dataset.tab !== tab)
        tabs.insertBefore(tabButton(model, tab, title, ...counts(tab)), there ?? null);
    });
    const pane = panes.get("card");
    const focused = pane?.contains(pane.getRootNode().activeElement);
    pane?.remove();
    panes.delete("card");
    open();
    if (focused) tabs.querySelector("[aria-selected=true]").focus();
    joinTrails(model, model.get("roofline"), root);
  }

  const kernel = (/** @type {Fields} */ { name, constants, target, edited }) =>
    JSON.stringify([name, constants, target, edited]);

  function head() {
    const { check, edited, level, timings } = card;
    const steps = timings.map((/** @type {{ step: string, time: string }} */ timing) => `${timing.step}: ${timing.time}`).join("\n");
    return [
      tw.span("tw-title", card.name),
      ...card.constants.map((/** @type {[string, any]} */ [key, value]) => tw.chip(`${key}=${value}`)),
      tw.chip(card.target, "tw-accent"),
      level && !card.target.includes(level) ? tw.chip(level, "", "instruction set") : null,
      edited ? tw.chip(edited, "tw-warn", "not what the compiler made of the cell") : null,
      check ? tw.chip(check.text, check.ok ? "tw-good" : "tw-bad", check.detail) : null,
      tw.space(),
      tw.el("span", { class: "tw-status", title: steps || null }, card.status),
    ].filter(Boolean);
  }

  /** What a tab has to say before it is opened. */
  function counts(/** @type {string} */ tab) {
    const [count, what] = card.alarms?.[tab] ?? [];
    return [
      tab === "passes" ? tw.span("tw-count", String(card.changed)) : null,
      count ? tw.el("span", { class: "tw-count tw-alarm", title: what }, String(count)) : null,
    ];
  }

  const has = (/** @type {string} */ tab) => card.tabs.some((/** @type {[string, string]} */ [name]) => name === tab);

  function open() {
    const tab = has(model.get("tab")) ? model.get("tab") : "card";
    const label = card.tabs.find((/** @type {[string, string]} */ [name]) => name === tab)[1];
    openTab({ tabs, body, panes }, tab, label, (_, pane) => {
      if (tab === "card") cardPane(pane);
      else views.add(build(model, tab, pane));
    });
  }

  function cardPane(/** @type {HTMLElement} */ pane) {
    pane.append(tw.div("tw-facts", ...card.facts.map((/** @type {{ label: string, value: string, hint: string }} */ { label, value, hint }) =>
      tw.el("div", { title: hint },
        tw.div("tw-fact-label", label), tw.div("tw-fact-value", value)))));
    if (card.bench) pane.append(bench.line(card.bench, rooflineLink()));
    pane.append(boundBy());
    if (card.check && !card.check.ok)
      pane.append(tw.div("tw-message tw-failed", `Check failed: ${card.check.detail}`));
    for (const { line, text } of card.warnings) {
      const where = line ? tw.link(`line ${line}`, () => goto(line)) : null;
      pane.append(tw.div("tw-message tw-warning", where, tw.span("", text)));
    }
    for (const line of card.notes) pane.append(tw.div("tw-fact-line", line));
    if (card.accesses.length) pane.append(tw.div("tw-fact-label tw-accesses", card.accesses_title));
    for (const line of card.accesses) pane.append(tw.div("tw-fact-line", line));
    const absent = /** @type {[string, string][]} */ (card.absent ?? []);
    if (!absent.length) return;
    const titles = absent.map(([title]) => title).join(", ");
    pane.append(tw.el("details", { class: "tw-absent" }, tw.el("summary", {}, tw.faint(`Nothing to show in ${titles}`)),
      ...absent.map(([title, why]) => tw.div("tw-fact-line", `${title}: ${why}`))));
  }

  /** What bounds the kernel: known with the card, or asked for once it is looked at. */
  function boundBy() {
    const said = tw.span("", tw.faint("…"));
    const node = tw.div("tw-bound", tw.el("b", {}, "bound by "), said);
    const tell = (/** @type {Fields} */ found) => {
      const more = found.line ? tw.link(`show line ${found.line}`, () => goto(found.line)) : null;
      const measure = found.measure ? tw.button("Measure", () => {
        measure.textContent = "Measuring …"; // it stays, with the focus, until there is an answer
        ask({ measure: true });
      }) : null;
      said.replaceChildren(found.text, ...[more, measure].filter(Boolean).flatMap((each) => [" ", each]));
      node.dataset.told = found.measure ? "" : "true";
    };
    const ask = (/** @type {Fields} */ content) => {
      tw.ask(model, { type: "bound", ...content })
        .then(tell, (error) => (model.still ? node.remove() // a saved card does not know
          : said.replaceChildren(tw.faint(error.message))));
    };
    if (card.bound?.text) tell(card.bound);
    else ask({});
    return node;
  }

  const rooflineLink = () => has("roofline")
    ? tw.link("roofline →", () => tw.set(model, { tab: "roofline" })) : null;
  /** @param {number} line */
  const goto = (line) => tw.set(model, { tab: "source", selection: { line } });

  scope.on("change:tab", open);
  scope.on("change:card", () => (kernel(model.get("card")) === kernel(card) ? more() : show()));
  scope.add(views.dispose);
  show();
  return scope.dispose;
}
