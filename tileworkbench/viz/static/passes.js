// The pass explorer: a list of passes, and what the chosen one did, as lines or as a tree.
import * as tw from "./common.js";
import { pickLines } from "./keys.js";
import { diffTable } from "./passdiff.js";
import { passList } from "./passlist.js";
import { explainNames, nameAt } from "./passnames.js";
import { ruleList } from "./passrules.js";
import { treeList } from "./passtree.js";

const SPLIT_WIDTH = 880;
const KEYS = {
  j: "next pass",
  k: "previous pass",
  n: "what the next name of the marked line is",
  "]": "next rewrite by a rule",
  "[": "previous rewrite",
  "/": "search",
  Enter: "next pass with a hit",
  "?": "this help",
  Esc: "close, clear the search",
};
const WAYS = { split: "Side by side", unified: "Unified", tree: "Tree" };

/** @param {ViewArguments} given */
export function render({ model, el }) {
  const root = tw.root(el, "passes");
  const scope = tw.scope(model);
  const { entries, name: kernel } = model.get("passes");
  const first = model.get("passes").diff;
  const known = { diff: new Map(first ? [[first.index, first]] : []), tree: new Map() };
  const state = { way: "split", picked: false, hide: false, query: "" };
  let hits = new Map(); // pass to number of lines found in it
  let opened = new Set(); // folded rows that the reader opened
  let without = /** @type {any} */ (null); // what the kernel would be with other passes switched off

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
  const ways = tw.choice(WAYS, "split", (way) => {
    Object.assign(state, { picked: true, way });
    show();
  });
  const help = tw.el("div", { class: "tw-help", hidden: true },
    ...Object.entries(KEYS).flatMap(([key, text]) => [tw.el("kbd", {}, key), tw.span("", text)]));
  const hideLabel = tw.el("label", { class: "tw-check" }, hide, "Hide no-ops");
  const helpButton = tw.button("?", toggleHelp, { title: "Keys" });
  const bar = tw.div("tw-bar", search, found, tw.space(), hideLabel, ways.node, helpButton);

  // List of passes, beside it the difference and below that the source, as wide
  const passes = passList({ entries, select, switched });
  const source = model.get("source");
  const listing = tw.listing(source.lines ?? [], source.first ?? 1, { class: "tw-source" });
  pickLines(listing.node, (line) => choose({ line }), "The kernel's lines");
  const strip = tw.el("div", { class: "tw-without", hidden: true });
  const about = tw.div("tw-about");
  const notes = tw.el("ul", { class: "tw-notes" });
  const body = tw.div("tw-diff");
  const rules = ruleList({
    ask: (index) => tw.ask(model, { type: "rules", index }),
    go: ({ number, side, source: line }) => {
      if (line) choose({ line });
      if (number) go(number, side === "before");
    },
  });
  const main = tw.div("tw-main", strip, about, notes, rules.node, body);
  if (source.lines?.length) main.append(tw.div("tw-caption", "Source"), listing.node);
  root.append(bar, help, tw.div("tw-columns", passes.node, main));

  function visible(/** @type {number} */ index) {
    return !state.hide || index === 0 || entries[index].changed || entries[index].failed;
  }

  function list() {
    const selected = without ? -1 : model.get("selected_pass");
    passes.draw([...entries.keys()].filter(visible), { selected, hits, query: state.query });
  }

  function select(/** @type {number} */ index) {
    opened = new Set();
    without = null;
    if (index === model.get("selected_pass")) show();
    else tw.set(model, { selected_pass: index });
  }

  function step(/** @type {number} */ by) {
    let index = model.get("selected_pass") + by;
    while (index >= 0 && index < entries.length && !visible(index)) index += by;
    if (index >= 0 && index < entries.length) select(index);
  }

  /** Ask for what is not known yet; null where the kernel is silent, or something else is shown. */
  async function fetched(/** @type {'diff' | 'tree'} */ kind, /** @type {number} */ index) {
    if (known[kind].has(index)) return known[kind].get(index);
    root.dataset.shown = "";
    const wait = setTimeout(() => body.replaceChildren(note("Waiting for the kernel …")), 250);
    try {
      known[kind].set(index, await tw.ask(model, { type: kind, index }));
    } catch (error) {
      body.replaceChildren(note(error.message));
      return null;
    } finally {
      clearTimeout(wait);
    }
    return model.get("selected_pass") === index && !without ? known[kind].get(index) : null;
  }

  async function show() {
    const index = model.get("selected_pass");
    list();
    rules.node.hidden = Boolean(without) || !entries[index].changed || index === 0;
    if (without) return drawWithout();
    const diff = await fetched("diff", index);
    const tree = diff && state.way === "tree" ? await fetched("tree", index) : null;
    if (!diff || (state.way === "tree" && !tree)) return undefined;
    describe(diff);
    rules.show(index);
    draw(diff, tree);
    root.dataset.shown = String(index);
    return undefined;
  }

  const note = (/** @type {string} */ text) => tw.div("tw-note", text);

  function draw(/** @type {PassDiff} */ diff, /** @type {PassTree} */ tree) {
    names.hide();
    const options = { split: state.way === "split", query: state.query, opened, open: show };
    body.replaceChildren(tree ? treeList(tree, state.query) : diffTable(diff, options));
    const dropped = (tree ?? diff).dropped;
    if (dropped) body.append(note(`${dropped} further rows are not shown.`));
    const target = body.querySelector(".tw-find, .tw-problem, .tw-changed, .tw-removed, .tw-added");
    const row = target?.closest("tr, .tw-branch") ?? target;
    body.scrollTop = Math.max(0, row ? row.offsetTop - body.clientHeight / 3 : 0);
    marked(false);
  }

  function describe(/** @type {PassDiff} */ diff) {
    const entry = entries[diff.index];
    const same = diff.index === 0 ? "the program as it was read" : "changed nothing";
    const unchanged = entry.disabled ? "switched off" : same;
    const edit = entry.failed ? null
      : tw.button("Edit in a cell", () => editCell(diff.index), { class: "tw-button tw-edit" });
    about.replaceChildren(...[
      tw.el("b", { class: "tw-mono" }, entry.name),
      tw.faint(entry.doc),
      tw.space(),
      ...(entry.failed ? [tw.chip("failed", "tw-bad")]
        : diff.added || diff.removed ? counts(diff) : [tw.chip(unchanged)]),
      entry.time ? tw.chip(entry.time) : null,
      edit,
    ].filter(Boolean));
    notes.replaceChildren(...diff.notes.map((/** @type {string} */ text) => tw.el("li", {}, text)));
  }

  /** Lines, and what became of the nodes of the tree. */
  function counts(/** @type {PassDiff} */ { added, removed, rewrites }) {
    const words = ["rewritten", "added", "removed", "moved"].filter((word) => rewrites[word]);
    const statements = words.map((word) => `${rewrites[word]} ${word}`).join(" · ");
    const { nodes_before: before, nodes_after: after } = rewrites;
    return [
      tw.el("span", { class: "tw-line-counts", title: "lines" },
        tw.el("span", { class: "tw-plus" }, `+${added}`), " ", tw.el("span", { class: "tw-minus" }, `−${removed}`)),
      tw.chip(`nodes ${before} → ${after}`, "tw-nodes", "of the tree, before and after"),
      tw.chip(`statements: ${statements || "none"}`, "tw-rewrites", `${rewrites.kept} kept`),
    ];
  }

  /** The program after a pass in a cell that is compiled from there on. */
  async function editCell(/** @type {number} */ index) {
    let said = "The cell is in the clipboard: paste it into a new one.";
    try {
      const { text } = await tw.ask(model, { type: "cell", index });
      if (tw.insertCell(text, root)) return;
      await navigator.clipboard.writeText(text);
    } catch (error) {
      said = error.message;
    }
    notes.prepend(tw.el("li", {}, said));
  }

  // Passes that are switched off
  async function switched(/** @type {string[]} */ names) {
    if (!passes.differs()) {
      without = null;
      strip.hidden = true;
      return show();
    }
    try {
      without = await tw.ask(model, { type: "without", names });
    } catch (error) {
      without = { error: error.message };
    }
    opened = new Set();
    return show();
  }

  function drawWithout() {
    const { error, flags, nodes, differ, added, removed } = without;
    const back = tw.link("back to the kernel", () => {
      passes.reset();
      without = null;
      strip.hidden = true;
      show();
    });
    strip.hidden = false;
    notes.replaceChildren();
    about.replaceChildren(tw.el("b", {}, error ? "It does not compile so" : "The lowered program"),
      tw.faint(error ? "" : "the kernel's beside that of these switches"));
    if (error) {
      strip.replaceChildren(tw.el("code", {}, "switched"), " ", back);
      body.replaceChildren(tw.div("tw-message tw-failed tw-refusal", error));
    } else {
      const same = !added && !removed;
      const others = differ.length ? `, other work for ${differ.join(", ")}` : "";
      strip.replaceChildren(
        tw.el("code", {}, flags || "all passes on"),
        same ? " changes nothing" : ` would change it: +${added} −${removed} lines, ` +
          `nodes ${nodes[0]} → ${nodes[1]}${others}`,
        " ", tw.link("copy the flag", () => navigator.clipboard?.writeText(flags)), " ", back);
      draw(without, null);
    }
    root.dataset.shown = "without";
    return undefined;
  }

  // What is chosen here is marked in the other views, and the other way round.
  const choose = (/** @type {Chosen} */ selection) => tw.set(model, { selection });

  function markLines(/** @type {number[]} */ lines, /** @type {boolean} */ reveal) {
    listing.mark(lines);
    const cells = [...body.querySelectorAll("[data-source]")];
    for (const cell of cells)
      cell.classList.toggle("tw-linked", lines.includes(Number(cell.dataset.source)));
    const target = reveal && cells.find((cell) => cell.classList.contains("tw-linked"));
    if (target) tw.reveal(body, target);
  }

  function marked(/** @type {boolean} */ reveal) {
    const { buffer } = model.get("selection") ?? {};
    markLines(tw.chosenLines(model), reveal);
    const mentions = buffer ? new RegExp(`(?<![\\p{L}\\w])${buffer}(?![\\p{L}\\w])`, "u") : null;
    for (const cell of body.querySelectorAll(".tw-t, .tw-branch"))
      cell.classList.toggle("tw-mentions", Boolean(mentions?.test(cell.textContent)));
  }

  body.addEventListener("mouseover", (/** @type {Pressed} */ event) => {
    const cell = event.target.closest("[data-source]");
    if (cell) markLines([Number(cell.dataset.source)], false);
    else marked(false);
  });
  body.addEventListener("mouseleave", () => marked(false));
  body.addEventListener("click", async (/** @type {Pressed} */ event) => {
    const cell = event.target.closest(".tw-t, .tw-branch");
    if (!cell || String(getSelection())) return;
    const line = Number(cell.dataset.source ?? 0);
    const word = nameAt(event.clientX, event.clientY);
    const found = word && !without ? await describeName(word.name, isBefore(word.code)) : {};
    const buffer = found.facts?.[0][1].startsWith("buffer") ? found.name : undefined;
    if (line || buffer) choose({ ...(line ? { line } : {}), ...(buffer ? { buffer } : {}) });
  });

  /** @param {any} node */
  const isBefore = (node) => node.closest("[data-side]")?.dataset.side === "before";

  async function describeName(/** @type {string} */ name, /** @type {boolean} */ before) {
    if (without) return {};
    const index = Math.max(model.get("selected_pass") - (before ? 1 : 0), 0);
    return tw.ask(model, { type: "name", index, name }).catch(() => ({}));
  }

  const names = explainNames({ root, body, scope, ask: describeName, go });

  /** Show a line of the program by its number; folds that may hide it are opened. */
  async function go(/** @type {number} */ number, /** @type {boolean} */ before) {
    const find = () => body.querySelector(`tr[data-${before ? "before" : "after"}="${number}"]`);
    if (state.way === "tree") {
      state.way = "unified";
      ways.press("unified");
      await show();
    }
    if (!find()) {
      opened.add("all");
      await show();
    }
    const row = find();
    if (!row) return;
    tw.reveal(body, row);
    row.classList.add("tw-gone-to");
    setTimeout(() => row.classList.remove("tw-gone-to"), 1500);
  }

  // Search and keys
  let searches = 0;
  async function find() {
    const query = search.value.trim();
    const mine = ++searches;
    const answer = query ? await tw.ask(model, { type: "search", query }) : { hits: [] };
    if (mine !== searches) return;
    state.query = query;
    hits = new Map(answer.hits.map((/** @type {{ index: number, count: number }} */ hit) => [hit.index, hit.count]));
    const count = answer.hits.reduce((/** @type {number} */ sum, /** @type {{ index: number, count: number }} */ hit) => sum + hit.count, 0);
    found.textContent = query ? `${count} lines in ${hits.size} passes` : "";
    show();
  }

  function nextHit() {
    const order = [...hits.keys()].sort((a, b) => a - b).filter(visible);
    const next = order.find((index) => index > model.get("selected_pass")) ?? order[0];
    if (next !== undefined) select(next);
  }

  function searchKey(/** @type {Pressed} */ event) {
    if (event.key === "Enter") nextHit();
    else if (event.key === "Escape") { leave(); root.focus({ preventScroll: true }); }
    else { event.stopPropagation(); return; }
    event.stopPropagation();
    event.preventDefault();
  }

  function toggleHelp() { help.hidden = !help.hidden; }

  function leave() {
    names.hide();
    if (!help.hidden) { help.hidden = true; return; }
    if (search.value) { search.value = ""; find(); }
  }

  /** Explain a name of the marked line: of the program after the pass, where it is there. */
  function nextName() {
    const lines = [...body.querySelectorAll(".tw-linked .tw-code")];
    const line = lines.find((each) => !isBefore(each)) ?? lines[0];
    if (line) names.next(line);
  }

  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    /** @type {Record<string, () => void>} */
    const actions = {
      j: () => step(1), k: () => step(-1), "?": toggleHelp,
      "[": () => rules.step(-1), "]": () => rules.step(1), Escape: leave, n: nextName,
      "/": () => search.focus({ preventScroll: true }),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  });

  // Two columns of code need room; until the reader picks, the width decides.
  let width = 0;
  const sizes = new ResizeObserver(() => {
    const before = width;
    width = root.clientWidth;
    if (!width) return;
    const way = width >= SPLIT_WIDTH ? "split" : "unified";
    if (!state.picked && way !== state.way) {
      state.way = way;
      ways.press(way);
      show();
    }
    if (!before) marked(true); // the tab was closed when something was chosen
  });
  sizes.observe(root);
  scope.add(() => sizes.disconnect());

  scope.on("change:selected_pass", () => { without = null; show(); });
  scope.on("change:selection", () => marked(true));
  root.dataset.kernel = kernel;
  show();
  return scope.dispose;
}
