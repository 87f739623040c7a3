// What a name of the IR is, shown where the pointer rests on it.
import * as tw from "./common.js";

const REST = 140; // milliseconds that the pointer rests before anything is asked
const LEAVE = 250; // and in which it may go from the name into what is shown
const WORD = /[\p{L}_][\p{L}\p{N}_]*/gu;

/** The name under a point, with the element of the line that it stands in; null for none. */
export function nameAt(/** @type {number} */ x, /** @type {number} */ y) {
  const page = /** @type {any} */ (document);
  const found = page.caretPositionFromPoint?.(x, y) ?? page.caretRangeFromPoint?.(x, y);
  const node = found?.offsetNode ?? found?.startContainer;
  const code = node?.parentElement?.closest(".tw-code");
  if (!code) return null;
  const range = document.createRange();
  range.setStart(code, 0);
  range.setEnd(node, found.offset ?? found.startOffset);
  const at = range.toString().length;
  for (const match of code.textContent.matchAll(WORD)) {
    const start = match.index ?? 0;
    if (start <= at && at <= start + match[0].length && code.textContent[start - 1] !== ".")
      return { name: match[0], code };
  }
  return null;
}

/** The names in a line of the IR, each once, in their order. */
const namesIn = (/** @type {string} */ text) => [...new Set([...text.matchAll(WORD)]
  .filter((match) => text[(match.index ?? 0) - 1] !== ".").map(([name]) => name))];

/**
 * Explain the names in `body`. `ask(name, before)` gives what is known, `go(number, before)` shows
 * a line of the program.
 * @param {{ root: HTMLElement, body: HTMLElement, scope: any,
 *   ask(name: string, before: boolean): Promise<any>, go(number: number, before: boolean): void,
 * }} options
 */
export function explainNames({ root, body, scope, ask, go }) {
  const card = tw.el("div", { class: "tw-name-card", role: "tooltip", "aria-live": "polite", hidden: true });
  root.append(card);
  let timer = 0;
  let shown = "";
  let turn = { code: /** @type {HTMLElement | null} */ (null), at: -1 }; // the name that keys have come to

  function later(/** @type {() => void} */ action, /** @type {number} */ wait) {
    clearTimeout(timer);
    timer = window.setTimeout(action, wait);
  }

  function hide() {
    clearTimeout(timer);
    card.hidden = true;
    shown = "";
  }

  /**
   * @param {{ name: string, code: any }} given
   * @param {number} x
   * @param {number} y
   */
  async function show({ name, code }, x, y) {
    const before = code.closest("[data-side]")?.dataset.side === "before";
    const key = `${before} ${name}`;
    if (key === shown) return;
    shown = key;
    let found;
    try {
      found = await ask(name, before);
    } catch {
      found = {}; // a saved copy does not hold it
    }
    if (shown !== key) return;
    if (!found.name) return hide();
    fill(found, before);
    card.hidden = false;
    const frame = root.getBoundingClientRect();
    const room = Math.max(0, frame.width - card.offsetWidth - 4);
    card.style.left = `${Math.min(Math.max(x - frame.left, 0), room)}px`;
    card.style.top = `${y - frame.top + 14}px`;
  }

  /**
   * @param {NameFacts} given
   * @param {boolean} before
   */
  function fill({ name, facts, defined, used, uses }, before) {
    /** @param {number[]} numbers */
    const lines = (numbers) => numbers.map((/** @type {number} */ number) => tw.link(String(number), () => go(number, before)));
    /**
     * @param {string} label
     * @param {Content[]} value
     */
    const row = (label, ...value) => tw.div("tw-row", tw.faint(label), tw.el("span", {}, ...value));
    const more = uses > used.length ? ` and ${uses - used.length} more` : "";
    card.replaceChildren(
      tw.div("tw-panel-title tw-mono", name),
      ...facts.map((/** @type {[string, string]} */ [label, value]) => label === "definition"
        ? tw.div("tw-definition", tw.code(value)) : row(label, tw.span("tw-mono", value))),
      row("defined", ...(defined ? ["line ", ...lines([defined])] : ["in the signature"])),
      row(`${uses} ${uses === 1 ? "use" : "uses"}`, ...(used.length ? ["lines "] : []),
        ...lines(used).flatMap((/** @type {Content} */ each) => [each, " "]), more),
    );
  }

  /** Explain the next name of the line in `code` that something is known of, after the last the first. */
  async function next(/** @type {HTMLElement} */ code) {
    clearTimeout(timer); // a pointer that has just left would hide what a key shows
    if (turn.code !== code) turn = { code, at: -1 };
    const all = namesIn(code.textContent);
    const { left, bottom } = code.getBoundingClientRect();
    for (let tried = 0; tried < all.length; tried++) {
      turn.at = (turn.at + 1) % all.length;
      shown = ""; // the one name of a line is told again
      await show({ name: all[turn.at], code }, left, bottom);
      if (!card.hidden) return;
    }
  }

  body.addEventListener("mousemove", ({ clientX, clientY, buttons }) => {
    const found = buttons ? null : nameAt(clientX, clientY);
    if (found) later(() => show(found, clientX, clientY), REST);
    else later(hide, LEAVE);
  });
  body.addEventListener("mouseleave", () => later(hide, LEAVE));
  card.addEventListener("mouseenter", () => clearTimeout(timer));
  card.addEventListener("mouseleave", () => later(hide, LEAVE));
  body.addEventListener("scroll", hide);
  scope.add(() => clearTimeout(timer));
  return { hide, next };
}
