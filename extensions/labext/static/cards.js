// The data of kernel cards in the outputs of cells, which `viz/model/saved.py` packed.
export const MIME = "application/vnd.tileworkbench+json";
const VERSION = "0.1.0"; // of the package that these views belong to
const LIMIT = 32e6; // bytes that an output may unpack to
const STILL = "<TileKernel "; // how the text of an output with a card begins

/** Raises where another version of the package made a card. */
export function checkedVersion(/** @type {any} */ data) {
  if (data.version !== VERSION) throw new Error(`saved by tileworkbench ${data.version}`);
}

/**
 * The last output of a cell that shows a kernel's card, with the type to draw it from: without the
 * data of the card, what stands for it where no front end was.
 */
export function cardOf(/** @type {CellModel} */ cell) {
  const outputs = cell?.outputs;
  for (let at = (outputs?.length ?? 0) - 1; at >= 0; at--) {
    const output = outputs.get(at);
    if (output.data[MIME]) return { output, type: MIME };
    const text = [output.data["text/plain"] ?? ""].flat().join("");
    if (text.startsWith(STILL) && output.data["text/html"]) return { output, type: "text/html" };
  }
  return null;
}

/** The data of a cell's card, or null where it has none of this version. */
export function dataOf(/** @type {CellModel} */ cell) {
  const card = cardOf(cell);
  const data = card?.type === MIME ? card.output.data[MIME] : null;
  if (data) checkedVersion(data);
  return data;
}

/** What `viz/model/saved.py` packed: JSON, with tables as differences behind it. */
export async function unpack(/** @type {string} */ text) {
  const packed = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const chunks = [];
  let size = 0;
  const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  for (let step = await reader.read(); !step.done; step = await reader.read()) {
    size += step.value.length;
    if (size > LIMIT) throw new Error("the saved card is too large");
    chunks.push(step.value);
  }
  const bytes = new Uint8Array(await new Blob(chunks).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const json = new TextDecoder().decode(bytes.subarray(4, 4 + length));
  return JSON.parse(json, (_key, value) => {
    if (!value || !Array.isArray(value.$bytes)) return value;
    const [start, count] = value.$bytes;
    const table = bytes.slice(4 + length + start, 4 + length + start + count);
    for (let at = 4; at < table.length; at++) table[at] += table[at - 4];
    return new DataView(table.buffer);
  });
}
