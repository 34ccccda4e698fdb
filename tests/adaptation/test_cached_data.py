"""Cached layers as training data: batches against the cache's own arrays."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from lessons import count, pairs, praise, tags
from torch.testing import assert_close

from probekit.activations import ActivationCache, cache_activations
from probekit.adaptation.data.text import TextData
from probekit.adaptation.heads.linear import Linear
from probekit.adaptation.training.feature_extraction import PooledData, TokenData
from probekit.adaptation.training.learners import FeatureExtraction
from probekit.models import load_encoder
from probekit.models.scalar_mix import ScalarMix
from probekit.tasks.task import Split, Task

ROWS = [5, 0, 11, 3]


@pytest.fixture(scope="module")
def cached(tiny_bert, tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("cached"), {}

    def make(task, split="train", **how):
        key = f"{task.name}-{split}-" + "-".join(f"{k}={v}" for k, v in how.items())
        if key not in made:
            path = folder / f"{len(made)}.h5"
            cache_activations(tiny_bert, task, split, out=path, **how).close()
            made[key] = ActivationCache(path)
        return made[key]

    yield make
    for cache in made.values():
        cache.close()


@pytest.mark.parametrize("how", [{}, {"store": "bfloat16"}, {"compress": True}], ids=str)
def test_sentences(how, cached):
    cache = cached(praise(), tokens=True, **how)
    data = TokenData(cache)
    batch = data.__getitems__(ROWS)
    assert batch["labels"].tolist() == cache.labels[ROWS].tolist()
    first = batch["first"]
    assert first["length"].tolist() == cache.index("length")[ROWS].tolist()
    for number, layer in enumerate(cache.layers):
        right = np.concatenate([cache.tokens(layer)[i] for i in ROWS])
        assert np.array_equal(first["hidden"][number].numpy(), right)
    assert first["special"].sum(1).tolist() == [2] * 4
    assert sorted(data.order.tolist()) == list(range(40))
    starts = cache.index("start")
    assert (np.diff(starts[data.order]) >= 0).all()  # as they lie on the disk
    assert data.nbytes == pytest.approx(cache.index("length").mean() * 4 * 32 * (2 if "store" in how else 4))


def test_pairs_read_apart(cached):
    cache = cached(pairs(), tokens=True, pairs="separate")
    data = TokenData(cache, [2])
    batch = data.__getitems__(ROWS)
    assert data.layers == ("2",)
    for name, shift in (("first", 0), ("second", 40)):
        right = np.concatenate([cache.tokens(2)[shift + i] for i in ROWS])
        assert np.array_equal(batch[name]["hidden"][0].numpy(), right)
    assert data.length[5] == cache.index("length")[5].sum()


@pytest.mark.parametrize("level", ["piece", pytest.param("word-first", marks=pytest.mark.slow), "word-mean"])
def test_words(level, cached, tiny_bert):
    """As many words, at the same places and with the same labels, as the text itself gives."""
    cache = cached(tags(), tokens=True, token_level=level, max_length=6, pooling=[])
    data = TokenData(cache)
    text = TextData(tags(), tags().split("train"), load_encoder(tiny_bert, max_length=6).tokenizer, apart=False)
    assert data.unread == text.unread > 0
    assert data.truncated == text.truncated > 0
    assert data.labels.tolist() == np.concatenate([labels for _, labels in text.words]).tolist()
    one, two = data.__getitems__(ROWS), text.__getitems__(ROWS)
    assert torch.equal(one["labels"], two["labels"])
    if level == "piece":
        assert torch.equal(one["first"]["words"], two["first"]["words"])
        assert torch.equal(one["first"]["special"], two["first"]["special"])
    else:
        count_of = (two["first"]["words"] >= 0).sum(1)
        for words, n in zip(one["first"]["words"], count_of, strict=True):
            assert words.tolist() == [*range(n), *[-1] * (len(words) - n)]
    at = np.split(cache.layer_words(1), np.cumsum([len(w) for w, _ in data.words])[:-1])
    learner = FeatureExtraction(ScalarMix(len(data.layers)), Linear(32, 2))
    states = learner.states({**one["first"], "hidden": one["first"]["hidden"][1:2].expand(4, -1, -1)})
    for i, row in enumerate(ROWS):
        assert_close(states.first_pieces()[i][states.word_mask()[i]], torch.from_numpy(at[row].copy()))


@pytest.mark.parametrize("pooling", ["mean", "mean-all", "first", "last"])
@pytest.mark.parametrize(
    ("task", "apart"),
    [(praise(), False), (count(), False), (pairs(), False), (pairs(), True)],
    ids=["praise", "count", "pairs", "pairs-apart"],
)
def test_what_is_pooled_beforehand_gives_the_same_logits(pooling, task, apart, cached):
    """A linear head on the pooled layers is the same function as pooling the mix of all pieces."""
    how = {"pairs": "separate"} if apart else {}
    cache = cached(task, tokens=True, pooling=["mean", "mean-all", "first", "last"], **how)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        learner = FeatureExtraction(ScalarMix(4), Linear(32, 3, pooling=pooling, apart=apart)).eval()
        with torch.no_grad():
            learner.mix.scalar_parameters.normal_()
            learner.mix.gamma.fill_(1.7)
    logits = []
    for data in (PooledData(cache, pooling), TokenData(cache)):
        batch = data.__getitems__(ROWS)
        states = learner.states(batch["first"])
        if apart:
            states = replace(states, second=learner.states(batch["second"]))
        logits.append(learner.head(states))
    assert_close(*logits, rtol=1e-5, atol=1e-5)


def test_pooled_examples(cached):
    cache = cached(pairs(), pairs="separate")
    data = PooledData(cache, "mean", ["3", 0])
    assert data.layers == ("3", "0")
    assert data.length.tolist() == [2] * 40
    batch = data.__getitems__(ROWS)
    assert np.array_equal(batch["first"]["hidden"][0].numpy(), cache.layer(3)[ROWS][:, :32])
    assert np.array_equal(batch["second"]["hidden"][1].numpy(), cache.layer(0)[ROWS][:, 32:])
    assert batch["labels"].tolist() == cache.labels[ROWS].tolist()


def test_a_text_of_which_nothing_is_left(tiny_gpt2, tmp_path):
    t = praise()
    examples = (*t.split("train").examples[:3], replace(t.split("train")[3], id="no. 4", text=""))
    task = Task("t", t.kind, {"train": Split("train", examples)}, t.label_names)
    cache_activations(tiny_gpt2, task, tokens=True, out=tmp_path / "a.h5").close()
    with ActivationCache(tmp_path / "a.h5") as cache, pytest.raises(ValueError, match=r"example 'no. 4' has no pieces"):
        TokenData(cache)
