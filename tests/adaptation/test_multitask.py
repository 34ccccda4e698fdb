"""Several tasks on one encoder: which batches they get, their heads, rows and evaluation, and that runs resume."""

import json
from pathlib import Path

import numpy as np
import pytest
from lessons import SHORT, Stop, pairs, praise, same_weights, stopping, weights

from probekit.adaptation.evaluate import evaluate
from probekit.adaptation.mixtures import MixedBatches, MixedData
from probekit.adaptation.train import train
from probekit.errors import ProbekitError, UsageError


class Lengths:
    nbytes = 0.0

    def __init__(self, n):
        self.length, self.order = np.ones(n, dtype=np.int64), np.arange(n)

    def __len__(self):
        return len(self.length)

    def __getitems__(self, rows):
        return {"rows": rows}


def mixed(sampling, epochs=4, sizes=(64, 16)):
    data = MixedData({"head": Lengths(sizes[0]), "head_1": Lengths(sizes[1])})
    return MixedBatches(data, 4, sampling=sampling, epochs=epochs, seed=0)


def test_each_pass_over_a_task_reads_each_example_once_and_continues_in_the_next_epoch():
    batches = mixed("uniform")
    seen = []
    for epoch in range(4):
        batches.set_epoch(epoch)
        one = [*batches]
        assert len(one) == len(batches) == 20
        seen += one
    assert all(min(rows) >= 64 or max(rows) < 64 for rows in seen)  # of one task
    for low, high in ((0, 64), (64, 80)):
        rows = [i for batch in seen if batch[0] in range(low, high) for i in batch]
        whole = len(rows) // (high - low)
        assert whole >= 1
        for k in range(whole):
            assert sorted(rows[k * (high - low) : (k + 1) * (high - low)]) == list(range(low, high))
    batches.set_epoch(2)
    assert [*batches] == seen[40:60]  # nothing but seed and epoch matters
    assert batches.data.__getitems__([65, 64]) == {"rows": [1, 0], "module": "head_1"}


def test_shares_follow_the_sampling():
    for sampling, share in (("proportional", 0.2), ("uniform", 0.5), ("power-0.5", 1 / 3), ("1,3", 0.75)):
        batches = mixed(sampling, sizes=(4096, 1024))
        assert batches.tasks(0).mean() == pytest.approx(share, abs=0.05)
    annealed = mixed("annealed", epochs=5, sizes=(4096, 1024))
    assert annealed.tasks(0).mean() == pytest.approx(0.2, abs=0.04)
    assert annealed.tasks(4).mean() == pytest.approx(1 / (1 + 4**0.2), abs=0.04)  # a power of 1 - .8


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """A task in files: which animal is it?"""
    folder = tmp_path_factory.mktemp("animals")
    lines = [
        f"the {w} was {n}\t{w}" for n in "good bad here there now then old new".split() for w in ("cat", "dog", "cow")
    ]
    for name, part in {"train": lines[:15], "dev": lines[15:21], "test": lines[21:]}.items():
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "\n".join(part) + "\n")
    splits = "\n".join(f'{name} = "{name}.tsv"' for name in ("train", "dev", "test"))
    (folder / "animals.toml").write_text(f'name = "animals"\nlabels = ["cat", "dog", "cow"]\n[splits]\n{splits}\n')
    return str(folder / "animals.toml")


@pytest.fixture(scope="module")
def run(tiny_bert, second, tmp_path_factory):
    out = tmp_path_factory.mktemp("mixed") / "run"
    return train(praise(), tiny_bert, out, also=second, test="test", sampling="uniform", **SHORT)


@pytest.mark.slow
def test_a_run_resumes(run, second, tiny_bert, tmp_path):
    how = {"also": second, "test": "test", "sampling": "uniform", **SHORT}
    with pytest.raises(Stop):
        train(praise(), tiny_bert, tmp_path / "run", progress=stopping(9), **how)
    assert not json.loads((tmp_path / "run/probekit.json").read_text())["complete"]
    resumed = train(praise(), tiny_bert, tmp_path / "run", **how)
    assert same_weights(run.path, resumed.path)
    with pytest.raises(UsageError, match="holds another run: its sampling"):
        train(praise(), tiny_bert, tmp_path / "run", **how | {"sampling": "proportional"})


