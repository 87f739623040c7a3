// What a name of the language or a flag is: where the pointer rests on it, and by a command for the
// one at the cursor.
import { element, prose, style, take, vocabulary } from "./shared.js";
import { marksOf } from "./line.js";
import { nameAt, speaks } from "./language.js";
import { makeTips } from "./tips.js";

const COMMAND = "tileworkbench:help";

export async function make(/** @type {Shared} */ shared) {
  const [{ IEditorExtensionRegistry, EditorExtensionRegistry }, view, state, apputils, words] =
    await Promise.all([
      take(shared, "@jupyterlab/codemirror"), take(shared, "@codemirror/view"),
      take(shared, "@codemirror/state"), take(shared, "@jupyterlab/apputils"), vocabulary(), style(),
    ]);

  /**
   * What is said of a place in a cell: `{ pos, end, create }`, or null.
   * @param {CellModel} model
   * @param {{ doc: any }} given
   * @param {number} at
   */
  function tip(model, { doc }, at) {
    const line = doc.lineAt(at);
    const column = at - line.from;
    const found = nameAt(line.text, column);
    const entry = found && Object.hasOwn(words.language, found.name) && speaks(model)
      ? words.language[found.name] : null;
    if (found && entry) return placed(line, found, () => entryNode(found.name, entry));
    const mark = marksOf(line.text, line.number === 1, words)
      .find((each) => each.about && each.from <= column && column <= each.to);
    if (!mark) return null;
    const title = line.text.slice(mark.from, mark.to);
    return placed(line, mark, () => node(title, prose(/** @type {string} */ (mark.about))));
  }

  /**
   * @param {{ from: number }} line
   * @param {{ from: number, to: number }} given
   * @param {() => HTMLElement} make
   */
  const placed = (line, { from, to }, make) => ({
    pos: line.from + from, end: line.from + to, above: false, create: () => ({ dom: make() }),
  });
  /**
   * @param {string} title
   * @param {(Node | string | null)[]} children
   */
  const node = (title, children) => element("div", { className: "tw-tip", role: "tooltip" },
    element("div", { className: "tw-tip-title" }, title), children);
  /**
   * @param {string} name
   * @param {{ kind: string, signature: string, about: string }} given
   */
  const entryNode = (name, { kind, signature, about }) => kind === "dtype"
    ? node(`T.${name}`, prose("A dtype of the language."))
    : node(signature, prose(about));

  const tips = makeTips(view, state);
  /** @param {{ model: CellModel }} given */
  const factory = ({ model }) => EditorExtensionRegistry.createImmutableExtension([
    view.hoverTooltip((/** @type {CodeEditor} */ editor, /** @type {number} */ at) => (tips.shown(editor) ? null
      : tip(model, editor.state, at)), { hoverTime: 400 }),
    tips.extension,
  ]);

  return {
    id: "@tileworkbench/labext:help",
    description: "Describes names of the language and flags of %%tile.",
    requires: [IEditorExtensionRegistry],
    optional: [apputils.ICommandPalette],
    /**
     * @param {Lab} app
     * @param {Registry} registry
     * @param {Commands | null} palette
     */
    activate(app, registry, palette) {
      registry.addExtension({ name: "tileworkbench:help", factory });
      const cell = () => app.shell.currentWidget?.content?.activeCell;
      app.commands.addCommand(COMMAND, {
        label: "Help on the Name or Flag at the Cursor",
        isEnabled: () => tips.shown(cell()?.editor?.editor) !== undefined,
        execute: () => {
          const editor = cell().editor.editor;
          tips.show(editor, tip(cell().model, editor.state, editor.state.selection.main.head));
          editor.focus();
        },
      });
      app.commands.addKeyBinding({
        command: COMMAND, keys: ["Alt H"], selector: ".jp-Notebook .jp-CodeCell.jp-mod-active",
      });
      palette?.addItem({ command: COMMAND, category: "Tile Kernels" });
    },
  };
}
