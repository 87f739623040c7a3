// The plugins of the extension. One that cannot be had, or fails while it starts, leaves JupyterLab
// and the others as they are.
const PLUGINS = ["notebook", "colour", "completion", "help", "badges", "inspector", "ledger",
  "course", "status"];

/** A plugin whose failure is a line in the console. */
function guarded(/** @type {LabPlugin} */ plugin) {
  const activate = (/** @type {any[]} */ ...given) => {
    try {
      return plugin.activate(...given);
    } catch (error) {
      console.warn(`tileworkbench: ${plugin.id} is not used:`, error);
      return undefined;
    }
  };
  return { autoStart: true, ...plugin, activate };
}

export async function make(/** @type {Shared} */ shared) {
  const made = PLUGINS.map(async (name) => {
    try {
      const { make } = await import(`./${name}.js`);
      return [guarded(await make(shared))];
    } catch (error) {
      console.warn(`tileworkbench: ${name} is not used:`, error);
      return [];
    }
  });
  return (await Promise.all(made)).flat();
}
