// Time travel through one block: its statements on a slider, its memory after each, what went wrong.

import * as tw from "./common.js";
import { watch } from "./redraw.js";
import { pickLines } from "./keys.js";
import { Memory } from "./replaymemory.js";
import { BufferGrids, flying, legend, long, named, placeOf } from "./replaygrids.js";

const [LINE, KIND, TEXT, WHO, LOOPS, BLOCK, BARRIER] = [0, 1, 2, 3, 4, 5, 6];
const PLAY_MS = 350;
const COLOURED = { step: "what the step did", value: "value", thread: "owner thread", warp: "owner warp", line: "line that wrote it" };

/** @param {ViewArguments} given */
export function render({ model, el, data }) {
  const root = tw.root(el, "replay");
  const scope = tw.scope(model);
  const body = tw.div("tw-replay-body");
  const message = tw.div("tw-sentence", "");
  message.setAttribute("aria-live", "polite");
  const stage = tw.el("select", { class: "tw-select", "aria-label": "Stage", onchange: () => record() },
    ...data.stages.map((/** @type {string} */ name) => tw.el("option", { value: name }, name === "tile" ? "as written" : `after ${name}`)));
  const block = tw.el("input", { class: "tw-input", "aria-label": "Block", size: "8",
    title: "indices of the block, x first, or 'all'", onchange: () => record() });
  root.append(tw.about(data.about),
    tw.div("tw-bar", tw.el("label", {}, "block ", block), stage,
      tw.button("Record", () => record(), { title: "run this block in the simulator once more" })),
    message, body);
  /** @type {Dispose} */
  let end = () => {};
  scope.add(() => end());

  async function record() {
    message.textContent = "The simulator runs the block …";
    try {
      const answer = await tw.ask(model, { type: "replay-record", stage: stage.value, block: block.value });
      message.textContent = answer.error ?? "";
      if (!answer.error) open(answer);
    } catch (error) {
      message.textContent = error.message;
    }
  }

  function open(/** @type {Fields} */ replay) {
    end();
    stage.value = replay.stage;
    block.value = replay.blocks.map((/** @type {Fields} */ each) => each.join(", ")).join("; ");
    body.replaceChildren();
    end = replay.steps.length
      ? player({ model, body, root, data: { ...data, ...replay }, message })
      : (body.append(tw.div("tw-note", "The block executed no statement.")), () => {});
  }

  if (data.recorded) open(data);
  else record();
  return scope.dispose;
}

/**
 * One replay; returns what ends it.
 * @param {{ model: Model, body: HTMLElement, root: HTMLElement, data: any, message: HTMLElement }} given
 */
