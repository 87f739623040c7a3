// How memory serves a warp: phases, banks and words of shared memory, sectors of global memory, and
// the same accesses under other layouts and widths. Only arithmetic; `sim/threads/counters.py` and
// `viz/model/tiles.py` have the same rules, and tests compare both.

export const WORD = 4;
export const LINE = 128; // of the cache of global memory
export const SECTOR = 32;
export const NOBODY = -1; // the address of a thread that takes no part

/**
 * What a machine has: banks, threads of a warp, and the lanes in the order in which loads of so many
 * bytes are served, where that is not their own.
 * @type {Memory}
 */
export const MEMORY = { banks: 32, warp: 32, orders: {} };

/** The bytes of one row: a word of each bank. */
export const rowBytes = (/** @type {Memory} */ memory) => memory.banks * WORD;

/** The lanes of a warp that are served at once when each accesses `width` bytes. */
function served(/** @type {Access} */ { width, kind, memory = MEMORY }) {
  const own = Array.from({ length: memory.warp }, (_, lane) => lane);
  const order = (kind === "load" && memory.orders[width]) || own;
  const group = Math.max(1, Math.min(memory.warp, rowBytes(memory) / Math.max(width, WORD)));
  return Array.from({ length: memory.warp / group }, (_, at) =>
    order.slice(at * group, (at + 1) * group).sort((/** @type {number} */ a, /** @type {number} */ b) => a - b));
}

/** The numbers of the units of `unit` bytes that an access touches. */
export function units(/** @type {number} */ address, /** @type {number} */ width, /** @type {number} */ unit) {
  const found = [];
  for (let at = Math.floor(address / unit); at <= Math.floor((address + width - 1) / unit); at++)
    found.push(at);
  return found;
}

/**
 * The lanes that are served together: `{ warp, number, lanes, addresses }`, warp by warp; those of
 * which no lane takes part are left out.
 */
export function phases(/** @type {ArrayLike<number>} */ addresses, /** @type {Access} */ access) {
  const { warp: size } = access.memory ?? MEMORY;
  const groups = served(access);
  const found = /** @type {{ warp: number, number: number, lanes: number[], addresses: number[] }[]} */ ([]);
  for (let first = 0; first < addresses.length; first += size)
    groups.forEach((group, number) => {
      const lanes = group.filter((/** @type {number} */ lane) =>
        first + lane < addresses.length && addresses[first + lane] !== NOBODY);
      if (lanes.length) found.push({ warp: first / size, number, lanes,
        addresses: lanes.map((/** @type {number} */ lane) => addresses[first + lane]) });
    });
  return found;
}

/** For each bank the words wanted from it, and for each word the lanes that want it. */
export function banksOf(/** @type {any} */ phase, /** @type {Access} */ { width, memory = MEMORY }) {
  const [banks, count] = [new Map(), memory.banks];
  phase.addresses.forEach((/** @type {number} */ address, /** @type {number} */ i) => {
    for (const word of units(address, width, WORD)) {
      const words = banks.get(word % count) ?? banks.set(word % count, new Map()).get(word % count);
      words.set(word, [...(words.get(word) ?? []), phase.lanes[i]]);
    }
  });
  return banks;
}

/** `{ degree, ideal, banks }` of a phase: the wavefronts it takes, and those its bytes need. */
export function phaseCost(/** @type {any} */ phase, /** @type {Access} */ access) {
  const { width, memory = MEMORY } = access;
  const banks = banksOf(phase, access);
  let [degree, words] = [0, 0];
  for (const wanted of banks.values()) {
    degree = Math.max(degree, wanted.size);
    words += wanted.size;
  }
  const bytes = width >= WORD ? words * WORD : new Set(phase.addresses).size * width;
  return { degree, ideal: Math.ceil(bytes / rowBytes(memory)), banks };
}

/** The lanes that want another word of a bank that `lane` uses. */
export function collisions(/** @type {any} */ banks, /** @type {number} */ lane) {
  const found = new Set();
  for (const words of banks.values()) {
    const all = [...words.values()];
    if (!all.some((lanes) => lanes.includes(lane))) continue;
    for (const lanes of all) if (!lanes.includes(lane)) lanes.forEach((/** @type {any} */ other) => found.add(other));
  }
  return [...found].sort((a, b) => a - b);
}

