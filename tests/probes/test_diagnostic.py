"""The per-layer protocol: against a plain scikit-learn pipeline, against chance, and against what must not matter."""

import logging

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.diagnostic import (
    ALPHAS,
    CS,
    Labels,
    Options,
    hold_out,
    layer_rows,
    logistic_path,
    pair_features,
    standardise,
)
from probekit.tasks.metrics import metric

ABOUT = {"task": "toy", "split": "dev", "model": "toy", "representation": "mean"}
QUICK = Options(resamples=200)


def toy(n=300, d=12, classes=3, seed=0, signal=1.5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32)
    noise = rng.normal(size=(n, classes))
    return x, (signal * x[:, :classes] + noise).argmax(1)


def run(x, y, x_dev, y_dev, *, kind="classification", names=("accuracy",), options=QUICK, **more):
    layers = x if isinstance(x, dict) else {"0": x}
    dev = x_dev if isinstance(x_dev, dict) else {"0": x_dev}
    metrics = {name: metric(name) for name in names}
    return layer_rows(layers, y, dev, y_dev, kind=kind, metrics=metrics, about=ABOUT, options=options, **more)


def fitted(rows):
    return rows[rows["layer_name"] != ""]


@pytest.mark.parametrize("classes", [2, 5])
def test_equals_a_plain_pipeline(classes):
    (x, y), (x_dev, y_dev) = toy(classes=classes), toy(classes=classes, seed=1)
    [row] = fitted(run(x, y, x_dev, y_dev)).to_dict("records")
    held = hold_out(Labels(y), 0.2, np.random.default_rng(0), stratify=True)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    twin = GridSearchCV(pipeline, {"logisticregression__C": list(CS)}, cv=PredefinedSplit(np.where(held, 0, -1)))
    twin.fit(x, y)
    assert row["penalty"] == twin.best_params_["logisticregression__C"]
    assert row["value"] == pytest.approx(np.mean(twin.predict(x_dev) == y_dev), abs=1 / len(y_dev))  # one near-tie
    assert row["converged"]
    assert row["ci_low"] < row["value"] < row["ci_high"]
    assert row["value"] > 0.5  # measured 0.77 and 0.58; chance 0.5 and 0.2


def test_regression_equals_a_plain_pipeline():
    rng = np.random.default_rng(0)
    x, x_dev = (rng.normal(size=(n, 40)).astype(np.float32) for n in (120, 90))
    w = rng.normal(size=40)
    y, y_dev = (z @ w + 3 * rng.normal(size=len(z)) for z in (x, x_dev))
    rows = run(x, y, x_dev, y_dev, kind="regression", names=("pearson", "rmse"))
    held = hold_out(Labels(y), 0.2, np.random.default_rng(0), stratify=False)
    pipeline = make_pipeline(StandardScaler(), Ridge())
    pearson = lambda model, z, t: np.corrcoef(model.predict(z), t)[0, 1]  # noqa: E731
    twin = GridSearchCV(
        pipeline, {"ridge__alpha": list(ALPHAS)[::-1]}, cv=PredefinedSplit(np.where(held, 0, -1)), scoring=pearson
    ).fit(x.astype(float), y)
    by_metric = fitted(rows).set_index("metric")
    assert set(by_metric["penalty"]) == {twin.best_params_["ridge__alpha"]}
    assert by_metric.loc["pearson", "value"] == pytest.approx(np.corrcoef(twin.predict(x_dev), y_dev)[0, 1], abs=1e-5)
    mean = rows[rows["estimator"] == "mean"].set_index("metric")["value"]
    assert mean["rmse"] == pytest.approx(np.sqrt(np.mean((y_dev - y.mean()) ** 2)))
    assert mean["pearson"] == 0.0


def test_a_metric_where_less_is_better_chooses_the_lowest():
    rng = np.random.default_rng(0)
    x, x_dev = (rng.normal(size=(200, 5)).astype(np.float32) for _ in range(2))
    rows = run(x, x @ np.arange(5.0), x_dev, x_dev @ np.arange(5.0), kind="regression", names=("rmse",))
    row = fitted(rows).iloc[0]
    assert row["penalty"] == ALPHAS[0]
    assert row["value"] < 0.1  # measured 0.02; the strongest penalty gives 5.4


