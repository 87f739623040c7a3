// The kernel card: the facts, and a tab for each further view.
const TAB_TITLES = {
  card: "Card", source: "Source", passes: "Passes", layouts: "Layouts", code: "Code", roofline: "Roofline",
};

function render_card({ model, el }) {
  const root = tw.root(el, "card");
  const scope = tw.scope(model);
  const card = model.get("card");

  const name = tw.el("span", { class: "tw-title" }, card.name);
  const badges = [
    ...card.constants.map(([key, value]) => tw.chip(`${key}=${value}`)),
    tw.chip(card.target, "tw-accent", card.level ? `level ${card.level}` : null),
    card.level ? tw.chip(card.level) : null,
    card.check ? tw.chip(card.check.text, card.check.ok ? "tw-good" : "tw-bad", card.check.detail) : null,
  ];
  const steps = card.timings.map((timing) => `${timing.step}: ${timing.time}`).join("\n");
  const status = tw.el("span", { class: "tw-status", title: steps || null }, card.status);
  const tabs = tw.el("div", { class: "tw-tabs", role: "tablist" });
  const panes = new Map();
  const body = tw.el("div", { class: "tw-body" });
  root.append(tw.el("div", { class: "tw-head" }, name, ...badges, tw.el("span", { class: "tw-space" }), status), tabs, body);

  const builders = {
    card: cardPane,
    source: sourcePane,
    passes: (pane) => scope.add(render_passes({ model, el: pane })),
    layouts: (pane) => scope.add(render_layouts({ model, el: pane })),
    roofline: (pane) => scope.add(render_roofline({ model, el: pane })),
    code: codePane,
  };
  for (const tab of card.tabs) {
    tabs.append(tw.el("button", {
      type: "button", role: "tab", "data-tab": tab, onclick: () => tw.set(model, { tab }),
    }, TAB_TITLES[tab], tab === "passes" ? tw.el("span", { class: "tw-count" }, changed()) : null));
  }

  function changed() {
    return card.facts.find((fact) => fact.label === "passes").value.split(" ")[0];
  }

  function open() {
    const tab = card.tabs.includes(model.get("tab")) ? model.get("tab") : "card";
    for (const button of tabs.children) button.setAttribute("aria-selected", String(button.dataset.tab === tab));
    if (!panes.has(tab)) {
      const pane = tw.el("div", { class: `tw-pane tw-pane-${tab}`, role: "tabpanel" });
      panes.set(tab, pane);
      body.append(pane);
      builders[tab](pane);
    }
    for (const [key, pane] of panes) pane.hidden = key !== tab;
  }

  function cardPane(pane) {
    pane.append(tw.el("div", { class: "tw-facts" }, ...card.facts.map((fact) =>
      tw.el("div", { class: "tw-fact", title: fact.hint },
        tw.el("div", { class: "tw-fact-label" }, fact.label), tw.el("div", { class: "tw-fact-value" }, fact.value)))));
    if (card.bench) pane.append(benchRow(card.bench));
    if (card.check && !card.check.ok) pane.append(tw.el("div", { class: "tw-message tw-failed" }, `Check failed: ${card.check.detail}`));
    for (const warning of card.warnings) {
      const where = warning.line
        ? tw.el("button", { type: "button", class: "tw-link", onclick: () => goto(warning.line) }, `line ${warning.line}`) : null;
      pane.append(tw.el("div", { class: "tw-message tw-warning" }, where, tw.el("span", {}, warning.text)));
    }
  }

  function benchRow(bench) {
    const parts = [
      tw.el("b", {}, bench.median),
      tw.el("span", { class: "tw-faint" }, `quartiles ${bench.quartiles}, n = ${bench.count}, ${bench.threads} thread${bench.threads === 1 ? "" : "s"}`),
      bench.flops ? tw.el("b", {}, bench.flops) : null,
      bench.bytes ? tw.el("span", { class: "tw-faint" }, bench.bytes) : null,
      ...bench.extra.map(([key, value]) => tw.el("span", { class: "tw-faint" }, `${key} ${value}`)),
      bench.note ? tw.el("span", { class: "tw-faint" }, bench.note) : null,
      card.tabs.includes("roofline")
        ? tw.el("button", { type: "button", class: "tw-link", onclick: () => tw.set(model, { tab: "roofline" }) }, "roofline →") : null,
    ];
    return tw.el("div", { class: "tw-bench" }, ...parts.filter(Boolean));
  }

  let source = null;
  function sourcePane(pane) {
    source = tw.listing(card.source.lines, card.source.first, { class: "tw-tall" });
    for (const warning of card.warnings) {
      const row = source.rows[warning.line - card.source.first];
      if (row) { row.classList.add("tw-warned"); row.title = warning.text; }
    }
    pane.append(source.node);
  }

  function goto(line) {
    tw.set(model, { tab: "source" });
    open();
    source?.mark([line]);
  }

  async function codePane(pane) {
    const wait = tw.el("div", { class: "tw-note" }, "Waiting for the kernel …");
    pane.append(wait);
    try {
      const { text, dropped } = await tw.ask(model, { type: "code" });
      const lines = text.split("\n");
      const copy = tw.el("button", { type: "button", class: "tw-button", onclick: () => navigator.clipboard?.writeText(text) }, "Copy");
      const about = tw.el("span", { class: "tw-faint" }, `${lines.length} lines${dropped ? `, ${dropped} further characters not shown` : ""}`);
      wait.replaceWith(tw.el("div", { class: "tw-bar" }, about, tw.el("span", { class: "tw-space" }), copy), codeListing(lines));
    } catch (error) {
      wait.textContent = error.message;
    }
  }

  /** Long code is coloured as it is scrolled into view. */
  function codeListing(lines) {
    const CHUNK = 400;
    const node = tw.el("div", { class: "tw-listing tw-tall" });
    let shown = 0;
    const more = () => {
      const part = tw.listing(lines.slice(shown, shown + CHUNK), shown + 1, { language: "code" });
      node.append(...part.rows);
      shown += CHUNK;
    };
    node.addEventListener("scroll", () => {
      if (shown < lines.length && node.scrollTop + node.clientHeight > node.scrollHeight - 400) more();
    });
    more();
    return node;
  }

  scope.on("change:tab", open);
  open();
  return scope.dispose;
}
