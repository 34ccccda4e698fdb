// The saved page: a model for each widget, the state that they share, and the answers that a kernel would give.
const SHARED = ["layer", "step", "method", "colour", "selected", "example", "origin", "dark", "still"];
const TYPES = { uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array };

// What anywidget gives a module: values by name, and events when they change.
class Model {
  constructor(values) { this.values = values; this.handlers = {}; this.answer = () => ({}); }
  get(name) { return this.values[name]; }
  set(name, value) {
    if (this.values[name] === value) return;
    this.values[name] = value;
    this.fire(`change:${name}`);
  }
  fire(event, ...details) { for (const f of [...(this.handlers[event] ?? [])]) f(...details); }
  on(event, f) { (this.handlers[event] ??= []).push(f); }
  off(event, f) { this.handlers[event] = (this.handlers[event] ?? []).filter((g) => g !== f); }
  save_changes() {}
  send(message) {
    queueMicrotask(() => this.fire("msg:custom", { question: message.question, number: message.number, index: message.index, ...this.answer(message) }));
  }
}

async function unpacked(text) {
  const packed = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const buffer = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  const size = new DataView(buffer).getUint32(0, true);
  const data = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const arrays = {};
  for (const [name, { dtype, shape, start }] of Object.entries(data.arrays)) {
    const length = shape.reduce((a, b) => a * b, 1);
    const values = new TYPES[dtype](buffer, start, length);
    const inner = shape.slice(1).map((_, i) => shape.slice(i + 2).reduce((a, b) => a * b, 1));
    const first = shape.slice(1).reduce((a, b) => a * b, 1);
    arrays[name] = { values, shape, at: (...place) => place.reduce((sum, p, i) => sum + p * [first, ...inner][i], 0) };
  }
  return { ...data, arrays };
}

const load = async (code) => {
  const module = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  return (module.default ?? module).render;
};

// The answers, from what the page holds; the same questions as in a notebook.
function answers(data, state) {
  const { ids, texts, labels, arrays, label_names, sides, layers } = data;
  const { prediction, confidence, right, neighbours, distance } = arrays;
  const shorten = (text) => (text.length > 120 ? `${text.slice(0, 120)} …` : text);
  const text = (i) => (texts ? shorten(texts[i].join(" | ")) : ids[i]);
  const shown = (value) => (label_names.length ? (label_names[value] ?? "") : Number.isNaN(value) ? "" : Number(value.toPrecision(3)).toString());
  const label = (i) => shown(labels[i]);
  const pair = (step) => (sides.length > 1 ? [0, step] : [0]);
  const item = (index) => ({ index, text: text(index), label: label(index) });

  const predictions = (index, step) => ({
    layers,
    sides: !prediction ? [] : pair(step).map((side) => (!data.predicted[side] ? { name: `${sides[side]} (no predictions)`, items: [] } : {
      name: sides[side],
      items: layers.map((_, layer) => {
        const at = prediction.at(side, layer, index);
        const sure = confidence ? confidence.values[confidence.at(side, layer, index)] : NaN;
        const known = right ? right.values[right.at(side, layer, index)] : 2;
        return { label: shown(prediction.values[at]), confidence: Number.isNaN(sure) ? "" : `${Math.round(100 * sure)} %`, right: known === 2 ? null : known === 1 };
      }),
    })),
  });
  const near = (index, step, layer) => pair(step).map((side) => {
    if (!neighbours) return { name: sides[side], items: [], reason: data.without.neighbours };
    const k = neighbours.shape[3], from = neighbours.at(side, layer, index, 0);
    const [low, high] = data.distances;
    const items = [...Array(k).keys()].map((j) => ({
      ...item(neighbours.values[from + j]),
      distance: distance.values[from + j] === 65535 ? 0 : Math.exp(low + (distance.values[from + j] * (high - low)) / 65534),
    }));
    return { name: sides[side], items };
  });
  return {
    example: ({ index, step, layer }) => ({
      id: ids[index], texts: texts ? texts[index] : [], mark: [...(arrays.marks?.values.subarray(3 * index, 3 * index + 3) ?? [])], facts: data.facts[index],
      predictions: predictions(index, step), neighbours: near(index, step, layer),
    }),
    find(message) {
      const wanted = message.text.trim().toLowerCase();
      if (!wanted) return { items: [], total: 0 };
      const found = ids.flatMap((id, i) => (id.toLowerCase().includes(wanted) || texts?.[i].join(" | ").toLowerCase().includes(wanted) ? [i] : []));
      found.sort((a, b) => (ids[a].toLowerCase() !== wanted) - (ids[b].toLowerCase() !== wanted));
      return { items: found.slice(0, 20).map(item), total: found.length };
    },
    strip({ index, step, kind }) {
      const found = data.strips[kind]?.[index];
      if (!found) return { error: data.without.strips };
      return { ...found, layers, sides: pair(step).map((side) => found.sides[side]) };
    },
    attention: () => ({ error: data.without.attention }),
    unit({ side, layer, unit }) {
      const held = Object.keys(data.units).filter((key) => key.startsWith(`${side} ${layer} `)).map((key) => Number(key.split(" ")[2]));
      const missing = { error: `${data.without.units} ${data.kept[`${side} ${layer}`] ?? ""}`, ranking: held, by: "in this page" };
      return data.units[`${side} ${layer} ${unit}`] ?? missing;
    },
    selection() {
      const chosen = indices(state.selected);
      return { ids: chosen.map((i) => ids[i]), items: chosen.slice(0, 100).map(item) };
    },
    compare: ({ step, layer, origin }) => compared(data, indices(state.selected), pair(step), layer, origin ?? []),
  };
}

