// A view of one launch of a kernel, with a choice where several have something to show.
import * as tw from "./common.js";

/**
 * The renderer of a view whose data have `choices` of [number, label] and a `launch`; it asks for
 * the data of another one with a message of type `question`.
 * @param {string} question
 * @param {Render} draw
 * @returns {Render}
 */
export const ofLaunches = (question, draw) => ({ model, el, data }) => {
  if (data.choices.length < 2) return draw({ model, el, data });
  const body = tw.div("");
  const problem = tw.el("span", { class: "tw-faint", role: "status" });
  const options = data.choices.map((/** @type {[number, string]} */ [number, label]) => tw.el("option", { value: String(number) }, label));
  const select = tw.el("select", { class: "tw-select", "aria-label": "Launch", onchange: choose }, ...options);
  let dispose = draw({ model, el: body, data });
  let asked = 0;
  el.append(tw.div("tw-bar", select, problem), body);
  select.value = String(data.launch);

  async function choose() {
    const mine = ++asked;
    try {
      const answer = await tw.ask(model, { type: question, launch: Number(select.value) });
      if (mine !== asked) return;
      problem.textContent = "";
      if (dispose) dispose();
      body.replaceChildren();
      dispose = draw({ model, el: body, data: answer });
    } catch (failure) {
      problem.textContent = failure.message;
    }
  }

  return () => dispose && dispose();
};
