// Sliders for a kernel's constants: a move compiles it anew, and the card follows.
import * as tw from "./common.js";

/** The row of sliders, or null where the kernel has none. */
export function sliders(/** @type {Model} */ model) {
  const each = model.get("sliders") ?? [];
  if (!each.length) return null;
  const message = tw.el("pre", { class: "tw-message tw-failed tw-slide-error", role: "alert" });
  message.hidden = true;
  const inputs = each.map(input);
  let asked = 0;

  function input(/** @type {any} */ { name, values, at }) {
    const shown = tw.el("output", {}, values[at]);
    const range = tw.el("input", {
      type: "range", min: "0", max: String(values.length - 1), step: "1", "aria-label": name,
      oninput: () => { describe(); move(); },
      onkeydown: (/** @type {any} */ event) => event.stopPropagation(), // JupyterLab takes the arrows for itself
    });
    range.value = String(at);
    const describe = () => {
      shown.textContent = values[Number(range.value)];
      range.setAttribute("aria-valuetext", `${name} = ${shown.textContent}`);
    };
    describe();
    const label = tw.span("tw-mono", name);
    return { range, node: tw.el("label", { class: "tw-slider" }, label, range, shown) };
  }

  /** Only the last of several moves counts. */
  async function move() {
    const mine = ++asked;
    const places = inputs.map((/** @type {any} */ { range }) => Number(range.value));
    let error = "";
    try {
      error = (await tw.ask(model, { type: "slide", places })).error ?? "";
    } catch (failure) {
      error = failure.message;
    }
    if (mine !== asked) return;
    message.textContent = error;
    message.hidden = !error;
  }

  return tw.div("tw-sliders", ...inputs.map((/** @type {any} */ { node }) => node), message);
}
