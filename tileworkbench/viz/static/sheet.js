// One layout of the playground: its grid, what is under the pointer, its texts and its code.
import * as tw from "./common.js";
import { LayoutGrid } from "./grid.js";
import { LayoutSlice } from "./slices.js";

/** What grids of fragments and of layouts can be coloured by. */
export const COLOURINGS = {
  fragment: { thread: "thread", warp: "warp", slot: "slot" },
  layout: { address: "offset", bank: "bank" },
};

/**
 * The index at a row-major position: the outputs of a layout from its offset.
 * @param {number[]} shape @param {number} position
 */
export const lastFastest = (shape, position) => {
  const index = [];
  for (const extent of [...shape].reverse()) {
    index.unshift(position % extent);
    position = Math.floor(position / extent);
  }
  return index;
};

/**
 * The index at a position that counts the first dimension fastest, as CuTe does.
 * @param {number[]} shape @param {number} position
 */
export const firstFastest = (shape, position) =>
  lastFastest([...shape].reverse(), position).reverse();

/** What is known of a cell, as `[label, value]` rows. */
export function place(/** @type {Slice} */ slice, /** @type {any} */ cell) {
  if (slice.isFragment) {
    const threads = slice.all(cell);
    const more = slice.replicate > threads.length ? ", …" : "";
    const [thread] = threads;
    return [
      [threads.length > 1 ? "threads" : "thread",
        slice.everywhere ? `all ${slice.threads}` : threads.join(", ") + more],
      ["slot", String(slice.slotTable[cell])],
      ...(slice.everywhere ? [] : [["warp · lane", `${Math.floor(thread / 32)} · ${thread % 32}`]]),
    ];
  }
  const offset = slice.first(cell);
  return [
    ...(slice.outputs.length > 1
      ? [["index", `(${lastFastest(slice.outputs, offset).join(", ")})`]] : []),
    ["offset", String(offset)],
    ["byte · bank", `${slice.byte(cell)} · ${slice.bank(cell)}`],
  ];
}

/** What the colours of a grid say, with the numbers at their ends. */
export function legend(/** @type {Slice} */ slice, /** @type {string} */ by) {
  const tops = /** @type {Fields} */ ({ address: slice.top, bank: 31, slot: slice.slots - 1 });
  const label = /** @type {Fields} */ (COLOURINGS[slice.isFragment ? "fragment" : "layout"])[by];
  if (!(by in tops)) return [tw.faint(`a colour for each ${label}; they repeat after 32`)];
  const stops = slice.palette.sequence.map((/** @type {Colour} */ colour) => `rgb(${colour.join(",")})`);
  const bar = tw.span("tw-ramp");
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  return [tw.faint(`${label} 0`), bar, tw.faint(String(tops[by]))];
}

/**
 * A panel. `hovered(index)` is called with what is under the pointer, null for nothing;
 * `sliced(lead)` when another slice is wanted; `insert(text, sheet)` for a cell with the code.
 */
export class Sheet {
  constructor(/** @type {SheetEvents} */ { themed, hovered, sliced, insert }) {
    this.hovered = hovered;
    this.sliced = sliced;
    this.canvas = tw.el("canvas", { class: "tw-canvas", role: "img", tabindex: "0" });
    this.grid = new LayoutGrid(this.canvas, themed);
    this.title = tw.div("tw-panel-title");
    this.badges = tw.div("tw-badges");
    this.leads = tw.span("tw-slices");
    this.legend = tw.div("tw-legend");
    this.said = tw.el("div", { class: "tw-sheet-place", "aria-live": "polite" });
    this.texts = tw.div("tw-sheet-texts");
    this.code = tw.div("tw-sheet-code");
    this.done = tw.span("tw-faint");
    this.insert = tw.button("New cell", () => insert(this.data.cell, this),
      { title: "Put the code into a new cell" });
    this.copy = tw.button("Copy", () => this.copied(), { title: "Copy the expression" });
    const buttons = tw.div("tw-bar", this.insert, this.copy, this.done);
    this.node = tw.div("tw-sheet", this.title, this.badges, this.leads, this.canvas,
      this.legend, this.said,
      this.texts, this.code, buttons);
    this.node.hidden = true; // until there is something to show
    /** @type {any} */
    this.data = null;
    this.listen();
  }

