// A product on one tile, step by step: what DMA, array and DSP do at each moment of `MachineSteps`.
const COLOURS = { dram: "#e6e6e6", sram: "#a9c1dd", lane: "#12447a", sum: "#d98a1f", done: "#2f6b3a", idle: "#b9b9b9" };
const UNITS = { DMA: "#7a5195", array: "#12447a", DSP: "#2f6b3a" };
const LOOPS = "mkn";
const NAMES = { m: "rows", k: "sum", n: "columns" };
const COUNTERS = ["cycles", "macs", "dram_read", "dram_written", "sram_read", "sram_written"];
const KEY = { dram: "in_dram", sram: "in_sram", lane: "in_lanes", sum: "sums_filling", done: "sums_finished", idle: "idle_lanes" };
const PLAY_MS = 70;
const STYLE = `
  .steps { font: 14px/1.45 system-ui, sans-serif; color: #222; background: #fff; padding: 4px; }
  .steps .bar { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; }
  .steps button, .steps select { font: inherit; padding: 4px 12px; color: #222; background: #fff; border: 1px solid #555; border-radius: 4px; }
  .steps input { flex: 1 1 160px; min-width: 120px; }
  .steps .parts { display: grid; grid-template-columns: minmax(0, 3fr) minmax(220px, 2fr); gap: 16px; }
  .steps canvas { display: block; width: 100%; }
  .steps pre { font: 13px/1.5 ui-monospace, monospace; margin: 0 0 12px; overflow-x: auto; }
  .steps mark { background: #ffe6a8; color: #111; font-weight: 600; }
  .steps table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
  .steps td { padding: 1px 8px 1px 0; text-align: right; } .steps td:last-child { text-align: left; }
  .steps .key span { display: inline-block; width: 12px; height: 12px; border: 1px solid #555; margin: 0 4px 0 10px; }
  @media (max-width: 640px) { .steps .parts { grid-template-columns: minmax(0, 1fr); } }`;

const number = (value) => Math.round(value).toLocaleString("en").replaceAll(",", " ");
const shareDone = (task, time) => Math.min(1, Math.max(0, (time - task.start_s) / (task.end_s - task.start_s)));

// Turns of each loop of the array within a part of the product: groups of lanes, or single steps.
const turnsOf = (spec, box) =>
  Object.fromEntries([...LOOPS].map((loop, i) => {
    const lanes = Object.fromEntries(spec.lanes)[loop] ?? 1;
    return [loop, { lanes, first: box[i][0], end: box[i][1], count: Math.ceil((box[i][1] - box[i][0]) / lanes) }];
  }));
const stepsIn = (turns) => Object.values(turns).reduce((product, each) => product * each.count, 1);

// What the lanes work on in one step of a part: first and end of rows, sum and columns.
const regionAt = (spec, turns, step) => {
  const region = {};
  for (const loop of [...spec.order].reverse()) {
    const { lanes, first, end, count } = turns[loop];
    const turn = step % count;
    step = Math.floor(step / count);
    region[loop] = [first + turn * lanes, Math.min(end, first + (turn + 1) * lanes)];
  }
  return region;
};

// All moments at which something changes, in s.
const momentsOf = (spec) => {
  const times = spec.tasks.flatMap((task) => {
    const count = task.what === "product" ? stepsIn(turnsOf(spec, task.box)) : 1;
    return Array.from({ length: count + 1 }, (_, i) => task.start_s + ((task.end_s - task.start_s) * i) / count);
  });
  const last = Math.max(...times);
  return times.sort((a, b) => a - b).filter((time, i) => i === 0 || time - times[i - 1] > 1e-7 * last);
};