/** `{ wavefronts, ideal, degree }` of an access `{ width, requests: [{ addresses, times }] }`. */
export function sharedCost(/** @type {Access} */ access) {
  const total = { wavefronts: 0, ideal: 0, degree: 0 };
  for (const { addresses, times } of access.requests)
    for (const phase of phases(addresses, access)) {
      const { degree, ideal } = phaseCost(phase, access);
      total.wavefronts += times * degree;
      total.ideal += times * ideal;
      total.degree = Math.max(total.degree, degree);
    }
  return total;
}

/** The warps of a request: `{ warp, lanes, addresses, sectors, ideal }`. */
export function warps(/** @type {ArrayLike<number>} */ addresses, /** @type {Access} */ { width, memory = MEMORY }) {
  const { warp: size } = memory;
  const found = [];
  for (let start = 0; start < addresses.length; start += size) {
    const lanes = [];
    for (let lane = 0; lane < size && start + lane < addresses.length; lane++)
      if (addresses[start + lane] !== NOBODY) lanes.push(lane);
    if (!lanes.length) continue;
    const mine = lanes.map((lane) => addresses[start + lane]);
    const sectors = new Set(mine.flatMap((address) => units(address, width, SECTOR)));
    const ideal = Math.ceil((new Set(mine).size * width) / SECTOR);
    found.push({ warp: start / size, lanes, addresses: mine, ideal,
      sectors: [...sectors].sort((a, b) => a - b) });
  }
  return found;
}

/** `{ sectors, ideal }` of an access to global memory. */
export function globalCost(/** @type {Access} */ access) {
  const total = { sectors: 0, ideal: 0 };
  for (const { addresses, times } of access.requests)
    for (const warp of warps(addresses, access)) {
      total.sectors += times * warp.sectors.length;
      total.ideal += times * warp.ideal;
    }
  return total;
}

// Layouts: `{ table, size }`, the place of each element in row-major order, and places in all.

const product = (/** @type {any} */ values) => values.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);

const layoutOf = (/** @type {any} */ table) => ({ table, size: table.reduce((/** @type {number} */ a, /** @type {number} */ b) => Math.max(a, b), 0) + 1 });

/** Row-major order with rows `pitch` elements apart. */
export function padded(/** @type {number[]} */ shape, /** @type {number} */ pitch) {
  const columns = shape.at(-1) ?? 1;
  const count = product(shape);
  return layoutOf(Int32Array.from({ length: count },
    (_, at) => Math.floor(at / columns) * pitch + (at % columns)));
}

/** The layout of rows behind each other. */
export const rowMajor = (/** @type {number[]} */ shape) => padded(shape, shape.at(-1) ?? 1);

/** Why a tile cannot be swizzled so; empty where it can. */
export function swizzleProblem(/** @type {number[]} */ shape, /** @type {number} */ bits, /** @type {any} */ bytes) {
  if (shape.length < 2 || ![4, 8, 16, 32, 64, 128].includes(bits))
    return `${bits}-bit elements in ${shape.length} dimensions cannot be swizzled`;
  const width = (bytes * 8) / bits;
  const columns = shape.at(-1) ?? 1;
  if (columns % width === 0) return "";
  return `rows of ${columns} elements are no multiple of ${width}`;
}

/** The swizzle of TMA and wgmma, `bytes` (32, 64 or 128) wide; see `Layout.swizzled`. */
export function swizzled(/** @type {number[]} */ shape, /** @type {number} */ bits, /** @type {any} */ bytes) {
  const [rows, columns] = shape.slice(-2);
  const [width, vector, mask] = [(bytes * 8) / bits, 128 / bits, bytes / 16];
  const one = rows * columns;
  return layoutOf(Int32Array.from({ length: product(shape) }, (_, at) => {
    const [i, j] = [Math.floor((at % one) / columns), at % columns];
    const plain = Math.floor(j / width) * rows * width + i * width + (j % width);
    const moved = plain ^ ((Math.floor(plain / (8 * vector)) % mask) * vector);
    return Math.floor(at / one) * one + moved;
  }));
}

/** The row-major number of the element in each place, -1 where there is none. */
export function inverse(/** @type {any} */ { table, size }) {
  const found = new Int32Array(size).fill(-1);
  table.forEach((/** @type {number} */ place, /** @type {any} */ element) => { found[place] = element; });
  return found;
}

