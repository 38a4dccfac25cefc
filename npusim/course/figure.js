const NARROW = 500; // pixels below which a page is that of a telephone
const NOTICE_MS = 1000; // of calculating, after which a page says so
// Without motion where the system asks for that: the last frame, and no button that plays.
const still = ({ frames, layout: { updatemenus, ...layout }, ...spec }) =>
  matchMedia("(prefers-reduced-motion: reduce)").matches
    ? { ...spec, layout } : { ...spec, frames, layout: updatemenus ? { ...layout, updatemenus } : layout };

// A plotly figure that follows its model. The library comes from this server, once a page.
const library = () =>
  (globalThis.npusimPlotly ??= new Promise((loaded, failed) => {
    const script = document.createElement("script");
    script.src = "/library.js";
    script.onload = () => loaded(globalThis.Plotly);
    script.onerror = () => failed(new Error("the plotting library did not load"));
    document.head.append(script);
  }));

async function render({ model, el }) {
  const place = document.createElement("div");
  const note = document.createElement("p");
  note.textContent = "Preparing the model, about a minute the first time …";
  note.setAttribute("role", "status");
  el.append(note, place);
  accessible();
  let waiting = 0;
  const tell = () => {
    clearTimeout(waiting);
    const wait = () => (note.hidden = !model.get("is_waiting"));
    if (place.dataset.drawn && model.get("is_waiting")) waiting = setTimeout(wait, NOTICE_MS);
    else wait();
  };
  model.on("change:is_waiting", tell);
  tell();
  const plotly = await library();
  let drawnNarrow = null;
  const drawNow = async () => {
    const { data, layout, config, frames } = still(JSON.parse(model.get("spec")));
    if (!data.length) {
      if (drawnNarrow !== null) plotly.purge(place);
      place.removeAttribute("role");
      place.removeAttribute("aria-label");
      return;
    }
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", model.get("label"));
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
  model.on("change:spec", draw);
  await draw();
  const observer = new ResizeObserver(() => {
    if (drawnNarrow === null) return;
    if (drawnNarrow === el.clientWidth < NARROW) plotly.Plots.resize(place);
    else draw();
  });
  observer.observe(place);
  return () => {
    clearTimeout(waiting);
    observer.disconnect();
    plotly.purge(place);
  };
}

export default { render };
