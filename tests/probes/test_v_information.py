"""V-information against closed forms, and its pointwise parts."""

import numpy as np
import pytest

from probekit.errors import UsageError
from probekit.probes.codes.v_information import pointwise, prior_loss, v_information_rows
from probekit.probes.solvers.logistic import LogisticPath

ABOUT = {"task": "toy", "split": "dev", "model": "toy", "representation": "mean", "estimator": "logistic", "layer": 0}


def entropy(p):
    return -(p * np.log2(p)).sum()


def labels(n, share, seed=0):
    return np.random.default_rng(seed).permutation(np.arange(n) < share * n).astype(int)


def test_knowing_all_and_knowing_nothing():
    train, dev = labels(400, 0.25), labels(200, 0.25, seed=1)
    losses = np.stack([np.zeros(200), prior_loss(train, dev)])
    gain = pointwise(losses, train, dev)
    assert gain.mean(1) == pytest.approx([entropy(np.array([0.25, 0.75])), 0])
    assert gain[0, dev == 1] == pytest.approx(2.0)  # the rare label is worth log2 4
    assert gain[0, dev == 0] == pytest.approx(np.log2(4 / 3))


def test_a_gaussian_pair_of_classes():
    """y is 0 or 1, x ~ N(±m, 1): the logistic probe is the true posterior, and I_V is the mutual information."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(2, 20000))
    x = (2 * y - 1 + rng.normal(size=y.shape)).astype(np.float32)
    p = LogisticPath(Cs=1.0).fit(x[0, :, None], y[0]).predict_proba(x[1, :, None])
    log_loss = -np.log(p[np.arange(20000), y[1]])[None]
    grid = np.linspace(-8, 8, 4001)
    both = np.exp(-((grid - np.array([[-1], [1]])) ** 2) / 2) / np.sqrt(2 * np.pi)
    mixed = both.mean(0)
    truth = (both * np.log2(both / mixed)).sum() * (grid[1] - grid[0]) / 2  # 0.486 bits
    rows = v_information_rows(log_loss, y[0], y[1], about=[ABOUT], resamples=200).set_index("metric")
    assert rows.loc["v-information", "value"] == pytest.approx(truth, abs=0.012)  # 3 standard errors
    assert rows.loc["v-information", "ci_low"] < truth < rows.loc["v-information", "ci_high"]
    assert rows.loc["v-entropy", "value"] == pytest.approx(1, abs=1e-3)
    difference = rows.loc["v-entropy", "value"] - rows.loc["conditional-v-entropy", "value"]
    assert rows.loc["v-information", "value"] == pytest.approx(difference)
    assert set(rows["unit"]) == {"bits"}


def test_shuffled_labels_hold_no_information():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 500, 30)).astype(np.float32)
    y = rng.integers(2, size=(2, 500, 3))
    p = LogisticPath(Cs=(1.0,)).fit(x[0], y[0]).predict_log_proba(x[1])[:, 0]
    log_loss = -np.take_along_axis(p, y[1].T[..., None], 2)[..., 0]
    about = [ABOUT | {"target": "shuffled", "draw": i} for i in range(3)]
    rows = v_information_rows(log_loss, y[0].T, y[1].T, about=about, resamples=200)
    info = rows[rows["metric"] == "v-information"]
    assert info["draw"].tolist() == [0, 1, 2]
    assert (info["value"] < 0).all()  # overfitted: worse than not looking
    assert np.isnan(v_information_rows(log_loss, y[0].T, y[1].T, about=about, resamples=0)["ci_low"]).all()


def test_sentences_widen_the_interval():
    y = np.repeat(labels(100, 0.5), 20)
    loss = np.repeat(np.random.default_rng(0).exponential(size=100), 20)[None]
    widths = [
        np.ptp(v_information_rows(loss, y, y, about=[ABOUT], groups=g)[["ci_low", "ci_high"]].iloc[0].to_numpy())
        for g in (None, np.arange(2000) // 20)
    ]
    assert widths[1] > 3 * widths[0]


def test_a_class_that_train_lacks_is_half_an_example():
    assert prior_loss(np.array([0, 0, 1, 1]), np.array([2])) == pytest.approx(-np.log(0.5 / 4.5))


def test_bad_input():
    y = labels(10, 0.5)
    with pytest.raises(UsageError, match=r"losses \(10,\) do not go"):
        pointwise(np.zeros(10), y, y)
    with pytest.raises(UsageError, match="whole numbers from 0"):
        pointwise(np.zeros((1, 10)), y, y - 1)
    with pytest.raises(UsageError, match="not finite"):
        pointwise(np.full((1, 10), np.inf), y, y)
    with pytest.raises(UsageError, match="describes 2 fits; there are losses of 1"):
        v_information_rows(np.zeros((1, 10)), y, y, about=[ABOUT, ABOUT])