def test_shuffled_labels_stay_at_chance():
    """The control: no relation between x and y, so the interval holds the share of a class (over 20 draws)."""
    inside = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        (x, y), (x_dev, y_dev) = toy(classes=2, seed=seed), toy(classes=2, seed=100 + seed)
        rows = run(x, rng.permutation(y), x_dev, rng.permutation(y_dev), options=Options(resamples=200, seed=seed))
        row = fitted(rows).iloc[0]
        inside.append(row["ci_low"] <= 0.5 <= row["ci_high"])
    assert np.mean(inside) >= 0.8  # 95 % expected; 15 of 20 or fewer has probability 0.003
    (x, y), (x_dev, y_dev) = toy(classes=2), toy(classes=2, seed=100)
    assert fitted(run(x, y, x_dev, y_dev))["ci_low"].iloc[0] > 0.5  # and the true labels do not


def test_scale_and_shift_of_features_do_not_matter():
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    rng = np.random.default_rng(2)
    scale, shift = np.exp2(rng.integers(-6, 6, size=x.shape[1])), rng.integers(-4, 4, size=x.shape[1])
    moved = [(z * scale + shift).astype(np.float32) for z in (x, x_dev)]
    plain, other = (fitted(run(a, y, b, y_dev)) for a, b in ((x, x_dev), moved))
    assert plain["value"].iloc[0] == pytest.approx(other["value"].iloc[0], abs=1 / len(y_dev))
    assert plain["penalty"].iloc[0] == other["penalty"].iloc[0]


def test_rounding_noise_is_no_feature():
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    x[:, 1] = 1000 + 1e-3 * x[:, 1]
    x[:, 2] = 7
    a, b = standardise(x, x[:5])
    assert (a[:, 1:] == 0).all()
    np.testing.assert_allclose(a[:, 0].std(), 1, rtol=1e-5)
    np.testing.assert_array_equal(a[:5], b)


def test_nan_names_the_layer():
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    bad = x.copy()
    bad[17, 3] = np.nan
    with pytest.raises(NonFiniteError, match=r"layer 4 holds NaN or infinity \(first in labelled row 17\)"):
        run({"3": x, "4": bad}, y, {"3": x_dev, "4": x_dev}, y_dev)


def test_what_did_not_converge_is_said(caplog):
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    with caplog.at_level(logging.WARNING):
        rows = fitted(run(x, y, x_dev, y_dev, options=Options(resamples=0, max_iter=2)))
    assert rows["converged"].tolist() == [False]
    assert "L-BFGS did not converge in 2 iterations in layer 0." in caplog.text
    caplog.clear()
    assert fitted(run(x, y, x_dev, y_dev, options=Options(resamples=0)))["converged"].all()
    assert "converge" not in caplog.text


def test_the_edge_of_the_grid_is_said_where_it_matters(caplog):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    common = rng.normal(size=400)  # only a difference of features tells the classes apart: the penalty must be weak
    x = np.stack([common + 0.1 * y, common], 1).astype(np.float32)
    with caplog.at_level(logging.INFO):
        rows = run(x, y, x, y, options=Options(resamples=0, penalties=(1e-7, 1e-2, 100.0)))
    assert fitted(rows)["penalty_at_edge"].all()
    assert "the best penalty is at the edge of the grid in layer 0 (100)" in caplog.text
    caplog.clear()
    same = np.ones((50, 2), dtype=np.float32)  # every penalty gives the same, so no edge is better than its neighbour
    rows = run(same, np.arange(50) % 2, same, np.arange(50) % 2, options=Options(resamples=0))
    assert "edge" not in caplog.text
    assert not rows["penalty_at_edge"].any()
    assert fitted(rows)["penalty"].iloc[0] == CS[0]  # of equals, the strongest


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
@pytest.mark.parametrize("classes", [2, 4])
def test_convergence_means_a_flat_gradient(classes):
    x, y = toy(classes=classes)
    [(predict, converged)] = logistic_path(x.astype(float), y, (1.0,))
    [(_, stopped)] = logistic_path(x.astype(float), y, (1.0,), max_iter=3)
    assert (converged, stopped) == (True, False)
    twin = LogisticRegression(C=1.0, max_iter=1000, tol=1e-8).fit(x.astype(float), y)
    assert np.mean(predict(x) == twin.predict(x)) > 0.99


