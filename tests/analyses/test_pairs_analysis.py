"""`probekit.pairs` end to end: models with planted preferences, caches, intervals, errors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

import probekit
from probekit.analyses.pairs import PairOptions
from probekit.analyses.pairs.measure import pair_rows, probed
from probekit.analyses.pairs.sentences import sentences
from probekit.analyses.vectors import columns_of
from probekit.errors import DataError, UsageError
from probekit.models.scoring import load_scorer
from probekit.probes.pairs import held_out_scores
from probekit.rows import make_rows
from probekit.statistics.proportions import mean_of_proportions, wilson
from probekit.tasks.pairs import Pair

NOUNS, VERBS = ("cat", "dog", "bird", "child", "teacher"), ("sleeps", "runs", "sees")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Word order, in three paradigms: 15 pairs each."""
    path = tmp_path_factory.mktemp("pairs") / "order.tsv"
    lines = ["good\tbad\tparadigm\tdistance"]
    for k, word in enumerate(("the", "a", "very")):
        lines += [f"{word} {n} {v}\t{word} {v} {n}\t{word}\t{k}" for n in NOUNS for v in VERBS]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_language_model("gpt2", tmp_path_factory.mktemp("gpt2"), causal=True)


def test_accuracy_counts_the_pairs_whose_good_sentence_scores_higher(gpt2: Path, table: Path) -> None:
    result = probekit.pairs(gpt2, str(table), by=("distance",), by_layer=True)
    scorer, lines = load_scorer(gpt2), [line.split("\t") for line in table.read_text().splitlines()[1:]]
    scores = [scorer.score([line[i] for line in lines])["log-probability"][:, 0] for i in (0, 1)]
    right = scores[0] > scores[1]
    rows = result.rows[(result.rows["estimator"] == "log-probability") & result.rows["layer"].isna()]
    by = {(level, of): value for level, of, value in zip(rows["level"], rows["of"], rows["value"], strict=True)}
    assert by["all", ""] == pytest.approx(right.mean())
    for k, word in enumerate(("the", "a", "very")):
        mine = right[[line[2] == word for line in lines]].mean()
        assert by["paradigm", word] == by["distance", str(k)] == pytest.approx(mine)
    (predictions,) = result.predictions
    assert np.array_equal(predictions.predicted[0], right)
    lens = result.rows[(result.rows["representation"] == "logit-lens") & (result.rows["level"] == "all")]
    assert lens["layer"].dropna().unique().tolist() == [0, 1, 2, 3]
    last = lens[(lens["layer"] == 3) & (lens["estimator"] == "log-probability")]["value"].iloc[0]
    assert last == pytest.approx(by["all", ""])
    assert "log-probability" in result.verdict[0]


def test_scores_by_length_and_after_a_prefix(gpt2: Path, tmp_path: Path) -> None:
    """Each score is that of the sentence as a continuation of its own context, divided by its length."""
    lines = [("the dog", "it was très good", "it was bad"), ("a bird", "the cat sleeps", "cat the sees run")]
    (tmp_path / "own.tsv").write_text("good\tbad\tcontext\n" + "\n".join(f"{g}\t{b}\t{c}" for c, g, b in lines))
    per = ("pieces", "words", "characters", "bytes")
    result = probekit.pairs(gpt2, str(tmp_path / "own.tsv"), per=per, prefix="see {context}:")
    scorer, (predictions,) = load_scorer(gpt2), result.predictions
    for k, size in enumerate((None, lambda t: len(t.split()), len, lambda t: len(t.encode()))):
        gaps = []
        for context, *both in lines:
            nats = scorer.continuations([f"see {context}: "] * 2, both)
            mean = scorer.continuations([f"see {context}: "] * 2, both, "mean-log-probability")
            good, bad = mean if size is None else nats / [size(text) for text in both]
            gaps.append(good > bad)
        assert predictions.predicted[k].astype(bool).tolist() == gaps
    names = ["log-probability per piece", "… word", "… character", "… byte"]
    assert [*predictions.fits["estimator"]] == [name.replace("…", "log-probability per") for name in names]
    with pytest.raises(UsageError, match="the pairs have no column 'contxt'"):
        probekit.pairs(gpt2, str(tmp_path / "own.tsv"), prefix="{contxt}")
    with pytest.raises(UsageError, match="mean-log-probability is log-probability per pieces"):
        PairOptions(per=("words",), scores=("mean-log-probability",))


