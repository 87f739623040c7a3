// What a view may ask of the notebook that its output is in. A view asks by an event that bubbles
// up from its element; `preventDefault` tells it that somebody did what it wanted.
const KEY = "tileworkbench"; // of the notebook's metadata
const POINTS = 100; // of a trail that are kept
const TRAILS = 64; // of a notebook; the longest unused goes first

/** The notebook that holds `node` and the index of its cell there, or null. */
function place(/** @type {Lab} */ app, /** @type {any} */ node) {
  for (const panel of app.shell.widgets("main")) {
    const notebook = panel.content;
    if (!notebook?.model?.sharedModel || !notebook.node.contains(node)) continue;
    const index = notebook.widgets.findIndex((/** @type {NotebookCell} */ cell) => cell.node.contains(node));
    if (index >= 0) return { notebook, index };
  }
  return null;
}

const answers = {
  /** `detail.text` becomes a code cell below the one that the view is in; it is not run. */
  "insert-cell"(/** @type {InNotebook} */ { notebook, index }, /** @type {Fields} */ detail) {
    const cell = { cell_type: "code", source: String(detail.text), metadata: { trusted: true } };
    notebook.model.sharedModel.insertCell(index + 1, cell);
    notebook.activeCellIndex = index + 1;
  },

  /**
   * The points of a kernel's trail are kept under its name; `points: null` forgets them.
   * @param {InNotebook} given
   * @param {{ name: string, points: any[] | null }} given
   */
  "keep-trail"({ notebook }, { name, points }) {
    const kept = notebook.model.getMetadata(KEY) ?? {};
    const { [name]: _old, ...trail } = kept.trail ?? {};
    if (points) trail[name] = points.slice(-POINTS);
    for (const oldest of Object.keys(trail).slice(0, -TRAILS)) delete trail[oldest];
    notebook.model.setMetadata(KEY, { ...kept, trail });
  },

  /** `detail.points` becomes what was kept under `detail.name`. */
  "read-trail"(/** @type {InNotebook} */ { notebook }, /** @type {Fields} */ detail) {
    const trail = notebook.model.getMetadata(KEY)?.trail ?? {};
    detail.points = Object.hasOwn(trail, detail.name) ? trail[detail.name] : [];
  },
};

export const make = () => ({
  id: "@tileworkbench/labext:notebook",
  description: "Inserts cells and keeps trails for views of kernels.",
  autoStart: true,
  activate: (/** @type {Lab} */ app) => {
    for (const [name, answer] of Object.entries(answers))
      document.addEventListener(`tileworkbench:${name}`, (event) => {
        try {
          const found = place(app, event.composedPath()[0]);
          if (!found) return;
          answer(found, /** @type {CustomEvent} */ (event).detail);
          event.preventDefault();
        } catch (error) {
          console.warn("tileworkbench:", error);
        }
      });
  },
});
