// Boxes beside the text of a cell, one at a time in each editor. Escape, another place of the cursor
// and a change of the text end one; the keyboard may go into it.

/** What an editor needs for them, how one is shown (null: none), and what is shown. */
export function makeTips(/** @type {any} */ view, /** @type {any} */ state) {
  const effect = state.StateEffect.define();
  const field = state.StateField.define({
    create: () => null,
    update(/** @type {object | null} */ value, /** @type {any} */ transaction) {
      const asked = transaction.effects.find((/** @type {any} */ each) => each.is(effect));
      if (asked) return asked.value;
      return transaction.docChanged || transaction.selection ? null : value;
    },
    provide: (/** @type {any} */ each) => view.showTooltip.from(each),
  });
  /**
   * @param {CodeEditor} editor
   * @param {object | null} tip
   */
  const show = (editor, tip) => editor.dispatch({ effects: effect.of(tip) });
  const close = (/** @type {CodeEditor} */ editor) => {
    if (!editor.state.field(field, false)) return false;
    show(editor, null);
    return true;
  };
  const extension = [
    field,
    state.Prec.highest(view.keymap.of([{ key: "Escape", run: close }])),
    // JupyterLab may take Escape first, and leaves the editor.
    view.EditorView.domEventHandlers({
      blur: (/** @type {FocusEvent & { relatedTarget: any }} */ event, /** @type {CodeEditor} */ editor) => {
        if (!event.relatedTarget?.closest?.(".tw-tip")) close(editor);
      },
    }),
  ];
  return { extension, show, close, shown: (/** @type {CodeEditor} */ editor) => editor?.state?.field(field, false) };
}
