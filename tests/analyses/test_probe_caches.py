"""Two caches to rows: what is read of them, and what does not belong together."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from probekit.analyses.options import VectorOptions
from probekit.analyses.probe.measure import probe_pair
from probekit.analyses.vectors import pair_features
from probekit.errors import CacheMismatch, UsageError
from probekit.probes import ProbeOptions
from probekit.rows import layer_labels
from probekit.sites import choose_all, residual_stream

QUICK = ProbeOptions(resamples=0, controls=0)


@dataclass
class Ragged:
    values: np.ndarray
    start: np.ndarray
    length: np.ndarray


class Memory:
    """A cache in memory: 200 texts of five pieces, or of words in sentences of five."""

    def __init__(self, split, n=200, seed=0, **spec):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(2, size=n)
        self.layers, self.poolings = ("0", "1", "final_norm"), ("mean", "first")
        signal = np.array([0.0, 1.0, 3.0])[:, None] * (self.labels - 0.5)
        self.vectors = rng.normal(size=(3, n, 6)).astype(np.float32)
        self.vectors[:, :, 0] += signal
        self.word_labels, self.word_sentence = self.labels, np.arange(n) // 5
        self.origin, self.groups, self.group_names, self.grouping = {}, None, None, {}
        self.label_values = None
        self.unread_words = np.zeros(0, dtype=np.int64)
        self.truncated = np.zeros(n, dtype=bool)
        self.ids, self.domains = np.array([f"{split}-{i}" for i in range(n)]), None
        self.pieces = (Ragged(rng.integers(1000, size=5 * n), 5 * np.arange(n), np.full(n, 5)),)
        self.word_pieces = Ragged(rng.integers(20, size=n), np.arange(n), np.ones(n, dtype=int))
        self.path = f"{split}.h5"
        self.spec = {
            "task": "toy", "split": split, "kind": "classification", "label_names": ["no", "yes"], "pairs": None,
            "dtype": "float32", "store": "float32", "model": "/models/tiny", "weights_digest": "w1",
            "tokenizer_digest": "t", "random_weights": None, "width": 6, "layers": list(self.layers), "tokens": None,
        } | spec  # fmt: skip

    def layer(self, layer, pooling=None):
        x = self.vectors[self.layers.index(layer)]
        return x if pooling == "mean" else 0 * x

    def layer_names(self, layers):
        return tuple(map(str, choose_all(layers, residual_stream(1, final_norm=True), "toy")))

    def layer_words(self, layer):
        return self.layer(layer, "mean")


def run(train, dev, names=("accuracy",), options=QUICK, **more):
    return probe_pair(train, dev, names, VectorOptions(**more), options)[0]


def layers_of(rows, name="accuracy"):
    return rows[(rows["metric"] == name) & (rows["target"] == "gold")]


def test_rows_of_two_caches():
    rows = layers_of(run(Memory("train"), Memory("dev", seed=1)))
    assert layer_labels(rows).tolist() == ["", "0", "1", "final_norm"]
    assert set(rows["task"]) == {"toy"}
    assert set(rows["split"]) == {"dev"}
    assert set(rows["model"]) == {"tiny"}
    assert rows["representation"].tolist() == ["none", "mean", "mean", "mean"]
    chance, none, some, much = rows["value"]
    assert abs(none - 0.5) < 0.1
    assert chance < some < much


def test_inputs_and_controls_stand_beside_the_layers():
    options = ProbeOptions(resamples=100, controls=2)
    rows, found = probe_pair(Memory("train"), Memory("dev", seed=1), ("accuracy",), options=options)
    gold = layers_of(rows)
    assert gold["representation"].tolist() == [
        "none",
        "bag-of-pieces",
        "tf-idf-of-pieces",
        "length",
        "mean",
        "mean",
        "mean",
    ]
    assert set(rows["target"]) == {"gold", "shuffled"}
    assert rows["draw"].isin([0, 1]).sum() == (rows["target"] == "shuffled").sum() * 2 / 3
    assert gold.set_index("representation").loc["length", "value"] < 0.65  # all of one length
    assert found.ids[:2].tolist() == ["dev-0", "dev-1"]
    last = rows[(rows["site"] == "final_norm") & (rows["metric"] == "above-shuffled(accuracy)")]
    assert last["ci_low"].iloc[0] > 0.2


def test_texts_that_train_holds_too():
    train, dev = Memory("train"), Memory("dev", seed=1)
    dev.pieces[0].values[:50] = train.pieces[0].values[100:150]  # ten texts
    rows, found = probe_pair(train, dev, ("accuracy",), options=QUICK)
    row = layers_of(rows).iloc[-1]
    assert row["seen_in_train"] == 10
    right = found.predicted[-1] == dev.labels
    assert row["value_unseen"] == pytest.approx(right[10:].mean())
    assert layers_of(run(train, Memory("dev", seed=1)))["seen_in_train"].iloc[0] == 0


def test_layers_and_pooling_can_be_chosen():
    rows = layers_of(run(Memory("train"), Memory("dev", seed=1), layers=[1], pooling="first"))
    assert layer_labels(rows).tolist() == ["", "1"]
    both = layers_of(run(Memory("train"), Memory("dev", seed=1), layers=["final_norm", -1]))
    assert layer_labels(both).tolist() == ["", "1", "final_norm"]  # in the order of the model
    assert rows["value"].iloc[1] == rows["value"].iloc[0]  # vectors of zeros
    with pytest.raises(UsageError, match="no layer 7"):
        run(Memory("train"), Memory("dev"), layers=[7])
    with pytest.raises(UsageError, match="no pooling 'last'; it has mean, first"):
        run(Memory("train"), Memory("dev"), pooling="last")


def test_random_weights_have_a_checkpoint():
    spec = {"random_weights": 7}
    rows = run(Memory("train", **spec), Memory("dev", **spec))
    assert set(rows["checkpoint"]) == {"random-7"}
    assert set(rows["random_weights"]) == {7}


def test_what_a_model_was_trained_on_is_in_columns():
    train, dev = Memory("train"), Memory("dev", seed=1)
    dev.origin = {"run": "r", "trained_on": "cola", "regime": "fine-tune", "head": "linear", "variant": "", "seed": 3}
    row = run(train, dev).iloc[-1]
    columns = ["trained_on", "regime", "head", "variant", "run_seed"]
    assert row[columns].tolist() == ["cola", "fine-tune", "linear", "", 3]


HOW = ("separate", "joint")


def test_separate_pairs_get_their_features():
    """The label is whether u and v agree in sign: products tell it, sums do not."""

    def pairs(split, how, seed):
        cache = Memory(split, n=400, seed=seed, pairs=how)
        cache.vectors = np.random.default_rng(seed).normal(size=(3, 400, 6)).astype(np.float32)
        cache.labels = (cache.vectors[0, :, 0] * cache.vectors[0, :, 3] > 0).astype(int)
        return cache

    rows = {how: layers_of(run(pairs("train", how, 0), pairs("dev", how, 1), layers=["0"])) for how in HOW}
    values = {how: some.set_index("representation")["value"] for how, some in rows.items()}
    assert values["separate"]["mean"] > 0.9
    assert values["joint"]["mean"] < 0.6
    assert 0.6 < values["separate"]["cosine"] < 0.9  # one of three products
    assert "cosine" not in values["joint"]


def test_pair_features():
    x = np.array([[1.0, 2.0, 3.0, -1.0]])
    assert pair_features(x).tolist() == [[1, 2, 3, -1, 2, 3, 3, -2]]


def test_words():
    spec = {"kind": "sequence-labelling", "label_names": ["O", "B-PER"], "tokens": "word-first"}
    train, dev = Memory("train", **spec), Memory("dev", seed=1, **spec)
    dev.pieces[0].values[:5] = train.pieces[0].values[:5]  # a sentence of five words
    names = ("span-f1", "token-accuracy")
    rows, found = probe_pair(train, dev, names, options=ProbeOptions(resamples=100))
    assert set(rows["representation"]) == {"none", "word-type", "word-first"}
    best = rows[(rows["site"] == "final_norm") & (rows["target"] == "gold")].set_index("metric")
    assert best.loc["token-accuracy", "value"] > 0.9
    assert best.loc["span-f1", "value"] > 0.8
    assert best.loc["selectivity(token-accuracy)", "value"] > 0.2  # vectors tell nothing of word types
    assert set(rows["target"]) == {"gold", "shuffled", "control-task"}
    assert set(rows["draw"].dropna()) == {0, 1, 2}
    assert best.loc["token-accuracy", "seen_in_train"] == 5
    assert found.ids[3:7].tolist() == ["dev-0:3", "dev-0:4", "dev-1:0", "dev-1:1"]
    with pytest.raises(UsageError, match="create it with --tokens"):
        run(Memory("train", **spec | {"tokens": None}), Memory("dev", **spec | {"tokens": None}))
    with pytest.raises(UsageError, match="leave out --pooling"):
        run(Memory("train", **spec), Memory("dev", **spec), pooling="mean")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "other"}, "the task is toy in the first and other in the second"),
        ({"weights_digest": "w2"}, "with /models/tiny, the second with other weights of that name"),
        ({"weights_digest": "w2", "model": "bert"}, "the first was made with /models/tiny, the second with bert"),
        ({"random_weights": 0}, "with the trained weights of /models/tiny, the second with random weights .seed 0."),
        ({"dtype": "float16"}, "dtype is 'float32' in the first and 'float16' in the second"),
        ({"pairs": "joint"}, "pairs is None in the first and 'joint' in the second"),
        ({"cut_at": 128}, "cut_at is None in the first and 128 in the second"),
    ],
)
def test_caches_that_do_not_belong_together(change, message):
    with pytest.raises(CacheMismatch, match=f"train.h5 and dev.h5 do not belong together: .*{message}"):
        run(Memory("train"), Memory("dev", **change))


def test_whole_domains_are_held_out():
    """Each domain has a direction of its own: an example tells the label of its neighbours, and nothing of others."""
    rng = np.random.default_rng(0)
    domain, side = np.repeat(np.arange(20), 10), rng.integers(2, size=20)
    train, dev = Memory("train"), Memory("dev")
    for cache in (train, dev):
        cache.labels, cache.domains = side[domain], np.array([f"template {d}" for d in domain])
        cache.vectors = np.zeros((3, 200, 20), np.float32)
        cache.vectors[:, np.arange(200), domain] = 1
    options = replace(QUICK, penalties=(1e-4, 1.0))
    by_row, by_domain = (
        layers_of(run(train, dev, options=replace(options, hold_out_domains=whole))) for whole in (False, True)
    )
    assert set(by_row["penalty"].dropna()) == {1.0}  # what is learnt of a domain helps with its other examples
    assert set(by_domain["penalty"].dropna()) == {1e-4}  # and not with an unseen one: of equals, the strongest
    train.domains = None
    with pytest.raises(UsageError, match="the task toy has none"):
        run(train, dev, options=replace(options, hold_out_domains=True))


def test_dev_must_be_other_examples():
    with pytest.raises(CacheMismatch, match="both caches hold the same examples"):
        run(Memory("train", data_digest="d"), Memory("dev", data_digest="d"))


def test_swapped_splits_are_refused():
    train, dev = Memory("train"), Memory("dev", seed=1)
    with pytest.raises(UsageError, match="are they swapped"):
        run(dev, train)
    with pytest.raises(UsageError, match="--any-split"):
        run(Memory("test"), dev)
    asked = replace(QUICK, any_split=True)
    assert len(run(dev, train, options=asked))
    assert len(run(Memory("left"), Memory("right", seed=1)))  # names that say nothing
    assert len(run(Memory("original-train"), Memory("validation", seed=1)))


def test_what_makes_a_probe_say_little_is_told(caplog):
    train, dev = Memory("train"), Memory("dev", seed=1)
    train.vectors[1, :, 2:4] = 0.5
    dev.truncated[:3] = True
    dev.labels[:2] = 2
    train.spec["label_names"] = dev.spec["label_names"] = ["no", "yes", "maybe"]
    run(train, dev)
    assert "layer 1: 2 of 6 features are constant in train" in caplog.text
    assert "layer 0" not in caplog.text
    assert "toy dev: 3 of 200 examples exceed the model's maximum length and were truncated" in caplog.text
    assert "2 of 200 rows of dev have a label that never occurs in train (maybe)" in caplog.text


def test_a_metric_of_other_labels_is_refused():
    with pytest.raises(UsageError, match=r"pearson cannot be used for classification; choose .*accuracy, "):
        run(Memory("train"), Memory("dev"), names=("pearson",))