/**
 * An access of a tile under another layout and by another width. The same threads access the same
 * elements; for another width all elements are dealt again in their order, neighbours to
 * neighbouring threads. Returns an access like the one given, or `{ problem }` where the bytes of a
 * lane are no longer neighbours or no longer aligned.
 *
 * @param tile `{ bits, base, layout: { table, size } }`, the layout that the addresses are of.
 */
export function rearranged(/** @type {any} */ tile, /** @type {any} */ access, /** @type {any} */ layout, width = access.width) {
  const from = inverse(tile.layout);
  const per = (/** @type {any} */ bytes) => Math.max((bytes * 8) / tile.bits, 1);
  let dealt = access.requests.map((/** @type {any} */ request) => ({ ...request,
    threads: Array.from(request.addresses, (at) => elementsAt(tile, from, at, per(access.width))) }));
  if (dealt.some((/** @type {any} */ { threads }) => threads.flat().some((/** @type {any} */ [, element]) => element < 0)))
    return { problem: `'${access.kind}' accesses what lies between the elements` };
  if (width !== access.width) dealt = dealAgain(dealt, per(width));
  const requests = [];
  for (const { threads, times, register } of dealt) {
    const addresses = placed(tile, threads, layout, width, access.kind);
    if ("problem" in addresses) return addresses;
    requests.push({ addresses, times, register });
  }
  return { ...access, width, requests };
}

/** The `[version, element]` pairs of an access from a byte on; none for who takes no part. */
function elementsAt(/** @type {any} */ tile, /** @type {any} */ from, /** @type {number} */ address, /** @type {number} */ count) {
  if (address === NOBODY) return [];
  const place = Math.floor(((address - tile.base) * 8) / tile.bits);
  const [version, first] = [Math.floor(place / tile.layout.size), place % tile.layout.size];
  return Array.from({ length: count }, (_, i) => [version, from[first + i] ?? -1]);
}

const chunks = (/** @type {any} */ values, /** @type {number} */ size) =>
  Array.from({ length: Math.ceil(values.length / size) }, (_, i) =>
    values.slice(i * size, (i + 1) * size));

/** Requests of the same elements, `count` for each thread. */
function dealAgain(/** @type {any} */ requests, /** @type {number} */ count) {
  const byTimes = new Map();
  for (const { threads, times } of requests)
    byTimes.set(times, [...(byTimes.get(times) ?? []), ...threads.flat()]);
  const block = requests[0]?.threads.length ?? 0;
  return [...byTimes].flatMap(([times, elements]) =>
    chunks(chunks(elements, count), block).map((threads) => ({ threads, times, register: "" })));
}

/** The address of each thread from what it accesses. */
function placed(/** @type {any} */ tile, /** @type {number[][][]} */ threads, /** @type {Places} */ layout, /** @type {number} */ width, /** @type {string} */ kind) {
  const found = new Int32Array(threads.length).fill(NOBODY);
  for (const [thread, elements] of threads.entries()) {
    if (!elements.length) continue;
    const places = elements.map((/** @type {any} */ [version, element]) =>
      version * layout.size + layout.table[element]);
    if (places.some((/** @type {number} */ place, /** @type {number} */ i) => place !== places[0] + i))
      return { problem: `the ${width} bytes of a lane (${kind}) are not together` };
    const offset = Math.floor((places[0] * tile.bits) / 8);
    if (offset % width || (elements.length * tile.bits) / 8 < width)
      return { problem: `the ${width} bytes of a lane (${kind}) do not begin at a multiple of ` +
        `${width} bytes` };
    found[thread] = tile.base + offset;
  }
  return found;
}

/** The text of a layout's function for `T.annotate_layout`, row-major with that pitch. */
export function paddedText(/** @type {number[]} */ shape, /** @type {number} */ pitch) {
  const letters = [..."ijkmnp"];
  const names = shape.map((/** @type {any} */ _, /** @type {number} */ dim) => (shape.length > letters.length ? `x${dim}` : letters[dim]));
  const strides = shape.map((/** @type {any} */ _, /** @type {number} */ dim) =>
    dim === shape.length - 1 ? 1 : product(shape.slice(dim + 1, -1)) * pitch);
  const terms = strides.map((/** @type {number} */ stride, /** @type {number} */ dim) => (stride === 1 ? names[dim] : `${stride}*${names[dim]}`));
  return `lambda ${names.join(", ")}: (${terms.join(" + ")},)`;
}
