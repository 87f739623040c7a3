// The three pictures of a phase: lane x bank, rows of memory x banks, elements of the tile.
import { COLOURS, ramp } from "./cells.js";
import { WORD, collisions, rowBytes } from "./memory.js";

const ROWS = [32, 96]; // that are shown: as many as this, and more to show all that is accessed
const COLUMNS = [64, 128];

/** The colour of a word in a phase: red where others of its bank are wanted too. */
const wanted = (/** @type {Map<number, number[]>} */ words, /** @type {number[]} */ lanes) =>
  words.size > 1 ? COLOURS.bad : lanes.length > 1 ? COLOURS.same : COLOURS.good;

/** How a lane's cell is marked while `focus` is looked at. */
function marking(/** @type {Scene} */ { phase, focus }) {
  const hit = focus === null ? [] : collisions(phase.banks, focus);
  return (/** @type {number[]} */ lanes, /** @type {Map<number, number[]>} */ words) => {
    if (focus === null || !lanes) return undefined;
    if (lanes.includes(focus)) return "pin";
    return words.size > 1 && lanes.some((/** @type {number} */ lane) => hit.includes(lane)) ? "bad" : undefined;
  };
}

/** A row per lane, a column per bank. */
export function cardPicture(/** @type {Scene} */ scene) {
  const { phase, memory } = scene;
  const mark = marking(scene);
  return {
    title: "Punch card: lane × bank",
    number: `The number is the ${rowBytes(memory)}-byte row of the word.`,
    note: "Below: how many different words of the bank are wanted; two or more (red) are served one after the " +
      "other. Blue: several lanes want one word.",
    most: [20, 18],
    letters: String(Math.floor(Math.max(...phase.addresses) / rowBytes(memory))).length,
    rows: phase.lanes.length,
    columns: memory.banks,
    rowName: (/** @type {number} */ row) => `lane ${phase.lanes[row]}`,
    columnName: String,
    foot: (/** @type {number} */ bank) => {
      const count = phase.banks.get(bank)?.size ?? 0;
      return { text: count ? String(count) : "", bad: count > 1 };
    },
    cell(/** @type {number} */ row, /** @type {number} */ bank) {
      const words = /** @type {Map<number, number[]>} */ (phase.banks.get(bank));
      const lane = phase.lanes[row];
      for (const [word, lanes] of words ?? [])
        if (lanes.includes(lane)) return {
          fill: wanted(words, lanes),
          text: String(Math.floor(word / memory.banks)),
          mark: mark([lane], words),
        };
      return null;
    },
    label: `lanes by banks: degree ${phase.degree}, ${phase.ideal} needed`,
  };
}

/** Where the version of the tile that a phase accesses begins and how many bytes it has. */
function extent(/** @type {Scene} */ { phase, tile, layout }) {
  const size = (layout.size * tile.bits) / 8;
  const version = Math.floor((phase.addresses[0] - tile.base) / size);
  return { start: tile.base + Math.floor(version * size), size: Math.ceil(size), version };
}

/**
 * Which of `count` rows are shown, as [first, how many], so that `used` are among them.
 * @param {number} count
 * @param {number[]} limits
 * @param {number[]} used
 */
function part(count, limits, used) {
  const [some, most] = limits;
  const [first, last] = [Math.min(...used), Math.max(...used)];
  const size = Math.min(count, Math.max(some, Math.min(last - first + 3, most)));
  return [Math.min(Math.max(first - 1, 0), count - size), size];
}

/** A row per word of each bank, a column per bank. */
export function memoryPicture(/** @type {Scene} */ scene) {
  const { phase, tile, memory } = scene;
  const line = rowBytes(memory);
  const { start, size } = extent(scene);
  const mark = marking(scene);
  const top = Math.floor(start / line);
  const all = Math.floor((start + size - 1) / line) - top + 1;
  const used = phase.addresses.map((/** @type {number} */ address) => Math.floor(address / line) - top);
  const [first, rows] = part(all, ROWS, used);
  const shares = [...phase.banks.values()].some((words) =>
    [...words.values()].some((lanes) => lanes.length > 1));
  /**
   * @param {number} row
   * @param {number} bank
   */
  const wordAt = (row, bank) => (top + first + row) * memory.banks + bank;
  return {
    title: `Shared memory: rows of ${line} bytes × bank`,
    number: "The number is the lane.",
    note: `Free cells: the rest of ${tile.name}` +
      (rows < all ? `, rows ${first} to ${first + rows - 1} of ${all}.` : "."),
    most: [20, 16],
    letters: shares ? 3 : 2,
    rows,
    columns: memory.banks,
    rowName: (/** @type {number} */ row) => String((top + first + row) * line),
    columnName: String,
    byte: (/** @type {number} */ row, /** @type {number} */ bank) => wordAt(row, bank) * WORD,
    cell(/** @type {number} */ row, /** @type {number} */ bank) {
      const word = wordAt(row, bank);
      if ((word + 1) * WORD <= start || word * WORD >= start + size) return undefined;
      const words = /** @type {Map<number, number[]>} */ (phase.banks.get(bank));
      const lanes = words?.get(word);
      if (!lanes) return null;
      return {
        fill: wanted(words, lanes),
        text: lanes.length > 1 ? `${lanes[0]}+` : String(lanes[0]),
        mark: mark(lanes, words),
      };
    },
    label: `rows of shared memory by banks, the words that lanes ${phase.lanes[0]} to ` +
      `${phase.lanes.at(-1)} access marked`,
  };
}

