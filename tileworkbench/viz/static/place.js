// The live view takes the place of the still picture that an output holds.
//
// An output is HTML alone, in an element that names the widget's place. As soon as the front end
// has the widget's model (after the cell ran, or from a kernel that lives on when the page is
// loaded again) the view stands in that element, and when the model is gone the picture is back.
import { div } from "./common.js";

// Every model brings its own copy of this module; what they share hangs on the page.
const SHARED = Symbol.for("tileworkbench.places.1");
const ATTRIBUTE = "data-tileworkbench";
const PROSE = "jp-RenderedHTMLCommon"; // JupyterLab's rules for tables and text of HTML outputs

class Places {
  constructor() {
    this.owners = new Map(); // name of a place to who may draw there: { render, alive }
    this.taken = new Map(); // element to a function that gives it back
    const observer = new MutationObserver(() => this.update());
    observer.observe(document.documentElement, { childList: true, subtree: true });
  }

  set(/** @type {string} */ name, /** @type {Fields} */ owner) {
    this.owners.set(name, owner);
    this.update();
  }

  /** A notebook that was opened again has new models: an old one says no more of their places. */
  remove(/** @type {string} */ name, /** @type {Fields} */ owner) {
    if (this.owners.get(name) === owner) this.owners.delete(name);
    this.update();
  }

  /** Draw in elements that came, and end what stands in elements that left. */
  update() {
    for (const [element, { owner, giveBack }] of this.taken) {
      if (element.isConnected && this.owner(element) === owner) continue;
      this.taken.delete(element);
      giveBack();
    }
    for (const element of document.querySelectorAll(`[${ATTRIBUTE}]`)) {
      const owner = this.owner(element);
      if (!owner || this.taken.has(element) || !owner.alive()) continue;
      this.taken.set(element, { owner, giveBack: take(element, owner.render) });
    }
  }

  owner(/** @type {Element} */ element) {
    return this.owners.get(element.getAttribute(ATTRIBUTE));
  }
}

function take(/** @type {Element} */ element, /** @type {(el: HTMLElement) => Dispose | void} */ render) {
  const picture = [...element.childNodes];
  const prose = element.closest(`.${PROSE}`);
  const host = div("tw-place");
  let dispose = /** @type {Dispose | void | null} */ (null);
  const giveBack = () => {
    if (typeof dispose === "function") dispose();
    element.replaceChildren(...picture);
    prose?.classList.add(PROSE);
  };
  prose?.classList.remove(PROSE);
  element.replaceChildren(host);
  try {
    dispose = render(host);
  } catch (error) {
    console.error("tileworkbench:", error); // the picture says as much as it did
    giveBack();
  }
  return giveBack;
}

/** The `initialize` of a widget's module: in the place that the model names `render` draws. */
export const initialize = (/** @type {Render} */ render) => (/** @type {{ model: Model }} */ { model }) => {
  const places = (/** @type {any} */ (globalThis)[SHARED] ??= new Places());
  const manager = model.widget_manager;
  let name = "";
  let own = /** @type {any} */ (null); // the model itself: `model` shows only some of it
  let closed = false;

  // Models outlive kernels and closed notebooks, and then nobody would answer what a view asks.
  const alive = () => own.comm_live !== false && manager.kernel !== null;
  const owner = { render: (/** @type {HTMLElement} */ el) => render({ model, el }), alive };

  async function update() {
    if (name) places.remove(name, owner);
    name = model.get("place");
    if (!name) return;
    own = await manager.get_model(name);
    if (alive() && !closed) places.set(name, owner);
  }

  model.on("change:place", update);
  model.on("comm_live_update", update);
  update();
  return () => {
    closed = true;
    places.remove(name, owner);
  };
};
