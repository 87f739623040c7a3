// The generated code, coloured as it is scrolled into view.
import * as tw from "./common.js";

const CODE_CHUNK = 400; // lines that are coloured at once

export function render({ el, data }) {
  const { text, dropped } = data;
  const lines = text.split("\n");
  const cut = dropped ? `, ${dropped} further characters not shown` : "";
  const copy = tw.button("Copy", () => navigator.clipboard?.writeText(text));
  el.append(tw.div("tw-bar", tw.faint(`${lines.length} lines${cut}`), tw.space(), copy));
  const node = tw.div("tw-listing tw-tall");
  let shown = 0;
  const more = () => {
    const part = lines.slice(shown, shown + CODE_CHUNK);
    node.append(...tw.listing(part, shown + 1, { language: "code" }).rows);
    shown += CODE_CHUNK;
  };
  node.addEventListener("scroll", () => {
    const left = node.scrollHeight - node.scrollTop - node.clientHeight;
    if (shown < lines.length && left < 400) more();
  });
  more();
  el.append(node);
  return null;
}
