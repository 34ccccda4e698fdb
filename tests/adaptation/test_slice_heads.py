"""Slice heads against sums over single examples; without them nothing changes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lessons import SHORT, count, pairs, praise, same_weights, tags
from torch.nn import functional

from probekit.adaptation.options import TrainOptions
from probekit.adaptation.signals.terms import EXPERTS, MEMBERSHIP, SliceHeads
from probekit.adaptation.train import train
from probekit.errors import DataError, UsageError
from probekit.tasks.task import TaskKind

ONCE = SHORT | {"epochs": 1}
LONG, SHORT_ONES, SOME = "[long]\nwords_at_least = 5\n", "[short]\nwords_at_most = 2\n", "[some]\ntext = 'the|and'\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "slices.toml"
    path.write_text(LONG + SHORT_ONES + SOME)
    return str(path)


def ratings():
    """Whole numbers from 1 to 3 for pairs."""
    task = pairs()
    splits = {
        name: replace(split, examples=tuple(replace(e, label=1.0 + i % 3) for i, e in enumerate(split)))
        for name, split in task.splits.items()
    }
    return replace(task, kind=TaskKind.REGRESSION, splits=splits, label_names=(), metrics=("pearson",))


class Watched(SliceHeads):
    """Slice heads that compare each value with the one from single examples."""

    checked = 0
    empty = 0

    @torch.no_grad()
    def __call__(self, learner, batch, out, step, total, part=0):
        states, labels = self._states[0], batch["labels"]
        with torch.enable_grad():
            value = super().__call__(learner, batch, out, step, total, part)

        def logits(head):
            found = head(states)
            if states.sequences is None:
                return found
            return torch.stack([found[[s for s in own if s >= 0]].mean(0) for own in states.sequences.tolist()])

        members, expected = logits(learner.auxiliary[MEMBERSHIP]), 0.0
        for k, expert in enumerate(learner.auxiliary[EXPERTS]):
            answers, each = logits(expert), []
            for row, number in enumerate(batch["first"]["example"].tolist()):
                inside = bool(self.inside[number, k])
                p = torch.sigmoid(members[row, k])
                expected -= float(torch.log(p if inside else 1 - p)) / len(labels)
                if inside and labels.is_floating_point():
                    each.append(float(expert.loss(answers[row][None], labels[row][None], states)))
                elif inside:
                    each.append(float(functional.cross_entropy(answers[row], labels[row])))
            expected += sum(each) / max(1, len(each))
            Watched.empty += not each
        assert float(value) == pytest.approx(self.weight * expected, rel=1e-4)
        Watched.checked += 1
        return value


@pytest.mark.parametrize(
    ("make", "more"),
    [
        (praise, {}),
        pytest.param(count, {}, marks=pytest.mark.slow),
        pytest.param(pairs, {"pairs": "separate", "head": "pair"}, marks=pytest.mark.slow),
        pytest.param(ratings, {"pairs": "separate", "head": "rating"}, marks=pytest.mark.slow),
        (count, {"long": "windows", "max_length": 8}),
        pytest.param(praise, {"regime": "feature-extraction", "head": "linear"}, marks=pytest.mark.slow),
    ],
)
def test_against_single_examples(make, more, tiny_bert, file, tmp_path, monkeypatch):
    monkeypatch.setattr("probekit.adaptation.signals.signals.SliceHeads", Watched)
    monkeypatch.setattr(Watched, "checked", 0)
    monkeypatch.setattr(Watched, "empty", 0)
    quiet = {"dropout": 0.0, "batch_size": 4} | ({"caches": tmp_path} if "regime" in more else {})
    if make in (pairs, ratings):  # their texts are longer
        Path(file).write_text(LONG.replace("5", "12") + SHORT_ONES.replace("2", "7"))
    run = train(make(), tiny_bert, tmp_path / "run", slices=file, slice_heads=0.5, **ONCE | quiet | more)
    assert Watched.checked == run.card["total_steps"] == 10
    assert Watched.empty  # a batch without an example of a slice is among them
    assert not [name for name in run.card["digests"] if "slice" in name]


def test_membership_is_that_of_the_file(tiny_bert, file, tmp_path, monkeypatch):
    seen = []

    class Kept(SliceHeads):
        def __init__(self, learner, objective, slices, weight):
            super().__init__(learner, objective, slices, weight)
            seen.append((objective.train.ids.tolist(), self.inside.numpy()))

    monkeypatch.setattr("probekit.adaptation.signals.signals.SliceHeads", Kept)
    task = praise()
    Path(file).write_text(LONG + SOME)
    train(task, tiny_bert, tmp_path / "run", slices=file, slice_heads=0.5, validation=0.3, **ONCE)
    ((ids, inside),) = seen
    words = {e.id: e.text.split() for e in task.split("train")}
    assert len(ids) == 28
    for i, row in zip(ids, inside, strict=True):
        text = " ".join(words[i])
        assert row.tolist() == [len(words[i]) >= 5, "the" in text or "and" in text]


@pytest.mark.slow
def test_zero_is_a_plain_run_and_more_trains_the_encoder(tiny_bert, file, tmp_path):
    plain = train(praise(), tiny_bert, tmp_path / "plain", **ONCE)
    zero = train(praise(), tiny_bert, tmp_path / "zero", slices=file, slice_heads=0.0, **ONCE)
    some = train(praise(), tiny_bert, tmp_path / "some", slices=file, slice_heads=0.5, **ONCE)
    again = train(praise(), tiny_bert, tmp_path / "again", slices=file, slice_heads=0.5, **ONCE)
    assert same_weights(plain.path, zero.path)
    assert not same_weights(plain.path, some.path)
    assert same_weights(some.path, again.path)


@pytest.mark.slow
def test_they_teach_the_encoder_what_a_slice_is(tiny_bert, tmp_path):
    """The labels are noise, so what the states say of the slice they learn from the slice heads."""
    path = tmp_path / "slices.toml"
    path.write_text("[cat]\ntext = 'cat'\n")
    rng = np.random.default_rng(0)
    task = praise(80)
    noisy = tuple(
        replace(e, text=e.text + rng.choice([" cat", " dog"]), label=int(rng.integers(2))) for e in task.split("train")
    )
    known = tuple(replace(e, text=f"{e.text} {'cat' if i % 3 else 'dog'}") for i, e in enumerate(task.split("dev")))
    splits = {"train": replace(task.split("train"), examples=noisy), "dev": replace(task.split("dev"), examples=known)}
    task = replace(task, splits=splits)
    held = {}

    class Kept(SliceHeads):
        def __call__(self, learner, batch, out, step, total, part=0):
            states = self._states[0]
            inside = self.inside[batch["first"]["example"]]
            held.setdefault(step, float(((learner.auxiliary[MEMBERSHIP](states) > 0).float() == inside).float().mean()))
            return super().__call__(learner, batch, out, step, total, part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("probekit.adaptation.signals.signals.SliceHeads", Kept)
        how = SHORT | {"epochs": 15, "learning_rate": 3e-3, "dropout": 0.0, "encoder_dropout": 0.0, "pooling": "mean"}
        train(task, tiny_bert, tmp_path / "run", slices=str(path), slice_heads=2.0, keep="last", **how)
    steps = sorted(held)
    assert np.mean([held[s] for s in steps[-10:]]) > 0.95 > np.mean([held[s] for s in steps[:3]])


def test_refused(tiny_bert, file, tmp_path):
    with pytest.raises(UsageError, match="slice_heads is 0.5, which has an effect only with slices"):
        TrainOptions(slice_heads=0.5)
    with pytest.raises(UsageError, match="slice_heads is -1.0; it must be 0 or more"):
        TrainOptions(slices=file, slice_heads=-1.0)
    with pytest.raises(UsageError, match="for one task; leave out --also or --slice-heads"):
        TrainOptions(slices=file, slice_heads=0.5, also="rte")
    with pytest.raises(UsageError, match="with classes, labels or numbers of whole examples; tags is"):
        train(tags(), tiny_bert, tmp_path / "run", slices=file, slice_heads=0.5, **ONCE)
    task = praise()
    few = replace(task.split("train"), examples=tuple(e for e in task.split("train") if len(e.text.split()) > 2))
    with pytest.raises(DataError, match="slice 'short' holds none of the .* examples of praise train"):
        train(
            replace(task, splits={**task.splits, "train": few}), tiny_bert, tmp_path / "run", slices=file,
            slice_heads=0.5, **ONCE,
        )  # fmt: skip
    assert not (tmp_path / "run").exists()
