"""``probekit angles`` through the front door: equal, orthogonal and unrelated directions, beside three nulls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import word_caches

import probekit
from probekit.activations import ActivationCache
from probekit.errors import CacheMismatch, UsageError
from probekit.probes.angles import cosine, random_high, random_p

D = 24
AXES = {"0": 3, "1": 11, "2": 11}
"""The dimension along which the labels move the vectors of each layer."""
QUICK = {"groups": "none", "draws": 99}


@pytest.fixture(scope="module")
def caches(tiny_model, tmp_path_factory):
    folder, bert = tmp_path_factory.mktemp("caches"), tiny_model("bert")
    return {
        kind: word_caches(folder, bert, kind, sizes={"train": 160, "dev": 40})
        for kind in ("classification", "regression")
    }


@pytest.fixture
def planted(monkeypatch):
    """Caches give other vectors: noise with a strong common factor, and what the labels move."""

    def plant(strong):
        def layer(self, name, pooling=None):
            rng = np.random.default_rng([len(self.labels), int(name)])
            x = rng.normal(size=(len(self.labels), D)) + 3 * rng.normal(size=(len(self.labels), 1))
            x[:, AXES[str(name)]] += strong * (self.labels.astype(float) - 0.5)
            return (x * np.linspace(1, 5, D)).astype(np.float32)

        monkeypatch.setattr(ActivationCache, "layer", layer)

    return plant


def kept(caches, folder, estimator="logistic", **how):
    options = {
        "controls": 0,
        "resamples": 0,
        "groups": "none",
        "penalties": (1.0,),
        "folds": 2,
        "layers": (0, 1, 2),
    } | how
    probekit.probe(*caches, keep=folder, estimator=estimator, **options)
    return folder


def pair(rows, a, b, scale="standardised"):
    return rows[(rows["probe"] == a) & (rows["against"] == b) & (rows["scale"] == scale)].iloc[0]


def test_layers_that_read_one_axis_are_alike_and_others_are_not(caches, planted, tmp_path):
    planted(4.0)
    folder = kept(caches["classification"], tmp_path / "kept")
    result = probekit.angles(folder, cache=caches["classification"][:1], **QUICK)
    rows = result.rows
    assert len(rows) == 6
    same = pair(rows, "layer 1", "layer 2")
    assert same["across_halves"] > 0.6
    assert same["p_adjusted"] == pytest.approx(0.01)
    assert same["permuted_high"] < same["across_halves"]
    for other in ("layer 1", "layer 2"):
        apart = pair(rows, "layer 0", other)
        assert apart["p_adjusted"] > 0.05
        assert abs(apart["across_halves"]) < 0.4
    assert set(rows["null"]) == {"permuted labels"}
    assert any("layer 1 and layer 2 are more alike than a probe and one of permuted" in one for one in result.verdict)
    assert sum("not shown to be more alike" in one for one in result.verdict) == 2
    [(grid, _)] = probekit.view.tables("angles", rows, {})
    assert [tuple(line[:2]) for line in grid.rows] == [
        ("layer 0", "layer 1"),
        ("layer 0", "layer 2"),
        ("layer 1", "layer 2"),
    ]


def test_two_estimators_of_noise_are_nearly_equal_and_yet_not_shown_to_be_alike(caches, planted, tmp_path):
    """They share the noise of their examples: only halves of train tell."""
    planted(0.0)
    own = caches["classification"]
    how = {"logistic": (1.0,), "mass-mean": (0.01,)}
    folders = [kept(own, tmp_path / name, name, layers=(1,), penalties=how[name]) for name in how]
    free = probekit.angles(*folders)
    [row] = free.rows.to_dict("records")
    assert row["null"] == "random directions"
    assert row["p"] == row["random_p"] < 0.05
    assert any("caches of train" in one for one in free.verdict)
    [found] = probekit.angles(*folders, cache=own[:1], **QUICK).rows.query("scale == 'standardised'").to_dict("records")
    assert found["value"] > 0.5
    assert found["random_p"] < 0.05
    assert found["p_adjusted"] > 0.05
    assert (found["estimator"], found["against_estimator"]) == ("logistic", "mass-mean")


def test_equal_and_orthogonal_directions_and_the_exact_null(caches, planted, tmp_path):
    planted(4.0)
    probe = probekit.load_probe(kept(caches["classification"], tmp_path / "kept"), layer=1)
    twice = probekit.angles(probe, probe).rows.iloc[0]
    assert twice["value"] == pytest.approx(1)
    assert twice["p"] < 1e-12
    line = np.zeros((1, D), dtype=np.float32)
    line[0, int(np.abs(probe.direction).argmin())] = 1
    line -= (line @ probe.direction) / (probe.direction @ probe.direction) * probe.direction
    turned = replace(probe, weights=replace(probe.weights, arrays={**probe.weights.arrays, "weight": line}))
    apart = probekit.angles(probe, turned).rows.iloc[0]
    assert apart["value"] == pytest.approx(0, abs=1e-6)
    assert apart["p"] > 0.99


@pytest.mark.parametrize("width", [2, 3, 40])
def test_the_null_of_random_directions_is_that_of_simulations(width):
    a, b = np.random.default_rng(width).normal(size=(2, 20_000, width))
    drawn = np.abs(cosine(a, b))
    assert (drawn < random_high(width, 0.95)).mean() == pytest.approx(0.95, abs=0.006)  # 4 standard errors
    assert random_p(np.array([0.3]), width)[0] == pytest.approx((drawn >= 0.3).mean(), abs=0.015)


def test_what_cannot_be_compared_is_refused_or_left_out_in_a_sentence(caches, planted, tmp_path):
    planted(4.0)
    own = caches["classification"]
    probe = probekit.load_probe(kept(own, tmp_path / "kept"), layer=1)
    with pytest.raises(UsageError, match="1 direction has no other of the same width"):
        probekit.angles(probe)
    with pytest.raises(UsageError, match="none of the caches holds the examples"):
        probekit.angles(probe, probe, cache=own[1:])
    narrow = {name: array[..., :5] if array.ndim == 2 or name == "mean" else array
              for name, array in probe.weights.arrays.items()}  # fmt: skip
    other = replace(probe, weights=replace(probe.weights, arrays=narrow))
    found = probekit.angles(probe, other, probe)
    assert len(found.rows) == 1
    assert any("24 and 5 dimensions" in note for note in found.notes)
    many = replace(probe, card={**probe.card, "classes": ["a", "b", "c"]}, weights=replace(
        probe.weights, arrays={**probe.weights.arrays, "weight": np.eye(3, D, dtype=np.float32)}
    ))  # fmt: skip
    assert any("3 classes" in note for note in probekit.angles(probe, many, probe).notes)
    ones = np.ones((1, D), dtype=np.float32)
    edited = replace(probe, weights=replace(probe.weights, arrays={**probe.weights.arrays, "weight": ones}))
    with pytest.raises(UsageError, match="fitted again in another direction"):
        probekit.angles(probe, edited, cache=own[:1], **QUICK)
    moved = replace(probe, card={**probe.card, "encoder": {**probe.card["encoder"], "weights_digest": "x"}})
    with pytest.raises(CacheMismatch, match="fitted on other vectors"):
        probekit.angles(moved, moved, cache=own[:1], **QUICK)


def test_probes_of_numbers_and_of_another_task(caches, planted, tmp_path):
    planted(1.0)
    numbers = kept(caches["regression"], tmp_path / "numbers", "ridge", layers=(1,))
    classes = kept(caches["classification"], tmp_path / "classes", layers=(1,))
    trains = (caches["regression"][0], caches["classification"][0])
    result = probekit.angles(numbers, classes, cache=trains, **QUICK)
    assert result.rows["probe_task"].iloc[0] != result.rows["against_task"].iloc[0]
    assert result.rows["p"].notna().all()
    assert [read.kind for read in result.reads] == ["probe", "probe", "cache", "cache"]
