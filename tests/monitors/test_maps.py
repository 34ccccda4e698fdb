"""Edge and structural probes that are kept: they say of arrays what the analysis said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import probekit
from probekit.activations import ActivationCache
from probekit.analyses.structural.trees import treebank
from probekit.errors import NonFiniteError, UsageError
from probekit.monitors import Probe
from probekit.probes.edges.evaluate import _Work
from probekit.probes.edges.train import predict
from probekit.probes.kept import Weights
from probekit.probes.trees.fit import StructuralProbe
from probekit.probes.trees.fit import predict as predict_trees
from probekit.probes.trees.gold import sentences
from probekit.rows.schema import layer_labels
from tests.analyses.test_probe_spans import MANY, ONE, cached
from tests.analyses.test_structural import cached as cached_trees
from tests.analyses.test_structural import heads_of
from tests.analyses.test_structural import task as task_of_trees

QUICK = {"projection": 8, "hidden": 16, "steps": 40, "check": 20, "groups": "none", "resamples": 100, "controls": 0}


def spied(monkeypatch):
    """The logits of torch for dev, by layer, as the analysis computes them."""
    seen, keep = {}, _Work._of

    def of(work, probes):
        from probekit.probes.edges import evaluate

        def told(fitted, spans):
            parts = list(predict(fitted, spans))
            if not probes.mixed:
                whole = np.concatenate([out for _, out in parts], 1)
                seen.update({int(r.argmax()): whole[i] for i, r in enumerate(probes.reads) if probes.target[i] == 0})
            return iter(parts)

        monkeypatch.setattr(evaluate, "predict", told)
        return keep(work, probes)

    monkeypatch.setattr(_Work, "_of", of)
    return seen


@pytest.mark.parametrize(("of", "how"), [(ONE, "mlp"), (ONE, "linear"), (MANY, "mlp")])
def test_edge_probes(of, how, tiny_bert: Path, tmp_path: Path, monkeypatch) -> None:
    caches, seen = cached(tiny_bert, of, tmp_path), spied(monkeypatch)
    raw = of is MANY
    result = probekit.edges(*caches, **QUICK, probe=how, layers="0,2", keep=tmp_path / "kept", raw=raw)
    probe = probekit.load_probe(tmp_path / "kept", layer=2)
    assert result.probe(2).card == {k: v for k, v in probe.card.items() if k not in ("form", "width")}
    with ActivationCache(caches[1]) as cache:
        targets = cache.targets
        x, spans = cache.tokens("2").values, np.stack([targets.first, targets.last], 2)
        logits = probe.weights.logits(_spans(x, spans))
        # 40 steps in float32 against float64: the largest difference was 2e-6 of the largest logit
        np.testing.assert_allclose(logits, seen[1], atol=2e-5 * np.abs(seen[1]).max())
        (found,) = result.predictions
        fit = np.flatnonzero((layer_labels(found.fits) == "2") & (found.fits["representation"] == "attention"))[0]
        np.testing.assert_array_equal(probe.predict(x, spans).ravel(), found.predicted[fit])
        np.testing.assert_allclose(probe.predict_proba(x, spans), 1 / (1 + np.exp(-logits)), rtol=1e-5)
        np.testing.assert_array_equal(probe.decision_function(x, spans[:3]), probe.decision_function(x, spans)[:3])
    row = result.rows[(result.rows["layer"] == 2) & (result.rows["representation"] == "attention")].iloc[0]
    first = probe.card["metrics"][0]
    assert (first["metric"], first["value"]) == (row["metric"], pytest.approx(row["value"]))
    assert first["ci_low"] < first["ci_high"]
    assert probe.kind == ("multi-label" if of is MANY else "span-labelling")
    assert probe.classes == of.label_names
    assert probe.card["vectors"]["spans"]
    assert ("reliability" in probe.card) == (of is ONE)
    if of is ONE and probe.card["scores_on"]["n"] == len(found.gold):
        held = sum(one["held"] * one["n"] for one in probe.card["reliability"]) / len(found.gold)
        assert held == pytest.approx((found.predicted[fit] == found.gold).mean())
    with pytest.raises(UsageError, match="give spans"):
        probe.predict(x)
    with pytest.raises(UsageError, match="spans of a target, not"):
        probe.predict(x, np.repeat(spans, 3, 1))
    with pytest.raises(UsageError, match="ends before it begins"):
        probe.predict(x, spans[:, :, ::-1] + np.array([1, 0]))
    with pytest.raises(UsageError, match="first and last of the"):
        probe.predict(x, spans + 10**6)


def _spans(x, spans):
    from probekit.probes.spans import Spans

    return Spans.of(x, spans)


@pytest.fixture(scope="module")
def trees(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    rng = np.random.default_rng(1)
    of = {s: [heads_of(rng, int(rng.integers(2, 8))) for _ in range(n)] for s, n in (("train", 40), ("dev", 20))}
    return cached_trees(tiny_bert, task_of_trees(of), tmp_path_factory.mktemp("trees"))


def test_structural_probes(trees: list[Path], tmp_path: Path) -> None:
    how = {"epochs": 2, "resamples": 100, "groups": "none", "layers": "1,2"}
    result = probekit.structural(*trees, ranks=(2, 4), keep=tmp_path / "kept", **how)
    probe = probekit.load_probe(tmp_path / "kept", layer=2)
    rank = probe.card["rank"]
    assert rank in (2, 4)
    rows = result.rows[(result.rows["layer"] == 2) & (result.rows["rank"] == rank)]
    gold, shuffled = (rows[(rows["target"] == t) & (rows["metric"] == "uuas")]["value"] for t in ("gold", "shuffled"))
    first = probe.card["metrics"][0]
    assert (first["metric"], first["value"], first["null_mean"]) == ("uuas", gold.iloc[0], shuffled.mean())
    with ActivationCache(trees[1]) as cache:
        bank = treebank(cache)
        x = bank.layers["2"]()
    arrays = probe.weights.arrays
    assert arrays["distance"].shape == arrays["depth"].shape == (rank, x.shape[1])
    ways = {"distance": probe.distances, "depth": probe.depths}
    for kind, of_words in ways.items():
        own = StructuralProbe(np.ascontiguousarray(arrays[kind].T), kind, arrays["mean"])
        right = predict_trees(own, x, bank.length)  # the analysis computes in float32
        for said, at in zip(right, sentences(bank.length), strict=True):
            np.testing.assert_allclose(of_words(x[at]), said, atol=1e-5 * max(1, np.abs(said).max()))
    at = next(sentences(bank.length))
    z = probe.map(x[at])
    np.testing.assert_allclose(((z[:, None] - z) ** 2).sum(2), probe.distances(x[at]), atol=1e-4)
    z = (x[at] - arrays["mean"]) @ arrays["depth"].T
    np.testing.assert_allclose((z**2).sum(1), probe.depths(x[at]), rtol=1e-4)
    one = probekit.structural(*trees, ranks=(rank,), **{**how, "layers": "2", "controls": 0})
    np.testing.assert_array_equal(one.probe().distances(x[at]), probe.distances(x[at]))
    assert "structural-" in repr(probe)
    assert one.probe().card["metrics"][0]["null_mean"] is None
    with pytest.raises(UsageError, match="has no logits"):
        probe.predict(x)
    with pytest.raises(UsageError, match=r"reads vectors \(n, "):
        probe.distances(x[:, 1:])
    with pytest.raises(NonFiniteError):
        probe.depths(np.full_like(x, np.nan))


def test_what_maps_do_not_do(trees: list[Path], tmp_path: Path) -> None:
    how = {"epochs": 1, "resamples": 0, "groups": "none", "layers": "1", "controls": 0, "ranks": (2,)}
    probe = probekit.structural(*trees, **how).probe()
    for texts in ([["the", "cat"]], ["the cat"]):
        with pytest.raises(UsageError, match=r"a structural probe does not score texts or caches.*probe\.distances"):
            probe.score(texts)
    with pytest.raises(UsageError, match="a structural probe does not score texts"):
        probekit.apply(probe, trees[1])
    with pytest.raises(UsageError, match="one pair of caches"):
        probekit.structural(*trees, *trees, **how, keep=tmp_path / "kept")
    with pytest.raises(UsageError, match="one pair of caches"):
        probekit.edges(*trees, *trees, **QUICK, keep=tmp_path / "kept")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="choose another folder"):
        probekit.edges(*trees, **QUICK, keep=tmp_path / "mine")


def test_cards_that_do_not_say_what_is_read(trees: list[Path]) -> None:
    about = {"layer": "1", "estimator": "logistic", "kind": "classification", "classes": ["no", "yes"], "train": {}}
    arrays = {"mean": np.zeros(2), "weight": np.ones((1, 2)), "bias": np.zeros(1)}
    weights = Weights("linear", {name: array.astype(np.float32) for name, array in arrays.items()})
    with ActivationCache(trees[1]) as cache:
        same = {k: v for k, v in cache.spec.items() if k not in ("pooling", "tokens")}
        with pytest.raises(UsageError, match="lacks representation, words, spans in vectors"):
            probekit.apply(Probe(weights, {**about, "encoder": same}), cache)
    model = cached_model(trees)
    for vectors, key in (({"words": False}, "pooling"), ({"words": True}, "tokens")):
        probe = Probe(weights, {**about, "encoder": {"weights_digest": "x"}, "vectors": vectors})
        with pytest.raises(UsageError, match=f"does not say the {key} of its vectors"):
            probe.score([["the", "cat"]] if vectors["words"] else ["the cat"], model=model, anyway=True)


def cached_model(trees: list[Path]) -> str:
    """The folder of the model that made caches."""
    with ActivationCache(trees[0]) as cache:
        return str(cache.recipe.arguments["model"])
