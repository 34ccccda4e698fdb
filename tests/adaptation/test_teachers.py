"""Teachers that read several sequences per example, know several tasks, or have vectors before the text."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from lessons import SHORT, praise

from probekit.adaptation.optimisation.order import plan
from probekit.adaptation.optimisation.regularise import fisher_of_run
from probekit.adaptation.options import TrainOptions
from probekit.adaptation.runs.evaluation import predict_run
from probekit.adaptation.signals.signals import Signals
from probekit.adaptation.signals.teacher import ask
from probekit.adaptation.train import train
from probekit.errors import UsageError
from probekit.tasks.task import Split

ONCE = SHORT | {"epochs": 1, "learning_rate": 1e-3}


def agrees(run, task, split="dev"):
    """Each example's lesson against the probabilities that evaluation finds."""
    options = TrainOptions(device="cpu", batch_size=8)
    lesson = ask(str(run.path), options, task, task.split(split))
    found = predict_run(run.path, task, split, device="cpu")
    shares = torch.stack(lesson.logits).softmax(-1).numpy()
    np.testing.assert_allclose(shares, np.concatenate(found.probabilities), atol=1e-5)


@pytest.mark.slow
def test_windows(tiny_bert, tmp_path):
    task = praise(40, 21)
    run = train(task, tiny_bert, tmp_path / "run", long="windows", max_length=6, overlap=1, **ONCE)
    agrees(run, task)
    student = train(task, tiny_bert, tmp_path / "student", teacher=str(run.path), **ONCE)
    assert np.isfinite(student.metrics["loss"])
    with pytest.raises(UsageError, match="reads several sequences per example"):
        train(task, tiny_bert, tmp_path / "other", teacher=str(run.path), match_hidden=1.0, **ONCE)


@pytest.mark.slow
def test_a_teacher_of_several_tasks_answers_with_the_head_of_the_task(tiny_bert, tmp_path):
    own = replace(praise(40, 21, seed=1), name="grammar:sentiment")
    run = train("grammar:paraphrase", tiny_bert, tmp_path / "run", also="grammar:sentiment", limit=40, **ONCE)
    (about,) = run.card["also"]
    task = replace(own, label_names=tuple(about["target"]["label_names"]))
    agrees(run, task)
    head = fisher_of_run(run.path, task, "dev", examples=5)
    names = {name: float(value.sum()) for name, value in head.items()}
    other = fisher_of_run(run.path, replace(task, name="unknown", label_names=tuple(run.card["target"]["label_names"])),
                          "dev", examples=5)  # fmt: skip
    assert any(names[name] != pytest.approx(float(value.sum())) for name, value in other.items())


@pytest.mark.slow
def test_hidden_states_of_a_prompted_teacher(tiny_bert, tmp_path):
    task = praise()
    run = train(task, tiny_bert, tmp_path / "run", method="prompt", virtual_tokens=4, **ONCE)
    student = train(task, tiny_bert, tmp_path / "student", teacher=str(run.path), match_hidden=1.0, **ONCE)
    assert np.isfinite(student.metrics["loss"])


def test_pseudo_labelled_examples_are_in_slices_too(tmp_path):
    (tmp_path / "slices.toml").write_text("[long]\nwords_at_least = 4\n")
    task = praise()
    options = TrainOptions(slices=str(tmp_path / "slices.toml"), slice_heads=0.5)
    more = tuple(replace(e, id=f"new {e.id}") for e in task.split("test"))
    signals = Signals(options, task, task.split("train"))
    members = signals.learned(Split("train", (*task.split("train").examples, *more)))["long"]
    assert {i for i in members if i.startswith("new ")} == {e.id for e in more if len(e.text.split()) >= 4} != set()


def test_orders_without_embeddings():
    names = ["block 1", "block 2", "head"]
    assert [sorted(one.groups) for one in plan("head,body", names)] == [[2], [0, 1, 2]]
    for order in ("embeddings", "head=0"):
        with pytest.raises(UsageError, match="names none of the layers that this run trains: block 1, block 2, head"):
            plan(order, names)
