"""Averaged weights and averaged predictions, against their definitions."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from lessons import SHORT, count, praise, tags
from safetensors.numpy import load_file
from scipy.special import softmax

from probekit.adaptation.average import average
from probekit.adaptation.evaluate import evaluate
from probekit.adaptation.runs.evaluation import predict_run
from probekit.adaptation.runs.folder import read_card
from probekit.adaptation.train import train
from probekit.analyses.ensemble import ensemble
from probekit.cli import main
from probekit.cli.patterns import natural
from probekit.errors import ModelError, UsageError
from probekit.models.identity import CARD
from probekit.statistics.predictions import Predictions


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A task as files, so that a run can load it again."""
    place = tmp_path_factory.mktemp("task")
    lines = {"train": 40, "dev": 24, "test": 16}
    for split, n in lines.items():
        part = praise(n, n, seed=n).split("train" if split == "train" else "dev")
        rows = [f"{e.text}\t{('bad', 'good')[int(e.label)]}" for e in part][:n]
        (place / f"{split}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    toml = 'name = "praise"\nlabels = ["bad", "good"]\nmetrics = ["accuracy", "matthews"]\n'
    splits = "".join(f'{split} = "{split}.tsv"\n' for split in lines)
    (place / "praise.toml").write_text(f"{toml}\n[splits]\n{splits}")
    return place / "praise.toml"


@pytest.fixture(scope="module")
def runs(folder, tiny_bert, tmp_path_factory):
    return train(
        str(folder), tiny_bert, tmp_path_factory.mktemp("r") / "runs", seeds=3, test="test", save_at="epochs", **SHORT
    )


def tensors(path):
    return load_file(path / "model.safetensors") | load_file(path / "head.safetensors")


@pytest.mark.slow
def test_the_average_is_the_mean_of_the_tensors_and_a_run(runs, tmp_path):
    made = average(runs, out=tmp_path / "soup", device="cpu")
    each = [tensors(run.path) for run in runs.runs]
    for name, mean in tensors(made.path).items():
        assert np.allclose(mean, np.mean([one[name] for one in each], axis=0, dtype=np.float64), atol=1e-7)
    assert made.card["kept"] == [str(run.path) for run in runs.runs]
    again = predict_run(made.path, praise(16, 24), "dev")  # every command reads it
    assert np.isfinite(again.metrics["accuracy"])
    main_row = made.rows[made.rows["headline"].astype(bool)].iloc[0]
    assert (main_row["split"], main_row["metric"]) == ("test", "accuracy")
    assert main_row["value"] == made.test["accuracy"]
    before = (made.path / "probekit.json").stat().st_mtime_ns
    assert average(runs, out=tmp_path / "soup", device="cpu").metrics == made.metrics  # the finished one
    assert (made.path / "probekit.json").stat().st_mtime_ns == before


@pytest.mark.slow
def test_of_one_run_with_itself_nothing_changes(runs, tmp_path):
    one = runs.runs[0]
    made = average(one, one, out=tmp_path / "same", device="cpu")
    assert all((tensors(made.path)[name] == weight).all() for name, weight in tensors(one.path).items())
    assert made.metrics == pytest.approx(one.metrics)
    swa = average(one.path / "step-5", one.path / "step-10", out=tmp_path / "swa", device="cpu")
    assert "averaged" in read_card(swa.path)["identity"]
    early, late, mean = (tensors(path) for path in (one.path / "step-5", one.path / "step-10", swa.path))
    assert all(np.allclose(mean[name], (early[name] + late[name]) / 2, atol=1e-7) for name in mean)
    assert any((early[name] != late[name]).any() for name in mean)


def test_a_greedy_soup_is_never_worse_on_dev_than_its_best_run(runs, tmp_path):
    made = average(runs, out=tmp_path / "greedy", greedy=True, device="cpu")
    best = max(run.metrics["accuracy"] for run in runs.runs)
    assert made.metrics["accuracy"] >= best - 1e-12
    assert 1 <= len(made.card["kept"]) <= 3
    one = runs.runs[0]
    same = average(one, one, out=tmp_path / "same", greedy=True, device="cpu")
    assert same.card["kept"] == [str(one.path)] * 2  # what is as good stays in, as in Wortsman et al. 2022


def test_what_cannot_be_averaged(runs, tiny_bert, folder, tmp_path):
    with pytest.raises(UsageError, match="two or more runs"):
        average(runs.runs[0], out=tmp_path / "a")
    other = train(str(folder), tiny_bert, tmp_path / "other", pooling="mean", **SHORT | {"epochs": 1})
    with pytest.raises(UsageError, match="differ in head"):
        average(runs.runs[0], other, out=tmp_path / "a")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds mine\.txt"):
        average(runs, out=tmp_path / "taken")
    assert (tmp_path / "taken/mine.txt").read_text() == "mine"


def test_what_a_killed_average_had_moved_is_made_again(runs, tmp_path, monkeypatch):
    """It is killed after it has moved some of its files; what is not its own stays, and is told."""
    want = average(runs, out=tmp_path / "soup", device="cpu")
    moved, replace = [], Path.replace

    def move(self, to):
        if Path(to).parent == tmp_path / "other":
            moved.append(Path(to).name)
            if len(moved) == 5:
                raise KeyboardInterrupt
        return replace(self, to)

    monkeypatch.setattr(Path, "replace", move)
    with pytest.raises(KeyboardInterrupt):
        average(runs, out=tmp_path / "other", device="cpu")
    monkeypatch.undo()
    assert {CARD, *moved[:-1]} <= {file.name for file in (tmp_path / "other").iterdir()}
    (tmp_path / "other/mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds mine\.txt"):
        average(runs, out=tmp_path / "other", device="cpu")
    (tmp_path / "other/mine.txt").unlink()
    made = average(runs, out=tmp_path / "other", device="cpu")
    assert made.metrics == want.metrics
    assert {f.name for f in made.path.iterdir()} == {f.name for f in want.path.iterdir()}


def test_only_the_seeds_that_the_folder_lists_are_members(runs, folder, tiny_bert, tmp_path, caplog, capsys):
    shutil.copytree(runs.path, tmp_path / "runs")
    train(str(folder), tiny_bert, tmp_path / "runs", seeds=2, test="test", save_at="epochs", **SHORT)
    assert (tmp_path / "runs/seed-2/probekit.json").is_file()
    found = ensemble(tmp_path / "runs")
    assert set(found.rows["members"]) == {2}
    assert "seed-2 is of an earlier request with other seeds, and is left out" in caplog.text
    assert main(["ensemble", str(tmp_path / "runs")]) == 0
    assert {"runs-seed-0", "runs-seed-1"} < {*capsys.readouterr().out.split()}
    made = average(tmp_path / "runs", out=tmp_path / "soup", device="cpu")
    assert [path[-6:] for path in made.card["kept"]] == ["seed-0", "seed-1"]
    (tmp_path / "runs/rows.parquet").unlink()
    with pytest.raises(ModelError, match=r"has no rows.parquet.*training is not finished"):
        ensemble(tmp_path / "runs")


@pytest.fixture(scope="module")
def several(folder, tiny_bert, tmp_path_factory):
    """Two seeds on two tasks, each with a fraction of its examples and a part of them held out."""
    out = tmp_path_factory.mktemp("several") / "runs"
    how = {"also": "grammar:sentiment", "fraction": 0.1, "validation": 0.3, "save_at": "epochs"}
    return train(str(folder), tiny_bert, out, seeds=2, **how, **SHORT)


@pytest.mark.slow
def test_an_average_reports_all_tasks_and_its_last_step(several, tmp_path, capsys):
    steps = sorted((several.path / "seed-0").glob("step-[1-9]*"), key=natural)
    last = steps[-1]
    assert len(steps) == 2
    made = average(*steps, out=tmp_path / "swa", device="cpu")
    assert made.card["step"] == read_card(last)["step"]
    assert set(made.rows[made.rows["kept"].astype(bool)]["step"]) == {made.card["step"]}
    rows = made.rows[made.rows["kept"].astype(bool) & (made.rows["metric"] == "accuracy")]
    assert rows["task"].tolist() == ["praise", "grammar:sentiment"]
    assert rows["headline"].tolist() == [True, False]
    same = average(last, last, out=tmp_path / "same", device="cpu")
    found = same.rows[same.rows["kept"].astype(bool)].set_index(["task", "metric"])["value"]
    alone = evaluate(last, split="dev", task=["grammar:sentiment"])
    assert found["praise", "accuracy"] == read_card(last)["metrics"]["accuracy"]
    assert len(alone.rows)
    assert {file.name for file in same.path.glob("*.examples.parquet")} == {
        "validation.examples.parquet", "grammar-sentiment.validation.examples.parquet",
    }  # fmt: skip
    assert main(["average", *map(str, steps), "--out", str(tmp_path / "swa")]) == 0
    assert "grammar:sentiment validation accuracy: " in capsys.readouterr().out


@pytest.mark.slow
def test_an_ensemble_reports_all_tasks(several):
    found = ensemble(several)
    assert [table.fits["task"].item() for table in found.predictions] == ["praise", "grammar:sentiment"]
    rows = found.rows[(found.rows["metric"] == "accuracy") & (found.rows["estimator"] == "ensemble")]
    for table, row in zip(found.predictions, rows.to_dict("records"), strict=True):
        assert row["task"] == table.fits["task"].item()
        assert row["value"] == pytest.approx((table.predicted[0] == np.atleast_2d(table.gold)[0]).mean())
    stored = [Predictions.read(run.path / "grammar-sentiment.validation.examples.parquet") for run in several.runs]
    shares = np.mean([one.probabilities[0] for one in stored], axis=0)
    assert np.allclose(found.predictions[1].probabilities[0], shares, atol=1e-6)
    assert found.rows["headline"].sum() == 1


def test_an_ensemble_is_the_mean_of_the_probabilities(runs, tmp_path, capsys):
    found = ensemble(runs, split="dev")
    stored = [Predictions.read(run.path / "dev.examples.parquet") for run in runs.runs]
    shares = np.mean([one.probabilities[0] for one in stored], axis=0)
    assert np.allclose(found.predictions[0].probabilities[0], shares, atol=1e-6)
    gold = stored[0].gold
    rows = found.rows.set_index(["metric", "estimator"])["value"]
    accuracy = (shares.argmax(1) == gold).mean()
    assert rows["accuracy", "ensemble"] == pytest.approx(accuracy)
    loss = -np.log(shares[np.arange(len(gold)), gold]).mean()
    assert rows["log-loss", "ensemble"] == pytest.approx(loss, abs=1e-5)
    assert loss <= rows["log-loss"]["member"].mean() + 1e-6  # Jensen
    members = [(one.predicted[0] == gold).mean() for one in stored]
    gain = rows["difference(accuracy)", "ensemble - member"]
    assert gain == pytest.approx(accuracy - np.mean(members))
    assert main(["ensemble", str(runs.path), "--out", str(tmp_path / "e.parquet")]) == 0
    assert "ensemble of 3 runs" in capsys.readouterr().out


@pytest.mark.slow
def test_ensembles_of_numbers_and_of_tags(tiny_bert, tmp_path):
    numbers = train(count(), tiny_bert, tmp_path / "numbers", seeds=2, **SHORT)
    found = ensemble(numbers)
    each = np.stack([run.predictions[0].predicted[0] for run in numbers.runs])
    assert np.allclose(found.predictions[0].predicted[0], each.mean(0))
    words = train(tags(), tiny_bert, tmp_path / "tags", seeds=2, **SHORT)
    assert "span-f1" in set(ensemble(words).rows["metric"])
    crf = train(tags(), tiny_bert, tmp_path / "crf", seeds=2, head="crf", **SHORT | {"epochs": 1})
    with pytest.raises(UsageError, match="a CRF has none"):
        ensemble(crf)


@pytest.mark.slow
def test_the_interval_of_the_gain_covers_the_truth():
    """Three runs with independent errors on 300 examples, 400 times: the paired interval covers the population gain."""
    from probekit.analyses.ensemble import EnsembleOptions
    from probekit.analyses.ensemble.measure import _rows, averaged
    from probekit.analyses.finished_runs import FinishedRun

    rng = np.random.default_rng(0)

    def draw(n):
        gold = rng.integers(0, 2, n)
        ease = rng.normal(1, 1, n)
        signs = np.where(gold == 1, 1, -1)
        logits = signs * ease + rng.normal(0, 1.5, (3, n))
        return gold, softmax(np.stack([np.zeros_like(logits), logits], axis=2), axis=2).astype(np.float32)

    def gain(gold, shares):
        right = shares.argmax(2) == gold
        return (shares.mean(0).argmax(1) == gold).mean() - right.mean()

    truth = gain(*draw(400_000))
    fits = [
        {"task": "t", "split": "dev", "model": "m", "representation": "", "estimator": "", "target": "gold", "seed": i,
         "n": 300, "source": i}
        for i in range(3)
    ]  # fmt: skip
    card = {"target": {"kind": "classification"}, "head": {"head": "linear"}}
    covered = 0
    for _ in range(400):
        gold, shares = draw(300)
        table = Predictions(
            __import__("pandas").DataFrame(fits), np.arange(300).astype(str), gold, shares.argmax(2), ("accuracy",),
            probabilities=shares,
        )  # fmt: skip
        rows = _rows(table, averaged(table, [FinishedRun(None, card)] * 3), EnsembleOptions(resamples=200))
        (row,) = (r for r in rows if r["metric"] == "difference(accuracy)")
        covered += row["ci_low"] <= truth <= row["ci_high"]
    print("covered", covered)
    assert 367 <= covered <= 393  # 95 % of 400 is 380, standard error 4.4