def test_rows_name_the_model_and_its_checkpoint_as_those_of_caches_do(gpt2: Path, table: Path, tmp_path: Path) -> None:
    step = shutil.copytree(gpt2, tmp_path / "checkpoint-120")
    card = {"format": "probekit-run/1", "run": "cola-seed-1", "model": "tiny", "step": 120, "regime": "fine-tune",
            "task": "cola", "seeds": {"seed": 1}}  # fmt: skip
    (step / "probekit.json").write_text(json.dumps(card))
    for how in ({}, {"model_name": "mine"}, {"random_weights": 3}, {"random_weights": 3, "model_name": "mine"}):
        cache = probekit.cache_activations(
            step, "grammar:acceptability", "dev", limit=4, out=tmp_path / "c.h5", overwrite=True, **how
        )
        wanted = columns_of(cache, "lm-head")
        result = probekit.pairs(step, str(table), limit=2, **how)
        for rows in (result.rows, result.predictions[0].fits):
            row = rows.iloc[0].to_dict()
            for name in set(wanted) - {"task", "split"}:
                assert row[name] == wanted[name] or (np.isnan(row[name]) and wanted[name] is None)
    named = probekit.pairs(step, str(table), limit=2, model_name="mine").rows.iloc[0]
    assert named[["model", "checkpoint", "step", "trained_on"]].tolist() == ["mine", "cola-seed-1", 120, "cola"]


def test_the_name_of_a_cache_is_not_changed(table: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="model_name is for models"):
        probekit.pairs(tmp_path / "c.h5", str(table), model_name="mine")


def test_probes_find_word_order_in_a_cache_and_nothing_in_exchanged_pairs(
    tiny_bert: Path, table: Path, tmp_path: Path
) -> None:
    from probekit.tasks import DATASETS
    from probekit.tasks.pairs import load_pairs

    task = load_pairs(str(table)).task(DATASETS["blimp"])
    cache = probekit.cache_activations(
        str(tiny_bert), task, "test", out=str(tmp_path / "c.h5"), pooling=("last", "mean")
    )
    result = probekit.pairs(cache, str(table), controls=20, pooling="last")
    rows = result.rows[result.rows["level"] == "all"]
    gold, noise = (rows[rows["target"] == target] for target in ("gold", "shuffled"))
    assert gold.loc[gold["layer"] == 3, "value"].iloc[0] > 0.9
    assert noise.groupby("layer")["value"].mean().between(0.35, 0.65).all()
    first = gold[gold["layer"] == 0].iloc[0]  # the last piece is [SEP] in both: all scores are equal
    assert (first["value"], first["ties"], first["n"]) == (0.5, 45, 45)


def slow_scores(x: np.ndarray, groups: np.ndarray, penalty: float) -> np.ndarray:
    out = np.empty(len(x))
    for g in np.unique(groups):
        train = x[groups != g]
        scale = np.sqrt((train**2).mean(0))
        z = train / scale
        w = np.linalg.solve(z.T @ z + len(z) * penalty * np.eye(x.shape[1]), z.sum(0))
        out[groups == g] = x[groups == g] / scale @ w
    return out


def test_held_out_scores_are_ridge_regressions_on_the_other_groups() -> None:
    rng = np.random.default_rng(0)
    x, groups = rng.normal(0.3, 1, (90, 7)) * np.arange(1, 8), np.repeat(["a", "b", "c"], 30)
    found = held_out_scores(x, groups, (0.1,))
    np.testing.assert_allclose(found[0], slow_scores(x, groups, 0.1), rtol=1e-5)
    assert (found[0] > 0).mean() > 0.7


@pytest.mark.slow
def test_probes_of_noise_prefer_good_half_of_the_time() -> None:
    """Differences without signal, fewer pairs than dimensions: mean accuracy 0.5 within 3 Monte Carlo errors."""
    rng, n = np.random.default_rng(1), 60
    groups = np.repeat(np.arange(6), 10)
    values = [(held_out_scores(rng.normal(size=(n, 100)), groups, (0.01, 1.0))[0] > 0).mean() for _ in range(40)]
    assert abs(np.mean(values) - 0.5) < 3 * 0.5 / np.sqrt(n * 40) * 1.5  # 1.5: the folds share their training pairs


