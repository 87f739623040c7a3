// The shapes that views share, for `tsc --checkJs` (`make check-js`) and for editors; never loaded.

/** What is chosen in one view and marked in all. A line of 0 is none. */
interface Chosen {
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
  title?: string;
  note?: string;
  number?: string; // what the texts in cells are, said where they are written
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
interface AccessRequest {
  times: number;
  addresses: Int32Array | number[];
  register?: string;
}

interface Access {
  kind?: string;
  width: number;
  memory?: Memory;
  requests: AccessRequest[];
  [more: string]: any;
}

interface Window {
  _JUPYTERLAB?: Record<string, unknown>;
}

/** How a machine serves the lanes of a warp; of viz/model/banks.py. */
interface Memory {
  banks: number;
  warp: number;
  called?: string; // the vendor's word for a warp
  orders: Record<string, number[]>;
}

/** A buffer of a block in shared memory, with the lines that use it; of viz/model/smem.py. */
interface SharedBuffer {
  name: string;
  lines: number[];
  [more: string]: any;
}

/** An object of a view's data, as a module of viz/model wrote it. */
type Fields = Record<string, any>;

/** What a view listens with; `scope` of common.js. */
interface Scope {
  on(event: string, listener: (...values: any[]) => void): void;
  add(end: Dispose | void): any;
  dispose(): void;
}

/** An event of a key or a pointer, at an element. */
type Pressed = (KeyboardEvent | MouseEvent) & { target: any; [more: string]: any };

/** The colours that numbers (`sequence`) and categories get. */
interface Palette {
  sequence: Colour[];
  categories: Colour[];
  shade: number;
}

/** How a cell that is not pinned looks in a theme. */
interface Theme {
  veil: Colour;
  share: number;
  letters: Colour;
}

/** What a `LayoutGrid` draws: a `LayoutSlice` or a `HardwareSlice` of slices.js. */
interface Slice {
  rows: number;
  columns: number;
  cells: number;
  [more: string]: any;
}

/** The cells of a grid that are in sight. */
interface Seen {
  [edge: string]: number;
}

/** An instruction's part of a tile, outlined on a layout. */
interface Atom {
  name: string;
  rows: number;
  columns: number;
  [more: string]: any;
}

/** The lanes that shared memory serves together, with what they cost; of memory.js. */
interface Phase {
  warp: number;
  number: number;
  lanes: number[];
  addresses: number[];
  /** For each bank its words, each with the lanes that want it. */
  banks: Map<number, Map<number, number[]>>;
  degree: number;
  ideal: number;
  [more: string]: any;
}

/** A phase and what is looked at in it, for the pictures of bankpictures.js. */
interface Scene {
  phase: Phase;
  focus: number | null;
  tile: Tile;
  layout: Places;
  width: number;
  palette: Palette;
  [more: string]: any;
}

/** The lanes of a warp that access global memory together. */
interface WarpRequest {
  warp: number;
  lanes: number[];
  addresses: number[];
  sectors: number[];
  ideal: number;
  [more: string]: any;
}

/** A line of a list of accesses; `used` and `ideal` in its unit. */
interface AccessRow {
  index: number;
  line: number;
  side: string;
  described: string;
  used: number;
  ideal: number;
  bad: boolean;
  cells: string[];
}

/** What `accessTable` of accesses.js shows. */
interface AccessTable {
  heads: string[];
  groups: { name: string; note: string; accesses: AccessRow[] }[];
  choose(index: number): void;
}

/** A layout that can be tried out; `pitch` of padded rows, in elements. */
interface LayoutChoice {
  name: string;
  pitch: number;
  [more: string]: any;
}

/** CuTe's Swizzle<b, m, s> of a tile's places, over whole rows or chunks of so many bytes of them. */
interface Swizzle {
  b: number;
  m: number;
  s: number;
  chunk: number;
}

/** What a line costs, and the lines of a cell with their costs; of viz/model/lines.py. */
interface Cost {
  line: number;
  weight: number;
  [more: string]: any;
}
interface LineCosts {
  lines: string[];
  first: number;
  costs: Cost[];
  [more: string]: any;
}
/** Of viz/model/counted_lines.py: each group of columns with the heads below it. */
interface CountedLines {
  note: string;
  groups: [string, string[]][];
  rows: { line: number; name: string; cells: string[] }[];
}
interface Metric {
  label: string;
  show(value: number): string;
  /** None of a line that has no such number. */
  of(cost: Cost): number | null;
  /** Where nothing is lost; 0 where it is left out. */
  floor?: number;
}

/** What a pass changed, as lines and as a tree; of viz/model/diffs.py. */
interface PassDiff {
  added: number;
  removed: number;
  rewrites: Record<string, number>;
  [more: string]: any;
}
type PassTree = any;

/** One application of a rule: `number` is the line of the program before, 0 for none. */
interface PassRewrite {
  rule: string;
  source: number;
  /** Which program's line `number` is. */
  side: "before" | "after";
  number: number;
  statement: string;
  before: string;
  after: string;
}

/** What the rules of a pass did, see `viz/model/pass_rules.py`. */
interface PassRules {
  index: number;
  rules: { name: string; doc: string; count: number }[];
  rewrites: PassRewrite[];
  total: number;
  /** What a pass without rules did, in a sentence. */
  whole: string;
}

/** What is known of a name of the IR. */
interface NameFacts {
  name: string;
  facts: [string, string][];
  /** Its line, 0 of one that the signature has. */
  defined: number;
  used: number[];
  uses: number;
}

/** A line that a thread printed. */
interface PrintedLine {
  block: number[];
  [more: string]: any;
}

/** Something found in a replay: a race, a wrong access, a breakpoint. */
interface Moment {
  step: number;
  kind: string;
  [more: string]: any;
}

/** A buffer of a replayed block; its part from `start` on is shown. */
interface ReplayBuffer {
  name: string;
  shape: number[];
  start: number;
  [more: string]: any;
}

/** The contents of all buffers at a step; `Memory` of replaymemory.js. */
interface ReplayMemory {
  values: any[];
  writers: Int32Array[];
  [more: string]: any;
}

/** What a sheet of the playground does: an element is pointed at, another slice is wanted. */
interface SheetEvents {
  themed: HTMLElement;
  hovered(index: number[] | null): void;
  sliced(lead: number[]): void;
  insert(code: string, sheet: any): void;
}
