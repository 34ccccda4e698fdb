"""Kept probes of format 1 are opened for ever, and numpy reads them with the lines of the page on file formats."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import probekit
from probekit.probes.kept import ARRAYS
from probekit.probes.solvers.attention import Sequences
from probekit.probes.spans import Spans

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "golden" / "kept-1"
FORMS = sorted(path.stem for path in KEPT.glob("*.npz"))
ALONE = """
import sys
from pathlib import Path

for path in map(Path, sys.argv[2:]):
    given, folder = np.load(path), path.with_suffix("")
    if "length" in given:
        stop = np.cumsum(given["length"])
        texts = [given["x"][b - n : b] for n, b in zip(given["length"], stop)]
        said = np.stack([score(folder, "1", text) for text in texts])
    else:
        said = score(folder, "1", given["x"], given["spans"] if "spans" in given else None)
    said = {"distances": said[0], "depths": said[1]} if isinstance(said, tuple) else {"logits": said}
    np.savez(f"{sys.argv[1]}/{path.name}", **said)
assert not any(name.split(".")[0] in ("probekit", "torch") for name in sys.modules)
"""


def scores(probe, given):
    """What probekit says of the vectors of a file."""
    x = given["x"]
    if probe.weights.form == "structural":
        return {"distances": probe.distances(x), "depths": probe.depths(x)}
    if "spans" in given:
        x = Spans.of(x, given["spans"])
    if "length" in given:
        length = given["length"]
        x = Sequences(x, np.arange(len(x)), np.cumsum(length) - length, length)
    return {"logits": probe.weights.logits(x)}


def test_every_form_is_there():
    cards = [probekit.load_probe(KEPT / name).card for name in FORMS]
    assert {card["form"] for card in cards} == set(ARRAYS)
    assert {card["kind"] for card in cards} >= {"classification", "regression", "multi-label", "span-labelling"}


@pytest.mark.parametrize("name", FORMS)
def test_scores_are_those_of_then(name):
    given, probe = np.load(KEPT / f"{name}.npz"), probekit.load_probe(KEPT / name)
    for key, said in scores(probe, given).items():  # float64 inside, so other processors differ in the last digit
        np.testing.assert_allclose(said, given[key], rtol=1e-6, atol=1e-6)
    card = probe.card
    assert card["encoder"]["weights_digest"]
    assert card["metrics"][0]["ci_low"] <= card["metrics"][0]["value"] <= card["metrics"][0]["ci_high"]
    assert (card["vectors"]["store"], card["dev"]["split"], card["width"]) == ("float32", "dev", 8)


def test_numpy_reads_them_with_the_lines_of_the_page(tmp_path):
    page = (ROOT / "docs" / "file-formats.md").read_text(encoding="utf-8")
    (lines,) = (text for text in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "def score(" in text)
    script = tmp_path / "alone.py"
    script.write_text(lines + ALONE, encoding="utf-8")
    paths = [KEPT / f"{name}.npz" for name in FORMS]
    subprocess.run([sys.executable, "-I", script, tmp_path, *paths], check=True, cwd=tmp_path)
    for path in paths:
        said, probe = np.load(tmp_path / path.name), probekit.load_probe(path.with_suffix(""))
        for key, right in scores(probe, np.load(path)).items():
            assert said[key].shape == right.shape
            np.testing.assert_allclose(said[key], right, rtol=1e-6, atol=1e-5)
