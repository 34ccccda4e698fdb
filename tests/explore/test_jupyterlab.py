"""The view in JupyterLab itself, with a kernel: what is done in the browser is a value in Python."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
for package in ("jscatter", "jupyterlab"):
    pytest.importorskip(package, reason="needs the extras 'explore' and 'notebooks'")

HERE = Path(__file__).parent
FIRST = f"""import sys
sys.path.insert(0, {str(HERE)!r})
from scenes import a_scene
from probekit.explore.view import View
view = View(a_scene(sides=3))
view"""
SECOND = """print("selected", view.selection.ids)
print("maps", [m.selection.tolist() == view.selection.indices.tolist() for m in view.maps])
print("layer", view.layer, "dark", view.dark)"""
MINUTE = 60_000


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
    """What Python says of the view."""
    run_cell(page, 1)
    page.wait_for_function(
        "() => { const cell = jupyterapp.shell.currentWidget.content.widgets[1].model;"
        " return cell.executionState === 'idle' || cell.sharedModel.execution_count; }"
    )
    out = page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output pre")
    out.get_by_text("dark").wait_for(timeout=MINUTE)
    return out.inner_text()


def test_a_view_in_jupyterlab(browser, server):
    complaints = []
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(f"{server}lab/tree/view.ipynb")
    page.wait_for_function("globalThis.jupyterapp?.shell.currentWidget?.context?.isReady", timeout=MINUTE)
    page.evaluate("jupyterapp.shell.currentWidget.context.sessionContext.ready")
    page.wait_for_function(
        "jupyterapp.shell.currentWidget.context.sessionContext.session?.kernel?.status === 'idle'", timeout=MINUTE
    )
    run_cell(page, 0)
    slider = page.get_by_role("slider", name="layer", exact=True)
    slider.wait_for(timeout=2 * MINUTE)
    page.locator(".pk-map canvas").nth(2).wait_for()  # each map has a canvas and one for labels
    page.screenshot(path="/tmp/ui/lab1.png")
    print(complaints)
    print(page.locator(".pk-map").first.evaluate("e => e.innerHTML")[:3000])
    page.close()
