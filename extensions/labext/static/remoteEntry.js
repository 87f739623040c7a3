// What JupyterLab loads first: the contract of webpack's module federation, written by hand.
//
// JupyterLab runs this file as a script, gives the modules that extensions share to `init` and asks
// `get` for what package.json names. Each is an ES module here whose `make(shared)` returns the
// plugin. Whatever goes wrong is said in the console and leaves JupyterLab without the plugin.
(() => {
  "use strict";
  const NAME = "@tileworkbench/labext";
  const MODULES = { "./extension": "./extension.js", "./saved": "./saved.js" };
  const here = /** @type {HTMLScriptElement | null} */ (document.currentScript)?.src ?? "";
  let shared = {};

  /** A module as JupyterLab wants it: plain, since it writes to it; no plugins where it failed. */
  async function load(/** @type {keyof typeof MODULES} */ name) {
    try {
      const { make } = await import(new URL(MODULES[name], here).href);
      return { __esModule: true, default: await make(shared) };
    } catch (error) {
      console.warn(`${NAME}: ${name} is not used:`, error);
      return { __esModule: true, default: [] };
    }
  }

  const container = {
    init(/** @type {any} */ scope) {
      shared = scope ?? {};
    },
    async get(/** @type {keyof typeof MODULES} */ name) {
      const module = await load(name);
      return () => module;
    },
  };
  (window._JUPYTERLAB ??= {})[NAME] = container;
})();
