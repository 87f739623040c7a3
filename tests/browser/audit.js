// What every view must have for readers who see little, or use no pointer. Run in the page by
// `audit.py`; each function takes the root of a view and returns its faults as texts.
(() => {
  const CONTROLS = "a[href], button, input, select, textarea, summary, canvas[tabindex], [tabindex='0']";
  const LEAST = 4.5; // contrast of text

  // Any CSS colour as [r, g, b, a]: a canvas knows them all.
  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const known = new Map();
  function colour(text) {
    if (!known.has(text)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = "#000";
      pen.fillStyle = text;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      const exact = text.match(/^rgb\((\d+), (\d+), (\d+)\)$/);
      known.set(text, exact ? [...exact.slice(1).map(Number), 1] : [r, g, b, a / 255]);
    }
    return known.get(text);
  }

  const over = (top, below) => {
    const a = top[3];
    return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a)).concat(1);
  };

  function luminance(rgb) {
    const [r, g, b] = rgb.slice(0, 3).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function ratio(a, b) {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  }

  const chain = (node) => {
    const found = [];
    for (let at = node; at; at = at.parentElement ?? at.getRootNode().host) found.push(at);
    return found;
  };

  /** What lies behind a node, the page's own ground at the end. */
  function ground(node) {
    let below = [255, 255, 255, 1];
    const parents = chain(node).reverse();
    for (const each of parents) below = over(colour(getComputedStyle(each).backgroundColor), below);
    return below;
  }

  /** What lies behind a text of a drawing: the shapes drawn before it at its middle. */
  function beneath(text, below) {
    const box = text.getBoundingClientRect();
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    for (const shape of text.ownerSVGElement.querySelectorAll("rect, path, polygon, circle")) {
      if (!(shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
      if (shape.closest("defs, clipPath, pattern")) continue;
      const [style, at] = [getComputedStyle(shape), shape.getBoundingClientRect()];
      if (style.fill === "none" || x < at.left || x > at.right || y < at.top || y > at.bottom) continue;
      const fill = [...colour(style.fill)];
      fill[3] *= Number(style.fillOpacity) * opacity(shape);
      below = over(fill, below);
    }
    return below;
  }

  const opacity = (node) =>
    chain(node).reduce((all, each) => all * Number(getComputedStyle(each).opacity), 1);

  const shown = (node) => node.checkVisibility({ checkVisibilityCSS: true, opacityProperty: true }) &&
    node.getClientRects().length > 0;

  const described = (node) => {
    const kind = node.getAttribute("class");
    const text = (node.textContent ?? "").trim().replace(/\s+/g, " ").slice(0, 30);
    return `<${node.localName}${kind ? ` class="${kind}"` : ""}> '${text}'`;
  };

  // What canvases write is not in the page, so it is written down: each text with the colour that it
  // has, and the one that was below its middle. Texts that a clip hides are left out.
  const Pen = CanvasRenderingContext2D.prototype;
  const [write, clear] = [Pen.fillText, Pen.clearRect];
  Pen.clearRect = function (...box) {
    this.canvas.twTexts = [];
    return clear.call(this, ...box);
  };
  Pen.fillText = function (text, x, y, ...rest) {
    const wide = this.measureText(text).width;
    const aside = { center: 0, right: -wide / 2, end: -wide / 2 }[this.textAlign] ?? wide / 2;
    const { x: px, y: py } = this.getTransform().transformPoint({ x: x + aside, y });
    const box = [Math.floor(px) - 6, Math.floor(py) - 5, 12, 10];
    const before = this.getImageData(...box).data;
    write.call(this, text, x, y, ...rest);
    if (this.getImageData(...box).data.every((part, i) => part === before[i])) return;
    const middle = 4 * (5 * 12 + 6);
    const [r, g, b, a] = before.slice(middle, middle + 4);
    const ink = [...colour(this.fillStyle)];
    ink[3] *= this.globalAlpha;
    (this.canvas.twTexts ??= []).push({ text, ink, below: [r, g, b, a / 255] });
  };

  /** Texts of a canvas that are too faint for what they are written on. */
  function written(canvas) {
    const faults = new Map();
    const paper = ground(canvas);
    for (const { text, ink, below } of canvas.twTexts ?? []) {
      const under = over(below, paper);
      const found = ratio(over(ink, under), under);
      if (found < LEAST)
        faults.set(found.toFixed(1), `contrast ${found.toFixed(2)}: canvas '${text}'`);
    }
    return [...faults.values()];
  }

  /** Texts that are too faint for their ground. */
  function contrast(root) {
    const faults = new Map();
    for (const canvas of [...root.querySelectorAll("canvas")].filter(shown))
      for (const fault of written(canvas)) faults.set(fault, fault);
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
      const node = text.parentElement;
      if (!text.data.trim() || !node || !shown(node) || node.closest("title, defs, option")) continue;
      if (node.closest("[disabled]")) continue; // WCAG asks nothing of what cannot be used
      const style = getComputedStyle(node);
      const svg = node.namespaceURI.endsWith("svg");
      const below = svg ? beneath(node, ground(node)) : ground(node);
      const ink = [...colour(svg ? style.fill : style.color)];
      ink[3] *= opacity(node);
      const found = ratio(over(ink, below), below);
      const key = `${node.localName}.${node.getAttribute("class") ?? ""} ${found.toFixed(1)}`;
      if (found < LEAST && !faults.has(key))
        faults.set(key, `contrast ${found.toFixed(2)}: ${described(node)}`);
    }
    return [...faults.values()];
  }

  /** The name that a screen reader says, roughly as the accessible name computation has it. */
  function nameOf(node) {
    const by = (node.getAttribute("aria-labelledby") ?? "").split(/\s+/).filter(Boolean)
      .map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
    const labels = [...(node.labels ?? [])].map((label) =>
      [...label.childNodes].filter((child) => child !== node).map((child) => child.textContent).join(""));
    const inner = ["input", "select", "canvas", "textarea"].includes(node.localName)
      ? "" : node.textContent;
    return [by, node.getAttribute("aria-label"), ...labels, inner, node.getAttribute("title")]
      .map((each) => (each ?? "").trim()).find((each) => /[\p{L}\p{N}]/u.test(each)) ?? "";
  }

  const controls = (root) => [...root.querySelectorAll(CONTROLS)].filter((node) =>
    shown(node) && !node.disabled && !node.closest("[inert]"));

  /** Controls and pictures that a screen reader has no word for. */
  function names(root) {
    const pictures = [...root.querySelectorAll("img, canvas, svg")].filter(shown)
      .filter((node) => !node.closest("[aria-hidden='true']"));
    const faults = [...controls(root), ...pictures].filter((node) => {
      if (node.localName === "img") return !node.alt.trim();
      if (node.localName === "svg") return !node.getAttribute("aria-label") && !node.querySelector("title");
      return !nameOf(node);
    });
    return [...new Set(faults)].map((node) => `no name: ${described(node)}`);
  }

  /** What reacts to clicks and to no keys. */
  function keys(root) {
    const clicked = [...root.querySelectorAll("*")].filter((node) => node.twClick);
    const around = (node) => node.closest("[tabindex='0']:not(.tw-view)"); // takes keys for what is in it
    const usable = (node) => node.matches(CONTROLS) || node.matches("label") ||
      node.querySelector(CONTROLS) || around(node)?.twKeys;
    return clicked.filter((node) => shown(node) && !usable(node))
      .map((node) => `clicks alone: ${described(node)}`);
  }

  /** Controls of which nobody sees that they have the focus; the keyboard was used before. */
  function focus(root) {
    const faults = controls(root).filter((node) => {
      node.focus({ preventScroll: true });
      const style = getComputedStyle(node);
      return document.activeElement !== node || style.outlineStyle === "none" ||
        Number.parseFloat(style.outlineWidth) < 1;
    });
    document.activeElement?.blur();
    return faults.map((node) => `no visible focus: ${described(node)}`);
  }

  /** Texts with a gap between them that are one word when they are copied. */
  function words(root) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    const [chosen, range, faults] = [getSelection(), document.createRange(), []];
    const box = (node, which) => {
      range.selectNodeContents(node);
      return [...range.getClientRects()].at(which);
    };
    for (let before = null, node; (node = walker.nextNode()); before = node) {
      if (!before || !shown(node.parentElement) || !shown(before.parentElement)) continue;
      if (!/[\p{L}\p{N}]$/u.test(before.data) || !/^[\p{L}\p{N}(]/u.test(node.data)) continue;
      const [left, right] = [box(before, -1), box(node, 0)];
      if (!left || !right || Math.abs(left.top - right.top) > left.height || right.left - left.right < 2) continue;
      const [start, end] = [before.data.slice(-12), node.data.slice(0, 12)];
      range.setStart(before, before.length - start.length);
      range.setEnd(node, end.length);
      chosen.removeAllRanges();
      chosen.addRange(range);
      if (chosen.toString() === start + end) faults.push(`one word: '${start + end}'`);
    }
    chosen.removeAllRanges();
    return faults;
  }

  // Who listens is not in the page, so it is written down from here on.
  const listen = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (kind, ...rest) {
    if (kind === "click") this.twClick = true;
    if (kind === "keydown") this.twKeys = true;
    return listen.call(this, kind, ...rest);
  };
  const texts = (root) => [...root.querySelectorAll("canvas")].filter(shown)
    .reduce((sum, canvas) => sum + (canvas.twTexts ?? []).length, 0);
  window.audit = { contrast, texts, names, keys, focus, words, controls, ratio, colour };
})();
