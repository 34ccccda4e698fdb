// Curves over layers with their controls, and what both models say of the examples at the layer.
const make = (tag, text = "", props = {}) => Object.assign(document.createElement(tag), { textContent: text }, props);
const draw = (tag, at, parent, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(at)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent?.append(node);
  return node;
};
const WIDTH = 400, HEIGHT = 180, LEFT = 44, RIGHT = 8, TOP = 10, BOTTOM = 34;
const OUTCOMES = ["wrong in both", "lost", "gained", "right in both"];
const short = (value) => Number(value.toPrecision(3)).toString();

// About four round numbers between two values.
function ticks(low, high) {
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const by = [1, 2, 2.5, 5, 10].find((m) => m * power >= rough) * power;
  const at = (by) => { const found = []; for (let i = Math.ceil(low / by); i * by <= high; i++) found.push(i * by); return found; };
  const found = at(by);
  return found.length > 2 ? found : at(by / 2);
}

// The values that are reached without a layer; equal ones of both models once.
function lines(floors, shows, names) {
  const found = new Map();
  for (const one of floors.filter(({ side }) => shows(side))) found.set(`${one.name} ${one.value}`, one);
  const twice = ({ name }) => [...found.values()].filter((other) => other.name === name).length > 1;
  return [...found.values()].map((one) => ({ ...one, name: twice(one) ? `${one.name}, ${names[one.side]}` : one.name }));
}

