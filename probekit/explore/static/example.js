// One example: its text, its tokens at each layer, its neighbours and what the probes say of it.
const make = (tag, text = "", props = {}) => Object.assign(document.createElement(tag), { textContent: text }, props);
const CELL = 14;

// Blue for positive, orange for negative: rgba, so that it is read on light and on dark paper.
const tint = (value, most) => {
  if (value === null || !most) return "transparent";
  const alpha = Math.min(1, Math.abs(value) / most) * 0.75;
  return value < 0 ? `rgba(213, 94, 0, ${alpha})` : `rgba(43, 131, 186, ${alpha})`;
};
const short = (value) => (value === null ? "missing" : Number(value.toPrecision(3)).toString());

function asker(model) {
  let last = 0;
  const waiting = new Map();
  const answer = (message) => {
    if (!waiting.has(message.number)) return;
    const done = waiting.get(message.number);
    waiting.delete(message.number);
    done(message);
  };
  model.on("msg:custom", answer);
  const ask = (question, details) => new Promise((done) => {
    waiting.set(++last, done);
    model.send({ question, number: last, ...details });
  });
  return [ask, () => model.off("msg:custom", answer)];
}

function facts(model, found) {
  const parts = [];
  const [at, start, end] = found.mark ?? [];
  found.texts.forEach((text, i) => {
    if (at && !i) return; // the token is marked in its text
    const part = make("div", at === i ? "" : text, { className: "text", dir: "auto", tabIndex: 0 });
    if (at === i) {
      const characters = [...text], piece = (...ends) => characters.slice(...ends).join("");
      part.append(piece(0, start), make("mark", piece(start, end)), piece(end));
    }
    parts.push(part);
  });
  const line = make("p", "", { className: "soft" });
  line.append(make("bdi", found.id), ...found.facts.flatMap(([name, value]) => [` · ${name} `, make("bdi", value)]));
  parts.push(line);
  return parts;
}

// Examples as buttons, each with a number before it if it has one.
function listed(items, choose, shared = new Set()) {
  const list = make("ol", "", { className: "list" });
  for (const { index, text, label, distance } of items) {
    const button = make("button", "", { title: "show this example" });
    if (distance !== undefined) button.append(make("span", `${short(distance)} `, { className: "soft" }));
    const text_ = make(shared.has(index) ? "b" : "bdi", text, { dir: "auto" });
    button.append(text_, make("span", label ? ` (${label})` : "", { className: "soft" }));
    if (shared.has(index)) button.append(make("span", " ⇄", { title: "near in both models" }));
    button.onclick = () => choose(index);
    const li = make("li");
    li.append(button);
    list.append(li);
  }
  return list;
}

function neighbours(sides, choose) {
  const two = make("div", "", { className: "two" });
  const [left, right] = [sides[0].items, sides.at(-1).items].map((items) => items.map(({ index }) => index));
  const shared = new Set(sides.length > 1 ? left.filter((index) => right.includes(index)) : []);
  for (const { name, items, reason } of sides) {
    const part = make("section");
    part.append(make("h3", `Nearest in ${name}`));
    part.append(reason ? make("p", reason, { className: "soft" }) : listed(items, choose, shared));
    two.append(part);
  }
  const told = make("p", `Numbers are cosine distances between the vectors of this layer, not distances on the map.${shared.size ? ` ⇄ marks the ${shared.size} that are near in both models.` : ""}`, { className: "soft" });
  return sides.some(({ items }) => items.length) ? [two, told] : [two];
}

function predictions({ layers, sides }) {
  if (!sides.length) return make("p", "No probes: give the rows of probekit probe to see their predictions.", { className: "soft" });
  const scroll = make("div", "", { className: "scroll" });
  const whole = make("table"), thead = make("thead"), head = make("tr"), body = make("tbody");
  head.append(make("th", "layer"), ...layers.map((name) => make("th", name, { scope: "col" })));
  thead.append(head);
  for (const { name, items } of sides) {
    const tr = make("tr");
    tr.append(make("th", name, { scope: "row" }));
    for (const { label, confidence, right } of items) {
      const td = make("td");
      td.append(make("bdi", label), make("span", right === null ? "" : right ? " ✓" : " ✗"), make("div", confidence, { className: "soft" }));
      td.lastChild.style.whiteSpace = "nowrap";
      if (right !== null) td.ariaLabel = `${label}, ${right ? "right" : "wrong"}${confidence ? `, ${confidence}` : ""}`;
      tr.append(td);
    }
    body.append(tr);
  }
  const all = sides.flatMap(({ items }) => items), judged = all.some(({ right }) => right !== null), sure = all.some(({ confidence }) => confidence);
  whole.append(make("caption", `Predictions of each layer's probe${judged ? " (✓ right, ✗ wrong)" : ""}${sure ? " and their probability" : ""}`), thead, body);
  scroll.append(whole);
  return scroll;
}

