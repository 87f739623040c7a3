// The kernel card: the facts, and a tab for each further view.
const TAB_TITLES = {
  card: "Card",
  source: "Source",
  passes: "Passes",
  layouts: "Layouts",
  code: "Code",
  roofline: "Roofline",
};
const CODE_CHUNK = 400; // lines of generated code that are coloured at once

function render_card({ model, el }) {
  const root = tw.root(el, "card");
  const scope = tw.scope(model);
  const card = model.get("card");
  const panes = new Map();
  const tabs = tw.el("div", { class: "tw-tabs", role: "tablist" });
  const body = tw.div("tw-body");
  let source = null;
  root.append(head(), tabs, body);

  const builders = {
    card: cardPane,
    source: sourcePane,
    passes: (pane) => scope.add(render_passes({ model, el: pane })),
    layouts: (pane) => scope.add(render_layouts({ model, el: pane })),
    roofline: (pane) => scope.add(render_roofline({ model, el: pane })),
    code: codePane,
  };
  for (const tab of card.tabs) tabs.append(tabButton(tab));

  function head() {
    const { check, level, timings } = card;
    const steps = timings.map((timing) => `${timing.step}: ${timing.time}`).join("\n");
    return tw.div(
      "tw-head",
      tw.span("tw-title", card.name),
      ...card.constants.map(([key, value]) => tw.chip(`${key}=${value}`)),
      tw.chip(card.target, "tw-accent"),
      level ? tw.chip(level, "", "instruction set") : null,
      check ? tw.chip(check.text, check.ok ? "tw-good" : "tw-bad", check.detail) : null,
      tw.space(),
      tw.el("span", { class: "tw-status", title: steps || null }, card.status),
    );
  }

  function tabButton(tab) {
    const onclick = () => tw.set(model, { tab });
    const button = tw.button(TAB_TITLES[tab], onclick, { class: "", role: "tab", "data-tab": tab });
    if (tab === "passes") button.append(tw.span("tw-count", String(card.changed)));
    return button;
  }

  function open() {
    const tab = card.tabs.includes(model.get("tab")) ? model.get("tab") : "card";
    for (const button of tabs.children)
      button.setAttribute("aria-selected", String(button.dataset.tab === tab));
    if (!panes.has(tab)) {
      const pane = tw.el("div", { class: `tw-pane-${tab}`, role: "tabpanel" });
      panes.set(tab, pane);
      body.append(pane);
      builders[tab](pane);
    }
    for (const [key, pane] of panes) pane.hidden = key !== tab;
  }

  function cardPane(pane) {
    pane.append(tw.div("tw-facts", ...card.facts.map(({ label, value, hint }) =>
      tw.el("div", { title: hint },
        tw.div("tw-fact-label", label), tw.div("tw-fact-value", value)))));
    if (card.bench) pane.append(benchRow(card.bench));
    if (card.check && !card.check.ok)
      pane.append(tw.div("tw-message tw-failed", `Check failed: ${card.check.detail}`));
    for (const { line, text } of card.warnings) {
      const where = line ? tw.link(`line ${line}`, () => goto(line)) : null;
      pane.append(tw.div("tw-message tw-warning", where, tw.span("", text)));
    }
    for (const line of card.notes) pane.append(tw.div("tw-fact-line", line));
  }

  function benchRow(bench) {
    const threads = `${bench.threads} thread${bench.threads === 1 ? "" : "s"}`;
    const roofline = card.tabs.includes("roofline")
      ? tw.link("roofline →", () => tw.set(model, { tab: "roofline" })) : null;
    return tw.div(
      "tw-bench",
      tw.el("b", {}, bench.median),
      tw.faint(`quartiles ${bench.quartiles}, n = ${bench.count}, ${threads}`),
      bench.flops ? tw.el("b", {}, bench.flops) : null,
      bench.bytes ? tw.faint(bench.bytes) : null,
      ...bench.extra.map(([key, value]) => tw.faint(`${key} ${value}`)),
      bench.note ? tw.faint(bench.note) : null,
      roofline,
    );
  }

  function sourcePane(pane) {
    source = tw.listing(card.source.lines, card.source.first, { class: "tw-tall" });
    for (const { line, text } of card.warnings) {
      const row = source.rows[line - card.source.first];
      if (!row) continue;
      row.classList.add("tw-warned");
      row.title = text;
    }
    pane.append(source.node);
  }

  function goto(line) {
    tw.set(model, { tab: "source" });
    open();
    source?.mark([line]);
  }

  async function codePane(pane) {
    const wait = tw.div("tw-note", "Waiting for the kernel …");
    pane.append(wait);
    try {
      const { text, dropped } = await tw.ask(model, { type: "code" });
      const lines = text.split("\n");
      const cut = dropped ? `, ${dropped} further characters not shown` : "";
      const copy = tw.button("Copy", () => navigator.clipboard?.writeText(text));
      const bar = tw.div("tw-bar", tw.faint(`${lines.length} lines${cut}`), tw.space(), copy);
      wait.replaceWith(bar, codeListing(lines));
    } catch (error) {
      wait.textContent = error.message;
    }
  }

  /** Long code is coloured as it is scrolled into view. */
  function codeListing(lines) {
    const node = tw.div("tw-listing tw-tall");
    let shown = 0;
    const more = () => {
      const part = lines.slice(shown, shown + CODE_CHUNK);
      node.append(...tw.listing(part, shown + 1, { language: "code" }).rows);
      shown += CODE_CHUNK;
    };
    node.addEventListener("scroll", () => {
      const left = node.scrollHeight - node.scrollTop - node.clientHeight;
      if (shown < lines.length && left < 400) more();
    });
    more();
    return node;
  }

  scope.on("change:tab", open);
  open();
  return scope.dispose;
}