function panel(model, { title, curves, floors = [], notes = [] }) {
  const layers = model.get("layers"), here = model.get("layer"), step = model.get("step");
  const shows = (side) => side === 0 || side === step;
  const shown = curves.filter(({ side }) => shows(side)), flat = lines(floors, shows, model.get("sides"));
  const all = shown.flatMap(({ values, low, high }) => [...values, ...low, ...high]).filter((v) => v !== null);
  if (!all.length) return [];
  all.push(...flat.map(({ value }) => value));
  const pad = (Math.max(...all) - Math.min(...all)) * 0.06 || 0.05;
  const [low, high] = [Math.min(...all) - pad, Math.max(...all) + pad];
  const x = (i) => LEFT + ((WIDTH - LEFT - RIGHT) * (i + 0.5)) / layers.length;
  const y = (v) => TOP + ((HEIGHT - TOP - BOTTOM) * (high - v)) / (high - low);
  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "slider", tabindex: 0, "data-lm-suppress-shortcuts": true, "aria-label": `layer, on the curve of ${title}` });
  const said = shown.map(({ name, values }) => `${name} ${values[here] === null ? "missing" : short(values[here])}`).concat(flat.map(({ name, value }) => `${name} ${short(value)}`)).join(", ");
  for (const [key, value] of Object.entries({ min: 0, max: layers.length - 1, now: here, text: `layer ${layers[here]}: ${said}` }))
    svg.setAttribute(`aria-value${key}`, value);
  const half = (WIDTH - LEFT - RIGHT) / layers.length / 2;
  draw("rect", { class: "here", x: x(here) - half, width: 2 * half, y: TOP, height: HEIGHT - TOP - BOTTOM }, svg);
  for (const v of ticks(low, high)) {
    draw("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(v), y2: y(v) }, svg);
    draw("text", { x: LEFT - 5, y: y(v) + 4, "text-anchor": "end" }, svg, short(v));
  }
  const every = Math.ceil(layers.length / 14);
  layers.forEach((name, i) => i % every || draw("text", { x: x(i), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, svg, name));
  draw("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, svg, "layer");
  const look = ({ side, control }) => `${side ? "right" : "left"}${control ? " control" : ""}`;
  flat.forEach(({ value }, i) => draw("line", { class: `floor n${i % 4}`, x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }, svg));
  for (const one of shown) {
    const { side, control, values, low: lows, high: highs } = one;
    const g = draw("g", { class: look(one) }, svg);
    const known = values.map((v, i) => [i, v]).filter(([, v]) => v !== null);
    const ends = known.filter(([i]) => lows[i] !== null && highs[i] !== null);
    const outline = [...ends.map(([i]) => [x(i), y(highs[i])]), ...ends.map(([i]) => [x(i), y(lows[i])]).reverse()];
    draw("polygon", { class: "band", points: outline.join(" ") }, g);
    draw("polyline", { points: known.map(([i, v]) => [x(i), y(v)]).join(" ") }, g);
    if (control) continue;
    for (const [i, v] of known) {
      if (side) draw("rect", { x: x(i) - 3, y: y(v) - 3, width: 6, height: 6 }, g);
      else draw("circle", { cx: x(i), cy: y(v), r: 3.5 }, g);
    }
  }
  const go = (i) => {
    model.set("layer", Math.max(0, Math.min(layers.length - 1, i)));
    model.save_changes();
  };
  svg.onclick = ({ clientX }) => {
    const { left, width } = svg.getBoundingClientRect();
    go(Math.floor((((clientX - left) / width) * WIDTH - LEFT) / (2 * half)));
  };
  svg.onkeydown = (event) => {
    const to = { ArrowRight: here + 1, ArrowUp: here + 1, ArrowLeft: here - 1, ArrowDown: here - 1, Home: 0, End: layers.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); event.stopPropagation(); go(to); }
  };
  const key = make("ul", "", { className: "legend" });
  const entry = (name, paint) => {
    const line = draw("svg", { width: 26, height: 10, "aria-hidden": true });
    line.style.width = "26px";
    paint(line);
    const li = make("li");
    li.append(line, make("bdi", name));
    key.append(li);
  };
  for (const one of shown) {
    entry(one.name, (line) => {
      const g = draw("g", { class: look(one) }, line);
      draw("polyline", { points: "0,5 26,5" }, g);
      if (!one.control) draw(one.side ? "rect" : "circle", one.side ? { x: 10, y: 2, width: 6, height: 6 } : { cx: 13, cy: 5, r: 3.5 }, g);
    });
  }
  flat.forEach(({ name, value }, i) => entry(`${name} (${short(value)})`, (line) => draw("line", { class: `floor n${i % 4}`, x1: 0, x2: 26, y1: 5, y2: 5 }, line)));
  const shaded = shown.some(({ low, high }) => low.some((v, i) => v !== null && high[i] !== null));
  if (shaded) notes = [`Shaded: confidence intervals${shown.some(({ control }) => control) ? "; for controls, the range of their draws" : ""}.`, ...notes];
  return [make("h3", title), svg, key, ...notes.map((text) => make("p", text, { className: "soft" }))];
}

// The examples of each outcome at a layer, from one byte for each example.
function outcomes(model) {
  const view = model.get("outcomes"), n = model.get("n"), layers = model.get("layers").length;
  if (!view?.byteLength) return null;
  const offset = ((model.get("step") - 1) * layers + model.get("layer")) * n;
  const groups = OUTCOMES.map(() => []);
  for (let i = 0; i < n; i++) groups[view.getUint8(offset + i)]?.push(i);
  return groups;
}

function table(model) {
  const groups = outcomes(model);
  if (!groups) return [];
  const test = make("p", model.get("tests")[model.get("step") - 1]?.[model.get("layer")] ?? "", { className: "soft" });
  if (!groups.some((group) => group.length)) return [test];
  const [left, right] = [model.get("sides")[0], model.get("sides")[model.get("step")]];
  const layer = model.get("layers")[model.get("layer")];
  const cell = (i) => {
    const td = make("td");
    const button = make("button", `${groups[i].length}`, { title: `select these examples: ${OUTCOMES[i]}` });
    button.ariaLabel = `${OUTCOMES[i]}: ${groups[i].length} examples, select them`;
    button.onclick = () => {
      model.set("origin", [`${OUTCOMES[i]} at layer ${layer}, ${left} and ${right}`, model.get("layer"), model.get("step")]);
      model.set("selected", new DataView(Uint32Array.from(groups[i]).buffer));
      model.save_changes();
    };
    td.append(button, make("span", ` ${OUTCOMES[i]}`, { className: "soft" }));
    return td;
  };
  const row = (text, ...cells) => { const tr = make("tr"); tr.append(make("th", text, { scope: "row" }), ...cells); return tr; };
  const head = make("tr");
  head.append(make("th"), make("th", `${right}: wrong`, { scope: "col" }), make("th", `${right}: right`, { scope: "col" }));
  const thead = make("thead"), body = make("tbody"), whole = make("table");
  thead.append(head);
  body.append(row(`${left}: wrong`, cell(0), cell(2)), row(`${left}: right`, cell(1), cell(3)));
  whole.append(make("caption", `Gained and lost at layer ${layer}`), thead, body);
  const scroll = make("div", "", { className: "scroll" });
  scroll.append(whole);
  return [scroll, test];
}

export default { render({ model, el }) {
  el.classList.add("pk");
  const paint = () => {
    const focused = document.activeElement?.role === "slider" && [...el.querySelectorAll("[role=slider]")].indexOf(document.activeElement);
    const curves = make("div"), below = make("div");
    curves.append(...model.get("panels").flatMap((one) => panel(model, one)));
    below.append(...table(model));
    el.replaceChildren(curves, below);
    if (!el.textContent) el.append(make("p", model.get("missing"), { className: "soft" }));
    if (focused !== false && focused >= 0) el.querySelectorAll("[role=slider]")[focused]?.focus();
  };
  el.role = "group";
  el.ariaLabel = "Curves over layers";
  const names = ["layer", "step", "panels", "outcomes", "tests"];
  for (const name of names) model.on(`change:${name}`, paint);
  paint();
  return () => { for (const name of names) model.off(`change:${name}`, paint); };
} };
