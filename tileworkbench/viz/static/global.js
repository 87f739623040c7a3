// Accesses of global memory: the sectors that the lanes of a request touch.
import * as tw from "./common.js";
import * as list from "./accesses.js";
import { decode } from "./banks.js";
import { COLOURS, CellGrid, category } from "./cells.js";
import { render as renderLines } from "./lines.js";
import { LINE, SECTOR, units, warps } from "./memory.js";
import { watch } from "./redraw.js";

const MOST_LINES = 40;
const PARTS = LINE / SECTOR;

/** @param {ViewArguments} given */
export function render({ model, el, data }) {
  if (data.unit === "line") return renderLines({ model, el, data });
  const root = tw.root(el, "global");
  const scope = tw.scope(model);
  const { accesses } = decode(data);
  const tensors = new Map(data.tensors.map((/** @type {Fields} */ tensor) => [tensor.name, tensor]));
  /** @type {any} */
  const shown = { access: null, warps: [], at: 0, lane: null };
  const names = [...new Set(accesses.map((/** @type {Access} */ access) => access.buffer))];
  const table = list.accessTable({
    heads: ["bytes of a lane", "requests", "sectors", "needed"],
    groups: names.map((name) => ({
      name,
      note: describeTensor(tensors.get(name)),
      accesses: accesses.filter((/** @type {Access} */ access) => access.buffer === name).map((/** @type {Access} */ access) => ({
        index: access.index, line: access.line, side: access.side, described: access.kind,
        used: access.sectors, ideal: access.ideal, bad: access.sectors > access.ideal,
        cells: [access.width, access.count, access.sectors, access.ideal].map(String),
      })),
    })),
    choose: (/** @type {number} */ index) => choose(index, true),
  });
  const slider = list.stepper("request", (/** @type {number} */ at) => { shown.at = at; shown.lane = null; draw(); });
  const [heading, why, place] = [tw.div("tw-heading"), tw.div("tw-sentence tw-why"),
    tw.span("tw-phase-place")];
  const degree = tw.span("tw-degree");
  const lines = pictured(), lanes = pictured();
  const info = tw.div("tw-info");
  root.append(verdict(), tw.about(data.about), table.node, list.notListed(data.unlisted), heading, why,
    tw.div("tw-bar", slider.node, place, degree),
    tw.div("tw-figures", lines.figure.node, tw.div("tw-beside", info, lanes.figure.node)));

  function describeTensor(/** @type {Fields} */ tensor) {
    return tensor ? `${tensor.dtype} ${tensor.shape.map((/** @type {number} */ extent) => extent ?? "?").join("×")}` : "";
  }

  function verdict() {
    const bad = accesses.filter((/** @type {Access} */ access) => access.sectors > access.ideal);
    if (!bad.length) return tw.div("tw-finding tw-is-good",
      "✓ Every sector that is moved is used whole.");
    const [first] = [...bad].sort((a, b) => b.sectors - b.ideal - (a.sectors - a.ideal));
    return tw.div("tw-finding tw-is-bad", `⚠ ${bad.length === 1 ? "1 access moves"
      : `${bad.length} accesses move`} more sectors than needed. The costliest: ${first.kind} of ` +
      `${first.buffer}${first.line ? ` on line ${first.line}` : ""} moves ${first.sectors} where ` +
      `${first.ideal} would do (${(first.sectors / first.ideal).toFixed(2)}×).`);
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
    shown.access = access;
    shown.warps = access.requests.flatMap((/** @type {AccessRequest} */ request, /** @type {number} */ number) =>
      warps(request.addresses, access).map((warp) => ({ ...warp, request, number })));
    const excess = (/** @type {WarpRequest} */ warp) => warp.sectors.length - warp.ideal;
    const most = Math.max(...shown.warps.map(excess));
    [shown.at, shown.lane] = [shown.warps.findIndex((/** @type {WarpRequest} */ warp) => excess(warp) === most), null];
    slider.limit(shown.warps.length);
    heading.textContent = `${access.buffer}: ${access.kind}` +
      `${access.line ? `, line ${access.line}` : ""} – ${access.sectors} sectors, ` +
      `${access.ideal} needed`;
    why.textContent = `${access.why}.`;
    draw();
    if (tell) tw.set(model, { selection: { line: access.line, buffer: access.buffer } });
  }

  function draw() {
    const warp = shown.warps[shown.at];
    if (!warp || !root.clientWidth) return;
    slider.set(shown.at);
    const { times } = warp.request;
    place.textContent = `request ${shown.at + 1} of ${shown.warps.length}` +
      (times > 1 ? `, done ${times} times` : "") + ` · ${data.memory.called} ${warp.warp}`;
    const bad = warp.sectors.length > warp.ideal;
    degree.className = `tw-degree tw-chip ${bad ? "tw-bad" : "tw-good"}`;
    degree.textContent = `${warp.sectors.length} sectors, ${warp.ideal} needed`;
    /** @type {[any, (...given: any[]) => any][]} */
    const pictures = [[lines, linesPicture], [lanes, lanesPicture]];
    for (const [each, make] of pictures) {
      each.picture = make(warp);
      each.figure.caption.textContent = each.picture.title;
      each.figure.below.textContent = each.picture.note;
      each.grid.show(each.picture, list.roomOf(root));
    }
    describe(warp);
  }

  /** The bytes of a sector that lanes access. */
  function usedOf(/** @type {WarpRequest} */ warp, /** @type {number} */ sector) {
    const used = new Set();
    for (const address of warp.addresses)
      for (let byte = address; byte < address + shown.access.width; byte++)
        if (Math.floor(byte / SECTOR) === sector) used.add(byte);
    return used.size;
  }

  /**
   * @param {WarpRequest} warp
   * @param {number} sector
   */
  const lanesOf = (warp, sector) => warp.lanes.filter((/** @type {number} */ _, /** @type {number} */ i) =>
    units(warp.addresses[i], shown.access.width, SECTOR).includes(sector));

  /** A row per 128-byte line that is touched, a column per sector of it. */
  function linesPicture(/** @type {WarpRequest} */ warp) {
    const touched = [...new Set(warp.sectors.map((/** @type {number} */ sector) => Math.floor(sector / PARTS)))];
    const rows = Math.min(touched.length, MOST_LINES);
    /**
     * @param {number} row
     * @param {number} column
     */
    const at = (row, column) => touched[row] * PARTS + column;
    return {
      title: "Lines of 128 bytes × sector of 32 bytes",
      note: "In a cell: the bytes of the sector that are used, and by which lanes. Red: moved, and " +
        "used in part." + (rows < touched.length ? ` The first ${rows} of ${touched.length} lines.` : ""),
      most: [132, 18],
      letters: 19,
      rows,
      columns: PARTS,
      rowName: (/** @type {number} */ row) => `byte ${touched[row] * LINE}`,
      columnName: (/** @type {number} */ column) => `sector ${column}`,
      lane: (/** @type {number} */ row, /** @type {number} */ column) => lanesOf(warp, at(row, column))[0] ?? null,
      cell(/** @type {number} */ row, /** @type {number} */ column) {
        const sector = at(row, column);
        if (!warp.sectors.includes(sector)) return null;
        const [used, mine] = [usedOf(warp, sector), lanesOf(warp, sector)];
        const text = mine.length > 1 ? `${used} B · lanes ${mine[0]}–${mine.at(-1)}`
          : `${used} B · lane ${mine[0]}`;
        return { fill: used < SECTOR ? COLOURS.bad : COLOURS.good, text,
          mark: mine.includes(shown.lane) ? "pin" : undefined };
      },
      label: `lines by sectors: ${warp.sectors.length} sectors touched, ${warp.ideal} needed`,
    };
  }

  /** The lanes of a warp with their addresses. */
  function lanesPicture(/** @type {WarpRequest} */ warp) {
    const [columns, lanes] = [8, data.memory.warp];
    return {
      title: `The ${lanes} lanes and the first byte of each`,
      note: "Lanes of one colour begin in the same sector. Bytes are counted from the tensor's " +
        "beginning, in block (0, 0, 0).",
      most: [76, 18],
      letters: 7,
      rows: lanes / columns,
      columns,
      rowName: (/** @type {number} */ row) => `lanes ${row * columns}–${row * columns + columns - 1}`,
      columnName: (/** @type {number} */ column) => `+${column}`,
      lane: (/** @type {number} */ row, /** @type {number} */ column) => {
        const lane = row * columns + column;
        return warp.lanes.includes(lane) ? lane : null;
      },
      cell(/** @type {number} */ row, /** @type {number} */ column) {
        const lane = row * columns + column;
        const i = warp.lanes.indexOf(lane);
        if (i < 0) return null;
        const sector = Math.floor(warp.addresses[i] / SECTOR);
        return { fill: category(data.palette, warp.sectors.indexOf(sector)),
          text: String(warp.addresses[i]), mark: lane === shown.lane ? "pin" : undefined };
      },
      label: `the first byte of each lane of ${data.memory.called} ${warp.warp}`,
    };
  }

  function describe(/** @type {WarpRequest} */ warp) {
    const { access, lane } = shown;
    const i = warp.lanes.indexOf(lane);
    if (i < 0) {
      const moved = warp.sectors.length * SECTOR;
      const used = warp.sectors.reduce((/** @type {number} */ sum, /** @type {number} */ sector) => sum + usedOf(warp, sector), 0);
      list.fill(info, tw.div("tw-panel-title", "This request"),
        list.row("lanes that take part", `${warp.lanes.length}`),
        list.row("bytes moved", `${moved}`), list.row("bytes used", `${used}`,
          used < moved ? "tw-is-bad" : ""),
        tw.div("tw-hint tw-faint", "Point at a cell to see its lane."));
      return;
    }
    const address = warp.addresses[i];
    const tensor = tensors.get(access.buffer);
    const known = tensor?.dense && tensor.shape.every((/** @type {number} */ extent) => extent !== null);
    const element = tensor ? Math.floor((address * 8) / tensor.bits) : null;
    list.fill(info, tw.div("tw-panel-title", `lane ${lane} of ${data.memory.called} ${warp.warp}`),
      known ? list.row("element", list.elementName(tensor.name, tensor.shape, /** @type {number} */ (element),
        Math.max((access.width * 8) / tensor.bits, 1))) : null,
      list.row("bytes", `${address}–${address + access.width - 1}`),
      list.row("sectors", units(address, access.width, SECTOR).join(", ")),
      list.row("line of 128 bytes", `${Math.floor(address / LINE)}`),
      warp.request.register ? list.row("register", warp.request.register) : null);
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
  const costly = accesses.reduce((/** @type {Access} */ a, /** @type {Access} */ b) =>
    b.sectors - b.ideal > a.sectors - a.ideal ? b : a, accesses[0]);
  choose(costly.index, false);
  select();
  return scope.dispose;
}