const indices = (view) => [...new Uint32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength))];

// The selection and the rest, as statistics.two_samples.mean_difference computes them.
function compared(data, chosen, sides, layer, [, where, step]) {
  const { right, movement, lengths, groups, prediction, confidence, domains } = data.arrays;
  const n = data.ids.length, inside = new Uint8Array(n);
  for (const i of chosen) inside[i] = 1;
  if (!chosen.length || chosen.length === n) return { error: "Select some of the examples, not all, to compare them with the rest." };
  const rows = [];
  const add = (of, name, value) => rows.push([of, name, ...difference(Float64Array.from({ length: n }, (_, i) => value(i)), inside, groups?.values)]);
  const classes = data.label_names.length > 0, place = (side) => `${data.sides[side]}, layer ${data.layers[layer]}`, whole = "all layers";
  for (const side of data.sides.keys()) {
    if (!sides.includes(side)) continue;
    const of = place(side);
    const predicted = data.predicted[side];
    if (right && predicted) add(of, "accuracy", (i) => { const v = right.values[right.at(side, layer, i)]; return v === 2 ? NaN : v; });
    else if (prediction && predicted && !classes) add(of, "absolute error", (i) => Math.abs(prediction.values[prediction.at(side, layer, i)] - (data.labels[i] ?? NaN)));
    if (confidence && data.confident[side]) add(of, "confidence", (i) => confidence.values[confidence.at(side, layer, i)]);
    if (movement && side) add(of, "movement", (i) => movement.values[movement.at(side - 1, layer, i)]);
  }
  add(whole, "length", (i) => lengths.values[i]);
  if (!classes) add(whole, "label", (i) => data.labels[i] ?? NaN);
  data.label_names.forEach((name, k) => add(whole, `share of label ${name}`, (i) => (data.labels[i] < 0 ? NaN : Number(data.labels[i] === k))));
  data.domain_names.forEach((name, k) => add(whole, `share of domain ${name}`, (i) => Number(domains.values[i] === k)));
  const defining = where === layer ? [0, step].map(place) : [];
  for (const row of rows) if (row[1] === "accuracy" && defining.includes(row[0])) row.splice(4, 2, "", "");
  return { rows, notes: [...(defining.length ? [data.without.defined] : []), data.without.compare] };
}

