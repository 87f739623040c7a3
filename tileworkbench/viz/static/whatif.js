// Other layouts of a tile: their wavefronts, computed here, and the line that chooses one.
import * as tw from "./common.js";
import { swizzlePanel } from "./swizzlepanel.js";
import { padded, paddedText, rearranged, rowMajor, sharedCost, swizzleProblem, swizzled } from "./memory.js";

/** @type {Record<string, string>} */
const LABELS = {
  none: "row-major",
  padding: "padded rows",
  swizzle32: "32-byte swizzle",
  swizzle64: "64-byte swizzle",
  swizzle128: "128-byte swizzle",
  yours: "yours",
  compiled: "the compiler's",
};
const SLIDABLE = ["store", "load", "cp.async"]; // accesses whose width a copy can choose
const WIDTHS = [1, 2, 4, 8, 16];

/** The layout of a choice; null where the tile cannot have it. */
export function layoutOf(/** @type {Tile} */ tile, /** @type {LayoutChoice} */ { name, pitch }) {
  if (name === "none") return rowMajor(tile.shape);
  if (name === "padding") return padded(tile.shape, pitch);
  if (!name.startsWith("swizzle")) return tile.layout;
  const bytes = Number(name.slice("swizzle".length));
  return swizzleProblem(tile.shape, tile.bits, bytes) ? null : swizzled(tile.shape, tile.bits, bytes);
}

/**
 * What all accesses of a tile cost with a layout: `{ costs, wavefronts, ideal, problem }`.
 * @param {Tile} tile
 * @param {Access[]} accesses
 * @param {Places} layout
 */
export function measure(tile, accesses, layout) {
  const costs = /** @type {Record<string, number>[]} */ ([]);
  for (const access of accesses) {
    const moved = rearranged(tile, access, layout);
    if (moved.problem) return { costs: [], wavefronts: Infinity, ideal: 0, problem: moved.problem };
    costs.push(sharedCost(moved));
  }
  const sum = (/** @type {string} */ key) => costs.reduce((total, cost) => total + cost[key], 0);
  return { costs, wavefronts: sum("wavefronts"), ideal: sum("ideal"), problem: "" };
}

/** Bytes that a tile takes with a layout, all its versions together. */
export const bytesOf = (/** @type {Tile} */ tile, /** @type {Places} */ layout) =>
  tile.versions * Math.ceil((layout.size * tile.bits) / 8);

/** All choices of a tile with their layouts and costs, the best first. */
export function ranking(/** @type {Tile} */ tile, /** @type {Access[]} */ accesses) {
  const found = tile.choices.map((/** @type {LayoutChoice} */ choice) => {
    const layout = layoutOf(tile, choice);
    if (!layout) return { ...choice, layoutText: choice.layout, layout, wavefronts: Infinity,
      ideal: 0, bytes: 0, costs: [] };
    const cost = measure(tile, accesses, layout);
    return { ...choice, layoutText: choice.layout, ...cost, layout, bytes: bytesOf(tile, layout) };
  });
  return found.sort((/** @type {Fields} */ a, /** @type {Fields} */ b) => a.wavefronts === b.wavefronts
    ? a.bytes - b.bytes || Number(b.chosen) - Number(a.chosen)
    : a.wavefronts < b.wavefronts ? -1 : 1);
}

/**
 * The panel below the pictures: `{ node, open(access), tried(), reset() }`.
 * @param {{ model: Model, tiles: Map<string, Tile>, accesses: Access[], preview: () => void }} given
 */
