"""Transferability scores through the front door: caches in; rows, sentences, a figure and a reproduction out."""

import numpy as np
import pytest
from builders import word_caches

import probekit
from probekit.activations import ActivationCache
from probekit.errors import NonFiniteError, UsageError
from probekit.probes.transferability import h_score, logme, transrate


@pytest.fixture(scope="module")
def caches(tiny_model, tmp_path_factory):
    folder, bert = tmp_path_factory.mktemp("caches"), tiny_model("bert")
    how = {
        "plain": {},
        "random": {"random_weights": 3},
        "pairs": {"kind": "pairs", "pairs": "separate"},
        "words": {"kind": "sequence-labelling"},
        "numbers": {"kind": "regression"},
    }
    return {name: word_caches(folder, bert, name=name, sizes={"dev": 60}, **own)[0] for name, own in how.items()}


def with_vectors(monkeypatch, change):
    """Caches give other vectors of layer 2, and the same labels."""
    plain = ActivationCache.layer
    monkeypatch.setattr(
        ActivationCache, "layer",
        lambda self, name, pooling=None: change(self, plain(self, name, pooling))
        if str(name) == "2" else plain(self, name, pooling),
    )  # fmt: skip


def test_rows_are_scores_of_layers(caches):
    result = probekit.transferability(caches["plain"], caches["random"], groups="none", draws=19)
    gold = result.rows[result.rows["target"] == "gold"]
    assert set(gold["metric"]) == {"logme", "h-score", "transrate"}
    assert gold["model"].nunique() + gold["checkpoint"].nunique() == 3
    with ActivationCache(caches["plain"]) as cache:
        known = cache.labels >= 0
        for name in cache.layers:
            row = gold[(gold["checkpoint"] == "") & (gold["layer"].astype(str) == name)].set_index("metric")
            for metric, score in {"logme": logme, "h-score": h_score, "transrate": transrate}.items():
                expected = score(np.asarray(cache.layer(name))[known], cache.labels[known])
                assert row.loc[metric, "value"] == pytest.approx(expected, abs=1e-9)
    assert ((gold["p"] >= 0.05) & (gold["p"] <= gold["p_adjusted"])).all()
    noise = result.rows[result.rows["target"] == "shuffled"]
    assert noise["value"].tolist() == gold["null_mean"].tolist()
    assert result.rows.equals(probekit.transferability(caches["plain"], caches["random"], groups="none", draws=19).rows)
    assert len(result.verdict) == 2
    layers = 2 * gold["layer"].nunique()  # of both caches, which have the same labels
    assert all(f"p adjusted over {layers} layers" in text for text in result.verdict[:1])
    alone = probekit.transferability(caches["plain"], groups="none", draws=19).rows
    alone = alone[alone["target"] == "gold"]
    plain = gold[gold["checkpoint"] == ""] if gold["checkpoint"].nunique() > 1 else gold.iloc[: len(alone)]
    assert plain["p"].tolist() == alone["p"].tolist()
    assert (plain["p_adjusted"].to_numpy() >= alone["p_adjusted"].to_numpy()).all()
    assert (plain["p_adjusted"].to_numpy() > alone["p_adjusted"].to_numpy()).any()
    assert "permuted labels" in result.verdict[0]


def test_labels_in_a_layer_are_found_and_noise_is_not(caches, monkeypatch):
    rng = np.random.default_rng(0)
    with_vectors(monkeypatch, lambda cache, x: rng.normal(size=x.shape) + 3 * cache.labels[:, None])
    rows = probekit.transferability(caches["plain"], groups="none", measures=("logme", "h-score"), layers=(2,)).rows
    gold = rows[rows["target"] == "gold"].set_index("metric")
    assert (gold["p"] == 1 / 101).all()
    assert gold.loc["h-score", "calibrated"] > 0.3
    with_vectors(monkeypatch, lambda cache, x: rng.normal(size=x.shape))
    rows = probekit.transferability(caches["plain"], groups="none", layers=(2,), draws=200).rows
    gold = rows[rows["target"] == "gold"]
    z = (gold["value"] - gold["null_mean"]) / gold["null_sd"]
    assert (z.abs() < 3.5).all()
    assert abs(gold.set_index("metric").loc["h-score", "calibrated"]) < 0.2


