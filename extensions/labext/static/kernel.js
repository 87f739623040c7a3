// Questions to a kernel, asked behind its cells: nothing is shown, counted or kept of them. A kernel
// that never imported the package is not made to.
const WAIT = 20_000; // ms

/** What a kernel last said of its machine: the targets that work; null before. */
export const known = { targets: null };

export const MISSING = "This kernel has not loaded tileworkbench: run %load_ext tileworkbench.";

/**
 * What a function of `viz/magics/lab.py` answers; null where the kernel has not loaded the package,
 * which `load` changes. Raises where the kernel cannot answer.
 */
export async function ask(/** @type {any} */ kernel, /** @type {string} */ call, load = false) {
  if (!kernel || ["dead", "terminating", "restarting", "autorestarting"].includes(kernel.status))
    throw new Error("There is no kernel that could answer.");
  const info = await kernel.info;
  if (info.language_info?.name !== "python") return null;
  const module = "__import__('importlib').import_module('tileworkbench.viz.magics.lab')";
  const guard = load ? "" : " if 'tileworkbench' in __import__('sys').modules else None";
  const future = kernel.requestExecute({
    code: "", silent: true, store_history: false, allow_stdin: false, stop_on_error: false,
    user_expressions: { tile: `(${module}.${call}${guard})` },
  });
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("The kernel is busy.")), WAIT);
  });
  try {
    const { content } = await Promise.race([future.done, late]);
    const said = content.user_expressions?.tile;
    if (said?.status === "ok") return said.data["application/json"]?.answer ?? null;
    if (/ModuleNotFoundError|AttributeError/.test(said?.ename ?? ""))
      throw new Error(load ? "The kernel's Python has no tileworkbench, or an older one."
        : "The kernel's tileworkbench is another version: restart it, or install this one there.");
    throw new Error(said?.evalue ?? "The kernel did not answer.");
  } finally {
    clearTimeout(timer);
    future.dispose();
  }
}

/**
 * Calls back when a notebook's cell has run, or another notebook or kernel is the current one.
 * @param {Tracker} tracker
 * @param {{ executed: LabSignal }} NotebookActions
 * @param {() => void} changed
 */
export function follow(tracker, NotebookActions, changed) {
  let session = /** @type {any} */ (null);
  const other = () => {
    session?.kernelChanged.disconnect(changed);
    session?.statusChanged.disconnect(ended);
    session = tracker.currentWidget?.sessionContext ?? null;
    session?.kernelChanged.connect(changed);
    session?.statusChanged.connect(ended);
    session?.ready.then(changed, changed);
  };
  // Of the others the question itself would be one.
  let gone = false;
  const ended = (/** @type {object} */ _session, /** @type {string} */ status) => {
    if (["restarting", "autorestarting", "dead"].includes(status)) gone = true;
    else if (!gone || status !== "idle") return;
    else gone = false;
    changed();
  };
  NotebookActions.executed.connect(changed);
  tracker.currentChanged.connect(other);
  other();
}
