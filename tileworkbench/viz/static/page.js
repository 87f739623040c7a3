// A saved page: the widgets' own code on a model whose answers were written into the file.
import { LayoutSlice } from "./slices.js";

const MISSING = "This is not in the saved copy: run the cell to see it.";

/**
 * A widget's model without a kernel: its traits, and the answers to what views ask.
 * @implements {Model}
 */
export class SavedModel {
  /** `still` finds the static form of a view by its title, where there is one. */
  constructor(/** @type {Fields} */ state, /** @type {Fields} */ answers, still = (/** @type {string} */ _title) => null) {
    this.state = state;
    this.answers = answers;
    this.still = (/** @type {string} */ name) => still(state.card?.tabs.find((/** @type {[string, string]} */ [tab]) => tab === name)?.[1]);
    this.listeners = new Map();
  }

  get(/** @type {string} */ name) { return this.state[name]; }

  set(/** @type {string} */ name, /** @type {any} */ value) {
    if (this.state[name] === value) return;
    this.state[name] = value;
    this.derive(name, value);
    this.fire(`change:${name}`);
  }

  save_changes() {}

  on(/** @type {string} */ event, /** @type {(...values: any[]) => void} */ listener) {
    if (!this.listeners.has(event)) this.listeners.set(event, new Set());
    this.listeners.get(event).add(listener);
  }

  /**
   * @param {string} event
   * @param {(...values: any[]) => void} listener
   */
  off(event, listener) { this.listeners.get(event)?.delete(listener); }

  fire(/** @type {string} */ event, /** @type {any[]} */ ...values) {
    for (const listener of [...(this.listeners.get(event) ?? [])]) listener(...values);
  }

  send(/** @type {Fields} */ message) {
    /** @type {Fields} */
    const reply = { type: "answer", request: message.request };
    if (message.type === "diff") reply.value = this.answers.diffs?.[message.index];
    else if (message.type === "tree") reply.value = this.answers.trees?.[message.index];
    else if (message.type === "view") reply.value = this.answers.views[message.name];
    else if (message.type === "line") reply.value = this.answers.lines?.[message.line];
    else if (message.type === "search") reply.value = this.search(message.query);
    if (!reply.value) reply.error = MISSING;
    queueMicrotask(() => this.fire("msg:custom", reply));
  }

  search(/** @type {string} */ query) {
    const needle = query.toLowerCase();
    const hits = (this.answers.diffs ?? []).flatMap((/** @type {Fields} */ diff, /** @type {number} */ index) => {
      const texts = diff.rows.map((/** @type {Fields} */ row) => row.after?.text?.toLowerCase() ?? "");
      const count = texts.filter((/** @type {string} */ text) => text.includes(needle)).length;
      return count ? [{ index, count }] : [];
    });
    return { query, hits };
  }

  /** What the kernel would have answered to a selection. */
  derive(/** @type {string} */ name, /** @type {any} */ value) {
    if (name === "layout_name") {
      this.state.layout_lead = Object.values(this.answers.layouts[value])[0].lead;
      this.set("layout_data", Object.values(this.answers.layouts[value])[0]);
      this.set("selected_thread", -1);
    }
    if (name === "layout_lead") {
      const slice = this.answers.layouts[this.state.layout_name][value.join(",")];
      if (slice) this.set("layout_data", slice);
      this.set("layout_note", slice ? "" : MISSING);
    }
    if (name === "layout_copy") this.set("layout_note", MISSING);
    if (name === "selected_thread")
      this.set("thread_elements", value < 0 ? [] : this.elements(value));
  }

  /** The elements of a thread (or address) in the saved slice, in the order of their slots. */
  elements(/** @type {number} */ owner) {
    const slice = new LayoutSlice(this.state.layout_data);
    const found = /** @type {[number, number[]][]} */ ([]);
    for (let cell = 0; cell < slice.cells; cell++)
      if (slice.holds(cell, owner))
        found.push([slice.isFragment ? slice.slotTable[cell] : 0, slice.indexOf(cell)]);
    return found.sort((a, b) => a[0] - b[0]).map(([, index]) => index);
  }
}
