// The user's text, with the lines of warnings marked.
import * as tw from "./common.js";

export function render({ model, el, data }) {
  const scope = tw.scope(model);
  const listing = tw.listing(data.lines, data.first, { class: "tw-tall" });
  for (const { line, text } of data.warnings) {
    const row = listing.rows[line - data.first];
    if (!row) continue;
    row.classList.add("tw-warned");
    row.title = text;
  }
  el.append(listing.node);
  const select = () => {
    const { line } = model.get("selection");
    listing.mark(line ? [line] : []);
  };
  listing.node.addEventListener("click", (event) => {
    const row = event.target.closest(".tw-line");
    if (row) tw.set(model, { selection: { line: Number(row.dataset.line) } });
  });
  scope.on("change:selection", select);
  select();
  return scope.dispose;
}
