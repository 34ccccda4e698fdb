// What a map shows, in words; it also names the map for screen readers and reports how wide it is.
const make = (tag, text = "", props = {}) => Object.assign(document.createElement(tag), { textContent: text }, props);

export default { render({ model, el }) {
  el.classList.add("pk");
  const name = make("h3");
  const text = make("p", "", { className: "soft" });
  const note = make("p", "", { className: "error" });
  text.setAttribute("aria-live", "polite");
  el.append(name, text, note);
  const draw = () => {
    name.textContent = model.get("name");
    text.textContent = model.get("text");
    note.textContent = model.get("note");
    note.hidden = !note.textContent;
    const map = el.closest(".pk-map");
    if (map) { map.role = "group"; map.ariaLabel = `Map of ${name.textContent}. ${text.textContent}`; }
  };
  const names = ["name", "text", "note"];
  for (const one of names) model.on(`change:${one}`, draw);
  draw();
  const placed = requestAnimationFrame(draw); // el is in the page only now
  const box = new ResizeObserver(() => {
    const width = Math.round(text.getBoundingClientRect().width);
    if (width && width !== model.get("width")) { model.set("width", width); model.save_changes(); }
  });
  box.observe(text);
  return () => { box.disconnect(); cancelAnimationFrame(placed); for (const one of names) model.off(`change:${one}`, draw); };
} };
