"""An update's gradient is that of the mean over its examples, however batches and processes divide them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from lessons import count, praise, tags

from probekit.adaptation.data.batches import Batches, Rounds
from probekit.adaptation.heads.bilstm import TagCRF, TagSoftmax
from probekit.adaptation.heads.head import Head
from probekit.adaptation.options import TrainOptions
from probekit.adaptation.training.fine_tuning import prepare_fine_tuning
from probekit.adaptation.training.trainer import fit, own_randomness

PLAIN = {
    "epochs": 2, "learning_rate": 1e-3, "device": "cpu", "group": False, "dropout": 0.0, "encoder_dropout": 0.0,
    "optimizer": "bert-adamw", "keep": "last",
}  # fmt: skip


class Size:
    """Half the squared norm of the head's weights, times a strength."""

    name = "size"

    def __call__(self, learner, batch, out, step, total, part=0):
        return 0.3 * sum((p**2).sum() for p in learner.head.parameters()) / 2


def trained(task, model, out, terms=(), **options):
    options = TrainOptions(**PLAIN | options)
    with own_randomness(0):
        training = prepare_fine_tuning(model, task, task.split("train"), task.split("dev"), options)
        training = replace(training, terms=terms)
        history = fit(training, out, lambda *_: None)
    return training.learner.saved_state(), [e for e in history.log if "loss" in e]


@pytest.mark.parametrize(
    ("task", "options"),
    [
        (praise(21), {}),
        pytest.param(count(21), {}, marks=pytest.mark.slow),
        pytest.param(tags(21), {"head": "softmax"}, marks=pytest.mark.slow),
        pytest.param(tags(21), {"head": "crf"}, marks=pytest.mark.slow),
    ],
    ids=["classes", "numbers", "tags", "crf"],
)
def test_four_batches_of_two_are_one_of_eight(task, options, tiny_bert, tmp_path):
    """21 examples: the last update has batches of 2, 2 and 1; words per batch differ, too."""
    whole, log = trained(task, tiny_bert, tmp_path / "whole", (Size(),), batch_size=8, **options)
    parts, same = trained(task, tiny_bert, tmp_path / "parts", (Size(),), batch_size=2, accumulation=4, **options)
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight, atol=2e-6, rtol=1e-5)  # measured: up to 6e-7
    assert len(log) == len(same) == 6
    for a, b in zip(log, same, strict=True):
        assert b["step"] == a["step"]
        for key in ("loss", "loss_size"):
            assert b[key] == pytest.approx(a[key], rel=1e-5)


@pytest.mark.slow
def test_it_is_not_the_mean_of_the_batches(tiny_bert, tmp_path, monkeypatch):
    """The control: with equal weights for all batches, the result differs by far more than rounding."""
    whole, _ = trained(praise(21), tiny_bert, tmp_path / "whole", batch_size=8)
    monkeypatch.setattr(Head, "weight", lambda self, labels: torch.tensor(1))
    parts, _ = trained(praise(21), tiny_bert, tmp_path / "parts", batch_size=2, accumulation=4)
    assert max(float((parts[name] - w).abs().max()) for name, w in whole.items()) > 1e-4


def test_the_weight_of_a_batch_is_what_its_loss_is_the_mean_of():
    labels = torch.tensor([[1, -100, 0], [-100, -100, -100]])
    assert int(Head().weight(torch.tensor([1, 0, 2]))) == 3
    assert int(Head().weight(torch.tensor([-100.0, 0.5]))) == 2
    assert int(TagSoftmax(4, 3).weight(labels)) == 2
    assert int(TagCRF(4, 3, label_names=("O", "B-X", "I-X")).weight(labels)) == 1


class Lengths:
    def __init__(self, n):
        self.length, self.order, self.nbytes = np.arange(1, n + 1), np.arange(n), 0

    def __len__(self):
        return len(self.length)


@pytest.mark.parametrize(("n", "count"), [(21, 2), (24, 3), (3, 4), (8, 1)])
def test_processes_share_each_round_of_batches(n, count):
    every = Batches(Lengths(n), 2, seed=3)
    every.set_epoch(1)
    rounds = [Rounds(every, rank, count) for rank in range(count)]
    assert {len(one) for one in rounds} == {len([*one]) for one in rounds} == {-(-len(every) // count)}
    joined = [batch for together in zip(*rounds, strict=True) for batch in together]
    assert joined[: len(every)] == [*every]
    assert all(batch == [*every][-1] for batch in joined[len(every) :])
