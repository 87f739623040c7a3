// The layout explorer: a grid of elements, and what is known of the one under the pointer.
import * as tw from "./common.js";
import { LayoutGrid, LayoutSlice, NO_THREAD } from "./grid.js";

const PANEL_WIDTH = 246; // with the gap before it
const COLOURINGS = {
  fragment: { thread: "thread", warp: "warp", slot: "slot" },
  layout: { bank: "bank", address: "address", line: "cache line" },
  unbanked: { address: "address", line: "cache line" },
};

/** @param {ViewArguments} given */
export function render({ model, el }) {
  const started = performance.now();
  const root = tw.root(el, "layouts");
  const scope = tw.scope(model);
  const canvas = tw.el("canvas", { class: "tw-canvas", role: "img", tabindex: "0" });
  const grid = new LayoutGrid(canvas, root);
  let room = 0; // the width that the grid was laid out for
  let painted = false;

  // Toolbar
  const names = model.get("layout_names");
  const buffers = tw.el(
    "select",
    {
      class: "tw-select", "aria-label": "Buffer",
      onchange: () => tw.set(model, { layout_name: buffers.value }),
    },
    ...names.map(({ name, shape }) =>
      tw.el("option", { value: name }, `${name}  ${shape.join("×")}`)),
  );
  const only = tw.el("b", { class: "tw-mono" }, names[0]?.name ?? "");
  const slices = tw.span("tw-slices");
  const colours = tw.el("select", {
    class: "tw-select", "aria-label": "Colour by",
    onchange: () => { grid.show(grid.slice, colours.value); draw(); },
  });
  const owner = tw.el("input", {
    class: "tw-input tw-owner", type: "number", min: "0",
    onchange: () => pin(owner.value === "" ? NO_THREAD : Number(owner.value)),
  });
  const ownerLabel = tw.span("");
  const zooms = /** @type {[string, string, () => void][]} */ ([
    ["−", "Zoom out", () => grid.zoom(1 / 1.5)],
    ["Fit", "Show everything", () => grid.fit()],
    ["+", "Zoom in", () => grid.zoom(1.5)],
  ]).map(([text, title, act]) => {
    const onclick = () => { act(); draw(); };
    return tw.button(text, onclick, { title });
  });
  const bar = tw.div(
    "tw-bar",
    names.length > 1 ? buffers : only,
    slices,
    tw.el("label", { class: "tw-check" }, "Colour by", colours),
    tw.el("label", { class: "tw-check" }, ownerLabel, owner),
    tw.space(),
    tw.span("tw-choice", ...zooms),
  );

  // Panel
  const badges = tw.div("tw-badges");
  const formula = tw.div("tw-formula");
  const hovered = tw.div("tw-hovered");
  const pinned = tw.div("tw-pinned");
  const hint = tw.div(
    "tw-hint tw-faint",
    "Click an element to pin its owner, drag to move, Ctrl + wheel to zoom, arrow keys to walk, " +
      "Esc to unpin.",
  );
  const panel = tw.div("tw-panel", badges, formula, hovered, pinned, hint);
  root.append(bar, tw.div("tw-layout-columns", tw.div("tw-stage", canvas), panel));

  function load() {
    const raw = model.get("layout_data");
    if (!raw || !raw.name) return;
    const same = grid.slice?.name === raw.name;
    const slice = new LayoutSlice(raw);
    buffers.value = raw.name;
    if (!same) {
      const kind = raw.kind === "layout" && !raw.banked ? "unbanked" : raw.kind;
      colours.replaceChildren(...Object.entries(COLOURINGS[kind]).map(([value, label]) =>
        tw.el("option", { value }, label)));
      grid.hover = null;
    }
    grid.show(slice, colours.value);
    ownerLabel.textContent = slice.isFragment ? "Thread" : "Address";
    owner.max = String(slice.top);
    badges.replaceChildren(
      ...(raw.role ? [tw.chip(raw.role, "tw-accent")] : []),
      ...raw.badges.map((text) => tw.chip(text)),
    );
    formula.textContent = formula.title = raw.text;
    canvas.setAttribute("aria-label", `${raw.name}: ${raw.badges.join(", ")}`);
    showSlices(slice);
    layOut(!same);
    select();
  }

  /** An index for each dimension that the grid does not show. */
  function showSlices(slice) {
    const inputs = slice.lead.map((at, dim) => {
      const last = slice.shape[dim] - 1;
      const onchange = (event) => {
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

  function layOut(refit) {
    const width = root.clientWidth || 840;
    if (refit || width !== room) {
      room = width;
      grid.resize(Math.max(240, width > 600 ? width - PANEL_WIDTH : width));
      grid.fit();
    }
  }

  function draw() {
    if (!grid.slice) return;
    grid.draw();
    if (painted) return;
    painted = true;
    requestAnimationFrame(() => {
      tw.set(model, { first_paint_ms: performance.now() - started });
      root.dataset.painted = "true";
    });
  }

  // What the panel says
  const row = (label, value) => tw.div("tw-row", tw.faint(label), tw.el("b", {}, value));

  function place(slice, cell) {
    if (!slice.isFragment) {
      const lane = Math.floor((slice.byte(cell) % 64) / slice.element_bytes);
      return [
        row("address", String(slice.first(cell))),
        row("byte", String(slice.byte(cell))),
        ...(slice.banked ? [row("bank", String(slice.bank(cell)))] : []),
        row("cache line · lane", `${slice.line(cell)} · ${lane}`),
      ];
    }
    const slot = row("slot", String(slice.slotTable[cell]));
    if (slice.everywhere) return [row("threads", `all ${slice.threads}`), slot];
    const all = slice.all(cell);
    const more = slice.replicate > all.length ? ", …" : "";
    return [
      row(all.length > 1 ? "threads" : "thread", all.join(", ") + more),
      slot,
      row("warp · lane", `${Math.floor(all[0] / 32)} · ${all[0] % 32}`),
    ];
  }

  function describeHover() {
    const { slice, hover } = grid;
    const title = hover === null ? "" : `${slice.name}[${slice.indexOf(hover).join(", ")}]`;
    hovered.replaceChildren(...(hover === null ? [] : [
      tw.div("tw-panel-title", title), ...place(slice, hover)]));
  }

  function describePinned() {
    const thread = grid.thread;
    owner.value = thread === NO_THREAD ? "" : String(thread);
    if (thread === NO_THREAD) return pinned.replaceChildren();
    const elements = model.get("thread_elements");
    const listed = elements.slice(0, 48).map((index) => `(${index.join(", ")})`).join(" ");
    const count = elements.length === 1 ? "1 element" : `${elements.length} elements, slot by slot`;
    const unpin = tw.link("unpin", () => pin(NO_THREAD));
    return pinned.replaceChildren(
      tw.div("tw-panel-title", `${ownerLabel.textContent} ${thread}`, unpin),
      tw.div("tw-faint", count),
      tw.div("tw-elements", listed + (elements.length > 48 ? " …" : "")),
    );
  }

  // A selection travels to Python; the elements of its thread come back as `thread_elements`.
  function pin(thread, cell = null) {
    const element = cell === null ? [] : grid.slice.indexOf(cell);
    tw.set(model, { selected_thread: thread, selected_element: element });
  }

  function select() {
    if (!grid.slice) return;
    grid.thread = model.get("selected_thread");
    grid.element = grid.slice.cellOf(model.get("selected_element"));
    draw();
    describeHover();
    describePinned();
  }

  /** Pin the owner of a cell; another click goes on to its next copy, and in the end unpins. */
  function choose(cell) {
    if (cell === null) return pin(NO_THREAD);
    const all = grid.slice.all(cell);
    const next = grid.element === cell ? all[all.indexOf(grid.thread) + 1] : all[0];
    return next === undefined ? pin(NO_THREAD) : pin(next, cell);
  }

  function hover(cell) {
    if (cell === grid.hover) return;
    grid.hover = cell;
    draw();
    describeHover();
  }

  // Pointer and keys
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  let press = null;
  canvas.addEventListener("pointerdown", (event) => {
    press = { from: at(event), x: grid.x, y: grid.y, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!grid.slice) return;
    const [x, y] = at(event);
    if (press) {
      const [dx, dy] = [x - press.from[0], y - press.from[1]];
      press.moved ||= Math.abs(dx) + Math.abs(dy) > 4;
      if (press.moved) {
        grid.move(press.x - dx, press.y - dy);
        draw();
        return;
      }
    }
    hover(grid.cellAt(x, y));
  });
  canvas.addEventListener("pointerup", (event) => {
    const moved = press?.moved;
    press = null;
    if (!moved && grid.slice) choose(grid.cellAt(...at(event)));
  });
  canvas.addEventListener("pointerleave", () => { if (!press) hover(null); });
  canvas.addEventListener("wheel", (event) => {
    if (!grid.slice || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    grid.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, at(event));
    draw();
  }, { passive: false });

  function walk(by) {
    const next = grid.hover === null ? 0 : grid.hover + by;
    if (next >= 0 && next < grid.slice.cells && !grid.slice.isEmpty(next)) hover(next);
  }

  root.addEventListener("keydown", (event) => {
    if (/** @type {Element} */ (event.target).matches("input, select") || !grid.slice) return;
    const keys = {
      ArrowLeft: () => walk(-1),
      ArrowRight: () => walk(1),
      ArrowUp: () => walk(-grid.slice.columns),
      ArrowDown: () => walk(grid.slice.columns),
      Enter: () => grid.hover !== null && choose(grid.hover),
      Escape: () => pin(NO_THREAD),
      "+": () => { grid.zoom(1.5); draw(); },
      "-": () => { grid.zoom(1 / 1.5); draw(); },
    };
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
    event.stopPropagation();
  });

  scope.on("change:layout_data", load);
  for (const trait of ["selected_thread", "selected_element", "thread_elements"])
    scope.on(`change:${trait}`, select);
  const sizes = new ResizeObserver(() => {
    if (!grid.slice || !root.clientWidth) return; // in a tab that is not open
    layOut(false);
    draw();
  });
  sizes.observe(root);
  scope.add(() => sizes.disconnect());
  load();
  return scope.dispose;
}
