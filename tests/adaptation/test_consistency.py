"""Unlabelled text: two passes that must agree, and texts that a teacher labels."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from lessons import SHORT, Stop, count, pairs, praise, same_weights, stopping, tags

from probekit.adaptation.data.text import TextData
from probekit.adaptation.options import TrainOptions
from probekit.adaptation.signals.signals import Signals
from probekit.adaptation.signals.terms import disagreement
from probekit.adaptation.signals.unlabelled import OF_TEXTS, Unlabelled
from probekit.adaptation.train import train
from probekit.errors import DataError, UsageError
from probekit.models.loading import text_reader
from probekit.models.transformers.stock import load_model
from probekit.tasks.task import Example, Split


def test_the_loss_equals_its_formula():
    torch.manual_seed(0)
    first, second = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    value = float(disagreement(first, second, confidence=0.5, sharpening=0.4).detach())
    p = np.exp(first.numpy())
    p /= p.sum(1, keepdims=True)
    sharp = np.exp(first.numpy() / 0.4)
    sharp /= sharp.sum(1, keepdims=True)
    q = np.exp(second.detach().numpy())
    q /= q.sum(1, keepdims=True)
    each = (sharp * np.log(sharp / q)).sum(1) * (p.max(1) > 0.5)
    assert 0 < (p.max(1) > 0.5).sum() < 6
    assert value == pytest.approx(each.mean(), rel=1e-5)  # computed in float32


def test_only_the_second_pass_has_a_gradient():
    first, second = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    disagreement(first, second).backward()
    assert first.grad is None
    assert second.grad is not None
    assert float(disagreement(first, first).detach()) == pytest.approx(0, abs=1e-6)
    assert float(disagreement(torch.tensor([[1.0]]), torch.tensor([[3.0]]))) == 4


@pytest.fixture(scope="module")
def texts(tiny_bert):
    task = praise()
    reader = text_reader(tiny_bert, load_model(tiny_bert).config)
    like = TextData(task, task.split("train"), reader, apart=False)
    split = Split("unlabelled", tuple(Example(str(i), f"the cat saw {w}") for i, w in enumerate(["good"] * 20)))
    return Unlabelled(task, split, like, 8, 0)


def test_batches_depend_on_seed_and_step(texts):
    drawn = [texts.rows(texts.draw(step)) for step in (0, 1, 0)]
    assert drawn[0] == drawn[2] != drawn[1]
    assert len(set(drawn[0])) == 8
    parts = [texts.rows(texts.draw(0, part)) for part in (0, 1, 2)]  # of an update with several batches
    assert parts[0] == drawn[0] != parts[1] != parts[2]
    assert parts[0] == texts.rows(np.random.default_rng((0, OF_TEXTS, 0)))
    lengths = [
        int(texts.without_words([0] * 8, texts.draw(0), share, "cpu")["first"]["attention_mask"].sum())
        for share in (0.01, 0.5, 0.99)
    ]
    whole = int(texts.batch([0] * 8, "cpu")["first"]["attention_mask"].sum())
    assert whole >= lengths[0] > lengths[1] > lengths[2] >= 8 * 3  # a word remains between two special pieces


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("bert", {"consistency": "word-deletion", "sharpening": 0.5, "confidence": 0.0}),
        ("gpt2", {"consistency": "dropout", "confidence": 0.0}),
    ],
)
def test_a_run_resumes_and_no_weight_is_a_plain_run(family, more, tiny_model, tmp_path):
    model, how = tiny_model(family), {**SHORT, **more, "unlabelled": "praise:test"}
    whole = train(praise(), model, tmp_path / "whole", **how)
    with pytest.raises(Stop):
        train(praise(), model, tmp_path / "part", progress=stopping(7), **how)
    assert same_weights(whole.path, train(praise(), model, tmp_path / "part", **how).path)
    plain = train(praise(), model, tmp_path / "plain", **SHORT)
    assert not same_weights(plain.path, whole.path)
    still = {"encoder_dropout": 0.0, "dropout": 0.0}  # a further pass draws numbers for dropout
    unsure = train(praise(), model, tmp_path / "unsure", **how | {"confidence": 1.0} | still)
    assert same_weights(unsure.path, train(praise(), model, tmp_path / "still", **SHORT, **still).path)


@pytest.mark.slow
def test_other_text_is_another_run(tiny_bert, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("the cat was good\n\nthe dog was bad\n")
    how = {**SHORT, "consistency": "word-deletion", "unlabelled": str(file)}
    train(praise(), tiny_bert, tmp_path / "run", **how)
    file.write_text("the cat was good\nthe dog was good\n")
    with pytest.raises(UsageError, match="holds another run: its signals"):
        train(praise(), tiny_bert, tmp_path / "run", **how)
    file.write_text("\n")
    with pytest.raises(DataError, match="has no text"):
        train(praise(), tiny_bert, tmp_path / "run", **how)


@pytest.mark.slow
@pytest.mark.parametrize("make", [count, pairs])
def test_other_tasks(make, tiny_bert, tmp_path):
    how = {"consistency": "word-deletion", "unlabelled": f"{make().name}:test", **SHORT, "consistency_weight": 5.0}
    run = train(make(), tiny_bert, tmp_path / "run", **how, **({"confidence": 0.0} if make is pairs else {}))
    assert not same_weights(run.path, train(make(), tiny_bert, tmp_path / "plain", **SHORT).path)


REFUSED = {
    "no text": (praise, {"consistency": "dropout"}, "needs text without labels"),
    "no use": (praise, {"unlabelled": "praise:test"}, "only with lm_loss or consistency or pseudo_labels"),
    "kind": (praise, {"consistency": "noise", "unlabelled": "praise:test"}, "one of dropout, word-deletion"),
    "frozen": (
        praise,
        {"consistency": "dropout", "unlabelled": "praise:test", "regime": "feature-extraction"},
        "frozen layers are cached",
    ),
    "tags": (tags, {"consistency": "dropout", "unlabelled": "tags:test"}, "labels words"),
    "numbers": (count, {"consistency": "dropout", "unlabelled": "count:test", "confidence": 0.5}, "is a probability"),
    "nowhere": (praise, {"consistency": "dropout", "unlabelled": "nowhere"}, "neither a file nor a TASK:SPLIT"),
    "deletion": (
        praise,
        {"consistency": "dropout", "unlabelled": "praise:test", "deletion": 0.3},
        "deletion is 0.3, which has an effect only with consistency word-deletion",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tiny_bert, tmp_path):
    make, how, words = REFUSED[case]
    with pytest.raises(UsageError, match=words):
        train(make(), tiny_bert, tmp_path / "run", device="cpu", **how)


STEEP = {"epochs": 8, "learning_rate": 3e-3, "batch_size": 8, "device": "cpu", "pooling": "mean"}


@pytest.fixture(scope="module")
def teacher(tiny_bert, tmp_path_factory):
    return train(praise(), tiny_bert, tmp_path_factory.mktemp("teacher") / "run", **STEEP)


@pytest.mark.slow
def test_a_teacher_labels_texts(teacher, tiny_bert, tmp_path, caplog):
    how = {"unlabelled": "praise:test", "pseudo_labels": str(teacher.path), **SHORT}
    task = praise()
    run = train(task, tiny_bert, tmp_path / "run", confidence=0.6, **how)
    found = run.card["pseudo_labels"]
    assert found.keys() == {"bad", "good"}
    assert run.card["examples"][0] == 40 + sum(found.values())
    assert 8 < sum(found.values()) <= 13
    assert not same_weights(run.path, train(task, tiny_bert, tmp_path / "plain", **SHORT).path)
    one_class = tuple(e for e in task.split("test") if e.label == 1)
    only = replace(task, splits={**task.splits, "test": Split("test", one_class)})
    with caplog.at_level(logging.WARNING):
        train(only, tiny_bert, tmp_path / "one", confidence=0.6, **how)
    assert any("have the class good" in message for message in caplog.messages)
    with pytest.raises(DataError, match="is sure of none of the 13 unlabelled texts"):
        train(task, tiny_bert, tmp_path / "none", confidence=1.0, **how)


@pytest.mark.slow
def test_pseudo_labels_are_for_classes(teacher, tiny_bert, tmp_path):
    numbers = train(count(), tiny_bert, tmp_path / "count", **SHORT)
    with pytest.raises(UsageError, match="are for tasks with classes"):
        train(count(), tiny_bert, tmp_path / "run", pseudo_labels=str(numbers.path), unlabelled="count:test")
    with pytest.raises(UsageError, match="but pairs has the classes no, yes"):
        train(pairs(), tiny_bert, tmp_path / "run", pseudo_labels=str(teacher.path), unlabelled="pairs:test")


def test_unlabelled_text_leaves_out_what_is_labelled_or_evaluated(tiny_bert):
    """Labels guessed for the examples that choose the epoch would make their metrics look too good."""
    task = praise()
    options = TrainOptions(unlabelled="praise:train", consistency="dropout")
    labelled, held = Split("train", task.split("train").examples[:20]), Split("v", task.split("train").examples[20:28])
    found = Signals(options, task, labelled, evaluated=(held,)).texts
    seen = {e.text for part in (labelled, held) for e in part}
    assert found is not None
    assert {e.text for e in found} == {e.text for e in task.split("train")} - seen
    with pytest.raises(DataError, match="every text"):
        _ = Signals(options, task, task.split("train")).texts


def test_nothing_is_dropped(tiny_bert, tmp_path, caplog):
    (tmp_path / "texts.txt").write_text("the cat was good\n" * 9)
    how = {"unlabelled": str(tmp_path / "texts.txt"), "consistency": "dropout", "epochs": 1, "device": "cpu"}
    run = train(praise(), tiny_bert, tmp_path / "run", dropout=0.0, encoder_dropout=0.0, **how)
    assert (run.rows[run.rows["metric"] == "added-loss"]["value"] == 0).all()
    assert "this run has none, so both are alike" in caplog.text
