// Draws kernel cards of saved notebooks from the data that their outputs hold: the views of a live
// card, on a model whose answers are in the file. Nothing of the file is ever run, and its HTML goes
// through JupyterLab's sanitiser, so this is done for notebooks that are not trusted too.
import { MIME, checkedVersion, unpack } from "./cards.js";
import { take } from "./shared.js";

const RANK = 10; // before HTML
const PLACE = "data-tileworkbench";

function style(/** @type {string} */ name) {
  const href = new URL(`./views/${name}.css`, import.meta.url).href;
  if ([...document.styleSheets].some((sheet) => sheet.href === href)) return null;
  const link = document.createElement("link");
  return new Promise((resolve) => {
    Object.assign(link, { rel: "stylesheet", href, onload: resolve, onerror: resolve });
    document.head.append(link);
  });
}

/**
 * The sections of the output's HTML, which shows views that its data had no room for: from a title
 * to a copy of the section's content, or null.
 */
function sections(/** @type {string} */ html) {
  const page = document.createElement("div");
  page.innerHTML = html;
  return (/** @type {string} */ title) => {
    const found = [...page.querySelectorAll("details")].find((section) =>
      section.querySelector("summary > b")?.textContent === title);
    const content = found?.querySelector(":scope > div")?.cloneNode(true);
    if (!(content instanceof HTMLElement)) return null;
    content.className = "jp-RenderedHTMLCommon tw-still";
    return content;
  };
}

/**
 * @param {HTMLElement} host
 * @param {Fields} data
 * @param {string} html
 */
async function draw(host, data, html) {
  checkedVersion(data);
  if (!data.styles.every((/** @type {string} */ name) => /^\w+$/.test(name))) throw new Error("no names of styles");
  const [[state, answers], { render }, { SavedModel }] = await Promise.all([
    unpack(data.packed),
    // @ts-ignore: a copy of viz/static, which the installed extension has
    import("./views/card.js"),
    // @ts-ignore
    import("./views/page.js"),
    ...data.styles.map(style),
  ]);
  state.card.status = `saved, ${state.card.status}`; // no kernel is behind it
  return render({ model: new SavedModel(state, answers, sections(html)), el: host });
}

export async function make(/** @type {Shared} */ shared) {
  const { Widget } = await take(shared, "@lumino/widgets");

  class SavedView extends Widget {
    constructor(/** @type {{ mimeType: string, sanitizer: any }} */ options) {
      super();
      this.sanitizer = options.sanitizer;
      this.addClass("tw-saved");
    }

    async renderModel(/** @type {{ data: Fields, trusted: boolean }} */ model) {
      this.end();
      const data = model.data[MIME];
      const host = document.createElement("div");
      const place = document.createElement("div");
      // A live view may take the place, in notebooks whose outputs are the reader's own.
      if (model.trusted && data.place) place.setAttribute(PLACE, String(data.place));
      place.append(host);
      this.node.replaceChildren(place);
      // Drawn when it comes into sight: a notebook may hold many, and a live one takes the place.
      this.observer = new IntersectionObserver(async (entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        this.end();
        if (!data.packed) {
          this.still(host, model); // there was no room for the card's data
          return;
        }
        try {
          this.finish = await draw(host, data, this.sanitised(model));
        } catch (error) {
          console.warn("tileworkbench: the saved picture is shown:", error);
          this.still(host, model);
        }
      });
      host.style.minHeight = "1px"; // nothing is never in sight
      this.observer.observe(host);
    }

    /** The HTML of the output, as JupyterLab leaves it to notebooks that are not trusted. */
    sanitised(/** @type {{ data: Fields, trusted: boolean }} */ model) {
      const html = model.data["text/html"];
      return html ? this.sanitizer.sanitize([html].flat().join("")) : "";
    }

    /**
     * The output as JupyterLab shows it.
     * @param {HTMLElement} host
     * @param {{ data: Fields, trusted: boolean }} model
     */
    still(host, model) {
      host.className = "jp-RenderedHTMLCommon";
      const html = this.sanitised(model);
      if (html) host.innerHTML = html;
      else host.textContent = [model.data["text/plain"] ?? ""].flat().join("");
    }

    end() {
      this.observer?.disconnect();
      if (typeof this.finish === "function") this.finish();
      this.observer = this.finish = null;
    }

    dispose() {
      this.end();
      super.dispose();
    }
  }

  return {
    id: "@tileworkbench/labext:saved",
    rendererFactory: {
      safe: true,
      mimeTypes: [MIME],
      createRenderer: (/** @type {{ mimeType: string, sanitizer: any }} */ options) => new SavedView(options),
    },
    rank: RANK,
    dataType: "json",
  };
}
