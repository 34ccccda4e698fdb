// What must be known of the data and the models, after them.
export default { render({ model, el }) {
  el.classList.add("pk");
  const draw = () => {
    el.replaceChildren(...model.get("notes").map((text) => Object.assign(document.createElement("p"), { textContent: text, className: "soft" })));
  };
  model.on("change:notes", draw);
  draw();
  return () => model.off("change:notes", draw);
} };
