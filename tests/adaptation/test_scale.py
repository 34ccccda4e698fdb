"""What large models need: the same weights from gradient checkpointing with less kept, and from a compiled encoder."""

import pytest
import torch
from lessons import SHORT, praise, same_weights, weights

from probekit.adaptation.options import TrainOptions
from probekit.adaptation.train import train
from probekit.adaptation.training import learners
from probekit.adaptation.training.fine_tuning import prepare_fine_tuning
from probekit.adaptation.training.trainer import own_randomness
from probekit.errors import UsageError

TASK = praise(21, 9)
HOW = SHORT | {"learning_rate": 1e-3}


def kept_bytes(model, **options):
    """Bytes that the forward pass of a batch keeps for the backward pass, without the weights."""
    options = TrainOptions(**HOW | options)
    with own_randomness(0):
        training = prepare_fine_tuning(model, TASK, TASK.split("train"), TASK.split("dev"), options)
    own = {w.data_ptr() for w in training.learner.parameters()}
    seen = {}

    def keep(tensor):
        if tensor.data_ptr() not in own:
            seen[tensor.data_ptr(), tensor.nbytes] = tensor  # held, so that no address is used twice
        return tensor

    batch = training.objectives[0].train.__getitems__(range(16))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        training.learner.train()(**batch)
    return sum(size for _, size in seen)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_gradient_checkpointing_keeps_less(family, tiny_model):
    model = tiny_model(family)
    assert kept_bytes(model, gradient_checkpointing=True) < 0.6 * kept_bytes(model)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_gradient_checkpointing_trains_the_same(family, tiny_model, tmp_path):
    """Dropout, too: the second forward pass draws the masks of the first."""
    model = tiny_model(family)
    plain = train(TASK, model, tmp_path / "plain", **HOW)
    saving = train(TASK, model, tmp_path / "saving", gradient_checkpointing=True, **HOW)
    assert same_weights(plain.path, saving.path)


@pytest.mark.slow
def test_a_compiled_encoder_trains_the_same_up_to_rounding(tiny_bert, tmp_path):
    how = HOW | {"dropout": 0.0, "encoder_dropout": 0.0, "optimizer": "bert-adamw", "keep": "last"}
    plain = train(TASK, tiny_bert, tmp_path / "plain", **how)
    fast = train(TASK, tiny_bert, tmp_path / "fast", compile=True, **how)
    one, two = weights(plain.path), weights(fast.path)
    assert one.keys() == two.keys()
    assert max(float(abs(one[k] - two[k]).max()) for k in one) < 2e-5  # measured: 2.6e-6


def test_no_compiler(tiny_bert, tmp_path, monkeypatch):
    def fail(function):
        raise RuntimeError("no C++ compiler found")

    monkeypatch.setattr(learners.torch, "compile", fail)
    with pytest.raises(UsageError, match=r"torch cannot compile on this machine \(no C\+\+ compiler found\)"):
        train(TASK, tiny_bert, tmp_path / "run", compile=True, **HOW)


def test_compile_and_mixout_exclude_each_other():
    with pytest.raises(UsageError, match="mixout replaces weights in each step"):
        TrainOptions(compile=True, mixout=0.5)


def test_spread_weights_are_refused(tiny_bert, tmp_path, monkeypatch):
    from probekit.adaptation.training import trainer

    begin = trainer._Trainer.__init__

    def configured(self, **kwargs):
        begin(self, **kwargs)
        self.is_fsdp_enabled = True  # as accelerate's configuration does on GPUs

    monkeypatch.setattr(trainer._Trainer, "__init__", configured)
    with pytest.raises(UsageError, match="each process must hold the whole model"):
        train(TASK, tiny_bert, tmp_path / "run", **HOW)
