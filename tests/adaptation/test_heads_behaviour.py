"""What every task model keeps to, and the pieces they are made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from probekit.activations.pooling import Pooling, Segments, pool
from probekit.adaptation.heads.bcn import BCN
from probekit.adaptation.heads.bilstm import bilstm, run, run_packed, run_turned
from probekit.adaptation.heads.head import IGNORED, States
from probekit.adaptation.heads.linear import Linear, pooled
from probekit.adaptation.heads.pair import BiAttention
from probekit.adaptation.heads.spec import HEADS, make_head
from probekit.errors import UsageError
from probekit.models.scalar_mix import ScalarMix
from probekit.tasks.task import TaskKind

D, TAGS = 6, ("O", "B-X", "I-X")
SIZED = ("bcn", "esim", "bilstm", "bilstm-crf", "max-mlp", "attention-max-mlp")


def sentences(seed=0, lengths=(7, 4, 3, 5)):
    """Hidden states with NaN at padding; [CLS] and [SEP] round the pieces; each second piece begins a word."""
    length = torch.tensor(lengths).unsqueeze(1)
    place = torch.arange(max(lengths))
    mask = place < length
    special = (place == 0) | (place == length - 1)
    hidden = torch.randn(*mask.shape, D, generator=torch.Generator().manual_seed(seed))
    first = torch.arange(1, max(lengths) - 1, 2)
    return States(
        hidden.masked_fill(~mask.unsqueeze(-1), torch.nan),
        mask,
        special & mask,
        words=first.where(first < length - 1, -1),
        pooled=hidden[:, 0].tanh(),
    )


def batch(name, kind, *, apart=False):
    """A head, its states, and labels."""
    torch.manual_seed(0)
    head = HEADS[name]
    states = sentences()
    if kind is not TaskKind.SEQUENCE_LABELLING:
        states = replace(states, words=None)
    if name == "marked":
        states = replace(states, spans=torch.tensor([[1, 2], [1, 3]]).expand(len(states.mask), 2, 2))
    if None not in head.pairs or apart:
        states = replace(states, second=replace(sentences(1, (3, 6, 4, 3)), words=None))
    options = {"hidden_size": 8} if name in SIZED else {}
    outputs = 1 if kind is TaskKind.REGRESSION else 3
    made = make_head(
        name, D, outputs, kind=kind, label_names=TAGS, pairs="separate" if states.second else None, **options
    )
    if kind is TaskKind.SEQUENCE_LABELLING:
        labels = (torch.arange(states.words.numel()).view(states.words.shape) % 3).where(states.words >= 0, IGNORED)
    else:
        labels = {
            TaskKind.REGRESSION: torch.tensor([0.5, 1.0, 2.0, 0.0]),
            TaskKind.MULTI_LABEL: torch.tensor([[0, 1, 1], [1, 1, 0], [0, 0, 0], [1, 0, 0]]),
            TaskKind.MULTI_OUTPUT: torch.tensor([[0.5, 1.0, 2.0], [1.0, 0.0, 1.5], [0.0, 0.0, 0.0], [2.0, 1.0, 0.0]]),
        }.get(kind, torch.tensor([0, 2, 1, 1]))
    return made, states, labels


OTHERS = ("span", "choice", "response")
"""Heads whose examples are several sequences, or whose labels are pieces.