// One side's tokens at this layer, and below them a heat map with a row for each layer.
function strip(model, { most, layers }, each, { name, tokens, values }) {
  const part = make("section");
  part.append(make("h3", name));
  const layer = model.get("layer");
  const largest = values.map((row) => (each ? Math.max(...row.map((value) => Math.abs(value ?? 0))) : most));
  const line = make("p", "", { className: "tokens", dir: "auto" });
  tokens.forEach((token, i) => {
    const value = values[layer]?.[i] ?? null;
    const span = make("span", token, { title: short(value) });
    span.style.background = tint(value, largest[layer]);
    if (value < 0) span.className = "signed";
    line.append(span, " ");
  });
  const heat = make("canvas", "", { className: "heat", width: tokens.length, height: values.length });
  heat.style.height = `${Math.min(240, CELL * values.length)}px`;
  heat.role = "img";
  heat.ariaLabel = `${name}: a row for each of ${values.length} layers, layer ${layers[0]} on top, a column for each of ${tokens.length} tokens`;
  const pen = heat.getContext("2d");
  values.forEach((row, l) => row.forEach((value, i) => { pen.fillStyle = tint(value, largest[l]); pen.fillRect(i, l, 1, 1); }));
  const told = make("output", "", { className: "soft" });
  heat.onpointermove = (event) => {
    const box = heat.getBoundingClientRect();
    const i = Math.floor(((event.clientX - box.left) / box.width) * tokens.length);
    const l = Math.floor(((event.clientY - box.top) / box.height) * values.length);
    if (values[l]?.[i] !== undefined) told.textContent = `layer ${layers[l]}, ${tokens[i]}: ${short(values[l][i])}`;
  };
  let at = [layer, 0];
  heat.tabIndex = 0;
  heat.onkeydown = (event) => {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const [l, i] = [at[0] + by[0], at[1] + by[1]];
    if (values[l]?.[i] === undefined) return;
    at = [l, i];
    told.textContent = `layer ${layers[l]}, ${tokens[i]}: ${short(values[l][i])}`;
  };
  part.append(line, heat, told);
  return part;
}

function attention({ name, tokens, weights, note }) {
  const scroll = make("div", "", { className: "scroll" });
  const whole = make("table"), head = make("tr"), thead = make("thead"), body = make("tbody");
  head.append(make("th", "from ↓ to →"), ...tokens.map((token) => make("th", token, { scope: "col" })));
  thead.append(head);
  weights.forEach((row, i) => {
    const tr = make("tr");
    tr.append(make("th", tokens[i], { scope: "row" }));
    for (const weight of row) {
      const td = make("td", weight < 0.05 ? "" : weight.toFixed(2), { className: "n" });
      td.style.background = tint(weight, 1);
      tr.append(td);
    }
    body.append(tr);
  });
  whole.append(thead, body);
  scroll.append(make("h3", name), make("p", note, { className: "soft" }), whole);
  return scroll;
}

