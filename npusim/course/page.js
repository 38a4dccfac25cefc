// The page of a lesson. A static page has its positions as data; a live page asks the server for each.
const NOTICE_MS_OF_PAGE = 400; // of calculating, after which a picture says so
const BUSY = "Calculating … On a new machine a lesson that searches is compiled first: a minute or two.";
const STORED = "This picture came with npusim. This machine calculates it again … ";
const FAILED = "<p>npusim gave no answer: see the terminal in which it runs, and start <code>npusim learn</code> again.</p>";
const STORE = "npusim-lessons";
const unpacked = async (bytes) => {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
};
const progress = (change) => {
  let solved = {};
  try {
    solved = JSON.parse(localStorage.getItem(STORE) ?? "{}");
    if (change) localStorage.setItem(STORE, JSON.stringify(Object.assign(solved, change(solved))));
  } catch { /* a page inside another one may not keep anything */ }
  return solved;
};

// Seven bits a character, as `export.py` writes them.
const libraryBytes = () => {
  const text = globalThis.npusimLibrary, bytes = new Uint8Array(Math.floor((text.length * 7) / 8));
  let held = 0, count = 0, place = 0;
  for (let i = 0; i < text.length; i++) {
    held = ((held << 7) | text.charCodeAt(i)) & 0xffff;
    count += 7;
    if (count >= 8) bytes[place++] = (held >> (count -= 8)) & 0xff;
  }
  return bytes;
};
const scriptLoaded = (src) =>
  new Promise((loaded, failed) => {
    const failure = () => failed(new Error(`${src} did not load`));
    document.head.append(Object.assign(document.createElement("script"), { src, onload: loaded, onerror: failure }));
  });
const libraryReady = async (src) => {
  await scriptLoaded(src);
  if (globalThis.npusimLibrary) {
    const script = document.createElement("script");
    script.textContent = await unpacked(libraryBytes());
    document.head.append(script);
  }
  globalThis.npusimPlotly = Promise.resolve(globalThis.Plotly);
};
const answerOf = async (address) => {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
};

const drawFormulas = (place) => {
  for (const formula of place.querySelectorAll(".arithmatex:not([data-drawn-tex])")) {
    const [, kind, text] = formula.textContent.match(/^\s*\\([([])([\s\S]*)\\[)\]]\s*$/) ?? [];
    if (!kind) continue;
    formula.dataset.drawnTex = text;
    globalThis.npusimKatex.render(text, formula, { output: "mathml", displayMode: kind === "[", throwOnError: false });
  }
};

// What the widgets of live pages have: values, and calls on a change.
const widgetModel = (values) => {
  const calls = {};
  return {
    get: (name) => values[name],
    on: (event, call) => (calls[event] ??= []).push(call),
    set: (changes) => {
      Object.assign(values, changes);
      for (const name in changes) for (const call of calls[`change:${name}`] ?? []) call();
    },
  };
};

const decoded = (value, pool) => {
  if (typeof value === "number") return pool[value];
  if (Array.isArray(value)) return value.map((each) => decoded(each, pool));
  return value && Object.fromEntries(Object.entries(value).map(([key, each]) => [key, decoded(each, pool)]));
};

function showPicture(section, picture, pool, number, isLive) {
  section.innerHTML = '<div class="sliders"></div><p class="note" role="status" hidden></p><div class="widget"></div>' +
    '<p class="note busy" role="status"></p><div class="below"></div>';
  const [row, note, widget, busy, below] = section.children;
  const start = picture.sliders.flatMap((slider) => slider.start), places = [...start];
  const count = picture.sliders.reduce((all, slider) => all * slider.values.length ** slider.start.length, 1);
  const model = widgetModel({ spec: "", label: "", is_waiting: false });
  const elements = [];
  let started = false;
  const say = () => elements.forEach(({ input, output, values }, i) => {
    input.value = String(places[i]);
    input.setAttribute("aria-valuetext", values[places[i]]);
    if (output) output.textContent = values[places[i]];
  });
  const stored = (at) => {
    const [spec, said, text] = picture.at[at].map((place) => pool[place]);
    return [spec && JSON.stringify(decoded(spec, pool)), said, text];
  };
  const positionOf = async (at) =>
    isLive ? answerOf(`at/${number}/${at}`).catch(() => ["", "", FAILED]) : stored(at);
  const draw = ([spec, said, text]) => {
    below.innerHTML = text;
    drawFormulas(below);
    const empty = picture.isPlayer ? "" : '{"data":[],"layout":{"height":1},"config":{}}';
    model.set({ label: said, spec: spec || empty });
    if (!started) (picture.isPlayer ? stepsWidget : figureWidget).render({ model, el: widget });
    started = true;
  };
  // One question at a time; of the moves meanwhile the last is asked next.
  let isAsking = false;
  const show = async () => {
    if (isAsking) return;
    isAsking = true;
    const isStored = isLive && !started && places.join(",") in picture.at;
    if (isStored) draw(stored(places.join(",")));
    const say = () => (busy.textContent = (isStored ? STORED : "") + BUSY);
    const notice = setTimeout(say, started ? NOTICE_MS_OF_PAGE : 0);
    while (section.dataset.at !== places.join(",")) {
      const at = places.join(","), shown = await positionOf(at);
      if (at === places.join(",")) draw(shown), (section.dataset.at = at);
    }
    clearTimeout(notice);
    busy.textContent = "";
    isAsking = false;
  };
  const move = (i, to) => {
    places[i] = to;
    const partner = elements[i].partner;
    if (partner !== undefined && (partner > i ? places[partner] < to : places[partner] > to)) places[partner] = to;
    const isMissing = () => !isLive && !(places.join(",") in picture.at), isMoved = isMissing();
    if (isMoved) places.forEach((_, j) => j !== i && (places[j] = start[j]));
    if (isMissing()) places[i] = start[partner]; // no further than the other end
    note.textContent = (isMoved ? "The other sliders went back to where they began. " : "") +
      "This page has every position of each slider while the others stand where they began: " +
      elements.map(({ values, name }, j) => `${name} ${values[start[j]]}`).join(", ") +
      ". The live page (npusim learn) has all.";
    say();
    show();
  };
  for (const slider of picture.sliders) slider.start.forEach((_, end) => {
    const label = document.createElement("label"), i = elements.length;
    label.innerHTML = slider.label;
    const input = document.createElement(slider.isList ? "select" : "input");
    if (slider.isList) input.innerHTML = slider.values.map((value, j) => `<option value="${j}">${value}</option>`).join("");
    else Object.assign(input, { type: "range", min: 0, max: slider.values.length - 1, step: 1 });
    input.disabled = true;
    const output = slider.isList ? null : document.createElement("output");
    label.append(...[input, output].filter(Boolean));
    row.append(label);
    const partner = slider.start.length > 1 ? i + (end ? -1 : 1) : undefined;
    const name = label.firstChild.textContent.replace(/\\[()]/g, "").trim();
    elements.push({ input, output, values: slider.values, partner, name });
    input.oninput = () => move(i, Number(input.value));
  });
  drawFormulas(row);
  note.hidden = isLive || Object.keys(picture.at).length >= count / 2 ** picture.sliders.length; // two ends have fewer
  move(0, places[0]);
  return () => elements.forEach(({ input }) => (input.disabled = false));
}

