// What all views share: elements, questions to Python, coloured code. Views import it as `tw`.

/**
 * An element. `attributes` are plain ones and listeners (`onclick`); null and false are left out.
 * @param {string} name
 * @param {Record<string, any>} attributes
 * @param {...(Node | string | null | undefined)} children
 * @returns {any}
 */
export const el = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
};

/** A `<div>` of a class. @type {MakePart} */
export const div = (kind, ...children) => el("div", { class: kind }, ...children);
/** A `<span>` of a class. @type {MakePart} */
export const span = (kind, ...children) => el("span", { class: kind }, ...children);
/** Text of less weight. @param {Content} text */
export const faint = (text) => span("tw-faint", text);
/** What pushes the rest of a bar to its end. */
export const space = () => span("tw-space");
/** A small rounded label; `kind` is `tw-good`, `tw-bad`, `tw-accent` or nothing. @param {string} text */
export const chip = (text, kind = "", title = "") =>
  el("span", { class: `tw-chip ${kind}`, title: title || null }, text);
/** A button. @type {MakeButton} */
export const button = (text, onclick, attributes = {}) =>
  el("button", { type: "button", class: "tw-button", onclick, ...attributes }, text);
/** A button that looks like a link. @type {(text: string, onclick: (event: any) => void) => any} */
export const link = (text, onclick) => button(text, onclick, { class: "tw-link" });

/**
 * The root of a view. JupyterLab's single-key shortcuts stay out of it.
 * @param {HTMLElement} host
 * @param {string} name
 * @returns {HTMLElement}
 */
export const root = (host, name) => {
  const node = el("div", {
    class: `tw-view tw-${name}`,
    tabindex: "0",
    "data-lm-suppress-shortcuts": "true",
  });
  // JupyterLab keeps Enter from confirming what was typed; an input that loses focus confirms it.
  node.addEventListener("keydown", (/** @type {any} */ { key, target }) => {
    if (key !== "Enter" || target.localName !== "input") return;
    target.blur();
    target.focus();
  });
  host.append(node);
  return node;
};

/**
 * Listen to a model; `scope.dispose()` ends all listeners of a view.
 * @param {Model} model
 */
export const scope = (model) => {
  const ends = /** @type {Dispose[]} */ ([]);
  return {
    on(/** @type {string} */ event, /** @type {(...values: any[]) => void} */ listener) {
      model.on(event, listener);
      ends.push(() => model.off(event, listener));
    },
    add: (/** @type {Dispose | void} */ end) => typeof end === "function" && ends.push(end),
    dispose: () => ends.splice(0).forEach((end) => end()),
  };
};

/**
 * Ask Python something; resolves with its value.
 * @param {Model} model
 * @param {{ type: string, [more: string]: any }} message
 * @returns {Promise<any>}
 */
export const ask = (model, message) =>
  new Promise((resolve, reject) => {
    const request = `${Date.now()}-${Math.random()}`;
    const receive = (/** @type {any} */ content) => {
      if (content.type !== "answer" || content.request !== request) return;
      model.off("msg:custom", receive);
      if (content.error) reject(new Error(content.error));
      else resolve(content.value);
    };
    model.on("msg:custom", receive);
    model.send({ ...message, request });
  });

/**
 * Set traits of a model together.
 * @param {Model} model
 * @param {Record<string, any>} values
 */
export const set = (model, values) => {
  for (const [key, value] of Object.entries(values)) model.set(key, value);
  model.save_changes();
};

// Syntax colours for Python-like text (source and IR) and for generated code (LLVM IR, C).
export const WORDS = {
  tile:
    "and|as|break|continue|def|elif|else|for|from|if|import|in|is|lambda|not|or|pass|return|while" +
    "|with",
  llvm:
    "add|align|alloca|and|ashr|atomicrmw|bitcast|br|call|cmpxchg|constant|contract|declare|define" +
    "|double|extractelement|fadd|fcmp|fdiv|fence|float|fmul|fneg|fpext|fptosi|fptoui|fptrunc|fsub" +
    "|getelementptr|half|i1|i8|i16|i32|i64|icmp|insertelement|internal|inttoptr|label|load|lshr|mul" +
    "|noalias|nounwind|nsw|nuw|or|phi|poison|ptr|ret|sdiv|select|sext|shl|shufflevector|sitofp" +
    "|splat|srem|store|sub|switch|to|trunc|udiv|uitofp|unreachable|urem|void|xor|zext",
  c:
    "asm|bool|break|char|const|continue|double|else|extern|float|for|half|if|int|long|return|short" +
    "|signed|sizeof|static|struct|switch|typedef|union|unsigned|using|void|volatile|while" +
    "|f16|bf16|__align__|__device__|__forceinline__|__global__|__launch_bounds__|__restrict__|__shared__",
};
/** The expression that finds the tokens of a language. @type {(comment: string, words: string, names: string) => RegExp} */
export const syntax = (comment, words, names) =>
  new RegExp(
    [
      `(?<comment>${comment}.*$)`,
      "(?<string>\"(?:[^\"\\\\]|\\\\.)*\"|'(?:[^'\\\\]|\\\\.)*')",
      `(?<keyword>\\b(?:${words})\\b)`,
      "(?<constant>\\b(?:True|False|None|true|false|null)\\b)",
      `(?<tile>\\b(?:T|tw)\\.\\w+${names})`,
      "(?<number>\\b\\d[\\w.]*)",
    ].join("|"),
    "gm",
  );
