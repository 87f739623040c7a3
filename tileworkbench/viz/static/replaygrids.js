// The buffers of a replayed block as grids of cells: contents, what a step touched, who wrote what.

import * as tw from "./common.js";
import * as list from "./accesses.js";
import { CellGrid, COLOURS, category, css } from "./cells.js";
import { ownersOf, placesOf } from "./replaymemory.js";

const [HELD, READ, WRITTEN, FLYING] = [1, 2, 3, 4];
const PALE = [176, 188, 208]; // apart from cells that hold nothing, in both themes
const FILLS = { [HELD]: PALE, [READ]: COLOURS.same, [WRITTEN]: COLOURS.good, [FLYING]: COLOURS.one };
const WARP = 32;
const RANKS = ["shared", "fragment", "local", "global"];
const rank = (/** @type {{ scope: string }} */ { scope }) => RANKS.indexOf(scope.split(".")[0]);
/** @type {Record<string, string>} */
const SCOPES = { global: "global memory", shared: "shared memory", fragment: "fragment", local: "registers" };

/** What the colours of "what the step did" mean. */
export const legend = () => tw.div("tw-replay-legend tw-faint",
  .../** @type {[number, string][]} */ ([[WRITTEN, "written by the step"], [READ, "read"], [FLYING, "under way"],
    [HELD, "holds something"]]).map(
    ([state, text]) => tw.span("", tw.el("span", { class: "tw-replay-swatch", style: `background:${css(FILLS[state])}` }), text)),
  tw.span("", tw.span("tw-replay-swatch tw-replay-none"), "nothing yet"));

/** A value in at most six letters. */
const short = (/** @type {any} */ value) => {
  if (typeof value === "string") return value.slice(0, 6);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (Number.isInteger(value) && Math.abs(value) < 1e5) return String(value);
  const text = value.toPrecision(3);
  return text.includes("e") ? value.toExponential(0).replace("e+", "e") : String(Number(text));
};

/** A value as exact as it is worth: nine digits tell all numbers of 32 bits apart. */
export const long = (/** @type {any} */ value) =>
  (typeof value !== "number" || !Number.isFinite(value) ? String(value)
    : String(Number.isInteger(value) ? value : Number(value.toPrecision(9))));

/** The index of an element in its whole buffer. */
export function indexOf(/** @type {ReplayBuffer} */ buffer, /** @type {number} */ place) {
  return buffer.shape.map((/** @type {number} */ extent, /** @type {number} */ d) => {
    const below = buffer.shape.slice(d + 1).reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
    return (Math.floor(place / below) % extent) + buffer.origin[d];
  });
}

/** The place of an index, -1 where it is not kept. */
export function placeOf(/** @type {ReplayBuffer} */ buffer, /** @type {number[]} */ index) {
  if (index.length !== buffer.shape.length) return -1;
  return index.reduce((/** @type {number} */ place, /** @type {number} */ i, /** @type {number} */ d) => {
    const inside = i - buffer.origin[d];
    return place < 0 || inside < 0 || inside >= buffer.shape[d] ? -1 : place * buffer.shape[d] + inside;
  }, 0);
}

/** An element as text, `tile[3, 5]`; memory of each thread has the thread in front. */
export function named(/** @type {ReplayBuffer} */ buffer, /** @type {number} */ place) {
  const index = indexOf(buffer, place);
  const own = index.splice(0, buffer.lanes);
  return `${buffer.name}[${index.join(", ")}]${own.length ? ` of ${own.length > 1 ? `iteration (${own.join(", ")})` : `thread ${own[0]}`}` : ""}`;
}

/**
 * The grids of `data.buffers`. `hover(buffer, place)` is called with null where no cell is pointed
 * at, `choose(buffer, place)` on a click or Enter.
 */
