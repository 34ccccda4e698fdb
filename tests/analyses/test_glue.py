"""The GLUE score: the paper's averages, its intervals, and what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import probekit
from probekit.analyses.glue import GLUE, MEASURED, WNLI, glue_score
from probekit.errors import UsageError
from probekit.rows import make_fits, make_rows
from probekit.statistics.bootstrap import bounds
from probekit.statistics.predictions import Predictions

PAPER = Path(__file__).parents[2] / "../shared/published/bowman-2018.csv"


def row(task, metric, value, *, model="m", split="dev", half=0.02, **more):
    return {
        "analysis": "train", "task": task, "trained_on": task, "split": split, "model": model, "metric": metric,
        "checkpoint": f"{model}-{task}", "regime": "feature-extraction", "head": "max-mlp", "variant": "", "n": 100,
        "representation": "tokens", "estimator": "", "target": "gold", "value": value, "ci_low": value - half,
        "ci_high": value + 2 * half, "kept": True, "seed": 0, "step": 10,
    } | more  # fmt: skip


def encoder(values=None, **more):
    """Rows of an encoder with the same number everywhere, or with these by task."""
    values = dict.fromkeys(GLUE, 0.5) if values is None else values
    return [row(t, m, value, **more) for t, value in values.items() for m in GLUE[t]]


def of(found, task, model="m"):
    (one,) = found[(found["task"] == task) & (found["model"] == model)].to_dict("records")
    return one


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.skipif(not PAPER.exists(), reason=f"the published numbers are not at {PAPER}")
def test_the_averages_of_the_paper():
    """The row of the random encoder with ELMo is printed as 70.5; its columns give 72.1."""
    paper = pd.read_csv(PAPER, comment="#", dtype={"table": str})
    paper = paper[(paper["table"] == "1") & (paper["split"] == "dev")]
    off = {}
    for key, part in paper.groupby(["section", "pretraining", "elmo"], sort=False):
        name, numbers = "/".join(key), part[part["task"] != "average"]
        assert len(numbers) == 12
        records = numbers[["task", "metric", "value"]].itertuples(index=False)
        rows = [row(task, metric, value / 100, model=name) for task, metric, value in records]
        mine = 100 * of(glue_score(make_rows(rows)), "glue", name)["value"]
        off[name] = mine - float(part.loc[part["task"] == "average", "value"].iloc[0])
    assert {name for name, one in off.items() if abs(one) > 0.1} == {"Baselines/random/yes"}
    assert len(off) - 1 == len(paper[paper["task"] == "average"]) - 1
    assert off["Baselines/random/yes"] == pytest.approx(1.6, abs=0.05)


def test_two_metrics_are_averaged_first_and_wnli_is_the_most_frequent_class():
    values = {task: 0.1 * i for i, task in enumerate(MEASURED, start=1)}
    rows = encoder(values | {"wnli": 0.3})
    for one in rows:
        one["value"] += 0.06 * (one["metric"] in ("f1", "spearman"))
        one |= {"ci_low": one["value"] - 0.02, "ci_high": one["value"] + 0.04}
    found = probekit.glue_score(make_rows(rows))
    assert list(found["task"]) == [*GLUE, "glue"]
    assert of(found, "mrpc")["value"] == pytest.approx(0.33)
    assert of(found, "wnli")["value"] == WNLI == 40 / 71
    whole = of(found, "glue")
    assert whole["value"] == pytest.approx((sum(values.values()) + 3 * 0.03 + WNLI) / 9)
    assert whole["value"] - whole["ci_low"] == pytest.approx(0.02 * 8**0.5 / 9)
    assert whole["ci_high"] - whole["value"] == pytest.approx(0.04 * 8**0.5 / 9)
    assert (whole["metric"], whole["tasks"]) == ("glue-score", 9)


def test_other_rows_change_nothing():
    plain = glue_score(make_rows(encoder()))
    strange = [
        row("cola", "matthews", 0.9, kept=False, step=20),
        row("cola", "matthews", 0.9, estimator="majority"),
        row("cola", "accuracy", 0.9),
        row("cola", "matthews", 0.9, split="dev-in-domain"),
        row("rte", "accuracy", 0.9, trained_on="mnli"),
        row("trec", "accuracy", 0.9),
    ]
    again = encoder()[:1]  # probekit evaluate on the same split
    again[0]["analysis"] = "evaluate"
    pd.testing.assert_frame_equal(glue_score(make_rows(encoder() + strange + again)), plain)


def test_both_dev_splits_of_mnli():
    values = dict.fromkeys(MEASURED, 0.5)
    rows = [one for one in encoder(values) if one["task"] != "mnli"]
    rows += [row("mnli", "accuracy", 0.7, split="dev-matched"), row("mnli", "accuracy", 0.8, split="dev-mismatched")]
    one = of(glue_score(make_rows(rows)), "mnli")
    assert one["value"] == pytest.approx(0.75)
    assert one["value"] - one["ci_low"] == pytest.approx(0.02 / 2**0.5)


def test_dev_counts_before_a_held_out_part_of_train():
    values = dict.fromkeys(MEASURED, 0.5)
    rows = [one for one in encoder(values) if one["task"] != "mnli"]
    held = row("mnli", "accuracy", 0.9, split="validation")
    assert of(glue_score(make_rows([*rows, held])), "mnli")["value"] == pytest.approx(0.9)
    matched = [row("mnli", "accuracy", 0.7, split="dev-matched"), held]
    one = of(glue_score(make_rows([*rows, *matched])), "mnli")
    assert (one["value"], one["split"]) == (pytest.approx(0.7), "dev-matched")
    both = [*matched, row("mnli", "accuracy", 0.8, split="dev-mismatched")]
    assert of(glue_score(make_rows([*rows, *both])), "mnli")["value"] == pytest.approx(0.75)
    rte = row("rte", "accuracy", 0.9, split="validation")
    assert of(glue_score(make_rows([*rows, *both, rte])), "rte")["value"] == pytest.approx(0.5)


def test_seeds_are_averaged():
    values = dict.fromkeys(MEASURED, 0.5)
    found = glue_score(make_rows(encoder(values) + encoder(dict.fromkeys(MEASURED, 0.7), seed=1)))
    assert of(found, "rte")["value"] == pytest.approx(0.6)
    assert of(found, "glue")["seeds"] == 2


def test_missing_tasks():
    """The mean is over the tasks that both encoders have, and is not called the GLUE score."""
    full = dict.fromkeys(MEASURED, 0.5) | {"cola": 0.1}
    some = {"cola": 0.2, "sst2": 0.6, "rte": 0.4}
    rows = make_rows([*encoder(full, model="full"), *encoder(some, model="some")])
    found = glue_score(rows)
    assert of(found, "glue", "some")["value"] == pytest.approx(0.4)
    assert of(found, "glue", "full")["value"] == pytest.approx(1.1 / 3)
    assert set(found.loc[found["task"] == "glue", "metric"]) == {"glue-partial"}
    text = str(probekit.table("glue", rows))
    assert "mean of 3 tasks" in text
    assert "GLUE score |" not in text
    assert "some has no run on MRPC, QQP, STS-B, MNLI, QNLI, so there is no GLUE score." in text
    apart = glue_score(make_rows([*encoder({"cola": 0.1}, model="a"), *encoder({"rte": 0.1}, model="b")]))
    assert "glue" not in set(apart["task"])


def test_the_table():
    rows = make_rows([*encoder(model="a"), *encoder(dict.fromkeys(GLUE, 0.6), model="b")])
    made = probekit.table("glue", rows)
    head, _, first, second, *_ = str(made).splitlines()
    assert head.endswith("| CoLA | SST-2 | MRPC | QQP | STS-B | MNLI | QNLI | RTE | WNLI | GLUE score |")
    assert first.startswith("| a | feature extraction | 50.0 [48.0, 54.0] |")
    assert first.endswith("| 56.3 | 50.7 [50.1, 52.0] |")
    assert "| 56.3 | 59.6 [59.0, 60.9] |" in second
    assert "WNLI is counted as the most frequent class" in str(made)
    pd.testing.assert_frame_equal(probekit.table("glue", made.rows).rows, made.rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("trec", "accuracy", 0.5)], "no runs on GLUE tasks with a dev split; expected cola, sst2"),
        (encoder({"wnli": 0.5}), "no runs on GLUE tasks"),
        (
            encoder({"rte": 0.5}) + encoder({"rte": 0.6}, head="esim"),
            "m, feature-extraction, has several heads for rte",
        ),
    ],
)
def test_what_cannot_be_scored(rows, message):
    with pytest.raises(UsageError, match=message):
        glue_score(make_rows(rows))


def test_published_numbers_of_another_table():
    with pytest.raises(UsageError, match="the table glue does not show peters-2019/2; .* are bowman-2018/1"):
        probekit.table("glue", make_rows(encoder()), published="peters-2019/2")


# from predictions to the interval of the mean -----------------------------------------------------------------------

SIZES = {"cola": 200, "sst2": 170, "mrpc": 120, "qqp": 300, "stsb": 200, "mnli": 300, "qnli": 250, "rte": 100}
TRUTH = {"cola": 0.25, "sst2": 0.15, "mrpc": 0.2, "qqp": 0.17, "stsb": 0.7, "mnli": 0.26, "qnli": 0.2, "rte": 0.42}
"""Shares of wrong answers, of STS-B the noise."""


def answers(task, n, rng):
    """Gold values and predictions of a model that errs at random."""
    if task == "stsb":
        gold = rng.uniform(0, 5, n)
        return gold, gold + rng.normal(0, 5 * TRUTH[task] / 2, n)
    classes = 3 if task == "mnli" else 2
    gold = rng.integers(classes, size=n) if task != "mrpc" else (rng.random(n) < 0.68).astype(int)
    wrong = rng.random(n) < TRUTH[task]
    return gold, np.where(wrong, (gold + rng.integers(1, classes, size=n)) % classes, gold)


def scored(rng, resamples):
    rows = []
    for task, n in SIZES.items():
        gold, guess = answers(task, n, rng)
        fits = make_fits([{"target": "gold"}])
        table = Predictions(fits, np.arange(n).astype(str), gold, guess[None], GLUE[task], None)
        for name in GLUE[task]:
            found = bounds(**table.sample(), metric=name, resamples=resamples, seed=0)
            rows.append(row(task, name, float(found.value[0]), ci_low=found.ci[0, 0], ci_high=found.ci[0, 1]))
    return of(glue_score(make_rows(rows)), "glue")


def true_score():
    from probekit.metrics import metric

    rng, n = np.random.default_rng(1), 200_000
    means = [np.mean([metric(m)(*answers(t, n, rng)) for m in GLUE[t]]) for t in SIZES]
    return (sum(means) + WNLI) / 9


@pytest.mark.slow
def test_intervals_cover_the_score():
    truth, rng, rounds = true_score(), np.random.default_rng(0), 400
    ends = [(one["ci_low"], one["ci_high"]) for one in (scored(rng, 300) for _ in range(rounds))]
    covered = np.mean([low <= truth <= high for low, high in ends])
    assert 0.95 - 3 * (0.95 * 0.05 / rounds) ** 0.5 <= covered <= 0.99, covered
