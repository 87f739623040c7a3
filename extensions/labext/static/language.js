// Whether a notebook's `T` is the language of kernels, told from its text: no cell has to have run.
import { texts } from "./shared.js";

const OURS = [
  /^\s*from\s+(?:tileworkbench|tilelang)[\w.]*\s+import\s+(?:[^#\n]*[\s,(])?(?:\w+\s+as\s+)?T\b/m,
  /^\s*import\s+(?:tileworkbench|tilelang)\.language\s+as\s+T\b/m,
  /^\s*%(?:re)?load_ext\s+tileworkbench\b/m,
];
const THEIRS = /^\s*(?:import\s+[\w.]+\s+as\s+T\b|from\s+[\w.]+\s+import\s[^#\n]*\bas\s+T\b|T\s*=[^=])/;

/** Whether `T` in this cell means our language: another import of that name in a notebook wins. */
export function speaks(/** @type {CellModel | null | undefined} */ model) {
  const { own, all } = texts(model);
  if (/^%%tile\b/.test(own)) return true;
  if (!all.some((/** @type {string} */ text) => OURS.some((form) => form.test(text)))) return false;
  const lines = all.flatMap((/** @type {string} */ text) => text.split("\n"));
  return !lines.some((/** @type {string} */ line) => THEIRS.test(line) && !OURS.some((form) => form.test(line)));
}

/** The name after `T.` around a place in a line: `{ name, from, to }`, or null. */
export function nameAt(/** @type {string} */ line, /** @type {number} */ at) {
  for (const found of line.matchAll(/(?<![\w.])T\.(\w+)/g)) {
    const to = found.index + found[0].length;
    if (found.index <= at && at <= to) return { name: found[1], from: found.index, to };
  }
  return null;
}

/** The kernels that the cells of a notebook define, by their text. */
export function kernelNames(/** @type {CellModel | null | undefined} */ model) {
  const { own, all } = texts(model);
  const cells = [own, ...all.filter((/** @type {string} */ text) => /^%%tile\b/.test(text))];
  const names = cells.flatMap((text) => [...text.matchAll(/^def (\w+)/gm)].map((found) => found[1]));
  return [...new Set(names)];
}
