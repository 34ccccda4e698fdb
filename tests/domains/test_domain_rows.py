"""Rows of domains hold what was measured, once a pair, and can be written."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from probekit.domains.divergence import divergences
from probekit.domains.options import PROXY, Measure
from probekit.domains.resampling import halves, stream
from probekit.domains.rows import domain_rows, size_rows
from probekit.domains.terms import Terms
from probekit.domains.uncertainty import uncertainty
from probekit.rows import read_rows, write_rows


def terms(names=("fiction", "travel", "telephone"), blocks=(20, 30, 40), v=50, seed=0):
    rng = np.random.default_rng(seed)
    counts = tuple(rng.multinomial(60, rng.dirichlet(np.ones(v)), size=n) for n in blocks)
    tokens = np.array([c.sum() for c in counts]) + 100
    zeros = np.zeros(len(names), dtype=np.int64)
    return Terms(
        names=names, vocabulary=tuple(f"t{i}" for i in range(v)), counts=counts, outside=zeros + 100,
        documents=np.array(blocks), tokens=tokens, pruned=zeros,
    )  # fmt: skip


FAST = {"resamples": 100, "draws": 19}


def test_a_row_for_each_pair_and_measure(tmp_path):
    data = terms()
    asked = ["js-divergence", "js-distance", "kl", PROXY]
    rows = domain_rows(data, asked, seed=2, **FAST)
    gold = rows[rows["target"] == "gold"]
    assert dict(gold["metric"].value_counts()) == {"js-divergence": 3, "js-distance": 3, "kl": 6, PROXY: 3}
    found = uncertainty(data.counts, data.documents, asked[:3], names=data.names, seed=2, **FAST)
    for row in gold[gold["metric"] != PROXY].itertuples():
        i, j = (data.names.index(x) for x in (row.domain_a, row.domain_b))
        one = found[row.metric]
        got = (row.raw, row.value, row.ci_low, row.ci_high, row.null_mean, row.null_high, row.p, row.null_share)
        fields = (one.raw, one.value, one.low, one.high, one.null_mean, one.null_high, one.p, one.null_share)
        np.testing.assert_array_equal(got, [x[i, j] for x in fields])
        if row.metric == "js-divergence":
            assert row.value == pytest.approx(row.raw - row.null_share * row.null_mean)
            assert row.ci_low < row.value < row.ci_high
        assert row.n == row.documents_a + row.documents_b == data.documents[i] + data.documents[j]
        assert row.outside_a == 100 / data.tokens[i]
    assert set(gold["estimator"]) == {"corrected", "plug-in", "logistic"}
    assert (gold.loc[gold["metric"] == PROXY, "value"] > 1).all()
    same = rows[rows["target"] == "halves"]
    assert (same["domain_a"] == same["domain_b"]).all()
    assert len(same) == 9
    split = halves(data.counts[1], ["js-divergence"], draws=19, rng=stream(2, "halves", "travel"))["js-divergence"]
    row = same[(same["domain_a"] == "travel") & (same["metric"] == "js-divergence")].iloc[0]
    assert row["value"] == pytest.approx(split.mean())
    assert row["ci_low"] < row["value"] < row["ci_high"]
    path = write_rows(rows, tmp_path / "rows.parquet", {})
    assert read_rows(path).equals(rows)


def test_raw_values_are_those_of_the_distributions():
    data = terms()
    rows = domain_rows(data, Measure, **FAST)
    totals = divergences(data.distributions, Measure)
    for row in rows[rows["target"] == "gold"].itertuples():
        at = tuple(data.names.index(x) for x in (row.domain_a, row.domain_b))
        assert row.raw == pytest.approx(totals[row.metric][at], abs=1e-14)


def test_one_domain_has_its_halves():
    rows = domain_rows(terms(names=("alone",), blocks=(20,)), **FAST)
    assert list(rows["target"]) == ["halves"]
    assert rows["n"].iloc[0] == 20


def test_sizes():
    rows = size_rows(terms(), (0.5, 1.0), repeats=3)
    assert len(rows) == 6
    assert list(rows["part"]) == [0.5, 1.0] * 3
    assert list(rows["n"][:2]) == [25, 50]
    assert set(rows["metric"]) == {"js-divergence-by-size"}
    half, whole = rows["raw"][0], rows["raw"][1]
    assert whole == pytest.approx(divergences(terms().distributions)["js-divergence"][0, 1])
    assert half > rows["value"][0]


def test_what_to_mind_of_a_pair_is_noted():
    data = terms(names=("tiny", "huge", "wordy"), blocks=(4, 20, 20))
    data = replace(data, documents=np.array([4, 400, 20]), tokens=np.array([400, 4000, 4000]))
    rows = domain_rows(data, ["js-divergence", PROXY], **FAST)
    notes = {(r.metric, r.domain_a, r.domain_b): r.note for r in rows[rows["target"] == "gold"].itertuples()}
    assert notes["js-divergence", "tiny", "huge"].startswith(
        "no null: a block of huge holds 20 documents, but tiny has only 4; divide huge into more blocks"
    )
    assert notes["js-divergence", "tiny", "wordy"] == ""
    assert "documents of wordy are 20.0 times as long as those of huge" in notes["js-divergence", "huge", "wordy"]
    assert "Divide the larger domain into more blocks" in notes[PROXY, "tiny", "huge"]
    js = rows[(rows["metric"] == "js-divergence") & (rows["target"] == "gold")]
    assert list(js["estimator"]) == ["corrected"] * 3
    assert set(domain_rows(terms(), **FAST)["note"].dropna()) == {""}


def test_only_what_is_asked_for_is_drawn():
    told = []
    rows = domain_rows(terms(), PROXY, progress=lambda stage, done, total: told.append(stage), **FAST)
    assert set(told) == {"proxies"}
    assert len(rows) == 3
    rows = domain_rows(terms(), resamples=0, draws=0)
    assert set(rows["target"]) == {"gold"}
    assert (rows["value"] < rows["raw"]).all()
    assert rows[["ci_low", "p"]].isna().all(axis=None)


def test_copies_are_one_unit():
    data = terms(names=("a", "b"), blocks=(30, 30))
    changed = data.counts[0][:10].copy()
    changed[:, 0] += 3  # near copies
    twice = tuple(np.vstack([c, c if k else np.vstack([c[:20], changed])]) for k, c in enumerate(data.counts))
    doubled = replace(data, counts=tuple(map(csr_array, twice)), documents=np.array([60, 60]))
    both = domain_rows(doubled, seed=1, resamples=40, draws=99)
    row = both[both["target"] == "gold"].iloc[0]
    assert "60 of 60 documents of b are copies or near copies of others; they are resampled" in row["note"]
    assert row["n"] == 120
    once = uncertainty(data.counts, data.documents, names=data.names, resamples=40, draws=99, seed=1)["js-divergence"]
    torn = uncertainty(doubled.counts, doubled.documents, names=data.names, resamples=40, draws=99, seed=1)
    assert row["value"] == pytest.approx(once.value[0, 1], abs=0.01)
    assert torn["js-divergence"].value[0, 1] > once.value[0, 1] + 0.005  # the control: copies as evidence of their own
