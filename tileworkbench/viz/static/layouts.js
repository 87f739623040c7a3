// The layout explorer: the elements of a tile, and the same elements as the hardware has them.
import * as tw from "./common.js";
import { styleOf } from "./atoms.js";
import { watch } from "./redraw.js";
import { LayoutGrid } from "./grid.js";
import { describe, describePin, legend, readIndex } from "./places.js";
import { listen } from "./pointer.js";
import { HardwareSlice, LayoutSlice, NO_THREAD } from "./slices.js";
import { stepList } from "./steps.js";

const PANEL_WIDTH = 246; // with the gap before it
const GAP = 16;
/** @type {Record<string, Record<string, string>>} */
const COLOURINGS = {
  fragment: { thread: "thread", warp: "warp", slot: "slot" },
  layout: { bank: "bank", address: "address", line: "cache line" },
  unbanked: { address: "address", line: "cache line" },
};

/** A grid with its caption and zoom. */
function figure(/** @type {string} */ kind, /** @type {HTMLElement} */ themed) {
  const canvas = tw.el("canvas", { class: "tw-canvas", role: "img", tabindex: "0" });
  const grid = new LayoutGrid(canvas, themed);
  const caption = tw.div("tw-figure-caption");
  const zooms = /** @type {[string, string, () => void][]} */ ([
    ["−", "Zoom out", () => grid.zoom(1 / 1.5)],
    ["Fit", "Show everything", () => grid.fit()],
    ["+", "Zoom in", () => grid.zoom(1.5)],
  ]).map(([text, title, act]) => tw.button(text, () => { act(); grid.draw(); }, { title }));
  const head = tw.div("tw-figure-head", caption, tw.space(), tw.span("tw-choice", ...zooms));
  return { grid, canvas, caption, node: tw.div(`tw-stage tw-stage-${kind}`, head, canvas) };
}

