// The outlines of instructions' parts of a tile, drawn over a grid.

const STYLES = [
  { colour: "#111", dash: [] },
  { colour: "#8a0f0f", dash: [7, 4] },
  { colour: "#0b3d91", dash: [2, 4] },
];

/** How the atom at a place in the list is drawn; the switch beside its name has the same. */
export const styleOf = (/** @type {number} */ number) => STYLES[number % STYLES.length];

/**
 * Outlines of `grid.atoms`, which repeat from the first cell on: `rows` x `columns` cells, in the
 * style `number`, with the name in the first one in sight. Those of large ones lie on those of small
 * ones, which often end at the same places, and names on all.
 */
export function drawAtoms(/** @type {CanvasRenderingContext2D} */ context, /** @type {any} */ grid, /** @type {any} */ seen) {
  const { across, scale, slice } = grid;
  const drawn = grid.atoms // the others would be all lines and no picture
    .filter((/** @type {any} */ { rows, columns }) => rows * scale >= 4 || columns * across >= 4)
    .sort((/** @type {any} */ one, /** @type {any} */ other) => one.rows * one.columns - other.rows * other.columns);
  for (const atom of drawn) {
    const { colour, dash } = styleOf(atom.number);
    context.beginPath();
    for (let row = 0; row <= slice.rows; row += atom.rows) {
      context.moveTo(0, row * scale);
      context.lineTo(slice.columns * across, row * scale);
    }
    for (let column = 0; column <= slice.columns; column += atom.columns) {
      context.moveTo(column * across, 0);
      context.lineTo(column * across, slice.rows * scale);
    }
    context.setLineDash([]);
    context.strokeStyle = "rgba(255, 255, 255, 0.85)";
    context.lineWidth = 4;
    context.stroke();
    context.setLineDash(dash);
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.stroke();
    context.setLineDash([]);
  }
  for (const atom of drawn) drawName(context, grid, atom, seen, styleOf(atom.number).colour);
}

/** A name at the lower edge of the first atom that is wholly in sight, where it fits. */
function drawName(/** @type {CanvasRenderingContext2D} */ context, /** @type {any} */ grid, /** @type {any} */ atom, /** @type {any} */ seen, /** @type {any} */ colour) {
  const { across, scale } = grid;
  const row = Math.ceil(seen.top / atom.rows) * atom.rows;
  const column = Math.ceil(seen.left / atom.columns) * atom.columns;
  context.font = "600 10px system-ui, sans-serif";
  const width = context.measureText(atom.name).width + 8;
  if (width > atom.columns * across || atom.rows * scale < 30) return;
  const [x, y] = [column * across + 1, (row + atom.rows) * scale - 15 - 14 * atom.number];
  context.fillStyle = colour;
  context.fillRect(x, y, width, 14);
  context.fillStyle = "#fff";
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(atom.name, x + 4, y + 7.5);
}
