// The explorer: two designs side by side. The server costs them; what each control changes is asked again.
const FIRST_STACKS = { A: 2, B: 3 };
const TITLES = ["critical_path", "energy", "roofline", "sram"];
const blocks = (name, titles) => `<div data-block="${name}"><p class="note busy" role="status"></p>
  ${titles.map((title) => `${title && `<h2>${word(title)}</h2>`}<div class="widget"></div>`).join("")}</div>`;
const EXPLORER = `<div class="designs">${Object.keys(FIRST_STACKS).map((name) => `<section data-design="${name}">
    <h2>${word("design", { name })}</h2><div class="sliders"></div><div class="sliders"></div></section>`).join("")}</div>
  <div class="below"></div>
  ${blocks("compared", ["critical_parts"])}
  <fieldset class="which"><legend>${word("pictures_of")}</legend>${Object.keys(FIRST_STACKS).map((name, i) =>
    `<label><input type="radio" name="which" value="${name}"${i ? "" : " checked"}> ${name}</label>`).join("")}</fieldset>
  ${blocks("pictures", TITLES)}
  <label><input type="checkbox"> ${word("simulate")}</label>
  ${blocks("simulated", [""])}
  <h2>${word("one_tile")}</h2><p>${word("one_tile_about")}</p><div class="sliders product"></div>
  ${blocks("product", [""])}`;

// Asks for one answer at a time; of the addresses meanwhile the last is asked next.
const latest = (block, views, show = () => {}) => {
  const busy = block.querySelector(".busy");
  let wanted = null, isAsking = false;
  return async (address) => {
    wanted = address;
    if (isAsking) return;
    isAsking = true;
    const notice = setTimeout(() => (busy.textContent = word("calculating")), NOTICE_MS_OF_PAGE);
    while (wanted !== null) {
      const asked = wanted;
      const answer = await answerOf(asked).catch(() => ({ refused: word("no_answer") }));
      if (asked !== wanted) continue;
      wanted = null;
      clearTimeout(notice);
      busy.textContent = answer.refused ?? "";
      views.forEach((view, i) => view(...(answer.figures?.[i] ?? ["", ""])));
      show(answer);
    }
    isAsking = false;
  };
};

const commandOf = (name, { latency, command, sheet, file }) => {
  const section = document.createElement("section");
  section.innerHTML = `<p><strong>${word("as_command", { name })}</strong> (${word("latency", { latency })})</p>
    <pre><code></code></pre><p><button>${word("copy")}</button> <a>${word("download", { name })}</a></p>`;
  section.querySelector("code").textContent = command;
  section.querySelector("button").onclick = () => navigator.clipboard.writeText(command);
  const href = URL.createObjectURL(new Blob([sheet], { type: "application/yaml" }));
  Object.assign(section.querySelector("a"), { href, download: file });
  return section;
};

async function showExplorer({ machines, networks, start, flows, most }) {
  const main = document.getElementById("explorer");
  main.innerHTML = EXPLORER;
  const part = (selector) => main.querySelector(selector);
  const asking = (name, show, draws = figureIn) => {
    const block = part(`[data-block=${name}]`);
    return latest(block, [...block.querySelectorAll(".widget")].map((each) => draws(each)), show);
  };
  const compare = asking("compared", ({ totals = "", designs = [] }) => {
    const below = part(".below");
    below.innerHTML = totals;
    below.append(...designs.map((each, i) => commandOf("AB"[i], each)));
  });
  const detail = asking("pictures"), simulate = asking("simulated"), play = asking("product", undefined, machineIn);
  const designs = Object.fromEntries(Object.keys(FIRST_STACKS).map((name) => [name, { at: [...start] }]));
  const addressOf = ({ at, stack, places }) => [...at, stack, places.join(",")].join(";");
  const follow = () => {
    if (!Object.values(designs).every(({ places }) => places)) return;
    compare(`compared/${Object.values(designs).map(addressOf).join("/")}`);
    const chosen = addressOf(designs[part("[name=which]:checked").value]);
    detail(`pictures/${chosen}`);
    const isSimulated = part("[type=checkbox]").checked;
    part("[data-block=simulated]").hidden = !isSimulated;
    if (isSimulated) simulate(`simulated/${chosen}`);
  };
  // A machine has its own sliders, a network its own stacks.
  const offer = async (name) => {
    const design = designs[name];
    const { stacks, sliders } = await answerOf(`offers/${design.at.join("/")}`);
    if (!stacks.includes(design.stack)) design.stack = stacks[Math.min(FIRST_STACKS[name], stacks.length - 1)];
    design.places = sliders.map((slider) => slider.start);
    part(`[data-design=${name}]`).lastElementChild.replaceChildren(
      listOf(word("techniques"), stacks, design.stack, (stack) => { design.stack = stack; follow(); }),
      ...sliders.map((slider, i) => control(slider, slider.start, (place) => { design.places[i] = place; follow(); }).label));
    follow();
  };
  for (const name in designs) {
    const choose = (i) => (chosen) => { designs[name].at[i] = chosen; offer(name); };
    part(`[data-design=${name}] .sliders`).append(
      listOf(word("machine"), machines, start[0], choose(0)), listOf(word("network"), networks, start[1], choose(1)));
  }
  for (const input of main.querySelectorAll("[name=which], [type=checkbox]")) input.onchange = follow;
  const sizes = { m: 16, k: 16, n: 16 };
  let flow = flows[0];
  const step = () => play(`product/${Object.values(sizes).map((size) => size || 0).join("/")}/${flow}`);
  for (const letter in sizes) {
    const label = document.createElement("label"), input = document.createElement("input");
    Object.assign(input, { type: "number", min: 1, max: most, value: sizes[letter] });
    input.onchange = () => { sizes[letter] = Math.abs(Math.round(input.value)); step(); };
    label.append(letter.toUpperCase(), input);
    part(".product").append(label);
  }
  part(".product").append(listOf(word("dataflow"), flows, flow, (chosen) => { flow = chosen; step(); }));
  step();
  await Promise.all(Object.keys(designs).map(offer));
}