function checked(exercise, typed) {
  const number = typed.trim().replaceAll(",", ".").replace(/[%x× ]+$/, ""), value = Number(number);
  if (number === "" || Number.isNaN(value)) return "none";
  const isNear = (right) => Math.abs(value - right) <= exercise.within * Math.max(Math.abs(value), Math.abs(right));
  if (isNear(exercise.right)) return "is_right";
  const hint = exercise.hints.findIndex(([wrong]) => isNear(wrong));
  return hint >= 0 ? hint : value > exercise.right ? "is_large" : "is_small";
}

const verdictOf = ([text, kind]) => `<div class="verdict ${kind}">${text}</div>`;
const lessonOf = (data) => `${data.introduction}<fieldset><legend>${data.question}</legend>
  ${data.options.map((option, i) => `<label><input type="radio" name="guess" value="${i}"> ${option}</label>`).join("")}</fieldset>
  <div class="reply" role="status">${data.invitation}</div>
  ${data.pictures.map((_, i) => `<section class="figure" data-picture="${i}"><p role="status">Drawing …</p></section>`).join("")}
  ${data.closing}<label class="exercise">${data.exercise.words}<input inputmode="decimal" placeholder="a number"></label>
  <div class="checked" role="status"></div>`;

const tellProgress = (name) => {
  const done = progress(), count = Object.values(done).filter((each) => each.solved).length;
  const own = name && done[name]?.solved ? "Solved in this browser. " : "";
  const line = document.querySelector(".progress");
  if (line) line.textContent = `${own}${count} exercise${count === 1 ? "" : "s"} solved in this browser.`;
  for (const entry of document.querySelectorAll("li[data-name]"))
    entry.querySelector("em").textContent = done[entry.dataset.name]?.solved ? "✓ solved" : done[entry.dataset.name] ? "begun" : "";
};

(async () => {
  const packed = atob(document.getElementById("data").textContent);
  let data = JSON.parse(await unpacked(Uint8Array.from(packed, (letter) => letter.charCodeAt(0))));
  tellProgress(data.name);
  const main = document.getElementById("lesson");
  if (!main) return;
  const library = libraryReady(data.library), { isLive } = data;
  if (!data.pictures) {
    main.innerHTML = `<p role="status">${BUSY}</p>`;
    try {
      data = { ...data, ...(await answerOf("data")) };
    } catch {
      main.innerHTML = FAILED;
      return;
    }
  }
  main.innerHTML = lessonOf(data);
  await library;
  drawFormulas(main);
  const sections = [...document.querySelectorAll("[data-picture]")];
  const wake = sections.map((section, i) => showPicture(section, data.pictures[i], data.pool, i, isLive));
  const reply = document.querySelector(".reply");
  const guess = (option) => {
    reply.innerHTML = verdictOf(data.replies[option]);
    drawFormulas(reply);
    wake.forEach((each) => each());
  };
  const keep = (changes) => {
    progress((done) => ({ [data.name]: { ...done[data.name], ...changes } }));
    tellProgress(data.name);
  };
  for (const radio of document.querySelectorAll("[name=guess]"))
    radio.onchange = () => (guess(Number(radio.value)), keep({ guess: Number(radio.value) }));
  const before = progress()[data.name]?.guess;
  if (before !== undefined && data.replies[before]) {
    document.querySelectorAll("[name=guess]")[before].checked = true;
    guess(before);
  }
  const answer = document.querySelector(".exercise input"), verdict = document.querySelector(".checked");
  answer.onchange = () => {
    const outcome = checked(data.exercise, answer.value);
    verdict.innerHTML = verdictOf(typeof outcome === "number" ? data.exercise.hints[outcome][1] : data.exercise[outcome]);
    drawFormulas(verdict);
    if (outcome === "is_right") keep({ solved: true });
  };
  document.body.dataset.ready = "yes";
})();