def test_numbers_words_pairs_and_options(caches):
    numbers = probekit.transferability(caches["numbers"], draws=19)
    gold = numbers.rows[numbers.rows["target"] == "gold"].groupby("metric")
    assert gold.get_group("logme")["value"].notna().all()
    for name in ("h-score", "transrate"):
        assert gold.get_group(name)["value"].isna().all()
        assert (gold.get_group(name)["note"] == "needs classes, but the labels are numbers").all()
    assert probekit.transferability(caches["numbers"], measures="h-score").rows["value"].isna().all()
    words = probekit.transferability(caches["words"], draws=0, max_examples=50).rows
    assert (words["n"] == 50).all()
    assert (words["target"] == "gold").all()
    pairs = probekit.transferability(caches["pairs"], draws=19, layers=(1,)).rows
    assert len(pairs) == 6


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(60, dtype=int), "plain.*all 60 labels are equal; a transferability score needs two or more classes"),
        (np.arange(60), "60 examples have 60 classes; a score needs more examples than classes"),
        (np.where(np.arange(60) < 3, 1, -1), "has 3 labelled examples; a score needs 4 or more"),
    ],
)
def test_labels_without_a_score(caches, monkeypatch, labels, message):
    monkeypatch.setattr(ActivationCache, "labels", property(lambda self: labels))
    with pytest.raises(UsageError, match=message):
        probekit.transferability(caches["plain"])


def test_unlabelled_examples_are_counted(caches, monkeypatch):
    labels = np.where(np.arange(60) < 20, -1, np.arange(60) % 2)
    monkeypatch.setattr(ActivationCache, "labels", property(lambda self: labels))
    rows = probekit.transferability(caches["plain"], draws=0, layers=(0,)).rows
    assert (rows["n"] == 40).all()
    assert (rows["left_out"] == 20).all()


def test_nan_names_the_layer(caches, monkeypatch):
    with_vectors(monkeypatch, lambda cache, x: np.where(np.arange(60)[:, None] == 7, np.nan, x))
    with pytest.raises(NonFiniteError, match=r"layer 2 contains NaN or infinity \(first in "):
        probekit.transferability(caches["plain"], groups="none")


@pytest.mark.usefixtures("reproduced_here")
@pytest.mark.slow
def test_command(call, caches, tmp_path):
    out = tmp_path / "scores.parquet"
    done = call("transferability", caches["plain"], caches["random"], "--draws", "19", "--out", out)
    assert done.status == 0, done.err
    words = " ".join(done.out.split())
    assert "LogME by chance p adjusted H-score by chance calibrated p adjusted TransRate by chance p adjusted" in words
    drawn = call("plot", "layers", out, "--metric", "h-score", "--out", tmp_path / "scores.png")
    assert drawn.status == 0, drawn.err
    report = call("report", out, "-o", tmp_path / "report.html")
    assert report.status == 0, report.err
    page = (tmp_path / "report.html").read_text()
    assert "Transferability scores" in page
    assert "Not drawn" not in page
    again = call("reproduce", f"{out}.json")
    assert again.status == 0, again.err
    assert "reproduced to the bit" in again.out
    for options, message in {
        ("--measures", "logme,leep"): "unknown score 'leep'",
        ("--draws", "5"): "draws is 5; it must be 19 or more, or 0 for none",
        ("--eps", "0"): "eps is 0.0; it must be above 0",
    }.items():
        done = call("transferability", caches["plain"], *options)
        assert done.status == 2
        assert message in " ".join(done.err.split())
