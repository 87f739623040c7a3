// What the modules of the extension share.

/** A package that JupyterLab shares with its extensions; raises where there is none. */
export async function take(shared, name) {
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

function once(make) {
  let made;
  return () => (made ??= make());
}

/** A new element with properties, attributes where the name has a dash, and children. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) made.setAttribute(name, String(value));
    else made[name] = value;
  }
  made.append(...children.flat().filter((child) => child !== null));
  return made;
}

/** Text in which `code` stands between backticks, a paragraph for each part. */
export function prose(text) {
  return text.split(/\n\s*\n/).map((part) => element("p", {}, part.split("`").map((piece, at) =>
    at % 2 ? element("code", {}, piece) : piece.replace(/\s+/g, " "))));
}

/** The text of a code cell and of all cells of its notebook. */
export function texts(model) {
  const own = model?.sharedModel?.getSource?.() ?? "";
  const cells = model?.sharedModel?.notebook?.cells ?? [];
  const others = cells.filter((cell) => cell.cell_type === "code").map((cell) => cell.getSource());
  return { own, all: others.length ? others : [own] };
}