/** The elements of the tile, coloured by bank; those that the phase accesses with their lanes. */
export function tilePicture(/** @type {Scene} */ scene) {
  const { phase, tile, layout, width, palette, memory: { banks } } = scene;
  const { start } = extent(scene);
  const mark = marking(scene);
  const flat = tile.shape.length === 1;
  const columns = flat ? Math.min(tile.shape[0], 32) : /** @type {number} */ (tile.shape.at(-1));
  const rows = flat ? Math.ceil(tile.shape[0] / columns) : /** @type {number} */ (tile.shape.at(-2));
  const used = usedElements(scene, start);
  if (!used.size) return null; // all that is accessed lies between the elements
  const lead = Math.floor(Math.min(...used.keys()) / (rows * columns));
  const inside = [...used.keys()].map((element) => element - lead * rows * columns);
  const [top, down] = part(rows, ROWS, inside.map((element) => Math.floor(element / columns)));
  const [left, across] = part(columns, COLUMNS, inside.map((element) => element % columns));
  /**
   * @param {number} row
   * @param {number} column
   */
  const elementAt = (row, column) => (lead * rows + top + row) * columns + left + column;
  /** @param {number} element */
  const byteAt = (element) => start + Math.floor((layout.table[element] * tile.bits) / 8);
  const count = layout.table.length;
  const outside = down < rows || across < columns || lead > 0 || tile.shape.length > 2;
  return {
    title: `${tile.name}: elements coloured by bank`,
    note: "Red, green and blue: accessed in this phase, with the lane; the others with their bank" +
      (outside ? `; shown from ${nameOf(elementAt(0, 0))}.` : "."),
    most: [22, 16],
    letters: 2,
    rows: down,
    columns: across,
    rowName: (/** @type {number} */ row) => String(flat ? (top + row) * columns : top + row),
    columnName: (/** @type {number} */ column) => String(left + column),
    byte: (/** @type {number} */ row, /** @type {number} */ column) => byteAt(elementAt(row, column)),
    element: (/** @type {number} */ row, /** @type {number} */ column) => indexOf(elementAt(row, column)),
    cell(/** @type {number} */ row, /** @type {number} */ column) {
      const element = elementAt(row, column);
      if (element >= count) return undefined;
      const byte = byteAt(element);
      const word = Math.floor(byte / WORD);
      const lane = used.get(element);
      const words = /** @type {Map<number, number[]>} */ (phase.banks.get(word % banks));
      if (lane === undefined)
        return { fill: ramp(palette, word % banks, banks - 1), text: String(word % banks) };
      return { fill: wanted(words, /** @type {number[]} */ (words.get(word))), text: String(lane), mark: mark([lane], words) };
    },
    label: `elements of ${tile.name} by bank, ${used.size} of them accessed in this phase by ` +
      `${width} bytes a lane`,
  };

  function indexOf(/** @type {number} */ element) {
    let rest = element;
    return [...tile.shape].reverse().map((size) => {
      const at = rest % size;
      rest = Math.floor(rest / size);
      return at;
    }).reverse();
  }

  /** @param {number} element */
  function nameOf(element) { return `${tile.name}[${indexOf(element).join(", ")}]`; }
}

/**
 * The elements that the lanes of a phase access, each with its lane.
 * @param {Scene} given
 * @param {number} start
 */
function usedElements({ phase, tile, layout, width }, start) {
  const per = Math.max((width * 8) / tile.bits, 1);
  const lanes = new Map();
  phase.addresses.forEach((/** @type {number} */ address, /** @type {number} */ i) => {
    const place = Math.floor(((address - start) * 8) / tile.bits);
    for (let at = 0; at < per; at++) if (!lanes.has(place + at)) lanes.set(place + at, phase.lanes[i]);
  });
  const found = new Map();
  layout.table.forEach((/** @type {number} */ place, /** @type {number} */ element) => {
    if (lanes.has(place)) found.set(element, lanes.get(place));
  });
  return found;
}
