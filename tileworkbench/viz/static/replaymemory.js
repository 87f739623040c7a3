// The memory of a replayed block: pages of changes from Python, applied forth and back.

import * as tw from "./common.js";

const numbers = (/** @type {string} */ text) => new Int32Array(tw.bytes(text));

/** The values of a table: numbers, or texts where numbers of the browser are not exact. */
const values = (/** @type {any} */ { type, data }) =>
  (type === "text" ? data : type === "f8" ? new Float64Array(tw.bytes(data)) : new Float32Array(tw.bytes(data)));

/** One number for all places, or one for each. */
const spread = (/** @type {any} */ given) => (typeof given === "number" ? given : numbers(given));
/**
 * @param {any} given
 * @param {number} i
 */
const at = (given, i) => (typeof given === "number" ? given : given[i]);

/**
 * The state after a step: `values[buffer]` and `writers[buffer]`, the step that wrote each element
 * last (-1: nobody yet, -2: it was there before the block).
 */
export class Memory {
  /** @type {any[]} */
  values = [];
  /** @type {Int32Array[]} */
  writers = [];
  /** @type {any[]} */
  steps = [];
  from = 0;
  to = -1;
  step = -1;
  /**
   * @param {Model} model
   * @param {number} token of the replay
   * @param {any} page the one that it opens with
   * @param {any[]} buffers of the replay; of a large one a page shows a part
   */
  constructor(model, token, page, buffers) {
    this.model = model;
    this.token = token;
    this.buffers = buffers;
    this.open(page);
  }

  /** Told when another part of a buffer is shown: places in it grow by `by`. @type {(buffer: number, by: number) => void} */
  moved = () => {};

  open(/** @type {Fields} */ page) {
    this.from = page.from;
    this.to = page.to;
    this.step = page.from - 1;
    for (const [key, part] of Object.entries(page.parts)) {
      const buffer = this.buffers[Number(key)];
      const by = buffer.start - part.start;
      Object.assign(buffer, part, { decoded: undefined });
      this.moved(Number(key), by);
    }
    this.values = page.before.map((/** @type {Fields} */ each) => {
      const held = values(each.values);
      return Array.isArray(held) ? [...held] : held;
    });
    this.writers = page.before.map((/** @type {Fields} */ each) => numbers(each.writers));
    this.steps = page.steps.map((/** @type {Fields} */ step) => ({
      reads: step.reads.map((/** @type {[number, any]} */ [buffer, places]) => ({ buffer, places: numbers(places) })),
      changes: step.changes.map((/** @type {Fields} */ change) => ({
        ...change,
        places: numbers(change.places),
        old: values(change.old),
        new: values(change.new),
        writers: spread(change.writers),
        threads: spread(change.threads),
      })),
    }));
  }

  /** Be at the end of `step`; asks for another page where that is needed. @returns {Promise<void>} */
  async go(/** @type {number} */ step) {
    if (step < this.from - 1 || step > this.to) {
      const wanted = { type: "replay-page", token: this.token, step: Math.max(step, 0) };
      this.open(await tw.ask(this.model, wanted));
    }
    while (this.step < step && this.step < this.to) this.forth();
    while (this.step > step && this.step >= this.from) this.back();
  }

  forth() {
    this.step += 1;
    for (const change of this.changes()) {
      const [held, writers] = [this.values[change.buffer], this.writers[change.buffer]];
      change.places.forEach((/** @type {number} */ place, /** @type {number} */ i) => {
        held[place] = change.new[i];
        writers[place] = change.defines ? this.step : -1;
      });
    }
  }

  back() {
    for (const change of [...this.changes()].reverse()) {
      const [held, writers] = [this.values[change.buffer], this.writers[change.buffer]];
      change.places.forEach((/** @type {number} */ place, /** @type {number} */ i) => {
        held[place] = change.old[i];
        writers[place] = at(change.writers, i);
      });
    }
    this.step -= 1;
  }

  /** What the current step changed. */
  changes() {
    return this.steps[this.step - this.from]?.changes ?? [];
  }

  /** What it read. */
  reads() {
    return this.steps[this.step - this.from]?.reads ?? [];
  }

  /** The thread that wrote `place` in the current step, -1 where that is the block. */
  thread(/** @type {number} */ buffer, /** @type {number} */ place) {
    for (const change of [...this.changes()].reverse()) {
      const i = change.buffer === buffer ? change.places.indexOf(place) : -1;
      if (i >= 0) return at(change.threads, i);
    }
    return -1;
  }
}

/**
 * The places of an operation under way.
 * @param {Fields} flight
 */
export const placesOf = (flight) => (flight.decoded ??= numbers(flight.places));

/**
 * The threads that have the elements of a fragment by its layout, null where that is not known.
 * @param {Fields} buffer
 */
export const ownersOf = (buffer) => (buffer.owners ? (buffer.decoded ??= numbers(buffer.owners)) : null);
