"""The decoder: equal to torch's LSTMCell, one sentence and one word at a time; and it learns to translate."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils.rnn import pad_sequence

from probekit.adaptation.heads.decoder import DecoderHead
from probekit.adaptation.heads.head import IGNORED, States
from probekit.errors import UsageError
from probekit.models.transformers.onednn import onednn_available, train_with_onednn
from probekit.runtime import torch_threads

SOURCE, TARGET, WIDTH, WORDS, BEGIN, END = (5, 1, 9, 2, 7), (4, 9, 3, 0, 1), 10, 30, 0, 1
ATTENTION = pytest.mark.parametrize("attention", [False, True])


@pytest.fixture(autouse=True)
def _one_thread():
    with torch_threads(1):
        yield


def head(attention, seed=0, **options):
    torch.manual_seed(seed)
    return DecoderHead(
        WIDTH, WORDS, begin=BEGIN, end=END, attention=attention, **{"hidden_size": 12, "embedding_size": 6} | options
    )


def rows(seed=1):
    """Encoder states (t, d) and target words of each example."""
    draw = torch.Generator().manual_seed(seed)
    hidden = [torch.randn(n, WIDTH, generator=draw) for n in SOURCE]
    return hidden, [torch.randint(2, WORDS, (n,), generator=draw) for n in TARGET]


def batch(hidden, words, more=0):
    """States, with NaN at padding, and labels."""
    length = torch.tensor([[len(x)] for x in hidden])
    padded = pad(pad_sequence(hidden, batch_first=True, padding_value=torch.nan), (0, 0, 0, more), value=torch.nan)
    mask = torch.arange(padded.shape[1]) < length
    labels = pad(pad_sequence(words, batch_first=True, padding_value=IGNORED), (0, more), value=IGNORED)
    return States(padded, mask, torch.zeros_like(mask)), labels


def loss(model, hidden, words, more=0):
    states, labels = batch(hidden, words, more)
    return model.loss(model(states), labels, states)


class Naive(nn.Module):
    """The same with an LSTMCell: its input is [mean of the encoder's states; embedding]."""

    def __init__(self, ours):
        super().__init__()
        self.ours, attention = ours, ours.attention
        size, width = ours.lstm.cells, WIDTH if attention else 0
        self.cell = nn.LSTMCell(width + 6, size)
        seen = [attention.values.weight] if attention else []
        weights = torch.cat([*seen, ours.lstm.input.weight], 1), *ours.lstm.weights[1:]
        with torch.no_grad():
            for theirs, weight in zip(self.cell.parameters(), weights, strict=True):
                theirs.copy_(weight)

    def begin(self, hidden):
        h, c = self.ours.start(hidden.max(0).values).chunk(2)
        return h, c

    def step(self, hidden, word, h, c):
        x = self.ours.embeddings(word)
        if self.ours.attention:
            bilinear = self.ours.attention.keys.weight.T  # (width, size + embedding)
            weights = torch.stack([s @ (bilinear @ torch.cat([h, x])) for s in hidden]).softmax(0)
            x = torch.cat([(weights[:, None] * hidden).sum(0), x])
        h, c = (y[0] for y in self.cell(x[None], (h[None], c[None])))
        return self.ours.output(self.ours.projection(h)), h, c

    def nats(self, hidden, words):
        """The loss of each word and of the end."""
        h, c = self.begin(hidden)
        found, read = [], torch.tensor(BEGIN)
        for word in [*words, torch.tensor(END)]:
            logits, h, c = self.step(hidden, read, h, c)
            found.append(cross_entropy(logits[None], word[None]))
            read = word
        return found

    def generated(self, hidden, longest):
        h, c = self.begin(hidden)
        found, word = [], torch.tensor(BEGIN)
        for _ in range(longest):
            logits, h, c = self.step(hidden, word, h, c)
            word = logits.argmax()
            if word == END:
                break
            found.append(int(word))
        return found


@ATTENTION
@pytest.mark.parametrize("onednn", [False, True])
def test_equal_to_a_naive_twin(attention, onednn):
    if onednn and not onednn_available(torch.float32):
        pytest.skip("no oneDNN on this processor")
    model, (hidden, words) = head(attention), rows()
    naive = Naive(model)
    leaves = [x.requires_grad_() for x in hidden]
    nats = [x for h, w in zip(hidden, words, strict=True) if len(w) for x in naive.nats(h, w)]
    expected = torch.stack(nats).mean()
    shared = {n: p for n, p in model.named_parameters() if not n.startswith(("lstm", "attention.values"))}
    right = torch.autograd.grad(expected, [*shared.values(), *leaves, *naive.cell.parameters()], allow_unused=True)
    if onednn:
        train_with_onednn(model)
    found = loss(model, hidden, words)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    input_weights = [model.lstm.input.weight]
    if attention:
        input_weights.insert(0, model.attention.values.weight)
    ours = torch.autograd.grad(
        found, [*shared.values(), *leaves, *model.lstm.weights[1:], *input_weights], allow_unused=True
    )
    split = len(shared) + len(leaves)
    cell = [torch.cat(ours[split + 3 :], 1), *ours[split : split + 3]]
    for mine, theirs in zip([*ours[:split], *cell], right, strict=True):
        theirs = torch.zeros_like(mine) if theirs is None else theirs  # the source of the empty target
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    states, labels = batch(hidden, words)
    assert model.count(labels, states) == len(nats) == sum(n + 1 for n in TARGET if n)


@ATTENTION
@torch.no_grad()
def test_neither_padding_nor_other_rows_change_a_loss(attention):
    model, (hidden, words) = head(attention), rows()
    alone = [loss(model, [h], [w]).item() for h, w in zip(hidden, words, strict=True)]
    assert alone[3] == 0  # no words
    count = [n + 1 if n else 0 for n in TARGET]
    right = sum(n * x for n, x in zip(count, alone, strict=True)) / sum(count)
    for more in (0, 3):
        assert loss(model, hidden, words, more).item() == pytest.approx(right, rel=1e-6)
        assert loss(model, hidden[:1], words[:1], more).item() == pytest.approx(alone[0], rel=1e-6)


@ATTENTION
def test_generation(attention):
    """Greedy decoding is the twin's, with sentences that end early and others that do not."""
    model, (hidden, words) = head(attention, seed=2), rows()
    with torch.no_grad():
        model.embeddings.weight *= 20
        model.start.weight *= 3
        model.output.weight *= 5
        model.output.bias[END] += 1.5
    states, _ = batch(hidden, words, 2)
    found, naive = model.generate(states, 8), Naive(model)
    right = [naive.generated(h, 8) for h in hidden]
    assert [row[row != IGNORED].tolist() for row in found] == right
    assert len({len(row) for row in right}) == 3  # none, some, and the most words
    assert model.generate(states, 0).shape == (5, 0)


@pytest.mark.slow
@ATTENTION
def test_learns_to_translate(attention):
    """Four words in the opposite order; without attention, whose maximum forgets the order, four equal words."""
    model, draw = head(attention, hidden_size=32, embedding_size=16), torch.Generator().manual_seed(0)
    vectors = torch.randn(8, WIDTH - 4, generator=draw)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)

    def some(n):
        words = torch.randint(8, (n, 4 if attention else 1), generator=draw).expand(n, 4)
        hidden = torch.cat([vectors[words], torch.eye(4).expand(n, 4, 4)], -1)
        return [*hidden], [*(words.flip(1) + 2)]

    for _ in range(250):
        optimiser.zero_grad()
        found = loss(model, *some(64))
        found.backward()
        optimiser.step()
    hidden, words = some(50)
    states, labels = batch(hidden, words)
    generated = model.generate(states, 6)
    assert (generated[:, :4] == labels).float().mean().item() > 0.95  # chance: .125
    assert (generated[:, 4:] == IGNORED).float().mean().item() > 0.95


