// One slice of a layout: its tables, and the same places as the hardware has them. No drawing.
import * as tw from "./common.js";

export const NO_THREAD = -1;
const MOST_PLACES = 2 ** 22; // of the hardware that are listed

const NOTHING = -1; // in a place
const TALL = 3; // rows per column of a memory view, at most
const WIDE = 128; // a view of few slots has wide cells, so that the names of elements fit

/**
 * The tensor view: a cell is a position in the row-major grid of elements. Its owners are threads
 * of a fragment (one per copy), or the address of a layout.
 */
export class LayoutSlice {
  name = "";
  shape = /** @type {number[]} */ ([]);
  lead = /** @type {number[]} */ ([]);
  palette = /** @type {any} */ (null);
  offsets = /** @type {number[] | null} */ (null); // of the copies from the first, if they are that
  everywhere = false;
  wrapped = false;
  columns = 0;
  rows = 0;
  slots = 0;
  threads = 0;
  replicate = 1;
  copy = 0; // the first copy that is here
  addresses = 0;
  element_bytes = 0;
  line_bytes = 64;
  banked = false;

  constructor(/** @type {any} */ raw) {
    Object.assign(this, raw);
    this.isFragment = raw.kind === "fragment";
    this.owners = (this.isFragment ? raw.owners : [raw.address]).map(tw.table);
    /** Of fragments alone. @type {any} */
    this.slotTable = this.isFragment ? tw.table(raw.slot) : null;
    this.empty = (this.isFragment ? raw.owners[0] : raw.address).empty ?? null;
    this.top = (this.isFragment ? raw.threads : raw.addresses) - 1;
    this.cells = raw.rows * raw.columns;
  }

  isEmpty(/** @type {number} */ cell) { return this.empty !== null && this.owners[0][cell] === this.empty; }

  /** Thread or address of the first copy. */
  first(/** @type {number} */ cell) { return this.owners[0][cell]; }

  /** The owners of all copies that are here. */
  all(/** @type {number} */ cell) {
    if (this.offsets) return this.offsets.map((offset) => this.first(cell) + offset);
    return this.owners.map((/** @type {any} */ table) => table[cell]);
  }

  holds(/** @type {number} */ cell, /** @type {number} */ owner) {
    return !this.isEmpty(cell) && (this.everywhere || this.all(cell).includes(owner));
  }

  indexOf(/** @type {number} */ cell) {
    if (this.shape.length < 2) return this.shape.length ? [cell] : [];
    return [...this.lead, Math.floor(cell / this.columns), cell % this.columns];
  }

  /** The cell of an index, null when it lies in another slice. */
  cellOf(/** @type {number[]} */ index) {
    if (index.length !== this.shape.length || index.length === 0) return null;
    if (index.length === 1) return index[0];
    if (this.lead.some((at, dim) => at !== index[dim])) return null;
    return index[index.length - 2] * this.columns + index[index.length - 1];
  }

  byte(/** @type {number} */ cell) { return this.first(cell) * this.element_bytes; }

  bank(/** @type {number} */ cell) { return Math.floor(this.byte(cell) / 4) % 32; }

  line(/** @type {number} */ cell) { return Math.floor(this.byte(cell) / 64); }

  /** RGB of a cell by `thread`, `warp`, `slot`, `address`, `bank` or `line`. */
  colour(/** @type {number} */ cell, /** @type {string} */ by, owner = this.first(cell)) {
    if (this.isEmpty(cell)) return this.palette.empty;
    switch (by) {
      case "warp": return this.category(Math.floor(owner / 32));
      case "slot": return this.ramp(this.slotTable[cell], this.slots - 1);
      case "address": return this.ramp(this.first(cell), this.top);
      case "bank": return this.ramp(this.bank(cell), 31);
      case "line": return this.category(this.line(cell));
      default: return this.category(owner);
    }
  }

