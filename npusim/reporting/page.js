"use strict";
/* A table as a CSV file: raw values in SI units, which stand beside what is shown. */
function saveCsv(button) {
  const table = button.closest(".data").querySelector("table");
  const cell = (c) => {
    const raw = c.dataset.value ?? c.textContent + (c.dataset.unit ? ` (${c.dataset.unit})` : "");
    const safe = c.dataset.value === undefined && /^[=+@\t-]/.test(raw) ? "'" + raw : raw;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const lines = [...table.rows].map((row) => [...row.cells].map(cell).join(","));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  link.download = button.dataset.name + ".csv";
  link.click();
}
/* A name of a legend shows or hides what it stands for. */
function toggle(button) {
  const plot = button.closest(".picture").querySelector(".js-plotly-plot");
  const off = button.classList.toggle("off");
  button.setAttribute("aria-pressed", String(!off));
  Plotly.restyle(plot, { visible: off ? "legendonly" : true }, JSON.parse(button.dataset.traces));
}
/* A table wider than its page takes smaller type, and then its last columns stand in a table below it; one that still
   scrolls takes the keyboard. */
const NARROW = 800; // pixels below which tables scroll as they are
function fit(wide) {
  const table = wide.querySelector("table");
  if (!table || !wide.clientWidth || wide.dataset.fitted) return scrolls(wide);
  const isOver = () => wide.clientWidth > NARROW && wide.scrollWidth > wide.clientWidth;
  if (isOver()) wide.classList.add("tight");
  const rest = wide.cloneNode(true), columns = [...table.rows[0].cells].filter((one) => !one.hidden).map((one) => one.cellIndex);
  const hide = (place, k) => [...place.querySelector("table").rows].forEach((row) => { row.cells[k].hidden = true; });
  let kept = columns.length;
  while (isOver() && kept > 2) hide(wide, columns[--kept]);
  wide.dataset.fitted = "yes";
  scrolls(wide);
  if (kept === columns.length) return;
  columns.slice(1, kept).forEach((k) => hide(rest, k));
  rest.classList.add("rest");
  wide.after(rest);
  fit(rest);
}
function scrolls(wide) {
  const can = wide.clientWidth && wide.scrollWidth > wide.clientWidth;
  const before = [...document.querySelectorAll("h1, h2, h3, h4")].filter((one) => one.compareDocumentPosition(wide) & 4);
  const heading = before.at(-1)?.textContent ?? "";
  for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", `Scrolls sideways: ${heading}`]])
    if (can) wide.setAttribute(name, value); else wide.removeAttribute(name);
}
const fitAll = () => document.querySelectorAll(".wide").forEach(fit);
addEventListener("load", fitAll);
addEventListener("resize", fitAll);
addEventListener("toggle", fitAll, true);
addEventListener("beforeprint", () => {
  document.querySelectorAll(".rest").forEach((one) => one.remove());
  document.querySelectorAll("td, th").forEach((one) => { one.hidden = false; });
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  document.querySelectorAll(".js-plotly-plot").forEach((one) => Plotly.Plots.resize(one));
});
