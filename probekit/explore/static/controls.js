// The layer, the step, the projection and the colour of the maps, with the legend.
const make = (tag, text = "", props = {}) => Object.assign(document.createElement(tag), { textContent: text }, props);
const keepKeys = (node) => { node.dataset.lmSuppressShortcuts = "true"; return node; }; // or JupyterLab takes arrow keys

function select(model, name, list, title) {
  const label = make("label", title);
  const box = keepKeys(make("select", "", { ariaLabel: title }));
  const fill = () => {
    box.replaceChildren(...model.get(list).map(([value, text]) => make("option", text, { value })));
    box.value = model.get(name);
    label.hidden = box.options.length < 2;
  };
  box.onchange = () => { model.set(name, box.value); model.save_changes(); };
  label.append(box);
  fill();
  return [label, fill];
}

function slider(model, name, list, title, first) {
  const label = make("label", title, { className: "slider" });
  const range = keepKeys(make("input", "", { type: "range", step: 1 }));
  const shown = make("output");
  const draw = () => {
    const names = model.get(list);
    range.min = first;
    range.max = names.length - 1;
    range.value = model.get(name);
    shown.textContent = names[model.get(name)] ?? "";
    range.setAttribute("aria-valuetext", `${title} ${shown.textContent}`);
    label.hidden = names.length - first < 2;
  };
  range.oninput = () => { model.set(name, Number(range.value)); model.save_changes(); draw(); };
  label.append(range, shown);
  draw();
  return [label, draw];
}

function legend(model, at) {
  const { kind, title, labels, colours } = model.get("legend");
  const dot = (colour) => { const d = make("span", "", { className: "dot" }); d.style.background = colour; return d; };
  const item = (...parts) => { const li = make("li"); li.append(...parts); return li; };
  at.ariaLabel = `colours: ${title}`;
  if (kind === "category") {
    at.replaceChildren(...labels.map((text, i) => item(dot(colours[i]), make("bdi", text))));
  } else {
    const ramp = make("span", "", { className: "ramp" });
    ramp.style.background = `linear-gradient(to right, ${colours.slice(0, -1).join(",")})`;
    at.replaceChildren(item(make("span", labels[0]), ramp, make("span", labels[1])));
  }
}

// Whether the reader asks the system for less motion.
function watchMotion(model) {
  const system = matchMedia("(prefers-reduced-motion: reduce)");
  const look = () => {
    if (system.matches !== model.get("still")) { model.set("still", system.matches); model.save_changes(); }
  };
  system.addEventListener("change", look);
  look();
  return () => system.removeEventListener("change", look);
}

// Whether the paper that the widget is on is dark, whatever decides it: the system, JupyterLab or an editor.
function watchPaper(model, el) {
  const look = () => {
    const parts = getComputedStyle(el).color.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0];
    const dark = parts[0] * 0.3 + parts[1] * 0.59 + parts[2] * 0.11 > 128;
    if (dark !== model.get("dark")) { model.set("dark", dark); model.save_changes(); }
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const theme = new MutationObserver(() => requestAnimationFrame(look));
  system.addEventListener("change", look);
  for (const node of [document.body, document.documentElement]) theme.observe(node, { attributes: true });
  const first = requestAnimationFrame(look);
  return () => { cancelAnimationFrame(first); system.removeEventListener("change", look); theme.disconnect(); };
}

export default { render({ model, el }) {
  el.classList.add("pk");
  const title = make("h2");
  const bar = make("div", "", { className: "bar" });
  const colours = make("ul", "", { className: "legend" });
  const [layer, drawLayer] = slider(model, "layer", "layers", "layer", 0);
  const [step, drawStep] = slider(model, "step", "steps", "checkpoint", 1);
  const [method, drawMethod] = select(model, "method", "methods", "projection");
  const [colour, drawColour] = select(model, "colour", "colours", "colour");
  bar.append(layer, step, method, colour);
  const how = make("p", "On a map: drag to move it, scroll to zoom, click a point for its example; to select many, press its loop and draw around them.", { className: "soft" });
  const draw = () => {
    title.textContent = model.get("title");
    for (const one of [drawLayer, drawStep, drawMethod, drawColour]) one();
    legend(model, colours);
  };
  el.append(title, bar, colours, how);
  el.role = "group";
  el.ariaLabel = "Layer, projection and colour of the maps";
  const names = ["title", "layers", "layer", "steps", "step", "methods", "method", "colours", "colour", "legend"];
  for (const name of names) model.on(`change:${name}`, draw);
  draw();
  const watched = [watchPaper(model, el), watchMotion(model)];
  return () => { for (const end of watched) end(); for (const name of names) model.off(`change:${name}`, draw); };
} };
