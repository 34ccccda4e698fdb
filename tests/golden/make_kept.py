"""Write a folder of kept probes of each form, and what they say of a few vectors: python -m tests.golden.make_kept."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import tiny

import probekit
from probekit.analyses.options import VectorOptions
from probekit.analyses.structural.trees import treebank
from probekit.analyses.vectors import layer_vectors
from probekit.probes.solvers.attention import Sequences
from probekit.probes.spans import Spans
from tests.analyses.test_probe_spans import ONE
from tests.analyses.test_structural import heads_of
from tests.analyses.test_structural import task as trees
from tests.monitors.test_import_probe import task

PLACE = Path(__file__).parent / "kept-1"
WIDTH, LAYER, FEW = 8, "1", 12
FIT = {"layers": LAYER, "controls": 0, "resamples": 100, "groups": "none"}
LINEAR = {**FIT, "penalties": (1.0,), "folds": 2}
PROBES = {
    "two-classes": ("two", LINEAR),
    "four-classes": ("four", LINEAR),
    "mass-mean": ("four", {**LINEAR, "estimator": "mass-mean"}),
    "number": ("number", LINEAR),
    "several-labels": ("several", LINEAR),
    "mlp": ("two", {**LINEAR, "estimator": "mlp"}),
    "attention": ("four", {**LINEAR, "estimator": "attention"}),
    "monitor": ("two", {**LINEAR, "estimator": "monitor", "scores": "rolling:2"}),
}
EDGES = {**FIT, "projection": 4, "hidden": 6, "steps": 40, "check": 20}


def tasks():
    rng = np.random.default_rng(1)
    of = {split: [heads_of(rng, int(rng.integers(3, 8))) for _ in range(n)] for split, n in (("train", 40), ("dev", 9))}
    return {**{kind: task(kind) for kind in ("two", "four", "number", "several")}, "one": ONE, "trees": trees(of)}


def read(probe, cache):
    """Some of dev as the probe reads it, by names of arrays, and what it says of it."""
    if probe.weights.form == "structural":
        bank = treebank(cache)
        x = bank.layers[LAYER]()[: bank.length[0]]
        return {"x": x}, {"distances": probe.distances(x), "depths": probe.depths(x)}
    if probe.weights.of_spans:
        targets = cache.targets
        spans = np.stack([targets.first, targets.last], 2)[:FEW]
        x = cache.tokens(LAYER).values[: spans.max() + 1]
        return {"x": x, "spans": spans}, {"logits": probe.weights.logits(Spans.of(x, spans))}
    of = layer_vectors(cache, VectorOptions(layers=(LAYER,)), pieces=probe.weights.by_piece).layers[LAYER]()
    if isinstance(of, Sequences):
        some = of.at(np.arange(FEW))
        x, length = some.pieces(), some.length
        of = Sequences(x, np.arange(len(x)), np.cumsum(length) - length, length)
        return {"x": x, "length": length}, {"logits": probe.weights.logits(of)}
    return {"x": of[:FEW]}, {"logits": probe.weights.logits(np.asarray(of[:FEW]))}


def kept(folder: Path):
    """Each form by name: its probe, and the cache of dev."""
    encoder = probekit.load_encoder(
        tiny.tiny_model("bert", folder / "tiny", hidden_size=WIDTH, intermediate_size=WIDTH), device="cpu"
    )
    caches = {
        name: [
            probekit.cache_activations(encoder, of, s, tokens=True, out=folder / f"{name}.{s}.h5")
            for s in ("train", "dev")
        ]
        for name, of in tasks().items()
    }
    for name, (of, how) in PROBES.items():
        yield name, probekit.probe(*caches[of], **how).probe(), caches[of][1]
    for name in ("mlp", "linear"):
        yield f"edge-{name}", probekit.edges(*caches["one"], **EDGES, probe=name).probe(), caches["one"][1]
    yield "structural", probekit.structural(*caches["trees"], **FIT, ranks=(3,), epochs=2).probe(), caches["trees"][1]


def make(place: Path) -> None:
    with TemporaryDirectory() as folder:
        for name, probe, cache in kept(Path(folder)):
            given, said = read(probe, cache)
            probe.save(place / name)
            np.savez(place / f"{name}.npz", **given, **said)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else PLACE)
