"""Runs evaluated on slices: the same numbers as on these examples alone, and what is said of them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from lessons import SHORT, count, pairs, praise, same_weights, tags

import probekit
from probekit.activations import cache_activations
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.runs.predictions import Evaluation
from probekit.adaptation.runs.rows import slice_rows, slice_sentences
from probekit.adaptation.train import train, train_on_caches
from probekit.cli import main
from probekit.errors import DataError, UsageError
from probekit.rows import make_rows, read_rows
from probekit.rows.card import read_card as evidence
from probekit.tasks.task import Split

ONCE = SHORT | {"epochs": 1}
FILE = "[long]\nwords_at_least = 5\n\n[short]\nwords_at_most = 4\n\n[all]\ntext = ''\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "slices.toml"
    path.write_text(FILE)
    return path


def only(task, long):
    """The task with its long or its short examples on dev."""
    dev = task.split("dev")
    number = [len(e.words or e.text.split()) + len((e.pair or "").split()) for e in dev]
    kept = tuple(e for e, words in zip(dev, number, strict=True) if (words >= 5) is long)
    return replace(task, splits={**task.splits, "dev": Split("dev", kept)})


def values(rows, task):
    part = rows[(rows["task"] == task) & (rows["estimator"] == "") & rows["against"].isna()]
    assert not part["headline"].any()
    columns = ["metric", "value", "ci_low", "ci_high", "n"]
    return part[columns].set_index("metric")


@pytest.mark.parametrize("make", [tags, *(pytest.param(one, marks=pytest.mark.slow) for one in (praise, count, pairs))])
def test_metrics_of_a_slice_are_those_of_its_examples(make, tiny_bert, file, tmp_path):
    task = make(40, 40)
    run = train(task, tiny_bert, tmp_path / "run", slices=str(file), **ONCE)
    found = probekit.evaluate(run.path, task=[task], split="dev", slices=file, device="cpu")
    for long, name in ((True, "long"), (False, "short")):
        alone = probekit.evaluate(run.path, task=[only(task, long)], split="dev", device="cpu").rows
        alone = alone[(alone["estimator"] == "") & (alone["metric"].isin(task.metrics))].set_index("metric")
        mine = values(found.rows, f"{task.name}:{name}")
        assert mine.index.tolist() == list(task.metrics)
        # two near copies of an example outside of the slice are one group in it
        ends = ("ci_low", "ci_high") if make in (praise, count) else ()
        for column in ("value", *ends, "n"):
            np.testing.assert_allclose(mine[column].astype(float), alone[column].astype(float), rtol=1e-6)
        trained = run.rows[run.rows["split"] == "dev"]
        np.testing.assert_allclose(values(trained, f"{task.name}:{name}")["value"], mine["value"], rtol=1e-5)
    rest = found.rows[found.rows["against"] == "rest"].set_index("slice")
    assert rest.index.tolist() == ["long", "short", "all"]
    assert (rest["metric"] == f"difference({task.metrics[0]})").all()
    one, other = (values(found.rows, f"{task.name}:{name}")["value"].iloc[0] for name in ("long", "short"))
    assert rest["value"].astype(float).tolist()[:2] == pytest.approx([one - other, other - one])
    assert rest["why"]["all"] == "all examples are in the slice"


@pytest.mark.slow
def test_a_plain_run_with_more_rows(tiny_bert, file, tmp_path):
    plain = train(praise(), tiny_bert, tmp_path / "plain", test="test", **ONCE)
    run = train(praise(), tiny_bert, tmp_path / "run", test="test", slices=str(file), **ONCE)
    assert same_weights(plain.path, run.path)
    of_whole = run.rows["slice"].isna()
    assert run.rows.loc[of_whole, "value"].tolist() == plain.rows["value"].tolist()
    assert set(run.rows.loc[~of_whole, "split"]) == {"dev", "test"}
    assert (run.rows.loc[~of_whole, "step"] == run.card["step"]).all()
    assert run.rows["headline"].sum() == plain.rows["headline"].sum() == 1
    digest = run.card["identity"]["signals"]["slices"]
    assert [read["digest"] for read in evidence(run.path / "rows.parquet")["reads"] if read["kind"] == "slices"] == [
        digest
    ]
    file.write_text(FILE + "\n[the]\ntext = 'the'\n")
    with pytest.raises(UsageError, match="holds another run: its signals"):
        train(praise(), tiny_bert, tmp_path / "run", test="test", slices=str(file), **ONCE)


@pytest.mark.slow
def test_on_frozen_layers_and_over_seeds(tiny_bert, file, tmp_path):
    frozen = {"regime": "feature-extraction", "caches": tmp_path, "head": "linear", "validation": 0.3}
    run = train(praise(), tiny_bert, tmp_path / "run", slices=str(file), seeds=2, **ONCE | frozen)
    rows = read_rows(run.path / "rows.parquet")
    means = rows[rows["seed"].isna() & (rows["metric"] == "accuracy") & (rows["estimator"] == "")]
    assert means["task"].tolist() == ["praise", "praise:long", "praise:short", "praise:all"]
    each = [values(one.rows, "praise:long")["value"]["accuracy"] for one in run.runs]
    assert means["value"].tolist()[1] == pytest.approx(np.mean(each))
    assert set(means["runs"]) == {2}


@pytest.mark.slow
def test_what_the_command_says(tiny_bert, file, tmp_path, capsys):
    out = tmp_path / "run"
    how = ["--epochs", "1", "--batch-size", "8", "--device", "cpu", "--limit", "40", "--slices", str(file)]
    assert main(["train", "--task", "grammar:sentiment", "--model", str(tiny_bert), "--out", str(out), *how]) == 0
    told = capsys.readouterr().out
    assert "grammar:sentiment dev: all is not compared with the other examples: all examples are in" in told
    how = ["--split", "dev", "--device", "cpu", "--slices", str(file), "--out", str(tmp_path / "rows.parquet")]
    assert main(["evaluate", str(out), *how]) == 0
    told = capsys.readouterr().out
    assert "grammar:sentiment:long dev" in told
    assert "no slice is shown to be worse" in told or "is worse than on the other examples on" in told
    card = json.loads((tmp_path / "rows.parquet.json").read_text())
    assert [one["kind"] for one in card["reads"]] == ["run", "slices"]
    file.write_text("[none]\ntext = 'xyz'\n")
    assert main(["evaluate", str(out), *how]) == 2
    assert "slice 'none' holds none of the" in capsys.readouterr().err


def evaluation(right, n):
    """An evaluation of ``n`` examples of which the first ``right`` are classified as they should be."""
    spec = TaskSpec.of_task(praise(), "dev")
    guess = [np.array([int(i < right)]) for i in range(n)]
    return Evaluation(
        spec, np.arange(n).astype(str), guess, [np.array([1])] * n, {"accuracy": right / n, "matthews": 0.0}
    )


def told(right, n, **slices):
    about = dict.fromkeys(("model", "representation", "estimator", "target"), "")
    about |= {"task": "t", "split": "dev", "analysis": "evaluate"}
    ids = {name: frozenset(map(str, rows)) for name, rows in slices.items()}
    return [*slice_sentences(make_rows([*slice_rows(evaluation(right, n), ids, about, None)]))]


def test_sentences():
    last, some, few = range(150, 200), range(0, 200, 2), range(3)
    (worse, left) = told(160, 200, last=last, some=some, few=few)
    assert worse.startswith("t dev: accuracy is worse than on the other examples on last (-0.8000, 95 % interval -0.8")
    assert "50 examples, p " in worse
    assert "some" not in worse
    assert worse.endswith("; Holm over 2 slices")
    assert left == ("t dev: few is not compared with the other examples: 3 examples; intervals need at least 5")
    better = told(150, 200, first=range(20), some=some)
    assert better == ["t dev: no slice is shown to be worse than the other examples (accuracy; Holm over 2 slices)"]


def test_refused(tiny_bert, file, tmp_path):
    caches = [cache_activations(tiny_bert, praise(), part, out=tmp_path / f"{part}.h5") for part in ("train", "dev")]
    for cache in caches:
        cache.close()
    with pytest.raises(UsageError, match="caches hold no text"):
        train_on_caches(*(cache.path for cache in caches), tmp_path / "run", slices=str(file))
    with pytest.raises(UsageError, match="--slices needs texts, which a cache does not hold"):
        probekit.evaluate(tmp_path / "run", cache=tmp_path / "a.h5", slices=file)
    file.write_text("[none]\ntext = 'xyz'\n")
    with pytest.raises(DataError, match="slice 'none' holds none of the 21 examples of praise dev"):
        train(praise(), tiny_bert, tmp_path / "run", slices=str(file), **ONCE)
    assert not (tmp_path / "run").exists()
