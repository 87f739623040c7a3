// Which elements of each tensor the blocks of a call touch; what one block and its threads do.
import * as tw from "./common.js";
import * as list from "./accesses.js";
import { CellGrid, category, ramp } from "./cells.js";
import { watch } from "./redraw.js";

const MOST = 64; // blocks along each side of the picture of the launch
const WAYS = {
  block: "by the first block",
  blocks: "by the number of blocks",
  times: "by how often",
};
const OF_ONE = { mine: "by how often", warp: "by warp", thread: "by thread" };

/** @param {ViewArguments} given */
export function render({ model, el, data }) {
  const root = tw.root(el, "footprint");
  const scope = tw.scope(model);
  if (data.recorded) show(root, scope, model, data);
  else root.append(record());
  return scope.dispose;

  function record() {
    const said = tw.span("tw-sentence");
    const button = tw.button("Record", async () => {
      button.disabled = true;
      said.textContent = "Simulating a call …";
      try {
        const made = await tw.ask(model, { type: "footprint-record" });
        root.replaceChildren();
        show(root, scope, model, made);
      } catch (error) {
        said.textContent = error.message;
        button.disabled = false;
      }
    });
    return tw.div("tw-bar", button, tw.span("", "Run a call in the simulator, and count which " +
      "elements of each tensor its blocks and threads touch."), said);
  }
}

/**
 * @param {HTMLElement} root
 * @param {Scope} scope
 * @param {Model} model
 * @param {Fields} data
 */
