"""Mixout: the paper's formula with the same mask, nothing at probability 0, and runs with plain weights."""

import pytest
import torch
from lessons import SHORT, Stop, pairs, same_weights, stopping
from safetensors.torch import load_file
from test_resume import same
from torch import nn
from transformers.pytorch_utils import Conv1D

from probekit.adaptation.optimisation.regularise import add_mixout, mixout
from probekit.adaptation.options import Hyperparameters
from probekit.adaptation.train import train
from probekit.errors import UsageError
from probekit.models.transformers.onednn import train_with_onednn

TASK = pairs(16, 9)


def as_in_the_paper(weight, start, p, kept):
    """Lee, Cho & Kang (2020), equation 4, as in the authors' program; kept : 1 where the weight stays."""
    return ((1 - kept) * start + kept * weight - p * start) / (1 - p)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_it_is_the_papers_formula(p):
    rng = torch.Generator().manual_seed(1)
    weight, start = (torch.randn(7, 5, generator=rng, dtype=torch.float64) for _ in range(2))
    weight.requires_grad_()
    torch.manual_seed(3)
    found = mixout(weight, start, p)
    torch.manual_seed(3)
    kept = (nn.functional.dropout(torch.ones(7, 5, dtype=torch.float64), p) > 0).double()
    right = as_in_the_paper(weight, start, p, kept)
    torch.testing.assert_close(found, right, atol=1e-13, rtol=1e-13)
    one, two = (torch.autograd.grad((x**3).sum(), weight)[0] for x in (found, right))
    torch.testing.assert_close(one, two, atol=1e-11, rtol=1e-12)


def test_its_mean_is_the_weight():
    weight, start = torch.randn(50_000).double(), torch.zeros(50_000).double()
    torch.manual_seed(0)
    distance = (mixout(weight, start, 0.5) - weight).mean()
    assert abs(float(distance)) < 0.02  # standard error 0.0045


@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize("kind", [nn.Linear, Conv1D])
def test_layers_compute_with_the_mixed_weight(kind, onednn):
    layer = nn.Linear(5, 7) if kind is nn.Linear else Conv1D(7, 5)
    module, x, p = nn.Sequential(layer), torch.randn(3, 5), 0.4
    assert add_mixout(module, p) == 1
    start = layer.weight.detach().clone()
    with torch.no_grad():
        layer.weight += torch.randn_like(layer.weight)
    if onednn:
        train_with_onednn(module)
    torch.manual_seed(3)
    found = module(x)
    torch.manual_seed(3)
    mixed = mixout(layer.weight, start, p)
    right = x @ (mixed.T if kind is nn.Linear else mixed) + layer.bias
    torch.testing.assert_close(found, right, atol=1e-6, rtol=1e-5)
    one, two = (torch.autograd.grad(y.square().sum(), [layer.weight, layer.bias]) for y in (found, right))
    torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)
    plain = module.eval()(x)
    torch.testing.assert_close(plain, x @ (layer.weight.T if kind is nn.Linear else layer.weight) + layer.bias)
    assert set(module.state_dict()) == {"0.weight", "0.bias"}


HOW = SHORT | {"dropout": 0.0, "encoder_dropout": 0.0, "learning_rate": 1e-3}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_a_run_with_mixout(family, tiny_model, tmp_path):
    model = tiny_model(family)
    plain = train(TASK, model, tmp_path / "plain", **HOW)
    assert same_weights(plain.path, train(TASK, model, tmp_path / "none", mixout=0.0, **HOW).path)
    mixed = train(TASK, model, tmp_path / "mixed", mixout=0.7, run_name="mixed", **HOW)
    assert not same_weights(plain.path, mixed.path)
    names = [set(load_file(run.path / "model.safetensors")) for run in (plain, mixed)]
    assert names[0] == names[1]
    with pytest.raises(Stop):
        train(TASK, model, tmp_path / "stopped", mixout=0.7, run_name="mixed", progress=stopping(3), **HOW)
    same(mixed, train(TASK, model, tmp_path / "stopped", mixout=0.7, run_name="mixed", **HOW))


def test_probabilities_that_are_none():
    for p in (-0.1, 1.0):
        with pytest.raises(UsageError, match=r"mixout is .*; it must be from 0 to below 1"):
            Hyperparameters(mixout=p)
