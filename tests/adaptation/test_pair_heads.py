"""Two sentences by one vector each: the definitions, the gradient, and training from pooled caches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lessons import SHORT, sentence

from probekit.activations import ActivationCache
from probekit.adaptation.heads.head import States
from probekit.adaptation.heads.linear import pooled
from probekit.adaptation.heads.pair import Pair, Rating, rating_distribution
from probekit.adaptation.heads.spec import make_head, pools
from probekit.adaptation.runs.evaluation import predict_run
from probekit.adaptation.train import train
from probekit.errors import UsageError
from probekit.tasks.task import Example, Split, Task, TaskKind

D = 6


def states(seed=0, lengths=(5, 2, 4)):
    length = torch.tensor(lengths).unsqueeze(1)
    mask = torch.arange(max(lengths)) < length
    hidden = torch.randn(*mask.shape, D, generator=torch.Generator().manual_seed(seed))
    special = torch.arange(max(lengths)) == length - 1
    return States(hidden.masked_fill(~mask.unsqueeze(-1), torch.nan), mask, special)


def both_sentences():
    return replace(states(), second=states(1, (3, 4, 2)))


@pytest.mark.parametrize("pooling", ["last", "mean", "first"])
def test_features(pooling):
    torch.manual_seed(0)
    both = both_sentences()
    u, v = (pooled(s, pooling) for s in (both, both.second))
    features = torch.cat([(u - v).abs(), u * v], 1)
    plain = Pair(D, 3, pooling=pooling).eval()
    torch.testing.assert_close(plain(both), plain.output(features))
    torch.testing.assert_close(plain(replace(both.second, second=replace(both, second=None))), plain(both))
    deep = Pair(D, 3, pooling=pooling, hidden_size=4).eval()
    torch.testing.assert_close(deep(both), deep.output(torch.sigmoid(deep.hidden(features))))
    assert not torch.equal(plain(both), plain(replace(both, second=states(2, (3, 4, 2)))))


@given(st.floats(1, 5, width=32))
def test_the_distribution_has_the_label_as_its_expectation(label):
    scores = torch.arange(1.0, 6.0)
    p = rating_distribution(torch.tensor([label]), scores)[0].double()
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1, abs=1e-6)
    assert p @ scores.double() == pytest.approx(label, abs=2e-6)
    floor = int(np.floor(label))
    for i in range(1, 6):  # the equation of Tai et al. (2015), as it stands there
        wanted = label - floor if i == floor + 1 else floor - label + 1 if i == floor else 0
        assert p[i - 1] == pytest.approx(wanted, abs=1e-6)


class TestRating:
    def test_loss_and_prediction_by_their_definition(self):
        torch.manual_seed(0)
        head = Rating(D, 1, low=1).eval()
        logits, labels = torch.randn(3, 5), torch.tensor([1.0, 3.3, 5.0])
        q = logits.softmax(-1)
        rows = (-q[0, 0].log(), 0.7 * (0.7 / q[1, 2]).log() + 0.3 * (0.3 / q[1, 3]).log(), -q[2, 4].log())
        torch.testing.assert_close(head.loss(logits, labels, both_sentences()), sum(rows) / 3)
        torch.testing.assert_close(head.predict(logits, both_sentences()), q @ torch.arange(1.0, 6.0))

    def test_the_loss_is_0_where_the_distribution_is_right(self):
        head, labels = Rating(D, 1), torch.tensor([0.25, 4.0])
        logits = rating_distribution(labels, head.scores).clamp_min(1e-30).log()
        assert head.loss(logits, labels, both_sentences()) == pytest.approx(0, abs=1e-6)
        torch.testing.assert_close(head.predict(logits, both_sentences()), labels)

    def test_gradient(self):
        """Of the logits (q - p) / n; of the weights by differences."""
        head, labels = Rating(D, 1, dropout=0, hidden_size=3).double(), torch.tensor([0.0, 2.4, 5.0])
        logits = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
        (found,) = torch.autograd.grad(head.loss(logits, labels.double(), both_sentences()), logits)
        torch.testing.assert_close(found, (logits.softmax(-1) - rating_distribution(labels.double(), head.scores)) / 3)
        both = both_sentences()
        both = replace(
            both, hidden=both.hidden.double(), second=replace(both.second, hidden=both.second.hidden.double())
        )
        names, weights = zip(*head.named_parameters(), strict=True)

        def loss(*given):
            out = torch.func.functional_call(head, dict(zip(names, given, strict=True)), (both,))
            return head.loss(out, labels.double(), both)

        assert torch.autograd.gradcheck(loss, [w.detach().requires_grad_() for w in weights])

    def test_labels_outside(self):
        with pytest.raises(UsageError, match=r"from 1 to 5, but the labels go from 0\.5 to 2;"):
            Rating(D, 1, low=1).loss(torch.zeros(2, 5), torch.tensor([0.5, 2.0]), both_sentences())
        with pytest.raises(UsageError, match="expects ratings from 0 to 5"):
            Rating(D, 1).loss(torch.zeros(2, 6), torch.tensor([np.nan, 2.0]), both_sentences())
        with pytest.raises(UsageError, match="from low to a higher high, not 1 from 5 to 5"):
            Rating(D, 1, low=5)

    def test_the_range_is_kept_with_the_weights(self):
        other = Rating(D, 1)
        other.load_state_dict(Rating(D, 1, low=1, high=6).state_dict())
        assert other.scores.tolist() == [1, 2, 3, 4, 5, 6]


def test_made_by_name():
    made = make_head("rating", D, 1, kind=TaskKind.REGRESSION, pairs="separate", low=1, hidden_size=50, pooling="last")
    assert (made.scores.tolist(), made.hidden.out_features, made.pooling) == ([1, 2, 3, 4, 5], 50, "last")
    assert [name for name in ("linear", "pair", "rating", "esim", "nothing") if pools(name)] == [
        "linear", "pair", "rating"
    ]  # fmt: skip
    with pytest.raises(UsageError, match="'rating' is for regression, not classification"):
        make_head("rating", D, 3, kind=TaskKind.CLASSIFICATION, pairs="separate")
    with pytest.raises(UsageError, match="'pair' reads separately encoded pairs, not single sentences"):
        make_head("pair", D, 3, kind=TaskKind.CLASSIFICATION)
    with pytest.raises(UsageError, match="unknown pooling 'middle'"):
        Pair(D, 3, pooling="middle")


def likeness(kind: TaskKind) -> Task:
    """Do two sentences say the same, or how much do they? A word of each decides."""
    rng, names = np.random.default_rng(0), ("no", "yes") if kind is TaskKind.CLASSIFICATION else ()

    def make(i):
        a, b = rng.integers(2, size=2)
        first, second = (sentence(rng, ("bad", "good")[x], 4) for x in (a, b))
        return Example(str(i), first, int(a == b) if names else (4.5 if a == b else 1.5), pair=second)

    splits = {name: Split(name, tuple(make(i) for i in range(n))) for name, n in (("train", 160), ("dev", 80))}
    return Task("likeness", kind, splits, names, ("accuracy",) if names else ("pearson", "spearman"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "kind", "metric", "least"),
    [
        ("rating", TaskKind.REGRESSION, "pearson", 0.5),
        ("pair", TaskKind.REGRESSION, "pearson", 0.5),
        ("pair", TaskKind.CLASSIFICATION, "accuracy", 0.7),
    ],
)
def test_trained_on_pooled_vectors(head, kind, metric, least, tiny_bert, tmp_path):
    options = {"epochs": 10, "batch_size": 8, "learning_rate": 3e-2, "dropout": 0.0, "pooling": "mean"}
    how = {"regime": "feature-extraction", "head": head, "device": "cpu", "caches": tmp_path / "caches"}
    run = train(likeness(kind), tiny_bert, tmp_path / "run", **how, **options)
    assert run.metrics[metric] > least  # measured with seed 0: 0.72, 0.66, 0.88; chance is 0, 0, 0.5
    assert run.card["head"]["pooling"] == "mean"
    with ActivationCache(run.card["caches"][1]) as cache:
        assert (cache.poolings, cache.spec["tokens"], cache.spec["sentences"]) == (("mean",), None, 2)
    again = predict_run(run.path, run.card["caches"][1], device="cpu").metrics
    assert again[metric] == pytest.approx(run.metrics[metric], abs=1e-6)


@pytest.mark.slow
def test_fine_tuned(tiny_bert, tmp_path):
    run = train(likeness(TaskKind.REGRESSION), tiny_bert, tmp_path / "run", head="rating", pooling="last", **SHORT)
    assert predict_run(run.path, likeness(TaskKind.REGRESSION), "dev", device="cpu").metrics[
        "pearson"
    ] == pytest.approx(run.metrics["pearson"], abs=1e-5)
