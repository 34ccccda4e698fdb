"""Units that tasks share, and draws by their names."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from probekit.statistics.bootstrap import replicates
from probekit.statistics.permutation import exchanged
from probekit.statistics.predictions import Predictions
from probekit.statistics.shared_units import Source, shared_units
from probekit.statistics.streams import uniform

HERE = Source("data")


def table(ids, groups=None, right=None, models=1, task="t", split="dev"):
    n = len(ids)
    fits = pd.DataFrame([{"task": task, "split": split, "model": f"m{i}", "layer": 0, "target": "gold"}
                         for i in range(models)])  # fmt: skip
    said = np.ones((models, n), dtype=int) if right is None else np.atleast_2d(right).astype(int)
    return Predictions(fits, np.array(ids), np.ones(n, dtype=int), said, ("accuracy",), groups)


def test_words_labels_and_edges_of_a_sentence_are_one_unit():
    words = table(["a:0", "a:1", "b:0"], np.array([7, 7, 9]))
    labels = table(["b:0/nsubj:pass", "b:1/obj"], np.array([1, 1]))
    edges = table(["a:1-2", "b:1-3"], np.array([0, 1]))
    texts = table(["b", "a"])
    one, two, three, four = shared_units([(HERE, t) for t in (words, labels, edges, texts)])
    a, b = one[0], one[2]
    assert a != b
    assert one.tolist() == [a, a, b]
    assert two.tolist() == [b, b]
    assert three.tolist() == [a, b]
    assert four.tolist() == [b, a]


def test_documents_of_one_task_join_the_sentences_of_another():
    documents, sentences = table(["a", "b", "c"], np.array([1, 1, 2])), table(["a", "b", "c", "d"])
    one, other = shared_units([(HERE, documents), (HERE, sentences)])
    assert one[0] == one[1] == other[0] == other[1] != other[2]
    assert len(set(other.tolist())) == 3


def apart(*tables):
    one, other = (set(units.tolist()) for units in shared_units(tables))
    return not one & other


@pytest.mark.parametrize("source", [Source(), Source("data"), Source("data", "cache")])
def test_numbers_of_examples_name_no_sentences_of_other_tasks(source):
    """Two task files, or cola and sst2, have dev-0, dev-1 …, each with groups of its own that would chain into one."""
    rng = np.random.default_rng(0)
    one, other = (table([f"dev-{i}" for i in range(400)], rng.integers(80, size=400), task=t) for t in ("cola", "sst2"))
    units = shared_units([(source, one), (source, other)])
    assert [len(np.unique(of)) for of in units] == [80, 80]
    assert not set(units[0].tolist()) & set(units[1].tolist())
    probe, edges = shared_units([(source, one), (source, table(one.ids, task="cola"))])
    assert probe.tolist() == edges.tolist()  # two analyses of one task


def test_names_of_sentences_hold_in_one_folder_and_split():
    one, other = table(["weblog-1", "weblog-2"], task="ud"), table(["weblog-2", "weblog-1"], task="bigram-shift")
    first, second = shared_units([(HERE, one), (HERE, other)])
    assert first.tolist() == second[::-1].tolist()
    assert apart((HERE, one), (Source("elsewhere"), other))
    assert apart((Source(), one), (Source(), other))
    assert apart((HERE, one), (HERE, table(["weblog-2", "weblog-1"], task="bigram-shift", split="test")))


def test_bare_numbers_hold_in_one_cache_if_all_are_the_same():
    """sick-e and sick-r are two labels of the same pairs; rte has other pairs of the same numbers."""
    one, other, rte = (table(ids, task=t) for ids, t in ((["4", "24"], "e"), (["4", "24"], "r"), (["4", "5"], "rte")))
    cache = Source("data", "a")
    first, second = shared_units([(cache, one), (cache, other)])
    assert first.tolist() == second.tolist()
    assert apart((cache, one), (cache, rte))
    assert apart((cache, one), (Source("data", "b"), other))


def test_numbered_texts_are_not_words_of_a_text():
    [alone] = shared_units([(HERE, table(["x:0", "x:1"]))])
    assert alone[0] != alone[1]


def test_streams_are_uniform_and_independent():
    keys = np.random.default_rng(0).integers(1 << 63, size=50).astype(np.uint64)
    u = uniform(keys, 0, 4000, (0, 1))
    assert stats.kstest(u.ravel(), "uniform").pvalue > 0.01
    assert np.abs(np.corrcoef(u.T) - np.eye(50)).max() < 0.08  # 5 standard errors of a correlation
    assert np.abs(np.corrcoef(u[:-1, 0], u[1:, 0])[0, 1]) < 0.08
    np.testing.assert_array_equal(u[100:200, 3:5], uniform(keys[3:5], 100, 200, (0, 1)))
    assert not np.isclose(u, uniform(keys, 0, 4000, (0, 2))).mean() > 0.01


@pytest.mark.parametrize("metric", ["accuracy", "rmse"])
def test_draws_by_name_have_the_spread_of_draws_by_order(metric):
    rng = np.random.default_rng(0)
    e = table([f"s{i}" for i in range(300)], right=rng.random(300) < 0.8)
    [units] = shared_units([(HERE, e)])
    by_order = replicates(e.gold, e.predicted, metric, resamples=4000)
    by_name = replicates(e.gold, e.predicted, metric, resamples=4000, groups=units, by_name=True)
    assert by_name.std() == pytest.approx(by_order.std(), rel=0.05)
    assert by_name.mean() == pytest.approx(by_order.mean(), abs=0.003)


def test_shared_examples_are_exchanged_together():
    rng = np.random.default_rng(0)
    right = rng.random((2, 200)) < 0.7
    back = np.arange(199, 49, -1)
    tables = [table([f"s{i}" for i in at], None, right[:, at], 2) for at in (np.arange(200), back)]
    drawn = []
    for e, units in zip(tables, shared_units([(HERE, e) for e in tables]), strict=True):
        named = Predictions(e.fits, e.ids, e.gold, e.predicted, e.metrics, units)
        drawn.append(exchanged(named, [(0, [1])], "accuracy", draws=2000, seed=0, by_name=True)[1][0])
    assert np.corrcoef(*drawn)[0, 1] == pytest.approx(np.sqrt(150 / 200), abs=0.06)