export function whatIf({ model, tiles, accesses, preview }) {
  const node = tw.div("tw-what-if");
  /** @type {any} */
  const state = { tile: null, access: null, name: null, width: null, tried: null };

  function open(/** @type {Access} */ access) {
    const other = state.tile?.name !== access.tile;
    state.access = access;
    state.width = null;
    if (other) [state.tile, state.name, state.pitch] = [tiles.get(access.tile), null, null];
    [state.tried, state.said] = [null, null];
    state.name = null;
    fill();
  }

  function fill() {
    const { tile } = state;
    const mine = accesses.filter((/** @type {Access} */ access) => access.tile === tile.name);
    if (tile.fixed) {
      node.replaceChildren(tw.div("tw-heading", "Other layouts"),
        tw.div("tw-faint", `The layout of ${tile.name} cannot be chosen: ${tile.fixed}.`));
      return;
    }
    state.rows = ranking(tile, mine);
    const heads = ["layout", ...mine.map((/** @type {Access} */ access) => `${access.kind}${access.line
      ? `, line ${access.line}` : ""}`), "wavefronts", "used / needed", "shared memory", ""];
    const body = state.rows.map((/** @type {LayoutChoice} */ choice) => choiceRow(choice, mine));
    state.said = tw.div("tw-confirmed", "");
    node.replaceChildren(
      tw.div("tw-heading", `What if ${tile.name} had another layout?`),
      tw.div("tw-choices", tw.el("table", { class: "tw-data" },
        tw.el("thead", {}, tw.el("tr", {}, ...heads.map((text) => tw.el("th", { scope: "col" }, text)))),
        tw.el("tbody", {}, ...body))),
      tw.div("tw-bar", ...padding(mine), ...widths()),
      swizzlePanel({ tile, mine, attempt, apply,
        measure: (layout) => measure(tile, mine, layout) }).node,
      state.said);
  }

  function choiceRow(/** @type {LayoutChoice} */ choice, /** @type {any} */ mine) {
    const { name, problem, wavefronts, ideal, bytes, chosen, costs } = choice;
    const label = `${LABELS[name] ?? name}${name === "padding" ? ` (+${choice.pitch -
      state.tile.shape.at(-1)} elements)` : ""}`;
    const row = tw.el("tr", { "data-choice": name, class: chosen ? "tw-current" : "" },
      tw.el("td", {}, tw.link(label, () => attempt(choice)),
        chosen ? " " : null, chosen ? tw.chip("now", "tw-accent") : null));
    if (problem) {
      row.append(tw.el("td", { colspan: mine.length + 4, class: "tw-problem" }, problem));
      return row;
    }
    const bad = wavefronts > ideal;
    row.append(
      ...costs.map((/** @type {Cost} */ cost) => tw.el("td", { class: cost.wavefronts > cost.ideal ? "tw-is-bad" : "" },
        String(cost.wavefronts))),
      tw.el("td", { class: "tw-total" }, String(wavefronts)),
      tw.el("td", { class: bad ? "tw-is-bad" : "tw-is-good" }, `${(wavefronts / (ideal || 1)).toFixed(2)}×`),
      tw.el("td", {}, `${bytes} bytes`),
      tw.el("td", {}, chosen || !choice.line ? null
        : tw.button("Apply", () => apply(choice.line), { title: choice.line })));
    return row;
  }

  /** A slider for rows that are further apart. */
  function padding(/** @type {any} */ mine) {
    const { tile } = state;
    const most = Math.max(Math.floor(256 / tile.bits), 4);
    const said = tw.span("tw-slid", "");
    const apply_ = tw.button("Apply", () => apply(lineOf(pitchOf())), { hidden: true });
    const range = tw.el("input", { type: "range", min: "0", max: String(most), value: "0",
      class: "tw-range", "aria-label": "Elements behind each row", oninput: () => slide() });
    const pitchOf = () => tile.shape.at(-1) + Number(range.value);
    const lineOf = (/** @type {number} */ pitch) =>
      `T.annotate_layout({${tile.name}: ${paddedText(tile.shape, pitch)}})`;
    const tell = () => {
      const layout = padded(tile.shape, pitchOf());
      const cost = measure(tile, mine, layout);
      said.textContent = `+${range.value} elements: ` + (cost.problem ||
        `${cost.wavefronts} wavefronts (${(cost.wavefronts / (cost.ideal || 1)).toFixed(2)}×), ` +
        `${bytesOf(tile, layout)} bytes`);
      return { layout, cost };
    };
    const slide = async () => {
      const { layout, cost } = tell();
      apply_.hidden = Boolean(cost.problem);
      const pitch = pitchOf();
      const refused = await attempt({ name: "padding", pitch, layout, problem: cost.problem,
        wavefronts: cost.wavefronts,
        layoutText: `Layout((${tile.shape.join(", ")},), ${paddedText(tile.shape, pitch)})` });
      if (pitch === pitchOf()) apply_.hidden ||= Boolean(refused);
    };
    tell();
    return [tw.el("label", { class: "tw-check" }, "Padding", range), said, apply_];
  }

  /** Another width of the access that is shown. */
  function widths() {
    const { tile, access } = state;
    if (!SLIDABLE.includes(access.kind)) return [];
    const possible = WIDTHS.filter((width) => (width * 8) % tile.bits === 0 &&
      (access.kind !== "cp.async" || width >= 4));
    const select = tw.el("select", { class: "tw-select", onchange: () => widen(Number(select.value)) },
      ...possible.map((width) => tw.el("option", { value: width, selected: width === access.width },
        `${width} bytes`)));
    const said = tw.span("tw-slid", "");
    const widen = (/** @type {number} */ width) => {
      const layout = state.tried?.layout ?? tile.layout;
      const moved = rearranged(tile, access, layout, width);
      const elements = (width * 8) / tile.bits;
      const cost = moved.problem ? null : sharedCost(moved);
      said.textContent = !cost ? moved.problem : `${cost.wavefronts} wavefronts, ${cost.ideal} needed` +
        (width === access.width ? "" : ` · coalesced_width=${elements} of the copy asks for it`);
      state.width = width === access.width ? null : width;
      show(state.tried?.name ?? "as compiled", layout);
    };
    return [tw.el("label", { class: "tw-check" }, `Vector of this ${access.kind}`, select), said];
  }

  /** Show a choice; told is why the compiler refuses it, "" where it does not. */
  async function attempt(/** @type {LayoutChoice} */ choice) {
    if (!choice.layout) return "";
    if (choice.chosen && state.width === null) {
      reset();
      return "";
    }
    mark(choice.name);
    show(choice.label ?? `${LABELS[choice.name]}${choice.name === "padding" ? ` +${choice.pitch -
      state.tile.shape.at(-1)}` : ""}`, choice.layout);
    return confirm(choice);
  }

  function show(/** @type {string} */ name, /** @type {Places} */ layout) {
    const width = state.width ?? state.access.width;
    const plain = layout === state.tile.layout && state.width === null;
    state.tried = plain ? null : { name: state.width ? `${name}, ${width} bytes` : name, layout, width };
    preview();
  }

  /** Lower the kernel again with the layout: what the line will really give, or why it is refused. */
  async function confirm(/** @type {LayoutChoice} */ choice) {
    const { said, tile } = state;
    state.asked = choice;
    said.textContent = "";
    let made;
    try {
      made = await tw.ask(model, { type: "relower", buffer: tile.name, layout: choice.layoutText });
    } catch (error) {
      if (state.asked === choice) said.textContent = `Not compiled again: ${error.message}`;
      return "";
    }
    if (state.asked !== choice || state.said !== said) return "";
    if (made.problem) {
      said.textContent = `Compiled again: the compiler refuses it: ${made.problem}`;
      return made.problem;
    }
    const same = made.wavefronts === choice.wavefronts;
    said.dataset.wavefronts = String(made.wavefronts);
    said.textContent = `${same ? "✓ " : ""}Compiled again: ${made.wavefronts} wavefronts, ` +
      `${made.ideal} needed; the block takes ${made.shared_bytes} bytes of shared memory.` +
      (same ? "" : ` ${difference(made.accesses)}`);
    return "";
  }

  /** Why the compiler's count is not the one of moved addresses. */
  function difference(/** @type {Access[]} */ made) {
    const kinds = (/** @type {Access[]} */ of) => of.map(({ kind }) => kind).sort().join(", ");
    const mine = accesses.filter((/** @type {Access} */ access) => access.tile === state.tile.name);
    return kinds(made) === kinds(mine) ? "Its engines then take the pieces in another order."
      : `The compiler then chooses other instructions: ${kinds(made)}.`;
  }

  function mark(/** @type {string} */ name) {
    for (const row of node.querySelectorAll("[data-choice]"))
      row.setAttribute("aria-selected", String(row.dataset.choice === name));
  }

  function reset() {
    [state.tried, state.width, state.asked] = [null, null, null];
    fill();
    preview();
  }

  /** The kernel with the line as a new cell; where none can be made, in the clipboard. */
  async function apply(/** @type {string} */ line) {
    const [before, after] = state.tile.cell;
    const text = before + line + after;
    state.asked = null; // what the compiler still answers would take the place of what is said here
    const inserted = tw.insertCell?.(text, node) ?? false;
    const copied = !inserted && await tw.copyText(text);
    state.said.replaceChildren(
      inserted ? "The kernel with this line is in a new cell."
        : copied ? "The kernel with this line is in the clipboard: paste it into a cell."
          : "The kernel with this line, for a new cell:",
      inserted ? "" : tw.el("pre", { class: "tw-applied" }, text));
  }

  return { node, open, tried: () => state.tried, reset };
}
