"""The terms that make up a divergence."""

import numpy as np
import pytest

from probekit.domains.divergence import js_divergence
from probekit.domains.rows import REST, explain
from probekit.errors import UsageError

P, Q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.5, 0.1, 0.3, 0.1])
WORDS = ["the", "she", "city", "tariff"]


def test_contributions_by_hand():
    rows = explain(P, Q, WORDS, domains=("fiction", "government"), tokens=(300, 200))
    assert list(rows["term"]) == ["tariff", "she", "city", "the"]
    truth = {
        "the": 0,
        "she": (0.3 * np.log2(0.3 / 0.2) + 0.1 * np.log2(0.1 / 0.2)) / 2,
        "city": (0.2 * np.log2(0.2 / 0.25) + 0.3 * np.log2(0.3 / 0.25)) / 2,
        "tariff": 0.05,
    }
    for row in rows.itertuples():
        assert row.value == pytest.approx(truth[row.term], abs=1e-15)
        assert row.share == pytest.approx(truth[row.term] / js_divergence(P, Q))
        assert (row.share_a, row.share_b) == (P[WORDS.index(row.term)], Q[WORDS.index(row.term)])
    assert list(rows["mostly"]) == ["government", "fiction", "government", ""]
    assert set(rows["n"]) == {500}
    assert set(rows["metric"]) == {"js-contribution"}


@pytest.mark.parametrize("top", [None, 1, 3, 4, 9])
def test_they_sum_to_the_divergence(top):
    rows = explain(P, Q, WORDS, top=top)
    assert rows["value"].sum() == pytest.approx(js_divergence(P, Q), abs=1e-15)
    assert rows["share"].sum() == pytest.approx(1)
    assert rows["share_a"].sum() == pytest.approx(1)
    assert len(rows) == {None: 4, 1: 2, 3: 4, 4: 4, 9: 4}[top]
    assert (rows["term"].iloc[-1] == REST) == (top in (1, 3))


def test_equal_domains_have_nothing_to_explain():
    rows = explain(P, P, WORDS)
    assert (rows["value"] == 0).all()
    assert (rows["share"] == 0).all()
    assert list(rows["term"]) == WORDS


def test_what_explain_refuses():
    with pytest.raises(UsageError, match="numbers of terms \\(3\\) and probabilities \\(4\\) differ"):
        explain(P, Q, WORDS[:3])
    with pytest.raises(UsageError, match="top must be 1 or more"):
        explain(P, Q, WORDS, top=0)
    with pytest.raises(UsageError, match="sum to 0.5"):
        explain(P / 2, Q, WORDS)
