// The card of the active cell beside the notebook, where there is room: the same card, not a copy. A
// live one answers here too, and what is chosen in one is marked in both.
import { cardOf } from "./cards.js";
import { element, style, take } from "./shared.js";

const ID = "tileworkbench-inspector";
const COMMAND = "tileworkbench:inspector";
const WIDTH = 640; // px that it opens with, at most this part of the window, if as much is left
const [MOST, LEAST] = [0.45, 0.2];
const WAIT = 150; // ms: outputs come one after the other
const ICON = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161"><path d="M3 3h8v8H3zM13 3h8v8h-8zM3 13h8v8H3z" opacity=".55"/>
  <path d="M16.5 12.5a4 4 0 1 0 2.2 7.3l2.6 2.6 1.4-1.4-2.6-2.6a4 4 0 0 0-3.600-5.900zm0 1.900a2.100
  2.100 0 1 1 0 4.200 2.100 2.100 0 0 1 0-4.200z"/></g></svg>`;
const EMPTY = "Select a cell whose output is a kernel's card: a %%tile cell that has run. "
  + "Its views are shown here.";

export async function make(/** @type {Shared} */ shared) {
  const [{ INotebookTracker }, { Widget }, { LabIcon }, { ICommandPalette }] = await Promise.all([
    take(shared, "@jupyterlab/notebook"), take(shared, "@lumino/widgets"),
    take(shared, "@jupyterlab/ui-components"), take(shared, "@jupyterlab/apputils"), style(),
  ]);

  class Inspector extends Widget {
    constructor(/** @type {Tracker} */ tracker) {
      super();
      this.tracker = tracker;
      this.id = ID;
      this.addClass("tw-inspector");
      this.title.icon = new LabIcon({ name: "tileworkbench:inspector", svgstr: ICON });
      this.title.caption = "Tile Inspector";
      this.head = element("div", { className: "tw-inspector-head" });
      this.body = element("div", { className: "tw-inspector-body" });
      this.node.setAttribute("role", "region");
      this.node.setAttribute("aria-label", "Tile Inspector");
      this.node.append(this.head, this.body);
      this.cell = this.renderer = this.output = null;
      tracker.activeCellChanged.connect(this.follow, this);
      tracker.currentChanged.connect(this.follow, this);
      this.show_();
    }

    onAfterShow() {
      this.follow();
      requestAnimationFrame(() => this.widen());
    }

    /** Cards are wider than what side bars usually hold: room is made once. */
    widen() {
      let split = this.parent;
      while (split && typeof split.relativeSizes !== "function") split = split.parent;
      if (this.wide || !split) return;
      this.wide = true;
      const sizes = split.relativeSizes();
      const wanted = Math.min(WIDTH / Math.max(split.node.clientWidth, 1), MOST);
      if (sizes.length < 2 || sizes.at(-1) >= wanted) return;
      const rest = sizes.at(-2) + sizes.at(-1) - wanted;
      if (rest > LEAST) split.setRelativeSizes([...sizes.slice(0, -2), rest, wanted]);
    }

    /** The active cell, if it has a card; else the last one that had, as long as it is there. */
    follow() {
      const active = this.tracker.activeCell;
      if (!this.isVisible) return;
      if (active !== this.cell && (cardOf(active?.model) || !this.cell || this.cell.isDisposed)) {
        this.watch(active);
      }
      this.show_();
    }

    watch(/** @type {NotebookCell | null} */ cell) {
      const outputs = this.cell?.isDisposed ? null : this.cell?.model?.outputs;
      outputs?.changed.disconnect(this.later, this);
      this.cell = cell;
      cell?.model?.outputs?.changed.connect(this.later, this);
    }

    later() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.follow(), WAIT);
    }

    show_() {
      if (this.isDisposed) return;
      const cell = this.cell?.isDisposed ? null : this.cell;
      const card = cell ? cardOf(cell.model) : null;
      this.headline(cell, card);
      if (card && card.output === this.output) return;
      this.output = card?.output ?? null;
      this.renderer?.dispose();
      this.renderer = null;
      if (!card) {
        this.body.replaceChildren(element("p", { className: "tw-inspector-empty" }, EMPTY));
        return;
      }
      const panel = this.tracker.find((/** @type {NotebookPanel} */ each) => each.content.widgets.includes(cell));
      const rendermime = panel?.content.rendermime;
      this.body.replaceChildren();
      if (!rendermime) return;
      this.renderer = rendermime.createRenderer(card.type);
      Widget.attach(this.renderer, this.body);
      this.renderer.renderModel(card.output).catch((/** @type {Error} */ error) =>
        console.warn("tileworkbench: the card is not shown:", error));
    }

    headline(/** @type {NotebookCell | null} */ cell, /** @type {Fields | null} */ card) {
      const count = cell?.model?.executionCount;
      const active = cell === this.tracker.activeCell;
      this.head.replaceChildren(...(card ? [
        element("b", {}, count ? `Cell [${count}]` : "Cell"),
        element("span", {}, active ? "" : "not the active cell, which has no card"),
      ] : [element("b", {}, "Tile Inspector")]));
    }

    dispose() {
      clearTimeout(this.timer);
      this.renderer?.dispose();
      super.dispose();
    }
  }

  return {
    id: "@tileworkbench/labext:inspector",
    description: "Shows the active cell's kernel beside the notebook.",
    requires: [INotebookTracker],
    optional: [ICommandPalette],
    /**
     * @param {Lab} app
     * @param {Tracker} tracker
     * @param {Commands | null} palette
     */
    activate(app, tracker, palette) {
      const inspector = new Inspector(tracker);
      app.shell.add(inspector, "right", { rank: 850 });
      app.commands.addCommand(COMMAND, {
        label: "Show the Tile Inspector",
        execute: () => app.shell.activateById(ID),
      });
      palette?.addItem({ command: COMMAND, category: "Tile Kernels" });
    },
  };
}
