// The views of a kernel by name, and how one is drawn into a pane of a card or a comparison.
import * as tw from "./common.js";
import * as banks from "./banks.js";
import * as code from "./code.js";
import * as errors from "./errors.js";
import * as footprint from "./footprint.js";
import * as numerics from "./numerics.js";
import * as replay from "./replay.js";
import * as global from "./global.js";
import * as layouts from "./layouts.js";
import * as passes from "./passes.js";
import * as pipeline from "./pipeline.js";
import * as prints from "./prints.js";
import * as roofline from "./roofline.js";
import * as smem from "./smem.js";
import * as source from "./source.js";
import { open } from "./view.js";

/** @type {Record<string, { render: Render }>} */
const OWN = { passes, layouts, roofline }; // these keep their state in traits of the model
/** @type {Record<string, { render: Render }>} */
const ASKED = { source, banks, global, smem, pipeline, errors, footprint, numerics, prints, replay, code }; // the data of these is asked for when they are opened

/**
 * Draw the view `name` of the kernel of `model`, which has the traits of a card.
 * @param {Model} model
 * @param {string} name
 * @param {HTMLElement} el
 * @returns {Dispose | void}
 */
export function build(model, name, el) {
  if (!OWN[name]) return open({ model, el, name, render: ASKED[name].render });
  const about = model.get("card").about?.[name];
  if (about) el.append(tw.about(about));
  return OWN[name].render({ model, el });
}