/** @param {ViewArguments} given */
export function render({ model, el }) {
  const started = performance.now();
  const root = tw.root(el, "layouts");
  const scope = tw.scope(model);
  const tensor = figure("tensor", root), hardware = figure("hardware", root);
  const grids = [tensor.grid, hardware.grid];
  const hidden = new Set(); // names of atoms that are switched off
  let room = 0; // the width that the grids were laid out for
  let painted = false;

  // Toolbar
  const names = model.get("layout_names");
  const buffers = tw.el(
    "select",
    {
      class: "tw-select", "aria-label": "Buffer",
      onchange: () => tw.set(model, { layout_name: buffers.value }),
    },
    ...names.map((/** @type {{ name: string, shape: number[] }} */ { name, shape }) =>
      tw.el("option", { value: name }, `${name}  ${shape.join("×")}`)),
  );
  const only = tw.el("b", { class: "tw-mono" }, names[0]?.name ?? "");
  const slices = tw.span("tw-slices"), copies = tw.span("tw-slices"), atoms = tw.span("tw-atoms");
  const colours = tw.el("select", {
    class: "tw-select", "aria-label": "Colour by",
    onchange: () => {
      for (const grid of grids) grid.show(grid.slice, colours.value);
      showLegend();
      draw();
    },
  });
  const owner = tw.el("input", {
    class: "tw-input tw-owner", type: "number", min: "0",
    onchange: () => pin(owner.value === "" ? NO_THREAD : Number(owner.value)),
  });
  const ownerLabel = tw.span("");
  const element = tw.el("input", {
    class: "tw-input tw-owner", placeholder: "3, 8", "aria-label": "Find an element",
    onchange: () => find(),
    onkeydown: (/** @type {Pressed} */ event) => event.key === "Enter" && find(), // JupyterLab takes Enter
  });
  const note = tw.span("tw-faint tw-slice-note");
  const bar = tw.div(
    "tw-bar",
    names.length > 1 ? buffers : only,
    slices,
    copies,
    tw.el("label", { class: "tw-check" }, "Colour by", colours),
    tw.el("label", { class: "tw-check" }, ownerLabel, owner),
    tw.el("label", { class: "tw-check" }, "Element", element),
    atoms,
    note,
  );

  // Panel
  const badges = tw.div("tw-badges");
  const formula = tw.div("tw-formula");
  const hovered = tw.div("tw-hovered");
  const pinned = tw.div("tw-pinned");
  const hint = tw.div(
    "tw-hint tw-faint",
    "Click to pin an owner, drag to move, Ctrl + wheel to zoom, arrow keys to walk, Esc to unpin.",
  );
  const panel = tw.div("tw-panel", badges, formula, hovered, pinned, hint);
  const columns = tw.div("tw-layout-columns", tensor.node, hardware.node, panel);
  const colourKey = tw.div("tw-colour-key");
  const steps = stepList(model, model.get("layout_steps") ?? []);
  root.append(bar, colourKey, columns, steps.node);
  const showLegend = () => colourKey.replaceChildren(...legend(tensor.grid.slice, colours.value));

  function load() {
    const raw = model.get("layout_data");
    if (!raw || !raw.name) return;
    const same = tensor.grid.slice?.name === raw.name;
    const slice = new LayoutSlice(raw);
    buffers.value = raw.name;
    if (!same) {
      const kind = raw.kind === "layout" && !raw.banked ? "unbanked" : raw.kind;
      colours.replaceChildren(...Object.entries(COLOURINGS[kind]).map(([value, label]) =>
        tw.el("option", { value }, label)));
      for (const grid of grids) [grid.hover, grid.also] = [null, []];
    }
    tensor.grid.show(slice, colours.value);
    hardware.grid.show(new HardwareSlice(slice), colours.value);
    ownerLabel.textContent = slice.isFragment ? "Thread" : "Address";
    owner.max = String(slice.top);
    badges.replaceChildren(
      ...(raw.role ? [tw.chip(raw.role, "tw-accent")] : []),
      ...raw.badges.map((/** @type {string} */ text, /** @type {number} */ i) => tw.chip(text, "", raw.hints?.[i] ?? "")),
    );
    formula.textContent = formula.title = raw.text;
    showLegend();
    showCaptions(slice, raw);
    showSlices(slice);
    showCopies(raw);
    if (!same) hidden.clear();
    if (!same) for (const { name } of (raw.atoms ?? []).slice(1)) hidden.add(name); // one is plain
    showAtoms(raw.atoms ?? []);
    layOut(!same);
    select();
  }

  function showCaptions(/** @type {any} */ slice, /** @type {Fields} */ raw) {
    const { isFragment } = slice;
    const said = slice.everywhere ? "each in every thread"
      : isFragment ? "number: thread, s: slot" : "number: address";
    tensor.caption.replaceChildren(tw.el("b", {}, "Tensor view"), ` ${said}`);
    const { lines } = hardware.grid.slice;
    const line = raw.banked ? "128 bytes, all 32 banks"
      : `${lines > 1 ? `${lines} cache lines of ` : ""}${raw.line_bytes} bytes`;
    const cut = hardware.grid.slice.isCut ? ", the first of them" : "";
    hardware.caption.replaceChildren(
      tw.el("b", {}, isFragment ? "Hardware view" : "Memory view"),
      isFragment ? " row: thread, column: slot" : ` row: ${line}${cut}`);
    tensor.canvas.setAttribute("aria-label", `${raw.name}: ${raw.badges.join(", ")}`);
    hardware.canvas.setAttribute("aria-label", `${raw.name} in ${isFragment
      ? `${slice.threads} threads by ${slice.slots} slots` : `${slice.addresses} addresses`}`);
  }

  /** An index for each dimension that the grid does not show. */
  function showSlices(/** @type {any} */ slice) {
    const inputs = slice.lead.map((/** @type {number} */ at, /** @type {number} */ dim) => {
      const last = slice.shape[dim] - 1;
      const onchange = (/** @type {Pressed} */ event) => {
        const wanted = Math.min(last, Math.max(0, Number(event.target.value) || 0));
        tw.set(model, { layout_lead: slice.lead.with(dim, wanted) });
      };
      return tw.el("input", {
        class: "tw-input tw-owner", type: "number", min: "0", max: String(last),
        value: String(at), "aria-label": `Index of dimension ${dim}`, onchange,
      });
    });
    slices.replaceChildren(...inputs, inputs.length ? "[:, :]" : "");
  }

  /**
   * Steps through the copies of a fragment that has too many to be sent at once.
   * @param {{ copies_at_once: number, copy: number, replicate: number }} given
   */
  function showCopies({ copies_at_once: many, copy, replicate }) {
    if (!many) return copies.replaceChildren();
    const go = (/** @type {number} */ by) => tw.set(model, { layout_copy: copy + by });
    const last = Math.min(copy + many, replicate) - 1;
    return copies.replaceChildren(
      tw.button("‹", () => go(-many), { title: "Copies before", disabled: copy === 0 }),
      `copies ${copy}–${last} of ${replicate}`,
      tw.button("›", () => go(many), { title: "Copies after", disabled: last + 1 >= replicate }));
  }

  /** A switch for the outlines of each atom. */
  function showAtoms(/** @type {Atom[]} */ found) {
    const apply = () => {
      const shown = found.map((/** @type {Atom} */ atom, /** @type {number} */ number) => ({ ...atom, number }))
        .filter((/** @type {Atom} */ { name }) => !hidden.has(name));
      tensor.grid.atoms = shown;
      hardware.grid.atoms = shown.filter((/** @type {Atom} */ { slots }) => slots)
        .map((/** @type {Atom} */ atom) => ({ ...atom, rows: atom.threads, columns: atom.slots }));
      draw();
    };
    if (tensor.grid.slice.wrapped) found = [];
    atoms.replaceChildren(...found.map((/** @type {Atom} */ { name, rows, columns: wide, source }, /** @type {number} */ number) => {
      const box = tw.el("input", { type: "checkbox", checked: !hidden.has(name), onchange: () => {
        if (box.checked) hidden.delete(name); else hidden.add(name);
        apply();
      } });
      const swatch = tw.span("tw-atom-swatch");
      swatch.style.borderColor = styleOf(number).colour;
      swatch.style.borderStyle = styleOf(number).dash.length ? "dashed" : "solid";
      const label = `${name} ${rows}×${wide}`;
      const title = `Outline what one instruction takes${source ? `. Lanes: ${source}` : ""}`;
      return tw.el("label", { class: "tw-check", title },
        box, swatch, label);
    }));
    apply();
  }

  /** Share the width: both grids side by side where there is room, the panel beside or below. */
  function layOut(/** @type {boolean} */ refit) {
    const width = root.clientWidth || 840;
    if (!refit && width === room) return;
    room = width;
    const beside = width >= 1000;
    columns.classList.toggle("tw-stacked", !beside);
    const free = beside ? width - PANEL_WIDTH : width;
    const half = Math.floor((free - GAP) / 2);
    const wanted = grids.map((grid) => grid.wanted);
    let rooms = [half, half];
    if (free < 640) rooms = [free, free];
    else if (wanted[1] < half) rooms = [free - GAP - wanted[1], wanted[1]];
    else if (wanted[0] < half) rooms = [wanted[0], free - GAP - wanted[0]];
    grids.forEach((grid, i) => {
      if (!refit) return grid.resizeKeeping(rooms[i]);
      grid.resize(rooms[i]);
      return grid.fit();
    });
    tensor.node.style.width = `${tensor.grid.width}px`;
    hardware.node.style.width = `${hardware.grid.width}px`;
  }

  function draw() {
    if (!tensor.grid.slice || !tensor.grid.width) return;
    for (const grid of grids) grid.draw();
    if (painted) return;
    painted = true;
    requestAnimationFrame(() => {
      tw.set(model, { first_paint_ms: performance.now() - started });
      root.dataset.painted = "true";
    });
  }

  // A selection travels to Python; the elements of its thread come back as `thread_elements`.
  function pin(/** @type {number} */ thread, cell = /** @type {number | null} */ (null)) {
    const { slice } = tensor.grid;
    const element = cell === null ? [] : slice.indexOf(cell);
    tw.set(model, { selected_thread: thread, selected_element: element });
    if (element.length) share({ buffer: slice.name, element });
  }

  /** Tell the other views; the line that is chosen stays. */
  function share(/** @type {Chosen} */ chosen) {
    const { line } = model.get("selection") ?? {};
    const selection = line ? { line, ...chosen } : chosen;
    if (JSON.stringify(model.get("selection")) !== JSON.stringify(selection))
      tw.set(model, { selection });
  }

  function select() {
    const { slice } = tensor.grid;
    if (!slice) return;
    const thread = model.get("selected_thread");
    const element = slice.cellOf(model.get("selected_element"));
    tensor.grid.element = element;
    const places = element === null ? [] : hardware.grid.slice.placesOf(element);
    const own = places.find((/** @type {number} */ place) => hardware.grid.slice.holds(place, thread));
    hardware.grid.element = own ?? places[0] ?? null;
    for (const grid of grids) {
      grid.thread = thread;
      if (grid.element !== null && grid.width) grid.reveal(grid.element);
    }
    owner.value = thread === NO_THREAD ? "" : String(thread);
    pinned.replaceChildren(...describePin({
      label: slice.isFragment ? "Thread" : "Address",
      owner: thread,
      elements: model.get("thread_elements"),
      unpin: () => pin(NO_THREAD),
      choose: (index) =>
        tw.set(model, { layout_lead: index.slice(0, -2), selected_element: index }),
    }));
    hovered.replaceChildren(...describe(slice, tensor.grid.hover));
    steps.mark(slice.name, model.get("selection")?.line ?? 0);
    root.dataset.pinned = JSON.stringify([thread, model.get("selected_element")]);
    draw();
  }

  /** Pin the owner of the element whose indices were typed. */
  function find() {
    const { slice } = tensor.grid;
    const { index, problem } = readIndex(element.value, slice);
    element.setCustomValidity(problem);
    element.reportValidity();
    if (!index) return;
    const cell = slice.cellOf(index);
    if (cell === null) tw.set(model, { layout_lead: index.slice(0, -2), selected_element: index });
    else if (!slice.isEmpty(cell)) pin(slice.first(cell), cell);
  }

  /** Pin the owner of an element; another click goes on to its next copy, and in the end unpins. */
  function chooseElement(/** @type {number | null} */ cell) {
    if (cell === null) return pin(NO_THREAD);
    const all = tensor.grid.slice.all(cell);
    const next = tensor.grid.element === cell ? all[all.indexOf(tensor.grid.thread) + 1] : all[0];
    return next === undefined ? pin(NO_THREAD) : pin(next, cell);
  }

  /** Pin what is at a place of the hardware; another click unpins. */
  function choosePlace(/** @type {number | null} */ place) {
    if (place === null || hardware.grid.element === place) return pin(NO_THREAD);
    return pin(hardware.grid.slice.owner(place), hardware.grid.slice.held[place]);
  }

  /**
   * Mark an element and all places that hold it; `place` is the one under the pointer.
   * @param {number | null} cell
   * @param {number | null} place
   */
  function hover(cell, place = null) {
    if (cell === tensor.grid.hover && place === hardware.grid.hover) return;
    tensor.grid.hover = cell;
    hardware.grid.hover = place;
    hardware.grid.also = cell === null ? [] : hardware.grid.slice.placesOf(cell);
    hovered.replaceChildren(...describe(tensor.grid.slice, cell));
    root.dataset.hovered = cell === null ? ""
      : JSON.stringify([tensor.grid.slice.indexOf(cell), hardware.grid.also]);
    draw();
  }

  listen(tensor.grid, { hover: (cell) => hover(cell), choose: chooseElement, changed: draw });
  listen(hardware.grid, {
    hover: (place) => hover(place === null ? null : hardware.grid.slice.held[place], place),
    choose: choosePlace,
    changed: draw,
  });
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    pin(NO_THREAD);
    event.stopPropagation();
  });

  /** What another view chose: its buffer, and the element where one is. */
  function follow() {
    const { buffer, element, line } = model.get("selection") ?? {};
    const { slice } = tensor.grid;
    steps.mark(slice?.name ?? "", line ?? 0);
    if (!buffer || !names.some((/** @type {Atom} */ { name }) => name === buffer)) return;
    if (buffer !== model.get("layout_name")) tw.set(model, { layout_name: buffer });
    else if (element && slice && String(element) !== String(model.get("selected_element"))) {
      const cell = slice.cellOf(element);
      if (cell !== null && !slice.isEmpty(cell)) pin(slice.first(cell), cell);
    }
  }

  scope.on("change:layout_data", load);
  scope.on("change:layout_note", () => { note.textContent = model.get("layout_note") ?? ""; });
  scope.on("change:selection", follow);
  for (const trait of ["selected_thread", "selected_element", "thread_elements"])
    scope.on(`change:${trait}`, select);
  watch(root, scope, () => {
    if (!tensor.grid.slice) return;
    layOut(false);
    draw();
  });
  load();
  return scope.dispose;
}
