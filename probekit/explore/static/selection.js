// The selected examples: how many, which, and how they differ from the rest.
const make = (tag, text = "", props = {}) => Object.assign(document.createElement(tag), { textContent: text }, props);

function table(rows) {
  const scroll = make("div", "", { className: "scroll" });
  const whole = make("table"), thead = make("thead"), head = make("tr"), body = make("tbody");
  const columns = ["", "selected", "rest", "difference\n[95 % interval]"];
  head.append(...columns.map((text, i) => make("th", text, { scope: "col", className: i ? "n" : "" })));
  thead.append(head);
  let group = "";
  for (const [of, name, ...cells] of rows) {
    if (of !== group) {
      const tr = make("tr");
      tr.append(make("th", of, { scope: "rowgroup", className: "of", colSpan: columns.length }));
      body.append(tr);
    }
    group = of;
    const tr = make("tr");
    const [selected, rest, by, interval] = cells;
    for (const text of [selected, rest, interval ? `${by}\n[${interval}]` : by]) tr.append(make("td", text, { className: "n" }));
    tr.prepend(make("th", name, { scope: "row" }));
    body.append(tr);
  }
  whole.append(make("caption", "The selection and the rest"), thead, body);
  scroll.append(whole);
  return scroll;
}

export default { render({ model, el }) {
  el.classList.add("pk");
  let last = 0, ids = [], open = false;
  const count = make("h2");
  count.setAttribute("aria-live", "polite");
  const clear = make("button", "clear"), compare = make("button", "compare with the rest"), save = make("button", "save ids");
  const bar = make("div", "", { className: "bar" }), compared = make("div"), list = make("ol", "", { className: "list" });
  const hint = make("p", "", { className: "soft" });
  const origin = make("p", "", { className: "soft" });
  bar.append(compare, save, clear);
  el.append(count, origin, bar, compared, list, hint);
  el.role = "region";
  el.ariaLabel = "Selected examples";
  const ask = (question) => model.send({ question, number: ++last, step: model.get("step"), layer: model.get("layer"), origin: model.get("origin") });
  const choose = (index) => { model.set("example", index); model.save_changes(); };
  const name = () => { origin.textContent = model.get("selected").byteLength ? model.get("origin")[0] ?? "" : ""; };
  const moved = () => { if (open) ask("compare"); }; // the table is of the layer that is shown
  const draw = () => {
    const n = model.get("selected").byteLength / 4;
    const cell = model.get("origin")[0];
    count.textContent = n ? `${n.toLocaleString("en")} of ${model.get("n").toLocaleString("en")} selected` : cell ? `No example is ${cell}` : "Nothing is selected";
    bar.hidden = list.hidden = !n;
    open = false;
    name();
    compared.replaceChildren();
    list.replaceChildren();
    hint.textContent = n ? "" : model.get("start");
    if (n) ask("selection");
  };
  const answer = (message) => {
    if (message.number !== last) return;
    if (message.error) { compared.replaceChildren(make("p", message.error, { className: "error" })); return; }
    if (message.question === "compare") {
      compared.replaceChildren(table(message.rows), ...message.notes.map((text) => make("p", text, { className: "soft" })));
      return;
    }
    ids = message.ids;
    list.replaceChildren(...message.items.map(({ index, text, label }) => {
      const button = make("button", "", { title: "show this example" });
      button.append(make("bdi", text), make("span", label ? ` (${label})` : "", { className: "soft" }));
      button.onclick = () => choose(index);
      const li = make("li");
      li.append(button);
      return li;
    }));
    if (ids.length > message.items.length) list.append(make("li", `and ${(ids.length - message.items.length).toLocaleString("en")} more`, { className: "soft" }));
    hint.textContent = model.get("hint");
  };
  compare.onclick = () => { open = true; ask("compare"); };
  clear.onclick = () => { model.set("origin", []); model.set("selected", new DataView(new ArrayBuffer(0))); model.save_changes(); };
  save.onclick = () => {
    const url = URL.createObjectURL(new Blob([ids.join("\n") + "\n"], { type: "text/plain" }));
    make("a", "", { href: url, download: "selection.txt" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  };
  model.on("msg:custom", answer);
  model.on("change:selected", draw);
  model.on("change:origin", name);
  for (const one of ["change:layer", "change:step"]) model.on(one, moved);
  draw();
  return () => {
    model.off("msg:custom", answer);
    model.off("change:selected", draw);
    model.off("change:origin", name);
    for (const one of ["change:layer", "change:step"]) model.off(one, moved);
  };
} };
