// A measurement: its median, quartiles and rates in a line.
import * as tw from "./common.js";

/** The line of `bench`, with `more` at its end. */
export function line(/** @type {any} */ bench, /** @type {any[]} */ ...more) {
  const threads = `${bench.threads} thread${bench.threads === 1 ? "" : "s"}`;
  return tw.div(
    "tw-bench",
    tw.el("b", {}, bench.median),
    tw.faint(`quartiles ${bench.quartiles}, n = ${bench.count}, ${threads}, ${bench.caches}`),
    bench.flops ? tw.el("b", {}, bench.flops) : null,
    bench.bytes ? tw.faint(bench.bytes) : null,
    ...bench.extra.map((/** @type {any} */ [key, value]) => tw.faint(`${key} ${value}`)),
    bench.comparison ? tw.el("b", {}, bench.comparison) : null,
    bench.note ? tw.faint(bench.note) : null,
    ...more,
  );
}

/** @param {ViewArguments} given */
export function render({ model, el }) {
  const bench = model.get("bench");
  tw.root(el, "measurement").append(tw.el("b", { class: "tw-mono" }, bench.name), line(bench));
}
