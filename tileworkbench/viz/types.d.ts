// The shapes that views share, for `tsc --checkJs` (`make check-js`) and for editors; never loaded.

/** What is chosen in one view and marked in all. A line of 0 is none. */
interface Selection {
  line?: number;
  /** Several, in place of `line`: those that use a buffer. */
  lines?: number[];
  buffer?: string;
  element?: number[];
}

/** The browser's side of a widget: anywidget's model, or `SavedModel` of a saved page. */
interface Model {
  get(name: string): any;
  set(name: string, value: any): void;
  save_changes(): void;
  on(event: string, listener: (...values: any[]) => void): void;
  off(event: string, listener?: ((...values: any[]) => void) | null): void;
  send(message: object): void;
  widget_manager?: any;
  /** Of a saved card: the static form of a view whose data there was no room for. */
  still?(name: string): HTMLElement | null;
}

/** What a view's `render` gets: `data` is what `View.model` of viz/model/views.py returned. */
interface ViewArguments {
  model: Model;
  el: HTMLElement;
  data?: any;
  name?: string;
}

/** What an element holds; null and undefined are left out. */
type Content = Node | string | null | undefined;
type MakePart = (kind: string, ...children: Content[]) => any;
type MakeButton =
  (text: string, onclick: (event: any) => void, attributes?: Record<string, any>) => any;
/** A language whose words have colours. */
type Language = "tile" | "llvm" | "c";

/** Ends a view: its listeners and observers. */
type Dispose = () => void;
type Render = (given: ViewArguments) => Dispose | void;

/** A table of numbers as `pack` of viz/model/packing.py writes it; `data` is base64 or bytes. */
interface Packed {
  type: "u1" | "u2" | "i4" | "f8";
  data: string | DataView | ArrayBuffer;
}

type Colour = number[];

/** What a `CellGrid` draws in a cell. */
interface Cell {
  fill: Colour;
  text?: string;
  mark?: string;
}

/** What a `CellGrid` shows; cells.js says what each part is. */
interface Picture {
  title: string;
  note: string;
  label: string;
  rows: number;
  columns: number;
  most: [number, number];
  letters: number;
  rowName(row: number): string;
  columnName(column: number): string;
  cell(row: number, column: number): Cell | null | undefined;
  foot?(column: number): { text: string; bad: boolean };
  lane?(row: number, column: number): number | null;
  byte?(row: number, column: number): number;
  element?(row: number, column: number): number[] | null | undefined;
}

/** A layout of a tile: the place of each element in row-major order, of `size` places. */
interface Places {
  table: Int32Array | Uint16Array | Uint8Array | Float64Array;
  size: number;
  text?: string;
}

/** A tile in shared memory, as the views of banks have it. */
interface Tile {
  name: string;
  bits: number;
  base: number;
  shape: number[];
  layout: Places;
  [more: string]: any;
}

/** A request of an access: an address per thread, or `NOBODY`; what it is done `times` times. */
interface Request {
  times: number;
  addresses: Int32Array | number[];
  register?: string;
}

interface Access {
  kind: string;
  width: number;
  requests: Request[];
  [more: string]: any;
}

interface Window {
  _JUPYTERLAB?: Record<string, unknown>;
}

/** A buffer of a block in shared memory, with the lines that use it; of viz/model/smem.py. */
interface SharedBuffer {
  name: string;
  lines: number[];
  [more: string]: any;
}
