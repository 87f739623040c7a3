// Boxes beside the text of a cell, one at a time in each editor. Escape, another place of the cursor
// and a change of the text end one; the keyboard may go into it.

/** What an editor needs for them, how one is shown (null: none), and what is shown. */
export function makeTips(view, state) {
  const effect = state.StateEffect.define();
  const field = state.StateField.define({
    create: () => null,
    update(value, transaction) {
      const asked = transaction.effects.find((each) => each.is(effect));
      if (asked) return asked.value;
      return transaction.docChanged || transaction.selection ? null : value;
    },
    provide: (each) => view.showTooltip.from(each),
  });
  const show = (editor, tip) => editor.dispatch({ effects: effect.of(tip) });
  const close = (editor) => {
    if (!editor.state.field(field, false)) return false;
    show(editor, null);
    return true;
  };
  const extension = [
    field,
    state.Prec.highest(view.keymap.of([{ key: "Escape", run: close }])),
    // JupyterLab may take Escape first, and leaves the editor.
    view.EditorView.domEventHandlers({
      blur: (event, editor) => {
        if (!event.relatedTarget?.closest?.(".tw-tip")) close(editor);
      },
    }),
  ];
  return { extension, show, close, shown: (editor) => editor?.state?.field(field, false) };
}
