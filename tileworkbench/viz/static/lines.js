// The accesses of a CPU kernel: lanes of a vector by cache line, and the elements of the tile.
import * as tw from "./common.js";
import * as list from "./accesses.js";
import { COLOURS, CellGrid, category } from "./cells.js";
import { units } from "./memory.js";
import { watch } from "./redraw.js";

const MOST_LINES = 48;
const MOST_ROWS = 64;
const MOST_COLUMNS = 128;

/** The vectors of an access: the byte addresses of their lanes. */
function vectorsOf(/** @type {Access} */ access) {
  const { rows, empty } = access.vectors;
  const table = tw.table(access.vectors);
  const lanes = rows ? table.length / rows : 0;
  return Array.from({ length: rows }, (_, row) =>
    Array.from(table.slice(row * lanes, (row + 1) * lanes)).filter((address) => address !== empty));
}

/** @param {ViewArguments} given */
export function render({ model, el, data }) {
  const root = tw.root(el, "lines");
  const scope = tw.scope(model);
  const buffers = new Map(data.tiles.map((/** @type {Fields} */ buffer) => [buffer.name, { ...buffer,
    layout: buffer.layout ? { ...buffer.layout, table: tw.table(buffer.layout.table) } : null }]));
  const accesses = data.accesses.map((/** @type {Access} */ access, /** @type {number} */ index) => ({ ...access, index }));
  const routines = data.routines.map((/** @type {string} */ text) => tw.div("tw-sentence", text));
  if (!accesses.length) {
    root.append(tw.about(data.about), ...routines,
      tw.div("tw-note", "No access has an address that is known before the kernel runs."));
    return scope.dispose;
  }
  /** @type {any} */
  const shown = { access: null, vectors: [], at: 0, lane: null };
  const table = list.accessTable({
    heads: ["pattern", "lanes", "cache lines", "needed"],
    groups: [...buffers.values()].map((buffer) => ({
      name: buffer.name,
      note: buffer.shape.join("×") + (buffer.layout ? ` · ${buffer.layout.text}` : ""),
      accesses: accesses.filter((/** @type {Access} */ access) => access.buffer === buffer.name).map((/** @type {Access} */ access) => ({
        index: access.index, line: access.line, side: access.side, described: access.kind,
        used: access.lines, ideal: access.ideal, bad: access.lines > access.ideal,
        cells: [access.pattern, String(access.lanes), String(access.lines), String(access.ideal)],
      })),
    })),
    choose: (/** @type {number} */ index) => choose(index, true),
  });
  const slider = list.stepper("vector", (/** @type {number} */ at) => { shown.at = at; draw(); });
  const [heading, place, why] = [tw.div("tw-heading"), tw.span("tw-phase-place"),
    tw.div("tw-sentence")];
  const card = pictured(), tile = pictured();
  const info = tw.div("tw-info");
  root.append(verdict(), tw.about(data.about), table.node, heading, why,
    tw.div("tw-bar", slider.node, place),
    tw.div("tw-figures", card.figure.node, tw.div("tw-beside", info, tile.figure.node)), ...routines);

  function verdict() {
    const bad = accesses.filter((/** @type {Access} */ access) => access.lines > access.ideal);
    if (!bad.length) return tw.div("tw-finding tw-is-good",
      "✓ Every vector touches only the cache lines that its bytes need.");
    const [first] = [...bad].sort((a, b) => b.factor - a.factor);
    return tw.div("tw-finding tw-is-bad", `⚠ ${bad.length === 1 ? "1 access touches"
      : `${bad.length} accesses touch`} more cache lines than needed. The worst: ${first.kind} of ` +
      `${first.buffer}${first.line ? ` on line ${first.line}` : ""}, ${first.factor.toFixed(1)}×.`);
  }

  function pictured() {
    const canvas = list.canvas();
    /** @type {any} */
    const made = { figure: list.figure("", canvas, ""), picture: null };
    made.grid = new CellGrid(canvas, {
      hover: (row, column) => {
        const lane = row === null ? null : made.picture.lane(row, column);
        if (lane === shown.lane) return;
        shown.lane = lane;
        draw();
      },
      choose: () => {},
    });
    return made;
  }

  function choose(/** @type {number} */ index, /** @type {boolean} */ tell) {
    const access = accesses[index];
    if (!access) return;
    table.mark(index);
    Object.assign(shown, { access, vectors: vectorsOf(access), lane: null });
    const excess = shown.vectors.map((/** @type {number[]} */ vector) => touchedBy(vector).length - neededBy(vector));
    shown.at = Math.max(excess.indexOf(Math.max(...excess)), 0); // opens at the worst vector
    slider.limit(shown.vectors.length);
    slider.set(shown.at);
    heading.textContent = `${access.buffer}: ${access.kind}` +
      `${access.line ? `, line ${access.line}` : ""} – ${access.lines} cache lines, ` +
      `${access.ideal} needed`;
    why.textContent = access.why ? `${access.why[0].toUpperCase()}${access.why.slice(1)}.` : "";
    draw();
    if (tell) tw.set(model, { selection: { line: access.line, buffer: access.buffer } });
  }

  /** @param {number} address */
  const linesAt = (address) => units(address, shown.access.width, data.line_bytes);
  /**
   * The numbers of the cache lines that a vector touches, and how many would do for its bytes.
   * @param {number[]} vector
   */
  const touchedBy = (vector) => [...new Set(vector.flatMap(linesAt))].sort((a, b) => a - b);
  const neededBy = (/** @type {number[]} */ vector) =>
    Math.ceil((new Set(vector).size * shown.access.width) / data.line_bytes);

  function draw() {
    const vector = shown.vectors[shown.at];
    if (!vector || !root.clientWidth) return;
    slider.set(shown.at);
    place.textContent = `vector ${shown.at + 1} of the first ${shown.vectors.length} · cache ` +
      `lines: ${touchedBy(vector).length}, needed: ${neededBy(vector)}`;
    const buffer = buffers.get(shown.access.buffer);
    /** @type {[any, (...given: any[]) => any][]} */
    const pictures = [[card, cardPicture], [tile, tilePicture]];
    for (const [each, make] of pictures) {
      each.picture = make(vector, buffer);
      each.figure.node.hidden = each.picture === null;
      if (!each.picture) continue;
      each.figure.caption.textContent = each.picture.title;
      each.figure.below.textContent = each.picture.note;
      each.grid.show(each.picture, list.roomOf(root));
    }
    describe(vector, buffer);
  }

  /** A row per lane, a column per cache line that the vector touches. */
  function cardPicture(/** @type {number[]} */ vector) {
    const { width } = shown.access;
    const lines = touchedBy(vector);
    const needed = neededBy(vector);
    const used = lines.map((line) => new Set(vector.filter((/** @type {number} */ address) =>
      linesAt(address).includes(line))).size * width);
    return {
      title: "Lane × cache line",
      note: "The number is the byte within the line. Below: how many of its 64 bytes are used. " +
        (lines.length > needed ? "Red: more lines than the bytes need." : "") +
        (lines.length > MOST_LINES ? ` The first ${MOST_LINES} of ${lines.length} lines.` : ""),
      most: [36, 18],
      letters: 2,
      rows: vector.length,
      columns: Math.min(lines.length, MOST_LINES),
      rowName: (/** @type {number} */ row) => `lane ${row}`,
      columnName: (/** @type {number} */ column) => String(lines[column]),
      foot: (/** @type {number} */ column) => ({ text: String(used[column]), bad: lines.length > needed }),
      lane: (/** @type {number} */ row, /** @type {number} */ column) => (linesAt(vector[row]).includes(lines[column]) ? row : null),
      cell(/** @type {number} */ row, /** @type {number} */ column) {
        if (!linesAt(vector[row]).includes(lines[column])) return null;
        const fill = lines.length > needed ? COLOURS.bad : COLOURS.good;
        return { fill, text: String(Math.max(vector[row] - lines[column] * data.line_bytes, 0)),
          mark: shown.lane === row ? "pin" : undefined };
      },
      label: `lanes by cache lines: ${lines.length} lines, ${needed} needed`,
    };
  }

  /** The elements of a tile coloured by cache line, those of the vector with their lanes. */
  function tilePicture(/** @type {number[]} */ vector, /** @type {Fields} */ buffer) {
    const { layout, shape, bits, base } = buffer;
    if (!layout) return null;
    const lanes = new Map(vector.map((/** @type {number} */ address, /** @type {number} */ lane) =>
      [Math.floor(((address - base) * 8) / bits), lane]));
    const columns = shape.length > 1 ? shape.at(-1) : Math.min(shape[0], 32);
    const rows = Math.ceil(layout.table.length / columns);
    const held = new Map();
    layout.table.forEach((/** @type {number} */ at, /** @type {number} */ element) => { if (lanes.has(at)) held.set(element, lanes.get(at)); });
    const first = held.size ? Math.min(...held.keys()) : 0;
    /**
     * @param {number} at
     * @param {number} count
     * @param {number} most
     */
    const corner = (at, count, most) => Math.min(Math.max(at - 1, 0), Math.max(count - most, 0));
    const top = corner(Math.floor(first / columns), rows, MOST_ROWS);
    const left = corner(first % columns, columns, MOST_COLUMNS);
    /**
     * @param {number} row
     * @param {number} column
     */
    const elementAt = (row, column) => (top + row) * columns + left + column;
    return {
      title: `${buffer.name}: elements coloured by cache line`,
      note: "Framed, with a number: accessed by that lane of this vector." +
        (rows > MOST_ROWS || columns > MOST_COLUMNS
          ? ` Shown from ${list.elementName(buffer.name, shape, elementAt(0, 0))}.` : ""),
      most: [22, 16],
      letters: 2,
      rows: Math.min(rows, MOST_ROWS),
      columns: Math.min(columns, MOST_COLUMNS),
      rowName: (/** @type {number} */ row) => String(top + row),
      columnName: (/** @type {number} */ column) => String(left + column),
      lane: (/** @type {number} */ row, /** @type {number} */ column) => held.get(elementAt(row, column)) ?? null,
      cell(/** @type {number} */ row, /** @type {number} */ column) {
        const element = elementAt(row, column);
        if (element >= layout.table.length) return undefined;
        const lane = held.get(element);
        const line = Math.floor((base + (layout.table[element] * bits) / 8) / data.line_bytes);
        if (lane === undefined) return { fill: category(data.palette, line), text: "" };
        return { fill: COLOURS.one, text: String(lane), mark: lane === shown.lane ? "pin" : "lane" };
      },
      label: `elements of ${buffer.name} by cache line, ${held.size} of them in this vector`,
    };
  }

  function describe(/** @type {number[]} */ vector, /** @type {Fields} */ buffer) {
    const { width } = shown.access;
    const address = vector[shown.lane];
    if (shown.lane === null || address === undefined) {
      list.fill(info, tw.div("tw-panel-title", "This vector"),
        list.row("lanes", `${vector.length}`), list.row("bytes of a lane", `${width}`),
        list.row("cache lines", `${touchedBy(vector).length}`),
        tw.div("tw-hint tw-faint", "Point at a cell to see its lane."));
      return;
    }
    const place = Math.floor(((address - buffer.base) * 8) / buffer.bits);
    const element = buffer.layout ? buffer.layout.table.indexOf(place) : place;
    list.fill(info, tw.div("tw-panel-title", `lane ${shown.lane}`),
      list.row("element", buffer.shape.length
        ? list.elementName(buffer.name, buffer.shape, element) : `${buffer.name}[${element}]`),
      list.row("bytes", `${address}–${address + width - 1}`),
      list.row("cache line", linesAt(address).join(", ")));
  }

  function select() {
    const selection = model.get("selection") ?? {};
    const first = table.select(selection);
    const same = (!selection.line || shown.access.line === selection.line) &&
      (!selection.buffer || shown.access.buffer === selection.buffer);
    if (first !== null && !same) choose(first, false);
  }

  scope.on("change:selection", select);
  watch(root, scope, draw);
  const worst = accesses.reduce((/** @type {Access} */ a, /** @type {Access} */ b) => (b.factor > a.factor ? b : a), accesses[0]);
  choose(worst.index, false);
  select();
  return scope.dispose;
}
