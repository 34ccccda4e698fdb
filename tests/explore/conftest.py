"""A browser with software WebGL, a page that runs one widget's module against a fake model, and a made-up view."""

import shutil

import pytest
from scenes import a_scene

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox"]
FAKE = """
globalThis.saved = [];
globalThis.sent = [];
globalThis.errors = [];
addEventListener("error", (event) => errors.push(event.message));
globalThis.run = async (code, values) => {
  const handlers = {}, fire = (event, ...rest) => (handlers[event] ?? []).forEach((f) => f(...rest));
  for (const [name, value] of Object.entries(values))
    if (value?.bytes) values[name] = new DataView(Uint8Array.from(value.bytes).buffer);
  globalThis.model = {
    get: (name) => values[name],
    set(name, value) { if (values[name] !== value) { values[name] = value; fire(`change:${name}`); } },
    on: (event, f) => (handlers[event] ??= []).push(f),
    off: (event, f) => { handlers[event] = (handlers[event] ?? []).filter((g) => g !== f); },
    save_changes: () => saved.push({ ...values }),
    send: (message) => sent.push(message),
  };
  globalThis.fire = fire;
  globalThis.handlers = handlers;
  const module = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  document.body.replaceChildren();
  document.body.append(document.createElement("div"));
  globalThis.stop = module.default.render({ model, el: document.body.firstChild });
};
0;
"""


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra 'browser' (playwright)")
    if BROWSER is None:
        pytest.skip("needs Chromium on the PATH (Debian: apt install chromium)")
    with playwright.sync_playwright() as running:
        one = running.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield one
        one.close()


@pytest.fixture
def module(browser):
    """``module("curve", layer=1, …)``: the page with one widget's module; no handler may be left when it stops."""
    from probekit.explore.widgets import PANELS

    page = browser.new_page(viewport={"width": 900, "height": 700})
    complaints = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto("about:blank")
    page.evaluate(FAKE)

    def run(name, /, **values):
        panel = PANELS[name](**values)
        kinds = (str, int, list, dict, bytes)
        traits = {key: getattr(panel, key) for key in panel.traits(sync=True) if key[0] != "_"}
        given = {key: value for key, value in traits.items() if isinstance(value, kinds)}
        as_json = {k: {"bytes": list(v)} if isinstance(v, bytes) else v for k, v in given.items()}
        page.add_style_tag(content=panel._css)
        page.evaluate("([code, values]) => run(code, values)", [panel._esm, as_json])
        return page

    yield run
    page.evaluate("globalThis.stop?.()")
    assert page.evaluate("Object.values(globalThis.handlers ?? {}).flat().length") == 0
    assert complaints == []
    page.close()


@pytest.fixture
def view():
    """A view of a made-up scene with two models and checkpoints."""
    for package in ("anywidget", "jscatter"):
        pytest.importorskip(package, reason="needs the extra 'explore'")
    from probekit.explore.view import View

    one = View(a_scene(sides=3))
    yield one
    one.close()
