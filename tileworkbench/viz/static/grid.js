// One slice of a layout on a canvas: its tables, its colours, and where its cells are.
import * as tw from "./common.js";

const GRID = {
  left: 34, // pixels for the row numbers
  top: 20, // and for the column numbers
  tallest: 520,
  largest: 40, // pixels of a cell: at most,
  ruled: 7, // from which on lines part the cells,
  numbered: 19, // from which on owners are written into them,
  slotted: 32, // and slots below the owners
};
export const NO_THREAD = -1;

/** The tables of a slice, decoded. A cell is a position in the row-major grid. */
export class LayoutSlice {
  shape = /** @type {number[]} */ ([]);
  lead = /** @type {number[]} */ ([]);
  palette = /** @type {any} */ (null);
  everywhere = false;
  wrapped = false;
  columns = 0;
  rows = 0;
  slots = 0;
  element_bytes = 0;

  constructor(raw) {
    Object.assign(this, raw);
    this.isFragment = raw.kind === "fragment";
    this.owners = (this.isFragment ? raw.owners : [raw.address]).map(tw.table);
    /** Of fragments alone. @type {any} */
    this.slotTable = this.isFragment ? tw.table(raw.slot) : null;
    this.empty = (this.isFragment ? raw.owners[0] : raw.address).empty ?? null;
    this.top = (this.isFragment ? raw.threads : raw.addresses) - 1;
    this.cells = raw.rows * raw.columns;
  }

  isEmpty(cell) { return this.empty !== null && this.owners[0][cell] === this.empty; }

  /** Thread or address of the first copy. */
  first(cell) { return this.owners[0][cell]; }

  all(cell) { return this.owners.map((table) => table[cell]); }

  holds(cell, owner) {
    return !this.isEmpty(cell) && (this.everywhere || this.all(cell).includes(owner));
  }

  indexOf(cell) {
    if (this.shape.length < 2) return this.shape.length ? [cell] : [];
    return [...this.lead, Math.floor(cell / this.columns), cell % this.columns];
  }

  /** The cell of an index, null when it lies in another slice. */
  cellOf(index) {
    if (index.length !== this.shape.length || index.length === 0) return null;
    if (index.length === 1) return index[0];
    if (this.lead.some((at, dim) => at !== index[dim])) return null;
    return index.at(-2) * this.columns + index.at(-1);
  }

  byte(cell) { return this.first(cell) * this.element_bytes; }

  bank(cell) { return Math.floor(this.byte(cell) / 4) % 32; }

  line(cell) { return Math.floor(this.byte(cell) / 64); }

  /** RGB of a cell by `thread`, `warp`, `slot`, `address`, `bank` or `line`. */
  colour(cell, by) {
    if (this.isEmpty(cell)) return this.palette.empty;
    switch (by) {
      case "warp": return this.category(Math.floor(this.first(cell) / 32));
      case "slot": return this.ramp(this.slotTable[cell], this.slots - 1);
      case "address": return this.ramp(this.first(cell), this.top);
      case "bank": return this.ramp(this.bank(cell), 31);
      case "line": return this.category(this.line(cell));
      default: return this.category(this.first(cell));
    }
  }

  category(value) {
    const hues = this.palette.categories;
    const shade = (Math.floor(value / hues.length) % 4) * this.palette.shade;
    return hues[value % hues.length].map((c) => c + (255 - c) * shade);
  }

