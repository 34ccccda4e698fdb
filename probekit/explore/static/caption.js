// What a map shows, in words. It names the map for screen readers, reports how wide it is, and keeps it up to date.
const make = (tag, text = "", props = {}) => Object.assign(document.createElement(tag), { textContent: text }, props);

// jupyter-scatter refuses points that come while it draws others; the last ones wait here instead.
function drawLast(api) {
  const draw = api.draw;
  let next = null, working = null;
  const work = async () => {
    while (next) {
      if (api.get("isDrawing")) { await new Promise(requestAnimationFrame); continue; }
      const given = next;
      next = null;
      await draw(...given);
    }
  };
  api.draw = (...given) => {
    next = given;
    working ??= work().catch(() => {}).finally(() => { working = null; }); // it fails when the map is closed
    return working;
  };
}

// jupyter-scatter draws each map in a buffer as large as the window and copies its middle. A buffer as large as the
// largest map shows the same and is several times faster without a graphics card. There, frames are asked for faster
// than they are drawn: reading a pixel waits for each, so that the last is not late.
function fitBuffer({ renderer } = {}) {
  if (!renderer || renderer.fits) return;
  const { render, canvas } = renderer, maps = new Set(), gl = canvas.getContext("webgl"), pixel = new Uint8Array(4);
  renderer.fits = true;
  renderer.render = (draw, map) => {
    maps.add(map);
    for (const one of maps) if (one !== map && !one.isConnected) maps.delete(one);
    const [width, height] = ["width", "height"].map((side) => Math.max(...[...maps].map((one) => one[side])));
    if (canvas.width !== width || canvas.height !== height) {
      renderer.resize((width + 0.5) / devicePixelRatio, (height + 0.5) / devicePixelRatio); // it rounds down
      renderer.refresh();
    }
    render(draw, map);
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
  };
}

export default { render({ model, el }) {
  el.classList.add("pk");
  const name = make("h3"), text = make("p", "", { className: "soft" }), note = make("p", "", { className: "soft" });
  el.append(name, text, note);
  const draw = () => {
    name.textContent = model.get("name");
    text.textContent = model.get("text");
    note.textContent = model.get("note");
    note.hidden = !note.textContent;
    const map = el.closest(".pk-map");
    if (map) { map.role = "group"; map.ariaLabel = `Map of ${name.textContent}. ${text.textContent}`; }
  };
  let frame;
  const attach = () => { // the map may be drawn later than its caption
    const map = [...(el.closest(".pk-map")?.querySelectorAll("div") ?? [])].find(({ api }) => api);
    if (!map) { frame = requestAnimationFrame(attach); return; }
    draw();
    drawLast(map.api);
    fitBuffer(globalThis.jupyterScatter);
    box.observe(text); // before, the map would miss a change of its height
  };
  const box = new ResizeObserver(() => {
    const width = Math.round(text.getBoundingClientRect().width);
    if (width && width !== model.get("width")) { model.set("width", width); model.save_changes(); }
  });
  const names = ["name", "text", "note"];
  for (const one of names) model.on(`change:${one}`, draw);
  draw();
  attach();
  return () => {
    box.disconnect();
    cancelAnimationFrame(frame);
    for (const one of names) model.off(`change:${one}`, draw);
  };
} };
