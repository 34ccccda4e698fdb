"""``probekit units`` through the front door: planted units are named, noise is not; kept probes, words and numbers."""

from __future__ import annotations

import numpy as np
import pytest
from builders import word_caches

import probekit
from probekit.activations import ActivationCache
from probekit.errors import CacheMismatch, NonFiniteError, UsageError
from probekit.statistics.overlap import chance_overlap

QUICK = {"draws": 39, "splits": 4, "resamples": 100, "layers": (2,), "groups": "none"}
D = 40


@pytest.fixture(scope="module")
def caches(tiny_model, tmp_path_factory):
    folder, bert = tmp_path_factory.mktemp("caches"), tiny_model("bert")
    kinds = {"plain": "classification", "numbers": "regression", "words": "sequence-labelling", "pairs": "pairs"}
    how = {"pairs": {"pairs": "separate"}}
    return {name: word_caches(folder, bert, kind, name=name, **how.get(name, {})) for name, kind in kinds.items()}


def planted(monkeypatch, strong, units=(3, 17, 31)):
    """Caches give other vectors of layer 2: noise, but for some units that the labels move."""
    plain = ActivationCache.layer

    def layer(self, name, pooling=None):
        if str(name) != "2":
            return plain(self, name, pooling)
        x = np.random.default_rng(len(self.labels)).normal(size=(len(self.labels), D))
        x[:, list(units)] += strong * (np.nan_to_num(self.labels.astype(float)) - 0.5)[:, None]
        return (x * np.arange(1, D + 1)).astype(np.float32)

    monkeypatch.setattr(ActivationCache, "layer", layer)


def of(rows, metric, target="gold", ranking="weight"):
    own = rows[(rows["metric"] == metric) & (rows["target"] == target) & (rows["estimator"] == ranking)]
    return own.reset_index(drop=True)


def test_planted_units_are_named_and_noise_is_not(caches, monkeypatch):
    planted(monkeypatch, 2.0)
    result = probekit.units(*caches["plain"], **QUICK)
    for ranking in ("weight", "mean-difference", "information"):
        first = of(result.rows, "unit-score", ranking=ranking)
        assert first["place"].tolist() == list(range(1, len(first) + 1))
        assert set(first["unit"][:3]) == {3, 17, 31}
        assert set(first.loc[first["named"].astype(bool), "unit"]) == {3, 17, 31}
    assert "units" in result.verdict[0]
    assert "hold the property" in result.verdict[0]
    assert {3, 17, 31} == set(map(int, result.verdict[0].split("units ")[2].split(" hold")[0].split(", ")))
    planted(monkeypatch, 0.0)
    noise = probekit.units(*caches["plain"], **QUICK, rankings="mean-difference")
    assert not of(noise.rows, "unit-score", ranking="mean-difference")["named"].astype(bool).any()
    assert "no single units can be named" in noise.verdict[0]
    planted(monkeypatch, 0.35, units=range(D))
    everywhere = probekit.units(*caches["plain"], **QUICK, rankings="mean-difference")
    assert "no single units can be named" in everywhere.verdict[0]
    assert of(everywhere.rows, "accuracy", ranking="mean-difference")["value"].iloc[-1] > 0.7  # the property is there


@pytest.mark.parametrize("ranking", ["information", "mean-difference"])
def test_of_units_that_say_nothing_none_is_named_though_one_says_all(caches, monkeypatch, ranking):
    """Seldom active units have equal scores; in the order of their numbers, both halves would agree on them."""

    def layer(self, name, pooling=None):
        rng = np.random.default_rng(len(self.labels))
        x = rng.random((len(self.labels), 60)) < 0.01
        x[:, 50] = rng.random(len(self.labels)) < 0.1 + 0.8 * self.labels
        return x.astype(np.float32)

    monkeypatch.setattr(ActivationCache, "layer", layer)
    for seed in (0, 1):
        result = probekit.units(*caches["plain"], **{**QUICK, "splits": 10}, rankings=ranking, seed=seed)
        first = of(result.rows, "unit-score", ranking=ranking)
        assert first.loc[first["named"].astype(bool), "unit"].tolist() == [50]
        assert of(result.rows, "rank-biased-overlap", ranking=ranking)["value"][0] < 0.6