  category(/** @type {number} */ value) {
    const hues = this.palette.categories;
    const shade = (Math.floor(value / hues.length) % 4) * this.palette.shade;
    return hues[value % hues.length].map((/** @type {number} */ c) => c + (255 - c) * shade);
  }

  ramp(/** @type {number} */ value, /** @type {number} */ top) {
    const stops = this.palette.sequence;
    const place = (Math.min(value, top) / Math.max(top, 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((/** @type {number} */ c, /** @type {number} */ i) => c + (stops[low + 1][i] - c) * (place - low));
  }

  /** What is written into a cell: the owner, and the slot where there is room for both. */
  label(/** @type {number} */ cell) { return this.everywhere ? "all" : String(this.first(cell)); }

  below(/** @type {number} */ cell) { return this.isFragment ? `s${this.slotTable[cell]}` : ""; }

  get letters() { return String(this.top).length; }

  rowName(/** @type {number} */ row) { return String(this.wrapped ? row * this.columns : row); }
}

/**
 * The hardware view of a slice: threads by slots, or addresses in rows of a line. A cell is a
 * place; `held` has the cell of the slice that it holds, or NOTHING.
 */
export class HardwareSlice {
  /** @param {LayoutSlice} slice */
  constructor(slice) {
    this.slice = slice;
    this.palette = slice.palette;
    this.isFragment = slice.isFragment;
    const { everywhere } = slice;
    const line = Math.max(1, Math.floor(slice.line_bytes / Math.max(slice.element_bytes, 1)));
    this.lines = 1; // of a cache, side by side: one below the other those of a large tile are a thread
    while (!slice.banked && slice.addresses > TALL * (this.lines * line) ** 2) this.lines *= 2;
    const wide = line * this.lines;
    this.columns = this.isFragment ? slice.slots : wide;
    this.aspect = this.isFragment ? Math.min(8, Math.max(1, Math.floor(WIDE / this.columns))) : 1;
    const rows = this.isFragment ? (everywhere ? 1 : slice.threads)
      : Math.ceil(slice.addresses / wide);
    this.rows = Math.max(1, Math.min(rows, Math.floor(MOST_PLACES / this.columns)));
    this.isCut = this.rows < rows;
    this.cells = this.rows * this.columns;
    this.places = this.isFragment ? this.cells : Math.min(this.cells, slice.addresses);
    this.held = new Int32Array(this.cells).fill(NOTHING);
    this.letters = slice.indexOf(Math.max(slice.cells - 1, 0)).slice(-2).join(",").length;
    for (let cell = 0; cell < slice.cells; cell++)
      for (const place of this.placesOf(cell)) this.held[place] = cell;
  }

  /** The places of a cell of the slice: of all its copies. */
  placesOf(/** @type {number} */ cell) {
    const { slice } = this;
    if (slice.isEmpty(cell)) return [];
    if (slice.everywhere) return [slice.slotTable[cell]];
    const places = this.isFragment
      ? slice.all(cell).map((/** @type {number} */ thread) => thread * this.columns + slice.slotTable[cell])
      : [slice.first(cell)];
    return places.filter((/** @type {number} */ place) => place < this.cells);
  }

  isEmpty(/** @type {number} */ place) { return this.held[place] === NOTHING; }

  /** The thread or the address of a place. */
  owner(/** @type {number} */ place) { return this.isFragment ? Math.floor(place / this.columns) : place; }

  holds(/** @type {number} */ place, /** @type {number} */ owner) {
    return !this.isEmpty(place) && (this.slice.everywhere || this.owner(place) === owner);
  }

  colour(/** @type {number} */ place, /** @type {string} */ by) {
    if (this.isEmpty(place)) return this.palette.empty;
    return this.slice.colour(this.held[place], by, this.owner(place));
  }

  label(/** @type {number} */ place) { return this.slice.indexOf(this.held[place]).slice(-2).join(","); }

  below() { return ""; }

  rowName(/** @type {number} */ row) {
    if (this.slice.everywhere) return "all";
    return String(this.isFragment ? row : row * this.columns);
  }
}
