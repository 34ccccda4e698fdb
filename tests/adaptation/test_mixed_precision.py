"""Training in bfloat16 stays near float32, and an update still takes the mean over its examples."""

import numpy as np
import pytest
import torch
from lessons import praise, weights

from probekit.adaptation.heads.head import Head
from probekit.adaptation.train import train

HOW = {
    "epochs": 2, "learning_rate": 1e-3, "device": "cpu", "group": False, "dropout": 0.0, "encoder_dropout": 0.0,
    "optimizer": "bert-adamw", "keep": "last",
}  # fmt: skip
WAYS = [{}, {"method": "lora"}]


def moved(run, other):
    """The norm of the difference between the weights of two runs, all as one vector."""
    one, two = weights(run.path), weights(other.path)
    assert one.keys() == two.keys()
    assert all(w.dtype == np.float32 for w in two.values())
    return float(np.sqrt(sum(np.square(one[k] - two[k]).sum() for k in one)))


@pytest.mark.slow  # ten trainings
@pytest.mark.parametrize("how", WAYS, ids=["full", "lora"])
def test_bfloat16_is_near_float32_and_accumulates_the_mean(how, tiny_bert, tmp_path, monkeypatch):
    """In units of the distance that training covers; 21 examples: the last update has batches of 2, 2 and 1."""
    few = {"batch_size": 2, "accumulation": 4, "dtype": "bfloat16"}
    start, plain, whole, parts = (
        train(praise(21), tiny_bert, tmp_path / str(i), **HOW | {"batch_size": 8} | how | more)
        for i, more in enumerate(({"learning_rate": 1e-12, "epochs": 1}, {}, {"dtype": "bfloat16"}, few))
    )
    far = moved(start, plain)
    assert 0 < moved(plain, whole) < 0.1 * far  # measured: 0.03 (full), 0.05 (lora)
    assert moved(whole, parts) < 0.05 * far  # measured: 0.018 (full), 0.013 (lora)
    assert parts.metrics["loss"] == pytest.approx(plain.metrics["loss"], abs=0.01)  # measured: 0.001
    monkeypatch.setattr(Head, "weight", lambda self, labels: torch.tensor(1))  # the control: the mean of batches
    wrong = train(praise(21), tiny_bert, tmp_path / "wrong", **HOW | how | few)
    assert moved(whole, wrong) > 2 * moved(whole, parts)


@pytest.mark.slow
@pytest.mark.parametrize("signal", ["slice-heads", "lm-loss", "consistency"])
def test_what_is_added_to_the_loss_has_the_precision_of_the_loss(signal, tiny_bert, tmp_path):
    (tmp_path / "slices.toml").write_text("[long]\nwords_at_least = 4\n")
    (tmp_path / "texts.txt").write_text("the cat was good\nthe dog was bad\n" * 4)
    more = {
        "slice-heads": {"slices": str(tmp_path / "slices.toml"), "slice_heads": 0.5},
        "lm-loss": {"lm_loss": 0.5},
        "consistency": {"unlabelled": str(tmp_path / "texts.txt"), "consistency": "dropout", "confidence": 0.0},
    }[signal]
    start, plain, half = (
        train(praise(21), tiny_bert, tmp_path / str(i), **HOW | {"batch_size": 8} | more | other)
        for i, other in enumerate(({"learning_rate": 1e-12, "epochs": 1}, {}, {"dtype": "bfloat16"}))
    )
    assert 0 < moved(plain, half) < 0.1 * moved(start, plain)
    added = [run.rows[run.rows["metric"] == "added-loss"]["value"].mean() for run in (plain, half)]
    assert added[1] == pytest.approx(added[0], rel=0.02)
