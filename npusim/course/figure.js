const NARROW = 500; // pixels below which a page is that of a telephone
// Without motion where the system asks for that: the last frame, and no button that plays.
const still = ({ frames, layout: { updatemenus, ...layout }, ...spec }) =>
  matchMedia("(prefers-reduced-motion: reduce)").matches
    ? { ...spec, layout } : { ...spec, frames, layout: updatemenus ? { ...layout, updatemenus } : layout };

// A place for plotly figures: returns what shows one, from JSON with its words, in place of the last one.
function figureIn(el) {
  const place = document.createElement("div");
  el.append(place);
  let spec = "", label = "", drawnNarrow = null;
  const drawNow = async () => {
    const plotly = await globalThis.npusimPlotly;
    if (!spec) {
      if (drawnNarrow !== null) plotly.purge(place);
      drawnNarrow = null;
      place.style.minHeight = "";
      for (const name of ["role", "aria-label"]) place.removeAttribute(name);
      return;
    }
    const { data, layout, config, frames } = still(JSON.parse(spec));
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", label);
    drawnNarrow = el.clientWidth < NARROW;
    if (drawnNarrow) layout.font.size = 11;
    place.style.minHeight = `${layout.height}px`;
    await plotly.react(place, data, layout, config);
    // Not deleteFrames, which sorts indices as text and fails from eleven frames on.
    if (place._transitionData) Object.assign(place._transitionData, { _frames: [], _frameHash: {} });
    if (frames?.length) await plotly.addFrames(place, frames);
    place.dataset.drawn = String(Number(place.dataset.drawn ?? 0) + 1);
  };
  // One drawing after the other: two at a time would take the same frames away twice.
  let drawing = Promise.resolve();
  const draw = () => (drawing = drawing.then(drawNow, drawNow));
  new ResizeObserver(() => {
    if (drawnNarrow === null) return;
    if (drawnNarrow === el.clientWidth < NARROW) globalThis.Plotly.Plots.resize(place);
    else draw();
  }).observe(place);
  return (now, said) => {
    [spec, label] = [now, said];
    return draw();
  };
}

export default figureIn;