export class BufferGrids {
  colour = "step";
  /** The element that is chosen. @type {{ buffer: number, place: number } | null} */
  chosen = null;
  /** The element that is wrong at this step. @type {{ buffer: number, place: number } | null} */
  wrong = null;
  node = tw.div("tw-figures tw-replay-grids");
  /**
   * @param {Fields} data
   * @param {ReplayMemory} memory
   * @param {any} given
   */
  constructor(data, memory, { hover, choose }) {
    this.data = data;
    this.memory = memory;
    memory.moved = (/** @type {number} */ buffer, /** @type {number} */ by) => {
      for (const each of [this.chosen, this.wrong]) if (each?.buffer === buffer) each.place += by;
      const [place, { size }] = [this.chosen?.place ?? 0, data.buffers[buffer]];
      if (this.chosen?.buffer === buffer && (place < 0 || place >= size)) this.chosen = null;
    };
    // What is on the chip comes first: that is where things go wrong.
    const order = [...data.buffers.keys()].sort((a, b) => rank(data.buffers[a]) - rank(data.buffers[b]));
    this.parts = order.map((number) => {
      const buffer = data.buffers[number];
      const canvas = list.canvas();
      const figure = list.figure(buffer.name, canvas, "");
      figure.node.setAttribute("data-buffer", buffer.name);
      this.node.append(figure.node);
      const place = (/** @type {number} */ row, /** @type {number} */ column) => {
        const found = row * buffer.columns + column;
        return found < Math.min(buffer.size, this.memory.values[number].length) ? found : -1;
      };
      const grid = new CellGrid(canvas, {
        hover: (row, column) => {
          const at = row === null || column === undefined ? -1 : place(row, column);
          hover(at < 0 ? null : number, at);
        },
        choose: (row, column) => place(row, column) >= 0 && choose(number, place(row, column)),
      });
      return { buffer, number, figure, grid, place };
    });
  }

  /** Draw the state of the memory; `room` is the width of the page. */
  draw(/** @type {number} */ room) {
    const { step } = this.memory;
    const block = this.data.blocks[this.data.steps[Math.max(step, this.data.first) - this.data.first]?.[5] ?? 0];
    for (const part of this.parts) {
      const { block: own, born } = part.buffer;
      const here = born <= step && (!own.length || String(own) === String(block));
      part.figure.node.hidden = !here;
      if (here) this.drawOne(part, room);
    }
  }

  /**
   * @param {Fields} given
   * @param {number} room
   */
  drawOne({ buffer, number, figure, grid, place }, room) {
    const states = this.states(number);
    const [values, writers] = [this.memory.values[number], this.memory.writers[number]];
    const top = this.colour === "value" ? this.largest(values, writers) : 1;
    const dirty = states.reduce((sum, state) => sum + (state === WRITTEN ? 1 : 0), 0);
    const [rows, columns] = [buffer.rows, buffer.columns];
    figure.caption.textContent = `${buffer.name} ${buffer.shape.join("×")} ${buffer.dtype}, ` +
      (SCOPES[buffer.scope.split(".")[0]] ?? buffer.scope) +
      (buffer.origin.some((/** @type {number} */ at) => at) ? ` from [${buffer.origin.join(", ")}]` : "");
    figure.below.textContent = (dirty ? `${dirty} written by this step. ` : "") +
      buffer.part;
    grid.show({
      rows, columns, letters: 6, most: [columns <= 16 ? 42 : 18, Math.min(18, rows > 80 ? Math.max(320 / rows, 1) : Math.floor(320 / rows))],
      rowName: (/** @type {number} */ row) => this.rowName(buffer, row),
      columnName: (/** @type {number} */ column) => String(column + (buffer.shape.length ? buffer.origin[buffer.shape.length - 1] : 0)),
      cell: (/** @type {number} */ row, /** @type {number} */ column) => {
        const at = place(row, column);
        if (at < 0) return undefined;
        const mark = this.mark(number, at, states[at]);
        if (!states[at]) return mark ? { fill: null, mark } : null; // holds nothing yet
        return { fill: this.fill(buffer, at, states[at], values, writers, top), mark,
          text: states[at] === FLYING ? "…" : short(values[at]) };
      },
      label: `${buffer.name}: ${dirty} elements written by step ${this.memory.step}`,
    }, room < 744 ? room - 2 : Math.floor(room / (room < 1000 ? 2 : 3)) - 18);
  }

