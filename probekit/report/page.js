"use strict";
(() => {
  const make = (tag, text, properties) => Object.assign(document.createElement(tag), { textContent: text }, properties);
  const words = new Intl.Collator("en", { numeric: true });
  const exact = (cell) => cell.dataset.v ?? cell.textContent;

  // Numbers before words; empty cells last in both directions.
  function compare(a, b, sign) {
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a.split(";")[0]), Number(b.split(";")[0])];
    if (Number.isNaN(x) && Number.isNaN(y)) return sign * words.compare(a, b);
    if (Number.isNaN(x) || Number.isNaN(y)) return sign * (Number.isNaN(x) - Number.isNaN(y));
    return sign * (x < y ? -1 : x > y ? 1 : 0);
  }

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, i) => {
      const button = make("button", head.textContent, { type: "button", title: "sort by " + head.textContent });
      head.replaceChildren(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const keyed = [...body.rows].map((row) => [exact(row.cells[i]), row]);
        keyed.sort(([a], [b]) => compare(a, b, down ? -1 : 1));
        body.append(...keyed.map(([, row]) => row));
      });
    });
  }

  const quoted = (text) => (/[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text);

  function csv(table) {
    const heads = [...table.tHead.rows[0].cells].map((head) => (head.dataset.csv ?? head.textContent).split(","));
    const lines = [...table.tBodies[0].rows].map((row) =>
      [...row.cells].flatMap((cell, i) => {
        if (heads[i].length === 1) return [exact(cell)];
        return cell.dataset.v ? cell.dataset.v.split(";") : heads[i].map(() => "");
      }));
    return [heads.flat(), ...lines].map((line) => line.map(quoted).join(",")).join("\n") + "\n";
  }

  function tools(table) {
    const bar = make("div", "", { className: "tools" });
    const rows = [...table.tBodies[0].rows];
    if (rows.length > 12) {
      const count = make("output", "");
      const box = make("input", "", { type: "search", placeholder: "filter rows" });
      box.setAttribute("aria-label", "filter rows");
      box.addEventListener("input", () => {
        const terms = box.value.toLowerCase().split(/\s+/).filter(Boolean);
        let shown = 0;
        for (const row of rows) {
          const text = row.textContent.toLowerCase();
          row.hidden = !terms.every((word) => text.includes(word));
          shown += !row.hidden;
        }
        count.textContent = terms.length ? shown + " of " + rows.length : "";
      });
      bar.append(count, box);
    }
    const save = make("button", "CSV", { type: "button", className: "small", title: "download this table as CSV" });
    save.addEventListener("click", () => {
      const url = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" }));
      const name = (table.closest("section")?.id || "table") + ".csv";
      make("a", "", { href: url, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    });
    bar.append(save);
    const scroll = table.closest(".scroll");
    const head = make("div", "", { className: "head" });
    if (scroll.previousElementSibling?.className === "caption") head.append(scroll.previousElementSibling);
    head.append(bar);
    scroll.before(head);
  }

  for (const table of document.querySelectorAll(".scroll > table")) {
    if (!table.tHead || !table.tBodies.length) continue;
    sortable(table);
    tools(table);
  }

  for (const code of document.querySelectorAll("pre.command > code")) {
    const button = make("button", "copy", { type: "button", className: "small" });
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "selected";
      }
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    code.parentNode.append(button);
  }

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const theme = make("button", "", { type: "button", className: "small", id: "theme" });
  const named = () => { theme.textContent = isDark() ? "light" : "dark"; theme.title = "show this page " + theme.textContent; };
  theme.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; named(); });
  dark.addEventListener("change", named);
  named();
  document.querySelector("header").append(theme);
})();
