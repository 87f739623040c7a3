// A bar of progress below the cell that runs. It is no output, so nothing of it is saved.
import * as tw from "./common.js";

const RUNNING = "[*]:"; // the prompt of a cell that runs or waits for its turn

/** The first cell of those that run, in the notebook that is looked at. */
const runningCell = () =>
  [...document.querySelectorAll(".jp-Notebook .jp-CodeCell")].find((cell) =>
    cell.checkVisibility() && cell.querySelector(".jp-InputPrompt")?.textContent?.trim() === RUNNING);

/** The `initialize` of a widget's module: it has no view of its own. */
export const initialize = (/** @type {{ model: Model }} */ { model }) => {
  const fill = tw.div("tw-progress-fill");
  const text = tw.span("tw-faint");
  const bar = tw.el("div", { class: "tw-progress-bar", role: "progressbar", "aria-label": "Progress" }, fill);
  const node = tw.div("tw-view tw-progress", bar, text);

  function draw() {
    const [done, total] = [model.get("done"), model.get("total")];
    fill.style.width = `${(100 * done) / Math.max(total, 1)}%`;
    bar.setAttribute("aria-valuenow", String(done));
    bar.setAttribute("aria-valuemax", String(total));
    text.textContent = `${done} of ${total}`;
    if (model.get("ended")) node.remove();
    else if (!node.isConnected) runningCell()?.append(node);
  }

  model.on("change:done", draw);
  model.on("change:ended", draw);
  draw();
  return () => node.remove();
};