function player({ model, body, root, data, message }) {
  const { first, steps } = data;
  const last = first + steps.length - 1;
  const memory = new Memory(model, data.token, data.page, data.buffers);
  const scope = tw.scope(model);
  let step = data.start;
  let asked = 0;
  let timer = 0;
  const of = (/** @type {number} */ number) => steps[number - first];
  const source = tw.listing(data.source.lines, data.source.first, { class: "tw-replay-source" });
  const slider = tw.el("input", { type: "range", class: "tw-range tw-replay-slider", min: String(first - 1),
    max: String(last), "aria-label": "Step", oninput: () => go(Number(slider.value)),
    onkeydown: (/** @type {Event} */ event) => event.stopPropagation() });
  const where = tw.div("tw-replay-where");
  const info = tw.div("tw-info tw-replay-info");
  const events = tw.div("tw-replay-events");
  const play = tw.button("▶ Play", () => (timer ? pause() : start()), { title: "space" });
  const colour = tw.el("select", { class: "tw-select", "aria-label": "Colour by",
    onchange: () => {
      grids.colour = colour.value;
      meaning.hidden = colour.value !== "step";
      draw();
    } },
  ...Object.entries(COLOURED).map(([value, text]) => tw.el("option", { value }, `colour by ${text}`)));
  const grids = new BufferGrids(data, memory, { hover: describe, choose });
  const meaning = legend();
  const wrote = [tw.button("◀ write", () => write(true)), tw.button("write ▶", () => write(false))];
  wrote[0].title = "the last step before that writes the chosen element";
  wrote[1].title = "the next step that writes the chosen element (w)";
  body.append(
    ...data.notes.map((/** @type {string} */ note) => tw.div("tw-note", note)),
    ...data.moments.filter((/** @type {Moment} */ found) => found.kind !== "breakpoint").map(card),
    tw.div("tw-bar tw-replay-controls",
      tw.button("◀", () => go(step - 1), { "aria-label": "Step back", title: "left arrow" }),
      slider,
      tw.button("▶", () => go(step + 1), { "aria-label": "Step on", title: "right arrow" }),
      play,
      tw.button("◀ iteration", () => jump(-1, iteration), { title: "shift and left arrow" }),
      tw.button("iteration ▶", () => jump(1, iteration), { title: "shift and right arrow" }),
      data.moments.some((/** @type {Moment} */ found) => found.kind === "breakpoint")
        ? tw.button("breakpoint ▶", () => jump(1, stopped), { title: "to the next T.breakpoint()" }) : "",
      tw.button("barrier ▶", () => jump(1, barrier), { title: "to the next barrier (b)" }),
      ...wrote, colour),
    where, tw.div("tw-replay-two", source.node, tw.div("tw-replay-side", info, events)), meaning, grids.node,
    tw.faint("Keys: ← → a step, with shift an iteration; b next barrier; w next write of the chosen element; " +
      "space plays. A click on a line goes to its next step."));

  /** @param {number} at */
  const iteration = (at) => of(at)[TEXT] === of(clamped())[TEXT] && of(at)[BLOCK] === of(clamped())[BLOCK] &&
    of(at)[WHO] === of(clamped())[WHO];
  const stopped = (/** @type {number} */ at) => data.kinds[of(at)[KIND]] === "breakpoint";
  const barrier = (/** @type {number} */ at) => of(at)[BARRIER] === 1;
  const clamped = () => Math.max(step, first);

  /** What was found wrong, with a way to the moment it happened and to the other access. */
  function card(/** @type {Moment} */ found) {
    const lines = data.source.lines;
    const text = (/** @type {number} */ line) => lines[line - data.source.first]?.trim() ?? "";
    /**
     * @param {string} label
     * @param {number} at
     * @param {number} line
     * @param {number | null} thread
     */
    const side = (label, at, line, thread) => tw.div("tw-replay-access",
      at >= 0 ? tw.button(label, () => { select(found); go(at); }, { "data-step": String(at) }) : tw.span("tw-faint", label),
      tw.span("tw-mono", line ? `line ${line}: ` : "", line ? tw.code(text(line)) : ""),
      thread === null || thread === undefined ? "" : tw.chip(`thread ${thread}`));
    return tw.div("tw-replay-moment",
      tw.div("tw-finding tw-is-bad", `⚠ ${found.kind}: ${found.message}`),
      side(`Open step ${found.step}`, found.step, found.line, found.thread),
      found.otherLine ? side(found.other >= 0 ? `The other access, step ${found.other}` : "The other access",
        found.other, found.otherLine, found.otherThread) : "",
      found.hint ? tw.div("tw-replay-remedy", `→ ${found.hint}`) : "",
      tw.el("details", {}, tw.el("summary", {}, "The whole message"), tw.el("pre", { class: "tw-mono" }, found.text)));
  }

  /** Mark the element of a finding. */
  function select(/** @type {Moment} */ found) {
    const number = data.buffers.findIndex((/** @type {Fields} */ each) => each.name === found.buffer && !each.lanes);
    const place = number < 0 ? -1 : placeOf(data.buffers[number], found.index);
    grids.wrong = place < 0 ? null : { buffer: number, place };
  }

  async function go(/** @type {number} */ wanted) {
    const mine = ++asked;
    const target = Math.min(Math.max(wanted, first - 1), last);
    slider.value = String(target);
    try {
      await memory.go(target);
    } catch (error) {
      message.textContent = error.message;
      pause();
      return;
    }
    if (mine !== asked) return;
    step = target;
    draw();
  }

  /** To the next step (the last one before, with -1) for which `holds`. */
  function jump(/** @type {number} */ by, /** @type {(at: number) => boolean} */ holds) {
    for (let at = clamped() + by; at >= first && at <= last; at += by)
      if (holds(at)) return go(at);
    message.textContent = "There is no further one.";
    return undefined;
  }

  async function write(/** @type {boolean} */ back) {
    if (!grids.chosen) {
      message.textContent = "Click an element first.";
      return;
    }
    const answer = await tw.ask(model, { type: "replay-next-write", token: data.token, buffer: grids.chosen.buffer,
      place: grids.chosen.place + data.buffers[grids.chosen.buffer].start, step, back });
    if (answer.step < 0) message.textContent = `No ${back ? "earlier" : "later"} step writes ${named(data.buffers[grids.chosen.buffer], grids.chosen.place)}.`;
    else go(answer.step);
  }

  function start() {
    play.textContent = "❚❚ Pause";
    const stops = new Set(data.moments.map((/** @type {Moment} */ found) => found.step));
    timer = window.setInterval(() => {
      if (step >= last) pause();
      else go(step + 1).then(() => stops.has(step) && pause());
    }, PLAY_MS);
  }

  function pause() {
    window.clearInterval(timer);
    timer = 0;
    play.textContent = "▶ Play";
  }

  function choose(/** @type {number} */ buffer, /** @type {number} */ place) {
    grids.chosen = { buffer, place };
    const line = grids.lineOf(memory.writers[buffer][place]);
    const selection = { buffer: data.buffers[buffer].name, element: placeIndex(buffer, place) };
    tw.set(model, { selection: line > 0 ? { line, ...selection } : selection });
    describe(buffer, place);
    draw();
  }

  const placeIndex = (/** @type {number} */ buffer, /** @type {number} */ place) => {
    const { shape, origin } = data.buffers[buffer];
    return shape.map((/** @type {number} */ extent, /** @type {number} */ d) => origin[d] +
      (Math.floor(place / shape.slice(d + 1).reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1)) % extent));
  };

  let pointed = 0;
  async function describe(/** @type {number | null} */ buffer, /** @type {number} */ place) {
    const mine = ++pointed;
    if (buffer === null) {
      if (grids.chosen) describe(grids.chosen.buffer, grids.chosen.place);
      else info.replaceChildren(tw.faint("Point at a cell to see its value, its thread and who wrote it last; click it to follow it."));
      return;
    }
    const found = data.buffers[buffer];
    const writer = memory.writers[buffer][place];
    const owner = grids.ownerOf(found, place);
    const rows = [["value", writer === -1 ? "nothing yet" : long(memory.values[buffer][place])]];
    if (owner !== null && owner >= 0) rows.push(["owner", `thread ${owner}, warp ${Math.floor(owner / 32)} lane ${owner % 32}`]);
    const under = data.flights.find((/** @type {Fields} */ each) => each.buffer === buffer && flying(each, step) && each.decoded?.includes(place + found.start));
    if (under) rows.push(["under way", `${under.engine} of line ${under.line}, since step ${under.began}`]);
    /** @param {string} by */
    const show = (by) => info.replaceChildren(tw.el("b", { class: "tw-mono" }, named(found, place)),
      tw.el("table", { class: "tw-data" }, tw.el("tbody", {}, ...[...rows, ["written last", by]].map(([name, value]) =>
        tw.el("tr", {}, tw.el("td", {}, name), tw.el("td", {}, value))))));
    const before = writer === -2 ? "before the block began" : writer === -1 ? "never" : writer < first ? `before step ${first}` : "";
    show(before || `in step ${writer}`);
    if (before) return;
    const by = await tw.ask(model, { type: "replay-writer", token: data.token, buffer, place: place + found.start, step: writer }).catch(() => null);
    if (mine !== pointed || !by) return;
    show(`${by.line ? `line ${by.line}, ` : ""}step ${writer}${by.thread >= 0 ? `, by thread ${by.thread}` : ""}`);
  }

  function draw() {
    if (!root.clientWidth) return;
    const now = of(step);
    slider.value = String(step);
    slider.setAttribute("aria-valuetext", `step ${step} of ${last}`);
    const wrong = data.moments.filter((/** @type {Moment} */ found) => found.step === step);
    if (wrong.length) select(wrong[0]);
    else if (!data.moments.some((/** @type {Moment} */ found) => found.other === step)) grids.wrong = null;
    const { line } = model.get("selection") ?? {};
    source.rows.forEach((row) => row.classList.toggle("tw-current", line > 0 && Number(row.dataset.line) === line));
    source.mark(now?.[LINE] ? [now[LINE]] : []);
    where.replaceChildren(...(now ? [
      tw.el("b", {}, `Step ${step} of ${last}`), tw.chip(data.kinds[now[KIND]]),
      now[LINE] ? tw.chip(`line ${now[LINE]}`) : "", data.loops[now[LOOPS]] ? tw.chip(data.loops[now[LOOPS]]) : "",
      tw.chip(`block ${data.blocks[now[BLOCK]].join(", ")}`), data.who[now[WHO]] ? tw.chip(data.who[now[WHO]]) : "",
      ...wrong.map((/** @type {Moment} */ found) => tw.chip(found.kind, found.kind === "breakpoint" ? "tw-accent" : "tw-bad")),
      tw.div("tw-mono tw-replay-text", tw.code(data.texts[now[TEXT]]))] : [tw.el("b", {}, "Before the first step")]));
    grids.draw(root.clientWidth);
    tell();
    if (grids.chosen) describe(grids.chosen.buffer, grids.chosen.place);
  }

  /** What is under way and who waits. */
  function tell() {
    const flights = alike(data.flights.filter((/** @type {Fields} */ each) => flying(each, step)));
    const waits = data.waits.filter((/** @type {Fields} */ each) => flying(each, step));
    events.replaceChildren(
      ...flights.map(({ each, times }) => tw.div("tw-replay-event", tw.chip(each.engine, "tw-accent"),
        ` ${times > 1 ? `${times} × ` : ""}${each.count} elements of ${data.buffers[each.buffer].name} under way since step ${each.began}` +
        `${each.line ? `, line ${each.line}` : ""}${each.threads ? `, by ${each.threads}` : ""}` +
        (each.ended < 0 ? "; they never land" : `; they land in step ${each.ended}`))),
      ...waits.map((/** @type {Fields} */ each) => tw.div("tw-replay-event", tw.chip("waits", each.ended < 0 ? "tw-bad" : ""),
        ` ${each.threads} ${/^(threads|consumers)/.test(each.threads) ? "wait" : "waits"} ${each.what}` +
        `${each.line ? `, line ${each.line}` : ""}${each.ended < 0 ? ", for ever" : ""}`)));
  }

  pickLines(source.node, (line) => {
    const next = [...steps.keys()].map((i) => i + first).filter((at) => of(at)[LINE] === line);
    const target = next.find((at) => at > step) ?? next[0];
    if (target === undefined) message.textContent = `No step executes line ${line}.`;
    else go(target);
  }, "the lines of the kernel: to the next step of one");
  const keys = (/** @type {Pressed} */ event) => {
    const { localName } = event.target;
    const taken = /^(input|select|textarea)$/.test(localName) || // by what has the focus
      (localName === "canvas" && event.key.startsWith("Arrow")) ||
      (/^(button|summary)$/.test(localName) && event.key === " ");
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowRight: () => (event.shiftKey ? jump(1, iteration) : go(step + 1)),
      ArrowLeft: () => (event.shiftKey ? jump(-1, iteration) : go(step - 1)),
      " ": () => play.click(), b: () => jump(1, barrier), w: () => write(false),
      Home: () => go(first), End: () => go(last),
    };
    if (taken || !actions[event.key]) return;
    message.textContent = "";
    actions[event.key]();
    event.preventDefault();
    event.stopPropagation();
  };
  root.addEventListener("keydown", keys);
  scope.add(() => root.removeEventListener("keydown", keys));
  scope.on("change:selection", draw);
  scope.add(pause);
  watch(root, scope, draw);
  describe(null, -1);
  if (data.moments.length) select(data.moments[0]);
  go(step);
  return scope.dispose;
}

/** Operations under way of which the same is said, each once. */
function alike(/** @type {Fields[]} */ flights) {
  const groups = /** @type {Map<string, { each: Fields, times: number }>} */ (new Map());
  for (const each of flights) {
    const { engine, count, buffer, line, threads, began, ended } = each;
    const key = [engine, count, buffer, line, threads, began, ended].join();
    const known = groups.get(key);
    if (known) known.times += 1;
    else groups.set(key, { each, times: 1 });
  }
  return [...groups.values()];
}
