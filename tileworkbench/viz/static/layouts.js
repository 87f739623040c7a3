// The layout explorer: a grid of elements on a canvas, coloured by owner or address.
const MARGIN = { left: 34, top: 20 };
const PANEL = 246; // the panel's width and the gap before it
const CELL = { most: 40, rule: 7, one: 19, two: 32, least: 1 };
const NO_THREAD = -1;

function render_layouts({ model, el }) {
  const started = performance.now();
  const root = tw.root(el, "layouts");
  const scope = tw.scope(model);
  const view = { scale: 1, x: 0, y: 0, colour: "", hover: null, fitted: false };
  let data = null; // the decoded slice
  let pixels = null; // one pixel per element
  let painted = false;

  // Toolbar
  const names = model.get("layout_names");
  const buffers = tw.el("select", { class: "tw-select", "aria-label": "Buffer", onchange: () => tw.set(model, { layout_name: buffers.value }) },
    ...names.map((entry) => tw.el("option", { value: entry.name }, `${entry.name}  ${entry.shape.join("×")}`)));
  const slices = tw.el("span", { class: "tw-slices" });
  const colours = tw.el("select", { class: "tw-select", "aria-label": "Colour by", onchange: () => { view.colour = colours.value; recolour(); draw(); } });
  const owner = tw.el("input", { class: "tw-input tw-owner", type: "number", min: "0", onchange: () => pin(owner.value === "" ? NO_THREAD : Number(owner.value)) });
  const ownerLabel = tw.el("span");
  const zooms = tw.el("span", { class: "tw-choice" },
    ...[["−", "Zoom out", () => zoom(1 / 1.5)], ["Fit", "Show everything", fit], ["+", "Zoom in", () => zoom(1.5)]].map(([text, title, act]) =>
      tw.el("button", { type: "button", class: "tw-button", title, onclick: () => { act(); draw(); } }, text)));
  const bar = tw.el("div", { class: "tw-bar" }, names.length > 1 ? buffers : tw.el("b", { class: "tw-mono" }, names[0]?.name ?? ""), slices,
    tw.el("label", { class: "tw-check" }, "Colour by", colours), tw.el("label", { class: "tw-check" }, ownerLabel, owner),
    tw.el("span", { class: "tw-space" }), zooms);

  const canvas = tw.el("canvas", { class: "tw-canvas", role: "img", tabindex: "0" });
  const badges = tw.el("div", { class: "tw-badges" });
  const formula = tw.el("div", { class: "tw-formula" });
  const hovered = tw.el("div", { class: "tw-hovered" });
  const pinned = tw.el("div", { class: "tw-pinned" });
  const hint = tw.el("div", { class: "tw-hint tw-faint" }, "Click an element to pin its owner, drag to move, Ctrl + wheel to zoom, arrow keys to walk, Esc to unpin.");
  const stage = tw.el("div", { class: "tw-stage" }, canvas);
  root.append(bar, tw.el("div", { class: "tw-layout-columns" }, stage,
    tw.el("div", { class: "tw-panel" }, badges, formula, hovered, pinned, hint)));

  // Data
  function load() {
    const raw = model.get("layout_data");
    if (!raw || !raw.name) return;
    const same = data && data.name === raw.name;
    data = { ...raw };
    if (raw.kind === "fragment") {
      data.ownerTables = raw.owners.map(tw.table);
      data.slotTable = tw.table(raw.slot);
      data.empty = raw.owners[0].empty ?? null;
    } else {
      data.addressTable = tw.table(raw.address);
      data.empty = raw.address.empty ?? null;
    }
    buffers.value = raw.name;
    if (!same) {
      const modes = data.kind === "fragment"
        ? { thread: "thread", warp: "warp", slot: "slot" } : { bank: "bank", address: "address", line: "cache line" };
      colours.replaceChildren(...Object.entries(modes).map(([value, label]) => tw.el("option", { value }, label)));
      view.colour = Object.keys(modes)[0];
      view.hover = null;
      view.fitted = false;
    }
    ownerLabel.textContent = data.kind === "fragment" ? "Thread" : "Address";
    owner.max = String((data.kind === "fragment" ? data.threads : data.addresses) - 1);
    badges.replaceChildren(...(data.role ? [tw.chip(data.role, "tw-accent")] : []), ...data.badges.map((text) => tw.chip(text)));
    formula.textContent = data.text;
    formula.title = data.text;
    canvas.setAttribute("aria-label", `${data.name}: ${data.badges.join(", ")}`);
    drawSlices();
    recolour();
    resize();
    describe();
  }

  function drawSlices() {
    const extents = data.shape.slice(0, Math.max(0, data.shape.length - 2));
    slices.replaceChildren(...extents.map((extent, dim) => tw.el("input", {
      class: "tw-input tw-owner", type: "number", min: "0", max: String(extent - 1), value: String(data.lead[dim]),
      "aria-label": `Index of dimension ${dim}`,
      onchange: (event) => {
        const lead = [...data.lead];
        lead[dim] = Math.min(extent - 1, Math.max(0, Number(event.target.value) || 0));
        tw.set(model, { layout_lead: lead });
      },
    })), extents.length ? tw.el("span", { class: "tw-faint" }, "[:, :]") : "");
  }

  const isEmpty = (cell) => data.empty !== null && first(cell) === data.empty;
  const first = (cell) => (data.kind === "fragment" ? data.ownerTables[0][cell] : data.addressTable[cell]);
  const owners = (cell) => (data.kind === "fragment" ? data.ownerTables.map((table) => table[cell]) : [data.addressTable[cell]]);
  const holds = (cell, thread) => !isEmpty(cell) && (data.everywhere || owners(cell).includes(thread));

  function indexOf(cell) {
    if (data.shape.length === 0) return [];
    if (data.shape.length === 1) return [cell];
    return [...data.lead, Math.floor(cell / data.columns), cell % data.columns];
  }

  function cellOf(index) {
    if (index.length !== data.shape.length) return null;
    if (index.length === 0) return 0;
    if (index.length === 1) return index[0];
    if (data.lead.some((at, dim) => at !== index[dim])) return null;
    return index[index.length - 2] * data.columns + index[index.length - 1];
  }

  // Colours: the same scales as in Python, sent with the data.
  function colourOf(cell) {
    if (isEmpty(cell)) return data.palette.empty;
    const value = first(cell);
    if (data.kind === "fragment") {
      if (view.colour === "slot") return ramp(data.slotTable[cell], data.slots - 1);
      return category(view.colour === "warp" ? Math.floor(value / 32) : value);
    }
    if (view.colour === "address") return ramp(value, data.addresses - 1);
    const byte = value * data.element_bytes;
    return view.colour === "bank" ? ramp(Math.floor(byte / 4) % 32, 31) : category(Math.floor(byte / 64));
  }

  function category(value) {
    const hues = data.palette.categories;
    const shade = (Math.floor(value / hues.length) % 4) * data.palette.shade;
    return hues[value % hues.length].map((c) => c + (255 - c) * shade);
  }

  function ramp(value, top) {
    const stops = data.palette.sequence;
    const place = (Math.min(Math.max(value, 0), top) / Math.max(top, 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((c, i) => c + (stops[low + 1][i] - c) * (place - low));
  }

  function recolour() {
    pixels = document.createElement("canvas");
    [pixels.width, pixels.height] = [data.columns, data.rows];
    const context = pixels.getContext("2d");
    const image = context.createImageData(data.columns, data.rows);
    for (let cell = 0; cell < data.rows * data.columns; cell++) {
      image.data.set(colourOf(cell), 4 * cell);
      image.data[4 * cell + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  }

  // Geometry
  function resize() {
    const [most, tallest] = [available(), 520];
    const room = Math.min(CELL.most, Math.max((most - MARGIN.left - 2) / data.columns, CELL.least));
    const height = Math.min(tallest, Math.max(120, Math.ceil(data.rows * room) + MARGIN.top + 2));
    // A tall buffer needs less width, unless zooming in will need it.
    const fitting = Math.min(room, Math.max((height - MARGIN.top - 2) / data.rows, CELL.rule));
    const width = Math.min(most, Math.max(300, Math.ceil(data.columns * fitting) + MARGIN.left + 2));
    const ratio = window.devicePixelRatio || 1;
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
    [view.width, view.height, view.ratio] = [width, height, ratio];
    if (!view.fitted) fit();
    draw();
  }

  function available() {
    view.room = root.clientWidth || 840;
    return Math.max(240, view.room > 600 ? view.room - PANEL : view.room);
  }

  function fit() {
    const scale = Math.min((view.width - MARGIN.left - 2) / data.columns, (view.height - MARGIN.top - 2) / data.rows, CELL.most);
    view.least = scale;
    [view.scale, view.x, view.y, view.fitted] = [scale, 0, 0, true];
  }

  function zoom(factor, at = [view.width / 2, view.height / 2]) {
    const scale = Math.min(CELL.most * 1.5, Math.max(view.least, view.scale * factor));
    const [px, py] = [at[0] - MARGIN.left, at[1] - MARGIN.top];
    view.x = ((view.x + px) / view.scale) * scale - px;
    view.y = ((view.y + py) / view.scale) * scale - py;
    view.scale = scale;
    clamp();
  }

  function clamp() {
    const [w, h] = [view.width - MARGIN.left, view.height - MARGIN.top];
    view.x = Math.max(0, Math.min(view.x, data.columns * view.scale - w));
    view.y = Math.max(0, Math.min(view.y, data.rows * view.scale - h));
  }

  function cellAt(event) {
    const box = canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left - MARGIN.left, event.clientY - box.top - MARGIN.top];
    const [column, row] = [Math.floor((px + view.x) / view.scale), Math.floor((py + view.y) / view.scale)];
    if (px < 0 || py < 0 || column >= data.columns || row >= data.rows) return null;
    const cell = row * data.columns + column;
    return isEmpty(cell) ? null : cell;
  }

  // Drawing
  function draw() {
    if (!data) return;
    const context = canvas.getContext("2d");
    const { scale, x, y } = view;
    context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    context.clearRect(0, 0, view.width, view.height);
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, MARGIN.top, view.width - MARGIN.left, view.height - MARGIN.top);
    context.clip();
    context.translate(MARGIN.left - x, MARGIN.top - y);
    const [width, height] = [data.columns * scale, data.rows * scale];
    context.imageSmoothingEnabled = false;
    context.drawImage(pixels, 0, 0, width, height);
    const seen = range();
    if (scale >= CELL.rule) rules(context, seen);
    const thread = model.get("selected_thread");
    if (thread !== NO_THREAD) highlight(context, thread, width, height, seen);
    if (scale >= CELL.one) numbers(context, seen, thread);
    const element = cellOf(model.get("selected_element"));
    if (element !== null && model.get("selected_element").length) outline(context, element, 2.5, isDark() ? "#fff" : "#000");
    if (view.hover !== null) outline(context, view.hover, 2, "#d3302f");
    context.restore();
    heads(context, seen);
    if (!painted) {
      painted = true;
      const report = () => { tw.set(model, { first_paint_ms: performance.now() - started }); root.dataset.painted = "true"; };
      requestAnimationFrame(report);
    }
  }

  /** Whether the theme's text is light, and so its ground dark. */
  function isDark() {
    const [red, green, blue] = getComputedStyle(root).color.match(/[\d.]+/g).map(Number);
    return red + green + blue > 380;
  }

  function range() {
    const { scale, x, y } = view;
    return {
      left: Math.max(0, Math.floor(x / scale)), top: Math.max(0, Math.floor(y / scale)),
      right: Math.min(data.columns, Math.ceil((x + view.width - MARGIN.left) / scale)),
      bottom: Math.min(data.rows, Math.ceil((y + view.height - MARGIN.top) / scale)),
    };
  }

  function rules(context, seen) {
    const scale = view.scale;
    context.strokeStyle = `rgba(255, 255, 255, ${scale < 14 ? 0.35 : 0.65})`;
    context.lineWidth = 1;
    context.beginPath();
    for (let c = seen.left; c <= seen.right; c++) { context.moveTo(c * scale, seen.top * scale); context.lineTo(c * scale, seen.bottom * scale); }
    for (let r = seen.top; r <= seen.bottom; r++) { context.moveTo(seen.left * scale, r * scale); context.lineTo(seen.right * scale, r * scale); }
    context.stroke();
  }

  function highlight(context, thread, width, height, seen) {
    const scale = view.scale;
    const dark = isDark();
    context.fillStyle = dark ? "rgba(20, 20, 20, 0.72)" : "rgba(255, 255, 255, 0.72)";
    context.fillRect(0, 0, width, height);
    for (let r = seen.top; r < seen.bottom; r++)
      for (let c = seen.left; c < seen.right; c++) {
        const cell = r * data.columns + c;
        if (!holds(cell, thread)) continue;
        context.fillStyle = `rgb(${colourOf(cell).map(Math.round).join(",")})`;
        context.fillRect(c * scale, r * scale, scale, scale);
        if (scale >= CELL.rule) outline(context, cell, 1.5, dark ? "#fff" : "rgba(0, 0, 0, 0.65)");
        else { context.fillStyle = dark ? "#fff" : "#123"; context.fillRect(c * scale, r * scale, Math.max(scale, 2), Math.max(scale, 2)); }
      }
  }

  function outline(context, cell, width, style) {
    const scale = view.scale;
    context.strokeStyle = style;
    context.lineWidth = width;
    context.strokeRect((cell % data.columns) * scale + 0.5, Math.floor(cell / data.columns) * scale + 0.5, scale - 1, scale - 1);
  }

  function numbers(context, seen, thread) {
    const scale = view.scale;
    const fragment = data.kind === "fragment";
    const two = fragment && scale >= CELL.two;
    const longest = String((fragment ? data.threads : data.addresses) - 1).length;
    const size = Math.min(12, (scale - 4) / (longest * 0.6));
    if (size < 6) return;
    const ghost = isDark() ? "rgba(255, 255, 255, 0.4)" : "rgba(20, 20, 20, 0.35)";
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let r = seen.top; r < seen.bottom; r++)
      for (let c = seen.left; c < seen.right; c++) {
        const cell = r * data.columns + c;
        if (isEmpty(cell)) continue;
        const faded = thread !== NO_THREAD && !holds(cell, thread);
        context.fillStyle = faded ? ghost : "#141414";
        context.font = `${size}px system-ui, sans-serif`;
        const [px, py] = [(c + 0.5) * scale, (r + 0.5) * scale + 0.5];
        context.fillText(fragment && data.everywhere ? "all" : String(first(cell)), px, two ? py - 5.5 : py);
        if (two) {
          context.fillStyle = faded ? ghost : "rgba(20, 20, 20, 0.62)";
          context.font = "9px system-ui, sans-serif";
          context.fillText(`s${data.slotTable[cell]}`, px, py + 7);
        }
      }
  }

  function heads(context, seen) {
    const scale = view.scale;
    context.fillStyle = getComputedStyle(root).color;
    context.globalAlpha = 0.65;
    context.font = "10px system-ui, sans-serif";
    context.textBaseline = "middle";
    const every = (room) => { let n = 1; while (n * scale < room) n *= 2; return n; };
    const [across, down] = [every(24), every(14)];
    context.textAlign = "center";
    for (let c = Math.ceil(seen.left / across) * across; c < seen.right; c += across)
      context.fillText(String(c), MARGIN.left - view.x + (c + 0.5) * scale, MARGIN.top - 9);
    context.textAlign = "right";
    for (let r = Math.ceil(seen.top / down) * down; r < seen.bottom; r += down)
      context.fillText(String(data.wrapped ? r * data.columns : r), MARGIN.left - 6, MARGIN.top - view.y + (r + 0.5) * scale);
    context.globalAlpha = 1;
  }

  // What the panel says
  const row = (label, value) => tw.el("div", { class: "tw-row" }, tw.el("span", { class: "tw-faint" }, label), tw.el("b", {}, value));

  function place(cell) {
    if (data.kind === "fragment") {
      const all = owners(cell);
      const who = data.everywhere ? `all ${data.threads}` : `${all.join(", ")}${data.replicate > all.length ? ", …" : ""}`;
      const lines = [row(all.length > 1 || data.everywhere ? "threads" : "thread", who), row("slot", String(data.slotTable[cell]))];
      if (!data.everywhere) lines.push(row("warp · lane", `${Math.floor(all[0] / 32)} · ${all[0] % 32}`));
      return lines;
    }
    const address = data.addressTable[cell];
    const byte = address * data.element_bytes;
    return [row("address", String(address)), row("byte", String(byte)), row("bank", String(Math.floor(byte / 4) % 32)),
      row("cache line · lane", `${Math.floor(byte / 64)} · ${Math.floor((byte % 64) / data.element_bytes)}`)];
  }

  function describe() {
    if (!data) return;
    hovered.replaceChildren(...(view.hover === null ? [] : [
      tw.el("div", { class: "tw-panel-title" }, `${data.name}[${indexOf(view.hover).join(", ")}]`), ...place(view.hover)]));
    const thread = model.get("selected_thread");
    owner.value = thread === NO_THREAD ? "" : String(thread);
    if (thread === NO_THREAD) { pinned.replaceChildren(); return; }
    const elements = model.get("thread_elements");
    const label = data.kind === "fragment" ? "Thread" : "Address";
    const shown = elements.slice(0, 48).map((index) => `(${index.join(", ")})`).join(" ");
    pinned.replaceChildren(tw.el("div", { class: "tw-panel-title" }, `${label} ${thread}`,
      tw.el("button", { type: "button", class: "tw-link", onclick: () => pin(NO_THREAD) }, "unpin")),
      tw.el("div", { class: "tw-faint" }, `${elements.length} element${elements.length === 1 ? "" : "s"}${elements.length > 1 ? ", slot by slot" : ""}`),
      tw.el("div", { class: "tw-elements" }, shown + (elements.length > 48 ? " …" : "")));
  }

  // Selection travels to Python; its elements come back as `thread_elements`.
  function pin(thread, cell = null) {
    const values = { selected_thread: thread, selected_element: cell === null ? [] : indexOf(cell) };
    tw.set(model, values);
  }

  let press = null;
  canvas.addEventListener("pointerdown", (event) => {
    press = { x: event.clientX, y: event.clientY, left: view.x, top: view.y, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!data) return;
    if (press) {
      const [dx, dy] = [event.clientX - press.x, event.clientY - press.y];
      press.moved ||= Math.abs(dx) + Math.abs(dy) > 4;
      if (press.moved) {
        [view.x, view.y] = [press.left - dx, press.top - dy];
        clamp();
        draw();
        return;
      }
    }
    const cell = cellAt(event);
    if (cell !== view.hover) { view.hover = cell; draw(); describe(); }
  });
  canvas.addEventListener("pointerup", (event) => {
    const moved = press?.moved;
    press = null;
    if (moved || !data) return;
    choose(cellAt(event));
  });
  canvas.addEventListener("pointerleave", () => { if (!press && view.hover !== null) { view.hover = null; draw(); describe(); } });
  canvas.addEventListener("wheel", (event) => {
    if (!data || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, [event.clientX - box.left, event.clientY - box.top]);
    draw();
  }, { passive: false });

  function choose(cell) {
    if (cell === null) return pin(NO_THREAD);
    const all = owners(cell);
    const same = cellOf(model.get("selected_element")) === cell && model.get("selected_element").length;
    const next = same ? all[all.indexOf(model.get("selected_thread")) + 1] : all[0];
    pin(next ?? NO_THREAD, next === undefined ? null : cell);
  }

  root.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select") || !data) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -data.columns, ArrowDown: data.columns };
    if (event.key in steps) {
      const next = (view.hover ?? 0) + (view.hover === null ? 0 : steps[event.key]);
      if (next >= 0 && next < data.rows * data.columns && !isEmpty(next)) view.hover = next;
      draw();
      describe();
    } else if (event.key === "Enter" && view.hover !== null) choose(view.hover);
    else if (event.key === "Escape") pin(NO_THREAD);
    else if (event.key === "+" || event.key === "-") { zoom(event.key === "+" ? 1.5 : 1 / 1.5); draw(); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  scope.on("change:layout_data", load);
  for (const trait of ["selected_thread", "selected_element", "thread_elements"])
    scope.on(`change:${trait}`, () => { draw(); describe(); });
  const sizes = new ResizeObserver(() => { if (data && root.clientWidth && root.clientWidth !== view.room) { view.fitted = false; resize(); } });
  sizes.observe(root);
  scope.add(() => sizes.disconnect());
  load();
  return scope.dispose;
}
