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
  Plotly.restyle(plot, { visible: off ? "legendonly" : true }, JSON.parse(button.dataset.traces));
}
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  document.querySelectorAll(".js-plotly-plot").forEach((one) => Plotly.Plots.resize(one));
});
