"""Language modelling: equal to separate LSTMs and a softmax written out, and blind to the word it predicts."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

from probekit.adaptation.heads.head import IGNORED, States
from probekit.adaptation.heads.language_model_head import LanguageModelHead
from probekit.errors import UsageError
from probekit.models.bilstm.config import BiLSTMConfig
from probekit.models.bilstm.model import BiLSTMModel
from probekit.models.transformers.onednn import onednn_available, train_with_onednn
from probekit.runtime import torch_threads

LENGTHS, WORDS, CELLS, WIDTH = (5, 1, 9, 2, 7), 30, 13, 11
SMALL = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture(autouse=True)
def _one_thread():
    with torch_threads(1):
        yield


def bilstm(directions="separate", layers=2, *, skip=True, cells=CELLS, words=WORDS, seed=0):
    torch.manual_seed(seed)
    config = BiLSTMConfig(
        input="words", cells=cells, num_hidden_layers=layers, directions=directions, skip=skip,
        embedding_size=WIDTH, vocab_size=words, dropout=0.0,
    )  # fmt: skip
    model = BiLSTMModel(config)
    return model, LanguageModelHead(config.hidden_size, words, cells=cells)


def sentences(lengths=LENGTHS, words=WORDS, seed=1):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(words, (n,), generator=draw) for n in lengths]


def batch(encoder, some, more=0):
    """States and labels of sequences, with ``more`` columns of padding, where the states are NaN."""
    labels = pad(pad_sequence(some, batch_first=True, padding_value=IGNORED), (0, more), value=IGNORED)
    mask = labels != IGNORED
    hidden = encoder(labels.clamp_min(0), attention_mask=mask.long()).last_hidden_state
    return States(hidden.masked_fill(~mask.unsqueeze(-1), torch.nan), mask, torch.zeros_like(mask)), labels


def loss(encoder, head, some, more=0):
    states, labels = batch(encoder, some, more)
    return head.loss(head(states), labels, states)


def naive(model, head, some):
    """The same from torch's LSTMs, one sentence, one word at a time; and the LSTMs."""
    lstms = [nn.LSTM(WIDTH, CELLS, 2, batch_first=True) for _ in range(2)]
    with torch.no_grad():
        for lstm, name in zip(lstms, ("forward_lstm", "backward_lstm"), strict=True):
            for i, layer in enumerate(model.layers):
                ours = getattr(layer, name)
                for theirs, weight in zip(lstm.all_weights[i], ours.weights, strict=True):
                    theirs.copy_(weight)
    nats = []
    for ids in some:
        x = model.embeddings(ids)
        ahead = lstms[0](x[None])[0][0]
        back = lstms[1](x.flip(0)[None])[0][0].flip(0)
        for i, word in enumerate(ids):
            if i:
                logits = head.output(torch.cat([ahead[i - 1], x[i - 1]] if model.config.skip else [ahead[i - 1]]))
                nats.append(cross_entropy(logits[None], word[None]))
            if i + 1 < len(ids):
                logits = head.output(torch.cat([back[i + 1], x[i + 1]] if model.config.skip else [back[i + 1]]))
                nats.append(cross_entropy(logits[None], word[None]))
    return torch.stack(nats), lstms


@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize("skip", [True, False])
def test_equal_to_a_naive_twin(skip, onednn):
    if onednn and not onednn_available(torch.float32):
        pytest.skip("no oneDNN on this processor")
    (model, head), some = bilstm(skip=skip), sentences()
    nats, lstms = naive(model, head, some)
    nats.mean().backward()
    shared = [model.embeddings.weight, head.output.weight, head.output.bias]
    expected = [p.grad.clone() for p in shared]
    for p in shared:
        p.grad = None
    if onednn:
        train_with_onednn(model)
        train_with_onednn(head)
    found = loss(model, head, some)
    found.backward()
    assert found.item() == pytest.approx(nats.mean().item(), rel=1e-6)
    for p, right in zip(shared, expected, strict=True):
        torch.testing.assert_close(p.grad, right, rtol=1e-5, atol=1e-6)
    for lstm, name in zip(lstms, ("forward_lstm", "backward_lstm"), strict=True):
        for i, layer in enumerate(model.layers):
            for theirs, ours in zip(lstm.all_weights[i], getattr(layer, name).weights, strict=True):
                torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6)
    states, labels = batch(model, some)
    assert head.count(labels, states) == len(nats) == 2 * sum(n - 1 for n in LENGTHS)


