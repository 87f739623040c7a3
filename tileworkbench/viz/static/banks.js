// Bank conflicts: the accesses of shared memory, and for a phase of one of them who goes where.
import * as tw from "./common.js";
import * as list from "./accesses.js";
import { cardPicture, memoryPicture, tilePicture } from "./bankpictures.js";
import { CellGrid } from "./cells.js";
import { render as renderLines } from "./lines.js";
import { NOBODY, WORD, collisions, phaseCost, phases, rearranged, sharedCost, units } from "./memory.js";
import { readIndex } from "./places.js";
import { whatIf } from "./whatif.js";
import { watch } from "./redraw.js";

/** The accesses and tiles of the model, tables decoded. */
export function decode(/** @type {Fields} */ data) {
  const { threads, empty } = data.patterns;
  const table = threads ? tw.table(data.patterns) : [];
  const tiles = new Map((data.tiles ?? []).map((/** @type {Fields} */ tile) => [tile.name, {
    ...tile, layout: { ...tile.layout, table: tw.table(tile.layout.table) } }]));
  const accesses = data.accesses.map((/** @type {Fields} */ access, /** @type {number} */ index) => {
    const { pattern, base, times, register } = access.requests;
    const requests = pattern.map((/** @type {number} */ number, /** @type {number} */ i) => ({
      times: times[i],
      register: register[i],
      addresses: Int32Array.from(table.slice(number * threads, (number + 1) * threads),
        (offset) => (offset === empty ? NOBODY : base[i] + offset)),
    }));
    return { ...access, index, requests, memory: data.memory };
  });
  return { tiles, accesses };
}

/**
 * @param {number} count
 * @param {string} one
 * @param {string} more
 */
const many = (count, one, more) => `${count} ${count === 1 ? one : more}`;

