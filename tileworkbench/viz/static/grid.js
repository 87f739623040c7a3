// A grid of cells on a canvas that is zoomed and moved: what layouts are drawn with. What it draws
// has `rows`, `columns`, `cells`, `letters`, and for a cell `isEmpty`, `colour`, `holds`, `label` and
// `below`: a `LayoutSlice`, a `HardwareSlice`. Cells are `aspect` times as wide as high.
import * as tw from "./common.js";
import { drawAtoms } from "./atoms.js";
import { NO_THREAD } from "./slices.js";

export const GRID = {
  left: 34, // pixels for the row numbers, at least
  top: 20, // and for the column numbers
  tallest: 520,
  largest: 40, // pixels of a cell: at most,
  ruled: 7, // from which on lines part the cells,
  slotted: 32, // from which on slots stand below the owners
  least: 300, // width
  shortest: 8, // letters: owners are written where they fit
};

/** How cells look that are not of the pinned thread: a veil, and letters that stay readable. */
export const FADED = {
  light: { veil: [255, 255, 255], share: 0.8, letters: [82, 82, 82] },
  dark: { veil: [22, 22, 22], share: 0.8, letters: [190, 190, 190] },
};
export const LETTERS = [20, 20, 20]; // on the colours of a palette
const rgb = (/** @type {Colour} */ colour, alpha = 1) => `rgba(${colour.map(Math.round).join(",")},${alpha})`;

/** The colour of a cell below the veil of a theme. */
export const fadedColour = (/** @type {Colour} */ colour, /** @type {Theme} */ { veil, share }) =>
  colour.map((/** @type {number} */ part, /** @type {number} */ i) => part * (1 - share) + veil[i] * share);

/**
 * The canvas. `hover` and `element` are cells or null, `also` further cells that are marked as
 * `hover` is, `thread` is NO_THREAD or the pinned one.
 */
export class LayoutGrid {
  constructor(/** @type {HTMLCanvasElement} */ canvas, /** @type {HTMLElement} */ themed) {
    this.canvas = canvas;
    this.themed = themed; // its text colour tells the theme
    this.slice = /** @type {any} */ (null); // what is drawn, from `show` on
    this.pixels = canvas; // of the slice, one per cell
    this.by = "";
    this.hover = /** @type {number | null} */ (null);
    this.also = /** @type {number[]} */ ([]);
    this.element = /** @type {number | null} */ (null);
    this.atoms = /** @type {any[]} */ ([]); // whose outlines are drawn: { name, rows, columns }
    this.left = GRID.left;
    this.width = 0;
    this.height = 0;
    this.ratio = 1;
    this.least = 1; // scale
    this.thread = NO_THREAD;
    this.scale = 1;
    this.x = 0;
    this.y = 0;
  }