function show(root, scope, model, data) {
  const message = tw.div("tw-sentence");
  let way = "block";
  let chosen = -1; // the block whose elements are shown alone
  /** @type {{ at: number[], threads: boolean } | null} */
  let alone = null;
  const figures = data.figures.map(figureOf);
  const launch = launchPicture();
  const ways = tw.el("select", { class: "tw-select", "aria-label": "Colour",
    onchange: () => { way = ways.value; draw(); } });
  const everyone = tw.button("All blocks", () => choose(-1));
  const fit = tw.button("Zoom to the block", () => ask(true));
  const whole = tw.button("Whole tensors", () => {
    for (const each of figures) each.part = { ...each.part, ...wholeOf(each) };
    ask(false);
  });
  root.append(
    tw.div(data.recorded.includes("because") ? "tw-finding tw-is-bad" : "tw-finding tw-is-good",
      `Recorded ${data.recorded}`),
    tw.div("tw-sentence", `Counted on ${data.inputs}. Point at a cell to see who touches it; click it to choose its block.`),
    tw.div("tw-bar", ways, everyone, fit, whole, launch.stepper ?? ""), message,
    tw.div("tw-figures", launch.node ?? "", ...figures.map((/** @type {Fields} */ { figure }) => figure.node)),
    tw.div("tw-heading", "Loads of each element"), reuseTable(),
    tw.div("tw-heading", "Masked lanes by line"), lineTable());
  offer();
  if (!data.figures.length) message.textContent = "No element of a tensor was touched.";

  function figureOf(/** @type {Fields} */ given) {
    const canvas = list.canvas();
    const made = { ...given, figure: list.figure("", canvas, ""), part: decode(given.window),
      told: tw.el("div", { class: "tw-figure-note tw-cell-told", "aria-live": "polite" }),
      /** @type {number | null} */ at: null,
      grid: /** @type {any} */ (null) };
    made.grid = new CellGrid(canvas, {
      hover: (row, column = 0) => {
        made.at = row === null ? null : row * made.part.cells[1] + column;
        describe(made);
      },
      choose: (row, column) => {
        const cell = row * made.part.cells[1] + column;
        if (made.part.block[cell] >= 0) choose(made.part.block[cell]);
      },
    });
    made.figure.node.append(made.told);
    return made;
  }

  function decode(/** @type {Fields} */ part) {
    const made = { ...part };
    for (const name of ["block", "blocks", "times", "touched", "mine", "thread", "threads"])
      if (part[name]) made[name] = Array.from(tw.table(part[name]),
        (value) => (value === part[name].empty ? -1 : value));
    return made;
  }

  /** @param {{ rows: number, columns: number }} given */
  const wholeOf = ({ rows, columns }) => ({ top: 0, left: 0, rows, columns });

  /** The blocks of the launch as cells, or numbers where these are too many. */
  function launchPicture() {
    const [columns = 1, ...more] = data.grids[0] ?? [];
    const rows = more.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
    if (data.grids.length !== 1 || rows > MOST || columns > MOST) {
      const stepper = list.stepper("block", choose);
      stepper.limit(data.blocks);
      return { stepper: stepper.node, draw: () => stepper.set(Math.max(chosen, 0)) };
    }
    const canvas = list.canvas();
    const figure = list.figure(`blocks ${data.grids[0].join("×")}`, canvas,
      "Choose one to see its elements alone.");
    const grid = new CellGrid(canvas, { hover: () => {},
      choose: (row, column = 0) => choose(row * columns + column) });
    return { node: figure.node, draw: () => grid.show({
      rows, columns, letters: String(data.blocks - 1).length, most: [34, 22],
      rowName: String, columnName: String,
      cell: (/** @type {number} */ row, /** @type {number} */ column) => {
        const number = row * columns + column;
        return { fill: category(data.palette, number), text: String(number),
          mark: number === chosen ? "pin" : undefined };
      },
      label: `the blocks of the launch, ${data.grids[0].join(" by ")}` +
        (chosen >= 0 ? `; block ${chosen} is chosen` : ""),
    }, list.roomOf(root)) };
  }

  function choose(/** @type {number} */ number) {
    chosen = number;
    alone = null;
    ask(false);
  }

  /** New windows of all pictures. */
  async function ask(/** @type {boolean} */ fitted) {
    const wanted = chosen;
    message.textContent = "";
    try {
      const windows = figures.map((/** @type {Fields} */ { part: { top, left, rows, columns } }) => [top, left, rows, columns]);
      const answer = await tw.ask(model,
        { type: "footprint-windows", windows, block: wanted, fit: fitted });
      if (wanted !== chosen) return; // another block was chosen since
      answer.windows.forEach((/** @type {Fields} */ window, /** @type {number} */ i) => {
        const part = decode(window);
        if (place(part) !== place(figures[i].part)) figures[i].at = null; // the cell is another one
        figures[i].part = part;
      });
      alone = wanted < 0 ? null : { at: answer.at, threads: answer.threads };
    } catch (error) {
      message.textContent = error.message;
      chosen = alone ? wanted : -1;
    }
    offer();
    draw();
  }

  /** Which elements a window shows. */
  const place = (/** @type {Fields} */ { top, left, step, cells }) => String([top, left, step, ...cells]);

  /** What the pictures can be coloured by. */
  function offer() {
    const all = !alone ? WAYS : alone.threads ? OF_ONE : { mine: OF_ONE.mine };
    if (!(way in all)) way = Object.keys(all)[0];
    ways.replaceChildren(...Object.entries(all).map(([value, text]) =>
      tw.el("option", { value, selected: value === way }, `colour ${text}`)));
    everyone.disabled = fit.disabled = !alone;
  }

  /** @returns {[number[], string] | null} colour and text */
  function fill(/** @type {Fields} */ part, /** @type {number} */ cell, /** @type {number} */ top) {
    if (alone) {
      if (!(part.mine?.[cell] > 0)) return null;
      if (way === "mine") return [ramp(data.palette, part.mine[cell], top), String(part.mine[cell])];
      const thread = part.thread[cell];
      if (thread < 0) return [ramp(data.palette, 0, 1), ""];
      const value = way === "warp" ? Math.floor(thread / data.warp) : thread;
      return [category(data.palette, value), `${value}${part.threads[cell] > 1 ? "+" : ""}`];
    }
    if (!(part.times[cell] > 0)) return null;
    if (way === "block") {
      const several = part.blocks[cell] > 1 ? `×${part.blocks[cell]}` : "";
      const block = part.block[cell];
      return [block < 0 ? ramp(data.palette, 0, 1) : category(data.palette, block), several];
    }
    return [ramp(data.palette, part[way][cell], top), String(part[way][cell])];
  }

  function draw() {
    if (!root.clientWidth) return;
    launch.draw();
    const { line } = model.get("selection");
    for (const each of figures) {
      const { part, figure, tensor, side, shape, run } = each;
      const [rows, columns] = part.cells;
      const counted = part[alone ? "mine" : way === "blocks" ? "blocks" : "times"];
      const top = Math.max(1, ...counted);
      const cells = [run > 1 ? `elements are counted in runs of ${run}` : "",
        part.step > 1 ? `a cell is ${part.step}×${part.step} ${run > 1 ? "runs" : "elements"}` : ""];
      figure.caption.textContent = [`${tensor} ${shape.join("×")}: ${side}`, ...cells]
        .filter(Boolean).join(", ");
      figure.below.textContent = note(side);
      const named = data.lines.some((/** @type {Fields} */ row) => row.line === line && row.tensor === tensor);
      figure.node.classList.toggle("tw-linked", line > 0 && named);
      each.grid.show({
        rows, columns, letters: 3, most: [18, 18],
        rowName: (/** @type {number} */ row) => String(part.top + row * part.step),
        columnName: (/** @type {number} */ column) => String((part.left + column * part.step) * run),
        cell: (/** @type {number} */ row, /** @type {number} */ column) => {
          const cell = row * columns + column;
          const found = fill(part, cell, top);
          return found && { fill: found[0], text: found[1] };
        },
        label: `${side} of ${tensor}, recorded ${data.recorded}` +
          (alone ? `, of block ${chosen} alone: ${count(part.mine)} cells` : ""),
      }, list.roomOf(root));
      describe(each);
    }
  }

  const count = (/** @type {number[]} */ values) => values.filter((/** @type {number} */ value) => value > 0).length;
  const verb = (/** @type {string} */ side) => (side === "loads" ? "loads" : "stores");

  function note(/** @type {string} */ side) {
    const grey = alone ? `Grey: block ${name()} does not touch it.` : "Grey: never touched.";
    return {
      block: `Colour: the first block that ${verb(side)} it; ×2: so many blocks do. ${grey}`,
      blocks: `Number: how many blocks ${side === "loads" ? "load" : "store"} it. ${grey}`,
      times: `Number: how often an element is ${side === "loads" ? "loaded" : "stored"}, by all blocks. ${grey}`,
      mine: `Number: how often block ${name()} ${verb(side)} an element. ${grey}`,
      warp: `Number: the warp of block ${name()} that ${verb(side)} it; +: several threads do. ${grey}`,
      thread: `Number: the thread of block ${name()} that ${verb(side)} it; +: several do. ${grey}`,
    }[way];
  }

  const name = () => (alone ? `(${alone.at.join(", ")})` : "");

  /** Below a picture: who touches the cell that is pointed at. */
  function describe(/** @type {Fields} */ { tensor, side, part, at, told, columns, run, shape }) {
    if (at === null || at === undefined) return told.replaceChildren();
    const [row, column] = [Math.floor(at / part.cells[1]), at % part.cells[1]];
    const first = (part.top + row * part.step) * columns + part.left + column * part.step;
    const many = part.step > 1 || run > 1;
    const facts = [many ? `${part.touched[at]} elements touched` : ""];
    if (part.times[at] > 0) facts.push(`${many ? "at most " : ""}${number(part.times[at], side.slice(0, -1))} of one`,
      `${number(part.blocks[at], "block")}, the first is ${part.block[at]}`);
    if (alone) facts.push(part.mine[at] > 0 ? `by block ${name()}: ${part.mine[at]}` : `not by block ${name()}`);
    if (alone && part.mine[at] > 0 && part.thread[at] >= 0)
      facts.push(`thread ${part.thread[at]}${part.threads[at] > 1 ? ` of ${part.threads[at]}` : ""}`);
    return told.replaceChildren(tw.el("b", {}, `${tensor}[${element(shape, first * run).join(", ")}]`),
      `${many ? " and its neighbours" : ""}: ${facts.filter(Boolean).join(" · ") || "never touched"}`);
  }

  const number = (/** @type {number} */ count, /** @type {string} */ what) => `${count} ${what}${count === 1 ? "" : "s"}`;

  function element(/** @type {number[]} */ shape, /** @type {number} */ place) {
    return shape.map((/** @type {number} */ extent, /** @type {number} */ d) => {
      const below = shape.slice(d + 1).reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
      return Math.floor(place / below) % extent;
    });
  }

  function table(/** @type {string[]} */ heads, /** @type {any[]} */ rows) {
    const head = heads.some(Boolean) ? tw.el("thead", {}, tw.el("tr", {},
      ...heads.map((/** @type {string} */ text) => tw.el("th", { scope: "col" }, text)))) : "";
    return tw.el("table", { class: "tw-data" }, head, tw.el("tbody", {}, ...rows.map((/** @type {any[]} */ cells) =>
      tw.el("tr", {}, ...cells.map((/** @type {number} */ cell) => tw.el("td", {}, typeof cell === "number" ? String(cell) : cell))))));
  }

  function reuseTable() {
    /** @param {number} value */
    const times = (value) => (value ? `${Number(value.toPrecision(3))}×` : "–");
    return table(["", "elements loaded", "stored", "never touched", "loads", "loads of each", "most"], [
      ...data.tensors.map((/** @type {Fields} */ row) => [row.tensor, row.loaded, row.stored, row.untouched, row.loads,
        times(row.reuse), times(row.most_loads)]),
      ...data.tiles.map((/** @type {Fields} */ row) => [`${row.tile} (shared)`, "–", row.stores || "–", "–", row.loads,
        times(row.reuse), "–"])]);
  }

  function lineTable() {
    const go = (/** @type {number} */ line) => () => tw.set(model, { selection: { line } });
    return table(["line", "access", "lanes", "take part", "masked"], data.lines.map((/** @type {Fields} */ row) => [
      row.line ? tw.link(`line ${row.line}`, go(row.line)) : "–", `${row.access} ${row.tensor}`,
      row.lanes, row.active, `${(100 * row.masked).toFixed(1)} %`]));
  }

  scope.on("change:selection", draw);
  watch(root, scope, draw);
  draw();
}
