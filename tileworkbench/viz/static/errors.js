// The wrong elements of a failed check: where they are, and who wrote each last.
import * as tw from "./common.js";
import * as list from "./accesses.js";
import { CellGrid, COLOURS, category } from "./cells.js";
import { watch } from "./redraw.js";

const LEVELS = 255;

/** @param {ViewArguments} given */
export function render({ model, el, data }) {
  const root = tw.root(el, "errors");
  const scope = tw.scope(model);
  const canvas = list.canvas();
  const figure = list.figure("", canvas, "");
  const info = tw.div("tw-info");
  const message = tw.div("tw-sentence");
  let colour = "error";
  let part = decode(data.window);
  /** @type {number | null} */
  let at = null;
  const colours = tw.el("select", { class: "tw-select", "aria-label": "Colour by",
    onchange: () => { colour = colours.value; draw(); } },
    ...["error", ...data.owners].map((name) => tw.el("option", { value: name }, `colour by ${name}`)));
  const whole = tw.button("Whole output", () => zoom(0, 0, data.height, data.width));
  const grid = new CellGrid(canvas, { hover: (row, column = 0) => {
    at = row === null ? null : row * part.cells[1] + column;
    describe();
  }, choose });
  const bisect = tw.button("Find the first wrong pass", search);
  const found = tw.span("tw-sentence tw-bisected");
  const sentence = tw.div("tw-finding tw-is-bad", `⚠ ${data.sentence}`);
  root.append(sentence,
    ...data.lines.map(lineRow),
    data.whyNot ? tw.div("tw-sentence", `Who wrote them last is not known of all: ${data.whyNot}.`) : "",
    tw.div("tw-bar", colours, whole, data.bisects ? bisect : "", found), message,
    tw.div("tw-figures", figure.node, info));

  /** @param {{ line: number, count: number, sources: [string, number[]][] }} given */
  function lineRow({ line, count, sources }) {
    const choose = () => tw.set(model, { selection: { line, buffer: data.output } });
    const fed = sources.map((/** @type {[string, number[]]} */ [name, lines]) =>
      `; it stores ${name}, which is written at line${lines.length > 1 ? "s" : ""} ${lines.join(", ")}`);
    return tw.div("tw-sentence", tw.link(`line ${line}`, choose),
      ` wrote ${count} of them last${fed.join("")}`);
  }

  /** @returns {any} */
  function decode(/** @type {Fields} */ window) {
    const owners = Object.fromEntries(Object.entries(window.owners).map(([name, packed]) =>
      [name, numbers(packed)]));
    return { ...window, owners, place: numbers(window.place), level: numbers(window.level),
      wrong: numbers(window.wrong) };
  }

  function numbers(/** @type {Packed & { empty: number }} */ packed) {
    return Array.from(tw.table(packed), (value) => (value === packed.empty ? -1 : value));
  }

  /**
   * @param {number} top
   * @param {number} left
   * @param {number} rows
   * @param {number} columns
   */
  async function zoom(top, left, rows, columns) {
    try {
      part = decode(await tw.ask(model, { type: "errors-window", top, left, rows, columns }));
      message.textContent = "";
    } catch (error) {
      message.textContent = error.message;
    }
    at = null;
    draw();
  }

  function choose(/** @type {number} */ row, /** @type {number} */ column) {
    const cell = row * part.cells[1] + column;
    if (part.place[cell] < 0) return;
    if (part.step > 1) {
      const side = Math.max(16, part.step);
      /**
       * @param {number} first
       * @param {number} number
       * @param {number} all
       */
      const middle = (first, number, all) =>
        Math.max(0, Math.min(first + (number + 0.5) * part.step - side / 2, all - side));
      zoom(Math.floor(middle(part.top, row, data.height)),
        Math.floor(middle(part.left, column, data.width)), side, side);
      return;
    }
    const line = part.owners.line[cell];
    const selection = { buffer: data.output, element: element(part.place[cell]) };
    tw.set(model, { selection: line > 0 ? { line, ...selection } : selection });
  }

  function element(/** @type {number} */ place) {
    return data.shape.map((/** @type {number} */ extent, /** @type {number} */ d) => {
      const below = data.shape.slice(d + 1).reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
      return Math.floor(place / below) % extent;
    });
  }

  function fill(/** @type {number} */ cell) {
    const level = part.level[cell];
    if (level <= 0 || part.place[cell] < 0) return null;
    if (colour === "error") return COLOURS.one.map((c, i) => c + (COLOURS.bad[i] - c) * (level / LEVELS));
    const owner = part.owners[colour][cell];
    return owner < 0 ? null : category(data.palette, owner);
  }

  function draw() {
    if (!root.clientWidth) return;
    const { step, cells: [rows, columns] } = part;
    const { line } = model.get("selection");
    /**
     * @param {number} row
     * @param {number} column
     */
    const cellOf = (row, column) => row * columns + column;
    figure.caption.textContent = `${data.output} ${data.shape.join("×")}` +
      (step > 1 ? `, a cell is ${step}×${step} elements` : "");
    figure.below.textContent = colour === "error"
      ? "Coloured: wrong, the redder the larger the error (logarithm). Grey: right."
      : `Coloured: wrong, by the ${colour} that wrote it last. Grey: right, or not known.`;
    whole.disabled = rows * step >= data.height && columns * step >= data.width;
    grid.show({
      rows, columns, letters: 3, most: [18, 18],
      rowName: (/** @type {number} */ row) => String(part.top + row * step),
      columnName: (/** @type {number} */ column) => String(part.left + column * step),
      cell: (/** @type {number} */ row, /** @type {number} */ column) => {
        const cell = cellOf(row, column);
        if (part.place[cell] < 0) return undefined;
        const colours = fill(cell);
        if (!colours) return null;
        const owner = colour === "error" ? "" : String(part.owners[colour][cell]);
        return { fill: colours, text: owner,
          mark: line > 0 && data.lines.length > 1 && part.owners.line[cell] === line ? "pin" : undefined };
      },
      label: `${data.output}: ${data.sentence}`,
    }, list.roomOf(root));
    describe();
  }

  function describe() {
    info.replaceChildren();
    if (at === null || part.place[at] < 0) {
      info.append(tw.faint("Point at a cell to see its worst element."));
      return;
    }
    const cell = at;
    const index = element(part.place[cell]);
    info.append(tw.el("b", {}, `${data.output}[${index.join(", ")}]`));
    if (part.level[at] <= 0) {
      info.append(tw.div("", "right"));
      return;
    }
    const rows = [["got", part.got[at]], ["expected", part.expected[at]],
      ...data.owners.map((/** @type {string} */ name) => [name, part.owners[name][cell]]).filter((/** @type {[string, any]} */ [, value]) => value !== -1)];
    if (part.step > 1) rows.push(["wrong in this cell", part.wrong[at]]);
    info.append(tw.el("table", { class: "tw-data" }, tw.el("tbody", {}, ...rows.map(([name, value]) =>
      tw.el("tr", {}, tw.el("td", {}, name), tw.el("td", {}, String(value)))))));
  }

  async function search() {
    bisect.disabled = true;
    try {
      let state = await tw.ask(model, { type: "errors-bisect", start: true });
      while (!state.said) {
        found.textContent = `${state.done} of ${state.total} stages`;
        state = await tw.ask(model, { type: "errors-bisect" });
      }
      found.textContent = state.said;
      if (state.sentence) sentence.textContent = `⚠ ${state.sentence}`;
    } catch (error) {
      found.textContent = error.message;
    }
    bisect.disabled = false;
  }

  scope.on("change:selection", draw);
  watch(root, scope, draw);
  draw();
  return scope.dispose;
}