  /** One pixel per cell; drawing scales it up. */
  show(/** @type {Slice} */ slice, /** @type {string} */ by) {
    [this.slice, this.by] = [slice, by];
    this.left = Math.max(GRID.left, 10 + 6.2 * slice.rowName(slice.rows - 1).length);
    this.pixels = document.createElement("canvas");
    [this.pixels.width, this.pixels.height] = [slice.columns, slice.rows];
    const context = tw.brush(this.pixels);
    const image = context.createImageData(slice.columns, slice.rows);
    for (let cell = 0; cell < slice.cells; cell++) {
      image.data.set(slice.colour(cell, by), 4 * cell);
      image.data[4 * cell + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  }

  /** Pixels from one column to the next; from one row to the next it is `scale`. */
  get across() { return this.scale * this.aspect; }

  get aspect() { return this.slice.aspect ?? 1; }

  /** The width that the slice can use. */
  get wanted() {
    const cell = Math.min(GRID.largest, (GRID.tallest - GRID.top - 2) / this.slice.rows);
    const wide = this.slice.columns * Math.max(cell * this.aspect, GRID.ruled);
    return Math.max(GRID.least, Math.ceil(wide) + this.left + 2);
  }

  /** Take as much of `room` pixels of width as the slice needs. */
  resize(/** @type {number} */ room) {
    const { rows, columns } = this.slice;
    const most = (room - this.left - 2) / columns / this.aspect;
    const cell = Math.min(GRID.largest, Math.max(most, 1));
    this.height = Math.min(GRID.tallest, Math.max(120, Math.ceil(rows * cell) + GRID.top + 2));
    // A tall buffer needs less width, unless zooming in will need it.
    const least = GRID.ruled / this.aspect;
    const fitting = Math.min(cell, Math.max((this.height - GRID.top - 2) / rows, least));
    const wide = Math.ceil(columns * fitting * this.aspect) + this.left + 2;
    this.width = Math.min(room, Math.max(GRID.least, wide));
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
  }

  /** The scale at which everything is in sight. */
  fitting() {
    const across = (this.width - this.left - 2) / this.slice.columns / this.aspect;
    const down = (this.height - GRID.top - 2) / this.slice.rows;
    return Math.min(across, down, GRID.largest);
  }

  fit() {
    this.least = this.scale = this.fitting();
    [this.x, this.y] = [0, 0];
  }

  /** `resize`, and what was zoomed to stays in the middle. */
  resizeKeeping(/** @type {number} */ room) {
    if (!this.width || this.scale <= this.least * 1.001) {
      this.resize(room);
      this.fit();
      return;
    }
    /**
     * @param {number} at
     * @param {number} size
     * @param {number} edge
     */
    const middle = (at, size, edge) => (at + (size - edge) / 2) / this.scale; // in rows
    const column = middle(this.x, this.width, this.left);
    const row = middle(this.y, this.height, GRID.top);
    this.resize(room);
    this.least = this.fitting();
    const scale = Math.max(this.scale, this.least);
    this.move(column * scale - (this.width - this.left) / 2,
      row * scale - (this.height - GRID.top) / 2, scale);
  }

  /** The cell that zooming keeps in sight: the pinned element, or the first of the pinned thread. */
  anchor() {
    if (this.element !== null) return this.element;
    if (this.thread === NO_THREAD) return null;
    for (let cell = 0; cell < this.slice.cells; cell++)
      if (this.slice.holds(cell, this.thread)) return cell;
    return null;
  }

  /** The middle of a cell on the canvas. */
  middleOf(/** @type {number} */ cell) {
    const { columns } = this.slice;
    return [
      this.left - this.x + ((cell % columns) + 0.5) * this.across,
      GRID.top - this.y + (Math.floor(cell / columns) + 0.5) * this.scale,
    ];
  }

  /**
   * Scale by `factor` around a point of the canvas: where nothing is pointed at, around what is
   * pinned, else the middle. What is pinned stays in sight.
   * @param {number} factor
   * @param {number[] | null} at
   */
  zoom(factor, at = null) {
    const scale = Math.min(GRID.largest * 1.5, Math.max(this.least, this.scale * factor));
    const kept = this.anchor();
    const inside = (/** @type {number[]} */ [x, y]) => [
      Math.min(Math.max(x, this.left), this.width), Math.min(Math.max(y, GRID.top), this.height)];
    const middle = [this.width / 2, this.height / 2];
    const [cx, cy] = at ?? (kept === null ? middle : inside(this.middleOf(kept)));
    const [px, py] = [cx - this.left, cy - GRID.top];
    this.move(
      ((this.x + px) / this.scale) * scale - px,
      ((this.y + py) / this.scale) * scale - py,
      scale,
    );
    if (kept !== null) this.reveal(kept);
  }

  /** Put the pixel (x, y) of the scaled slice into the corner, as far as it goes. */
  move(/** @type {number} */ x, /** @type {number} */ y, scale = this.scale) {
    const [width, height] = [this.width - this.left, this.height - GRID.top];
    this.scale = scale;
    this.x = Math.max(0, Math.min(x, this.slice.columns * this.across - width));
    this.y = Math.max(0, Math.min(y, this.slice.rows * scale - height));
  }

  /** Move as little as brings a cell into sight. */
  reveal(/** @type {number} */ cell) {
    const column = cell % this.slice.columns, row = Math.floor(cell / this.slice.columns);
    /**
     * @param {number} at
     * @param {number} number
     * @param {number} step
     * @param {number} size
     */
    const near = (at, number, step, size) =>
      Math.min(Math.max(at, (number + 1) * step - size), number * step);
    this.move(near(this.x, column, this.across, this.width - this.left),
      near(this.y, row, this.scale, this.height - GRID.top));
  }

  /** The cell under a point of the canvas, or null. */
  cellAt(/** @type {number} */ px, /** @type {number} */ py) {
    const { rows, columns } = this.slice;
    const column = Math.floor((px - this.left + this.x) / this.across);
    const row = Math.floor((py - GRID.top + this.y) / this.scale);
    if (px < this.left || py < GRID.top || column >= columns || row >= rows) return null;
    const cell = row * columns + column;
    return this.slice.isEmpty(cell) ? null : cell;
  }

  /** Whether the theme is dark. Outside the page nothing has a colour; it is drawn again inside. */
  isDark() {
    const parts = getComputedStyle(this.themed).color.match(/[\d.]+/g) ?? [];
    return parts.slice(0, 3).reduce((sum, part) => sum + Number(part), 0) > 380;
  }

  /** Rows and columns in sight. */
  range() {
    const { across, scale, x, y, slice } = this;
    return {
      left: Math.floor(x / across),
      top: Math.floor(y / scale),
      right: Math.min(slice.columns, Math.ceil((x + this.width - this.left) / across)),
      bottom: Math.min(slice.rows, Math.ceil((y + this.height - GRID.top) / scale)),
    };
  }

  /**
   * Call `visit(cell, x, y)` with the corner of every cell in sight.
   * @param {Seen} seen
   * @param {(cell: number, x: number, y: number) => void} visit
   */
  each(seen, visit) {
    for (let row = seen.top; row < seen.bottom; row++)
      for (let column = seen.left; column < seen.right; column++)
        visit(row * this.slice.columns + column, column * this.across, row * this.scale);
  }

  draw() {
    const context = tw.brush(this.canvas);
    const { across, scale, slice } = this;
    const [seen, dark] = [this.range(), this.isDark()];
    const faded = dark ? FADED.dark : FADED.light;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.save();
    context.beginPath();
    context.rect(this.left, GRID.top, this.width - this.left, this.height - GRID.top);
    context.clip();
    context.translate(this.left - this.x, GRID.top - this.y);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.pixels, 0, 0, slice.columns * across, slice.rows * scale);
    if (scale >= GRID.ruled) this.drawRules(context, seen);
    if (this.thread !== NO_THREAD) this.drawPinned(context, seen, dark, faded);
    this.drawNumbers(context, seen, faded);
    if (this.atoms.length) drawAtoms(context, this, seen);
    if (this.element !== null) this.outline(context, this.element, 2.5, dark ? "#fff" : "#000");
    for (const cell of this.also) this.outline(context, cell, 2, "#d3302f");
    if (this.hover !== null) this.outline(context, this.hover, 2, "#d3302f");
    context.restore();
    this.drawHeads(context, seen);
  }

  drawRules(/** @type {CanvasRenderingContext2D} */ context, /** @type {Seen} */ seen) {
    const { across, scale } = this;
    context.strokeStyle = `rgba(255, 255, 255, ${scale < 14 ? 0.35 : 0.65})`;
    context.lineWidth = 1;
    context.beginPath();
    for (let column = seen.left; column <= seen.right; column++) {
      context.moveTo(column * across, seen.top * scale);
      context.lineTo(column * across, seen.bottom * scale);
    }
    for (let row = seen.top; row <= seen.bottom; row++) {
      context.moveTo(seen.left * across, row * scale);
      context.lineTo(seen.right * across, row * scale);
    }
    context.stroke();
  }

  /**
   * A veil over everything but the elements of the pinned thread.
   * @param {CanvasRenderingContext2D} context
   * @param {Seen} seen
   * @param {boolean} dark
   * @param {Theme} faded
   */
  drawPinned(context, seen, dark, faded) {
    const { across, scale, slice } = this;
    context.fillStyle = rgb(faded.veil, faded.share);
    context.fillRect(0, 0, slice.columns * across, slice.rows * scale);
    this.each(seen, (/** @type {number} */ cell, /** @type {number} */ x, /** @type {number} */ y) => {
      if (!slice.holds(cell, this.thread)) return;
      const small = scale < GRID.ruled; // a colour alone would be lost
      context.fillStyle = !small ? rgb(slice.colour(cell, this.by)) : dark ? "#fff" : "#123";
      context.fillRect(x, y, Math.max(across, 2), Math.max(scale, 2));
      if (!small) this.outline(context, cell, 1.5, dark ? "#fff" : "rgba(0, 0, 0, 0.65)");
    });
  }

  /**
   * A frame around a cell; a small one is framed from outside, or it would be lost.
   * @param {CanvasRenderingContext2D} context
   * @param {number} cell
   * @param {number} width
   * @param {string} style
   */
  outline(context, cell, width, style) {
    const { across, scale, slice } = this;
    const [column, row] = [cell % slice.columns, Math.floor(cell / slice.columns)];
    const more = scale < GRID.ruled ? 3 : -0.5;
    context.strokeStyle = style;
    context.lineWidth = width;
    context.strokeRect(
      column * across - more, row * scale - more, across + 2 * more, scale + 2 * more);
  }

  /**
   * The label of each cell, and the one below where there is room for both.
   * @param {CanvasRenderingContext2D} context
   * @param {Seen} seen
   * @param {Theme} faded
   */
  drawNumbers(context, seen, faded) {
    const { across, scale, slice } = this;
    const both = scale >= GRID.slotted;
    const size = Math.min(12, scale - 3, (across - 4) / (slice.letters * 0.6));
    if (size < GRID.shortest) return;
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.each(seen, (/** @type {number} */ cell, /** @type {number} */ x, /** @type {number} */ y) => {
      if (slice.isEmpty(cell)) return;
      const veiled = this.thread !== NO_THREAD && !slice.holds(cell, this.thread);
      const [px, py] = [x + across / 2, y + scale / 2 + 0.5];
      const below = both ? slice.below(cell) : "";
      context.font = `${size}px system-ui, sans-serif`;
      context.fillStyle = rgb(veiled ? faded.letters : LETTERS);
      context.fillText(slice.label(cell), px, below ? py - 5.5 : py);
      if (!below) return;
      context.font = "9px system-ui, sans-serif";
      context.fillText(below, px, py + 7);
    });
  }

  /** Row and column numbers, as many as fit. */
  drawHeads(/** @type {CanvasRenderingContext2D} */ context, /** @type {Seen} */ seen) {
    const { across, scale, slice } = this;
    /**
     * @param {number} room
     * @param {number} step
     */
    const every = (room, step) => 2 ** Math.max(0, Math.ceil(Math.log2(room / step)));
    const [wide, high] = [every(24, across), every(14, scale)];
    context.fillStyle = getComputedStyle(this.themed).color;
    context.globalAlpha = 0.8;
    context.font = "10px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (let c = Math.ceil(seen.left / wide) * wide; c < seen.right; c += wide)
      context.fillText(String(c), this.left - this.x + (c + 0.5) * across, GRID.top - 9);
    context.textAlign = "right";
    for (let r = Math.ceil(seen.top / high) * high; r < seen.bottom; r += high)
      context.fillText(slice.rowName(r), this.left - 6, GRID.top - this.y + (r + 0.5) * scale);
    context.globalAlpha = 1;
  }
}
