// The roofline: Python draws it, the browser shows the verdict of each point.
function render_roofline({ model, el }) {
  const root = tw.root(el, "roofline");
  const scope = tw.scope(model);

  function drawing(text) {
    const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    const svg = document.importNode(parsed, true);
    svg.removeAttribute("width");
    svg.removeAttribute("height");
    return svg;
  }

  function verdict(point) {
    const bar = tw.el("div", { class: "tw-meter", title: `${point.percent} of attainable` },
      tw.el("div", { style: `width:${Math.min(100, point.fraction * 100).toFixed(1)}%` }));
    const facts = `${point.dtype}, bytes at ${point.level}, ${point.time}`;
    return tw.el("div", { class: `tw-verdict ${point.wrong ? "tw-wrong" : ""}`, role: point.wrong ? "alert" : null },
      tw.el("div", { class: "tw-verdict-head" }, tw.el("b", { class: "tw-mono" }, point.name), tw.el("span", { class: "tw-faint" }, facts)),
      tw.el("div", { class: "tw-rate" }, tw.el("b", {}, point.percent),
        tw.el("span", {}, `${point.achieved} of ${point.attainable} attainable`)),
      bar, tw.el("div", {}, point.sentence), tw.el("div", { class: "tw-next" }, point.next));
  }

  function ceilings(table) {
    const head = tw.el("tr", {}, tw.el("th", {}, "ceiling"), ...table.columns.map((text) => tw.el("th", {}, text)));
    const rows = table.rows.map((row) => tw.el("tr", {}, tw.el("td", {}, row.name), ...row.values.map((text) => tw.el("td", {}, text))));
    return tw.el("table", { class: "tw-ceilings" }, tw.el("thead", {}, head), tw.el("tbody", {}, ...rows));
  }

  function show() {
    const data = model.get("roofline");
    if (!data.svg) return;
    const note = data.note ? tw.el("span", { class: "tw-faint" }, data.note) : null;
    root.replaceChildren(tw.el("div", { class: "tw-bar" }, tw.el("b", {}, data.machine), note),
      tw.el("div", { class: "tw-roof-columns" }, tw.el("div", { class: "tw-plot" }, drawing(data.svg)),
        tw.el("div", { class: "tw-verdicts" }, ...data.points.map(verdict),
          tw.el("details", {}, tw.el("summary", {}, "Measured ceilings"), ceilings(data.ceilings)))));
  }

  scope.on("change:roofline", show);
  show();
  return scope.dispose;
}
