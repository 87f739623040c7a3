// The pass explorer: a list of passes, and what the chosen one did.
const FOLD_CONTEXT = 3;
const SPLIT_WIDTH = 880;

function render_passes({ model, el }) {
  const root = tw.root(el, "passes");
  const scope = tw.scope(model);
  const entries = model.get("passes").entries;
  const first = model.get("passes").diff;
  const diffs = new Map(first ? [[first.index, first]] : []);
  const state = { split: true, picked: false, hide: false, query: "", hits: new Map(), open: new Set() };

  // Toolbar
  const search = tw.el("input", {
    class: "tw-input tw-search", type: "search", placeholder: "Search the IR of all passes  ( / )",
    "aria-label": "Search the IR of all passes", oninput: () => find(), onkeydown: searchKey,
  });
  const found = tw.el("span", { class: "tw-faint tw-found" });
  const hide = tw.el("input", { type: "checkbox", onchange: () => { state.hide = hide.checked; list(); } });
  const views = tw.choice({ split: "Side by side", unified: "Unified" }, "split", (value) => {
    state.picked = true;
    state.split = value === "split";
    show();
  });
  const help = tw.el("div", { class: "tw-help", hidden: true },
    ...[["j", "next pass"], ["k", "previous pass"], ["/", "search"], ["Enter", "next pass with a hit"],
      ["?", "this help"], ["Esc", "close, clear the search"]].flatMap(([key, text]) =>
      [tw.el("kbd", {}, key), tw.el("span", {}, text)]));
  const bar = tw.el("div", { class: "tw-bar" }, search, found, tw.el("span", { class: "tw-space" }),
    tw.el("label", { class: "tw-check" }, hide, "Hide no-ops"), views.node,
    tw.el("button", { class: "tw-button", type: "button", title: "Keys", onclick: toggleHelp }, "?"));

  // List of passes, source below it, differences beside both
  const names = tw.el("div", { class: "tw-pass-list", role: "listbox", "aria-label": "Passes" });
  const source = model.get("source");
  const listing = tw.listing(source.lines ?? [], source.first ?? 1, { class: "tw-source" });
  listing.node.addEventListener("click", (event) => {
    const row = event.target.closest(".tw-line");
    if (row) markLine(Number(row.dataset.line), true);
  });
  const about = tw.el("div", { class: "tw-about" });
  const notes = tw.el("ul", { class: "tw-notes" });
  const body = tw.el("div", { class: "tw-diff" });
  root.append(bar, help, tw.el("div", { class: "tw-columns" },
    tw.el("div", { class: "tw-side" }, names,
      source.lines?.length ? tw.el("div", { class: "tw-caption" }, "Source") : null,
      source.lines?.length ? listing.node : null),
    tw.el("div", { class: "tw-main" }, about, notes, body)));

  function visible(index) {
    return !state.hide || index === 0 || entries[index].changed;
  }

  function list() {
    const chosen = model.get("selected_pass");
    names.replaceChildren(...entries.flatMap((entry, index) => {
      if (!visible(index)) return [];
      const hits = state.hits.get(index);
      return [tw.el("button", {
        type: "button", role: "option", "aria-selected": String(index === chosen), "data-index": String(index),
        class: `tw-pass ${entry.changed ? "" : "tw-noop"} ${state.query && !hits ? "tw-miss" : ""}`,
        title: entry.doc, onclick: () => select(index),
      },
        tw.el("span", { class: "tw-dot", title: entry.changed ? "changed" : "no-op" }),
        tw.el("span", { class: "tw-pass-name" }, entry.name),
        hits ? tw.el("span", { class: "tw-hits" }, String(hits)) : null,
        tw.el("span", { class: "tw-pass-note" }, index === 0 ? "" : entry.changed ? entry.time ?? "" : "no-op"))];
    }));
    const button = names.querySelector('[aria-selected="true"]');
    if (button) tw.reveal(names, button);
  }

  function select(index) {
    state.open.clear();
    tw.set(model, { selected_pass: index });
  }

  function step(by) {
    let index = model.get("selected_pass") + by;
    while (index >= 0 && index < entries.length && !visible(index)) index += by;
    if (index >= 0 && index < entries.length) select(index);
  }

  async function show() {
    const index = model.get("selected_pass");
    list();
    if (!diffs.has(index)) {
      root.dataset.shown = "";
      const wait = setTimeout(() => body.replaceChildren(note("Waiting for the kernel …")), 250);
      try {
        diffs.set(index, await tw.ask(model, { type: "diff", index }));
      } catch (error) {
        body.replaceChildren(note(error.message));
        return;
      } finally {
        clearTimeout(wait);
      }
      if (model.get("selected_pass") !== index) return;
    }
    draw(diffs.get(index));
    root.dataset.shown = String(index);
  }

  const note = (text) => tw.el("div", { class: "tw-note" }, text);

  function draw(diff) {
    const entry = entries[diff.index];
    const changes = diff.rows.some((row) => row.kind !== "same" && row.kind !== "fold");
    const counts = changes
      ? [tw.el("span", { class: "tw-plus" }, `+${diff.added}`), tw.el("span", { class: "tw-minus" }, `−${diff.removed}`)]
      : [tw.chip(diff.index === 0 ? "the program as it was read" : "changed nothing")];
    about.replaceChildren(tw.el("b", { class: "tw-mono" }, entry.name),
      tw.el("span", { class: "tw-faint" }, entry.doc), tw.el("span", { class: "tw-space" }),
      ...counts, entry.time ? tw.chip(entry.time) : "");
    notes.replaceChildren(...diff.notes.map((text) => tw.el("li", {}, text)));
    const table = tw.el("table", { class: changes && state.split ? "tw-split" : "tw-unified" });
    table.append(columns(changes));
    const rows = changes && state.split ? splitRows(diff.rows) : unifiedRows(diff.rows, changes);
    table.append(tw.el("tbody", {}, ...rows));
    body.replaceChildren(table);
    if (diff.dropped) body.append(note(`${diff.dropped} further rows are not shown.`));
    const target = body.querySelector(".tw-find, .tw-changed, .tw-removed, .tw-added");
    body.scrollTop = 0;
    if (target) {
      const row = target.closest("tr");
      body.scrollTop = Math.max(0, row.offsetTop - body.clientHeight / 3);
    }
  }

  function columns(changes) {
    const widths = changes && state.split ? ["40px", "", "40px", ""] : changes ? ["40px", "40px", "18px", ""] : ["40px", ""];
    return tw.el("colgroup", {}, ...widths.map((width) => tw.el("col", width ? { style: `width:${width}` } : {})));
  }

  /** Rows with long unchanged runs replaced by {kind: "gap"} until opened. */
  function folded(rows) {
    const out = [];
    for (let i = 0; i < rows.length; ) {
      let end = i;
      while (end < rows.length && rows[end].kind === "same") end++;
      const [head, tail] = [i === 0 ? 0 : FOLD_CONTEXT, end === rows.length ? 0 : FOLD_CONTEXT];
      if (end - i > head + tail + 2 && !state.open.has(i) && !hasHit(rows.slice(i + head, end - tail))) {
        out.push(...rows.slice(i, i + head), { kind: "gap", count: end - i - head - tail, at: i });
        out.push(...rows.slice(end - tail, end));
      } else out.push(...rows.slice(i, end));
      if (end < rows.length) out.push(rows[end++]);
      i = end;
    }
    return out;
  }

  const hasHit = (rows) =>
    state.query && rows.some((row) => tw.finds(row.after?.text ?? "", state.query).length);

  function gapRow(row, span) {
    const text = `⋯ ${row.count} unchanged lines`;
    const open = () => { state.open.add(row.at); show(); };
    const cell = row.kind === "fold" ? text : tw.el("button", { type: "button", onclick: open }, text);
    return tw.el("tr", { class: "tw-gap" }, tw.el("td", { colspan: String(span) }, cell));
  }

  const number = (side) => tw.el("td", { class: "tw-n" }, side ? String(side.number) : "");

  function text(side, kind) {
    if (!side) return tw.el("td", { class: "tw-t tw-none" });
    const indent = side.text.length - side.text.trimStart().length; // wrapped text hangs below its start
    return tw.el("td", { class: `tw-t ${kind}`, style: `--indent:${indent}`, "data-source": side.source ? String(side.source) : null },
      tw.code(side.text, side.words, state.query));
  }

  function splitRows(rows) {
    return folded(rows).map((row) => {
      if (row.kind === "gap" || row.kind === "fold") return gapRow(row, 4);
      const same = row.kind === "same";
      const before = same ? { ...row.after, number: row.before.number } : row.before;
      return tw.el("tr", { class: `tw-${row.kind}` },
        number(before), text(before, same ? "" : "tw-old"), number(row.after), text(row.after, same ? "" : "tw-new"));
    });
  }

  function unifiedRows(rows, changes) {
    const out = [];
    let added = [];
    const flush = () => { out.push(...added); added = []; };
    for (const row of changes ? folded(rows) : rows) {
      if (row.kind === "gap" || row.kind === "fold") { flush(); out.push(gapRow(row, 4)); continue; }
      if (row.kind === "same") {
        flush();
        out.push(changes
          ? tw.el("tr", {}, number(row.before), number(row.after), tw.el("td", { class: "tw-sign" }), text(row.after, ""))
          : tw.el("tr", {}, number(row.after), text(row.after, "")));
        continue;
      }
      if (row.before) out.push(tw.el("tr", { class: "tw-removed" }, number(row.before), number(null),
        tw.el("td", { class: "tw-sign tw-old" }, "−"), text(row.before, "tw-old")));
      if (row.after) added.push(tw.el("tr", { class: "tw-added" }, number(null), number(row.after),
        tw.el("td", { class: "tw-sign tw-new" }, "+"), text(row.after, "tw-new")));
    }
    flush();
    return out;
  }

  // Source and IR light each other up.
  function markLine(line, reveal) {
    listing.mark(line ? [line] : []);
    const cells = [...body.querySelectorAll("td[data-source]")];
    cells.forEach((cell) => cell.classList.toggle("tw-linked", Number(cell.dataset.source) === line));
    const target = reveal && cells.find((cell) => cell.classList.contains("tw-linked"));
    if (target) tw.reveal(body, target);
  }
  body.addEventListener("mouseover", (event) => {
    const cell = event.target.closest("td[data-source]");
    markLine(cell ? Number(cell.dataset.source) : 0, false);
  });
  body.addEventListener("mouseleave", () => markLine(0, false));

  // Search and keys
  let searches = 0;
  async function find() {
    const query = search.value.trim();
    const mine = ++searches;
    const answer = query ? await tw.ask(model, { type: "search", query }) : { hits: [] };
    if (mine !== searches) return;
    state.query = query;
    state.hits = new Map(answer.hits.map((hit) => [hit.index, hit.count]));
    const count = answer.hits.reduce((sum, hit) => sum + hit.count, 0);
    found.textContent = query ? `${count} lines in ${state.hits.size} passes` : "";
    show();
  }

  function nextHit() {
    const order = [...state.hits.keys()].sort((a, b) => a - b).filter(visible);
    const next = order.find((index) => index > model.get("selected_pass")) ?? order[0];
    if (next !== undefined) select(next);
  }

  function searchKey(event) {
    if (event.key === "Enter") nextHit();
    else if (event.key === "Escape") { leave(); root.focus({ preventScroll: true }); }
    else { event.stopPropagation(); return; }
    event.stopPropagation();
    event.preventDefault();
  }

  function toggleHelp() { help.hidden = !help.hidden; }

  function leave() {
    if (!help.hidden) { help.hidden = true; return; }
    if (search.value) { search.value = ""; find(); }
  }

  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      j: () => step(1), k: () => step(-1), "?": toggleHelp, Escape: leave,
      "/": () => search.focus({ preventScroll: true }),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  });

  // Two columns of code need room; until the reader picks, the width decides.
  const sizes = new ResizeObserver(() => {
    const split = root.clientWidth >= SPLIT_WIDTH;
    if (!root.clientWidth || state.picked || split === state.split) return;
    state.split = split;
    views.press(split ? "split" : "unified");
    show();
  });
  sizes.observe(root);
  scope.add(() => sizes.disconnect());

  scope.on("change:selected_pass", show);
  show();
  return scope.dispose;
}
