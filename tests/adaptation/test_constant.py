"""The constant answer stands beside what a model says, in rows, cards and what commands print."""

import numpy as np
import pytest
from lessons import SHORT, count, praise, tags
from sklearn.metrics import log_loss

from probekit.adaptation.evaluate import evaluate
from probekit.adaptation.runs.constant import constants_of, warn_of_constant
from probekit.adaptation.search.search import search
from probekit.adaptation.search.space import Space
from probekit.adaptation.train import train
from probekit.metrics import metric
from probekit.rows import make_rows

ONE = SHORT | {"epochs": 1}


def test_of_classes(tiny_bert, tmp_path):
    task = praise(41, 21)
    run = train(task, tiny_bert, tmp_path / "run", **ONE)
    rows = constants_of(run.rows).set_index("metric")
    gold, known = task.labels("dev"), task.labels("train")
    assert set(rows["estimator"]) == {"majority"}
    assert set(rows["representation"]) == {"none"}
    assert not rows["kept"].any()
    assert not rows["headline"].any()
    common = np.bincount(known).argmax()
    assert rows.loc["accuracy", "value"] == pytest.approx((gold == common).mean())
    assert rows.loc["accuracy", "ci_low"] < rows.loc["accuracy", "value"] < rows.loc["accuracy", "ci_high"]
    assert rows.loc["matthews", "value"] == 0
    shares = np.bincount(known) / len(known)
    assert rows.loc["log-loss", "value"] == pytest.approx(log_loss(gold, np.tile(shares, (len(gold), 1))))
    again = constants_of(evaluate(run, task=task, split="dev", device="cpu").rows).set_index("metric")
    for name in rows.index:
        assert again.loc[name, "value"] == rows.loc[name, "value"]
        assert again.loc[name, "n"] == 21
    assert len(run.rows[run.rows["headline"].astype(bool)]) == 1


@pytest.mark.slow
def test_of_numbers_and_tags(tiny_bert, tmp_path):
    numbers = count()
    rows = constants_of(train(numbers, tiny_bert, tmp_path / "a", **ONE).rows).set_index("metric")
    assert set(rows["estimator"]) == {"mean"}
    assert rows.loc["pearson", "value"] == 0
    wanted = ((numbers.labels("dev") - numbers.labels("train").mean()) ** 2).mean()
    assert rows.loc["mean-squared-error", "value"] == pytest.approx(wanted)
    words = tags()
    rows = constants_of(train(words, tiny_bert, tmp_path / "b", **ONE).rows).set_index("metric")
    assert set(rows.index) == set(words.metrics)
    common = np.bincount(words.labels("train")).argmax()
    assert rows.loc["token-accuracy", "value"] == pytest.approx((words.labels("dev") == common).mean())


def row(name, value, low, high, **more):
    shared = {
        "analysis": "train",
        "task": "t",
        "split": "dev",
        "model": "m",
        "layer": None,
        "target": "gold",
        "n": 9,
        "representation": "none",
        "regime": "",
        "estimator": "",
    }
    return shared | {"metric": name, "value": value, "ci_low": low, "ci_high": high} | more


@pytest.mark.parametrize(
    ("name", "value", "low", "high", "constant", "warned"),
    [
        ("accuracy", 0.4874, 0.45, 0.52, 0.527, "worse"),
        ("accuracy", 0.55, 0.51, 0.59, 0.527, "not shown"),
        ("accuracy", 0.60, 0.55, 0.65, 0.527, ""),
        ("rmse", 1.0, 0.8, 1.2, 1.1, "not shown"),
        ("rmse", 1.4, 1.2, 1.6, 1.1, "worse"),
        ("rmse", 0.7, 0.6, 0.8, 1.1, ""),
        ("matthews", -0.093, -0.151, -0.025, 0.0, "worse"),
        ("matthews", 0.0, np.nan, np.nan, 0.0, "not shown"),
    ],
)
def test_a_number_that_is_not_above_it_is_told(name, value, low, high, constant, warned, caplog):
    assert metric(name).sign
    model = row(name, value, low, high, headline=True, kept=True)
    answer = row(name, constant, constant - 0.01, constant + 0.01, headline=False, kept=False, estimator="majority")
    warn_of_constant(make_rows([model, answer]))
    assert ("is not shown to be better than the constant prediction" in caplog.text) is (warned == "not shown")
    assert ("is worse than the constant prediction" in caplog.text) is (warned == "worse")


@pytest.mark.slow
def test_a_search_keeps_it_apart_from_its_means(tiny_bert, tmp_path, caplog):
    space = {"learning_rate": [1e-4], "epochs": 1}
    asked = Space(task="grammar:sentiment", model=str(tiny_bert), trials=1, seeds=2, limit=24, test="", space=space)
    rows = search(asked, out=tmp_path / "out", device="cpu").rows
    answer = constants_of(rows)
    assert answer["metric"].tolist() == ["accuracy", "log-loss"]
    means = rows[rows["seed"].isna() & (rows["analysis"] == "search") & (rows["metric"] == "accuracy")]
    assert len(means) == 1
    seeds = rows[rows["seed"].notna() & (rows["estimator"] == "") & (rows["metric"] == "accuracy")]
    assert means["value"].tolist() == [pytest.approx(seeds["value"].mean())]
