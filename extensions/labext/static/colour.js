// The parts of a magic's line are coloured as what they are, in the colours of JupyterLab's theme.
import { style, take, vocabulary } from "./shared.js";
import { magicOf, marksOf } from "./line.js";

export async function make(/** @type {Shared} */ shared) {
  const [{ IEditorExtensionRegistry, EditorExtensionRegistry }, view, state, words] =
    await Promise.all([
      take(shared, "@jupyterlab/codemirror"), take(shared, "@codemirror/view"),
      take(shared, "@codemirror/state"), vocabulary(), style(),
    ]);
  const { Decoration, ViewPlugin } = view;
  const kinds = /** @type {Record<string, object>} */ ({});
  /** @param {string} kind */
  const decoration = (kind) => (kinds[kind] ??= Decoration.mark({ class: `tw-line-${kind}` }));

  /**
   * @param {{ doc: any }} given
   * @param {readonly { from: number, to: number }[]} ranges
   */
  function decorate({ doc }, ranges) {
    const made = new state.RangeSetBuilder();
    for (const { from, to } of ranges)
      for (let at = from; at <= to; ) {
        const line = doc.lineAt(at);
        if (magicOf(line.text, line.number === 1))
          for (const mark of marksOf(line.text, line.number === 1, words))
            made.add(line.from + mark.from, line.from + mark.to, decoration(mark.kind));
        at = line.to + 1;
      }
    return made.finish();
  }

  const plugin = ViewPlugin.define((/** @type {CodeEditor} */ editor) => ({
    shown: decorate(editor.state, editor.visibleRanges),
    update(/** @type {any} */ change) {
      if (change.docChanged || change.viewportChanged)
        this.shown = decorate(change.state, change.view.visibleRanges);
    },
  }), { decorations: (/** @type {{ shown: object }} */ value) => value.shown });

  return {
    id: "@tileworkbench/labext:colour",
    description: "Colours the first line of %%tile cells.",
    requires: [IEditorExtensionRegistry],
    activate: (/** @type {Lab} */ _app, /** @type {Registry} */ registry) => registry.addExtension({
      name: "tileworkbench:colour",
      factory: () => EditorExtensionRegistry.createImmutableExtension(state.Prec.highest(plugin)),
    }),
  };
}
