// Steppers for a swizzle <B, M, S> of a tile: what the numbers mean, what it costs, whether it is legal.
import * as tw from "./common.js";
import { bestSwizzles, chunksOf, engineWidth, nameOf, ownSwizzle, placesOf, problemOf, textOf } from "./swizzles.js";

const MOST = { b: 5, m: 10, s: 10 };
const LEAST = { b: 0, m: 0, s: -10 };
const ENGINES = ["TMA load", "TMA store", "wgmma"]; // accesses that no lane makes by itself

/**
 * The steppers of `tile`, whose accesses are `mine`: `measure(layout)` counts, `attempt(choice)` shows a
 * layout in the pictures and tells why the compiler refuses it (""), `apply(line)` makes a cell of it.
 * @param {{ tile: Tile, mine: Access[], measure(layout: Places): Fields, attempt(choice: any): Promise<string>,
 *           apply(line: string): void }} given
 */
export function swizzlePanel({ tile, mine, measure, attempt, apply }) {
  const lanes = Math.max(...mine.map(({ width }) => Math.max(Math.floor((width * 8) / tile.bits), 1)));
  let asked = /** @type {any} */ (null); // what the compiler was asked about last
  const own = ownSwizzle(tile); // where the steppers begin
  const now = { b: 0, m: Math.floor(Math.log2(lanes)), s: 3, chunk: 0, ...own };
  const said = tw.el("div", { class: "tw-swizzle-said", "aria-live": "polite" });
  const legal = tw.div("tw-swizzle-legal");
  const line = () => `T.annotate_layout({${tile.name}: ${textOf(tile, now)}})`;
  const make = tw.button("Apply", () => apply(line()), { disabled: true });
  const over = tw.el("select", { class: "tw-select", "aria-label": "Order before the swizzle",
    onchange: () => { now.chunk = Number(over.value); step(); } },
    ...chunksOf(tile).map((chunk) =>
      tw.el("option", { value: String(chunk) }, chunk ? `chunks of ${chunk} bytes` : "whole rows")));
  const fields = { b: field("b", "B", "bits XORed"), m: field("m", "M", "kept together"),
    s: field("s", "S", "distance") };
  const found = tw.div("tw-swizzle-found");
  const search = tw.button("Find the best", () => {
    const rows = bestSwizzles(tile, mine, measure);
    found.replaceChildren(...rows.flatMap((each, at) => [at ? " · " : "", tw.link(nameOf(each),
      () => take(each)), tw.faint(` ${each.wavefronts} wavefronts`)]));
    if (rows.length) take(rows[0]);
  });
  const node = tw.el("fieldset", { class: "tw-swizzle" },
    tw.el("legend", {}, `Try a Swizzle<B, M, S> for ${tile.name}`),
    tw.div("tw-faint", "The B bits of an element's place from bit M + S on are XORed into those from bit M " +
      "on, so that elements below each other lie in different banks; with S below 0 those from M on into those " +
      "from M − S on."),
    tw.div("tw-bar", fields.b.node, fields.m.node, fields.s.node,
      tw.el("label", { class: "tw-check" }, "over", over), search, make),
    found, said, legal);
  over.value = String(now.chunk);
  if (own?.b) said.textContent = `${nameOf(now)} is the tile's own`;
  explain();

  function field(/** @type {'b' | 'm' | 's'} */ key, /** @type {string} */ label, /** @type {string} */ words) {
    const meaning = tw.span("tw-faint tw-swizzle-words", words);
    const input = tw.el("input", { type: "number", min: String(LEAST[key]), max: String(MOST[key]), step: "1",
      value: String(now[key]), class: "tw-input tw-step", "aria-label": `${label}: ${words}`,
      oninput: () => { if (input.value !== "") { now[key] = Number(input.value); step(); } } });
    const node = tw.el("label", { class: "tw-swizzle-field" }, tw.el("b", {}, label), input, meaning);
    return { node, input, meaning };
  }

  function take(/** @type {Swizzle} */ { b, m, s, chunk }) {
    Object.assign(now, { b, m, s, chunk });
    for (const key of /** @type {const} */ (["b", "m", "s"])) fields[key].input.value = String(now[key]);
    over.value = String(chunk);
    step();
  }

  /** What each number means for this tile. */
  function explain() {
    const { b, m, s } = now;
    const together = (2 ** m * tile.bits) / 8;
    fields.b.meaning.textContent = b ? `bits XORed: ${2 ** b} places are exchanged` : "no bits XORed: nothing moves";
    fields.m.meaning.textContent = `${2 ** m} neighbour${m ? "s" : ""} (${together} bytes) stay together`;
    fields.s.meaning.textContent = s < 0 ? `in the number of the group of ${2 ** (m - s)} elements`
      : `by the number of the group of ${2 ** (m + s)} elements`;
  }

  async function step() {
    explain();
    asked = null;
    const problem = problemOf(tile, now);
    make.disabled = true;
    node.dataset.swizzle = nameOf(now);
    if (problem) {
      said.textContent = `${nameOf(now)} is not possible here`;
      node.dataset.wavefronts = "";
      legal.replaceChildren(verdict(false, problem));
      return;
    }
    const layout = placesOf(tile, now);
    const cost = measure(layout);
    make.disabled = Boolean(cost.problem);
    node.dataset.wavefronts = cost.problem ? "" : String(cost.wavefronts);
    const bytes = tile.versions * Math.ceil((layout.size * tile.bits) / 8);
    said.textContent = cost.problem ? `${nameOf(now)} is not possible here` :
      `${nameOf(now)}: ${cost.wavefronts} wavefronts, ${cost.ideal} needed ` +
      `(${(cost.wavefronts / (cost.ideal || 1)).toFixed(2)}×), ${bytes} bytes`;
    legal.replaceChildren(verdict(!cost.problem, cost.problem || "the vectors of all lanes stay whole"),
      " ", engines(engineWidth(tile, layout)));
    const choice = { name: "swizzle", label: `swizzle ${nameOf(now)}`, layout, problem: cost.problem,
      wavefronts: cost.wavefronts, layoutText: `Layout((${tile.shape.join(", ")},), ${textOf(tile, now)})` };
    asked = choice;
    const refused = await attempt(choice);
    if (!refused || asked !== choice) return;
    make.disabled = true;
    legal.replaceChildren(verdict(false, refused));
  }

  const verdict = (/** @type {boolean} */ good, /** @type {string} */ text) =>
    tw.chip(`${good ? "✓" : "✗"} ${text}`, good ? "tw-good" : "tw-bad");

  /** Whether the copy engine and the tensor cores know this swizzle. */
  function engines(/** @type {number} */ width) {
    const here = [...new Set(mine.map(({ kind }) => String(kind)).filter((kind) => ENGINES.includes(kind)))];
    if (!here.length)
      return tw.faint(width ? `no engine accesses this tile; TMA and wgmma know it as their ${width}-byte swizzle`
        : "no engine accesses this tile, so that any swizzle is legal");
    return verdict(Boolean(width), width ? `${here.join(", ")}: the ${width}-byte swizzle`
      : `${here.join(", ")} take only the swizzles of 32, 64 and 128 bytes: with this one threads copy and load`);
  }

  return { node };
}
