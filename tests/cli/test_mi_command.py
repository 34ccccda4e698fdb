"""``probekit mi``: from caches to rows, a table and a figure, with tiny models whose layers see every word."""

import numpy as np
import pandas as pd
import pytest
from builders import word_caches

import probekit.information.curves as module
from probekit.activations import ActivationCache
from probekit.activations.grouping import groups_of
from probekit.analyses.mi import mi
from probekit.cli import main
from probekit.errors import UsageError
from probekit.information import mutual_information
from probekit.rows import layer_labels, read_card, read_rows


@pytest.fixture(scope="module")
def caches(tiny_model, tmp_path_factory):
    folder, bert = tmp_path_factory.mktemp("caches"), tiny_model("bert")
    how = {
        "plain": {},
        "random": {"random_weights": 3},
        "numbers": {"kind": "regression"},
        "pairs": {"kind": "pairs", "pairs": "separate"},
        "words": {"kind": "sequence-labelling"},
    }
    return {name: word_caches(folder, bert, name=name, sizes={"train": 240}, **own)[0] for name, own in how.items()}


def values(rows, target="gold", column="value"):
    rows = getattr(rows, "rows", rows)
    own = rows[(rows["target"] == target) & rows["draw"].isna()]
    return own.set_index(layer_labels(own))[column]


