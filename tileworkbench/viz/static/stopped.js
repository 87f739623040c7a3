// The passes of a compilation that one of them ended: a line that opens.
import * as tw from "./common.js";
import * as passes from "./passes.js";

/** @param {ViewArguments} given */
export function render({ model, el }) {
  const scope = tw.scope(model);
  const place = tw.div("");
  const node = tw.el("details", { class: "tw-stopped", ontoggle: open },
    tw.el("summary", {}, model.get("summary"), tw.faint(" – the IR that it was given")), place);
  tw.root(el, "alone").append(node);

  function open() {
    if (node.open && !place.childNodes.length) scope.add(passes.render({ model, el: place }));
  }
  return scope.dispose;
}
