// The course and the puzzles, from the launcher and the command palette.
import { ask } from "./kernel.js";
import { take, vocabulary } from "./shared.js";

const [COURSE, PUZZLE] = ["tileworkbench:course", "tileworkbench:puzzle"];
const CATEGORY = "Tile Kernels";
const FOLDERS = ["notebooks", "course"]; // of a checkout, and of a copy

export async function make(/** @type {Shared} */ shared) {
  const [{ ICommandPalette, showErrorMessage }, { ILauncher }, { INotebookTracker }, words] =
    await Promise.all([
      take(shared, "@jupyterlab/apputils"), take(shared, "@jupyterlab/launcher"),
      take(shared, "@jupyterlab/notebook"), vocabulary(),
    ]);
  const { index, chapters } = words.course;
  const puzzleChapter = chapters.find((/** @type {Chapter} */ { file }) => file.includes("puzzle"))?.file ?? index;

  /** The path of a chapter; the course is copied where the server's folder has none. */
  async function pathOf(/** @type {Lab} */ app, /** @type {string} */ file) {
    const { contents, kernels } = app.serviceManager;
    for (const folder of FOLDERS) {
      try {
        await contents.get(`${folder}/${index}`, { content: false });
        return `${folder}/${file}`;
      } catch {
        // not there
      }
    }
    await app.serviceManager.kernelspecs.ready;
    const name = app.serviceManager.kernelspecs.specs?.default;
    const kernel = await kernels.startNew({ name, path: "" }); // in the server's folder
    try {
      const { folder, error } = await ask(kernel, "course()", true);
      if (error) throw new Error(error);
      return folder ? `${folder}/${file}` : file;
    } finally {
      await kernel.shutdown();
    }
  }

  return {
    id: "@tileworkbench/labext:course",
    description: "Opens the course and its puzzles.",
    requires: [INotebookTracker],
    optional: [ICommandPalette, ILauncher],
    /**
     * @param {Lab} app
     * @param {Tracker} tracker
     * @param {Commands | null} palette
     * @param {Commands | null} launcher
     */
    activate(app, tracker, palette, launcher) {
      const { commands } = app;
      commands.addCommand(COURSE, {
        label: (/** @type {{ file: string, title?: string }} */ { file, title }) => (file === puzzleChapter && !title ? "Tile Puzzles"
          : title ? `Course: ${title}` : "Tile Course"),
        caption: "A chapter of the course on tile kernels",
        execute: async (/** @type {Chapter} */ { file }) => {
          try {
            const path = await pathOf(app, String(file ?? index));
            await commands.execute("docmanager:open", { path, factory: "Notebook" });
          } catch (error) {
            await showErrorMessage("The course cannot be opened", error.message);
          }
        },
      });
      commands.addCommand(PUZZLE, {
        label: (/** @type {{ number: number, title: string }} */ { number, title }) => `Puzzle ${number}: ${title}`,
        caption: "Puts the puzzle below the active cell",
        isEnabled: () => tracker.currentWidget !== null,
        execute: (/** @type {{ number: number }} */ { number }) => {
          const { content } = /** @type {NotebookPanel} */ (tracker.currentWidget);
          const cell = { cell_type: "code", source: `%tile puzzle ${number}`, metadata: { trusted: true } };
          content.model.sharedModel.insertCell(content.activeCellIndex + 1, cell);
          content.activeCellIndex += 1;
        },
      });
      const shown = [{}, { file: puzzleChapter }];
      for (const [rank, args] of shown.entries())
        launcher?.add({ command: COURSE, args, category: CATEGORY, rank });
      const listed = [...shown,
        ...chapters.map((/** @type {{ number: number, title: string, file: string }} */ { number, title, file }) => ({ file, title: `${number} ${title}` }))];
      for (const args of listed) palette?.addItem({ command: COURSE, args, category: CATEGORY });
      for (const args of words.puzzles) palette?.addItem({ command: PUZZLE, args, category: CATEGORY });
    },
  };
}
