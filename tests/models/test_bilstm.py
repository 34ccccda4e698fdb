"""The BiLSTM: equal to torch.nn.LSTM with the same weights, forward, backward and over twenty steps of training."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from plain_bilstm import Plain
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_sequence

from probekit.errors import ModelError, UsageError
from probekit.models.bilstm import lstm
from probekit.models.bilstm.config import BiLSTMConfig
from probekit.models.bilstm.lstm import LSTM
from probekit.models.bilstm.model import BiLSTMModel
from probekit.models.elmo.characters import character_ids
from probekit.models.elmo.lstm import Steps
from probekit.models.transformers.onednn import onednn_available, prepack, train_with_onednn
from probekit.runtime import torch_threads

LENGTHS = [4, 9, 1, 7, 7, 2]
NEEDS_ONEDNN = pytest.mark.skipif(not onednn_available(torch.float32), reason="no oneDNN on this processor")
ONEDNN, ONE_BY_ONE = (pytest.param(path, marks=NEEDS_ONEDNN) for path in (True, "large"))
"""Training with oneDNN: both directions together, or one after the other, as for large sizes."""


@pytest.fixture(autouse=True)
def _one_thread():
    with torch_threads(1):
        yield


@pytest.fixture
def onednn(request, monkeypatch):
    if request.param == "large":
        monkeypatch.setattr(lstm, "SMALL", 0)
    return request.param


def pair(*, separate, skip, onednn, seed=0, layers=2):
    """A model and its plain twin with the same weights."""
    torch.manual_seed(seed)
    config = BiLSTMConfig(
        input="words", cells=13, num_hidden_layers=layers, directions="separate" if separate else "joint", skip=skip,
        embedding_size=11, vocab_size=30, dropout=0.0,
    )  # fmt: skip
    model = BiLSTMModel(config)
    if onednn:
        assert train_with_onednn(model) == 4 * layers
    plain = Plain(30, 11, 13, layers, separate=separate, skip=skip)
    plain.take(model)
    return model, plain


def sequences(seed=1, lengths=LENGTHS):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(30, (n,), generator=generator) for n in lengths]


def run(model, some):
    """(pieces, width) of all sequences, padded for the model's forward."""
    ids = pad_sequence(some, batch_first=True)
    mask = torch.arange(ids.shape[1]) < torch.tensor([[len(x)] for x in some])
    return model(ids, mask.long()).last_hidden_state[mask]


@pytest.mark.parametrize("onednn", [False, ONEDNN, ONE_BY_ONE], indirect=True)
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("separate", [True, False])
def test_equal_to_torch(separate, skip, onednn):
    model, plain = pair(separate=separate, skip=skip, onednn=onednn, layers=3)
    some, weight = sequences(), torch.randn(sum(LENGTHS), 26 + 11 * skip, generator=torch.Generator().manual_seed(2))
    found, right = run(model, some), plain(some)
    torch.testing.assert_close(found, right, atol=1e-6, rtol=0)
    (found * weight).sum().backward()
    (right * weight).sum().backward()
    gradient = {name: p.grad for name, p in plain.named_parameters()}
    twin = Plain(30, 11, 13, 3, separate=separate, skip=skip)
    for p in model.parameters():
        p.data = p.grad
    twin.take(model)
    for name, p in twin.named_parameters():
        torch.testing.assert_close(p.data, gradient[name], atol=1e-6 * float(gradient[name].abs().max()), rtol=0)