See test_answered_questions.py, test_choices.py and test_responses.py.
"""
CASES = [(name, kind) for name, head in HEADS.items() if name not in OTHERS for kind in sorted(head.kinds)]


def padded(states, more):
    """The same with more padding."""
    return replace(
        states,
        hidden=pad(states.hidden, (0, 0, 0, more), value=torch.inf),
        mask=pad(states.mask, (0, more)),
        special=pad(states.special, (0, more)),
        words=None if states.words is None else pad(states.words, (0, more), value=-1),
        second=None if states.second is None else padded(states.second, more + 1),
    )


def row(states, i):
    """One sentence alone, without padding."""
    n = int(states.mask[i].sum())
    words = None if states.words is None else states.words[i][states.words[i] >= 0].unsqueeze(0)
    second = None if states.second is None else row(states.second, i)
    alone = (x[i, None, :n] for x in (states.hidden, states.mask, states.special))
    pooled = None if states.pooled is None else states.pooled[i, None]
    return replace(States(*alone, words, second, pooled), spans=None if states.spans is None else states.spans[i, None])


@pytest.mark.parametrize(("name", "kind"), CASES)
class TestEveryHead:
    def test_padding_and_company_change_nothing(self, name, kind):
        head, states, _ = batch(name, kind)
        head.eval()
        logits = head(states)
        told = head.predict(logits, states)
        wider = padded(states, 4)
        again = head(wider)
        more = head.predict(again, wider)
        for i in range(len(logits)):
            alone = row(states, i)
            own = head(alone)
            n = own.shape[1]  # words, or classes
            torch.testing.assert_close(logits[i, :n], own[0])
            torch.testing.assert_close(again[i, :n], own[0])
            mine = head.predict(own, alone)[0]
            for found in (told[i], more[i]):
                torch.testing.assert_close(found[:n] if found.ndim else found, mine)
                assert (found[n:] == IGNORED).all() if found.ndim else True

    def test_dropout_is_off_in_eval(self, name, kind):
        head, states, _ = batch(name, kind)
        assert not torch.equal(head(states).nan_to_num(), head(states).nan_to_num())
        head.eval()
        assert torch.equal(head(states).nan_to_num(), head(states).nan_to_num())

    def test_every_parameter_and_every_piece_gets_a_gradient(self, name, kind):
        head, states, labels = batch(name, kind)
        states.hidden.requires_grad_()
        head.eval()
        head.loss(head(states), labels, states).backward()
        for parameter, value in head.named_parameters():
            assert value.grad is not None, parameter
            assert value.grad.isfinite().all(), parameter
            # softmax does not see what is added to all scores
            assert value.grad.any() or (name, parameter) == ("bcn", "attention.bias"), parameter
        assert states.hidden.grad.isfinite().all()
        assert not states.hidden.grad[~states.mask].any()
        assert states.hidden.grad.any()

    def test_it_learns(self, name, kind):
        head, states, labels = batch(name, kind)
        head.eval()  # dropout would only blur it
        optimiser = torch.optim.Adam(head.parameters(), 0.03)
        losses = []
        for _ in range(300):
            loss = head.loss(head(states), labels, states)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
            if losses[-1] < 0.02 * losses[0]:
                break
        assert losses[-1] < 0.1 * losses[0]
        told = head.predict(head(states), states)
        if kind in (TaskKind.REGRESSION, TaskKind.MULTI_OUTPUT):
            assert (told - labels).abs().max() < 0.5
        elif not name.endswith("crf"):  # these keep to the scheme, which the labels made here do not
            assert torch.equal(told, labels)


@pytest.mark.parametrize("name", ["softmax", "crf", "bilstm", "bilstm-crf"])
def test_a_sentence_without_labels_adds_nothing(name):
    head, states, labels = batch(name, TaskKind.SEQUENCE_LABELLING)
    head.eval()
    labels[1] = IGNORED
    states.hidden.requires_grad_()
    head.loss(head(states), labels, states).backward()
    assert not states.hidden.grad[1].any()
    assert states.hidden.grad[[0, 2, 3]].flatten(1).any(1).all()


@pytest.mark.parametrize("name", ["bilstm", "bilstm-crf"])
def test_all_pieces_are_read_and_the_first_of_each_word_is_taken(name):
    head, states, _ = batch(name, TaskKind.SEQUENCE_LABELLING)
    head.eval()
    logits = head(states)
    hidden = states.hidden.clone()
    hidden[0, 2] += 1  # the second piece of the first word
    assert not torch.equal(head(replace(states, hidden=hidden))[0], logits[0])
    flat = make_head("softmax", D, 3, kind=TaskKind.SEQUENCE_LABELLING).eval()
    assert torch.equal(flat(replace(states, hidden=hidden))[0], flat(states)[0])


@pytest.mark.parametrize("layers", [1, 2])
def test_both_ways_to_run_an_lstm(layers):
    """Packed by torch, and turned round: the same states and gradients."""
    torch.manual_seed(0)
    states = sentences()
    lstm, found = bilstm(D, 5, layers=layers), []
    for run_it in (run_packed, run_turned):
        hidden = states.hidden.nan_to_num().requires_grad_()
        kept = run_it(lstm, hidden, states.mask)[states.mask]
        kept.square().sum().backward()
        found.append([kept, hidden.grad[states.mask], *(p.grad.clone() for p in lstm.parameters())])
        lstm.zero_grad()
    for packed, turned in zip(*found, strict=True):
        torch.testing.assert_close(packed, turned)


def test_much_padding_is_packed():
    """What is fast depends on the padding; what comes out does not."""
    lstm, states = bilstm(D, 5), sentences()
    wide = padded(states, 20)
    torch.testing.assert_close(run(lstm, wide.hidden, wide.mask)[:, :7], run(lstm, states.hidden, states.mask))
    assert not run(lstm, wide.hidden, wide.mask)[~wide.mask].any()


@pytest.mark.parametrize("how", Pooling)
def test_pooling_is_that_of_the_cache(how):
    states = sentences()
    lengths = states.mask.sum(1).numpy()
    packed = Segments.of(lengths, states.special[states.mask].numpy())
    torch.testing.assert_close(pooled(states, how), pool(states.hidden[states.mask], packed, how))
    bare = replace(states, special=states.mask)  # nothing but special pieces
    packed = Segments.of(lengths, np.ones(lengths.sum(), bool))
    torch.testing.assert_close(pooled(bare, how), pool(states.hidden[states.mask], packed, how))


def test_pooler():
    states = sentences()
    assert pooled(states, "pooler") is states.pooled
    with pytest.raises(UsageError, match="no pooler; choose another pooling: mean"):
        pooled(replace(states, pooled=None), "pooler")
    with pytest.raises(UsageError, match="unknown pooling 'middle'; the poolings are pooler, mean"):
        Linear(D, 2, pooling="middle")


def test_pairs_apart_on_a_linear_layer():
    head, states, _ = batch("linear", TaskKind.CLASSIFICATION, apart=True)
    head.eval()
    u, v = (pooled(s, "mean") for s in (states, states.second))
    torch.testing.assert_close(head(states), head.output(torch.cat([u, v, (u - v).abs(), u * v], 1)))


JOINED = {  # kinds of pieces: c [CLS], s [SEP] and its like, a and b of the sentences
    "bert": ("caaasbbbs", "casbs", "caasbbbbs"),
    "roberta": ("caaassbbbs", "cassbs", "caassbbs"),
    "t5": ("aasbbbs", "asbs", "aaaasbs"),
}


@pytest.mark.parametrize("name", ["esim", "bi-attention"])
@pytest.mark.parametrize("family", JOINED)
def test_a_pair_in_one_sequence_is_cut_in_two(name, family):
    """By hand: the first sentence ends with the first piece that stands between the two."""
    torch.manual_seed(0)
    rows = JOINED[family]
    mask = torch.arange(max(map(len, rows))) < torch.tensor([[len(row)] for row in rows])
    special = torch.tensor([[row.ljust(mask.shape[1])[i] in "cs" for i in range(mask.shape[1])] for row in rows])
    hidden = torch.randn(*mask.shape, D).masked_fill(~mask.unsqueeze(-1), torch.inf)
    halves = []
    for own in (lambda i, cut: i <= cut, lambda i, cut: i > cut):
        places = [[i for i in range(len(row)) if own(i, row.index("s"))] for row in rows]
        length = [len(some) for some in places]
        at = [some + [0] * (max(length) - len(some)) for some in places]
        kept = torch.arange(max(length)) < torch.tensor(length).unsqueeze(1)
        part = torch.stack([hidden[n, some] for n, some in enumerate(at)]).masked_fill(~kept.unsqueeze(-1), torch.nan)
        halves.append(States(part, kept, torch.stack([special[n, some] for n, some in enumerate(at)]) & kept))
    options = {"hidden_size": 4} if name in SIZED else {}
    head = make_head(name, D, 3, kind=TaskKind.CLASSIFICATION, pairs="joint", **options).eval()
    apart = head(replace(halves[0], second=halves[1]))
    torch.testing.assert_close(head(States(hidden, mask, special)), apart)
    assert not torch.allclose(apart, head(replace(halves[1], second=halves[0])))


@pytest.mark.parametrize("row", ["aabb", "csbbs", "caab", "caas"])
def test_a_pair_that_cannot_be_cut(row):
    mask = torch.ones(1, len(row), dtype=torch.bool)
    special = torch.tensor([[kind in "cs" for kind in row]])
    head = make_head("bi-attention", D, 3, kind=TaskKind.CLASSIFICATION, pairs="joint")
    with pytest.raises(UsageError, match=r"cannot be split in two: .* \(--pairs separate\)"):
        head(States(torch.zeros(1, len(row), D), mask, special))


def test_bi_attention_by_its_definition():
    head, states, _ = batch("bi-attention", TaskKind.CLASSIFICATION)
    head.eval()
    assert [name for name, _ in head.named_parameters()] == ["output.weight", "output.bias"]
    logits = head(states)
    for i in range(len(logits)):
        a, b = (s.hidden[i][s.mask[i] & ~s.special[i]] for s in (states, states.second))
        vector = []
        for own, other in ((a, b), (b, a)):
            aligned = torch.stack([sum(w * o for w, o in zip((other @ x).softmax(0), other, strict=True)) for x in own])
            enhanced = torch.cat([own, aligned, own - aligned, own * aligned], 1)
            vector += [enhanced.mean(0), enhanced.max(0).values]
        torch.testing.assert_close(logits[i], head.output(torch.cat(vector)))


def test_bcn_with_features_after_the_integrator():
    """Features whose weights are 0 change nothing; others do, and those at padding never do."""
    torch.manual_seed(0)
    states = sentences()
    plain, joined = BCN(D, 3, hidden_size=4).eval(), BCN(D, 3, hidden_size=4, extra=2).eval()
    weights = plain.state_dict()
    h = 8
    for name in ("attention.weight", "output.0.weight"):
        old = weights[name].unflatten(1, (-1, h))
        weights[name] = pad(old, (0, 2)).flatten(1)
    joined.load_state_dict(weights)
    extra = sentences(3).hidden[..., :2]
    torch.testing.assert_close(joined(states, extra), plain(states))
    with torch.no_grad():
        joined.output[0].weight += 1
    assert not torch.allclose(joined(states, extra), joined(states, 2 * extra))
    assert joined(states, extra).isfinite().all()


class TestScalarMix:
    def test_by_its_definition(self):
        mix = ScalarMix(3)
        hidden = torch.randn(3, 5, D, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(mix(hidden), hidden.mean(0))
        mix.scalar_parameters.data, mix.gamma.data = torch.tensor([0.3, -1.0, 2.0]), torch.tensor([1.7])
        s = np.exp([0.3, -1.0, 2.0])
        np.testing.assert_allclose(mix.weights, s / s.sum(), rtol=1e-6)
        wanted = sum(1.7 * w * h for w, h in zip(s / s.sum(), hidden.numpy(), strict=True))
        np.testing.assert_allclose(mix(hidden).detach(), wanted, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(mix(hidden[:, :4].unflatten(1, (2, 2))), mix(hidden[:, :4]).unflatten(0, (2, 2)))

    def test_layer_norm(self):
        """Each layer gets mean 0 and deviation 1 over what is no padding; packed and padded are the same."""
        mix = ScalarMix(3, layer_norm=True)
        mix.scalar_parameters.data = torch.tensor([0.3, -1.0, 2.0])
        states = sentences()
        scale, shift = torch.tensor([1.0, 5.0, 0.1]), torch.tensor([0.0, -3.0, 2.0])
        padded = states.hidden * scale[:, None, None, None] + shift[:, None, None, None]
        padded[1] = padded[1].flip(-1)
        packed = padded[:, states.mask]
        z = [(h - h.mean()) / h.std() for h in packed.double().numpy()]
        wanted = sum(w * h for w, h in zip(mix.weights.numpy(), z, strict=True))
        np.testing.assert_allclose(mix(packed).detach(), wanted, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mix(padded, states.mask)[states.mask], mix(packed))

    @pytest.mark.parametrize("layer_norm", [False, True])
    def test_gradients_by_differences(self, layer_norm):
        mix = ScalarMix(2, layer_norm=layer_norm).double()
        hidden = torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

        def run(hidden, s, gamma):
            return torch.func.functional_call(mix, {"scalar_parameters": s, "gamma": gamma}, (hidden,))

        inputs = (hidden, mix.scalar_parameters.detach(), mix.gamma.detach())
        assert torch.autograd.gradcheck(run, [x.clone().requires_grad_() for x in inputs])

    def test_another_number_of_layers(self):
        with pytest.raises(UsageError, match="the mix needs 3 layers, not 2"):
            ScalarMix(3)(torch.zeros(2, 5, D))


class TestMakeHead:
    @pytest.mark.parametrize(
        ("name", "arguments", "message"),
        [
            ("svm", {"kind": TaskKind.CLASSIFICATION}, "unknown head 'svm'; the heads for this task are linear, bcn."),
            (
                "crf",
                {"kind": TaskKind.CLASSIFICATION},
                "'crf' is for sequence-labelling, not classification; choose linear or",
            ),
            (
                "bcn",
                {"kind": TaskKind.SEQUENCE_LABELLING},
                "not sequence-labelling; choose softmax or crf or bilstm or",
            ),
            (
                "esim",
                {"kind": TaskKind.REGRESSION},
                "pairs in one sequence or separately encoded pairs, not single sentences; choose linear or bcn",
            ),
            (
                "bcn",
                {"kind": TaskKind.REGRESSION, "pairs": "separate"},
                "sentences or pairs in one sequence, not separately encoded pairs; choose linear or esim or bi",
            ),
            ("softmax", {"kind": TaskKind.SEQUENCE_LABELLING, "depth": 2}, "has no option 'depth'; it has dropout."),
        ],
    )
    def test_errors(self, name, arguments, message):
        with pytest.raises(UsageError, match=message):
            make_head(name, D, 3, **arguments)

    def test_options_reach_the_head(self):
        head = make_head("linear", D, 3, kind=TaskKind.CLASSIFICATION, pooling="max", dropout=0.3)
        assert (head.pooling, head.dropout.p) == ("max", 0.3)
        assert isinstance(make_head("bi-attention", D, 1, kind=TaskKind.REGRESSION, pairs="separate"), BiAttention)