def test_rows_heads_and_evaluation_of_each_task(run, second):
    names = {name.partition(":")[2] for name in weights(run.path)}
    assert {"head.output.weight", "head_1.output.weight"} <= names or "classifier.weight" in names
    assert weights(run.path)["head.safetensors:head_1.output.weight"].shape[0] == 3
    kept = run.rows[run.rows["kept"].astype(bool) & (run.rows["metric"] == "accuracy") & (run.rows["estimator"] == "")]
    assert set(zip(kept["task"], kept["split"], strict=True)) >= {
        ("praise", "dev"), ("praise", "test"), ("animals", "dev"), ("animals", "test"),
    }  # fmt: skip
    assert set(run.rows["trained_on"]) == {"praise+animals"}
    assert kept[kept["headline"].astype(bool)]["task"].tolist() == ["praise"]
    assert len([*run.path.glob("*.examples.parquet")]) == 4
    found = evaluate(run.path, task=[second], split="test").rows
    value = found[(found["metric"] == "accuracy") & (found["estimator"] == "")]["value"].item()
    assert value == kept[(kept["task"] == "animals") & (kept["split"] == "test")]["value"].item()
    again = evaluate(run.path, task=["animals"], split="test").rows  # its file is found as the run found it
    assert again.equals(found)
    assert set(found["trained_parameters"].dropna()) == {run.card["parameters"]["trained"]}
    of_first = evaluate(run.path, task=[praise()], split="test").rows
    row = of_first[(of_first["metric"] == "accuracy") & (of_first["estimator"] == "")]
    assert row["value"].item() == run.test["accuracy"]


@pytest.mark.slow
def test_a_run_finds_its_own_tasks_from_any_folder(second, tiny_bert, tmp_path, monkeypatch):
    folder, place = Path(second).parent, tmp_path / "elsewhere"
    place.mkdir()
    monkeypatch.chdir(folder)
    how = SHORT | {"epochs": 1}
    run = train("animals.toml", tiny_bert, tmp_path / "run", also="grammar:sentiment", limit=20, **how)
    mixed = train("grammar:sentiment", tiny_bert, tmp_path / "mixed", also="animals.toml", limit=20, **how)
    monkeypatch.chdir(place)
    found = evaluate(run.path, split="dev").rows
    assert list(dict.fromkeys(found["task"])) == ["animals", "grammar:sentiment"]
    for of in (run, mixed):
        own = of.rows[of.rows["kept"].astype(bool) & (of.rows["task"] == "animals") & (of.rows["split"] == "dev")]
        value = own[own["metric"] == "accuracy"]["value"].item()
        rows = evaluate(of.path, task=["animals"], split="dev").rows
        assert rows[rows["headline"].astype(bool)]["value"].item() == value
    card = json.loads((mixed.path / "probekit.json").read_text())
    card["also"][0]["source"]["task"] = str(tmp_path / "gone.toml")
    (mixed.path / "probekit.json").write_text(json.dumps(card))
    with pytest.raises(ProbekitError, match=r"gone\.toml.*was trained on this task; give its name, its TOML file"):
        evaluate(mixed.path, task=["animals"], split="dev")


@pytest.mark.slow
def test_both_tasks_are_learned(second, tiny_bert, tmp_path):
    how = {"learning_rate": 3e-3, "epochs": 12, "batch_size": 8, "device": "cpu", "pooling": "mean", "keep": "last"}
    run = train(praise(), tiny_bert, tmp_path / "run", also=second, sampling="proportional", **how)
    last = run.rows[run.rows["kept"].astype(bool) & (run.rows["metric"] == "accuracy") & (run.rows["estimator"] == "")]
    assert dict(zip(last["task"], last["value"], strict=True)) == {
        "praise": pytest.approx(1, abs=0.15), "animals": pytest.approx(1, abs=0.2),
    }  # fmt: skip


def test_a_fraction_is_that_of_each_task(second, tiny_bert, tmp_path):
    run = train(praise(), tiny_bert, tmp_path / "run", also=second, fraction=0.4, **SHORT | {"epochs": 1})
    assert run.card["examples"] == [16, 21]
    assert run.card["also"][0]["examples"] == [6, 6]


@pytest.mark.slow
def test_a_decoder_with_accumulation_and_a_language_model_loss(second, tiny_gpt2, tmp_path):
    run = train(pairs(), tiny_gpt2, tmp_path / "run", also=second, accumulation=2, lm_loss=0.1, **SHORT)
    assert np.isfinite(run.rows["value"].astype(float)).all()


def test_refused(run, second, tiny_bert, tmp_path):
    for how, words in (
        ({"sampling": "uniform"}, "only with also"),
        ({"also": second, "sampling": "often"}, "weights are 'often'"),
        ({"also": second, "regime": "feature-extraction"}, "need a run for each"),
        ({"also": second, "teacher": str(run.path)}, "labels of one task"),
        ({"also": f"{second},{second}"}, "is given twice"),
        ({"also": "no-such-task"}, "no-such-task"),
    ):
        with pytest.raises(UsageError, match=words):
            train(praise(), tiny_bert, tmp_path / "run", device="cpu", **how)
