// Completes the line of a magic and the names of the language, before any cell has run.
import { take, vocabulary } from "./shared.js";
import { magicOf, offersFor } from "./line.js";
import { known } from "./kernel.js";
import { kernelNames, speaks } from "./language.js";

const RANK = 600; // before the kernel's, which knows no descriptions
const NOTHING = { start: 0, end: 0, items: [] };

export async function make(/** @type {Shared} */ shared) {
  const [{ ICompletionProviderManager }, words] =
    await Promise.all([take(shared, "@jupyterlab/completer"), vocabulary()]);

  /** Names after `T.` up to the cursor. */
  function names(/** @type {string} */ line, /** @type {number} */ offset) {
    const found = /(?<![\w.])T\.(\w*)$/.exec(line);
    if (!found) return NOTHING;
    const items = Object.entries(words.language)
      .filter(([name]) => name.startsWith(found[1]))
      .map(([label, { kind, signature, about }]) => ({
        label,
        type: kind === "dtype" ? "type" : kind,
        documentation: kind === "dtype" ? "A dtype of the language." : `${signature}\n\n${about}`,
      }));
    return { start: offset - found[1].length, end: offset, items };
  }

  /**
   * @param {string} line
   * @param {boolean} first
   * @param {number} offset
   * @param {CellModel} model
   */
  function lineOffers(line, first, offset, model) {
    const had = { kernels: kernelNames(model), targets: known.targets ?? words.targets };
    const { from, items } = offersFor(line, first, words, had);
    return {
      start: offset - (line.length - from),
      end: offset,
      items: items.map((/** @type {Offer} */ { label, kind, about }) => ({ label, type: kind, documentation: about })),
    };
  }

  const provider = {
    identifier: "tileworkbench:words",
    rank: RANK,
    renderer: null,
    isApplicable: async (/** @type {{ editor: any }} */ { editor }) => Boolean(editor),
    /**
     * @param {{ text: string, offset: number }} given
     * @param {{ editor: any }} given
     */
    async fetch({ text, offset }, { editor }) {
      const before = text.slice(0, offset);
      const start = before.lastIndexOf("\n") + 1;
      const line = before.slice(start);
      const model = editor?.model;
      if (magicOf(line, start === 0)) return lineOffers(line, start === 0, offset, model);
      return speaks(model) ? names(line, offset) : NOTHING;
    },
  };

  return {
    id: "@tileworkbench/labext:completion",
    description: "Completes %%tile lines and names of the language.",
    requires: [ICompletionProviderManager],
    activate: (/** @type {Lab} */ _app, /** @type {{ registerProvider(provider: object): void }} */ manager) => manager.registerProvider(provider),
  };
}
