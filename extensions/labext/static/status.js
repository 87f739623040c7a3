// The machine's state in the status bar: what kernels can be compiled for here, and whether times
// would mean something. Notebook 7 has no status bar; completion knows the targets there too.
import { MISSING, ask, follow, known } from "./kernel.js";
import { style, take } from "./shared.js";

export async function make(/** @type {Shared} */ shared) {
  const [{ INotebookTracker, NotebookActions }, { IStatusBar }, { Widget }] = await Promise.all([
    take(shared, "@jupyterlab/notebook"), take(shared, "@jupyterlab/statusbar"),
    take(shared, "@lumino/widgets"), style(),
  ]);

  /** @param {Status} given */
  function words({ version, machine, cores, load, targets, measured, doubt }) {
    const gpu = targets.some((/** @type {string} */ name) => name.startsWith("cuda:"));
    const crowded = load > cores;
    return {
      text: `Tile ${gpu ? "GPU" : "CPU"}${crowded ? " · machine busy" : ""}`
        + `${measured ? "" : " · peaks not measured"}`,
      title: [`tileworkbench ${version} on ${machine}`, `${targets.length - 1} targets work here`,
        gpu ? "" : "no GPU: 'sim:' targets simulate one",
        load < 0 ? "" : `load ${load} on ${cores} cores${crowded ? ": times are doubtful" : ""}`,
        measured ? doubt || "its peaks are measured" : "'%tile peaks' measures what it can do",
      ].filter(Boolean).join("\n"),
    };
  }

  return {
    id: "@tileworkbench/labext:status",
    description: "Shows what the machine can do.",
    requires: [INotebookTracker],
    optional: [IStatusBar],
    /**
     * @param {Lab} app
     * @param {Tracker} tracker
     * @param {{ registerStatusItem(id: string, item: object): void }} bar
     */
    activate(app, tracker, bar) {
      const item = new Widget();
      item.addClass("tw-machine");
      const say = (/** @type {string} */ text, /** @type {string} */ title) => {
        item.node.textContent = text;
        item.node.title = title;
      };
      let asked = 0;
      async function update() {
        const mine = ++asked;
        try {
          const state = await ask(tracker.currentWidget?.sessionContext.session?.kernel, "state()");
          if (mine !== asked) return;
          known.targets = state?.targets ?? null;
          if (state) say(.../** @type {[string, string]} */ (Object.values(words(state))));
          else say("Tile: not loaded", MISSING);
        } catch (error) {
          if (mine === asked) say("Tile: no answer", error.message);
        }
      }
      say("Tile: not loaded", MISSING);
      bar?.registerStatusItem("tileworkbench:machine", {
        item, align: "right", rank: 1, isActive: () => tracker.currentWidget !== null,
        activeStateChanged: tracker.currentChanged,
      });
      follow(tracker, NotebookActions, update);
    },
  };
}
