// What the panel of the layouts says: about the element under the pointer, and about what is pinned.
import * as tw from "./common.js";
import { NO_THREAD } from "./slices.js";

const MOST = 48; // elements of a thread that are listed
const MOST_COPIES = 16; // threads of an element that are listed
/**
 * @param {string} label
 * @param {Content} value
 */
const row = (label, value) => tw.div("tw-row", tw.faint(label), tw.el("b", {}, value));

/** Where a cell of a LayoutSlice lives, as rows. */
export function place(/** @type {Slice} */ slice, /** @type {number} */ cell) {
  if (!slice.isFragment) {
    const lane = Math.floor((slice.byte(cell) % 64) / slice.element_bytes);
    return [
      row("address", String(slice.first(cell))),
      row("byte", String(slice.byte(cell))),
      ...(slice.banked ? [row("bank", String(slice.bank(cell)))] : []),
      row("cache line · lane", `${slice.line(cell)} · ${lane}`),
    ];
  }
  const slot = row("slot", String(slice.slotTable[cell]));
  if (slice.everywhere) return [row("threads", `all ${slice.threads}`), slot];
  const all = slice.all(cell);
  const more = slice.replicate > Math.min(all.length, MOST_COPIES) ? ", …" : "";
  return [
    row(slice.replicate > 1 ? "threads" : "thread", all.slice(0, MOST_COPIES).join(", ") + more),
    slot,
    row("warp · lane", `${Math.floor(all[0] / 32)} · ${all[0] % 32}`),
  ];
}

/**
 * The indices in a text, null where they are of no element, and what is wrong with them.
 * @param {string} text
 * @param {{ name: string, shape: number[] }} slice
 */
export function readIndex(text, { name, shape }) {
  const index = text.split(/\D+/).filter(Boolean).map(Number);
  if (index.length === shape.length && index.every((at, dim) => at < shape[dim])) return { index, problem: "" };
  const indices = shape.length === 1 ? "an index" : `${shape.length} indices`;
  const problem = text.trim() ? `an element of ${name} has ${indices} below ${shape.join(", ")}` : "";
  return { index: null, problem };
}

/**
 * The cell under the pointer, as nodes.
 * @param {Slice} slice
 * @param {number | null} cell
 */
export const describe = (slice, cell) => (cell === null ? [tw.faint("Point at a cell.")] : [
  tw.div("tw-panel-title", `${slice.name}[${slice.indexOf(cell).join(", ")}]`),
  ...place(slice, cell)]);

/**
 * The pinned owner and its elements, as nodes; none without a pin.
 * @param {{ label: string, owner: number, elements: number[][], unpin: () => void,
 *           choose: (index: number[]) => void }} given
 */
export function describePin({ label, owner, elements, unpin, choose }) {
  if (owner === NO_THREAD) return [];
  const count = elements.length === 1 ? "1 element" : `${elements.length} elements, slot by slot`;
  const links = elements.slice(0, MOST).flatMap((index) =>
    [tw.link(`(${index.join(", ")})`, () => choose(index)), " "]);
  return [
    tw.div("tw-panel-title", `${label} ${owner}`, tw.link("unpin", unpin)),
    tw.div("tw-faint", count),
    tw.div("tw-elements", ...links, elements.length > MOST ? "…" : ""),
  ];
}

/**
 * What the colours mean, as nodes: the hues of categories, which repeat, or the ends of a ramp.
 * @param {any} slice a LayoutSlice
 * @param {string} by
 */
export function legend(slice, by) {
  const swatch = (/** @type {Colour} */ colour) => {
    const node = tw.span("tw-swatch");
    node.style.background = `rgb(${colour.map(Math.round).join(",")})`;
    return node;
  };
  const { categories, sequence } = slice.palette;
  const ramps = /** @type {Record<string, number>} */ ({ slot: slice.slots - 1, address: slice.top, bank: 31 });
  if (by in ramps)
    return [tw.faint(`${by} 0`), ...sequence.map(swatch), tw.faint(String(ramps[by]))];
  const name = by === "line" ? "cache line" : by;
  return [tw.faint(`${name} 0`), ...categories.map(swatch),
    tw.faint(`${categories.length - 1}, then again, each time lighter`)];
}
