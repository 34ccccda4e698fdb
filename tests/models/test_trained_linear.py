"""Linear layers that are trained by oneDNN: the same numbers as torch's, and the same weights by the same names."""

import copy

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from probekit.models.transformers.onednn import TrainedConv1D, TrainedLinear, onednn_available, train_with_onednn

pytestmark = pytest.mark.skipif(not onednn_available(torch.float32), reason="oneDNN does not work here")


def both(wide, out, *, bias=True, seed=0):
    torch.manual_seed(seed)
    plain = nn.Linear(wide, out, bias=bias)
    fast = nn.Sequential(copy.deepcopy(plain))
    assert train_with_onednn(fast) == 1
    assert type(fast[0]) is TrainedLinear
    return plain, fast[0]


def close(found, right):
    # sums of up to 300 float32 products in another order; measured: below 1e-6 of the largest
    assert found.shape == right.shape
    assert (found - right).abs().max() <= 1e-5 * right.abs().max().clamp_min(1e-30)


def gradients(layer, x, weight):
    layer.zero_grad()
    x = x.detach().clone().requires_grad_() if x.is_contiguous() else x.detach().requires_grad_()
    out = layer(x)
    (out * weight).sum().backward()
    return [out.detach(), x.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 48), (1, 48), (48,), (2, 5, 48), (3, 1, 2, 48), (1, 1, 48), (300, 48)], ids=str)
def test_values_and_gradients(shape, bias):
    with torch.random.fork_rng():
        plain, fast = both(48, 20, bias=bias)
        x, weight = torch.randn(shape), torch.randn(*shape[:-1], 20)
    for found, right in zip(gradients(fast, x, weight), gradients(plain, x, weight), strict=True):
        close(found, right)


@pytest.mark.parametrize("shape", [(7, 48), (1, 48), (2, 5, 48), (300, 48)], ids=str)
def test_values_and_gradients_of_gpt2_layers(shape):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain = Conv1D(20, 48)
        nn.init.normal_(plain.bias)
        fast = nn.Sequential(copy.deepcopy(plain))
        x, weight = torch.randn(shape), torch.randn(*shape[:-1], 20)
    assert train_with_onednn(fast) == 1
    assert type(fast[0]) is TrainedConv1D
    assert {name: p.shape for name, p in fast[0].named_parameters()} == {"weight": (48, 20), "bias": (20,)}
    for found, right in zip(gradients(fast[0], x, weight), gradients(plain, x, weight), strict=True):
        close(found, right)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fast[0](x), plain(x))
    assert fast[0](x[:0]).shape == (0, *shape[1:-1], 20)


def test_what_does_not_lie_in_one_piece():
    with torch.random.fork_rng():
        plain, fast = both(32, 32)
        for x in (
            torch.randn(32, 9).T,
            torch.randn(4, 32, 6).transpose(1, 2),
            torch.randn(5, 64)[:, ::2],
            torch.randn(32).expand(6, 32),
        ):
            assert not x.is_contiguous()
            weight = torch.randn(*x.shape[:-1], 32)
            for found, right in zip(gradients(fast, x, weight), gradients(plain, x, weight), strict=True):
                close(found, right)
            turned = torch.randn(32, 9).T  # a gradient that does not, either
        y = torch.randn(9, 32)
        grads = []
        for layer in (fast, plain):
            layer.zero_grad()
            layer(y).backward(turned)
            grads.append(layer.weight.grad.clone())
        close(*grads)


def test_no_rows():
    plain, fast = both(8, 3)
    for found, right in zip(
        gradients(fast, torch.zeros(0, 8), torch.zeros(0, 3)),
        gradients(plain, torch.zeros(0, 8), torch.zeros(0, 3)),
        strict=True,
    ):
        assert found.shape == right.shape
        assert not found.any()


def test_gradients_against_differences():
    with torch.random.fork_rng():
        _, layer = both(6, 4)
        x, direction = torch.randn(5, 6), torch.randn(4, 6)
    out = layer(x)
    (out**2).sum().backward()
    slope = float((layer.weight.grad * direction).sum())
    step = 1e-2  # of a quadratic function central differences are exact but for rounding
    with torch.no_grad():
        values = []
        for sign in (1, -1):
            layer.weight += sign * step * direction
            values.append(float((layer(x).double() ** 2).sum()))
            layer.weight -= sign * step * direction
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(slope, rel=1e-3)


def test_only_what_is_wanted_is_computed():
    _, layer = both(6, 4)
    layer.weight.requires_grad_(False)
    layer.bias.requires_grad_(False)
    x = torch.ones(3, 6, requires_grad=True)
    layer(x).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is None
    assert x.grad is not None
    assert not layer(torch.ones(3, 6)).requires_grad


def test_autocast_and_inference():
    with torch.random.fork_rng():
        plain, fast = both(16, 8)
        x = torch.randn(5, 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fast(x), plain(x))
        assert fast(x).dtype == torch.bfloat16
    with torch.inference_mode():
        close(fast(x), plain(x))


def test_only_plain_linear_layers_change():
    model = nn.ModuleDict(
        {
            "a": nn.Linear(4, 4),
            "b": nn.MultiheadAttention(4, 2),
            "c": nn.Embedding(3, 4),
            "d": nn.Sequential(nn.Linear(4, 2)),
        }
    )
    before = {k: v.clone() for k, v in model.state_dict().items()}
    assert train_with_onednn(model) == 2
    assert train_with_onednn(model) == 0
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[k], before[k]) for k in after)
    assert type(model["b"].out_proj) is not TrainedLinear