// The state of the machine at a moment.
const stateAt = (spec, time) => {
  const tiny = 1e-9 * spec.tasks.at(-1).end_s;
  const counters = Object.fromEntries(COUNTERS.map((name) => [name, 0]));
  const busy = {};
  const { m, k, n } = spec.sizes;
  const sums = new Float32Array(m * n);
  const add = (rows, columns, amount) => {
    for (let i = rows[0]; i < rows[1]; i++) for (let j = columns[0]; j < columns[1]; j++) sums[i * n + j] += amount;
  };
  let region = null, results = 0;
  for (const task of spec.tasks) {
    const share = shareDone(task, time + tiny);
    for (const name in counters) counters[name] += share * task.amounts[name];
    if (task.start_s <= time + tiny && time + tiny < task.end_s) busy[task.unit] = task;
    if (task.what === "results") results += share;
    if (task.what !== "product" || share === 0) continue;
    const turns = turnsOf(spec, task.box), count = stepsIn(turns);
    const now = Math.floor(share * count + 1e-6);
    if (share >= 1) add(task.box[0], task.box[2], task.box[1][1] - task.box[1][0]);
    else for (let step = 0; step < now; step++) {
      const at = regionAt(spec, turns, step);
      add(at.m, at.n, at.k[1] - at.k[0]);
    }
  }
  if (busy.array) {
    const turns = turnsOf(spec, busy.array.box), count = stepsIn(turns);
    region = regionAt(spec, turns, Math.min(count - 1, Math.floor(shareDone(busy.array, time + tiny) * count + 1e-6)));
  }
  return { counters, busy, sums, region, k, results: results / spec.tasks.filter((task) => task.what === "results").length };
};

// Whether a cell of an operand lies in SRAM: it came, and a part needs it before it comes again.
const inSram = (spec, time, what, row, column) => {
  const places = what === "activations" ? [0, 1] : [1, 2];
  const holds = ({ box }) => [row, column].every((at, i) => box[places[i]][0] <= at && at < box[places[i]][1]);
  const loads = spec.tasks.filter((task) => task.what === what && holds(task));
  const next = loads.find((task) => task.end_s > time * (1 + 1e-9));
  const isNeeded = (task) =>
    task.what === "product" && task.end_s > time && task.start_s < (next?.end_s ?? Infinity) && holds(task);
  return loads.some((task) => task.end_s <= time * (1 + 1e-9)) && spec.tasks.some(isNeeded);
};

const canvas = (parent, height) => {
  const element = document.createElement("canvas");
  parent.append(element);
  return (paint) => {
    const width = element.clientWidth || 320, scale = globalThis.devicePixelRatio || 1;
    element.width = width * scale;
    element.height = height(width) * scale;
    element.style.height = `${height(width)}px`;
    const context = element.getContext("2d");
    context.scale(scale, scale);
    context.font = "12px system-ui, sans-serif";
    paint(context, width);
  };
};

const paintMatrices = (spec, state, time) => (context, width) => {
  const { m, k, n } = spec.sizes, side = Math.max(m, k, n), cell = (width - 24) / 3 / side;
  const matrix = (place, title, rows, columns, colourOf) => {
    const left = place * ((width - 24) / 3 + 12);
    context.fillStyle = "#222";
    context.fillText(title, left, 12);
    const gap = cell > 4 ? 1 : 0;
    for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) {
      context.fillStyle = colourOf(i, j);
      context.fillRect(left + j * cell, 20 + i * cell, cell - gap, cell - gap);
    }
    context.strokeStyle = "#555";
    context.strokeRect(left, 20, columns * cell, rows * cell);
  };
  const at = state.region, within = (range, i) => at && range[0] <= i && i < range[1];
  const operand = (what, first, second) => (i, j) => {
    if (at && within(at[first], i) && within(at[second], j)) return COLOURS.lane;
    return inSram(spec, time, what, i, j) ? COLOURS.sram : COLOURS.dram;
  };
  matrix(0, `A  ${m} x ${k}`, m, k, operand("activations", "m", "k"));
  matrix(1, `B  ${k} x ${n}`, k, n, operand("weights", "k", "n"));
  matrix(2, `C  ${m} x ${n}`, m, n, (i, j) => {
    if (at && within(at.m, i) && within(at.n, j)) return COLOURS.lane;
    const share = state.sums[i * n + j] / k;
    return share >= 1 ? COLOURS.done : share > 0 ? `rgba(217, 138, 31, ${0.25 + 0.75 * share})` : COLOURS.dram;
  });
};

