"""What is added to the loss: it changes the weights as its gradient says, and rows keep the loss of the task."""

from dataclasses import replace

import torch
from lessons import SHORT, praise
from torch import nn

from probekit.adaptation.options import TrainOptions
from probekit.adaptation.training.fine_tuning import prepare_fine_tuning
from probekit.adaptation.training.objective import Training
from probekit.adaptation.training.trainer import fit, own_randomness


class Shrink:
    """Half the squared norm of the head's weights, times a strength."""

    name = "shrink"

    def __init__(self, strength: float) -> None:
        self.strength = strength
        self.steps: list[tuple[int, int]] = []

    def __call__(self, learner, batch, out, step, total, part=0):
        assert {"loss", "logits"} <= set(out)
        assert "labels" in batch
        self.steps.append((step, total))
        return self.strength * sum((p**2).sum() for p in learner.head.parameters()) / 2


def trained(model, out, *terms, auxiliary=(), **more):
    options = TrainOptions(**SHORT | more)
    with own_randomness(0):
        task = praise()
        training = prepare_fine_tuning(model, task, task.split("train"), task.split("dev"), options)
        training = replace(training, terms=terms, options=replace(options, device="cpu"))
        training.learner.auxiliary.update({name: nn.Linear(2, 2) for name in auxiliary})
        history = fit(training, out, lambda *_: None)
    return training, history


def test_each_batch_of_an_update_has_a_number(tiny_bert, tmp_path):
    """What a term draws differs between them; 40 examples are 5 batches, the last update has 2."""
    seen = []

    class Noting(Shrink):
        def __call__(self, learner, batch, out, step, total, part=0):
            seen.append((step, part))
            return super().__call__(learner, batch, out, step, total)

    trained(tiny_bert, tmp_path / "run", Noting(0.1), accumulation=3, epochs=1)
    assert seen == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def size(training: Training) -> float:
    return float(sum((p.detach() ** 2).sum() for p in training.learner.head.parameters()))


def test_a_term_changes_the_weights_and_is_logged_beside_the_loss(tiny_bert, tmp_path):
    plain, _ = trained(tiny_bert, tmp_path / "plain")
    none, _ = trained(tiny_bert, tmp_path / "none", Shrink(0.0))
    term = Shrink(1e3)
    strong, history = trained(tiny_bert, tmp_path / "strong", term)
    state = plain.learner.saved_state()
    assert all(torch.equal(w, state[name]) for name, w in none.learner.saved_state().items())
    assert size(strong) < size(plain)
    assert term.steps == [(i, 10) for i in range(10)]
    entries = [e for e in history.log if "loss" in e]
    assert all(e["loss_shrink"] > 1 and e["loss"] > e["loss_shrink"] for e in entries)


def test_auxiliary_modules_are_trained_but_not_saved(tiny_bert, tmp_path):
    training, _ = trained(tiny_bert, tmp_path / "run", Shrink(1.0), auxiliary=("helper",))
    assert "auxiliary.helper.weight" in dict(training.learner.groups()[-1][1])
    assert "auxiliary.helper.weight" in training.learner.state_dict()
    assert not any("auxiliary" in name for name in training.learner.saved_state())