// Welch's interval, Agresti and Caffo's for shares; groups of dependent examples widen it.
function difference(values, inside, groups) {
  const parts = [[], []], units = [new Set(), new Set()];
  values.forEach((v, i) => { if (!Number.isNaN(v)) { const side = inside[i] ? 0 : 1; parts[side].push(v); units[side].add(groups ? groups[i] : i); } });
  const [a, b] = parts.map((p) => p.length);
  const [one, two] = parts.map((p) => p.reduce((x, y) => x + y, 0) / p.length);
  const cell = (v) => (Number.isFinite(v) ? v.toFixed(3) : "");
  const means = [one, two, one - two].map(cell);
  if (!a || !b || Math.min(...units.map((u) => u.size)) < 5) return [...means, ""];
  const share = values.every((v) => Number.isNaN(v) || v === 0 || v === 1);
  const sums = new Map(), variances = [0, 0];
  values.forEach((v, i) => {
    if (Number.isNaN(v)) return;
    const scaled = inside[i] ? (v - one) / Math.sqrt(a * (a - 1)) : -(v - two) / Math.sqrt(b * (b - 1));
    variances[inside[i] ? 0 : 1] += scaled ** 2;
    const unit = groups ? groups[i] : i;
    sums.set(unit, (sums.get(unit) ?? 0) + scaled);
  });
  const independent = variances[0] + variances[1];
  const grouped = [...sums.values()].reduce((x, y) => x + y * y, 0);
  const inflation = independent ? Math.max(1, grouped / independent) : 1;
  let centre = one - two, half;
  if (share) {
    const [p, q] = parts.map((part, i) => (part.reduce((x, y) => x + y, 0) + 1) / ([a, b][i] + 2));
    centre = p - q;
    half = 1.959963985 * Math.sqrt(((p * (1 - p)) / (a + 2) + (q * (1 - q)) / (b + 2)) * inflation);
  } else {
    if (!independent) return [...means, ""];
    const freedom = independent ** 2 / variances.reduce((x, v, i) => x + v ** 2 / (units[i].size - 1), 0);
    half = quantile(freedom) * Math.sqrt(independent * inflation);
  }
  const clip = (v) => (share ? Math.max(-1, Math.min(1, v)) : v);
  return [...means, `${cell(clip(centre - half))} to ${cell(clip(centre + half))}`];
}

// The 97.5 % quantile of Student's t: the series of Abramowitz & Stegun 26.7.5.
function quantile(v) {
  const z = 1.959963985, [z3, z5, z7, z9] = [z ** 3, z ** 5, z ** 7, z ** 9];
  return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v ** 2) + (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v ** 3)
    + (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * z) / (92160 * v ** 4);
}