def test_a_causal_transformer_predicts_the_next_piece():
    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=WORDS, n_positions=16)).eval()
    head, some = LanguageModelHead.of_encoder(model, WORDS), sentences()
    nats = [
        cross_entropy(head.output(model(ids[None, :i]).last_hidden_state[:, -1]), ids[i : i + 1])
        for ids in some for i in range(1, len(ids))
    ]  # fmt: skip
    expected, found = torch.stack(nats).mean(), loss(model, head, some)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    weights = [*model.parameters(), *head.parameters()]
    gradients = [torch.autograd.grad(x, weights, allow_unused=True) for x in (found, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_neither_padding_nor_other_rows_change_a_loss():
    (model, head), some = bilstm(), sentences()
    rows = [loss(model, head, [ids]) for ids in some]
    assert rows[1].item() == 0  # one word: no prediction
    count = [2 * (len(ids) - 1) for ids in some]
    right = sum(n * row for n, row in zip(count, rows, strict=True)) / sum(count)
    for more in (0, 3):
        assert loss(model, head, some, more).item() == pytest.approx(right.item(), rel=1e-6)
        assert loss(model, head, some[:1], more).item() == pytest.approx(rows[0].item(), rel=1e-6)


def test_words_without_a_label_are_read_but_not_predicted():
    (model, head), some = bilstm(), sentences()
    states, labels = batch(model, some)
    labels[0, 2] = IGNORED
    nats, _ = naive(model, head, some)
    at = [(i, back) for i in range(5) for back in (False, True) if (i if not back else i < 4)]
    right = [x for x, (i, _) in zip(nats, at, strict=False) if i != 2] + [*nats[len(at) :]]
    assert head.count(labels, states) == len(right)
    assert head.loss(head(states), labels, states).item() == pytest.approx(torch.stack(right).mean().item(), rel=1e-6)


def test_a_batch_of_single_words_has_no_loss():
    model, head = bilstm()
    found = loss(model, head, sentences((1, 1)))
    found.backward()
    assert found.item() == 0
    assert not any(p.grad is not None and p.grad.isfinite().logical_not().any() for p in model.parameters())


def trained(model, head, steps=60, words=8):
    """The mean loss of the last ten steps on new sentences of independent, uniformly drawn words."""
    optimiser = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=2e-2)
    losses = []
    for step in range(steps):
        optimiser.zero_grad()
        found = loss(model, head, sentences((12,) * 32, words, seed=step))
        found.backward()
        optimiser.step()
        losses.append(found.item())
    return sum(losses[-10:]) / 10


def test_no_path_from_a_word_to_its_prediction():
    """Nothing predicts independent words, so the loss stays at log 8; a joint BiLSTM, which sees them, learns them.

    The mean of 10 x 704 losses near log 8 has a standard error below .005.
    """
    assert trained(*bilstm(words=8)) > log(8) - 0.02
    leaking, head = bilstm("joint", words=8)
    assert trained(leaking, head) < 0.7 * log(8)


def test_encoders_that_show_the_word_are_refused():
    model, _ = bilstm()
    assert LanguageModelHead.of_encoder(model, 50).output.in_features == CELLS + WIDTH
    assert LanguageModelHead.of_encoder(bilstm("joint", layers=1)[0], 50).cells == CELLS
    with pytest.raises(UsageError, match="upper layers of this BiLSTM read both directions.*Make a new encoder"):
        LanguageModelHead.of_encoder(bilstm("joint")[0], 50)
    elmo = {"char_dim": 3, "filters": [[1, 4]], "n_highway": 1, "projection_dim": 6, "cells": 5}
    with pytest.raises(UsageError, match="all layers of ELMo"):
        LanguageModelHead.of_encoder(
            BiLSTMModel(BiLSTMConfig(input="elmo", cells=5, directions="separate", elmo=elmo)), 50
        )
    torch.manual_seed(0)
    with pytest.raises(UsageError, match="this bert reads the words on both sides"):
        LanguageModelHead.of_encoder(BertModel(BertConfig(**SMALL, intermediate_size=16)), 50)
    decoder = BertModel(BertConfig(**SMALL, intermediate_size=16, is_decoder=True)).train()
    assert LanguageModelHead.of_encoder(decoder, 50).cells is None
    assert decoder.training


def test_bad_labels():
    model, head = bilstm()
    states, labels = batch(model, sentences())
    with pytest.raises(UsageError, match="the output vocabulary has 0 words; expected at least 2"):
        LanguageModelHead(8, 0)
    with pytest.raises(UsageError, match=r"labels are from \d+ to 30; expected ids from 0 to 29, and -100 at padding"):
        head.loss(head(states), labels.masked_fill(labels == labels.max(), 30), states)
    with pytest.raises(UsageError, match="labels are from -1 to"):
        head.loss(head(states), labels.clamp_min(-1), states)
    with pytest.raises(UsageError, match=r"labels have the shape \(5, 8\), pieces \(5, 9\)"):
        head.loss(head(states), labels[:, :8], replace(states, words=labels))
