// What the modules of the extension share.

/** A package that JupyterLab shares with its extensions; raises where there is none. */
export async function take(/** @type {Shared} */ shared, /** @type {string} */ name) {
  const versions = Object.values(shared[name] ?? {});
  if (!versions.length) throw new Error(`JupyterLab has no '${name}'`);
  const factory = await (versions.find((each) => each.loaded) ?? versions[0]).get();
  return factory();
}

/** The words of the package, which `vocabulary.json` has: see `viz/magics/vocabulary.py`. */
export const vocabulary = once(async () => {
  const answer = await fetch(new URL("./vocabulary.json", import.meta.url));
  if (!answer.ok) throw new Error(`the words of the package cannot be had: ${answer.status}`);
  return answer.json();
});

/** The extension's style sheet, in the page from now on. */
export const style = once(async () => {
  const href = new URL("./labext.css", import.meta.url).href;
  document.head.append(element("link", { rel: "stylesheet", href }));
});

function once(/** @type {() => any} */ make) {
  let made;
  return () => (made ??= make());
}

/** A new element with properties, attributes where the name has a dash, and children. */
export function element(/** @type {string} */ tag, properties = {}, /** @type {any[]} */ ...children) {
  const made = /** @type {any} */ (document.createElement(tag));
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) made.setAttribute(name, String(value));
    else made[name] = value;
  }
  made.append(...children.flat().filter((child) => child !== null));
  return made;
}

/** Text in which `code` stands between backticks, a paragraph for each part. */
export function prose(/** @type {string} */ text) {
  return text.split(/\n\s*\n/).map((/** @type {string} */ part) => element("p", {}, part.split("`").map((/** @type {string} */ piece, /** @type {number} */ at) =>
    at % 2 ? element("code", {}, piece) : piece.replace(/\s+/g, " "))));
}

/** The text of a code cell and of all cells of its notebook. */
export function texts(/** @type {CellModel | null | undefined} */ model) {
  const own = model?.sharedModel?.getSource?.() ?? "";
  const cells = model?.sharedModel?.notebook?.cells ?? [];
  const others = cells.filter((/** @type {any} */ cell) => cell.cell_type === "code").map((/** @type {any} */ cell) => cell.getSource());
  return { own, all: others.length ? others : [own] };
}
