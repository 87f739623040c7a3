// CuTe's swizzles of a tile: places, text, and a search. Only arithmetic; `viz/model/swizzles.py` has
// the same, and tests compare both.
import { swizzleProblem, swizzled } from "./memory.js";

const CHUNKS = [0, 32, 64, 128]; // bytes; 0: whole rows
const ENGINE_WIDTHS = [32, 64, 128];
const MOST_BITS = 5;
const MOST_SHIFT = 7;

const product = (/** @type {number[]} */ values) => values.reduce((a, b) => a * b, 1);

/** How a swizzle is written. */
export const nameOf = (/** @type {Swizzle} */ { b, m, s, chunk }) =>
  `<${b}, ${m}, ${s}>${chunk ? ` over chunks of ${chunk} bytes` : ""}`;

const lowest = (/** @type {number} */ n) => n & -n; // the largest power of two that divides n
const widthOf = (/** @type {Tile} */ { shape, bits }, /** @type {number} */ chunk) => (chunk * 8) / bits || (shape.at(-1) ?? 1);
const ends = (/** @type {Swizzle} */ { m, s }) => [m + Math.max(s, 0), m + Math.max(-s, 0)]; // read, changed

/** Why a tile cannot be swizzled so; empty where it can. What the compiler refuses is a problem, too. */
export function problemOf(/** @type {Tile} */ tile, /** @type {Swizzle} */ swizzle) {
  const { b, m, s, chunk } = swizzle;
  if (b < 0 || m < 0 || Math.abs(s) < b)
    return `${nameOf(swizzle)} is no swizzle: B and M are 0 or more, and S is B or more, or -B or less`;
  const [rows, columns] = tile.shape.slice(-2);
  const width = widthOf(tile, chunk);
  if (columns % width) return `rows of ${columns} elements are no multiple of ${width}`;
  const highest = ends(swizzle)[1] + b - 1;
  if (b && s < 0 && 2 ** highest >= rows * columns)
    return `bit ${highest} of a place is beyond the ${rows * columns} places of the tile`;
  if (computable(tile, swizzle)) return "";
  return "no code could compute it: what is XORed must be bits of a row's or a column's number, and of " +
    `${rows}x${columns} elements only the ${Math.log2(wholeBits(rows, columns, width))} lowest bits of a place are`;
}

/** The places, a power of two, whose bits are bits of a row's or a column's number. */
function wholeBits(/** @type {number} */ rows, /** @type {number} */ columns, /** @type {number} */ width) {
  if (lowest(width) !== width) return lowest(width);
  return width * lowest(rows) * (lowest(rows) === rows ? lowest(columns / width) : 1);
}

/** Whether code can compute the places, which takes a formula of digits: `analysis/physical.py`. */
function computable(/** @type {Tile} */ tile, /** @type {Swizzle} */ swizzle) {
  const [rows, columns] = tile.shape.slice(-2);
  const [source, target] = ends(swizzle);
  const moved = Math.min(swizzle.b, Math.ceil(Math.log2(rows * columns)) - source); // bits that are ever 1
  if (moved <= 0 || 2 ** (Math.max(source, target) + moved) <= wholeBits(rows, columns, widthOf(tile, swizzle.chunk)))
    return true;
  const { table } = boxOf(tile, swizzle);
  const down = Array.from({ length: rows }, (_, i) => table[i * columns]);
  const across = [...table.slice(0, columns)];
  return table.every((place, at) => place === down[Math.floor(at / columns)] + across[at % columns]) &&
    isDigits(down) && isDigits(across);
}

/** Whether numbers from 0 on are digits of their positions, each times a stride. */
function isDigits(/** @type {number[]} */ values) {
  for (let axis = values; axis.length > 1;) {
    const bent = axis.findIndex((value, at) => value !== at * axis[1]);
    const extent = bent < 0 ? axis.length : bent;
    const high = axis.filter((_, at) => at % extent === 0);
    if (axis.some((value, at) => value !== high[Math.floor(at / extent)] + axis[at % extent])) return false;
    axis = high;
  }
  return true;
}

/** The places of the elements: the layout `{ table, size }`. */
export function placesOf(/** @type {Tile} */ tile, /** @type {Swizzle} */ swizzle) {
  const { table: box, size: one } = boxOf(tile, swizzle);
  const count = product(tile.shape.slice(0, -2));
  const table = Int32Array.from({ length: count * box.length },
    (_, at) => Math.floor(at / box.length) * one + box[at % box.length]);
  return { table, size: count * one };
}

/** The places within the last two dimensions. */
function boxOf(/** @type {Tile} */ tile, /** @type {Swizzle} */ swizzle) {
  const [rows, columns] = tile.shape.slice(-2);
  const width = widthOf(tile, swizzle.chunk);
  const [source, target] = ends(swizzle);
  const table = Int32Array.from({ length: rows * columns }, (_, at) => {
    const [i, j] = [Math.floor(at / columns), at % columns];
    const plain = Math.floor(j / width) * rows * width + i * width + (j % width);
    return plain ^ ((Math.floor(plain / 2 ** source) % 2 ** swizzle.b) * 2 ** target);
  });
  return { table, size: table.reduce((most, place) => Math.max(most, place), 0) + 1 };
}

