// What each line of a kernel costs, beside the line, from the last run: its share of the estimated
// time, its bytes, its wavefronts. A badge opens on what became of the line.
import { dataOf, unpack } from "./cards.js";
import { element, style, take } from "./shared.js";
import { makeTips } from "./tips.js";

const COST = "tileworkbench:line-cost";
const TOGGLE = "tileworkbench:badges";
const WAIT = 200; // ms: outputs come one after the other
const LOST = 1.01; // more wavefronts than needed, by this factor

/** `2048` as `2.0k`: three digits at most. */
function short(/** @type {number} */ count, step = 1000, units = ["", "k", "M", "G", "T"]) {
  let at = 0;
  while (count >= 1000 && at < units.length - 1) [count, at] = [count / step, at + 1];
  return `${at && count < 10 ? count.toFixed(1) : Math.round(count)}${units[at]}`;
}
const shortBytes = (/** @type {number} */ count) => short(count, 1024, ["B", "K", "M", "G", "T"]);

const spoken = (/** @type {LineBadge} */ { line, weight, bytes, wavefronts, ideal }) => [
  `line ${line}: ${Math.round(weight * 100)} % of the estimated time`,
  bytes ? `${shortBytes(bytes)} of memory traffic` : "",
  wavefronts ? `${wavefronts} wavefronts, ${ideal} needed` : "",
  "click, or Alt+C on the line: what became of it",
].filter(Boolean).join("; ");

/** A line's numbers as they are shown; null for one that costs nothing. */
function badgeOf(/** @type {Cost} */ cost) {
  const bytes = (cost.global_bytes ?? 0) + (cost.shared_bytes ?? 0);
  const { line, weight, wavefronts, ideal } = cost;
  return weight || bytes || wavefronts ? { line, weight, bytes, wavefronts, ideal } : null;
}

function draw(/** @type {LineBadge} */ badge) {
  const { weight, bytes, wavefronts, ideal } = badge;
  /**
   * @param {string} kind
   * @param {string} text
   */
  const part = (kind, text) => element("span", { className: `tw-badge-${kind}` }, text);
  const share = Math.round(weight * 100);
  const node = element("div", { className: "tw-badge", title: spoken(badge) },
    part("share", weight ? (share ? `${share} %` : "<1 %") : ""),
    part("bytes", bytes ? shortBytes(bytes) : ""),
    part(`waves${wavefronts > ideal * LOST ? " tw-badge-lost" : ""}`,
      wavefronts ? `${wavefronts > ideal * LOST ? "⚠ " : ""}${short(wavefronts)} wf` : ""));
  const tint = weight ? 0.06 + 0.4 * weight : 0;
  node.style.backgroundImage = tint
    ? `linear-gradient(rgba(240,150,0,${tint}),rgba(240,150,0,${tint}))` : "";
  return node;
}

