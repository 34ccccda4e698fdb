"""``probekit structural``: from trees to rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import probekit
from probekit.activations import ActivationCache
from probekit.analyses.structural.measure import _orders
from probekit.analyses.structural.scores import Gold, Intervals, Scores
from probekit.analyses.structural.trees import Treebank, treebank
from probekit.analyses.verdict import sentences
from probekit.errors import DataError, UsageError
from probekit.probes.trees.arcs import Parse
from probekit.probes.trees.options import StructuralOptions
from probekit.rows.schema import KEYS
from probekit.statistics.bootstrap import bounds
from probekit.tasks import load_task
from probekit.tasks.task import Example, Span, Split, Target, Task, TaskKind

WORDS = ("the", "cat", "sat", "on", "mats", "dogs", "bark", ".")


def heads_of(rng: np.random.Generator, n: int) -> list[int]:
    order = rng.permutation(n).tolist()
    heads = [0] * n
    for i in range(1, n):
        heads[order[i]] = order[int(rng.integers(i))] + 1
    return heads


def task(heads: dict[str, list[list[int]]]) -> Task:
    rng, splits = np.random.default_rng(0), {}
    for split, trees in heads.items():
        found = []
        for i, tree in enumerate(trees):
            words = tuple(str(rng.choice(WORDS)) for _ in tree)
            targets = tuple(
                Target((Span(w, w + 1), Span(h - 1, h)), int(words[w] == ".")) for w, h in enumerate(tree) if h
            )
            found.append(Example(f"{split}{i}", " ".join(words), words=words, targets=targets))
        splits[split] = Split(split, tuple(found))
    return Task("toy", TaskKind.SPAN_LABELLING, splits, ("dep", "punct"))


@pytest.fixture(scope="module")
def trees() -> dict[str, list[list[int]]]:
    rng = np.random.default_rng(1)
    return {
        split: [heads_of(rng, int(rng.integers(1, 8))) for _ in range(n)] for split, n in (("train", 60), ("dev", 30))
    }


def cached(model: Path, of: Task, folder: Path, **options: object) -> list[Path]:
    return [
        probekit.cache_activations(model, of, split, out=folder / f"{split}.h5", **options).path  # type: ignore[misc]
        for split in of.splits
    ]


def test_the_trees_of_a_cache_are_those_of_its_task(tiny_bert: Path, tmp_path: Path, trees: dict) -> None:
    path = cached(tiny_bert, task(trees), tmp_path)[1]
    with ActivationCache(path) as cache:
        bank = treebank(cache)
        kept = [tree for tree in trees["dev"] if len(tree) > 1]
        assert bank.heads.tolist() == [head for tree in kept for head in tree]
        assert bank.length.tolist() == [len(tree) for tree in kept]
        x = bank.layers["1"]()
        assert x.shape == (len(bank.heads), cache.width)
        tokens, word = cache.tokens(1), cache.index("word_index")
        i = int(bank.example[0])
        start = int(cache.index("start")[i])
        rows = start + np.flatnonzero(word[start : start + int(cache.index("length")[i])] == 1)
        np.testing.assert_allclose(x[1], tokens.values[rows].mean(0), rtol=1e-5)


def test_rows_have_scores_controls_and_the_linear_chain(tiny_bert: Path, tmp_path: Path, trees: dict) -> None:
    caches = cached(tiny_bert, task(trees), tmp_path)
    rows = probekit.structural(*caches, ranks=(2, 500), epochs=2, resamples=100, groups="none").rows
    scores = {"uuas", "distance-spearman", "root-accuracy", "depth-spearman"}
    assert set(rows["metric"]) == scores | {"difference(uuas)"}
    assert set(rows["target"]) == {"gold", "shuffled"}
    with ActivationCache(caches[0]) as cache:
        assert set(rows["rank"].dropna()) == {2, cache.width}
        assert set(rows["estimator"]) == {"linear-chain", "structural-2", f"structural-{cache.width}"}
    line = rows[(rows["estimator"] == "linear-chain") & (rows["metric"] == "uuas")].iloc[0]
    kept = [tree for tree in trees["dev"] if len(tree) > 1]
    punct = task(trees).split("dev")
    edges = right = 0
    for e, tree in zip(punct, trees["dev"], strict=True):
        if len(tree) > 1 and all(t.label == 0 for t in e.targets):
            edges += len(tree) - 1
            right += sum(abs(h - 1 - w) == 1 for w, h in enumerate(tree) if h)
    assert edges
    assert 0 < line["value"] < 1
    assert line["n"] == len(kept)
    found = rows.dropna(subset="ci_low")
    assert (found["ci_low"] <= found["ci_high"]).all()


@pytest.mark.slow
def test_arcs_are_beside_them_and_edges_can_be_compared(tiny_bert: Path, tmp_path: Path, trees: dict) -> None:
    caches = cached(tiny_bert, task(trees), tmp_path)
    random = tmp_path / "random"
    random.mkdir()
    caches += cached(tiny_bert, task(trees), random, random_weights=0)
    options = {"ranks": 3, "epochs": 1, "resamples": 100, "groups": "none", "arcs": True}
    result = probekit.structural(*caches, **options, out=tmp_path / "trees.parquet")
    rows = result.rows
    arcs = rows[(rows["estimator"] == "biaffine") & (rows["target"] == "gold")]
    assert set(arcs["metric"]) == {"uuas", "uas", "las", "relation-accuracy", "difference(uuas)"}
    assert not rows.duplicated(list(KEYS)).any()
    line = rows[(rows["estimator"] == "linear-chain") & (rows["metric"] == "uas")]
    right = {False: 0, True: 0}
    for e, tree in zip(task(trees).split("dev"), trees["dev"], strict=True):
        for w, head in enumerate(tree):
            if len(tree) > 1 and not any(t.label for t in e.targets if t.spans[0].start == w):
                right[False] += head == w
                right[True] += head == (w + 2) % (len(tree) + 1) if w + 1 < len(tree) else head == 0
    counted = sum(len(tree) - sum(t.label for t in e.targets)
                  for e, tree in zip(task(trees).split("dev"), trees["dev"], strict=True) if len(tree) > 1)  # fmt: skip
    assert any(line["value"].iloc[0] == pytest.approx(x / counted) for x in right.values())
    (found,) = result.predictions
    uuas = rows[(rows["metric"] == "uuas") & (rows["target"] == "gold")]
    np.testing.assert_allclose(found.predicted.mean(1), uuas["value"])
    assert found.fits["estimator"].tolist() == uuas["estimator"].tolist()
    against = probekit.compare(tmp_path / "trees.parquet", against="random", resamples=100).rows
    assert set(against["metric"]) == {"difference(uuas)"}
    kinds = uuas[uuas["random_weights"].isna()].set_index(["estimator", "layer"])["value"]
    control = uuas[uuas["random_weights"] == 0].set_index(["estimator", "layer"])["value"]
    for row in against.to_dict("records"):
        key = row["estimator"], row["layer"]
        assert row["value"] == pytest.approx(kinds[key] - control[key])
    assert set(probekit.summary(tmp_path / "trees.parquet", resamples=100).rows["of_metric"]) == {"uuas"}
    drawn = probekit.plots.layers.curve_rows(rows, "uuas")
    assert set(drawn.loc[drawn["role"] == "line", "label"]) == {"linear chain"}
    assert (drawn["role"] == "control").sum() == len(set(rows["layer"].dropna())) * 2  # of the trained model
    assert drawn.loc[drawn["role"] == "curve", "series"].nunique() == 4
    said = probekit.analyses.verdict.verdict(result)
    assert len(said) == 2
    best = uuas[uuas["estimator"] == "structural-3"].groupby("checkpoint", sort=False)["value"].max()
    for sentence, value in zip(said, best, strict=True):
        assert f", rank 3, has {100 * value:.1f} % (" in sentence
        assert "the linear chain (" in sentence
        assert "; a parser finds " in sentence
        assert "nan" not in sentence


def test_gold_trees_have_1_in_every_score() -> None:
    rng = np.random.default_rng(3)
    trees = [np.array(heads_of(rng, int(n))) for n in (2, 5, 5, 8, 13)]
    heads = np.concatenate(trees)
    length = np.array([len(tree) for tree in trees])
    relations = np.where(heads == 0, 2, rng.integers(0, 2, len(heads)))
    bank = Treebank(length, heads, relations, ("dep", "punct", "root"), relations != 1, np.arange(5), {})
    gold = Gold.of(bank, np.arange(len(heads)))
    score = Scores.of(bank, gold)
    found = score.found([d * 3.5 for d in gold.distance])
    parse = Parse(heads, relations, relations)
    sums = {**score.of_distances(found, gold.distance), **score.of_depths(gold.depth)}
    rows = [*Intervals(length, np.arange(5), StructuralOptions(resamples=100)).rows(sums)]
    rows += Intervals(length, np.arange(5), StructuralOptions(resamples=0)).rows(score.of_parse(parse, found))
    assert [row["metric"] for row in rows[4:]] == ["uuas", "uas", "las", "relation-accuracy"]
    assert all(row["value"] == pytest.approx(1) for row in rows)
    assert all(np.isnan(row["ci_low"]) for row in rows[4:])
    wrong = np.where(np.arange(len(heads)) == int(np.flatnonzero(relations == 0)[0]), -5, heads)
    uas = score.of_heads(wrong)["uas"].sum(0)
    assert uas[0] == uas[1] - 1


def test_intervals_of_ranks_are_those_of_sentences_drawn_one_by_one() -> None:
    rng = np.random.default_rng(4)
    length, groups = rng.integers(4, 9, 60), rng.integers(0, 12, 60)
    sums = np.stack([rng.random(60), rng.integers(1, 4, 60)], axis=1)
    measured = Intervals(length, groups, StructuralOptions(resamples=100))
    [row] = measured.rows({"depth-spearman": sums})
    again = []
    for weights in measured.weights:
        assert weights.sum() > 0
        assert all(len(set(weights[groups == g])) == 1 for g in np.unique(groups))
        drawn = np.repeat(np.arange(60), weights.astype(int))
        each = [drawn[length[drawn] == n] for n in range(5, 51)]
        again.append(np.mean([sums[at, 0].sum() / sums[at, 1].sum() for at in each if len(at)]))
    middle, spread = np.arctanh(row["value"]), np.sqrt(12 / 11) * np.arctanh(again).std()
    low, high = (np.arctanh(row[end]) - middle for end in ("ci_low", "ci_high"))
    assert -low == pytest.approx(high)
    assert stats.t.ppf(0.975, 11) * spread <= high + 1e-9  # fewer degrees of freedom where few groups carry the spread
    assert high <= stats.t.ppf(0.975, 4) * spread


def test_intervals_of_shares_are_those_of_accuracy_and_never_without_width() -> None:
    """30 of 30 roots: the exact lower end is .025**(1/30) = .884; 20 groups of 3 alike count as 20."""
    length = np.full(60, 7)
    every, few = np.ones((30, 2)), np.stack([np.repeat(np.arange(20) % 4 > 0, 3), np.ones(60)], axis=1)
    how = StructuralOptions(resamples=400)
    [row] = Intervals(length[:30], np.arange(30), how).rows({"root-accuracy": every})
    assert row["ci_high"] == row["value"] == 1
    assert 0.85 < row["ci_low"] < 0.92
    [row] = Intervals(length, np.repeat(np.arange(20), 3), how).rows({"uuas": few})
    exact = bounds(np.ones(60), few[:, 0][None], "accuracy", groups=np.repeat(np.arange(20), 3), resamples=400)
    assert [row["ci_low"], row["ci_high"]] == pytest.approx(exact.ci[0])
    [row] = Intervals(length, np.arange(60), how).rows({"depth-spearman": np.ones((60, 2))})
    assert np.isnan(row["ci_low"])
    assert row["why"] == "all sentences have the same value"


def test_above_the_linear_chain_is_tested_on_the_same_sentences(tiny_bert: Path, tmp_path: Path, trees: dict) -> None:
    result = probekit.structural(
        *cached(tiny_bert, task(trees), tmp_path), ranks=2, epochs=1, resamples=200, groups="none"
    )
    [e] = result.predictions
    rows = result.rows[result.rows["metric"] == "difference(uuas)"]
    right, groups = e.predicted, np.unique(e.groups, return_inverse=True)[1]
    assert e.fits["estimator"].tolist() == ["linear-chain", *rows["estimator"]]
    np.testing.assert_allclose(rows["value"], right[1:].mean(1) - right[0].mean())
    assert (rows["ci_low"] < rows["value"]).all()
    assert (rows["p"] <= rows["p_adjusted"]).all()
    by_sentence = np.stack([np.bincount(groups, one - right[0]) for one in right[1:].astype(float)])
    signs = np.random.default_rng(0).choice([-1, 1], size=(4000, by_sentence.shape[1]))
    null = np.abs(signs @ by_sentence.T)
    np.testing.assert_allclose(rows["p"], (null >= np.abs(by_sentence.sum(1)) - 1e-9).mean(0), atol=0.04)
    [said] = sentences(result.rows)
    uuas = result.rows[(result.rows["metric"] == "uuas") & (result.rows["target"] == "gold")]
    best = rows.iloc[int(uuas[uuas["layer"].notna()]["value"].argmax())]
    beyond = "not shown to be above" if best["p_adjusted"] > 0.05 else "above" if best["value"] > 0 else "below"
    assert f"of the edges of gold trees, {beyond} the linear chain" in said
    known = sentences(uuas)
    assert "not tested against the linear chain" in known[0]


def test_shuffled_trees_are_those_of_other_sentences_of_the_same_length() -> None:
    length = np.array([3, 2, 3, 3, 2])
    of = np.repeat(np.arange(5), length)
    [shuffled] = _orders(length, StructuralOptions(controls=1))
    assert sorted(shuffled) == list(range(13))
    source = [set(of[shuffled[of == s]]) for s in range(5)]
    assert all(len(one) == 1 for one in source)
    assert [int(length[min(one)]) for one in source] == length.tolist()
    assert not [s for s in range(5) if source[s] == {s}]


def test_sentences_of_a_length_of_their_own_are_not_in_the_control(tiny_bert: Path, tmp_path: Path) -> None:
    """Their tree would be their own: train has lengths 2 to 4 twice and 6 once, dev 2 twice and 5 once."""
    rng = np.random.default_rng(0)
    lengths = {"train": (2, 2, 3, 3, 4, 4, 6), "dev": (2, 5, 2)}
    trees = {split: [heads_of(rng, n) for n in its] for split, its in lengths.items()}
    caches = cached(tiny_bert, task(trees), tmp_path)
    rows = probekit.structural(*caches, ranks=2, epochs=1, resamples=0, groups="none").rows
    sizes = rows.drop_duplicates(["target", "n", "n_train"])[["target", "n", "n_train"]]
    assert sorted(sizes.itertuples(index=False, name=None)) == [("gold", 3, 7), ("shuffled", 2, 6)]


def test_without_two_sentences_of_a_length_there_is_no_control(
    tiny_bert: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    trees = {"train": [heads_of(rng, n) for n in (2, 2, 3, 4)], "dev": [heads_of(rng, n) for n in (2, 3)]}
    caches = cached(tiny_bert, task(trees), tmp_path)
    rows = probekit.structural(*caches, ranks=2, epochs=1, resamples=0, groups="none").rows
    assert set(rows["target"]) == {"gold"}
    assert "there are no shuffled trees, because no two sentences have the same length" in caplog.text


def test_the_scoreboard_chooses_the_layer_on_held_out_sentences_of_train(
    tiny_bert: Path, tmp_path: Path, trees: dict
) -> None:
    caches = cached(tiny_bert, task(trees), tmp_path)
    result = probekit.structural(*caches, ranks=2, epochs=2, resamples=100, groups="none")
    gold = result.rows[(result.rows["metric"] == "uuas") & (result.rows["estimator"] == "structural-2")]
    gold = gold[gold["target"] == "gold"].set_index("layer")
    board = probekit.scoreboard(result, resamples=200)
    scores = board.rows[board.rows["metric"] == "normalised(uuas)"].set_index("layer")
    assert set(scores["chosen_by"]) == {"held-out"}
    assert scores.index[scores["chosen"].astype(bool)].tolist() == [gold["held_out"].astype(float).idxmin()]
    chain = result.rows[(result.rows["estimator"] == "linear-chain") & (result.rows["metric"] == "uuas")][
        "value"
    ].item()
    shuffled = result.rows[(result.rows["target"] == "shuffled") & (result.rows["metric"] == "uuas")]
    control = shuffled.set_index("layer")["value"].clip(lower=chain)
    np.testing.assert_allclose(scores["control"], control.reindex(scores.index))
    assert set(scores["against"]) <= {"linear-chain", "shuffled-trees"}
    assert (scores["ci_low"] <= scores["value"]).all()
    assert (scores["value"] <= scores["ci_high"]).all()


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        pytest.param([0, 3, 0], "two roots", marks=pytest.mark.slow),
        pytest.param([0, 1, 0], "two roots", marks=pytest.mark.slow),
        ([2, 1, 0], "a cycle: word 1 -> 2 -> 1"),
        pytest.param([2, 3, 1], "no root", marks=pytest.mark.slow),
        pytest.param([2, 1], "no root", marks=pytest.mark.slow),
    ],
)
def test_what_is_not_a_tree_says_which_sentence(
    tiny_bert: Path, tmp_path: Path, trees: dict, heads: list[int], said: str
) -> None:
    bad = task({"train": trees["train"], "dev": [*trees["dev"], heads, [2, 0]]})
    with pytest.raises(DataError, match=f"dev.h5: the sentence dev30 is not a tree; it has {said}.*cache them again"):
        probekit.structural(*cached(tiny_bert, bad, tmp_path))


def test_sentences_that_were_cut_off_are_counted(
    tiny_bert: Path, tmp_path: Path, trees: dict, caplog: pytest.LogCaptureFixture
) -> None:
    short = cached(tiny_bert, task(trees), tmp_path, max_length=7)[1]
    with ActivationCache(short) as cache:
        bank = treebank(cache)
    assert 0 < len(bank.length) < sum(len(tree) > 1 for tree in trees["dev"])
    assert bank.length.max() < max(map(len, trees["dev"]))
    assert "did not read all of their words" in caplog.text


def test_tasks_without_heads_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    plain = load_task("grammar:acceptability")
    caches = cached(tiny_bert, plain, tmp_path, limit=20, tokens=True)
    with pytest.raises(UsageError, match="no labels of spans"):
        probekit.structural(*caches[:2])
    words = Example("w", "the cat sat", words=("the", "cat", "sat"), targets=(Target((Span(0, 1),), 0),))
    spans = Task("spans", TaskKind.SPAN_LABELLING, {n: Split(n, (words,)) for n in ("train", "dev")}, ("a", "b"))
    (tmp_path / "spans").mkdir()
    with pytest.raises(
        UsageError, match="need a tree for each sentence, as ud-relations has; targets of spans are not"
    ):
        probekit.structural(*cached(tiny_bert, spans, tmp_path / "spans"))
    with pytest.raises(UsageError, match="given in pairs"):
        probekit.structural(*caches[:2], caches[0])
