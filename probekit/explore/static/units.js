// One unit of a layer: the tokens or examples where it is highest, its values by label, similar units elsewhere.
const make = (tag, text = "", props = {}) => Object.assign(document.createElement(tag), { textContent: text }, props);
const short = (value) => Number(value.toPrecision(3)).toString();

function top(items, choose) {
  const list = make("ol", "", { className: "list" });
  for (const { index, before, token, after, label, value } of items) {
    const button = make("button", "", { title: "show this example" });
    button.append(make("span", `${short(value)} `, { className: "soft" }), make("bdi", before), make("b", token), make("bdi", after));
    if (label) button.append(make("span", ` (${label})`, { className: "soft" }));
    button.onclick = () => choose(index);
    const li = make("li");
    li.append(button);
    list.append(li);
  }
  return list;
}

function histogram({ edges, groups }) {
  const part = make("div", "", { className: "two" });
  const sum = (counts) => counts.reduce((a, b) => a + b, 0) || 1;
  const most = Math.max(...groups.flatMap(({ counts }) => counts.map((count) => count / sum(counts))));
  for (const { name, counts } of groups) {
    const total = counts.reduce((a, b) => a + b, 0);
    const at = counts.indexOf(Math.max(...counts));
    const section = make("section"), bars = make("div", "", { className: "bars" });
    bars.role = "img";
    bars.ariaLabel = `Histogram of ${name}: ${total} values from ${short(edges[0])} to ${short(edges.at(-1))}, most between ${short(edges[at])} and ${short(edges[at + 1])}`;
    bars.append(...counts.map((count, i) => {
      const share = count / sum(counts);
      const bar = make("i", "", { title: `${short(edges[i])} to ${short(edges[i + 1])}: ${count} (${(100 * share).toFixed(1)} %)` });
      bar.style.height = `${(100 * share) / (most || 1)}%`;
      return bar;
    }));
    const ends = make("div", "", { className: "ends soft" });
    ends.append(make("span", short(edges[0])), make("span", short(edges.at(-1))));
    const head = make("h3");
    head.append(make("bdi", name), ` (${total})`);
    section.append(head, bars, ends);
    part.append(section);
  }
  return part;
}

function similar(items, go) {
  const list = make("ul", "", { className: "list" });
  for (const { side, name, layer, layerName, unit, r } of items) {
    const button = make("button", `${name}, layer ${layerName}, unit ${unit}: r = ${r.toFixed(2)}`, { title: "show this unit" });
    button.onclick = () => go(side, layer, unit);
    const li = make("li");
    li.append(button);
    list.append(li);
  }
  return list;
}

export default { render({ model, el }) {
  el.classList.add("pk");
  let last = 0, known = null;
  const side = make("select", "", { ariaLabel: "model" }), unit = make("input", "", { type: "number", min: 0, value: 0 }), ranked = make("select", "", { ariaLabel: "ranking" });
  for (const box of [side, ranked]) box.dataset.lmSuppressShortcuts = "true"; // or JupyterLab takes arrow keys
  const labelled = (text, node) => { const label = make("label", text); label.append(node); return label; };
  const show = make("button", "show"), bar = make("div", "", { className: "bar" }), found = make("div");
  const by = make("span", "ranked"), rank = make("label");
  rank.append(by, " ", ranked);
  rank.hidden = true;
  bar.append(labelled("model", side), labelled("unit", unit), show, rank);
  el.append(make("h2", "Units"), bar, found);
  el.role = "region";
  el.ariaLabel = "One unit of a layer";
  const sides = () => {
    const before = side.value;
    const names = model.get("sides");
    const shown = names.length > 1 ? [0, model.get("step")] : [0];
    side.replaceChildren(...shown.map((i) => make("option", names[i], { value: i })));
    if (before && shown.includes(Number(before))) side.value = before;
  };
  const choose = (index) => { model.set("example", index); model.save_changes(); };
  const ask = () => {
    found.replaceChildren(make("p", "…", { className: "soft" }));
    model.send({ question: "unit", number: ++last, side: Number(side.value), layer: model.get("layer"), unit: Number(unit.value) });
  };
  const go = (s, layer, u) => {
    unit.value = u;
    if ([...side.options].some(({ value }) => Number(value) === s)) side.value = s;
    model.set("layer", layer);
    model.save_changes();
    ask();
  };
  const answer = (message) => {
    if (message.number !== last) return;
    const ranking = message.ranking ?? [];
    rank.hidden = !ranking.length;
    by.textContent = ranked.ariaLabel = message.by || "ranked";
    ranked.replaceChildren(make("option", "choose …", { value: "" }), ...ranking.map((u) => make("option", u, { value: u })));
    if (message.error) { found.replaceChildren(make("p", message.error, { className: "error" })); return; }
    known = message;
    unit.value = message.unit;
    unit.max = message.units - 1;
    found.replaceChildren(
      make("p", `Unit ${message.unit} of ${message.units}, ${message.name}, layer ${message.layerName}.`, { className: "soft" }),
      make("h3", message.of), top(message.top, choose),
      make("h3", message.values), histogram(message.histogram),
      make("p", "Bars are shares of the label's values; all labels have one scale.", { className: "soft" }),
      make("h3", message.similar.length ? "Most similar units in the other model" : ""), similar(message.similar, go),
      make("p", message.similar.length ? message.noise ?? "" : "", { className: "soft" }),
    );
  };
  ranked.onchange = () => { if (ranked.value) { unit.value = ranked.value; ask(); } };
  show.onclick = ask;
  unit.onchange = ask;
  side.onchange = () => { if (known) ask(); };
  const moved = () => { sides(); if (known) ask(); };
  model.on("msg:custom", answer);
  model.on("change:layer", moved);
  model.on("change:step", moved);
  sides();
  found.append(make("p", "Choose a unit: a coordinate of the vectors of this layer.", { className: "soft" }));
  return () => { model.off("msg:custom", answer); model.off("change:layer", moved); model.off("change:step", moved); };
} };