const paintLanes = (spec, state) => (context, width) => {
  const [[down, rows], [across, columns]] = spec.lanes, cell = Math.min(22, (width - 8) / columns);
  context.fillStyle = "#222";
  const named = (loop) => `${word(NAMES[loop])} ${loop}`;
  context.fillText(word("lanes", { down: named(down), across: named(across) }), 0, 12);
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) {
    const at = state.region, row = at?.[down][0] + i, column = at?.[across][0] + j;
    const works = at && row < at[down][1] && column < at[across][1];
    context.fillStyle = works ? COLOURS.lane : COLOURS.idle;
    context.fillRect(j * cell, 20 + i * cell, cell - 2, cell - 2);
    if (!works || spec.stationary !== "outputs") continue;
    const [m, n] = down === "m" ? [row, column] : [column, row];
    const share = state.sums[m * spec.sizes.n + n] / state.k;
    context.fillStyle = COLOURS.sum;
    context.fillRect(j * cell, 20 + i * cell + (1 - share) * (cell - 2), cell - 2, share * (cell - 2));
  }
};

const paintUnits = (spec, time) => (context, width) => {
  const end = spec.tasks.reduce((last, task) => Math.max(last, task.end_s), 0), left = 46;
  const place = (at) => left + (at / end) * (width - left - 2);
  Object.keys(UNITS).forEach((unit, row) => {
    context.fillStyle = "#222";
    context.fillText(unit, 0, 14 + 20 * row);
    for (const task of spec.tasks.filter((each) => each.unit === unit)) {
      context.fillStyle = task.end_s <= time ? `${UNITS[unit]}88` : task.start_s <= time ? UNITS[unit] : "#d8d8d8";
      context.fillRect(place(task.start_s), 3 + 20 * row, Math.max(1, place(task.end_s) - place(task.start_s) - 1), 14);
    }
  });
  context.fillStyle = "#b00020";
  context.fillRect(place(time) - 1, 0, 2, 62);
};

// Loops over parts of the product, outermost first, with their turns: the outermost changes last.
const partsOf = (spec) => {
  const boxes = spec.tasks.filter((task) => task.what === "product").map((task) => task.box.map(String));
  const loops = [...LOOPS].map((loop, place) => {
    const ranges = boxes.map((box) => box[place]), change = ranges.findIndex((range) => range !== ranges[0]);
    return { loop, turns: new Set(ranges).size, change };
  });
  return loops.filter(({ turns }) => turns > 1).sort((a, b) => b.change - a.change).map(({ loop, turns }) => [loop, turns]);
};

const nestText = (spec, state) => {
  const box = state.busy.array?.box, lines = [];
  const say = (depth, text, at) =>
    lines.push(`${"  ".repeat(depth)}${at ? `<mark>${text}  ${at}</mark>` : text}`);
  const range = (values) => (values[1] - values[0] > 1 ? `${values[0]}–${values[1] - 1}` : `${values[0]}`);
  partsOf(spec).forEach(([loop, turns], depth) =>
    say(depth, word("parts_of", { turns, loop }), box && `${loop} = ${range(box[LOOPS.indexOf(loop)])}`));
  const lanes = Object.fromEntries(spec.lanes);
  spec.order.forEach((loop, depth) => {
    const by = lanes[loop] ? ` by ${lanes[loop]}` : "";
    const at = state.region && `${loop} = ${range(state.region[loop])}`;
    say(partsOf(spec).length + depth, `for ${loop}${by}:`, at);
  });
  say(partsOf(spec).length + 3, "C[m, n] += A[m, k] * B[k, n]", state.region && word("lanes_busy", { lanes: lanesBusy(spec, state) }));
  return lines.join("\n");
};

const lanesBusy = (spec, state) =>
  state.region ? spec.lanes.reduce((count, [loop]) => count * (state.region[loop][1] - state.region[loop][0]), 1) : 0;

