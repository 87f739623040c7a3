// A view whose data is asked for when it is first opened.
import * as tw from "./common.js";

const STILL = "A picture, as saved: run the cell for the view that answers.";

/**
 * Ask Python for the data of the view `name` and draw it with `render({ model, el, data })`.
 * Returns a function that ends the view. A view without anything to show says why.
 * @param {{ model: Model, el: HTMLElement, name: string, render: Render }} given
 */
export function open({ model, el, name, render }) {
  const wait = tw.div("tw-note", "Waiting for the kernel …");
  const timer = setTimeout(() => el.append(wait), 250); // no flicker where the answer is quick
  let closed = false;
  /** @type {Dispose | void} */
  let dispose;
  tw.ask(model, { type: "view", name }).then(
    (data) => {
      if (closed) return;
      if (data.missing) el.append(tw.div("tw-note", data.missing));
      else dispose = render({ model, el, data });
      if (data.about && !el.querySelector(".tw-about-view")) el.prepend(tw.about(data.about));
      el.dataset.view = name;
    },
    (error) => {
      const still = model.still?.(name);
      el.append(...(still ? [tw.div("tw-note", STILL), still]
        : [tw.div("tw-message tw-failed", error.message)]));
    },
  ).finally(() => {
    clearTimeout(timer);
    wait.remove();
  });
  return () => {
    closed = true;
    if (dispose) dispose();
  };
}

/** The renderer of a widget of its own, below what its model says about it. */
export const explained = (/** @type {Render} */ render) => (/** @type {ViewArguments} */ { model, el }) => {
  if (!model.get("about")) return render({ model, el });
  const root = tw.root(el, "alone");
  root.append(tw.about(model.get("about")));
  return render({ model, el: root });
};

/** The renderer of a widget that shows this view alone. */
export const alone = (/** @type {string} */ name, /** @type {Render} */ render) => (/** @type {ViewArguments} */ { model, el }) => {
  const root = tw.root(el, "alone");
  return open({ model, el: root, name, render });
};
