"""Several seeds in one folder: the same runs as alone, their means, and the runs that failed."""

from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from lessons import SHORT, praise, same_weights
from scipy.stats import beta

from probekit.adaptation.options import TrainOptions
from probekit.adaptation.runs.folder import read_card
from probekit.adaptation.runs.seeds import FAILED, described, has_failed, over_seeds
from probekit.adaptation.train import train
from probekit.errors import ModelError, NonFiniteError, UsageError
from probekit.rows import make_rows, read_rows

ONE = SHORT | {"epochs": 1}


def test_seeds_are_the_runs_of_each_seed_with_their_means(tiny_bert, tmp_path):
    found = train(praise(), tiny_bert, tmp_path / "several", seeds=2, seed=3, **ONE)
    alone = train(praise(), tiny_bert, tmp_path / "alone", seed=4, **ONE)
    assert [run.card["seeds"]["seed"] for run in found.runs] == [3, 4]
    assert same_weights(found.runs[1].path, alone.path)
    rows = read_rows(tmp_path / "several" / "rows.parquet")
    mean = rows[rows["seed"].isna() & (rows["metric"] == "accuracy")].iloc[0]
    values = [run.metrics["accuracy"] for run in found.runs]
    assert mean["value"] == pytest.approx(np.mean(values))
    assert mean["sd"] == pytest.approx(np.std(values, ddof=1))
    assert found.metrics["accuracy"] == pytest.approx(np.mean(values))
    assert "over 2 seeds" in next(described(rows))
    before = (tmp_path / "several/seed-3/probekit.json").stat().st_mtime_ns
    more = train(praise(), tiny_bert, tmp_path / "several", seeds=3, seed=3, **ONE)  # adds one run
    assert len(more.runs) == 3
    assert (tmp_path / "several/seed-3/probekit.json").stat().st_mtime_ns == before
    with pytest.raises(ModelError, match=r"several seeds; give one of them, such as .*seed-3"):
        read_card(tmp_path / "several")
    with pytest.raises(UsageError, match="holds a single run"):
        train(praise(), tiny_bert, tmp_path / "alone", seeds=2, **ONE)


def test_diverged_runs_are_counted(tiny_bert, tmp_path, monkeypatch):
    training = import_module("probekit.adaptation.train")

    real = training.fit

    def fit(given, *args, **kwargs):
        if given.options.seed == 0:
            raise NonFiniteError("the loss is not finite at step 1.")
        return real(given, *args, **kwargs)

    monkeypatch.setattr(training, "fit", fit)
    found = train(praise(), tiny_bert, tmp_path / "runs", seeds=2, **ONE)
    share = found.rows[found.rows["metric"] == FAILED].iloc[0]
    assert share["runs"] == 2
    assert share["value"] >= 0.5
    assert list(found.card["diverged"]) == [0]
    monkeypatch.setattr(training, "fit", lambda *_, **__: fit(type("O", (), {"options": TrainOptions(**ONE)})()))
    with pytest.raises(NonFiniteError, match="no run of 2"):
        train(praise(), tiny_bert, tmp_path / "none", seeds=2, **ONE)


def results(values, constant=0.5, name="accuracy"):
    about = {"task": "t", "split": "dev", "model": "m", "representation": "first", "target": "gold", "n": 9}
    about |= {"metric": name, "ci_low": 0.4, "ci_high": 0.9, "headline": True, "epoch": 1}
    runs = [{**about, "estimator": "", "value": v, "seed": i, "kept": True} for i, v in enumerate(values)]
    base = {**about, "estimator": "majority", "value": constant, "seed": 0, "kept": False, "headline": False}
    return make_rows([*runs, base])


def test_the_share_of_failed_runs_has_an_exact_interval():
    rows = over_seeds(results([0.5, 0.8, 0.9, 0.7]), ("accuracy",), analysis="train", diverged=(7,))
    share = rows[rows["metric"] == FAILED].iloc[0]
    assert (share["value"], share["runs"]) == (2 / 5, 5)
    assert share["ci_low"] == pytest.approx(beta.ppf(0.025, 2, 4))
    assert share["ci_high"] == pytest.approx(beta.ppf(0.975, 3, 3))
    mean = rows[rows["seed"].isna() & (rows["metric"] == "accuracy")].iloc[0]
    assert (mean["value"], mean["runs"], mean["ci_low"]) == (pytest.approx(0.725), 4, pytest.approx(0.4))
    assert pd.isna(mean["step"])


@pytest.mark.parametrize(
    ("name", "value", "constant", "failed"),
    [("accuracy", 0.6, 0.6, True), ("accuracy", 0.61, 0.6, False), ("rmse", 1.0, 0.9, True), ("rmse", 0.8, 0.9, False),
     ("pearson", np.nan, np.nan, True), ("pearson", -0.1, 0.0, True)],
)  # fmt: skip
def test_what_counts_as_failed(name, value, constant, failed):
    assert has_failed(name, value, constant) is failed


@pytest.mark.slow
def test_a_fraction_of_the_examples(tiny_bert, tmp_path):
    some = train(praise(), tiny_bert, tmp_path / "some", fraction=0.5, **ONE)
    same = train(praise(), tiny_bert, tmp_path / "same", limit=20, **ONE)
    assert some.card["examples"][0] == 20
    assert same_weights(some.path, same.path)
    with pytest.raises(UsageError, match="give one of them"):
        TrainOptions(fraction=0.5, limit=3)


@pytest.mark.slow
def test_each_task_of_several_has_its_own_means_and_failures(tiny_bert, tmp_path):
    also = "grammar:acceptability"
    found = train("grammar:sentiment", tiny_bert, tmp_path / "runs", also=also, seeds=2, limit=24, **ONE)
    rows = found.rows[found.rows["estimator"] == ""]
    means = rows[rows["seed"].isna() & (rows["metric"] != FAILED)]
    assert set(means["task"]) == {"grammar:sentiment", also}
    for row in means.to_dict("records"):
        same = rows[(rows["task"] == row["task"]) & (rows["metric"] == row["metric"]) & rows["seed"].notna()]
        assert (row["runs"], len(same)) == (2, 2)
        assert row["value"] == pytest.approx(same["value"].astype(float).mean())
    assert rows[rows["metric"] == FAILED].groupby("task")["runs"].first().tolist() == [2, 2]
    assert found.metrics["accuracy"] == pytest.approx(np.mean([run.metrics["accuracy"] for run in found.runs]))