/** The orders before a swizzle that a tile can have: whole rows, or chunks of so many bytes. */
export function chunksOf(/** @type {Tile} */ { shape, bits }) {
  const row = Math.floor(((shape.at(-1) ?? 1) * bits) / 8);
  return CHUNKS.filter((chunk) => !chunk || (chunk < row && row % chunk === 0));
}

/** The swizzle that a tile's own layout is, with the fewest bits; null where it is none. */
export function ownSwizzle(/** @type {Tile} */ tile) {
  const own = tile.layout.table;
  const is = (/** @type {Swizzle} */ swizzle) => !problemOf(tile, swizzle) &&
    placesOf(tile, swizzle).table.every((place, at) => place === own[at]);
  for (const chunk of chunksOf(tile)) {
    const plain = placesOf(tile, { b: 0, m: 0, s: 0, chunk }).table;
    const moved = plain.reduce((all, place, at) => all | (place ^ own[at]), 0);
    const target = Math.log2(lowest(moved)); // the lowest bit that changes
    const b = moved ? 32 - Math.clz32(moved) - target : 0;
    if (!b && is({ b, m: 0, s: 0, chunk })) return { b, chunk };
    for (let source = 0; b && 2 ** source < plain.length; source++) {
      const swizzle = { b, m: Math.min(source, target), s: source - target, chunk };
      if (is(swizzle)) return swizzle;
    }
  }
  return null;
}

/** The function of the layout as `T.annotate_layout` takes it. */
export function textOf(/** @type {Tile} */ { shape, bits }, /** @type {Swizzle} */ swizzle) {
  const { b, chunk } = swizzle;
  const [source, target] = ends(swizzle);
  const letters = [..."ijkmnp"];
  const names = shape.map((/** @type {number} */ _, /** @type {number} */ dim) =>
    (shape.length > letters.length ? `x${dim}` : letters[dim]));
  const [rows, columns] = shape.slice(-2);
  const width = (chunk * 8) / bits;
  const [i, j] = names.slice(-2);
  const plain = width && width < columns
    ? `${j} // ${width} * ${rows * width} + ${i} * ${width} + ${j} % ${width}` : `${i} * ${columns} + ${j}`;
  const moved = b ? `(${plain}) ^ (${plain}) // ${2 ** source} % ${2 ** b} * ${2 ** target}` : plain;
  return `lambda ${names.join(", ")}: (${[...names.slice(0, -2), moved].join(", ")},)`;
}

/** The bytes of the copy engine's swizzle that a layout is, 0 for none of them. */
export function engineWidth(/** @type {Tile} */ { shape, bits }, /** @type {Places} */ layout) {
  return ENGINE_WIDTHS.find((width) => {
    if (swizzleProblem(shape, bits, width)) return false;
    const own = swizzled(shape, bits, width).table;
    return own.every((/** @type {number} */ place, /** @type {number} */ at) => place === layout.table[at]);
  }) ?? 0;
}

/**
 * The swizzles with the fewest wavefronts, of equals those that XOR the fewest bits: each a swizzle
 * with `wavefronts` and `ideal`. `measure(layout)` gives what all accesses of the tile cost with a layout.
 * @param {Tile} tile
 * @param {Access[]} accesses
 * @param {(layout: Places) => Fields} measure
 */
export function bestSwizzles(tile, accesses, measure, few = 3) {
  const found = [];
  for (let b = 0; b <= MOST_BITS; b++) {
    for (const swizzle of candidates(tile, accesses, b)) {
      if (problemOf(tile, swizzle)) continue;
      const { problem, wavefronts, ideal } = measure(placesOf(tile, swizzle));
      if (!problem) found.push({ ...swizzle, wavefronts, ideal });
    }
    if (found.some((each) => each.wavefronts === each.ideal)) break;
  }
  return found.sort((x, y) => x.wavefronts - y.wavefronts).slice(0, few);
}

/** The swizzles of so many bits that move something and keep the vectors of the tile whole. */
function candidates(/** @type {Tile} */ tile, /** @type {Access[]} */ accesses, /** @type {number} */ b) {
  const { shape, bits } = tile;
  const size = product(shape.slice(-2));
  const lanes = Math.max(...accesses.map(({ width }) => Math.max(Math.floor((width * 8) / bits), 1)));
  const vector = Math.floor(Math.log2(lanes));
  const found = /** @type {Swizzle[]} */ ([]);
  for (const chunk of chunksOf(tile)) {
    if (!b) { found.push({ b, m: vector, s: 0, chunk }); continue; }
    for (let m = vector; m < vector + 3; m++)
      for (let s = b; s <= MOST_SHIFT; s++)
        if (2 ** (m + s) < size) found.push({ b, m, s, chunk });
  }
  return found;
}