  rowName(/** @type {ReplayBuffer} */ buffer, /** @type {number} */ row) {
    const [dims, first] = [buffer.shape.length, buffer.origin[0] ?? 0];
    if (buffer.lanes) return buffer.lanes === 1 ? `t${row}` : String(row);
    if (dims < 2) return String(row * buffer.columns + first);
    return String(dims === 2 ? row + first : row);
  }

  /** What each element of a buffer is at this step: nothing yet, held, read, written, under way. */
  states(/** @type {number} */ number) {
    const writers = this.memory.writers[number];
    const found = new Uint8Array(writers.length);
    writers.forEach((/** @type {number} */ writer, /** @type {number} */ place) => { found[place] = writer === -1 ? 0 : HELD; });
    for (const { buffer, places } of this.memory.reads())
      if (buffer === number) for (const place of places) found[place] = READ;
    for (const { buffer, places, defines } of this.memory.changes())
      if (buffer === number && defines) for (const place of places) found[place] = WRITTEN;
    for (const flight of this.data.flights)
      if (flight.buffer === number && flying(flight, this.memory.step))
        for (const place of placesOf(flight)) found[place - this.data.buffers[number].start] = FLYING;
    return found;
  }

  mark(/** @type {number} */ number, /** @type {number} */ place, /** @type {number} */ state) {
    /** @param {{ buffer: number, place: number } | null} element */
    const here = (element) => element?.buffer === number && element.place === place;
    if (here(this.wrong)) return "bad";
    if (here(this.chosen)) return "pin";
    return this.colour !== "step" && state === WRITTEN ? "pin" : undefined;
  }

  /**
   * @param {ReplayBuffer} buffer
   * @param {number} place
   * @param {number} state
   * @param {any[]} values
   * @param {Int32Array} writers
   * @param {number} top
   */
  fill(buffer, place, state, values, writers, top) {
    if (this.colour === "step" || state === FLYING) return FILLS[state];
    if (this.colour === "value") {
      const value = Number(values[place]);
      if (!Number.isFinite(value)) return COLOURS.bad;
      const end = value < 0 ? COLOURS.same : COLOURS.good;
      return PALE.map((c, i) => c + (end[i] - c) * Math.min(Math.abs(value) / top, 1));
    }
    const line = this.colour === "line";
    const number = line ? this.lineOf(writers[place]) : this.ownerOf(buffer, place);
    if (number === null || number < 0) return PALE;
    return category(this.data.palette, this.colour === "warp" ? Math.floor(number / WARP) : number);
  }

  /** The thread that has an element, null where that is not known. */
  ownerOf(/** @type {ReplayBuffer} */ buffer, /** @type {number} */ place) {
    if (buffer.lanes === 1) return Math.floor(place / (buffer.size / buffer.shape[0])) + buffer.origin[0];
    return ownersOf(buffer)?.[place] ?? null;
  }

  lineOf(/** @type {number} */ writer) {
    return this.data.steps[writer - this.data.first]?.[0] ?? -1;
  }

  largest(/** @type {any[]} */ values, /** @type {Int32Array} */ writers) {
    let top = 0;
    values.forEach((/** @type {any} */ value, /** @type {number} */ i) => {
      const size = Math.abs(Number(value));
      if (writers[i] !== -1 && Number.isFinite(size) && size > top) top = size;
    });
    return top || 1;
  }
}

/**
 * Whether an operation is under way after a step, or threads still wait.
 * @param {Fields} given
 * @param {number} step
 */
export const flying = ({ began, ended }, step) => began <= step && (ended < 0 || step < ended);