/** @param {ViewArguments} given */
export function render({ model, el, data }) {
  if (data.unit === "line") return renderLines({ model, el, data, name: "banks" });
  const root = tw.root(el, "banks");
  const scope = tw.scope(model);
  const { tiles, accesses } = decode(data);
  /** @type {any} */
  const shown = { access: null, phases: [], at: 0, lane: null, pinned: null, element: "" };

  const table = list.accessTable({
    heads: ["bytes", "requests", "wavefronts", "needed", "worst phase"],
    groups: [...tiles.values()].map((tile) => ({
      name: tile.name,
      note: `${tile.dtype} ${tile.shape.join("×")}` +
        (tile.versions > 1 ? `, ${tile.versions} versions` : "") + ` · ${tile.layout.text}`,
      accesses: accesses.filter((/** @type {Access} */ access) => access.tile === tile.name).map(rowOf),
    })),
    choose: (/** @type {number} */ index) => choose(index, true),
  });
  const heading = tw.div("tw-heading");
  const slider = list.stepper("phase", (/** @type {number} */ at) => move(at));
  const place = tw.span("tw-phase-place");
  const degree = tw.span("tw-degree");
  const worst = tw.button("Worst phase", () => move(worstPhase()));
  const search = tw.el("input", { class: "tw-input tw-find-element", placeholder: "element, e.g. 3, 8",
    "aria-label": "Show the phase that accesses an element", onchange: () => find(search.value),
    onkeydown: (/** @type {Pressed} */ event) => event.key === "Enter" && find(search.value) }); // JupyterLab takes Enter
  const previewed = tw.span("tw-previewed");
  const card = pictured((/** @type {number} */ row, /** @type {number} */ column) => laneOfCard(row, column));
  const memory = pictured((/** @type {number} */ row, /** @type {number} */ column) => laneAt(memory.picture.byte(row, column)));
  const tile = pictured((/** @type {number} */ row, /** @type {number} */ column) => laneAt(tile.picture.byte(row, column)));
  const info = tw.div("tw-info", "");
  const panel = whatIf({ model, tiles, accesses, preview: () => refresh() });
  root.append(
    verdict(), tw.about(data.about), table.node, list.notListed(data.unlisted), heading,
    tw.div("tw-bar", slider.node, place, degree, worst, search, previewed),
    tw.div("tw-figures", card.figure.node, info, memory.figure.node, tile.figure.node), panel.node);

  function rowOf(/** @type {Access} */ access) {
    const { wavefronts, ideal, degree: most, count } = access;
    return {
      index: access.index, line: access.line, side: access.side, used: wavefronts, ideal,
      described: access.buffer === access.tile ? access.kind : `${access.kind} as ${access.buffer}`,
      bad: wavefronts > ideal,
      cells: [String(access.width), String(count), String(wavefronts), String(ideal),
        most > 1 ? `${most}-way` : "1"],
    };
  }

  /** Whether something conflicts, in one sentence that cannot be overlooked. */
  function verdict() {
    const bad = accesses.filter((/** @type {Access} */ access) => access.wavefronts > access.ideal);
    if (!bad.length) return tw.div("tw-finding tw-is-good", "✓ No bank conflicts: every access of " +
      "shared memory takes the wavefronts that its bytes need.");
    const [first] = [...bad].sort((a, b) => b.wavefronts - b.ideal - (a.wavefronts - a.ideal));
    const where = first.line ? ` on line ${first.line}` : "";
    return tw.div("tw-finding tw-is-bad", `⚠ Bank conflicts in ${many(bad.length, "access",
      "accesses")}. The costliest: ${first.kind} of ${first.tile}${where} takes ${first.wavefronts} ` +
      `wavefronts where ${first.ideal} would do (${(first.wavefronts / first.ideal).toFixed(2)}×).`);
  }

  /** @returns {any} */
  function pictured(/** @type {(row: number, column: number) => number | null} */ laneOf) {
    const canvas = list.canvas();
    const figure = list.figure("", canvas, "");
    const grid = new CellGrid(canvas, {
      hover: (row, column) => hover(row === null ? null : laneOf(row, /** @type {number} */ (column))),
      choose: (row, column) => pin(laneOf(row, column), row, column, made),
    });
    const made = { canvas, figure, grid, picture: null };
    return made;
  }

  // What is shown

  function choose(/** @type {number} */ index, /** @type {boolean} */ tell) {
    const access = accesses[index];
    if (!access) return;
    panel.open(access);
    table.mark(index);
    shown.access = access;
    shown.pinned = null;
    refresh(true);
    if (tell) tw.set(model, { selection: { line: access.line, buffer: access.tile } });
  }

  /** The access as it is shown: under the layout and width that are tried out, or as compiled. */
  function refresh(first = false) {
    const own = tiles.get(shown.access.tile);
    const tried = panel.tried();
    const moved = tried ? rearranged(own, shown.access, tried.layout, tried.width) : shown.access;
    shown.problem = moved.problem ?? "";
    shown.moved = moved.problem ? shown.access : moved;
    shown.layout = tried && !moved.problem ? tried.layout : own.layout;
    previewed.replaceChildren(...(tried
      ? [tw.chip(shown.problem ? `not possible: ${shown.problem}` : `tried out: ${tried.name}`,
        shown.problem ? "tw-bad" : "tw-accent"), tw.link("as compiled", () => panel.reset())]
      : []));
    shown.phases = shown.moved.requests.flatMap((/** @type {AccessRequest} */ request, /** @type {number} */ number) =>
      phases(request.addresses, shown.moved).map((phase) => ({ ...phase, request, number,
        ...phaseCost(phase, shown.moved) })));
    numberRequests();
    slider.limit(shown.phases.length);
    const { wavefronts, ideal } = sharedCost(shown.moved);
    heading.textContent = `${shown.access.tile}: ${shown.access.kind}` +
      `${shown.access.line ? `, line ${shown.access.line}` : ""} – ${wavefronts} wavefronts, ` +
      `${ideal} needed`;
    move(first ? worstPhase() : Math.min(shown.at, shown.phases.length - 1));
  }

  /** A request is an instruction of one warp: those of the table without their repetitions. */
  function numberRequests() {
    const numbers = new Map();
    for (const phase of shown.phases) {
      const key = `${phase.number},${phase.warp}`;
      numbers.set(key, numbers.get(key) ?? numbers.size);
      phase.place = numbers.get(key);
    }
    shown.count = numbers.size;
  }

  function worstPhase() {
    const most = Math.max(...shown.phases.map((/** @type {Phase} */ phase) => phase.degree));
    return shown.phases.findIndex((/** @type {Phase} */ phase) => phase.degree === most);
  }

  function move(/** @type {number} */ at) {
    shown.at = at;
    shown.lane = null;
    slider.set(at);
    draw();
  }

  function draw() {
    const phase = shown.phases[shown.at];
    if (!phase || !root.clientWidth) return;
    const { times } = phase.request;
    place.textContent = `phase ${shown.at + 1} of ${shown.phases.length}` +
      (times > 1 ? `, done ${times} times` : "") +
      (shown.count > 1 ? ` · request ${phase.place + 1} of ${shown.count}` : "") +
      ` · ${data.memory.called} ${phase.warp} · lanes ${phase.lanes[0]}–${phase.lanes.at(-1)}`;
    degree.className = `tw-degree tw-chip ${phase.degree > phase.ideal ? "tw-bad" : "tw-good"}`;
    degree.textContent = phase.degree > phase.ideal
      ? `degree ${phase.degree}: ${phase.degree} wavefronts, ${phase.ideal} needed`
      : `degree ${phase.degree}: no conflict`;
    const scene = { ...shown, phase, tile: tiles.get(shown.access.tile), width: shown.moved.width, memory: data.memory,
      focus: shown.lane ?? shown.pinned, palette: data.palette };
    /** @type {[any, (...given: any[]) => any][]} */
    const pictures = [[card, cardPicture], [memory, memoryPicture], [tile, tilePicture]];
    for (const [each, make] of pictures) {
      each.picture = make(scene);
      each.figure.node.hidden = each.picture === null;
      if (!each.picture) continue;
      each.figure.caption.textContent = each.picture.title;
      each.grid.show(each.picture, list.roomOf(root)); // first: it knows which texts fit
      const { number, note } = each.picture;
      each.figure.below.textContent = number && each.grid.letterSize ? `${number} ${note}` : note;
    }
    describe(scene);
    root.dataset.degree = String(phase.degree);
  }

  // Lanes

  const laneOfCard = (/** @type {number} */ row, /** @type {number} */ column) => {
    const { phase } = { phase: shown.phases[shown.at] };
    const lane = phase.lanes[row];
    return [...(phase.banks.get(column)?.values() ?? [])].some((lanes) => lanes.includes(lane))
      ? lane : null;
  };

  /** The lane that accesses a byte in this phase. */
  function laneAt(/** @type {number} */ byte) {
    const { lanes, addresses } = shown.phases[shown.at];
    const at = addresses.findIndex((/** @type {number} */ address) => byte >= address && byte < address + shown.moved.width);
    return at < 0 ? null : lanes[at];
  }

  function hover(/** @type {number | null} */ lane) {
    if (lane === shown.lane) return;
    shown.lane = lane;
    draw();
  }

  /**
   * @param {number | null} lane
   * @param {number} row
   * @param {number} column
   * @param {any} made
   */
  function pin(lane, row, column, made) {
    shown.pinned = lane === shown.pinned ? null : lane;
    const element = made.picture.element?.(row, column);
    draw();
    if (!element) return;
    shown.element = String(element);
    tw.set(model, { selection: { line: shown.access.line, buffer: shown.access.tile, element } });
  }

  /** Go to the first phase in which an element is accessed. */
  function find(/** @type {string} */ text) {
    const own = tiles.get(shown.access.tile);
    const { index, problem } = readIndex(text, own);
    search.setCustomValidity("");
    if (!text.trim()) return;
    const inside = index !== null;
    const element = (index ?? []).reduce((/** @type {number} */ sum, /** @type {number} */ at, /** @type {number} */ d) => sum * own.shape[d] + at, 0);
    const byte = inside ? Math.floor((shown.layout.table[element] * own.bits) / 8) : -1;
    const size = Math.ceil((shown.layout.size * own.bits) / 8);
    const at = shown.phases.findIndex((/** @type {Phase} */ phase) => phase.addresses.some((/** @type {number} */ address) => {
      const from = (address - own.base) % size;
      return inside && byte >= from && byte < from + shown.moved.width;
    }));
    if (at < 0) {
      search.setCustomValidity(problem || "this access does not touch it");
      search.reportValidity();
      return;
    }
    move(at);
    const { addresses, lanes } = shown.phases[at];
    const which = addresses.findIndex((/** @type {number} */ address) => {
      const from = (address - own.base) % size;
      return byte >= from && byte < from + shown.moved.width;
    });
    shown.pinned = lanes[which];
    draw();
  }

  /**
   * Everything about the lane that is looked at.
   * @param {Scene & { focus: number }} given
   */
  function describe({ phase, focus, tile: own, width, layout }) {
    const i = phase.lanes.indexOf(focus);
    if (i < 0) {
      const busiest = [...phase.banks].filter(([, words]) => words.size === phase.degree);
      list.fill(info, tw.div("tw-panel-title", "This phase"),
        list.row("wavefronts", `${phase.degree}`, phase.degree > phase.ideal ? "tw-is-bad" : ""),
        list.row("needed", `${phase.ideal}`),
        list.row("busiest bank", busiest.length > 1
          ? `${busiest[0][0]} and ${busiest.length - 1} more` : `${busiest[0][0]}`),
        list.row("wanted of it", wordNames([...busiest[0][1].keys()])),
        tw.div("tw-hint tw-faint", "Point at a cell to see its lane, click to pin it. Arrow keys " +
          "walk through a picture that has the focus."));
      return;
    }
    const address = phase.addresses[i];
    const words = units(address, width, WORD);
    const hit = collisions(phase.banks, focus);
    const place = Math.floor(((address - own.base) * 8) / own.bits);
    const version = Math.floor(place / layout.size);
    const element = layout.table.indexOf(place % layout.size);
    /** @param {number[]} values */
    const range = (values) => values.length > 1 ? `${values[0]}–${values.at(-1)}` : `${values[0]}`;
    const same = sharers(phase, focus);
    list.fill(info, 
      tw.div("tw-panel-title", `lane ${focus} of ${data.memory.called} ${phase.warp}`,
        focus === shown.pinned ? tw.link("unpin", () => { shown.pinned = null; draw(); }) : null),
      list.row("element", list.elementName(own.name, own.shape, element,
        Math.max((width * 8) / own.bits, 1))),
      own.versions > 1 ? list.row("version", `${version}`) : null,
      list.row("bytes", `${address}–${address + width - 1}`),
      list.row("banks", range(words.map((word) => word % data.memory.banks))),
      list.row("words", range(words)),
      phase.request.register ? list.row("register", registerOf(phase)) : null,
      list.row("collides with", hit.length ? `lanes ${hit.join(", ")}` : "nobody",
        hit.length ? "tw-is-bad" : ""),
      same.length ? list.row("same word as", `lanes ${same.join(", ")}`) : null);
  }

  /**
   * @param {Phase} phase
   * @param {number} lane
   */
  const sharers = (phase, lane) => [...new Set([...phase.banks.values()].flatMap((words) =>
    [...words.values()].filter((lanes) => lanes.includes(lane)).flat()))]
    .filter((other) => other !== lane).sort((a, b) => a - b);

  /** The register of a lane; of a matrix its part, which all lanes of the warp hold together. */
  function registerOf(/** @type {Phase} */ phase) {
    const { register } = phase.request;
    if (!/matrix/.test(shown.access.kind)) return register;
    const [, name, from, to] = register.match(/^(.*)\[(\d+):(\d+)\]$/) ?? [];
    const parts = Number(shown.access.kind.match(/x(\d)/)?.[1] ?? 1);
    if (!name) return register;
    const size = (to - from) / parts;
    const first = Number(from) + phase.number * size;
    return `${name}[${first}:${first + size}] of the ${data.memory.called}`;
  }

  function select() {
    const selection = model.get("selection") ?? {};
    const first = table.select(selection);
    const same = shown.access && (!selection.line || shown.access.line === selection.line) &&
      (!selection.buffer || shown.access.tile === selection.buffer);
    if (first !== null && !same) choose(first, false);
    const { element } = selection;
    if (!element?.length || String(element) === shown.element) return;
    shown.element = String(element);
    if (shown.access.tile === selection.buffer) find(shown.element);
  }

  scope.on("change:selection", select);
  watch(root, scope, () => shown.access && draw());
  const costly = accesses.reduce((/** @type {Access} */ a, /** @type {Access} */ b) =>
    b.wavefronts - b.ideal > a.wavefronts - a.ideal ? b : a, accesses[0]);
  choose(costly?.index, false);
  select();
  return scope.dispose;
}

/** The words of a bank by their numbers: "word 0", "words 0, 32". */
function wordNames(/** @type {number[]} */ words) {
  const more = words.length > 8 ? ` and ${words.length - 8} more` : "";
  return `word${words.length > 1 ? "s" : ""} ${words.slice(0, 8).join(", ")}${more}`;
}
