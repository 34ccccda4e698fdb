// Tables of measurements: a field that keeps the lines with all of its words, and titles that sort.
"use strict";

const field = (box, lines) => {
  const words = box.value.toLowerCase().split(/\s+/);
  const shown = lines.filter((line) => {
    line.hidden = !words.every((word) => line.textContent.toLowerCase().includes(word));
    return !line.hidden;
  });
  box.nextSibling.textContent = `${shown.length} of ${lines.length} lines`;
};

const sort = (title, body) => {
  const text = (line) => line.cells[title.cellIndex].textContent;
  const number = (line) => parseFloat(text(line).replaceAll(",", "").replaceAll("−", "-").match(/-?[\d.]*\d/)?.[0]);
  const numbers = [...body.rows].every((line) => !text(line).trim() || !Number.isNaN(number(line)));
  const sign = title.ariaSort === "ascending" ? -1 : 1;
  for (const other of title.parentNode.cells) other.ariaSort = null;
  title.ariaSort = sign > 0 ? "ascending" : "descending";
  const order = (a, b) => sign * ((numbers && number(a) - number(b)) || text(a).localeCompare(text(b)));
  body.append(...[...body.rows].sort(order));
};

for (const table of document.querySelectorAll(".lines table")) {
  const [body, lines] = [table.tBodies[0], [...table.tBodies[0].rows]];
  for (const title of table.tHead.rows[0].cells) {
    Object.assign(title, { tabIndex: 0, title: "sort by this column" });
    title.addEventListener("click", () => sort(title, body));
    title.addEventListener("keydown", ({ key }) => key === "Enter" && sort(title, body));
  }
  if (lines.length < 15) continue;
  const box = Object.assign(document.createElement("input"), { type: "search", placeholder: "Search the lines" });
  box.ariaLabel = box.placeholder;
  table.before(box, document.createElement("span"));
  box.addEventListener("input", () => field(box, lines));
  field(box, lines);
}