def test_same_seed_same_rows_whatever_the_threads():
    (x, y), (x_dev, y_dev) = toy(d=60), toy(d=60, seed=1)
    layers = {str(i): np.roll(x, i, 0) if i else x for i in range(4)}
    dev = dict.fromkeys(layers, x_dev)
    one, two, three = (run(layers, y, dev, y_dev, options=Options(resamples=50, threads=t)) for t in (1, 1, 3))
    assert one.equals(two)
    assert one.equals(three)


def test_unlabelled_rows_are_left_out_and_counted():
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    plain = run(x, y, x_dev, y_dev)
    junk = np.full((5, x.shape[1]), 1e3, dtype=np.float32)
    more = run(
        np.vstack([junk, x]), np.append([-1] * 5, y), lambda: np.vstack([x_dev, junk[:2]]), np.append(y_dev, [-1, -1])
    )
    assert more["value"].tolist() == plain["value"].tolist()
    assert more[["n", "n_train", "left_out_train", "left_out_dev"]].iloc[0].tolist() == [300, 300, 5, 2]


def test_the_majority_is_that_of_train():
    x, x_dev = np.eye(6, 2, dtype=np.float32), np.eye(4, 2, dtype=np.float32)
    rows = run(x, np.array([1, 1, 1, 1, 0, 0]), x_dev, np.array([0, 0, 0, 1]), options=Options(resamples=0))
    [row] = rows[rows["estimator"] == "majority"].to_dict("records")
    assert (row["value"], row["layer_name"], row["representation"]) == (0.25, "", "none")


def test_words_with_spans():
    """Words whose vector is their tag: every span is found; sentences are not torn by the split or the resamples."""
    rng = np.random.default_rng(0)
    names = ("O", "B-PER", "I-PER")

    def words(n):
        y = rng.integers(3, size=n)
        x = np.eye(3, dtype=np.float32)[y] + 0.01 * rng.normal(size=(n, 3)).astype(np.float32)
        return x, Labels(y, np.arange(n) // 4)

    (x, y), (x_dev, y_dev) = words(400), words(200)
    names_ = {"kind": "sequence-labelling", "names": ("span-f1", "token-accuracy"), "label_names": names}
    rows = fitted(run(x, y, x_dev, y_dev, **names_))
    assert rows["value"].tolist() == [1.0, 1.0]
    assert rows["n"].tolist() == [200, 200]
    held = hold_out(y, 0.2, np.random.default_rng(0), stratify=True)
    assert set(y.groups[held]).isdisjoint(y.groups[~held])
    assert held.mean() == pytest.approx(0.2, abs=0.01)
    with pytest.raises(UsageError, match="sentence of each word"):
        run(x, y.y, x_dev, y_dev.y, **names_)


def test_the_held_out_part_is_stratified():
    y = np.array([0] * 50 + [1] * 10 + [2])
    held = hold_out(Labels(y), 0.2, np.random.default_rng(0), stratify=True)
    assert [int(held[y == c].sum()) for c in range(3)] == [10, 2, 0]  # the only one of its class is fitted


def test_pair_features():
    x = np.array([[1.0, 2.0, 3.0, -1.0]])
    assert pair_features(x).tolist() == [[1, 2, 3, -1, 2, 3, 3, -2]]


def test_bad_input():
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    with pytest.raises(UsageError, match="train has the layers 0; dev has 1"):
        run({"0": x}, y, {"1": x_dev}, y_dev)
    with pytest.raises(UsageError, match=r"layer 0: vectors \(299, 12\) do not go with 300 labels"):
        run(x[1:], y, x_dev, y_dev)
    with pytest.raises(UsageError, match="train has 12 features, dev has 11"):
        run(x, y, x_dev[:, 1:], y_dev)
    with pytest.raises(UsageError, match="all labels in train are the same"):
        run(x, y * 0, x_dev, y_dev)
    with pytest.raises(UsageError, match="300 labelled rows in train and 0 in dev"):
        run(x, y, x_dev, y_dev * 0 - 1)
    with pytest.raises(UsageError, match="penalties are positive"):
        Options(penalties=(0.0,))
    with pytest.raises(UsageError, match="held_out"):
        Options(held_out=1.0)
    with pytest.raises(UsageError, match="no metric"):
        run(x, y, x_dev, y_dev, names=())
