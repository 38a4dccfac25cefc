const NARROW = 500; // pixels below which a page is that of a telephone

// A plotly figure that follows its model. The library comes from this server, once a page.
const library = () =>
  (globalThis.npusimPlotly ??= new Promise((loaded, failed) => {
    const script = document.createElement("script");
    script.src = "/library/plotly.min.js";
    script.onload = () => loaded(globalThis.Plotly);
    script.onerror = () => failed(new Error("the plotting library did not load"));
    document.head.append(script);
  }));

async function render({ model, el }) {
  const place = document.createElement("div");
  el.append(place);
  const plotly = await library();
  let drawnNarrow = null;
  const draw = async () => {
    const { data, layout, config, frames } = JSON.parse(model.get("spec"));
    if (!data.length) return;
    drawnNarrow = el.clientWidth < NARROW;
    if (drawnNarrow) layout.font.size = 11;
    place.style.minHeight = `${layout.height}px`;
    await plotly.react(place, data, layout, config);
    if (place._transitionData?._frames.length) await plotly.deleteFrames(place);
    if (frames?.length) await plotly.addFrames(place, frames);
    place.dataset.drawn = String(Number(place.dataset.drawn ?? 0) + 1);
  };
  model.on("change:spec", draw);
  await draw();
  const observer = new ResizeObserver(() => {
    if (drawnNarrow === null) return;
    if (drawnNarrow === el.clientWidth < NARROW) plotly.Plots.resize(place);
    else draw();
  });
  observer.observe(place);
  return () => {
    observer.disconnect();
    plotly.purge(place);
  };
}

export default { render };
