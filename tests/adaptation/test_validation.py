"""A part of train that is chosen by, and examples that are drawn: from the task to the run's files."""

import json
from dataclasses import replace

import numpy as np
import pytest
from lessons import SHORT, amounts, animals, count, pairs, praise, tags

from probekit.activations import ActivationCache, cache_activations
from probekit.adaptation.data.validation import validation_rows
from probekit.adaptation.options import TrainOptions
from probekit.adaptation.search.search import search
from probekit.adaptation.search.space import Space
from probekit.adaptation.train import train, train_on_caches
from probekit.cli import main
from probekit.errors import CacheMismatch, UsageError
from probekit.statistics.predictions import Predictions
from probekit.tasks.task import Example, Split, Task, TaskKind

ONE = SHORT | {"epochs": 1}
QUICK = [(praise, "feature-extraction"), (tags, "fine-tune")]


def rows_of(task, share=0.2, seed=0):
    return validation_rows(task.kind, task.split("train"), share, seed)


def test_each_class_gives_its_share_and_groups_go_together():
    labels = np.repeat([0, 1, 2], (300, 90, 30))
    examples = [Example(str(i), f"premise {i // 3}", int(y), pair=f"h{i}") for i, y in enumerate(labels)]
    task = Task("nli", TaskKind.CLASSIFICATION, {"train": Split("train", tuple(examples))}, ("a", "b", "c"))
    held = rows_of(task)
    assert np.bincount(labels[held]).tolist() == [60, 18, 6]
    assert (held.reshape(-1, 3).sum(1) % 3 == 0).all()  # a premise's three hypotheses
    assert (rows_of(task) == held).all()
    assert (rows_of(task, seed=1) != held).any()


def test_numbers_are_spread_and_no_label_is_only_set_apart():
    numbers = count(200)
    held = rows_of(numbers, 0.25)
    values = numbers.labels("train")
    assert abs(held.mean() - 0.25) < 0.05
    assert abs(values[held].mean() - values[~held].mean()) < 0.25
    rare = tags(60)
    names = (*rare.label_names, "B-rare")
    own = replace(rare.split("train")[7], label=(len(names) - 1, *rare.split("train")[7].label[1:]))
    examples = [own if i == 7 else e for i, e in enumerate(rare.split("train"))]
    split = Split("train", tuple(examples))
    for seed in range(12):
        held = validation_rows(rare.kind, split, 0.5, seed)
        assert not held[7]
        assert held.any()


def test_sets_of_labels_give_their_shares_and_no_label_is_only_set_apart():
    task, numbers = animals(400), amounts(100)
    held, labels = rows_of(task, 0.25), task.labels("train")
    sets = np.unique(labels, axis=0, return_inverse=True)[1].reshape(-1)
    shares = np.bincount(sets[held]) / np.bincount(sets)
    assert (np.abs(shares - 0.25) < 0.6 / np.sqrt(np.bincount(sets))).all()
    assert abs(rows_of(numbers, 0.25).mean() - 0.25) < 0.05
    own = replace(task.split("train")[7], label=(0, 1, 2, 3))  # a label, and a set, of one text alone
    split = Split("train", tuple(own if i == 7 else e for i, e in enumerate(task.split("train")[:40])))
    for seed in range(12):
        held = validation_rows(task.kind, split, 0.5, seed)
        assert not held[7]
        assert held.sum() > 10


@pytest.mark.parametrize(
    ("make", "regime"),
    [
        pytest.param(make, regime, marks=[] if (make, regime) in QUICK else [pytest.mark.slow])
        for make in (praise, tags, pairs, count)
        for regime in ("fine-tune", "feature-extraction")
    ],
)
def test_a_run_chooses_by_a_part_of_train_and_learns_from_the_rest(make, regime, tiny_bert, tmp_path):
    task = make()
    where = {"caches": tmp_path / "caches"} if regime == "feature-extraction" else {}
    head = {} if task.kind is not TaskKind.CLASSIFICATION or task.split("train").paired else {"head": "linear"}
    run = train(task, tiny_bert, tmp_path / "run", regime=regime, validation=0.25, test="dev", **ONE, **where, **head)
    held = rows_of(task, 0.25)
    assert run.card["examples"] == [int((~held).sum()), int(held.sum())]
    assert run.card["splits"] == ["train", "validation", "dev"]
    said = Predictions.read(tmp_path / "run" / "validation.examples.parquet")
    wanted = [e.id for e, out in zip(task.split("train"), held, strict=True) if out]
    assert sorted({one.split(":")[0] for one in said.ids}) == sorted(wanted)
    head_line = run.rows[run.rows["headline"].astype(bool)]
    assert head_line["split"].tolist() == ["dev"]
    again = train(task, tiny_bert, tmp_path / "run", regime=regime, validation=0.25, test="dev", **ONE, **where, **head)
    assert again.card == run.card
    with pytest.raises(UsageError, match="holds another run"):
        train(
            task,
            tiny_bert,
            tmp_path / "run",
            regime=regime,
            validation=0.25,
            data_seed=1,
            test="dev",
            **ONE,
            **where,
            **head,
        )


@pytest.mark.slow
def test_both_regimes_and_all_seeds_choose_by_the_same_examples(tiny_bert, tmp_path):
    """As guidelines need it, which pair them example by example."""
    found = []
    for name, more in (
        ("a", {}),
        ("b", {"seed": 1}),
        ("c", {"regime": "feature-extraction", "caches": tmp_path / "made"}),
    ):
        train(praise(), tiny_bert, tmp_path / name, validation=0.2, limit=30, head="linear", **ONE, **more)
        found.append(Predictions.read(tmp_path / name / "validation.examples.parquet").ids.tolist())
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 6