export async function make(/** @type {Shared} */ shared) {
  const [{ IEditorExtensionRegistry, EditorExtensionRegistry }, view, state, { ICommandPalette }] =
    await Promise.all([
      take(shared, "@jupyterlab/codemirror"), take(shared, "@codemirror/view"),
      take(shared, "@codemirror/state"), take(shared, "@jupyterlab/apputils"), style(),
    ]);
  const tips = makeTips(view, state);
  const models = new WeakMap(); // of editors
  let visible = true;

  class Badge extends view.GutterMarker {
    constructor(/** @type {LineBadge} */ badge) {
      super();
      this.badge = badge;
    }

    eq(/** @type {{ badge: LineBadge }} */ other) {
      return JSON.stringify(other.badge) === JSON.stringify(this.badge);
    }

    toDOM() {
      return draw(this.badge);
    }
  }

  /** The badges of a text; lines that were changed since they were measured have none. */
  const put = state.StateEffect.define();
  const field = state.StateField.define({
    create: () => state.RangeSet.empty,
    update(/** @type {any} */ marks, /** @type {any} */ transaction) {
      for (const effect of transaction.effects) if (effect.is(put)) return effect.value;
      if (!transaction.docChanged) return marks;
      let kept = marks;
      transaction.changes.iterChangedRanges((/** @type {number} */ from, /** @type {number} */ to) => {
        const first = transaction.startState.doc.lineAt(from).from;
        kept = kept.update({ filter: (/** @type {number} */ at) => at < first || at > to });
      });
      return kept.map(transaction.changes);
    },
  });

  function marksOf(/** @type {LineCosts | null} */ data, /** @type {any} */ doc) {
    const marks = [];
    if (!data) return state.RangeSet.empty;
    for (const cost of data.costs) {
      const text = data.lines[cost.line - data.first];
      const badge = badgeOf(cost);
      if (!badge || cost.line > doc.lines || doc.line(cost.line).text.trimEnd() !== text?.trimEnd())
        continue;
      marks.push(new Badge(badge).range(doc.line(cost.line).from));
    }
    return state.RangeSet.of(marks, true);
  }

  /** Follows the outputs of the editor's cell. */
  class Follower {
    constructor(/** @type {CodeEditor} */ editor, /** @type {CellModel} */ model) {
      this.editor = editor;
      this.model = model;
      this.asked = 0;
      models.set(editor, model);
      this.changed = () => {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.read(), WAIT);
      };
      model.outputs.changed.connect(this.changed);
      this.changed();
    }

    async read() {
      const mine = ++this.asked;
      let source = null;
      try {
        const packed = dataOf(this.model)?.lines;
        source = packed ? await unpack(packed) : null;
      } catch (error) {
        console.warn("tileworkbench: no badges:", error);
      }
      if (mine !== this.asked || this.ended) return;
      const { doc } = this.editor.state;
      this.editor.dispatch({ effects: put.of(marksOf(visible ? source : null, doc)) });
    }

    destroy() {
      this.ended = true;
      clearTimeout(this.timer);
      this.model.outputs?.changed.disconnect(this.changed);
    }
  }

  const editors = new Set();
  const gutter = view.gutter({
    class: "tw-badges",
    markers: (/** @type {CodeEditor} */ editor) => editor.state.field(field),
    domEventHandlers: {
      mousedown(/** @type {CodeEditor} */ editor, /** @type {{ from: number }} */ block) {
        open(editor, block.from);
        return true;
      },
    },
  });

  function factory(/** @type {{ model: CellModel }} */ { model }) {
    if (!model?.outputs) return null;
    const follower = view.ViewPlugin.define((/** @type {CodeEditor} */ editor) => {
      const made = new Follower(editor, model);
      editors.add(made);
      return { destroy: () => { editors.delete(made); made.destroy(); } };
    });
    return EditorExtensionRegistry.createImmutableExtension(
      [field, gutter, follower, tips.extension]);
  }

  /** The badge of the line that starts at a place. */
  function badgeAt(/** @type {CodeEditor} */ editor, /** @type {number} */ at) {
    /** @type {any} */
    let found = null;
    editor.state.field(field, false)?.between(at, at, (/** @type {number} */ _from, /** @type {number} */ _to, /** @type {{ badge: LineBadge }} */ mark) => { found = mark.badge; });
    return found;
  }

  async function open(/** @type {CodeEditor} */ editor, /** @type {number} */ at) {
    const badge = badgeAt(editor, at);
    if (!badge) return;
    const dom = element("div", { className: "tw-tip", role: "dialog", tabIndex: -1,
      "aria-label": `What became of line ${badge.line}` });
    dom.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      tips.close(editor);
      editor.focus();
    });
    tips.show(editor, { pos: at, above: false, create: () => ({ dom }) });
    try {
      const data = dataOf(models.get(editor));
      const [source, [, answers]] = await Promise.all([unpack(data.lines),
        data.packed ? unpack(data.packed) : [null, {}]]);
      // @ts-ignore: copies of viz/static, which the installed extension has
      const [{ root }, { lineDetail }] = await Promise.all([
        // @ts-ignore
        import("./views/common.js"), import("./views/linedetail.js"), sheet("common"), sheet("source"),
      ]);
      const answer = answers.lines?.[badge.line]
        ?? { passes: [], code: [], error: "The card's Source tab has its IR and code." };
      root(dom, "annotated").append(...lineDetail(source, badge.line, answer));
    } catch (error) {
      dom.append(spoken(badge), ` (${error.message})`);
    }
    dom.focus();
  }

  return {
    id: "@tileworkbench/labext:badges",
    description: "Shows what each line of a kernel costs.",
    requires: [IEditorExtensionRegistry],
    optional: [ICommandPalette],
    /**
     * @param {Lab} app
     * @param {Registry} registry
     * @param {Commands | null} palette
     */
    activate(app, registry, palette) {
      registry.addExtension({ name: "tileworkbench:badges", factory });
      const editor = () => app.shell.currentWidget?.content?.activeCell?.editor?.editor;
      const line = () => editor().state.doc.lineAt(editor().state.selection.main.head).from;
      app.commands.addCommand(COST, {
        label: "What the Line at the Cursor Costs",
        isEnabled: () => Boolean(editor()?.state && badgeAt(editor(), line())),
        execute: () => open(editor(), line()),
      });
      app.commands.addCommand(TOGGLE, {
        label: "Costs Beside Lines",
        isToggled: () => visible,
        execute: () => {
          visible = !visible;
          for (const each of editors) each.changed();
        },
      });
      app.commands.addKeyBinding({
        command: COST, keys: ["Alt C"], selector: ".jp-Notebook .jp-CodeCell.jp-mod-active",
      });
      for (const command of [COST, TOGGLE]) palette?.addItem({ command, category: "Tile Kernels" });
    },
  };
}

/** A style sheet of the views. */
function sheet(/** @type {string} */ name) {
  const href = new URL(`./views/${name}.css`, import.meta.url).href;
  if ([...document.styleSheets].some((each) => each.href === href)) return;
  document.head.append(element("link", { rel: "stylesheet", href }));
}