@pytest.mark.parametrize("onednn", [False, ONEDNN, ONE_BY_ONE], indirect=True)
@pytest.mark.parametrize("separate", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_ten_steps_of_training(separate, onednn):
    model, plain = pair(separate=separate, skip=True, onednn=onednn)
    torch.manual_seed(5)
    head = nn.Linear(37, 3)
    heads, losses = [head, copy.deepcopy(head)], []
    target = torch.randint(3, (10, sum(LENGTHS)))
    for encoder, top in zip((lambda some: run(model, some), plain), heads, strict=True):
        module = plain if encoder is plain else model
        optimiser = torch.optim.Adam([*module.parameters(), *top.parameters()], lr=1e-3)
        losses.append([])
        for step in range(10):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(top(encoder(sequences(step))), target[step])
            loss.backward()
            optimiser.step()
            losses[-1].append(loss.item())
    assert losses[0][-1] != losses[0][0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=0, atol=1e-6)
    twin = Plain(30, 11, 13, 2, separate=separate, skip=True)
    twin.take(model)
    for name, p in twin.named_parameters():
        torch.testing.assert_close(p, plain.get_parameter(name), atol=1e-6, rtol=0)


@pytest.mark.parametrize("onednn", [False, ONEDNN, ONE_BY_ONE], indirect=True)
@pytest.mark.parametrize("lengths", [[9, 7, 7, 4, 2, 1], [1, 1]])
def test_first_states(onednn, lengths):
    """States and gradients are those of torch's LSTM with the same h and c before the first step."""
    torch.manual_seed(0)
    ours, theirs, some = LSTM(5, 8), nn.LSTM(5, 8), [torch.randn(n, 5) for n in lengths]
    with torch.no_grad():
        for weight, copied in zip(theirs.all_weights[0], ours.weights, strict=True):
            weight.copy_(copied)
    if onednn:
        train_with_onednn(ours)
    packed, start = pack_sequence(some), [torch.randn(len(lengths), 8, requires_grad=True) for _ in range(2)]
    x = packed.data.requires_grad_()
    right = theirs(packed, tuple(s[None] for s in start))[0].data
    found = ours(x, packed.batch_sizes.tolist(), tuple(start))
    torch.testing.assert_close(found, right, atol=1e-6, rtol=0)
    weight = torch.randn_like(right)
    expected = torch.autograd.grad((right * weight).sum(), [x, *start, *theirs.parameters()])
    gradients = torch.autograd.grad((found * weight).sum(), [x, *start, *ours.weights])
    for mine, gradient in zip(gradients, expected, strict=True):
        torch.testing.assert_close(mine, gradient, atol=1e-5, rtol=1e-5)
    if onednn_available(torch.float32):
        prepack(ours)
    with torch.inference_mode():
        torch.testing.assert_close(ours(x, packed.batch_sizes.tolist(), tuple(start)), right, atol=1e-6, rtol=0)


@pytest.mark.parametrize("onednn", [False, ONEDNN, ONE_BY_ONE], indirect=True)
def test_sequences_do_not_see_each_other(onednn):
    model, _ = pair(separate=False, skip=True, onednn=onednn)
    some = sequences()
    together = run(model, some).split(LENGTHS)
    for x, states in zip(some, together, strict=True):
        torch.testing.assert_close(run(model, [x]), states, atol=1e-6, rtol=0)


def test_separate_directions_do_not_leak():
    """The forward states before a changed word, and the backward states after it, are the same bits; not with joint."""
    for separate in (True, False):
        model, _ = pair(separate=separate, skip=False, onednn=False)
        before = torch.arange(9)
        after = before.clone()
        after[5] = 25
        old, new = (model(x[None], output_hidden_states=True).hidden_states for x in (before, after))
        for layer in (1, 2):
            ahead, back = ((old[layer][0][:, k : k + 13] == new[layer][0][:, k : k + 13]).all(-1) for k in (0, 13))
            blind = separate or layer == 1
            assert bool(ahead[:5].all()) == blind
            assert bool(back[6:].all()) == blind
            assert not ahead[5:].any()
            assert not back[:6].any()


def test_layers():
    model, _ = pair(separate=False, skip=True, onednn=False)
    found = model(torch.arange(4)[None], output_hidden_states=True)
    assert [x.shape[-1] for x in found.hidden_states] == [11, 26, 26, 37]
    torch.testing.assert_close(found.hidden_states[0][0], model.embeddings.weight[:4])
    torch.testing.assert_close(torch.cat([found.hidden_states[2], found.hidden_states[0]], -1), found.last_hidden_state)
    assert model.config.hidden_size == 37
    padded = model(torch.arange(4)[None], torch.tensor([[1, 1, 0, 0]])).last_hidden_state[0]
    assert not padded[2:].any()
    assert model(torch.zeros(2, 0, dtype=torch.long)).last_hidden_state.shape == (2, 0, 37)


def test_first_weights():
    torch.manual_seed(0)
    config = BiLSTMConfig(input="words", cells=64, embedding_size=50, vocab_size=40)
    model = BiLSTMModel(config)
    for name, p in model.layers.named_parameters():
        assert 0.9 / 8 < float(p.detach().abs().max()) <= 1 / 8, name
    bound = (6 / 90) ** 0.5
    assert 0.9 * bound < float(model.embeddings.weight.detach().abs().max()) <= bound


def test_dropout():
    """The LSTM and the skip connection read the same dropped input, and the top layer's states are dropped once."""
    config = BiLSTMConfig(input="words", cells=16, embedding_size=16, vocab_size=40, dropout=0.5)
    model = BiLSTMModel(config).train()
    found = model(torch.arange(40)[None], output_hidden_states=True).hidden_states
    dropped = [float((x == 0).float().mean()) for x in found]
    assert 0.4 < dropped[0] < 0.6
    assert dropped[1] == 0
    assert 0.4 < dropped[2] < 0.6
    assert torch.equal(found[3], torch.cat([found[2], found[0]], -1))


def characters_model(**more):
    elmo = {"char_dim": 3, "filters": [[1, 4], [2, 5]], "n_highway": 1, "projection_dim": 6}
    return BiLSTMModel(BiLSTMConfig(cells=5, elmo=elmo, **more))


def test_frozen_characters():
    """A frozen CNN stays as it is, whatever is asked; each word goes through it once."""
    for frozen in (True, False):
        model = characters_model(frozen=frozen).requires_grad_(requires_grad=True).train()
        seen, inner = [], model.elmo.embeddings.forward
        model.elmo.embeddings.forward = lambda x, seen=seen, inner=inner: seen.append(len(x)) or inner(x)
        words = torch.from_numpy(character_ids(["a", "bc", "def"]))
        for _ in range(2):
            model(torch.tensor([[0, 1, 2, 1, 0]]), characters=words).last_hidden_state.sum().backward()
        gradients = [p.grad is None for p in model.elmo.parameters()]
        assert all(gradients) if frozen else not any(gradients)
        assert seen == ([3] if frozen else [3, 3])
        assert model.config.embedding_size == 6


def test_words_are_computed_again_after_a_conversion():
    model = characters_model()
    words, ids = torch.from_numpy(character_ids(["a", "bc"])), torch.tensor([[0, 1]])
    model(ids, characters=words)
    assert model.double()(ids, characters=words).last_hidden_state.dtype is torch.float64


def test_copies():
    model = characters_model()
    words, ids = torch.from_numpy(character_ids(["a", "bc"])), torch.tensor([[0, 1]])
    model.eval()
    right = model(ids, characters=words).last_hidden_state
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.table.model is other.elmo
        torch.testing.assert_close(other(ids, characters=words).last_hidden_state, right, atol=0, rtol=0)


def test_no_sequence():
    assert LSTM(3, 4)(torch.zeros(0, 3), Steps.of(np.zeros(2, np.int64)).sizes).shape == (0, 4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"input": "bytes"}, "input is 'bytes'; expected one of characters, elmo, pieces, words"),
        ({"directions": "both"}, "directions is 'both'; expected one of joint, separate"),
        ({"cells": 0}, "cells is 0; expected a whole number of at least 1"),
        ({"dropout": 1.0}, "dropout is 1.0; expected a number from 0 to below 1"),
        ({"hidden_size": 1024}, "hidden_size is the width of the output, here 2560; leave it out and set cells"),
        ({"elmo": {"filter": []}}, "elmo has no setting 'filter'; expected some of char_dim, filters"),
    ],
)
def test_bad_settings(config, message):
    with pytest.raises(UsageError, match=message):
        BiLSTMConfig(**config)


def test_bad_calls():
    with pytest.raises(ModelError, match="no vocab_size, which the input 'words' needs"):
        BiLSTMModel(BiLSTMConfig(input="words"))
    with pytest.raises(ModelError, match="reads the characters of words; pass characters"):
        characters_model()(torch.tensor([[0]]))
