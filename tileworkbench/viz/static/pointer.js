// Pointer and keys on a grid: hover, click, drag, zoom, walk.

/**
 * `hover(cell)` is called with the cell under the pointer (null: none), `choose(cell)` with the one
 * that is clicked, `changed()` when the grid must be drawn again.
 * @param {any} grid a LayoutGrid
 * @param {{ hover: (cell: number | null) => void, choose: (cell: number | null) => void,
 *           changed: () => void }} acts
 */
export function listen(grid, { hover, choose, changed }) {
  const { canvas } = grid;
  const at = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const cellAt = (/** @type {MouseEvent} */ event) => grid.cellAt(...at(event));
  let press = /** @type {any} */ (null);
  canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    press = { from: at(event), x: grid.x, y: grid.y, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    if (!grid.slice) return;
    const [x, y] = at(event);
    if (press) {
      const [dx, dy] = [x - press.from[0], y - press.from[1]];
      press.moved ||= Math.abs(dx) + Math.abs(dy) > 4;
      if (press.moved) {
        grid.move(press.x - dx, press.y - dy);
        changed();
        return;
      }
    }
    hover(cellAt(event));
  });
  canvas.addEventListener("pointerup", (/** @type {PointerEvent} */ event) => {
    const moved = press?.moved;
    press = null;
    if (!moved && grid.slice) choose(cellAt(event));
  });
  canvas.addEventListener("pointerleave", () => { if (!press) hover(null); });
  canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
    if (!grid.slice || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    grid.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, at(event));
    changed();
  }, { passive: false });

  const walk = (/** @type {number} */ by) => {
    const next = grid.hover === null ? 0 : grid.hover + by;
    if (next < 0 || next >= grid.slice.cells || grid.slice.isEmpty(next)) return;
    grid.reveal(next);
    hover(next);
    changed();
  };
  canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (!grid.slice) return;
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => walk(-1),
      ArrowRight: () => walk(1),
      ArrowUp: () => walk(-grid.slice.columns),
      ArrowDown: () => walk(grid.slice.columns),
      Enter: () => grid.hover !== null && choose(grid.hover),
      Escape: () => choose(null),
      "+": () => { grid.zoom(1.5); changed(); },
      "-": () => { grid.zoom(1 / 1.5); changed(); },
    };
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
    event.stopPropagation();
  });
}