@pytest.mark.slow
def test_test_never_chooses(tiny_bert, tmp_path, caplog):
    task = praise()
    only = replace(task, splits={"train": task.split("train"), "test": Split("test", task.split("dev").examples)})
    run = train(only, tiny_bert, tmp_path / "run", test="test", **ONE)
    assert run.card["splits"] == ["train", "validation", "test"]
    assert run.card["examples"] == [36, 4]
    assert "praise has no dev split; a share of 0.1 of train is held out" in caplog.text
    for wrong, told in (
        ({"dev": "test"}, "--dev test: the best epoch would be chosen on test"),
        ({"train": "dev"}, "'dev', is also the training split"),
        ({"train": "dev", "validation": 0.1, "test": "dev"}, "the split to test on, 'dev', is also the training split"),
        ({"dev": "other", "validation": 0.1}, "--validation replaces --dev other"),
        ({"validation": 1.0}, "validation is 1.0; it must be between 0 and 1"),
        ({"dev": "nothing"}, "praise has no split 'nothing'"),
        ({"data_seed": -1}, "data_seed is -1"),
    ):
        with pytest.raises(UsageError, match=told):
            train(only, tiny_bert, tmp_path / "wrong", **ONE, **wrong)
    assert TrainOptions(train="dev", validation=0.1, test="test").train == "dev"  # dev is then not evaluated
    last = train(only, tiny_bert, tmp_path / "last", dev="test", keep="last", **ONE)
    assert last.card["splits"] == ["train", "test"]


@pytest.mark.slow
def test_a_search_chooses_by_a_part_of_train(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('[splits]\ntrain = "train.tsv"\ntest = "test.tsv"\n')
    for name, n in (("train", 40), ("test", 10)):
        lines = [f"{e.text}\t{e.label}" for e in praise(n).split("train")]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    space = {"learning_rate": [1e-3, 2e-3], "epochs": 1}
    asked = Space(task="mine.toml", model=str(tiny_bert), trials=2, seeds=1, limit=30, space=space)
    found = search(asked, out=tmp_path / "out", device="cpu")
    assert set(found.rows["split"]) == {"validation", "test"}
    assert search(asked, out=tmp_path / "out", device="cpu").options == found.options
    best = (tmp_path / "out/best.toml").read_text()
    assert 'dev = "validation"' in best
    assert "validation = 0.1" in best
    with pytest.raises(UsageError, match="chosen on test"):
        search(asked.model_copy(update={"dev": "test", "test": ""}), out=tmp_path / "other", device="cpu")


def test_limit_draws_at_random_and_keeps_the_order(tiny_bert, tmp_path, capsys):
    split = praise(100).split("train")
    drawn = [split.sample(20, seed) for seed in (0, 0, 1)]
    ids = [[int(e.id) for e in one] for one in drawn]
    assert ids[0] == ids[1] != ids[2]
    assert ids[0] == sorted(set(ids[0]))
    assert max(ids[0]) > 40  # not the first twenty
    assert split.sample(100) is split
    words = [
        "cache-activations",
        "--model",
        str(tiny_bert),
        "--task",
        "grammar:sentiment",
        "--split",
        "dev",
        "--limit",
        "9",
    ]
    assert main([*words, "--device", "cpu", "--out", str(tmp_path / "a.h5")]) == 0
    assert main([*words, "--device", "cpu", "--data-seed", "1", "--out", str(tmp_path / "b.h5")]) == 0
    with ActivationCache(tmp_path / "a.h5") as a, ActivationCache(tmp_path / "b.h5") as b:
        assert len(a) == len(b) == 9
        assert a.ids.tolist() != b.ids.tolist()
        assert "data_seed" not in a.spec
        assert b.spec["data_seed"] == 1


def test_a_command_takes_it(tiny_bert, tmp_path, capsys):
    words = ["train", "--task", "grammar:sentiment", "--model", str(tiny_bert), "--limit", "40", "--epochs", "1"]
    assert main([*words, "--validation", ".2", "--test", "dev", "--device", "cpu", "--out", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert "validation: accuracy" in told
    assert "dev: accuracy" in told
    card = json.loads((tmp_path / "run/probekit.json").read_text())
    assert card["recipe"]["arguments"]["validation"] == 0.2


def test_caches_have_a_dev_of_their_own(tiny_bert, tmp_path):
    paths = [tmp_path / f"{split}.h5" for split in ("train", "dev")]
    for path in paths:
        cache_activations(tiny_bert, praise(), path.stem, out=path, device="cpu").close()
    with pytest.raises(UsageError, match="takes a cache for dev, not validation"):
        train_on_caches(*paths, tmp_path / "run", validation=0.1, **ONE)


def test_a_part_of_a_cache_that_is_there_is_set_apart(tiny_bert, tmp_path):
    caches = [tmp_path / "train.h5", tmp_path / "dev.h5"]
    for path in caches:
        cache_activations(tiny_bert, praise(), path.stem, out=path, device="cpu").close()
    how = {"regime": "feature-extraction", "head": "linear", "validation": 0.25, **ONE}
    run = train(praise(), tiny_bert, tmp_path / "run", cache=tuple(caches), test="dev", **how)
    assert run.card["examples"] == [30, 10]
    with pytest.raises(UsageError, match="--cache needs one cache each for train; 2 are given"):
        train(praise(), tiny_bert, tmp_path / "other", cache=tuple(caches), **how)
    with pytest.raises(CacheMismatch, match="must hold the 24 examples of which a part is held out"):
        train(praise(), tiny_bert, tmp_path / "other", cache=tuple(caches[:1]), limit=24, **how)
