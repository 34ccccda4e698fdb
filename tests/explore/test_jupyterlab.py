"""The view in JupyterLab itself, with a kernel: what is done in the browser is a value in Python."""

import json
import os
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    *(
        pytest.mark.skipif(find_spec(package) is None, reason="needs the extras 'explore' and 'notebooks'")
        for package in ("jscatter", "jupyterlab")  # importing the latter takes seconds
    ),
]

HERE = Path(__file__).parent
FIRST = f"""import sys
sys.path.insert(0, {str(HERE)!r})
from scenes import a_scene
from probekit.explore.view import View
view = View(a_scene(sides=3))
view"""
SECOND = """print("selected", view.selection.ids)
print("maps", [sorted(m.selection.tolist()) == view.selection.indices.tolist() for m in view.maps])
print("layer", view.layer, "dark", view.dark)"""
MINUTE = 60_000
SCREENSHOT = os.environ.get("PROBEKIT_SCREENSHOT")
"""Where to put a picture of the dark view, for looking at it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a JupyterLab with one notebook."""
    folder = tmp_path_factory.mktemp("lab")
    cells = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "source": code, "outputs": [], "execution_count": None}
        for i, code in enumerate((FIRST, SECOND))
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder / "view.ipynb").write_text(json.dumps(notebook))
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "JUPYTERLAB_SETTINGS_DIR")
    own = {name: str(folder / name.lower()) for name in names} | {"JUPYTERLAB_WORKSPACES_DIR": str(folder / "work")}
    options = ("--ServerApp.port=0", "--IdentityProvider.token=", "--ServerApp.password=", "--no-browser")
    options += ("--LabApp.expose_app_in_browser=True", "--LabApp.news_url=", "--ServerApp.allow_root=True")
    options += (f"--ServerApp.root_dir={folder}",)
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], env=os.environ | own, stdout=log, stderr=log
        )
    try:
        for _ in range(240):
            found = re.findall(r"http://127\.0\.0\.1:\d+/", (folder / "log").read_text())
            if found or running.poll() is not None:
                break
            time.sleep(0.25)
        assert running.poll() is None, (folder / "log").read_text()
        yield found[0]
    finally:
        running.terminate()
        running.wait(30)


def run_cell(page, number):
    page.evaluate(
        "async number => { const app = jupyterapp.shell.currentWidget;"
        " app.content.activeCellIndex = number; app.content.deselectAll();"
        " await jupyterapp.commands.execute('notebook:run-cell'); }",
        number,
    )


def asked(page):
    """What Python says of the view: the output of the second cell, run again."""
    count = "jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.execution_count"
    before = page.evaluate(count)
    run_cell(page, 1)
    page.wait_for_function(f"before => {count} !== null && {count} !== before", arg=before, timeout=MINUTE)
    return page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output pre").inner_text()


def lasso(page, frame):
    """Draw around all of a map."""
    frame.get_by_title("Activate lasso selection").click()
    box = frame.locator("canvas").first.bounding_box()
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.05)]
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*points[0])
    page.mouse.down()
    for x, y in points[1:]:
        page.mouse.move(x, y, steps=12)
    page.mouse.up()


def test_a_view_in_jupyterlab(browser, server):
    complaints = []
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(f"{server}lab/tree/view.ipynb")
    page.wait_for_function("globalThis.jupyterapp?.shell.currentWidget?.context?.isReady", timeout=MINUTE)
    kernel = "jupyterapp.shell.currentWidget.context.sessionContext.session?.kernel"
    page.wait_for_function(f"{kernel}?.status === 'idle'", timeout=MINUTE)

    run_cell(page, 0)  # load
    slider = page.get_by_role("slider", name="layer", exact=True)
    slider.wait_for(timeout=2 * MINUTE)
    drawn = (
        "[...document.querySelectorAll('.pk-map div')].filter(d => d.api?.get('points').length === 120).length === 2"
    )
    page.wait_for_function(drawn, timeout=MINUTE)
    maps = page.locator(".pk-map")
    assert maps.nth(1).locator("h3").inner_text() == "step 20"
    first, second = (maps.nth(i).bounding_box() for i in (0, 1))
    assert second["x"] > first["x"] + 200

    slider.press("ArrowRight")  # the keyboard changes the layer
    maps.first.get_by_text("PCA, layer 3;").wait_for()

    page.locator(".pk-map").first.scroll_into_view_if_needed()  # brush
    lasso(page, maps.first)
    heading = page.get_by_role("heading", name="of 120 selected")
    heading.wait_for(timeout=MINUTE)
    number = int(heading.inner_text().split()[0])
    assert number > 60
    said = asked(page)
    assert said.count("'e") == number
    assert "maps [True, True]" in said
    assert "layer 3 dark False" in said

    page.get_by_role("button", name="gained").click()  # a cell of the table selects, on both maps
    page.wait_for_function("number => !document.body.textContent.includes(`${number} of 120 selected`)", arg=number)
    assert "maps [True, True]" in asked(page)

    page.evaluate("jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    page.wait_for_function(
        "getComputedStyle(document.querySelector('.pk-map canvas').parentNode.parentNode).backgroundColor"
        " === 'rgb(17, 17, 17)'",
        timeout=MINUTE,
    )
    assert "dark True" in asked(page)
    if SCREENSHOT:
        page.screenshot(path=SCREENSHOT)

    page.set_viewport_size({"width": 700, "height": 1000})  # resize: the maps stack
    page.evaluate("jupyterapp.shell.collapseLeft()")
    page.wait_for_function(
        "() => { const [a, b] = [...document.querySelectorAll('.pk-map')].map(e => e.getBoundingClientRect());"
        " return b.top >= a.bottom - 1; }",
        timeout=MINUTE,
    )
    assert complaints == []
    page.close()
