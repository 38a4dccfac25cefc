// The page of a lesson. A static page has its positions as data; a live page asks the server for each.
const NOTICE_MS_OF_PAGE = 400; // of calculating, after which a picture says so
const STORE = "npusim-lessons";
// The text of `words.json` by its name, with values in place of {names}.
function word(name, values = {}) {
  return WORDS[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);
}
// Text that is packed as base64.
const unpacked = async (letters) => {
  const bytes = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
};
// Data of the page.
const packedIn = async (id) => JSON.parse(await unpacked(document.getElementById(id).textContent));
const progress = (change) => {
  let solved = {};
  try {
    solved = JSON.parse(localStorage.getItem(STORE) ?? "{}");
    if (change) localStorage.setItem(STORE, JSON.stringify(Object.assign(solved, change(solved))));
  } catch { /* a page inside another one may not keep anything */ }
  return solved;
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
    script.textContent = await unpacked(globalThis.npusimLibrary);
    document.head.append(script);
  }
  globalThis.npusimPlotly = Promise.resolve(globalThis.Plotly);
};
const answerOf = async (address) => {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
};

// KaTeX writes spaces as bare text, which a browser leaves out of a formula.
const LEAVES = "mi, mn, mo, mtext, ms, annotation";
const showSpaces = (formula) => {
  const walker = document.createTreeWalker(formula, NodeFilter.SHOW_TEXT), spaces = [];
  while (walker.nextNode()) if (!walker.currentNode.parentElement.matches(LEAVES)) spaces.push(walker.currentNode);
  for (const space of spaces) {
    const wide = document.createElementNS("http://www.w3.org/1998/Math/MathML", "mspace");
    wide.setAttribute("width", space.data.length > 1 ? "0.28em" : "0.17em");
    space.replaceWith(wide);
  }
};
const drawFormulas = (place) => {
  for (const formula of place.querySelectorAll(".arithmatex:not([data-drawn-tex])")) {
    const [, kind, text] = formula.textContent.match(/^\s*\\([([])([\s\S]*)\\[)\]]\s*$/) ?? [];
    if (!kind) continue;
    formula.dataset.drawnTex = text;
    globalThis.npusimKatex.render(text, formula, { output: "mathml", displayMode: kind === "[", throwOnError: false });
    showSpaces(formula);
  }
};