def test_a_few_examples_of_dev_do_not_make_a_unit_of_noise_steady(caches, monkeypatch):
    """On few examples 16 first units are as good as 3, but among 16 of 40 units one of noise is in most halves."""

    def layer(self, name, pooling=None):
        x = np.random.default_rng([13, len(self.labels)]).normal(size=(len(self.labels), D))
        x[:, [3, 17, 31]] += 0.8 * (self.labels[:, None] - 0.5)
        return x.astype(np.float32)

    monkeypatch.setattr(ActivationCache, "layer", layer)
    rows = probekit.units(*caches["plain"], **{**QUICK, "splits": 10}, rankings="mean-difference").rows
    first = of(rows, "unit-score", ranking="mean-difference")
    assert first["units"][0] == 8
    assert set(first.loc[first["named"].astype(bool), "unit"]) == {3, 17, 31}


def test_halves_that_agree_on_all_units_overlap_by_1(caches, monkeypatch):
    def layer(self, name, pooling=None):
        noise = np.random.default_rng(len(self.labels)).normal(size=(len(self.labels), 30))
        return ((self.labels[:, None] + 0.01 * noise) * 2.0 ** np.arange(30)).astype(np.float32)

    monkeypatch.setattr(ActivationCache, "layer", layer)
    rows = probekit.units(*caches["plain"], **QUICK, rankings="max-mean-difference").rows
    overlap = of(rows, "rank-biased-overlap", ranking="max-mean-difference").iloc[0]
    assert (overlap["value"], overlap["ci_low"], overlap["ci_high"]) == (1, 1, 1)  # 1 + 2e-16 before rounding


def test_units_that_all_hold_the_same_do_not_beat_each_other(caches, monkeypatch):
    """Ranked and fitted on the same examples, the first are better by .085 at layer 2 (p = .03)."""

    def layer(self, name, pooling=None):
        x = np.random.default_rng([1, int(name), len(self.labels)]).normal(size=(len(self.labels), 128))
        return (x + 0.2 * (self.labels[:, None] - 0.5)).astype(np.float32)

    monkeypatch.setattr(ActivationCache, "layer", layer)
    how = {**QUICK, "layers": (0, 1, 2), "splits": 0, "rankings": "mean-difference"}
    rows = probekit.units(*caches["plain"], **how).rows
    over = rows[rows["sizes"].notna()]
    assert over["p_adjusted"].min() > 0.05
    assert over["value"].mean() < 0.02


def test_rows_say_what_first_random_and_last_units_hold(caches, monkeypatch):
    planted(monkeypatch, 1.6)
    result = probekit.units(*caches["plain"], **QUICK, rankings=("mean-difference", "k-sparse"))
    rows = result.rows
    assert set(rows["estimator"]) == {"mean-difference", "k-sparse"}
    curve = {t: of(rows, "accuracy", t, "k-sparse").set_index("units") for t in ("gold", "random", "bottom")}
    assert curve["gold"].index.tolist() == [1, 2, 4, 8, 16, 32, D] == curve["bottom"].index.tolist()
    assert curve["random"].index.tolist() == [1, 2, 4, 8, 16, 32]
    assert curve["gold"]["value"][D] == curve["bottom"]["value"][D]
    assert curve["gold"]["value"][4] > curve["random"]["ci_high"][4] > curve["random"]["value"][4]
    gaps = of(rows, "difference(accuracy)", ranking="k-sparse").set_index("units")
    gap, over = gaps[gaps.index.notna()], gaps[gaps.index.isna()].iloc[0]
    assert gap["value"][4] == pytest.approx(curve["gold"]["value"][4] - curve["random"]["value"][4])
    assert gap["ci_low"][4] < gap["value"][4] < gap["ci_high"][4]
    assert over["value"] == pytest.approx(gap["value"].mean())
    assert (over["sizes"], over["tests"]) == (6, 2)
    assert 1 / 40 - 1e-9 <= over["p"] <= over["p_adjusted"] <= 0.05
    overlap = {t: of(rows, "rank-biased-overlap", t, "k-sparse").iloc[0] for t in ("gold", "shuffled", "random")}
    assert overlap["random"]["value"] == pytest.approx(chance_overlap(D, p=0.9))
    assert overlap["gold"]["ci_low"] > overlap["shuffled"]["value"]
    again = probekit.units(*caches["plain"], **QUICK, rankings=("mean-difference", "k-sparse"))
    assert again.rows.equals(rows)
    tables = [grid.title for grid, _ in probekit.view.tables("units", rows, {"level": 0.95})]
    assert len(tables) == 4
    assert "mean-difference" in tables[2]
    assert result.plot().axes[0].get_xlabel() == "Units"