const sentence = (spec, state) => {
  const { DMA, array, DSP } = state.busy, all = spec.lanes[0][1] * spec.lanes[1][1];
  const moved = DMA && (DMA.what === "results" ? word("writes") : word("brings", { what: word(DMA.what) }));
  const worked = array && word("multiplies", { lanes: lanesBusy(spec, state), all });
  return word("units", {
    dma: moved ?? word("waits"), array: worked ?? word("waits"), dsp: word(DSP ? "applies" : "waits"),
    share: Math.round(100 * state.results),
  });
};

// A place for a product step by step: returns what shows one, from JSON with its words.
function machineIn(el) {
  el.innerHTML = `<div class="steps"><style>${STYLE}</style>
    <div class="bar">${["back", "play", "step"].map((name) => `<button data-do="${name}">${word(name)}</button>`).join("")}
    <label>${word("at_a_time")} <select><option>1</option><option>10</option><option>100</option></select></label>
    <input type="range" min="0" value="0" aria-label="${word("step_label")}"></div>
    <p class="said"></p><div class="parts"><div class="drawn" role="img"></div>
    <div><pre tabindex="0" aria-label="${word("loop_nest")}"></pre><table></table></div></div>
    <p class="key">${Object.entries(KEY).map(([name, text]) =>
      `<span style="background:${COLOURS[name]}"></span>${word(text)}`).join("")}</p></div>`;
  const part = (selector) => el.querySelector(selector);
  const drawn = part(".drawn"), slider = part("input");
  const side = (spec) => Math.max(...Object.values(spec.sizes));
  let spec, moments, playing = 0;
  const matrices = canvas(drawn, (width) => 24 + ((width - 24) / 3) * (Math.max(spec.sizes.m, spec.sizes.k) / side(spec)));
  const lanes = canvas(drawn, () => 24 + 22 * spec.lanes[0][1]);
  const units = canvas(drawn, () => 64);
  const draw = () => {
    const at = Number(slider.value), time = moments[at], state = stateAt(spec, time);
    matrices(paintMatrices(spec, state, time));
    lanes(paintLanes(spec, state));
    units(paintUnits(spec, time));
    const said = sentence(spec, state);
    const now = word("step_of", { step: number(at), steps: number(moments.length - 1) });
    part(".said").textContent = `${now}, ${(1e6 * time).toFixed(2)} µs. ${said}`;
    drawn.setAttribute("aria-label", `${word("product", { size: Object.values(spec.sizes).join(" x ") })} ${said}`);
    slider.setAttribute("aria-valuetext", now);
    part("pre").innerHTML = nestText(spec, state);
    part("table").innerHTML = COUNTERS.map((name) =>
      `<tr data-counter="${name}"><td>${number(state.counters[name])}</td><td>${word("of", { total: number(spec.counters[name]) })}</td><td>${word(name)}</td></tr>`).join("");
    el.dataset.step = String(at);
  };
  const move = (by) => {
    slider.value = String(Math.min(moments.length - 1, Math.max(0, Number(slider.value) + by)));
    draw();
  };
  const stride = () => Number(part("select").value);
  const stop = () => {
    clearInterval(playing);
    playing = 0;
    part("[data-do=play]").textContent = word("play");
  };
  const play = () => {
    if (Number(slider.value) === moments.length - 1) slider.value = "0";
    part("[data-do=play]").textContent = word("pause");
    playing = setInterval(() => (move(stride()), Number(slider.value) === moments.length - 1 && stop()), PLAY_MS);
  };
  part("[data-do=back]").onclick = () => (stop(), move(-stride()));
  part("[data-do=step]").onclick = () => (stop(), move(stride()));
  part("[data-do=play]").onclick = () => (playing ? stop() : play());
  slider.oninput = () => (stop(), draw());
  new ResizeObserver(() => spec && draw()).observe(drawn);
  return (text, label) => {
    stop();
    el.hidden = !text;
    if (el.hidden) return;
    el.setAttribute("role", "group");
    el.setAttribute("aria-label", label);
    spec = JSON.parse(text);
    moments = momentsOf(spec);
    slider.max = String(moments.length - 1);
    slider.value = String(Math.floor(moments.length / 3));
    draw();
    el.dataset.drawn = String(Number(el.dataset.drawn ?? 0) + 1);
  };
}

export default machineIn;
