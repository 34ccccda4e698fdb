"""How fast the explorer draws in headless Chromium with software WebGL, and how much memory it takes.

    python benchmarks/explore.py                    10,000 points, 7 layers, two models; a minute
    python benchmarks/explore.py --points 200000 --dimensions 8    as many tokens, without sampling

"maps": exact PCA of random vectors, with trustworthiness. "first paint": from opening the saved page
to both maps drawn and all panels there. "layer change": from the change to the last pixel of the movement of all points
(150 ms of it are the animation); "first frame" is when the points begin to move. Least and median of all changes, each
from rest, as a reader makes them; "in succession": each as soon as the one before ends. "CPU": computing time of all
processes of the browser in one change. "memory": resident memory of the page's process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import psutil
from playwright.sync_api import sync_playwright

from probekit.analyses.exploration.scene import Scene, Side
from probekit.explore import page as page_module
from probekit.explore.view import View
from probekit.projection import project

ARGUMENTS = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox", "--enable-precise-memory-info"]
REST = 300
"""Milliseconds after which nothing is drawn any more."""
DRAWN = """n => { const apis = [...document.querySelectorAll(".pk-map div")].filter(d => d.api).map(d => d.api);
  return document.documentElement.dataset.ready && apis.length === 2 && apis.every(a => a.get("points").length === n
      && !a.get("isDrawing") && a.get("isPointsDrawn")); }"""
CHANGE = """layer => new Promise(done => {
  const apis = [...document.querySelectorAll(".pk-map div")].filter(d => d.api).map(d => d.api);
  const began = performance.now();
  let first = null;
  probekit.models.controls.set("layer", layer);
  const look = () => {
    const now = performance.now() - began, busy = apis.some(a => a.get("isDrawing"));
    if (busy || now < 20) { first ??= now; requestAnimationFrame(look); }
    else requestAnimationFrame(() => requestAnimationFrame(last));
  };
  const last = () => { // the last frame is asked for, but not yet drawn
    const gl = jupyterScatter.renderer.canvas.getContext("webgl");
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
    done([first, performance.now() - began]);
  };
  requestAnimationFrame(look);
})"""


def a_scene(n: int, layers: int, dimensions: int) -> tuple[Scene, float]:
    """Two models of random vectors with two classes, and the seconds that their maps took."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=n)

    def layer(i: int) -> np.ndarray:
        return rng.normal(size=(n, dimensions)).astype(np.float32) + labels[:, None] * 0.1 * i

    vectors = [[layer(i) for i in range(layers)] for _ in "ab"]
    began = perf_counter()
    maps = project([[lambda x=x: x for x in side] for side in vectors])
    seconds = perf_counter() - began
    sides = []
    for name, one in zip(("pretrained", "fine-tuned"), maps, strict=True):
        guess = np.where(rng.random((layers, n)) < 0.8, labels, 1 - labels)
        confidence = rng.random((layers, n), dtype=np.float32)
        sides.append(Side(name, tuple(map(str, range(layers))), None, {"pca": one}, guess, confidence))
    texts = [
        (f"sentence {i} of a text with some fifteen words, as they are in the usual tasks of the field",)
        for i in range(n)
    ]
    movement = rng.random((1, layers, n), dtype=np.float32)
    scene = Scene(
        "Benchmark", "random", "dev", np.array([str(i) for i in range(n)]), texts, labels, ("no", "yes"), None, None,
        rng.integers(5, 30, size=n), tokens_unit=False, sides=tuple(sides), movement=movement,
    )  # fmt: skip
    return scene, seconds


def resident(browser_pid: int) -> float:
    """The largest resident memory of the browser's pages, MiB."""
    children = psutil.Process(browser_pid).children(recursive=True)
    sizes = [c.memory_info().rss for c in children if "--type=renderer" in c.cmdline()]
    return max(sizes, default=0) / 2**20


def computing(browser_pid: int) -> float:
    """CPU seconds of the browser and all its processes so far."""
    browser = psutil.Process(browser_pid)
    times = [p.cpu_times() for p in (browser, *browser.children(recursive=True))]
    return sum(t.user + t.system for t in times)


def measure(n: int, layers: int, dimensions: int) -> dict[str, Any]:
    scene, maps = a_scene(n, layers, dimensions)
    began = perf_counter()
    view = View(scene)
    shown = perf_counter() - began
    began = perf_counter()
    for layer in range(layers):
        view.layer = layer
    python = (perf_counter() - began) / layers
    page_module.MOST = max(page_module.MOST, n)
    with tempfile.TemporaryDirectory() as folder:
        began = perf_counter()
        path = view.save(Path(folder) / "page.html")
        saved = perf_counter() - began
        found = in_browser(path, n, layers)
        size = path.stat().st_size / 2**20
    seconds = {"maps": maps, "view": shown, "layer in Python": python, "save": saved}
    return {"points": n, "layers": layers, "seconds": seconds, "page MiB": size} | found


def in_browser(path: Path, n: int, layers: int) -> dict[str, Any]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=executable, args=ARGUMENTS)
        own = [p for p in psutil.Process().children() for p in [p, *p.children(recursive=True)]]
        pid = next(p.pid for p in own if "chrom" in p.name() and not any("--type=" in word for word in p.cmdline()))
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto("about:blank")
        empty = resident(pid)
        paints = []
        for _ in range(3):
            began = perf_counter()
            page.goto(path.as_uri())
            page.wait_for_function(DRAWN, arg=n, timeout=120_000)
            paints.append(perf_counter() - began)
        page.evaluate(CHANGE, 1)
        busy = computing(pid)
        quick = [page.evaluate(CHANGE, layer % layers)[1] for layer in range(3 * layers)]
        busy = (computing(pid) - busy) / len(quick)
        changes = []
        for layer in range(3 * layers):
            page.wait_for_timeout(REST)
            changes.append(page.evaluate(CHANGE, layer % layers))
        memory = {"resident MiB": resident(pid), "of an empty page": empty}
        memory["JavaScript MiB"] = page.evaluate("performance.memory.usedJSHeapSize") / 2**20
        browser.close()
    first, whole = zip(*changes, strict=True)
    paint = {"first paint s": min(paints), "all": paints}
    return {
        **paint,
        "layer change ms": [min(whole), median(whole)],
        "first frame ms": [min(first), median(first)],
        "in succession ms": [min(quick), median(quick)],
        "CPU ms": 1000 * busy,
        "memory": memory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--layers", type=int, default=7)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--json", type=Path, help="Also write the numbers here.")
    options = parser.parse_args()
    found = measure(options.points, options.layers, options.dimensions)
    text = json.dumps(found, indent=2, default=float)
    print(text)
    if options.json:
        options.json.write_text(text)


if __name__ == "__main__":
    main()
