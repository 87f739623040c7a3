// The generated code, coloured as it is scrolled into view; helpers before the kernel are folded.
import * as tw from "./common.js";
import { pickLines } from "./keys.js";

const CODE_CHUNK = 400; // lines that are coloured at once

/** @param {ViewArguments} given */
export function render({ model, el, data }) {
  const { text, dropped, language, helpers } = data;
  const scope = tw.scope(model);
  const lines = text.split("\n");
  const origins = originsOf(lines);
  const cut = dropped ? `, ${dropped} further characters not shown` : "";
  const copy = tw.button("Copy", () => navigator.clipboard?.writeText(text));
  const fold = helpers ? tw.link(`show ${helpers} lines of helpers`, unfold) : null;
  const bar = tw.div("tw-bar", tw.faint(`${lines.length} lines${cut}`), fold, tw.space(), copy);
  const node = tw.div("tw-listing tw-tall tw-generated");
  let first = helpers; // of the lines that are shown
  let shown = first; // up to this one
  el.append(bar, node);

  function unfold() {
    fold.remove();
    node.replaceChildren();
    first = shown = 0;
    more();
  }

  function more() {
    const part = tw.listing(lines.slice(shown, shown + CODE_CHUNK), shown + 1, { language });
    node.append(...part.rows);
    shown += CODE_CHUNK;
    mark();
  }

  /** What became of the selected line of the kernel. */
  function mark(reveal = false) {
    const lines = tw.chosenLines(model);
    const rows = [...node.children];
    rows.forEach((row, i) => row.classList.toggle("tw-marked", lines.includes(origins[first + i])));
    const found = reveal && rows.find((row) => row.classList.contains("tw-marked"));
    if (found) tw.reveal(node, found);
  }

  node.addEventListener("scroll", () => {
    const left = node.scrollHeight - node.scrollTop - node.clientHeight;
    if (shown < lines.length && left < 400) more();
  });
  pickLines(node, (number) => {
    const line = origins[number - 1];
    if (line) tw.set(model, { selection: { line } });
  }, "Generated code");
  scope.on("change:selection", () => mark(true));
  more();
  return scope.dispose;
}

/** The line of the kernel that each line of code belongs to: the last `// line N:` (of LLVM IR
 * `; line N`) above it. */
export function originsOf(/** @type {string[]} */ lines) {
  let line = 0;
  return lines.map((/** @type {string} */ text) => {
    const comment = /^\s*(?:\/\/|;) line (\d+)/.exec(text);
    if (comment) line = Number(comment[1]);
    else if (/^(?:\}|define|extern|__)/.test(text)) line = 0; // another function
    return line;
  });
}
