// The kernels of the session, version by version, and what differs between two of them.
import { MISSING, ask, follow } from "./kernel.js";
import { element, style, take } from "./shared.js";

const ID = "tileworkbench-ledger";
const COMMAND = "tileworkbench:ledger";
const ICON = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3" fill="#616161" d="M4 4h3v3H4zM9 4h11v3H9zM4 10h3v3H4zM9 10h11v3H9zM4 16h3v3H4zM9 16h11v3H9z"/></svg>`;

export async function make(/** @type {Shared} */ shared) {
  const [{ INotebookTracker, NotebookActions }, { Widget }, { LabIcon }, { ICommandPalette }] =
    await Promise.all([
      take(shared, "@jupyterlab/notebook"), take(shared, "@lumino/widgets"),
      take(shared, "@jupyterlab/ui-components"), take(shared, "@jupyterlab/apputils"), style(),
    ]);

  class Ledger extends Widget {
    constructor(/** @type {Tracker} */ tracker) {
      super();
      this.id = ID;
      this.tracker = tracker;
      this.addClass("tw-ledger");
      this.title.icon = new LabIcon({ name: "tileworkbench:ledger", svgstr: ICON });
      this.title.caption = "Tile Kernels of This Session";
      this.chosen = /** @type {string[]} */ ([]);
      this.asked = 0;
      this.list = element("div", {});
      this.compare = element("button", {
        className: "jp-Button tw-ledger-compare", disabled: true, onclick: () => this.differences(),
      }, "Compare two");
      this.result = element("div", { className: "tw-ledger-result" });
      this.node.setAttribute("role", "region");
      this.node.setAttribute("aria-label", this.title.caption);
      this.node.append(element("h3", {}, this.title.caption), this.list, this.compare, this.result);
    }

    get kernel() {
      return this.tracker.currentWidget?.sessionContext.session?.kernel;
    }

    onAfterShow() {
      this.update_();
    }

    async update_() {
      if (!this.isVisible) return;
      const mine = ++this.asked;
      let rows = null, said = MISSING;
      try {
        rows = await ask(this.kernel, "kernels()");
      } catch (error) {
        said = error.message;
      }
      if (mine !== this.asked) return;
      this.chosen = this.chosen.filter((key) => rows?.some((/** @type {LedgerRow} */ row) => keyOf(row) === key));
      this.result.replaceChildren();
      if (rows?.length) this.list.replaceChildren(this.table(rows));
      else this.list.replaceChildren(element("p", {}, rows ? "No %%tile cell has run yet." : said));
      this.choose();
    }

    table(/** @type {LedgerRow[]} */ rows) {
      const head = ["", "kernel", "target", "time", "of attainable", "check"].map((text) =>
        element("th", { scope: "col" }, text));
      return element("table", {}, element("thead", {}, element("tr", {}, head)),
        element("tbody", {}, rows.flatMap((/** @type {LedgerRow} */ row) => this.rows(row))));
    }

    rows(/** @type {LedgerRow} */ row) {
      const key = keyOf(row);
      const box = element("input", {
        type: "checkbox", checked: this.chosen.includes(key), "aria-label": `Choose ${key}`,
        onchange: () => {
          this.chosen = this.chosen.filter((each) => each !== key);
          if (box.checked) this.chosen = [...this.chosen, key].slice(-2);
          this.choose();
        },
      });
      box.dataset.key = key;
      const cells = [key, row.target, row.time || "–", row.share || "–", row.check || "–"];
      return [
        element("tr", {}, element("td", {}, box), cells.map((text) => element("td", {}, text))),
        element("tr", { className: "tw-ledger-flags" }, element("td", {}),
          element("td", { colSpan: 5 }, `%%tile ${row.flags}`)),
      ];
    }

    choose() {
      for (const box of this.list.querySelectorAll("input"))
        box.checked = this.chosen.includes(/** @type {string} */ (box.dataset.key));
      this.compare.disabled = this.chosen.length !== 2;
    }

    /** The older one of a name first. */
    async differences() {
      const pairs = this.chosen.map((key) => key.split(" #")).sort((a, b) => Number(a[1]) - Number(b[1]));
      const call = pairs.map(([name, number]) => `(${JSON.stringify(name)}, ${number})`).join(", ");
      try {
        const answer = await ask(this.kernel, `compared(${call})`);
        const { changes, html, error } = answer ?? { changes: [], html: "", error: MISSING };
        const lines = element("pre", {}, changes.join("\n") || error || "The cells are the same.");
        this.result.replaceChildren(lines);
        const { rendermime } = /** @type {NotebookPanel} */ (this.tracker.currentWidget).content;
        const shown = rendermime.createRenderer("text/html");
        const data = { "text/html": html };
        await shown.renderModel(rendermime.createModel({ data, trusted: false }));
        this.result.append(shown.node);
      } catch (error) {
        this.result.replaceChildren(element("p", {}, error.message));
      }
    }
  }

  return {
    id: "@tileworkbench/labext:ledger",
    description: "Lists the kernels of the session.",
    requires: [INotebookTracker],
    optional: [ICommandPalette],
    /**
     * @param {Lab} app
     * @param {Tracker} tracker
     * @param {Commands | null} palette
     */
    activate(app, tracker, palette) {
      const ledger = new Ledger(tracker);
      app.shell.add(ledger, "right", { rank: 860 });
      app.commands.addCommand(COMMAND, {
        label: "Show the Kernels of This Session",
        execute: () => app.shell.activateById(ID),
      });
      palette?.addItem({ command: COMMAND, category: "Tile Kernels" });
      follow(tracker, NotebookActions, () => ledger.update_());
    },
  };
}

const keyOf = (/** @type {LedgerRow} */ { name, number }) => `${name} #${number}`;
