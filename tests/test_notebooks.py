"""Notebooks hold the outputs of the code that they show, small, and free of the machine that made them."""

from __future__ import annotations

import base64
import json
import re
import runpy
from pathlib import Path

import pytest

import probekit

ROOT = Path(probekit.__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OF_THE_MACHINE = re.compile(
    r"(?<![\w.])/(?:home|root|tmp|usr|var|work|Users)/|\b20\d\d-\d\d-\d\dT\d\d|0x[0-9a-f]{8}|\d seconds\b|"
    + re.escape(probekit.__version__)
)
REMEDY = "run `make notebooks-write`"

code_digest = runpy.run_path(str(ROOT / "notebooks" / "write.py"))["code_digest"]


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    """The file as it is, with lists of lines: nbformat takes five seconds to import."""
    return json.loads(path.read_text(encoding="utf-8"))


def test_outputs_are_those_of_the_code(notebook):
    assert notebook["metadata"].get("executed") == code_digest(notebook), REMEDY
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    cells[0]["source"][-1] += " "
    assert notebook["metadata"]["executed"] != code_digest(notebook)


def test_cells_are_python_and_end_well(notebook):
    cells = code_cells(notebook)
    assert not [cell for cell in cells if re.search(r"^\s*(?:!|%%)", "".join(cell["source"]), re.MULTILINE)]
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]


def test_outputs_are_small(path, notebook):
    data = [output["data"] for cell in code_cells(notebook) for output in cell["outputs"] if "data" in output]
    figures = [len(base64.b64decode("".join(one["image/png"]))) for one in data if "image/png" in one]
    assert figures
    assert max(figures) < 80_000
    assert path.stat().st_size < 300_000


def test_outputs_do_not_name_the_machine(notebook):
    for cell in code_cells(notebook):
        for output in cell["outputs"]:
            text = json.dumps({k: v for k, v in output.get("data", {}).items() if k != "image/png"})
            assert not OF_THE_MACHINE.search(text + "".join(output.get("text", ""))), cell["source"]
    for seen in ("see /root/x", "created 2026-01-02T03:04", "<Axes at 0x7f00aabbcc>", probekit.__version__):
        assert OF_THE_MACHINE.search(seen)