// A slider, or a list to choose from; `moved` takes the place of the new value among all.
const control = (slider, start, moved) => {
  const { values, isList } = slider, label = document.createElement("label");
  label.innerHTML = `<span>${slider.label}</span>`;
  const input = document.createElement(isList ? "select" : "input");
  if (isList) input.innerHTML = values.map((value, j) => `<option value="${j}">${value}</option>`).join("");
  else Object.assign(input, { type: "range", min: 0, max: values.length - 1, step: 1 });
  const output = isList ? null : document.createElement("output");
  label.append(...[input, output].filter(Boolean));
  const put = (place) => {
    input.value = String(place);
    if (isList) return; // a list says its value by itself
    input.setAttribute("aria-valuetext", values[place]);
    output.textContent = values[place];
  };
  input.oninput = () => {
    put(Number(input.value));
    moved(Number(input.value));
  };
  put(start);
  return { label, input, put, values };
};
const listOf = (label, values, chosen, moved) =>
  control({ label, values, isList: true }, values.indexOf(chosen), (place) => moved(values[place])).label;

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
  const draw = (picture.isPlayer ? machineIn : figureIn)(widget);
  const elements = [];
  let isStarted = false;
  const stored = (at) => {
    const [spec, said, text] = picture.at[at].map((place) => pool[place]);
    return [spec && JSON.stringify(decoded(spec, pool)), said, text];
  };
  const positionOf = async (at) =>
    isLive ? answerOf(`at/${number}/${at}`).catch(() => ["", "", `<p>${word("no_answer")}</p>`]) : stored(at);
  const put = ([spec, said, text]) => {
    below.innerHTML = text;
    drawFormulas(below);
    isStarted = true;
    return draw(spec, said);
  };
  // One question at a time; of the moves meanwhile the last is asked next.
  let isAsking = false;
  const show = async () => {
    if (isAsking) return;
    isAsking = true;
    let drawn;
    const isStored = isLive && !isStarted && places.join(",") in picture.at;
    if (isStored) put(stored(places.join(",")));
    const say = () => (busy.textContent = `${isStored ? word("stored") : ""} ${word("calculating")}`);
    const notice = setTimeout(say, isStarted ? NOTICE_MS_OF_PAGE : 0);
    while (section.dataset.at !== places.join(",")) {
      const at = places.join(","), shown = await positionOf(at);
      if (at === places.join(",")) (section.dataset.at = at), (drawn = put(shown));
    }
    clearTimeout(notice);
    busy.textContent = "";
    section.classList.remove("stale");
    isAsking = false;
    return drawn;
  };
  const move = (i, to) => {
    places[i] = to;
    const partner = elements[i].partner;
    if (partner !== undefined && (partner > i ? places[partner] < to : places[partner] > to)) places[partner] = to;
    const isMissing = () => !isLive && !(places.join(",") in picture.at), isMoved = isMissing();
    if (isMoved) places.forEach((_, j) => j !== i && (places[j] = start[j]));
    if (isMissing()) places[i] = start[partner]; // no further than the other end
    const began = elements.map(({ values, name }, j) => `${name} ${values[start[j]]}`).join(", ");
    note.textContent = `${isMoved ? word("went_back") : ""} ${word("has_lines", { places: began })}`;
    elements.forEach(({ put }, j) => put(places[j]));
    section.classList.toggle("stale", isStarted); // until `show` has drawn this position
    return show();
  };
  for (const slider of picture.sliders) slider.start.forEach((start, end) => {
    const i = elements.length, made = control(slider, start, (to) => move(i, to));
    made.input.disabled = true;
    row.append(made.label);
    const partner = slider.start.length > 1 ? i + (end ? -1 : 1) : undefined;
    const name = made.label.firstChild.textContent.replace(/\\[()]/g, "").trim();
    elements.push({ ...made, partner, name });
  });
  drawFormulas(row);
  const first = move(0, places[0]);
  const wake = () => elements.forEach(({ input }) => (input.disabled = false));
  // When all positions are there.
  const complete = () => {
    note.hidden = isLive || Object.keys(picture.at).length >= count / 2 ** picture.sliders.length; // two ends have fewer
  };
  return { first, wake, complete };
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
  ${data.pictures.map((_, i) => `<section class="figure" data-picture="${i}"><p role="status">${word("drawing")}</p></section>`).join("")}
  ${data.closing}<label class="exercise">${data.exercise.words}<input inputmode="decimal" placeholder="${word("number")}"></label>
  <div class="checked" role="status"></div><p><button class="again">${word("again")}</button></p>`;

const tellProgress = (name) => {
  const done = progress(), count = Object.values(done).filter((each) => each.solved).length;
  const own = name && done[name]?.solved ? `${word("solved_here")} ` : "";
  const line = document.querySelector(".progress");
  if (line) line.textContent = own + word(count === 1 ? "solved_one" : "solved_many", { count });
  for (const entry of document.querySelectorAll("li[data-name]"))
    entry.querySelector("em").textContent = done[entry.dataset.name]?.solved ? word("solved") : done[entry.dataset.name] ? word("begun") : "";
};

(async () => {
  let data = await packedIn("data");
  tellProgress(data.name);
  const main = document.getElementById("lesson"), library = data.library && libraryReady(data.library), { isLive } = data;
  if (data.isExplorer) {
    await library;
    await showExplorer(data);
    document.body.dataset.ready = "yes";
  }
  if (!main) return;
  if (!data.pictures) {
    main.innerHTML = `<p role="status">${word("calculating")}</p>`;
    try {
      data = { ...data, ...(await answerOf("data")) };
    } catch {
      main.innerHTML = `<p>${word("no_answer")}</p>`;
      return;
    }
  }
  main.innerHTML = lessonOf(data);
  await library;
  drawFormulas(main);
  const pictures = [...document.querySelectorAll("[data-picture]")].map((section, i) =>
    showPicture(section, data.pictures[i], data.pool, i, isLive));
  // The other positions of a static page are unpacked when its first pictures are drawn.
  const complete = isLive ? Promise.resolve() : Promise.all(pictures.map(({ first }) => first)).then(async () => {
    if (document.readyState === "loading") await new Promise((parsed) => addEventListener("DOMContentLoaded", parsed));
    const { pool, at } = await packedIn("others");
    for (const value of pool) data.pool.push(value);
    data.pictures.forEach((picture, i) => Object.assign(picture.at, at[i]));
  });
  complete.then(() => pictures.forEach((each) => each.complete()));
  const reply = document.querySelector(".reply");
  const guess = (option) => {
    reply.innerHTML = verdictOf(data.replies[option]);
    drawFormulas(reply);
    complete.then(() => pictures.forEach(({ wake }) => wake()));
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
  document.querySelector(".again").onclick = () => {
    progress(() => ({ [data.name]: undefined })); // JSON leaves it out
    location.reload();
  };
  await complete;
  document.body.dataset.ready = "yes";
})();