def test_intervals_of_means_cover_at_their_level() -> None:
    """12 paradigms of 30 to 60 pairs, with accuracies near 1 too: coverage of 95 % intervals in 4,000 draws."""
    rng = np.random.default_rng(2)
    n, p = rng.integers(30, 60, 12), rng.beta(4, 1, 12)
    draws = rng.binomial(n, p, size=(4000, 12))
    ends = np.array([mean_of_proportions(k, n)[1:] for k in draws])
    covered = ((ends[:, 0] <= p.mean()) & (p.mean() <= ends[:, 1])).mean()
    assert 0.935 < covered < 0.975  # Monte Carlo error 0.0034; MOVER is a little conservative near 1
    low, high = wilson(np.array([0, 5, 10]), np.array([10, 10, 10]))
    assert low[0] == 0
    assert high[2] == 1
    from scipy.stats import binomtest

    right = binomtest(5, 10).proportion_ci(method="wilson")
    assert (low[1], high[1]) == pytest.approx((right.low, right.high))


def test_errors_say_what_to_do(gpt2: Path, tiny_bert: Path, minilm: Path, table: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no head of a language model.*pretrained as a language model"):
        probekit.pairs(minilm, str(table))
    with pytest.raises(UsageError, match="no column 'distanc'.*distance"):
        probekit.pairs(gpt2, str(table), by=("distanc",))
    with pytest.raises(UsageError, match="unknown score"):
        probekit.pairs(gpt2, str(table), scores=("sum",))
    with pytest.raises(UsageError, match="for caches"):
        probekit.pairs(gpt2, str(table), pooling="mean")
    cache = probekit.cache_activations(
        str(tiny_bert), "grammar:acceptability", "dev", out=str(tmp_path / "g.h5"), limit=8
    )
    with pytest.raises(DataError, match="both of its sentences"):
        probekit.pairs(cache, str(table))


@pytest.mark.usefixtures("reproduced_here")
def test_the_command_prints_a_table_and_a_sentence(
    gpt2: Path, table: Path, tmp_path: Path, call: Callable[..., Any]
) -> None:
    done = call("pairs", gpt2, table, "--by-layer", "--limit", "5", "--out", tmp_path / "rows.parquet")
    assert done.status == 0, done.err
    assert "logit-lens" in done.out
    assert "prefers the acceptable sentence" in done.out
    again = call("reproduce", f"{tmp_path / 'rows.parquet'}.json")
    assert again.status == 0, again.err


def verdicts(right: np.ndarray, n: int, copied: int = 1) -> list[str]:
    """The verdict on each model, from its counts of right pairs: (models, layers, paradigms); ``copied`` of each."""
    base = {
        "analysis": "pairs", "task": "t", "split": "test", "target": "gold", "metric": "accuracy",
        "estimator": "log-probability", "representation": "logit-lens",
    }  # fmt: skip
    rows = []
    for (model, layer), counts in ((at, right[at]) for at in np.ndindex(right.shape[:2])):
        value, low, high = mean_of_proportions(counts, np.full(len(counts), n))
        one = base | {"model": f"m{model}", "layer": layer, "n": n, "alike": float(copied)}
        whole = {"level": "all", "of": "", "value": value, "ci_low": low, "ci_high": high}
        rows += [
            one | whole,
            *(one | {"level": "paradigm", "of": str(i), "value": k / n} for i, k in enumerate(counts)),
        ]
    return list(sentences(make_rows(rows), ()))


def test_the_best_layer_has_an_interval_for_all_layers_at_once() -> None:
    (said,) = verdicts(np.array([[[50], [62], [55], [40]]]), 100)
    low, high = (float(x) for x in wilson(np.array(62), np.array(100), 1 - 0.05 / 4))
    assert f"62.0 % ({100 * low:.1f}–{100 * high:.1f})" in said
    assert "layer 1 of m0, logit-lens, the best of 4, prefers" in said
    assert "not shown to be above chance" in said  # with its own interval, from 52.2 %, it would be


def test_the_sentence_counts_copies_of_a_pair_once() -> None:
    (said,) = verdicts(np.array([[[80]]]), 120, copied=4)
    low, high = (float(x) for x in wilson(np.array(20), np.array(30)))
    assert f"66.7 % ({100 * low:.1f}–{100 * high:.1f}) of 120 pairs, not shown to be above chance" in said


@pytest.mark.slow
def test_the_best_of_many_layers_at_chance_is_seldom_above_chance() -> None:
    """100 models of 13 independent layers at chance: 2.5 % of them at most, with a Monte Carlo error of 1.6 %."""
    said = verdicts(np.random.default_rng(3).binomial(60, 0.5, (100, 13, 2)), 60)
    assert sum("not shown to be above chance" not in one for one in said) / 100 <= 0.025 + 2 * 0.016


def of_noise(rng: np.random.Generator, template: float, paradigms: int = 8, copied: int = 1) -> tuple[dict, str]:
    """The row of all pairs and the sentence, where the pairs of a paradigm share this much of their difference."""
    of = np.repeat(np.arange(paradigms), 96 // paradigms)
    x = template * rng.normal(size=(paradigms, 20))[of] + (1 - template) * rng.normal(size=(96, 20))
    again = np.repeat(np.arange(96), copied)
    found = [Pair(str(j), f"good {i}", f"bad {i}", f"p{of[i]}") for j, i in enumerate(again)]
    options = PairOptions(controls=0)
    fits, gaps, exchanged = probed([("0", x[again])], found, options)
    about = {"analysis": "pairs", "task": "t", "split": "test", "model": "m", "representation": "mean",
             "estimator": "pair-probe"}  # fmt: skip
    rows = make_rows(pair_rows([about | fit for fit in fits], gaps, found, options, exchanged))
    return rows.iloc[0].to_dict(), next(iter(sentences(rows, ())))


def test_paradigms_that_are_right_or_wrong_as_wholes_are_no_evidence_of_many_pairs() -> None:
    """Eight templates of 12 pairs: the interval is that of about five independent answers, not of 96."""
    told = [of_noise(np.random.default_rng(seed), 0.95) for seed in range(4)]
    for row, text in told:
        assert row["exchanged"] == 8
        assert row["ci_low"] < 0.5 < row["ci_high"]
        assert row["ci_high"] - row["ci_low"] > 0.45
        assert row["p_adjusted"] > 0.05
        assert "not shown to be above chance" in text
    row, text = of_noise(np.random.default_rng(0), 0.95, paradigms=3)
    assert row["p"] > 0.05
    assert "(3 phenomena or paradigms cannot show it)" in text or row["value"] <= 0.5


def test_probes_of_noise_vary_more_than_independent_pairs_and_copies_count_once() -> None:
    """Two paradigms: pairs are exchanged. The fitted probes depend on each other, and pairs twice are no new ones."""
    one, two = (of_noise(np.random.default_rng(1), 0, paradigms=2, copied=k)[0] for k in (1, 2))
    low, high = wilson(np.array(48), np.array(96))
    width = one["ci_high"] - one["ci_low"]
    assert 1.1 < width / float(high - low) < 1.5
    assert 0.85 < (two["ci_high"] - two["ci_low"]) / width < 1.2
    assert (one["exchanged"], two["exchanged"], two["n"]) == (96, 96, 192)


def test_a_probe_that_knows_is_above_chance() -> None:
    rng, options = np.random.default_rng(2), PairOptions(controls=0)
    found = [Pair(str(i), f"good {i}", f"bad {i}", f"p{i % 8}") for i in range(160)]
    fits, gaps, exchanged = probed([("0", rng.normal(size=(160, 10)) + 0.6)], found, options)
    about = {"analysis": "pairs", "task": "t", "split": "test", "model": "m", "representation": "mean",
             "estimator": "pair-probe"}  # fmt: skip
    rows = make_rows(pair_rows([about | fit for fit in fits], gaps, found, options, exchanged))
    [text] = sentences(rows, ())
    assert rows["p_adjusted"].iloc[0] < 0.05
    assert ", above chance" in text
    bare, _, none = probed([("0", rng.normal(size=(160, 10)))], found, PairOptions(controls=0, resamples=0))
    rows = make_rows(pair_rows([about | fit for fit in bare], gaps, found, options, none))
    assert np.isnan(rows["ci_low"].iloc[0])
    assert "not tested" in next(iter(sentences(rows, ())))
