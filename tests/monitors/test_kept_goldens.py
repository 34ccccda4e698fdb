"""Kept probes of format 1 are opened for ever, and numpy reads them with the lines of the page on file formats."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from shutil import copy

import numpy as np
import pytest

import probekit
from probekit.errors import UsageError
from probekit.probes.kept import ARRAYS

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
    x, how = given["x"], {name: given[name] for name in ("spans", "length") if name in given}
    if probe.weights.form == "structural":
        return {"distances": probe.distances(x), "depths": probe.depths(x)}
    said = probe.decision_function(x, **how)
    if probe.weights.form == "mlp":  # whose score is the difference of two logits
        return {"logits": probe.weights.logits(x)}
    return {"logits": said.reshape(len(said), -1)}


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
    for rule in ("mean", "last", "max", "ema:0.5", "rolling:3", "rolling:100", "cusum:0.5", "cusum:-0.2"):
        one, path = probekit.load_probe(KEPT / "monitor"), tmp_path / f"{rule.replace(':', '_')}.npz"
        replace(one, weights=replace(one.weights, scores=rule)).save(path.with_suffix(""))
        paths.append(Path(copy(KEPT / "monitor.npz", path)))
    (out := tmp_path / "out").mkdir()
    subprocess.run([sys.executable, "-I", script, out, *paths], check=True, cwd=tmp_path)
    for path in paths:
        said, probe = np.load(out / path.name), probekit.load_probe(path.with_suffix(""))
        assert probe.weights.scores in (path.stem.replace("_", ":"), "rolling:2", "")
        for key, right in scores(probe, np.load(path)).items():
            assert said[key].shape == right.shape
            np.testing.assert_allclose(said[key], right, rtol=1e-6, atol=1e-5)


def test_arrays_of_another_shape_are_refused():
    """A list of vectors is an array; a monitor reads the pieces of texts with their lengths."""
    given, probe = np.load(KEPT / "two-classes.npz"), probekit.load_probe(KEPT / "two-classes")
    x, monitor, pieces = given["x"], probekit.load_probe(KEPT / "monitor"), np.load(KEPT / "monitor.npz")
    np.testing.assert_array_equal(probe.decision_function(x.tolist()), probe.decision_function(x))
    np.testing.assert_array_equal(monitor.predict_proba(pieces["x"], length=[48])[:, 1:].shape, (1, 1))
    for call, why in (
        (lambda: probe.predict_proba(x[None]), r"reads vectors \(n, 8\), one a row; these are \(1, 12, 8\)"),
        (lambda: probe.decision_function(x[0]), r"reads vectors \(n, 8\), one a row; these are \(8,\)"),
        (lambda: probe.predict(x[:, 1:]), "reads vectors of 8 dimensions; these have 7"),
        (lambda: probe.predict(x, length=[12]), "the form linear reads no pieces of texts"),
        (lambda: monitor.predict_proba(pieces["x"]), "all pieces of texts; give length, how many each text has"),
        (lambda: monitor.predict_proba(pieces["x"], length=[40]), "length must say how many of the 48 pieces"),
        (lambda: monitor.predict_proba(pieces["x"], length=[0, 48]), "each text has, 1 or more"),
    ):
        with pytest.raises(UsageError, match=why):
            call()