  ramp(value, top) {
    const stops = this.palette.sequence;
    const place = (Math.min(value, top) / Math.max(top, 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((c, i) => c + (stops[low + 1][i] - c) * (place - low));
  }
}

/** The canvas. `hover` and `element` are cells or null, `thread` is NO_THREAD or the pinned one. */
export class LayoutGrid {
  constructor(canvas, themed) {
    this.canvas = canvas;
    this.themed = themed; // its text colour tells the theme
    this.slice = /** @type {any} */ (null); // a LayoutSlice, from `show` on
    this.pixels = canvas; // of the slice, one per cell
    this.by = "";
    this.hover = /** @type {number | null} */ (null);
    this.element = /** @type {number | null} */ (null);
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
  show(slice, by) {
    [this.slice, this.by] = [slice, by];
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

  /** Take as much of `room` pixels of width as the slice needs. */
  resize(room) {
    const { rows, columns } = this.slice;
    const cell = Math.min(GRID.largest, Math.max((room - GRID.left - 2) / columns, 1));
    this.height = Math.min(GRID.tallest, Math.max(120, Math.ceil(rows * cell) + GRID.top + 2));
    // A tall buffer needs less width, unless zooming in will need it.
    const fitting = Math.min(cell, Math.max((this.height - GRID.top - 2) / rows, GRID.ruled));
    this.width = Math.min(room, Math.max(300, Math.ceil(columns * fitting) + GRID.left + 2));
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
  }

  fit() {
    const across = (this.width - GRID.left - 2) / this.slice.columns;
    const down = (this.height - GRID.top - 2) / this.slice.rows;
    this.least = this.scale = Math.min(across, down, GRID.largest);
    [this.x, this.y] = [0, 0];
  }

  /** Scale by `factor` around a point of the canvas. */
  zoom(factor, at = [this.width / 2, this.height / 2]) {
    const scale = Math.min(GRID.largest * 1.5, Math.max(this.least, this.scale * factor));
    const [px, py] = [at[0] - GRID.left, at[1] - GRID.top];
    this.move(
      ((this.x + px) / this.scale) * scale - px,
      ((this.y + py) / this.scale) * scale - py,
      scale,
    );
  }

  /** Put the pixel (x, y) of the scaled slice into the corner, as far as it goes. */
  move(x, y, scale = this.scale) {
    const [width, height] = [this.width - GRID.left, this.height - GRID.top];
    this.scale = scale;
    this.x = Math.max(0, Math.min(x, this.slice.columns * scale - width));
    this.y = Math.max(0, Math.min(y, this.slice.rows * scale - height));
  }

  /** The cell under a point of the canvas, or null. */
  cellAt(px, py) {
    const { rows, columns } = this.slice;
    const column = Math.floor((px - GRID.left + this.x) / this.scale);
    const row = Math.floor((py - GRID.top + this.y) / this.scale);
    if (px < GRID.left || py < GRID.top || column >= columns || row >= rows) return null;
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
    const { scale, x, y, slice } = this;
    return {
      left: Math.floor(x / scale),
      top: Math.floor(y / scale),
      right: Math.min(slice.columns, Math.ceil((x + this.width - GRID.left) / scale)),
      bottom: Math.min(slice.rows, Math.ceil((y + this.height - GRID.top) / scale)),
    };
  }

  /** Call `visit(cell, x, y)` with the corner of every cell in sight. */
  each(seen, visit) {
    for (let row = seen.top; row < seen.bottom; row++)
      for (let column = seen.left; column < seen.right; column++)
        visit(row * this.slice.columns + column, column * this.scale, row * this.scale);
  }

  draw() {
    const context = tw.brush(this.canvas);
    const { scale, slice } = this;
    const [seen, dark] = [this.range(), this.isDark()];
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.save();
    context.beginPath();
    context.rect(GRID.left, GRID.top, this.width - GRID.left, this.height - GRID.top);
    context.clip();
    context.translate(GRID.left - this.x, GRID.top - this.y);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.pixels, 0, 0, slice.columns * scale, slice.rows * scale);
    if (scale >= GRID.ruled) this.drawRules(context, seen);
    if (this.thread !== NO_THREAD) this.drawPinned(context, seen, dark);
    if (scale >= GRID.numbered) this.drawNumbers(context, seen, dark);
    if (this.element !== null) this.outline(context, this.element, 2.5, dark ? "#fff" : "#000");
    if (this.hover !== null) this.outline(context, this.hover, 2, "#d3302f");
    context.restore();
    this.drawHeads(context, seen);
  }

  drawRules(context, seen) {
    const scale = this.scale;
    context.strokeStyle = `rgba(255, 255, 255, ${scale < 14 ? 0.35 : 0.65})`;
    context.lineWidth = 1;
    context.beginPath();
    for (let column = seen.left; column <= seen.right; column++) {
      context.moveTo(column * scale, seen.top * scale);
      context.lineTo(column * scale, seen.bottom * scale);
    }
    for (let row = seen.top; row <= seen.bottom; row++) {
      context.moveTo(seen.left * scale, row * scale);
      context.lineTo(seen.right * scale, row * scale);
    }
    context.stroke();
  }

  /** A veil over everything but the elements of the pinned thread. */
  drawPinned(context, seen, dark) {
    const { scale, slice } = this;
    context.fillStyle = dark ? "rgba(20, 20, 20, 0.72)" : "rgba(255, 255, 255, 0.72)";
    context.fillRect(0, 0, slice.columns * scale, slice.rows * scale);
    this.each(seen, (cell, x, y) => {
      if (!slice.holds(cell, this.thread)) return;
      const small = scale < GRID.ruled; // a colour alone would be lost
      const colour = `rgb(${slice.colour(cell, this.by).map(Math.round).join(",")})`;
      context.fillStyle = !small ? colour : dark ? "#fff" : "#123";
      context.fillRect(x, y, Math.max(scale, 2), Math.max(scale, 2));
      if (!small) this.outline(context, cell, 1.5, dark ? "#fff" : "rgba(0, 0, 0, 0.65)");
    });
  }

  outline(context, cell, width, style) {
    const { scale, slice } = this;
    const [column, row] = [cell % slice.columns, Math.floor(cell / slice.columns)];
    context.strokeStyle = style;
    context.lineWidth = width;
    context.strokeRect(column * scale + 0.5, row * scale + 0.5, scale - 1, scale - 1);
  }

  /** The owner in each cell, and its slot where there is room for both. */
  drawNumbers(context, seen, dark) {
    const { scale, slice } = this;
    const slots = slice.isFragment && scale >= GRID.slotted;
    const size = Math.min(12, (scale - 4) / (String(slice.top).length * 0.6));
    if (size < 6) return;
    const ghost = dark ? "rgba(255, 255, 255, 0.4)" : "rgba(20, 20, 20, 0.35)";
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.each(seen, (cell, x, y) => {
      if (slice.isEmpty(cell)) return;
      const faded = this.thread !== NO_THREAD && !slice.holds(cell, this.thread);
      const [px, py] = [x + scale / 2, y + scale / 2 + 0.5];
      context.font = `${size}px system-ui, sans-serif`;
      context.fillStyle = faded ? ghost : "#141414";
      const text = slice.everywhere ? "all" : String(slice.first(cell));
      context.fillText(text, px, slots ? py - 5.5 : py);
      if (!slots) return;
      context.font = "9px system-ui, sans-serif";
      context.fillStyle = faded ? ghost : "rgba(20, 20, 20, 0.62)";
      context.fillText(`s${slice.slotTable[cell]}`, px, py + 7);
    });
  }

  /** Row and column numbers, as many as fit. */
  drawHeads(context, seen) {
    const { scale, slice } = this;
    const every = (room) => 2 ** Math.max(0, Math.ceil(Math.log2(room / scale)));
    const [across, down] = [every(24), every(14)];
    context.fillStyle = getComputedStyle(this.themed).color;
    context.globalAlpha = 0.65;
    context.font = "10px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (let c = Math.ceil(seen.left / across) * across; c < seen.right; c += across)
      context.fillText(String(c), GRID.left - this.x + (c + 0.5) * scale, GRID.top - 9);
    context.textAlign = "right";
    for (let r = Math.ceil(seen.top / down) * down; r < seen.bottom; r += down) {
      const text = String(slice.wrapped ? r * slice.columns : r);
      context.fillText(text, GRID.left - 6, GRID.top - this.y + (r + 0.5) * scale);
    }
    context.globalAlpha = 1;
  }
}
