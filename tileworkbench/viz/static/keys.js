// What is no button and reacts to clicks reacts to keys too.
import { reveal } from "./common.js";

/**
 * Choose lines of the listing `node` by clicks and, once it has the focus, by the arrow keys.
 * @param {HTMLElement} node
 * @param {(line: number) => void} choose
 * @param {string} label what the listing is, for screen readers
 */
export const pickLines = (node, choose, label) => {
  node.tabIndex = 0;
  node.setAttribute("role", "group");
  node.setAttribute("aria-label", `${label}; arrow keys choose a line`);
  node.addEventListener("click", ({ target }) => {
    const row = /** @type {HTMLElement | null} */ (/** @type {Element} */ (target).closest(".tw-line"));
    if (row) go([...node.querySelectorAll(".tw-line")].indexOf(row));
  });
  let cursor = -1;
  const go = (/** @type {number} */ index) => {
    const rows = /** @type {HTMLElement[]} */ ([...node.querySelectorAll(".tw-line")]);
    rows[cursor]?.classList.remove("tw-cursor");
    cursor = Math.min(Math.max(index, 0), rows.length - 1);
    rows[cursor]?.classList.add("tw-cursor");
    if (!rows[cursor]) return;
    reveal(node, rows[cursor]);
    choose(Number(rows[cursor].dataset.line));
  };
  node.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const rows = [...node.querySelectorAll(".tw-line")];
    go((cursor < 0 ? rows.findIndex((row) => row.classList.contains("tw-marked")) : cursor) + step);
  });
};

/**
 * Make something that is no button react to clicks, Enter and Space.
 * @param {Element} node
 * @param {() => void} act
 * @param {string} label
 */
export const pressable = (node, act, label) => {
  for (const [key, value] of [["tabindex", "0"], ["role", "button"], ["aria-label", label]])
    node.setAttribute(key, value);
  node.addEventListener("click", act);
  node.addEventListener("keydown", (event) => {
    if (!["Enter", " "].includes(/** @type {KeyboardEvent} */ (event).key)) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
};
