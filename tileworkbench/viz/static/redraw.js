// Pictures in canvases do not follow the page by themselves.

/**
 * Draw when the width or the theme is another one. What is hidden, in a tab or because JupyterLab
 * takes cells out of the page that are not in sight, is drawn when it is shown again.
 * @param {HTMLElement} root
 * @param {Scope} scope
 * @param {() => void} draw
 */
export function watch(root, scope, draw) {
  let drawn = "";
  const check = () => {
    if (!root.clientWidth) {
      drawn = "";
      return;
    }
    const { color, columnRuleColor } = getComputedStyle(root);
    const now = [root.clientWidth, color, columnRuleColor].join();
    if (now === drawn) return;
    drawn = now;
    draw();
  };
  const sizes = new ResizeObserver(check);
  sizes.observe(root);
  // The root's colours have a transition (common.css): its end comes when the new style sheet has
  // loaded, which may be long after the page has got the theme's name. JupyterLab hides the page
  // for a moment meanwhile: that cancels the transition, and is over in the next frame. Where the
  // sheet comes while the page is hidden there is no transition, but the page's body is shown again.
  const ends = ["transitionend", "transitioncancel"];
  const later = () => requestAnimationFrame(check);
  for (const end of ends) root.addEventListener(end, later);
  const pages = new MutationObserver(later);
  pages.observe(document.body, { attributes: true });
  scope.add(() => {
    sizes.disconnect();
    pages.disconnect();
    for (const end of ends) root.removeEventListener(end, later);
  });
}