  /** Show a sheet as `sheet_model` of viz/model/playground.py made it, in `room` pixels. */
  show(/** @type {Fields} */ data, /** @type {string} */ by, /** @type {number} */ room) {
    const slice = new LayoutSlice(data);
    this.data = data;
    this.grid.hover = null;
    this.grid.show(slice, by);
    this.legend.replaceChildren(...legend(slice, by));
    this.title.replaceChildren(data.name);
    this.badges.replaceChildren(...data.badges.map((/** @type {string} */ text) => tw.chip(text)));
    this.texts.replaceChildren(...[data.named, data.cute, data.text].filter(Boolean).map((text) =>
      tw.div("tw-mono", text)));
    this.code.textContent = data.code || data.why_no_code;
    this.code.classList.toggle("tw-faint", !data.code);
    this.insert.disabled = this.copy.disabled = !data.code;
    this.done.textContent = "";
    this.canvas.setAttribute("aria-label", `${data.name}: ${data.badges.join(", ")}`);
    this.showLeads(slice);
    this.grid.scale = this.grid.least; // all of it
    this.resize(room);
    this.describe(null);
  }

  resize(/** @type {number} */ room) {
    if (!this.grid.slice) return;
    this.node.style.width = `${room}px`;
    this.grid.resizeKeeping(room);
    this.grid.draw();
  }

  colour(/** @type {string} */ by) {
    this.grid.show(this.grid.slice, by);
    this.legend.replaceChildren(...legend(this.grid.slice, by));
    this.grid.draw();
  }

  /** An index for each dimension that the grid does not show. */
  showLeads(/** @type {Slice} */ slice) {
    const inputs = slice.lead.map((/** @type {number} */ at, /** @type {number} */ dim) => {
      const last = slice.shape[dim] - 1;
      const onchange = (/** @type {any} */ event) => {
        const wanted = Math.min(last, Math.max(0, Number(event.target.value) || 0));
        this.sliced(slice.lead.with(dim, wanted));
      };
      return tw.el("input", {
        class: "tw-input tw-owner", type: "number", min: "0", max: String(last), onchange,
        value: String(at), "aria-label": `Index of dimension ${dim} of ${slice.name}`,
      });
    });
    this.leads.replaceChildren(...inputs, inputs.length ? "[:, :]" : "");
  }

  /** Mark an element; null for none. */
  mark(/** @type {number[] | null} */ index) {
    const { grid } = this;
    if (!grid.slice) return;
    const cell = index === null ? null : grid.slice.cellOf(index);
    if (cell === grid.hover) return;
    grid.hover = cell;
    grid.draw();
    this.describe(cell);
  }

  describe(/** @type {any} */ cell) {
    const { slice } = this.grid;
    const facts = cell === null ? [] : place(slice, cell);
    const head = cell === null ? "Point at an element; Ctrl + wheel zooms, dragging moves." : `[${slice.indexOf(cell).join(", ")}]`;
    this.said.replaceChildren(tw.faint(head), ...facts.map(([label, value]) =>
      tw.span("", tw.faint(` ${label} `), tw.el("b", {}, value))));
  }

  async copied() {
    const done = await tw.copyText(this.data.code);
    this.done.textContent = done ? "Copied." : "The browser does not let pages copy: select it.";
  }

  listen() {
    const { canvas, grid } = this;
    /** @param {any} cell */
    const point = (cell) => this.hovered(cell === null ? null : grid.slice.indexOf(cell));
    const at = (/** @type {MouseEvent} */ event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    let press = /** @type {any} */ (null); // where the mouse went down, and where the grid was then
    canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
      press = { from: at(event), x: grid.x, y: grid.y };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", () => { press = null; });
    canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
      if (!grid.slice) return;
      const [x, y] = at(event);
      if (!press) return point(grid.cellAt(x, y));
      grid.move(press.x - x + press.from[0], press.y - y + press.from[1]);
      grid.draw();
    });
    canvas.addEventListener("pointerleave", () => point(null));
    canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
      if (!grid.slice || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      grid.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, at(event));
      grid.draw();
    }, { passive: false });
    canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      /** @type {Record<string, number>} */
      const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.slice?.columns,
        ArrowDown: grid.slice?.columns };
      if (!grid.slice || !(event.key in steps)) return;
      const next = grid.hover === null ? 0 : grid.hover + steps[event.key];
      if (next >= 0 && next < grid.slice.cells && !grid.slice.isEmpty(next)) point(next);
      event.preventDefault();
      event.stopPropagation();
    });
  }
}