export const SYNTAX = {
  tile: syntax("#", WORDS.tile, "|@[\\w.]+"),
  llvm: syntax(";", WORDS.llvm, "|[%@][\\w.]+"),
  c: syntax("(?:[/]{2}|#pragma|#define|#if|#endif)", WORDS.c, ""),
};

/** The tokens of `text`, as `[start, end, kind]`. @type {(text: string, language: Language) => [number, number, string][]} */
export const tokens = (text, language) => {
  const found = /** @type {[number, number, string][]} */ ([]);
  for (const match of text.matchAll(SYNTAX[language])) {
    const [kind] = Object.entries(match.groups ?? {}).find(([, part]) => part !== undefined) ?? [""];
    found.push([match.index, match.index + match[0].length, kind]);
  }
  return found;
};

/**
 * Ranges of `query` in `text`, case ignored.
 * @param {string} text
 * @param {string} query
 * @returns {[number, number][]}
 */
export const finds = (text, query) => {
  const ranges = /** @type {[number, number][]} */ ([]);
  if (!query) return ranges;
  const [hay, needle] = [text.toLowerCase(), query.toLowerCase()];
  for (let at = hay.indexOf(needle); at >= 0; at = hay.indexOf(needle, at + needle.length))
    ranges.push([at, at + needle.length]);
  return ranges;
};

/**
 * `text` as a span of coloured pieces; `words` are changed ranges, `query` is marked.
 * @param {string} text
 * @param {[number, number][]} words
 * @param {string} query
 * @param {Language} language
 */
export const code = (text, words = [], query = "", language = "tile") => {
  const layers = /** @type {[number, number, string][]} */ ([
    ...tokens(text, language).map(([start, end, kind]) => [start, end, `tw-token-${kind}`]),
    ...words.map(([start, end]) => [start, end, "tw-word"]),
    ...finds(text, query).map(([start, end]) => [start, end, "tw-find"]),
  ]);
  const cuts = new Set([0, text.length]);
  for (const [start, end] of layers) cuts.add(start).add(end);
  const places = [...cuts].sort((a, b) => a - b);
  const node = el("span", { class: "tw-code" });
  for (let i = 0; i + 1 < places.length; i++) {
    const piece = text.slice(places[i], places[i + 1]);
    const kinds = layers.filter(([s, e]) => s <= places[i] && places[i + 1] <= e).map((l) => l[2]);
    node.append(kinds.length ? el("span", { class: kinds.join(" ") }, piece) : piece);
  }
  return node;
};

/**
 * Numbered code: returns the node and `mark(lines)`, which highlights some and shows the first.
 * @param {string[]} lines
 * @param {number} first number of the first line
 * @param {{ language?: Language, class?: string }} options
 */
export const listing = (lines, first, options = {}) => {
  const rows = lines.map((text, i) =>
    el(
      "div",
      { class: "tw-line", "data-line": String(first + i) },
      el("span", { class: "tw-number" }, String(first + i)),
      code(text, [], "", options.language),
    ),
  );
  const node = el("div", { class: `tw-listing ${options.class ?? ""}` }, ...rows);
  const mark = (/** @type {number[]} */ numbers) => {
    rows.forEach((row, i) => row.classList.toggle("tw-marked", numbers.includes(first + i)));
    const row = rows[numbers[0] - first];
    if (row) reveal(node, row);
  };
  return { node, rows, mark };
};

/**
 * Scroll `node` alone (never the notebook) until `row` is visible.
 * @param {HTMLElement} node
 * @param {HTMLElement} row
 */
export const reveal = (node, row) => {
  const [outer, inner] = [node.getBoundingClientRect(), row.getBoundingClientRect()];
  if (inner.top < outer.top) node.scrollTop -= outer.top - inner.top + 12;
  else if (inner.bottom > outer.bottom) node.scrollTop += inner.bottom - outer.bottom + 12;
};

/**
 * A group of buttons of which one is pressed.
 * @param {Record<string, string>} labels by value
 * @param {string} chosen
 * @param {(value: string) => void} choose
 */
export const choice = (labels, chosen, choose) => {
  const buttons = Object.entries(labels).map(([value, label]) =>
    button(label, () => { press(value); choose(value); }, { "data-value": value }),
  );
  const press = (/** @type {string} */ value) =>
    buttons.forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.value === value)));
  press(chosen);
  return { node: el("span", { class: "tw-choice", role: "group" }, ...buttons), press };
};

/**
 * Bytes from what a table holds: a DataView in a widget, base64 text in a saved page.
 * @param {any} data
 * @returns {ArrayBuffer}
 */
export const bytes = (data) => {
  if (typeof data === "string") return Uint8Array.from(atob(data), (c) => c.charCodeAt(0)).buffer;
  const view = data.buffer ? data : new DataView(data);
  return view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
};