async function main() {
  const data = await unpacked(document.getElementById("data").textContent);
  const bytes = (list) => new DataView(Uint32Array.from(list).buffer);
  const state = { ...data.state, selected: bytes(data.state.selected), dark: matchMedia("(prefers-color-scheme: dark)").matches,
    still: matchMedia("(prefers-reduced-motion: reduce)").matches };
  const { xy, ...rest } = data.arrays;
  const find = answers(data, state);
  const models = {};
  for (const [name, values] of Object.entries(data.panels)) {
    const own = { ...values, ...Object.fromEntries(SHARED.map((key) => [key, state[key]])) };
    if (name === "curve") own.outcomes = new DataView(rest.outcomes.values.slice().buffer);
    models[name] = new Model(own);
    models[name].answer = (message) => find[message.question]?.(message) ?? { error: "This page has no answer to that." };
  }

  const n = data.ids.length;
  const points = (side) => {
    const { colour, layer, method, step } = state;
    const { shape, values, at } = rest[`colour ${colour}`];
    const from = at(Math.min(data.pairs.includes(colour) ? step : side, shape[0] - 1), Math.min(layer, shape[1] - 1), 0);
    const place = xy.at(data.methods.indexOf(method), side, layer, 0, 0), found = new Float32Array(4 * n);
    for (let i = 0; i < n; i++) {
      found[4 * i] = xy.values[place + 2 * i] / 32767.5 - 1;
      found[4 * i + 1] = xy.values[place + 2 * i + 1] / 32767.5 - 1;
      found[4 * i + 2] = values[from + i];
    }
    return { view: new DataView(found.buffer), dtype: "float32", shape: [n, 4] };
  };
  const selection = () => ({ view: state.selected, dtype: "uint32", shape: [state.selected.byteLength / 4] });
  const height = (width) => Math.max(160, Math.min(data.map.height, width - 44));
  const maps = data.sides.slice(0, 2).map((_, at) => {
    const { width } = document.getElementById(at ? "map-right" : "map-left").getBoundingClientRect();
    const map = new Model({ ...data.map, height: height(Math.round(width)), ...data.looks[state.colour][state.dark ? "dark" : "light"], points: points(at && state.step), selection: selection() });
    map.send = ({ type, index }) => {
      const shown = data.texts ? data.texts[index].join(" | ") : data.ids[index];
      queueMicrotask(() => map.fire("msg:custom", { type, index, properties: {}, preview: shown.length > 300 ? `${shown.slice(0, 300)} …` : shown }));
    };
    return map;
  });

  for (const [at, name] of [[0, "left"], [1, "right"]])
    models[name]?.on("change:width", () => maps[at]?.set("height", height(models[name].get("width"))));
  let hears = true;
  const quietly = (work) => { if (!hears) return; hears = false; try { work(); } finally { hears = true; } };
  const show = (moves) => {
    models.controls.set("legend", data.legends[state.colour][state.layer] ?? data.legends[state.colour][0]);
    maps.forEach((map, at) => {
      const side = at && state.step;
      for (const [name, value] of Object.entries(data.looks[state.colour][state.dark ? "dark" : "light"])) map.set(name, value);
      map.set("transition_points", moves && !state.still);
      map.set("non_spatial_points_update", !moves);
      map.set("points", points(side));
      const [text, note] = data.captions[side][state.method][state.layer];
      for (const [name, value] of Object.entries({ name: data.sides[side], text, note })) models[at ? "right" : "left"].set(name, value);
    });
  };
  const share = (name, value) => {
    if (state[name] === value) return;
    state[name] = value;
    for (const model of Object.values(models)) model.set(name, value);
    if (["layer", "step", "method"].includes(name)) show(true);
    if (["colour", "dark"].includes(name)) show(false);
    if (name === "selected") quietly(() => maps.forEach((map) => map.set("selection", selection())));
    if (name === "example") quietly(() => maps.forEach((map) => map.set("hovering", value)));
  };
  for (const model of Object.values(models)) for (const name of SHARED) model.on(`change:${name}`, () => share(name, model.get(name)));
  maps.forEach((map, at) => {
    map.on("change:selection", () => quietly(() => {
      const { view } = map.get("selection");
      const chosen = [...new Uint32Array(view.buffer)].sort((a, b) => a - b);
      const value = bytes(chosen);
      const click = chosen.length === 1; // it shows the example and leaves the selection
      if (click) share("example", chosen[0]); else { share("origin", []); share("selected", value); }
      maps.forEach((other, i) => (click || i !== at) && other.set("selection", selection()));
    }));
    map.on("change:hovering", () => quietly(() => maps.forEach((other, i) => i !== at && other.set("hovering", map.get("hovering") ?? -1))));
  });

  show(false);
  const caption = await load(data.modules.caption);
  for (const name of ["left", "right"]) if (models[name]) caption({ model: models[name], el: document.getElementById(name) });
  const render = await load(data.modules.map);
  await Promise.all(maps.map((model, at) => render({ model, el: document.getElementById(at ? "map-right" : "map-left") })));
  for (const [name, code] of Object.entries(data.modules)) {
    if (models[name]) (await load(code))({ model: models[name], el: document.getElementById(name) });
  }
  document.body.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by || event.target.closest("input, select, textarea, [role=slider], .scroll, .text")) return;
    models.controls.set("layer", Math.max(0, Math.min(data.layers.length - 1, state.layer + by)));
  });
  document.getElementById("wait").hidden = true;
  globalThis.probekit = { state, models, maps };
  document.documentElement.dataset.ready = "yes";
}

main().catch((error) => {
  document.getElementById("wait").textContent = `This page cannot be drawn: ${error.message}. It needs a browser of 2024 or later with WebGL.`;
  throw error;
});
