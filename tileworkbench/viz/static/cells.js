// A grid of cells on a canvas, with numbers along both sides: punch cards, rows of memory, tiles.

import * as tw from "./common.js";

const FONT = "system-ui, sans-serif";
const RULED = 7; // pixels of a cell from which on lines part the cells
const WRITTEN = 11; // and from which on text is written into them

/** Colours of cells, which people with any colour vision can tell apart; text is written on each. */
export const COLOURS = {
  good: [68, 187, 153],
  same: [119, 170, 221],
  bad: [204, 51, 17],
  one: [238, 221, 136],
};

/** A colour as style sheets have it. */
export const css = (/** @type {Colour} */ rgb) => `rgb(${rgb.map(Math.round).join(", ")})`;

/** Black or white, whichever is easier to read on a colour: at least 4.5:1. */
export const ink = (/** @type {Colour} */ rgb) => {
  const [r, g, b] = rgb.map((/** @type {number} */ c) => (c <= 10 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
};

/**
 * A colour of a palette's ramp for a number from 0 to `top`.
 * @param {Palette} palette
 * @param {number} value
 * @param {number} top
 */
export function ramp(palette, value, top) {
  const stops = palette.sequence;
  const place = (Math.min(value, top) / Math.max(top, 1)) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  return stops[low].map((/** @type {number} */ c, /** @type {number} */ i) => c + (stops[low + 1][i] - c) * (place - low));
}

/** The colour of a category: eight hues, each group of eight a shade lighter, in four shades. */
export function category(/** @type {Palette} */ palette, /** @type {number} */ value) {
  const hues = palette.categories;
  const shade = (Math.floor(value / hues.length) % 4) * palette.shade;
  return hues[value % hues.length].map((/** @type {number} */ c) => c + (255 - c) * shade);
}

/**
 * The grid. `show(picture)` takes
 *
 *   rows, columns    numbers of cells
 *   cell(row, column)  { fill: [r, g, b], text, mark }, null for a place that is free, undefined
 *                    where there is none; `mark` outlines the cell: "pin", "bad" or another
 *   letters          of the longest text of a cell: all are written where that fits
 *   rowName(row), columnName(column)   texts at the sides; "" for none
 *   foot             optional: (column) => { text, bad } below the columns
 *   label            what the picture is, for screen readers
 *   most             [width, height] of a cell at most, in pixels
 */
export class CellGrid {
  picture = /** @type {Picture} */ (/** @type {unknown} */ (null)); // until `show`
  /** The cell under the pointer or the keys. @type {[number, number] | null} */
  at = null;
  width = 0; // of a cell, in pixels
  height = 0;
  /** Of the canvas. @type {[number, number]} */
  outer = [0, 0];
  left = 0; // of the first cell
  top = 0;
  foot = 0; // height of the texts below the cells
  room = 0; // width that is free in the page
  ratio = 1;
  bad = ""; // colour
  /**
   * @param {HTMLCanvasElement} canvas focusable, its keys and pointer are handled here
   * @param {{ hover: (row: number | null, column?: number) => void,
   *   choose: (row: number, column: number) => void }} events
   */
  constructor(canvas, events) {
    this.canvas = canvas;
    this.events = events;
    canvas.addEventListener("pointermove", (event) => this.hover(this.cellAt(event)));
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("click", (event) => {
      const cell = this.cellAt(event);
      if (cell) events.choose(...cell);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.hover(null));
  }

  show(/** @type {Picture} */ picture, /** @type {number} */ room) {
    this.picture = picture;
    this.room = room;
    this.canvas.setAttribute("aria-label", picture.label);
    this.layOut();
    this.draw();
  }

  layOut() {
    const { rows, columns, rowName, most, foot } = this.picture;
    const longest = Math.max(...Array.from({ length: rows }, (_, row) => rowName(row).length));
    this.left = 8 + 6.2 * longest;
    this.top = 18;
    this.foot = foot ? 18 : 0;
    const width = Math.max((this.room - this.left - 4) / columns, 0.25); // whole rows, however long
    this.width = Math.min(most[0], width >= 4 ? Math.floor(width) : width);
    this.height = Math.min(most[1], rows > 112 ? Math.max(448 / rows, 1) : Math.floor(448 / rows));
    this.outer = [
      Math.ceil(this.left + columns * this.width + 2),
      Math.ceil(this.top + rows * this.height + this.foot + 2),
    ];
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.outer[0] * this.ratio);
    this.canvas.height = Math.round(this.outer[1] * this.ratio);
    this.canvas.style.width = `${this.outer[0]}px`;
    this.canvas.style.height = `${this.outer[1]}px`;
  }

  /** Of the texts in cells, in pixels; 0 where they do not fit. */
  get letterSize() {
    const size = Math.min(11, this.height - 2, (this.width - 2) / (this.picture.letters * 0.58));
    return this.height < WRITTEN || size < 6.5 ? 0 : size;
  }

  /** @returns {[number, number] | null} */
  cellAt(/** @type {MouseEvent} */ event) {
    if (!this.picture) return null;
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left) / this.width);
    const row = Math.floor((event.clientY - box.top - this.top) / this.height);
    const { rows, columns } = this.picture;
    return row >= 0 && column >= 0 && row < rows && column < columns ? [row, column] : null;
  }

  /** @param {[number, number] | null} cell */
  hover(cell) {
    if (String(cell) === String(this.at)) return;
    this.at = cell;
    if (cell) this.events.hover(...cell);
    else this.events.hover(null);
  }

  key(/** @type {KeyboardEvent} */ event) {
    /** @type {Record<string, number[]>} */
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key === "Enter" && this.at) this.events.choose(...this.at);
    else if (steps[event.key] && this.picture) {
      const { rows, columns } = this.picture;
      const [row, column] = this.at ?? [0, 0];
      const [down, right] = this.at ? steps[event.key] : [0, 0];
      this.hover([
        Math.min(rows - 1, Math.max(0, row + down)),
        Math.min(columns - 1, Math.max(0, column + right)),
      ]);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  draw() {
    const { picture, canvas } = this;
    if (!picture) return;
    const context = tw.brush(canvas);
    const style = getComputedStyle(canvas);
    const [text, line] = [style.color, style.borderTopColor];
    this.bad = style.borderBottomColor;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, ...this.outer);
    const marks = /** @type {[string, number, number][]} */ ([]);
    for (let row = 0; row < picture.rows; row++)
      for (let column = 0; column < picture.columns; column++) {
        const cell = picture.cell(row, column);
        const [x, y] = [this.left + column * this.width, this.top + row * this.height];
        if (cell !== undefined) this.drawCell(context, cell, x, y, line);
        if (cell?.mark) marks.push([cell.mark, x, y]);
      }
    for (const [mark, x, y] of marks) this.outline(context, mark, x, y, text);
    this.drawSides(context, text);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Cell | null | undefined} cell
   * @param {number} x
   * @param {number} y
   * @param {string} line
   */
  drawCell(context, cell, x, y, line) {
    const gap = Math.min(this.width, this.height) >= RULED ? 1 : 0;
    context.fillStyle = cell?.fill ? css(cell.fill) : line;
    context.globalAlpha = cell?.fill ? 1 : 0.22;
    // On whole pixels: between edges inside a pixel the ground would shine through.
    const [left, top, right, bottom] = [x, y, x + this.width - gap, y + this.height - gap]
      .map((edge) => Math.round(edge * this.ratio) / this.ratio);
    context.fillRect(left, top, right - left, bottom - top);
    context.globalAlpha = 1;
    const size = this.letterSize;
    if (!cell?.text || !size) return;
    context.fillStyle = ink(cell.fill);
    context.font = `${cell.mark ? "600 " : ""}${size}px ${FONT}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(cell.text, x + (this.width - gap) / 2, y + (this.height - gap) / 2 + 0.5);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {string} mark
   * @param {number} x
   * @param {number} y
   * @param {string} text
   */
  outline(context, mark, x, y, text) {
    context.strokeStyle = mark === "bad" ? this.bad : text;
    context.lineWidth = Math.min(this.width, this.height) < 16 ? 1.5 : 2;
    context.strokeRect(x - 0.5, y - 0.5, this.width, this.height);
  }

  drawSides(/** @type {CanvasRenderingContext2D} */ context, /** @type {string} */ text) {
    const { rows, columns, rowName, columnName, foot } = this.picture;
    context.fillStyle = text;
    context.font = `10px ${FONT}`;
    context.textBaseline = "middle";
    context.textAlign = "center";
    /**
     * @param {string[]} names
     * @param {number | null} room
     * @param {number} size
     */
    const every = (names, room, size) => {
      const widest = Math.max(...names.map((/** @type {string} */ name) => name.length)) * 6.2 + 6;
      return 2 ** Math.max(0, Math.ceil(Math.log2((room ?? widest) / size)));
    };
    const across = Array.from({ length: columns }, (_, c) => columnName(c));
    const down = Array.from({ length: rows }, (_, r) => rowName(r));
    const middle = (/** @type {number} */ column) => this.left + (column + 0.5) * this.width;
    for (let c = 0; c < columns; c += every(across, null, this.width))
      context.fillText(across[c], middle(c), this.top - 9);
    context.textAlign = "right";
    for (let r = 0; r < rows; r += every(down, 12, this.height))
      context.fillText(down[r], this.left - 5, this.top + (r + 0.5) * this.height);
    if (!foot) return;
    context.textAlign = "center";
    for (let c = 0; c < columns; c++) {
      const { text: words, bad } = foot(c);
      context.fillStyle = bad ? this.bad : text;
      context.font = `${bad ? "700 " : ""}${Math.min(11, this.width)}px ${FONT}`;
      context.fillText(words, middle(c), this.top + rows * this.height + 9);
    }
  }
}