/**
 * The numbers of a table.
 * @param {Packed} packed
 */
export const table = (packed) => {
  const kinds = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f8: Float64Array };
  return new kinds[packed.type](bytes(packed.data));
};

// What a drawing may hold. It may come from the file of a notebook that nobody trusts.
const SHAPES = new Set([
  "circle", "clipPath", "defs", "ellipse", "g", "line", "marker", "path", "pattern", "polygon",
  "polyline", "rect", "svg", "text", "title", "tspan",
]);

/** `node` without scripts, handlers and addresses. @param {Element} node */
const harmless = (node) => {
  for (const child of [...node.children])
    if (SHAPES.has(child.localName)) harmless(child);
    else child.remove();
  for (const { name, value } of [...node.attributes])
    if (/^on|href$/i.test(name) || /url\((?!#)/i.test(value)) node.removeAttribute(name);
  return node;
};

const TAGS = new Set([
  "b", "br", "code", "details", "div", "img", "pre", "span", "summary", "table", "tbody", "td", "th",
  "tr",
]);

/**
 * The elements of the markup that Python writes for readers without a kernel; nothing else.
 * @param {string} markup
 */
export const still = (markup) => {
  const { body } = new DOMParser().parseFromString(markup, "text/html");
  for (const node of body.querySelectorAll("*"))
    if (!TAGS.has(node.localName)) node.remove();
    else
      for (const { name, value } of [...node.attributes])
        if (/^on|href$/i.test(name) || /url\(/i.test(value) || (name === "src" && !/^data:image/.test(value)))
          node.removeAttribute(name);
  return div("tw-still", ...[...body.childNodes].map((node) => document.importNode(node, true)));
};

/**
 * What draws on a canvas.
 * @type {(canvas: HTMLCanvasElement) => CanvasRenderingContext2D}
 */
export const brush = (canvas) => /** @type {any} */ (canvas.getContext("2d"));

/**
 * An SVG that Python drew, as wide as its place.
 * @param {string} markup
 * @param {string} label what it is, for screen readers
 */
export const drawing = (markup, label = "Drawing") => {
  const parsed = new DOMParser().parseFromString(markup, "image/svg+xml").documentElement;
  if (parsed.localName !== "svg") throw new Error("this is no drawing");
  const svg = document.importNode(harmless(parsed), true);
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  svg.setAttribute("role", "group");
  svg.setAttribute("aria-label", label);
  return svg;
};

/**
 * Ask for something that only the notebook's own extension can do, for the view that holds `node`;
 * false where nobody did it. It may write an answer into `detail`.
 * @type {(name: string, detail: object, node?: Element | null) => boolean}
 */
const request = (name, detail, node) => {
  const options = { detail, bubbles: true, cancelable: true, composed: true };
  return !(node ?? document.body).dispatchEvent(new CustomEvent(`tileworkbench:${name}`, options));
};

/**
 * Put `text` into a new cell below the one that holds `node`; false where no extension is.
 * @param {string} text
 * @param {Element | null} node
 */
export const insertCell = (text, node = document.activeElement) =>
  request("insert-cell", { text }, node);

/**
 * The elements of a view that a selector finds.
 * @param {Element} node
 * @param {string} selector
 * @returns {HTMLElement[]}
 */
export const all = (node, selector) => [...node.querySelectorAll(selector)].map(
  (each) => /** @type {HTMLElement} */ (each));

/**
 * The lines that are chosen: one, or those that use a buffer.
 * @param {Model} model
 * @returns {number[]}
 */
export const chosenLines = (model) => {
  const { line, lines } = model.get("selection") ?? {};
  return lines ?? (line ? [line] : []);
};

/** Copy `text`; false where the browser does not let the page. @param {string} text */
export const copyText = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
};

/** Keep the points of a kernel's trail in the notebook; null forgets them. @type {(name: string, points: any[] | null, node: Element) => boolean} */
export const keepTrail = (name, points, node) => request("keep-trail", { name, points }, node);

/** The points that the notebook keeps of a kernel's trail; none where no extension is. @type {(name: string, node: Element) => any[]} */
export const readTrail = (name, node) => {
  const detail = { name, points: [] };
  request("read-trail", detail, node);
  return detail.points;
};

/** "What am I looking at": an explanation that opens on a click. @param {Content} explained */
export const about = (explained) =>
  el("details", { class: "tw-about-view" }, el("summary", {}, "What am I looking at?"), explained);

/**
 * ``512 B``, ``24.0 KiB``: as `format_bytes` of viz/model/text.py writes it.
 * @param {number} count
 */
export const bytesText = (count) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  for (; count >= 1024 && power < units.length - 1; power++) count /= 1024;
  return `${power ? count.toFixed(1) : count.toFixed(0)} ${units[power]}`;
};

/**
 * ``950``, ``33.6 M``: a number with a decimal prefix.
 * @param {number} count
 */
export const countText = (count) => {
  const units = ["", " k", " M", " G", " T", " P"];
  let power = 0;
  for (; Math.abs(count) >= 999.5 && power < units.length - 1; power++) count /= 1000;
  return `${Number(count.toPrecision(3))}${units[power]}`;
};
