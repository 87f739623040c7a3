// The line of a magic of ours: its words, what each is, and what may follow. The same rules as
// `viz/magics/grammar.py`, on the words that it gave to the vocabulary.
const MAGIC = /^(?:(%%tile)(?=\s|$)|(\s*(?:[\w, ]+=\s*)?)(%tile)(?=\s|$))/;
/** @type {Record<string, string>} */
const CLOSING = { "(": ")", "[": "]", "{": "}" };

/** The magic that a line begins with and where it stands, or null; `%%tile` on a first line alone. */
export function magicOf(/** @type {string} */ text, /** @type {boolean} */ first) {
  const found = MAGIC.exec(text);
  if (!found || (found[1] && !first)) return null;
  const from = found[1] ? 0 : found[2].length;
  return { cell: Boolean(found[1]), from, to: found[0].length };
}

/** The words from `start` on, each with its place; quotes and brackets hold spaces. */
export function wordsOf(/** @type {string} */ text, /** @type {number} */ start) {
  const words = [];
  let from = -1, quote = "";
  const open = [];
  for (let at = start; at <= text.length; at++) {
    const char = text[at] ?? " ";
    const ends = at === text.length || (/\s/.test(char) && !quote && !open.length);
    if (ends) {
      if (from >= 0) words.push({ text: text.slice(from, at), from, to: at });
      from = -1;
      continue;
    }
    if (from < 0) from = at;
    if (quote) quote = char === quote && text[at - 1] !== "\\" ? "" : quote;
    else if (char === "'" || char === '"') quote = char;
    else if (char in CLOSING) open.push(CLOSING[char]);
    else if (char === open.at(-1)) open.pop();
  }
  return words;
}

/**
 * @param {string | undefined} word
 * @param {Vocabulary} given
 */
const flagOf = (word, { flags }) => flags.find((/** @type {Flag} */ { names }) => names.includes(/** @type {string} */ (word)));

/**
 * What the parts of a line are, in order. @returns {LineMark[]}
 * @param {string} text
 * @param {boolean} first
 * @param {Vocabulary} vocabulary
 */
export function marksOf(text, first, vocabulary) {
  const magic = magicOf(text, first);
  if (!magic) return [];
  /** @type {LineMark[]} */
  const marks = [{ from: magic.from, to: magic.to, kind: "magic" }];
  const words = wordsOf(text, magic.to);
  if (!magic.cell) return [...marks, ...commandMarks(words, vocabulary)];
  if (words[0] && Object.hasOwn(vocabulary.forms, words[0].text)) {
    const { about } = vocabulary.forms[words[0].text];
    return [...marks, { ...words[0], kind: "flag", about },
      ...words.slice(1).map((word) => ({ ...word, kind: word.text[0] === "-" ? "flag" : "value" }))];
  }
  let last = /** @type {Flag | null} */ (null);
  for (const word of words) {
    const [head] = word.text.split("=");
    if (word.text.startsWith("-") && !/^-[\d.]/.test(word.text)) {
      last = flagOf(head, vocabulary) ?? null;
      const to = word.from + head.length;
      marks.push(last ? { from: word.from, to, kind: "flag", about: last.about }
        : { from: word.from, to, kind: "wrong", about: `%%tile has no flag '${head}'.` });
      if (to < word.to && last) marks.push(...valueMarks(text, to + 1, word.to, last, vocabulary));
      if (to < word.to) last = null;
    } else if (last?.takes) {
      marks.push(...valueMarks(text, word.from, word.to, last, vocabulary));
      if (!/^--(sweep|slide)$/.test(/** @type {string} */ (last.names.at(-1)))) last = null; // those take several
    } else {
      marks.push({ ...word, kind: "name" });
    }
  }
  return marks;
}

function commandMarks(/** @type {Word[]} */ all, /** @type {Vocabulary} */ { commands }) {
  if (!all.length) return [];
  const [command, ...words] = all;
  const known = Object.hasOwn(commands, command.text) ? commands[command.text] : null;
  const about = known ? `%tile ${command.text} ${known.takes}\n\n${known.about}` : "";
  return [{ ...command, kind: known ? "flag" : "value", about },
    ...words.map((/** @type {Word} */ word) => ({ ...word, kind: word.text[0] === "-" ? "flag" : "value" }))];
}