export default { render({ model, el }) {
  el.classList.add("pk");
  const [ask, stop] = asker(model);
  const title = make("h2", model.get("unit"));
  const about = make("div"), near = make("div"), says = make("div"), strips = make("div", "", { className: "two" }), told = make("p", "", { className: "soft" }), heads = make("div");
  const kinds = make("label", "colour tokens by"), kind = make("select", "", { ariaLabel: "colour tokens by" });
  kind.append(...model.get("kinds").map(([value, text]) => make("option", text, { value })));
  const unit = make("input", "", { type: "number", min: 0, value: 0 }), units = make("label", "unit");
  units.append(unit);
  kind.dataset.lmSuppressShortcuts = "true"; // or JupyterLab takes arrow keys
  kinds.append(kind);
  const each = make("input", "", { type: "checkbox" }), scaled = make("label");
  scaled.append(each, "a scale for each layer");
  const bar = make("div", "", { className: "bar" });
  bar.append(kinds, units, scaled);
  const look = make("button", "show attention"), head = make("input", "", { type: "number", min: 0, value: 0 }), headed = make("label", "head");
  const block = make("input", "", { type: "number", min: 0, value: 0 }), blocked = make("label", "block");
  headed.append(head);
  blocked.append(block);
  const attend = make("div", "", { className: "bar" });
  attend.append(blocked, headed, look);
  el.append(title, about, says, near, bar, strips, told, attend, heads);
  el.role = "region";
  el.ariaLabel = "One example";
  const choose = (index) => { model.set("example", index); model.save_changes(); };
  let current = null, strip_ = null;

  const wanted = make("input", "", { type: "search", ariaLabel: "find an example by its id or text", placeholder: "id or text" });
  const hits = make("div"), before = make("button", "previous"), after = make("button", "next"), seek = make("div", "", { className: "bar" });
  const label = make("label", "find");
  wanted.dataset.lmSuppressShortcuts = "true";
  label.append(wanted);
  seek.append(label, before, after);
  title.after(seek, hits);
  before.onclick = () => choose(model.get("example") > 0 ? model.get("example") - 1 : model.get("n") - 1);
  after.onclick = () => choose((model.get("example") + 1) % model.get("n"));
  wanted.oninput = async () => {
    const text = wanted.value;
    const { items = [], total = 0 } = text.trim() ? await ask("find", { text }) : {};
    if (text !== wanted.value) return;
    const more = total > items.length ? `${total.toLocaleString("en")} found, the first ${items.length} are listed` : `${total} found`;
    const said = make("p", text.trim() ? more : "", { className: "soft", role: "status" });
    hits.replaceChildren(said, listed(items, (index) => { hits.replaceChildren(); choose(index); }));
  };

  const refuse = (at, { error }) => { at.replaceChildren(make("p", error, { className: "error" })); };
  const drawStrips = () => {
    if (!strip_) return;
    const zero = ({ values }) => values.every((row) => row.every((value) => !value)); // the left model is not away from itself
    const shown = strip_.sides.filter((side) => !zero(side)), negative = strip_.sides.some(({ values }) => values.flat().some((value) => value < 0));
    strips.replaceChildren(...(shown.length ? shown : strip_.sides).map((side) => strip(model, strip_, each.checked, side)));
    told.textContent = `${strip_.note} The text has the colours of this layer; below it is a row for each layer, ${strip_.layers[0]} on top, and a column for each token.${negative ? " Negative numbers are orange and underlined." : ""}`;
  };
  const askStrips = async () => {
    strip_ = null;
    units.hidden = kind.value !== "unit";
    bar.hidden = model.get("example") < 0 || !kind.options.length;
    strips.replaceChildren();
    told.textContent = "";
    if (model.get("example") < 0) return;
    const found = await ask("strip", { index: model.get("example"), step: model.get("step"), kind: kind.value, unit: Number(unit.value) });
    if (found.index !== model.get("example")) return;
    if (found.error) { refuse(strips, found); return; }
    strip_ = found;
    drawStrips();
  };
  const askExample = async () => {
    const index = model.get("example");
    const asked = { index, step: model.get("step"), layer: model.get("layer") };
    heads.replaceChildren();
    attend.hidden = index < 0 || !model.get("attends");
    if (index < 0) {
      title.textContent = model.get("unit");
      about.replaceChildren(make("p", "Click a point on a map, or find one by its id or text, to see its text, its tokens and its neighbours.", { className: "soft" }));
      for (const part of [near, says]) part.replaceChildren();
      return;
    }
    const found = await ask("example", asked);
    if (index !== model.get("example") || asked.layer !== model.get("layer") || asked.step !== model.get("step")) return;
    if (found.error) { refuse(about, found); return; }
    title.ariaLive = current?.id === found.id ? "off" : "polite"; // a new layer is said by its slider
    current = found;
    title.textContent = `${model.get("unit")} ${found.id}, layer ${model.get("layers")[asked.layer]}`;
    about.replaceChildren(...facts(model, found));
    says.replaceChildren(predictions(found.predictions));
    near.replaceChildren(...neighbours(found.neighbours, choose));
  };
  look.onclick = async () => {
    const found = await ask("attention", { index: model.get("example"), step: model.get("step"), block: Number(block.value), head: Number(head.value) });
    if (found.error) refuse(heads, found); else heads.replaceChildren(...found.sides.map(attention));
  };
  kind.onchange = askStrips;
  each.onchange = drawStrips;
  unit.onchange = askStrips;
  const moved = () => { askExample(); drawStrips(); };
  const changed = () => { askExample(); askStrips(); };
  model.on("change:example", changed);
  model.on("change:step", changed);
  model.on("change:layer", moved);
  changed();
  return () => { stop(); model.off("change:example", changed); model.off("change:step", changed); model.off("change:layer", moved); };
} };