def test_p_is_corrected_over_all_models_of_a_task(caches, tiny_model, tmp_path):
    other = word_caches(tmp_path, tiny_model("bert"), name="random", random_weights=3)
    few = QUICK | {"layers": (0, 1), "splits": 0, "rankings": "mean-difference"}
    rows = probekit.units(*caches["plain"], *other, **few).rows
    assert set(rows["tests"].dropna()) == {4}
    alone = probekit.units(*caches["plain"], **few).rows
    mine = rows[rows["checkpoint"] == ""].reset_index(drop=True)
    assert mine["p"].dropna().tolist() == alone["p"].dropna().tolist()
    assert (mine["p_adjusted"].dropna().to_numpy() >= alone["p_adjusted"].dropna().to_numpy()).all()


def test_a_kept_probe_gives_the_ranking_by_weight(caches, tmp_path):
    train, dev = caches["plain"]
    kept = probekit.probe(train, dev, layers=(1,), controls=0, resamples=100, keep=tmp_path / "kept", groups="none")
    rows = probekit.units(train, dev, probe=tmp_path / "kept", **{**QUICK, "layers": None}, rankings="weight").rows
    assert set(rows["layer"].dropna()) == {1}
    with ActivationCache(train) as cache:
        x, known = cache.layer(1), cache.labels >= 0
        expected = kept.probe(layer=1).direction * np.asarray(x)[known].std(0)
    score = of(rows, "unit-score")
    np.testing.assert_allclose(score["value"], expected[score["unit"].astype(int)], rtol=1e-5)
    assert score["unit"].iloc[0] == np.abs(expected).argmax()
    own = probekit.units(train, dev, **{**QUICK, "layers": (1,)}, rankings="weight").rows
    assert of(own, "unit-score")["unit"].tolist() == score["unit"].tolist()  # of the same penalty
    with pytest.raises(UsageError, match=r"no kept probe of layer 0; kept are 1\. Give --layers"):
        probekit.units(train, dev, probe=tmp_path / "kept", **{**QUICK, "layers": (0,)})
    probekit.probe(
        dev, train, layers=(1,), controls=0, resamples=0, keep=tmp_path / "seen", groups="none", any_split=True
    )
    with pytest.raises(CacheMismatch, match="not fitted on the examples of .*train.*, but on those of .*dev"):
        probekit.units(train, dev, probe=tmp_path / "seen", **{**QUICK, "layers": None}, rankings="weight")
    with pytest.raises(CacheMismatch, match="the probe was fitted on other vectors"):
        probekit.units(*caches["pairs"], probe=tmp_path / "kept", **{**QUICK, "layers": None})


def test_words_numbers_and_what_is_refused(caches, monkeypatch):
    words = probekit.units(*caches["words"], **{**QUICK, "layers": (1,)}, rankings="mean-difference").rows
    assert "token-accuracy" in set(words["metric"])
    few = QUICK | {"layers": (1,), "draws": 0, "splits": 0, "resamples": 0}
    numbers = probekit.units(*caches["numbers"], **few)
    assert set(numbers.rows["metric"]) == {"pearson", "unit-score"}
    assert numbers.rows["ci_low"].isna().all()
    assert "they were not compared with random ones" in numbers.verdict[0]
    better = few | {"draws": 19, "resamples": 100, "metric": "rmse", "rankings": "mean-difference"}
    over = of(probekit.units(*caches["numbers"], **better).rows, "difference(rmse)", ranking="mean-difference")
    over = over[over["units"].isna()].iloc[0]
    assert over["value"] < 0  # the first units err less
    assert over["p"] == pytest.approx(1 / 20)
    with pytest.raises(UsageError, match="elastic-net ranks units by classes, but these labels are numbers"):
        probekit.units(*caches["numbers"], **few, rankings="elastic-net")
    with pytest.raises(UsageError, match="auroc needs more than predictions"):
        probekit.units(*caches["plain"], **few, metric="auroc")
    with pytest.raises(UsageError, match="a kept probe reads the vectors themselves; leave out --through, or --probe"):
        probekit.units(*caches["plain"], **few, through="sae:folder", probe="kept")
    with pytest.raises(UsageError, match="rankings"):
        probekit.units(*caches["plain"], **few, rankings="variance")
    monkeypatch.setattr(ActivationCache, "layer", lambda self, *_: np.full((len(self.labels), 4), np.nan))
    with pytest.raises(NonFiniteError, match="layer 1 contains NaN"):
        probekit.units(*caches["plain"], **few)
    monkeypatch.setattr(ActivationCache, "layer", lambda self, *_: np.ones((len(self.labels), 4)))
    with pytest.raises(UsageError, match="layer 1 has 0 units that vary in train; a ranking needs two"):
        probekit.units(*caches["plain"], **few)