/**
 * The parts of a comma list; what is not one of the flag's words is wrong.
 * @param {string} text
 * @param {number} from
 * @param {number} to
 * @param {Flag} flag
 * @param {Vocabulary} vocabulary
 */
function valueMarks(text, from, to, flag, vocabulary) {
  const fixed = flag.values.filter((/** @type {string} */ word) => !word.startsWith("<"));
  if (flag.values.includes("<targets>")) fixed.push(...vocabulary.targets);
  if (flag.values.includes("<kernels>") || !fixed.length) return [{ from, to, kind: "value" }];
  const marks = [];
  for (const part of text.slice(from, to).matchAll(/[^,]+/g)) {
    const start = from + part.index;
    const known = fixed.includes(part[0]) || fixed.includes(part[0].split(":")[0])
      || fixed.some((/** @type {string} */ word) => word.endsWith(`:${part[0]}`));
    const about = known ? "" : `'${part[0]}' is none of ${fixed.join(", ")}.`;
    marks.push({ from: start, to: start + part[0].length, kind: known ? "known" : "wrong", about });
  }
  return marks;
}

/**
 * What may stand at the end of `text`, the line up to the cursor: the word that is replaced begins
 * at `from`. `known` are the kernels and the targets that there are.
 * @param {string} text
 * @param {boolean} first
 * @param {Vocabulary} vocabulary
 * @param {{ kernels: string[], targets: string[] }} known
 */
export function offersFor(text, first, vocabulary, known) {
  const magic = magicOf(text, first);
  if (!magic || magic.to >= text.length) return { from: text.length, items: [] };
  const words = text.slice(magic.to + 1).split(" ");
  const last = words.at(-1) ?? "";
  /**
   * @param {string[]} values
   * @param {string} kind
   */
  const fill = (values, kind) => values.flatMap((/** @type {string} */ word) => (/** @type {Record<string, string[]>} */ ({
    "<kernels>": known.kernels, "<targets>": known.targets, "<passes>": vocabulary.passes, "<names>": [],
  }))[word] ?? [word]).map((/** @type {string} */ label) => ({ label, kind, about: "" }));
  const listed = (/** @type {string[]} */ values, /** @type {string} */ kind, part = last.split(",").at(-1) ?? "") =>
    starting(part, text.length, fill(values, kind));
  const { commands, forms, flags } = vocabulary;
  if (!magic.cell) {
    if (words.length === 1) return starting(last, text.length, Object.entries(commands).map(
      ([label, { about }]) => ({ label, kind: "command", about })));
    const command = Object.hasOwn(commands, words[0]) ? commands[words[0]] : null;
    if (!command) return { from: text.length, items: [] };
    if (words[0] === "show" && words.length === 3)
      return listed(flagOf("--show", vocabulary)?.values.filter((/** @type {string} */ word) => word !== "none") ?? [], "view");
    return words.length === 2 ? listed(command.values, "value") : { from: text.length, items: [] };
  }
  if (words.length > 1 && Object.hasOwn(forms, words[0]))
    return words.length === 2 ? listed(forms[words[0]].values, "value") : { from: text.length, items: [] };
  const [head, value] = last.includes("=") && last.startsWith("--") ? last.split("=")
    : [words.at(-2) ?? "", last];
  const flag = flagOf(head, vocabulary);
  if (flag?.takes) return listed(flag.values, kindOf(flag), value.split(",").at(-1) ?? "");
  const items = flags.flatMap((/** @type {Flag} */ { names, about }) =>
    names.map((/** @type {string} */ label) => ({ label, kind: "flag", about })));
  const opening = words.length === 1 && !last.startsWith("-");
  const named = opening ? [...known.kernels.map((/** @type {string} */ label) => ({ label, kind: "kernel", about: "" })),
    ...Object.entries(forms).map(([label, { about }]) => ({ label, kind: "form", about }))] : [];
  return starting(last, text.length, [...named, ...items]);
}

/** @param {Flag} given */
const kindOf = ({ names }) => (/** @type {Record<string, string>} */ ({ "--target": "target", "--show": "view" }))[/** @type {string} */ (names.at(-1))] ?? "value";

/**
 * @param {string} prefix
 * @param {number} end
 * @param {Offer[]} items
 */
function starting(prefix, end, items) {
  return {
    from: end - prefix.length,
    items: items.filter((/** @type {Offer} */ { label }) => label.startsWith(prefix) && label !== prefix),
  };
}
