// What marimo's page lacks for a screen reader: a main part, and sliders that say their name and value.
const sayValues = (slider) => {
  const steps = JSON.parse(slider.dataset.steps ?? "null");
  if (!slider.shadowRoot || !steps?.length) return;
  const label = new DOMParser().parseFromString(JSON.parse(slider.dataset.label ?? '""'), "text/html");
  const say = () => {
    for (const thumb of slider.shadowRoot.querySelectorAll("[role=slider]")) {
      thumb.setAttribute("aria-label", label.body.textContent.replace(/\|\||[()\\]{2}/g, "").trim());
      thumb.setAttribute("aria-valuetext", String(steps[Number(thumb.getAttribute("aria-valuenow"))]));
    }
  };
  const watched = { subtree: true, childList: true, attributes: true, attributeFilter: ["aria-valuenow"] };
  new MutationObserver(say).observe(slider.shadowRoot, watched);
  say();
};
const makeAccessible = () => {
  document.getElementById("App")?.setAttribute("role", "main");
  for (const slider of document.querySelectorAll("marimo-slider, marimo-range-slider")) {
    if (slider.dataset.said) continue;
    slider.dataset.said = "yes";
    sayValues(slider);
  }
};
const accessible = () =>
  (globalThis.npusimAccessible ??= (() => {
    const observer = new MutationObserver(makeAccessible);
    observer.observe(document.body, { subtree: true, childList: true });
    makeAccessible();
    return observer;
  })());
