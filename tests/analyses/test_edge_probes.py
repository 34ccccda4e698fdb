"""``probekit edges``: from sentences to rows, figures and verdicts; what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import probekit
from probekit.activations import ActivationCache
from probekit.errors import CacheMismatch, UsageError
from probekit.plots.layers import curve_rows
from probekit.plots.mix import mix_rows
from probekit.rows import Result
from probekit.tasks import load_task
from probekit.tasks.task import Example, Span, Split, Target, Task, TaskKind
from probekit.tasks.union import union
from tests.analyses.test_probe_spans import MANY, ONE, cached

QUICK = {"projection": 8, "hidden": 16, "steps": 200, "check": 40, "groups": "none", "resamples": 100}


@pytest.fixture(scope="module")
def one(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return cached(tiny_bert, ONE, tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def result(one: list[Path]) -> Result:
    return probekit.edges(*one, **QUICK, seeds=2)


def test_rows_are_of_layers_mixes_and_controls(result: Result, one: list[Path]) -> None:
    rows = result.rows
    with ActivationCache(one[0]) as cache:
        count = len(cache.layers)
    main = rows[rows["metric"] == "accuracy"]
    gold = main[(main["target"] == "gold") & (main["site"] != "")]
    assert gold["representation"].value_counts().to_dict() == {"attention": count, "mix": count}
    assert set(main["target"]) == {"gold", "shuffled", "control-task"}
    shuffled = main[(main["target"] == "shuffled") & main["draw"].notna()]
    assert shuffled["representation"].value_counts().to_dict() == {"attention": count, "mix": count}
    assert set(main.loc[main["target"] == "control-task", "representation"]) == {"attention"}
    assert shuffled.loc[shuffled["layer"] == 0, "value"].nunique() == 1
    first = gold[gold["layer"] == 0]
    assert first["value"].nunique() == 1  # the mix of the first layer is its probe
    assert first["value"].iloc[0] > 0.95  # the label is the word itself
    selective = rows[rows["metric"] == "selectivity(accuracy)"]
    assert len(selective) == count
    assert (gold["ci_low"] <= gold["value"]).all()
    (found,) = result.predictions
    assert found.ids[:5].tolist() == ["dev0:0", "dev0:1", "dev0:2", "dev0:3", "dev1:0"]
    for _, row in gold.iterrows():
        same = (found.fits["layer"] == row["layer"]) & (found.fits["representation"] == row["representation"])
        i = int(np.flatnonzero(same & (found.fits["target"] == "gold"))[0])
        assert row["value"] == pytest.approx((found.predicted[i] == found.gold[i]).mean())


def test_the_centre_of_gravity_is_that_of_the_weights_in_the_rows(result: Result) -> None:
    rows = result.rows
    weights = rows[rows["metric"] == "mix-weight"]
    by_seed = weights.groupby("seed")
    np.testing.assert_allclose(by_seed["value"].sum(), [1, 1])
    assert weights["gamma"].notna().all()
    centre = rows[rows["metric"] == "centre-of-gravity"].iloc[0]
    centres = [(part["layer"].astype(int) * part["value"]).sum() for _, part in by_seed]
    assert centre["value"] == pytest.approx(np.mean(centres))
    assert centre["runs"] == 2
    assert 0 <= centre["ci_low"] < centre["value"] < centre["ci_high"]
    assert rows.loc[rows["metric"] == "expected-layer", "of_metric"].tolist() == ["accuracy", "macro-f1"]


def test_mixes_stand_beside_shuffled_labels_in_the_scoreboard(result: Result) -> None:
    board = probekit.scoreboard(result, resamples=100).rows
    mixes = board[(board["line"] == "one, edges, mix") & board["metric"].str.startswith("normalised(")]
    assert len(mixes)
    rows = result.rows[result.rows["metric"] == "accuracy"]
    majority = rows.loc[rows["estimator"] == "majority", "value"].item()
    noise = rows[(rows["target"] == "shuffled") & (rows["representation"] == "mix") & rows["draw"].notna()]
    control = noise.groupby("layer")["value"].mean().clip(lower=majority)
    np.testing.assert_allclose(mixes.set_index("layer")["control"], control.reindex(mixes["layer"]))
    assert not mixes["counted"].any()  # the layers count


def test_figures_summaries_and_verdicts_read_the_rows(result: Result) -> None:
    drawn = curve_rows(result.rows)
    assert set(drawn.loc[drawn["role"] == "curve", "representation"]) == {"attention", "mix"}
    mixes = mix_rows(result.rows)
    assert mixes["seeds"].iloc[0] == 2
    np.testing.assert_allclose(mixes["mean"].sum(), 1)
    assert len(probekit.summary(result, resamples=100).rows) == 8
    assert result.verdict[0].startswith("one: layer ")
    assert "centre of gravity of the mix" in result.verdict[0]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_rows(result: Result, one: list[Path]) -> None:
    again = probekit.edges(*one, **QUICK, seeds=2)
    assert again.rows["value"].to_numpy().tobytes() == result.rows["value"].to_numpy().tobytes()
    assert again.predictions[0].predicted.tobytes() == result.predictions[0].predicted.tobytes()


@pytest.mark.slow
def test_several_labels_random_weights_and_a_cache_of_several_tasks(tiny_bert: Path, tmp_path: Path) -> None:
    both = union("one+many", [ONE, MANY])
    caches = cached(tiny_bert, both, tmp_path)
    for split in ("train", "dev"):
        out = tmp_path / f"random.{split}.h5"
        caches.append(probekit.cache_activations(tiny_bert, both, split, out=out, random_weights=0).path)
    rows = probekit.edges(*caches, task=MANY, **QUICK, probe="linear", controls=0, layers=(0, 2)).rows
    assert set(rows["task"]) == {"many"}
    assert set(rows["metric"]) >= {"micro-f1", "log-loss", "mix-weight", "expected-layer"}
    assert set(rows["layer"].dropna()) == {0, 2}
    assert rows["random_weights"].isna().any()
    assert (rows["random_weights"] == 0).any()
    gold = rows[(rows["metric"] == "micro-f1") & (rows["layer"] == 0) & rows["random_weights"].isna()]
    assert gold["value"].min() > 0.9
    words = probekit.edges(*caches[:2], task=ONE, **QUICK, controls=0, layers=(1,)).rows
    assert not words["metric"].isin(("mix-weight", "expected-layer")).any()  # one layer: no mix


@pytest.mark.slow
def test_what_it_refuses(tiny_bert: Path, one: list[Path], tmp_path: Path) -> None:
    texts = cached(tiny_bert, load_task("grammar:acceptability"), tmp_path / "a")
    with pytest.raises(UsageError, match=r"has no (token vectors|labels of spans)"):
        probekit.edges(*texts)
    with pytest.raises(UsageError, match="given in pairs"):
        probekit.edges(*one, one[0])
    with pytest.raises(UsageError, match="train their own pooling of spans; leave out pooling and span"):
        probekit.edges(*one, span="mean")
    with pytest.raises(UsageError, match="layer"):
        probekit.edges(*one, layers=(0, 99))
    with pytest.raises(CacheMismatch, match="same examples"):
        probekit.edges(one[0], one[0])
    with pytest.raises(UsageError, match="are they swapped"):
        probekit.edges(*one[::-1])
    same = {
        name: Split(name, tuple(Example(f"{name}{i}", text, words=(text,), targets=(Target((Span(0, 1),), 0),))
                                for i, text in enumerate(words)))
        for name, words in (("train", "abcdef"), ("dev", "ghi"))
    }  # fmt: skip
    only = Task("only", TaskKind.SPAN_LABELLING, same, ("a", "b"))
    with pytest.raises(UsageError, match="at least two different labels in train"):
        probekit.edges(*cached(tiny_bert, only, tmp_path / "b"), groups="none")