def test_no_targets():
    for attention in (False, True):
        model, (hidden, words) = head(attention), rows()
        found = loss(model, hidden[3:4], words[3:4])
        found.backward()
        assert found.item() == 0


def test_sizes():
    model = DecoderHead(WIDTH, WORDS, begin=0, end=1)
    assert (model.lstm.cells, model.projection.out_features, model.embeddings.embedding_dim) == (10, 5, 300)
    assert float(model.lstm.recurrent.bias.detach().abs().max()) <= 10**-0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.masked_fill(x == x.max(), 30), r"labels are from \d+ to 30; expected ids from 0 to 29"),
        (lambda x: x.masked_fill(x == x.max(), END), "labels contain the ids 0 or 1, which begin and end sentences"),
        (lambda x: x.flip(1), "labels have -100 between words; expected padding on the right"),
    ],
)
def test_bad_labels(change, message):
    model, (hidden, words) = head(attention=False), rows()
    states, labels = batch(hidden, words)
    with pytest.raises(UsageError, match=message):
        model.loss(model(states), change(labels), states)


def test_bad_vocabularies():
    with pytest.raises(UsageError, match="the output vocabulary has 0 words"):
        DecoderHead(WIDTH, 0, begin=0, end=1)
    with pytest.raises(UsageError, match="begin is 0, end is 30; expected two ids from 0 to 29"):
        DecoderHead(WIDTH, WORDS, begin=0, end=30)
    with pytest.raises(UsageError, match="begin is 3, end is 3"):
        DecoderHead(WIDTH, WORDS, begin=3, end=3)
