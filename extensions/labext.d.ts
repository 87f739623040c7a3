// What the extension uses of JupyterLab and CodeMirror, for `tsc --checkJs`; never loaded.

/** The packages that JupyterLab shares, by name and version. */
type Shared = Record<string, Record<string, { loaded?: any; get(): Promise<() => any> }>>;

interface LabSignal {
  connect(slot: (...given: any[]) => void, owner?: object): void;
  disconnect(slot: (...given: any[]) => void, owner?: object): void;
}

/** JupyterLab's application. */
interface Lab {
  shell: any;
  commands: any;
  serviceManager: any;
  [more: string]: any;
}

/** A plugin of the application; `activate` gets the services that it requires. */
interface LabPlugin {
  id: string;
  activate(...given: any[]): any;
  [more: string]: any;
}

/** The command palette or the launcher. */
interface Commands {
  addItem(item: object): void;
  add(item: object): void;
}

/** Of the extensions of editors. */
interface Registry {
  addExtension(extension: { name: string; factory(options: any): any }): void;
}

/** CodeMirror's `EditorView`. */
interface CodeEditor {
  state: any;
  dispatch(transaction: object): void;
  focus(): void;
  [more: string]: any;
}

/** The model of a cell. */
interface CellModel {
  outputs?: any;
  sharedModel?: any;
  [more: string]: any;
}

interface NotebookCell {
  model: CellModel;
  node: HTMLElement;
  [more: string]: any;
}

interface NotebookPanel {
  content: any;
  sessionContext: any;
  [more: string]: any;
}

/** Follows the notebook that is looked at. */
interface Tracker {
  currentWidget: NotebookPanel | null;
  currentChanged: LabSignal;
  [more: string]: any;
}

/** A notebook and the index of one of its cells. */
interface InNotebook {
  notebook: any;
  index: number;
}

/** A line's cost as its badge shows it. */
interface LineBadge {
  line: number;
  weight: number;
  bytes: number;
  wavefronts: number;
  ideal: number;
}

/** A word of a magic's line and its place there. */
interface Word {
  text: string;
  from: number;
  to: number;
}

/** A part of a magic's line and what it is. */
interface LineMark {
  from: number;
  to: number;
  kind: string;
  about?: string;
}

/** What may follow in a line. */
interface Offer {
  label: string;
  kind: string;
  about: string;
}

interface Flag {
  names: string[];
  about: string;
  takes: string;
  values: string[];
}

/** A form of a magic or a command of `%tile`. */
interface Form {
  about: string;
  takes: string;
  values: string[];
}

/** The words of the package: `vocabulary.json`, of viz/magics/vocabulary.py. */
interface Vocabulary {
  flags: Flag[];
  forms: Record<string, Form>;
  commands: Record<string, Form>;
  targets: string[];
  passes: string[];
  [more: string]: any;
}

interface Chapter {
  file: string;
  title: string;
}

/** A version of a kernel in the list of the session. */
interface LedgerRow {
  name: string;
  number: number;
  target: string;
  time: string;
  share: string;
  check: string;
  flags: string;
}

/** What a kernel says of its machine. */
interface Status {
  version: string;
  machine: string;
  cores: number;
  load: number;
  targets: string[];
  measured: any;
  doubt: string;
}
