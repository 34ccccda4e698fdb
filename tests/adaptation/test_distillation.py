"""Distillation: its loss is that of the paper, a student learns what its teacher says, and runs resume."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lessons import SHORT, Stop, count, pairs, praise, same_weights, stopping, tags
from torch.nn import functional

from probekit.adaptation.heads.head import Head
from probekit.adaptation.runs.folder import read_card, write_card
from probekit.adaptation.signals.teacher import Lesson
from probekit.adaptation.signals.terms import Distillation, hidden_distance, layer_map, soft_loss
from probekit.adaptation.train import train
from probekit.errors import ModelError, UsageError
from probekit.tasks.task import Split

GOLDEN = Path(__file__).parents[2] / "../shared/goldens/regularisation/regularisation.npz"


@pytest.mark.parametrize("case", [0, 1, 2])
@pytest.mark.parametrize("temperature", [1, 2, 4, 10])
def test_loss_and_gradient_equal_the_goldens(case, temperature):
    if not GOLDEN.is_file():
        pytest.skip(f"{GOLDEN} is not there")
    with np.load(GOLDEN) as golden:
        found = {k.removeprefix(f"kd/{case}/"): torch.tensor(golden[k]) for k in golden.files if f"kd/{case}/" in k}
    student, labels = found["student"].requires_grad_(), found["labels"].long()
    soft = soft_loss(student, found["teacher"], temperature)
    (grad,) = torch.autograd.grad(soft, student)
    at = f"T{temperature}/"
    torch.testing.assert_close(soft.detach(), found[at + "t2_kl"], rtol=0, atol=1e-10)
    torch.testing.assert_close(grad, found[at + "grad_t2_kl"], rtol=0, atol=1e-10)
    hard = functional.cross_entropy(student, labels)
    for share in (0.1, 0.5, 0.9):
        whole = hard + share * (soft - hard)
        torch.testing.assert_close(whole.detach(), found[f"{at}hinton_alpha{share}"], rtol=0, atol=1e-10)


def test_the_term_of_words_is_a_mean_over_words():
    torch.manual_seed(0)
    logits, said = torch.randn(2, 3, 4), [torch.randn(3, 4), torch.randn(1, 4)]
    first = {"example": torch.tensor([1, 0]), "words": torch.tensor([[0, 2, 3], [1, -1, -1]])}
    term = Distillation(Lesson([said[1], said[0]]), temperature=3.0, share=1.0)
    value = term(SimpleNamespace(head=Head()), {"first": first}, {"logits": logits, "loss": torch.tensor(0.25)}, 0, 1)
    p, q = (torch.softmax(x / 3, -1) for x in (torch.cat([logits[0], logits[1, :1]]), torch.cat(said)))
    torch.testing.assert_close(value, 9 * (q * (q / p).log()).sum() / 4 - 0.25)


def test_layers_correspond_evenly():
    assert layer_map(4, 12) == [2, 5, 8, 11]
    assert layer_map(5, 12)[-1] == 11
    assert layer_map(6, 3) == [0, 0, 1, 1, 2, 2]


def test_hidden_distance_is_that_of_directions():
    s, t = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    assert float(hidden_distance(s, t)) == pytest.approx(2)  # 2 - 2 cos
    assert float(hidden_distance(s, 5 * s)) == 0


STEEP = {"epochs": 8, "learning_rate": 3e-3, "batch_size": 8, "device": "cpu", "pooling": "mean"}


@pytest.fixture(scope="module")
def teacher(tiny_bert, tmp_path_factory):
    out = tmp_path_factory.mktemp("teacher") / "run"
    return train(praise(), tiny_bert, out, **STEEP)


def without_information(task):
    """The same texts with labels that alternate within each class, so that only a teacher can tell."""
    examples = tuple(replace(e, label=(i // 2) % 2) for i, e in enumerate(task.split("train")))
    return replace(task, splits={**task.splits, "train": Split("train", examples)})


@pytest.mark.slow
def test_a_student_learns_from_the_teacher_what_labels_do_not_say(teacher, tiny_bert, tmp_path):
    how = STEEP | {"keep": "last"}
    task = without_information(praise())
    taught = train(task, tiny_bert, tmp_path / "a", teacher=str(teacher.path), distillation=1.0, **how)
    alone = train(task, tiny_bert, tmp_path / "b", **how)
    assert teacher.metrics["accuracy"] > 0.9
    assert taught.metrics["accuracy"] > 0.9
    assert alone.metrics["accuracy"] < 0.8


@pytest.mark.slow
def test_no_share_is_a_plain_run(teacher, tiny_bert, tmp_path):
    plain = train(praise(), tiny_bert, tmp_path / "plain", **SHORT)
    none = train(praise(), tiny_bert, tmp_path / "none", teacher=str(teacher.path), distillation=0.0, **SHORT)
    assert same_weights(plain.path, none.path)
    losses = [run.rows.query("split == 'train' and metric == 'log-loss'")["value"].to_numpy() for run in (plain, none)]
    np.testing.assert_allclose(*losses, rtol=1e-6)  # the loss of the labels, from a sum of float32


@pytest.mark.slow
def test_hidden_states_of_another_width_are_matched_and_a_run_resumes(teacher, tiny_gpt2, tmp_path):
    how = {"teacher": str(teacher.path), "match_hidden": 2.0, **SHORT, "learning_rate": 1e-3}
    whole = train(praise(), tiny_gpt2, tmp_path / "whole", **how)
    with pytest.raises(Stop):
        train(praise(), tiny_gpt2, tmp_path / "part", progress=stopping(7), **how)
    assert same_weights(whole.path, train(praise(), tiny_gpt2, tmp_path / "part", **how).path)
    unmatched = train(praise(), tiny_gpt2, tmp_path / "without", **how | {"match_hidden": 0.0})
    assert not same_weights(whole.path, unmatched.path)
    assert whole.card["identity"]["signals"]["teacher"].keys() == {"head.safetensors", "model.safetensors"}


@pytest.mark.slow
@pytest.mark.parametrize("make", [count, tags, pairs])
def test_other_tasks(make, tiny_bert, tmp_path):
    first = train(make(), tiny_bert, tmp_path / "teacher", **SHORT)
    more = {"regime": "feature-extraction", "head": "bilstm", "hidden_size": 4, "caches": tmp_path / "caches"}
    more = more if make is tags else {}
    taught = train(make(), tiny_bert, tmp_path / "taught", teacher=str(first.path), **SHORT, **more)
    alone = train(make(), tiny_bert, tmp_path / "alone", **SHORT, **more)
    assert not same_weights(taught.path, alone.path)


@pytest.mark.slow
def test_a_teacher_on_frozen_layers(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the cache of the texts that it reads is made
    frozen = {"regime": "feature-extraction", "head": "linear", "caches": tmp_path / "caches"}
    first = train(praise(), tiny_bert, tmp_path / "teacher", **SHORT | frozen)
    write_card(first.path, read_card(first.path) | {"source": {"task": "praise", "model": str(tiny_bert)}})
    how = SHORT | {"teacher": str(first.path)}
    taught = train(praise(), tiny_bert, tmp_path / "taught", **how)
    assert not same_weights(taught.path, train(praise(), tiny_bert, tmp_path / "alone", **SHORT).path)
    with pytest.raises(UsageError, match="no encoder of its own"):
        train(praise(), tiny_bert, tmp_path / "run", match_hidden=1.0, **how)


REFUSED = {
    "sentiment": ({"teacher": "none"}, ModelError, "is not a run"),
    "temperature alone": ({"temperature": 3.0}, UsageError, "only with teacher"),
    "share": ({"distillation": 1.5}, UsageError, "from 0 to 1"),
    "frozen": ({"regime": "feature-extraction", "match_hidden": 1.0}, UsageError, "trains the encoder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, teacher, tiny_bert, tmp_path):
    how, error, words = REFUSED[case]
    given = {} if case == "temperature alone" else {"teacher": str(teacher.path)}
    with pytest.raises(error, match=words):
        train(praise(), tiny_bert, tmp_path / "run", **{**given, **how, "device": "cpu"})


def test_a_teacher_of_other_labels_is_refused(teacher, tiny_bert, tmp_path):
    with pytest.raises(UsageError, match="the classes bad, good, but pairs has the classes no, yes"):
        train(pairs(), tiny_bert, tmp_path / "run", teacher=str(teacher.path), device="cpu")
    with pytest.raises(UsageError, match="but count has numbers as labels"):
        train(count(), tiny_bert, tmp_path / "run", teacher=str(teacher.path), device="cpu")
