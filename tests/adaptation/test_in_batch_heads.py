"""Heads that compare the pairs of a batch: equal to loops over pairs, and they learn which reply belongs to what."""

from __future__ import annotations

from math import exp, log

import pytest
import torch
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils.rnn import pad_sequence

from probekit.adaptation.heads.head import States
from probekit.adaptation.heads.in_batch import ContrastiveHead, ResponseHead
from probekit.errors import UsageError

WIDTH = 7
NO_LABELS = torch.zeros(0)


def some(lengths, seed):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(n, WIDTH, generator=draw) for n in lengths]


def padded(rows, more=0):
    """States with NaN at padding, and a special last piece."""
    length = torch.tensor([[len(x)] for x in rows])
    hidden = pad(pad_sequence(rows, batch_first=True, padding_value=torch.nan), (0, 0, 0, more), value=torch.nan)
    place = torch.arange(hidden.shape[1])
    return States(hidden, place < length, place == length - 1)


def batch(first, second, more=0):
    one, two = padded(first, more), padded(second, 2 * more)
    return States(one.hidden, one.mask, one.special, second=two)


def response():
    torch.manual_seed(0)
    return ResponseHead(WIDTH, hidden_size=(5, 6)).eval()


def score(head, u, v):
    """Logits (2,) of one pair of sentences."""
    u, v = (head.projection(x).max(0).values for x in (u, v))
    return head.output(torch.cat([u, v, (u - v).abs(), u * v])[None])[0]


def agree(found, expected, leaves):
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    for ours, theirs in zip(*(torch.autograd.grad(x, leaves) for x in (found, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_responses_equal_a_naive_twin(n, more):
    head, first, second = response(), some((4, 3, 6, 2, 5)[:n], 1), some((2, 5, 3, 6, 1)[:n], 2)
    leaves = [*head.parameters(), *(x.requires_grad_() for x in first + second)]
    nats, right = [], []
    for i, u in enumerate(first):
        pairs = [(i, 1)] + [((i + 1) % n, 0)] * (n > 1)
        assert n == 1 or pairs[1][0] != i  # no pair is its own distractor
        logits = [score(head, u, second[j]) for j, _ in pairs]
        nats += [cross_entropy(x[None], torch.tensor([y])) for x, (_, y) in zip(logits, pairs, strict=True)]
        right.append(sum(int(x.argmax()) == y for x, (_, y) in zip(logits, pairs, strict=True)) / len(pairs))
    states = batch(first, second, more)
    logits = head(states)
    agree(head.loss(logits, NO_LABELS, states), torch.stack(nats).mean(), leaves)
    assert head.predict(logits, states).tolist() == right


@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_contrast_equals_a_naive_twin(n, more):
    head, first, second = ContrastiveHead(scale=3.0), some((4, 3, 6, 2, 5)[:n], 1), some((2, 5, 3, 6, 2)[:n], 2)
    leaves = [x.requires_grad_() for x in first + second]
    nats, right = [], []
    for i, x in enumerate(first):
        u, scores = x[:-1].mean(0), []  # the last piece is special
        for y in second:
            v = y[:-1].mean(0)
            scores.append(3 * (u @ v) / (u.norm() * v.norm()))
        nats.append(torch.stack(scores).logsumexp(0) - scores[i])
        right.append(float(max(range(n), key=lambda j: float(scores[j].detach())) == i))
    states = batch(first, second, more)
    logits = head(states)
    agree(head.loss(logits, NO_LABELS, states), torch.stack(nats).mean(), leaves)
    assert head.predict(logits, states).tolist() == right


def test_the_scale_of_sentence_transformers():
    """Orthogonal pairs: similarity 1 with the own second sentence and 0 with the others, times 20."""
    first = [x[None].repeat(3, 1) for x in torch.eye(WIDTH)[:4]]
    head = ContrastiveHead(pooling="max")
    states = batch(first, [2 * x for x in first])
    logits = head(states)
    assert head.loss(logits, NO_LABELS, states).item() == pytest.approx(log(1 + 3 * exp(-20)), abs=1e-6)
    assert head.predict(logits, states).tolist() == [1.0] * 4


@pytest.mark.slow
def test_learning():
    """Replies with the vector of their comment are learned, others are not: accuracy on new pairs, chance .5."""
    for related in (True, False):
        torch.manual_seed(0)
        head = ResponseHead(WIDTH, hidden_size=32, dropout=0.0)
        optimiser = torch.optim.Adam(head.parameters(), lr=1e-2)
        for step in range(101):
            first = some((1,) * 64, step)
            second = [x + 0.1 * y if related else y for x, y in zip(first, some((1,) * 64, 1000 + step), strict=True)]
            states = batch(first, second)
            logits = head(states)
            optimiser.zero_grad()
            head.loss(logits, NO_LABELS, states).backward()
            optimiser.step()
        accuracy = head.predict(logits, states).mean().item()
        assert accuracy > 0.9 if related else abs(accuracy - 0.5) < 0.15  # 128 decisions: standard error .044


def test_bad_options():
    with pytest.raises(UsageError, match="unknown pooling 'middle'; the poolings are pooler, mean"):
        ContrastiveHead(pooling="middle")
    with pytest.raises(UsageError, match="scale is 0; expected a number above 0"):
        ContrastiveHead(scale=0)
