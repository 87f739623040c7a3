// The pass explorer: a list of passes, and what the chosen one did.
import * as tw from "./common.js";

const FOLD_CONTEXT = 3;
const SPLIT_WIDTH = 880;

/** @param {ViewArguments} given */
export function render({ model, el }) {
  const root = tw.root(el, "passes");
  const scope = tw.scope(model);
  const entries = model.get("passes").entries;
  const first = model.get("passes").diff;
  const diffs = new Map(first ? [[first.index, first]] : []);
  const state = { split: true, picked: false, hide: false, query: "" };
  let hits = new Map(); // pass to number of lines found in it
  const opened = new Set(); // folded rows that the reader opened

  // Toolbar
  const search = tw.el("input", {
    class: "tw-input tw-search", type: "search", placeholder: "Search the IR of all passes  ( / )",
    "aria-label": "Search the IR of all passes", oninput: () => find(), onkeydown: searchKey,
  });
  const found = tw.span("tw-faint tw-found");
  const hide = tw.el("input", {
    type: "checkbox",
    onchange: () => { state.hide = hide.checked; list(); },
  });
  const views = tw.choice({ split: "Side by side", unified: "Unified" }, "split", (value) => {
    state.picked = true;
    state.split = value === "split";
    show();
  });
  const keys = {
    j: "next pass",
    k: "previous pass",
    "/": "search",
    Enter: "next pass with a hit",
    "?": "this help",
    Esc: "close, clear the search",
  };
  const help = tw.el("div", { class: "tw-help", hidden: true },
    ...Object.entries(keys).flatMap(([key, text]) => [tw.el("kbd", {}, key), tw.span("", text)]));
  const hideLabel = tw.el("label", { class: "tw-check" }, hide, "Hide no-ops");
  const helpButton = tw.button("?", toggleHelp, { title: "Keys" });
  const bar = tw.div("tw-bar", search, found, tw.space(), hideLabel, views.node, helpButton);

  // List of passes, source below it, differences beside both
  const names = tw.el("div", { class: "tw-pass-list", role: "listbox", "aria-label": "Passes" });
  const source = model.get("source");
  const listing = tw.listing(source.lines ?? [], source.first ?? 1, { class: "tw-source" });
  listing.node.addEventListener("click", (event) => {
    const row = event.target.closest(".tw-line");
    if (row) markLine(Number(row.dataset.line), true);
  });
  const about = tw.div("tw-about");
  const notes = tw.el("ul", { class: "tw-notes" });
  const body = tw.div("tw-diff");
  const side = tw.div("tw-side", names);
  if (source.lines?.length) side.append(tw.div("tw-caption", "Source"), listing.node);
  root.append(bar, help, tw.div("tw-columns", side, tw.div("tw-main", about, notes, body)));

  function visible(index) {
    return !state.hide || index === 0 || entries[index].changed;
  }

  function list() {
    names.replaceChildren(...[...entries.keys()].filter(visible).map(item));
    const button = names.querySelector('[aria-selected="true"]');
    if (button) tw.reveal(names, button);
  }

  function item(index) {
    const entry = entries[index];
    const count = hits.get(index);
    const note = entry.changed ? entry.time ?? "" : "no-op";
    const kind = `${entry.changed ? "" : "tw-noop"} ${state.query && !count ? "tw-miss" : ""}`;
    return tw.el(
      "button",
      {
        type: "button", role: "option", class: `tw-pass ${kind}`, title: entry.doc,
        "aria-selected": String(index === model.get("selected_pass")),
        onclick: () => select(index),
      },
      tw.span("tw-dot"),
      tw.span("tw-pass-name", entry.name),
      count ? tw.span("tw-hits", String(count)) : null,
      tw.span("tw-pass-note", note),
    );
  }

  function select(index) {
    opened.clear();
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

  const note = (text) => tw.div("tw-note", text);

  function draw(diff) {
    const changes = diff.rows.some((row) => row.kind !== "same" && row.kind !== "fold");
    const split = changes && state.split;
    describe(diff, changes);
    const rows = split ? splitRows(diff.rows) : unifiedRows(diff.rows, changes);
    const widths = split ? ["40px", "", "40px", ""] : ["40px", "40px", "18px", ""];
    const columns = (changes ? widths : ["40px", ""]).map((width) =>
      tw.el("col", width ? { style: `width:${width}` } : {}));
    body.replaceChildren(tw.el("table", { class: split ? "tw-split" : "tw-unified" },
      tw.el("colgroup", {}, ...columns), tw.el("tbody", {}, ...rows)));
    if (diff.dropped) body.append(note(`${diff.dropped} further rows are not shown.`));
    const target = body.querySelector(".tw-find, .tw-changed, .tw-removed, .tw-added");
    const place = target ? target.closest("tr").offsetTop - body.clientHeight / 3 : 0;
    body.scrollTop = Math.max(0, place);
  }

  function describe(diff, changes) {
    const entry = entries[diff.index];
    const unchanged = diff.index === 0 ? "the program as it was read" : "changed nothing";
    const counts = changes
      ? [tw.span("tw-plus", `+${diff.added}`), tw.span("tw-minus", `−${diff.removed}`)]
      : [tw.chip(unchanged)];
    about.replaceChildren(
      tw.el("b", { class: "tw-mono" }, entry.name),
      tw.faint(entry.doc),
      tw.space(),
      ...counts,
      entry.time ? tw.chip(entry.time) : "",
    );
    notes.replaceChildren(...diff.notes.map((text) => tw.el("li", {}, text)));
  }

  /** Rows with long unchanged runs replaced by {kind: "gap"} until opened. */
  function folded(rows) {
    const out = [];
    for (let i = 0; i < rows.length; ) {
      let end = i;
      while (end < rows.length && rows[end].kind === "same") end++;
      const [head, tail] = [i === 0 ? 0 : FOLD_CONTEXT, end === rows.length ? 0 : FOLD_CONTEXT];
      const count = end - i - head - tail;
      if (count > 2 && !opened.has(i) && !hasHit(rows.slice(i + head, end - tail))) {
        out.push(...rows.slice(i, i + head), { kind: "gap", count, at: i });
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
    const open = () => { opened.add(row.at); show(); };
    const cell = row.kind === "fold" ? text : tw.button(text, open, { class: "" });
    return tw.el("tr", { class: "tw-gap" }, tw.el("td", { colspan: String(span) }, cell));
  }

  const number = (side) => tw.el("td", { class: "tw-n" }, side ? String(side.number) : "");

  function text(side, kind) {
    if (!side) return tw.el("td", { class: "tw-t tw-none" });
    const indent = side.text.length - side.text.trimStart().length; // wrapped text hangs below it
    const cell = tw.el("td", { class: `tw-t ${kind}`, style: `--indent:${indent}` });
    if (side.source) cell.dataset.source = String(side.source);
    cell.append(tw.code(side.text, side.words, state.query));
    return cell;
  }

  const line = (kind, ...cells) => tw.el("tr", { class: kind }, ...cells);
  const sign = (text, kind) => tw.el("td", { class: `tw-sign ${kind}` }, text);

  function splitRows(rows) {
    return folded(rows).map((row) => {
      if (row.kind === "gap" || row.kind === "fold") return gapRow(row, 4);
      const same = row.kind === "same";
      const before = same ? { ...row.after, number: row.before.number } : row.before;
      const left = [number(before), text(before, same ? "" : "tw-old")];
      const right = [number(row.after), text(row.after, same ? "" : "tw-new")];
      return line(`tw-${row.kind}`, ...left, ...right);
    });
  }

  function unifiedRows(rows, changes) {
    if (!changes) return rows.map((row) => line("", number(row.after), text(row.after, "")));
    const out = [];
    const added = []; // a run of changes shows what went before what came
    for (const row of folded(rows)) {
      const { kind, before, after } = row;
      const between = kind === "gap" || kind === "fold" || kind === "same";
      if (between) out.push(...added.splice(0));
      if (kind === "same")
        out.push(line("", number(before), number(after), sign("", ""), text(after, "")));
      else if (between) out.push(gapRow(row, 4));
      else {
        const old = [sign("−", "tw-old"), text(before, "tw-old")];
        if (before) out.push(line("tw-removed", number(before), number(null), ...old));
        const now = [sign("+", "tw-new"), text(after, "tw-new")];
        if (after) added.push(line("tw-added", number(null), number(after), ...now));
      }
    }
    return [...out, ...added];
  }

  // Source and IR light each other up.
  function markLine(line, reveal) {
    listing.mark(line ? [line] : []);
    const cells = [...body.querySelectorAll("td[data-source]")];
    for (const cell of cells)
      cell.classList.toggle("tw-linked", Number(cell.dataset.source) === line);
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
    hits = new Map(answer.hits.map((hit) => [hit.index, hit.count]));
    const count = answer.hits.reduce((sum, hit) => sum + hit.count, 0);
    found.textContent = query ? `${count} lines in ${hits.size} passes` : "";
    show();
  }

  function nextHit() {
    const order = [...hits.keys()].sort((a, b) => a - b).filter(visible);
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
