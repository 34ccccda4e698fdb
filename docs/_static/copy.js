/* A button beside each block of code that copies it; of a block with prompts, the typed lines. */
addEventListener("DOMContentLoaded", () => {
  const languages = ["sh", "bash", "python", "ipython3", "toml", "console", "default"];
  const blocks = languages.map((name) => `.highlight-${name} div.highlight`).join(", ");
  for (const block of document.querySelectorAll(blocks)) {
    const pre = block.querySelector("pre");
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "copy", textContent: "Copy" });
    button.addEventListener("click", async () => {
      const lines = pre.innerText.trimEnd().split("\n");
      const typed = lines.filter((line) => /^(\$|>>>|\.\.\.) /.test(line));
      const text = (typed.length ? typed.map((line) => line.replace(/^(\$|>>>|\.\.\.) /, "")) : lines).join("\n");
      const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
      if (!copied) getSelection().selectAllChildren(pre);
      button.textContent = copied ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    block.append(button);
  }
});