def test_from_caches_to_rows_a_table_and_a_figure(caches, tmp_path, capsys):
    out = tmp_path / "rows.parquet"
    asked = ["--draws", "99", "--estimator", "edge, knn", "--seed", "4", "--out", str(out)]
    assert main(["mi", str(caches["plain"]), str(caches["random"]), *asked]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "classification train, " in shown
    assert "random weights 3, mean, knn: 239 examples; entropy of the labels 0.992 bits" in shown
    assert "noise, 97.5 %" in shown
    assert shown.count("unlabelled, left out: 1") == 4
    rows = read_rows(out)
    assert rows.groupby(["checkpoint", "estimator", "target"], sort=False).size().tolist() == [4] * 8
    assert set(rows["analysis"]) == {"mi"}
    assert rows.loc[rows["checkpoint"] == "", "random_weights"].isna().all()
    assert set(rows.loc[rows["checkpoint"] == "random-3", "random_weights"]) == {3}
    one = rows[(rows["checkpoint"] == "") & (rows["estimator"] == "edge")]
    assert values(one)["0"] > 0.5  # the mean of the embeddings holds the word
    assert values(one, "shuffled", "ci_high")["0"] < 0.2
    with ActivationCache(caches["plain"]) as cache:
        known, own = cache.labels >= 0, groups_of(cache).of
        own = None if own is None else own[known]
        alone = mutual_information(cache.layer(2)[known], cache.labels[known], groups=own, draws=99, seed=4)
    assert values(one)["2"] == pytest.approx(alone.value)
    card = read_card(out)
    assert [read["path"] for read in card["reads"]] == [str(caches["plain"]), str(caches["random"])]
    assert card["recipe"]["arguments"]["estimator"] == ["edge", "knn"]
    assert card["recipe"]["arguments"]["seed"] == 4
    figure = tmp_path / "figure.svg"
    assert main(["plot", "layers", str(out), "--out", str(figure)]) == 0
    for words in ("lower bound (bits)", "kNN, train, n = 239", "shuffled labels", "random weights 3"):
        assert words in figure.read_text()


@pytest.mark.slow
def test_a_command_a_call_and_a_recipe_leave_the_same(caches, tmp_path):
    plain = str(caches["plain"])
    asked = {"layers": (0, -1), "estimator": ("edge", "edge-4.3.1"), "draws": 19, "controls": 2, "seed": 2}
    called = mi(plain, **asked, out=tmp_path / "called.parquet")
    words = ["mi", plain, "--layers", "0,-1", "--estimator", "edge,edge-4.3.1", "--draws", "19", "--controls", "2"]
    assert main([*words, "--seed", "2", "--out", str(tmp_path / "typed.parquet")]) == 0
    assert main([*called.recipe.words()[1:-2], "--out", str(tmp_path / "again.parquet")]) == 0
    cards = [read_card(tmp_path / f"{name}.parquet") for name in ("called", "typed", "again")]
    for name in ("recipe", "reads", "versions", "machine", "git"):
        for card in cards[1:]:
            own, other = card[name], cards[0][name]
            if name == "recipe":
                own, other = ({k: v for k, v in told.items() if k != "leaves"} for told in (own, other))
            assert own == other
    again = called.recipe.run(out=tmp_path / "run.parquet")
    for name in ("typed", "again", "run"):
        pd.testing.assert_frame_equal(read_rows(tmp_path / f"{name}.parquet"), called.rows)
    pd.testing.assert_frame_equal(again.rows, called.rows)


def test_what_a_cache_of_a_trained_model_is_of_stands_in_columns(caches, monkeypatch):
    origin = {"trained_on": "mrpc", "regime": "fine-tune", "head": "linear", "variant": "", "seed": 3}
    monkeypatch.setattr(ActivationCache, "origin", origin)
    rows = mi(caches["plain"], layers=[0], draws=19).rows
    assert rows[["trained_on", "regime", "head", "run_seed"]].iloc[0].tolist() == ["mrpc", "fine-tune", "linear", 3]


def test_shuffled_labels_are_at_zero(caches, monkeypatch):
    with ActivationCache(caches["plain"]) as cache:
        true = mi(cache, draws=99, layers=[0])
        monkeypatch.setattr(ActivationCache, "labels", np.random.default_rng(1).permutation(cache.labels))
        rows = mi(cache, draws=99, layers=[0])
    assert values(true, column="p")["0"] == 0.01
    assert values(rows)["0"] < 0.1 < values(true)["0"]
    assert values(rows, column="p")["0"] > 0.05


def test_pairs_are_seen_with_their_difference_and_product(caches):
    rows = mi(caches["pairs"], layers=["1"], draws=49)
    with ActivationCache(caches["pairs"]) as cache:
        u, v = np.split(cache.layer(1), 2, axis=1)
        both = np.hstack([u, v, np.abs(u - v), u * v])
        alone = mutual_information(both, cache.labels, groups=groups_of(cache).of, draws=49)
    assert values(rows, column="raw")["1"] == pytest.approx(alone.raw)
    assert values(rows, column="p")["1"] == alone.p


def test_words_of_a_sentence_are_shuffled_as_a_whole(caches, capsys):
    rows = mi(caches["words"], layers=[0], draws=19, groups="none")
    assert rows.rows["n"].iloc[0] == 240 * 5
    assert values(rows, column="share")["0"] > 0.8
    assert values(rows, column="n_groups").eq(240).all()
    assert main(["mi", str(caches["words"]), "--layers", "0", "--draws", "19", "--groups", "none"]) == 0
    shown = capsys.readouterr().out
    assert " †  " in shown
    assert "1,200 examples in 240 groups: these are folded, shuffled and counted as wholes" in shown


def test_whole_scores_are_numbers(caches):
    rows = mi(caches["numbers"], layers=[0], draws=19)
    assert values(rows, column="bins")["0"] > 0
    assert values(rows)["0"] > 0.5


def test_what_does_not_go_is_said_of_all_caches_before_the_work(caches, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "mutual_information", lambda *_, **__: pytest.fail("measured"))
    plain, numbers, again = str(caches["plain"]), str(caches["numbers"]), tmp_path / "again.h5"
    again.write_bytes(caches["plain"].read_bytes())
    for words, said in (
        ([numbers, plain, "--estimator", "edge,ridge"], "plain.train.h5: ridge is for numbers"),
        ([plain, numbers, "--estimator", "edge,logistic"], "numbers.train.h5: logistic is for classes"),
        ([plain, plain], "plain.train.h5 would give the same curve, classification, train, "),
        ([plain, numbers, str(again)], "again.h5 would give the same curve"),
    ):
        assert main(["mi", *words]) == 2
        assert said in capsys.readouterr().err.replace("\n", " ")
    with ActivationCache(plain) as cache, pytest.raises(UsageError, match="would give the same curve"):
        mi(cache, cache)


def test_marks_are_explained_under_the_table(caches, monkeypatch, capsys):
    true = mutual_information

    def estimate(x, y, **how):
        one = true(x, y, **how)
        blind = {"value": float("nan"), "undetermined": "noise alone fills the buckets", "ci_low": 0.0, "ci_high": 1.0}
        if x[0, 0] == first:
            for name, value in blind.items():
                object.__setattr__(one, name, value)
        return one

    with ActivationCache(caches["random"]) as cache:
        first = cache.layer(1)[cache.labels >= 0][0, 0]
    monkeypatch.setattr(module, "mutual_information", estimate)
    assert main(["mi", str(caches["random"]), "--draws", "19"]) == 0
    shown = capsys.readouterr().out
    [line] = [x for x in shown.splitlines() if x.split()[:1] == ["1"]]
    assert line.split()[1:5] == ["?", "0.000", "–", "1.000"]
    assert "?  undetermined: noise alone fills the buckets" in shown


def test_what_cannot_be_measured_is_said_in_a_sentence(caches, tmp_path, capsys):
    plain = str(caches["plain"])
    for words, said in (
        ([plain, "--estimator", "edgy"], "unknown estimator 'edgy'; did you mean edge"),
        ([plain, "--layers", "9"], "plain.train.h5 has no layer 9; it has 0, 1, 2, 3"),
        ([plain, "--pooling", "last"], "train has no pooling 'last'; it has mean"),
        ([str(caches["words"]), "--pooling", "mean"], "leave out --pooling"),
        ([plain, "--out", str(tmp_path / "rows.txt")], ".parquet or .csv"),
        ([plain, "--draws", "-1"], "--draws is -1; it must be 0 or more"),
        ([str(tmp_path / "none.h5")], "does not exist"),
        ([], "no cache was given"),
    ):
        assert main(["mi", *words]) == 2
        assert said in capsys.readouterr().err
