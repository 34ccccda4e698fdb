"""Curves of mutual information over toy layers whose information is known."""

import threading
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import probekit.information.curves as module
from probekit.errors import NonFiniteError, UsageError
from probekit.information import Information
from probekit.information.curves import check_estimators, layer_information
from probekit.information.options import InformationOptions
from probekit.rows import layer_labels, read_rows, write_rows

ABOUT = {"task": "toy", "split": "train", "model": "tiny", "representation": "mean"}
N, APART = 1500, 1.0


def toy(n=N, seed=0):
    """Labels 0 and 1, a layer of noise, and one whose first column is normal, ±APART by label."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    noise = rng.normal(size=(n, 4))
    signal = noise.copy()
    signal[:, 0] += APART * (2 * y - 1)
    return {"0": noise, "1": signal}, y


def truth():
    """I of the label and the first column, in bits: H of the column, a mixture, less that of one normal."""

    def density(t):
        return (norm.pdf(t - APART) + norm.pdf(t + APART)) / 2

    h = quad(lambda t: -density(t) * np.log2(density(t)), -9, 9)[0]
    return h - 0.5 * np.log2(2 * np.pi * np.e)


def information(layers, labels, **given):
    """Rows, options given one by one."""
    options = {f.name: given.pop(f.name) for f in fields(InformationOptions) if f.name in given}
    return layer_information(layers, labels, about=ABOUT, options=InformationOptions(**options), **given)


def of(rows, target="gold", column="value", draw=None):
    """A column by layer, of what sums draws up or of one draw."""
    own = rows[(rows["target"] == target) & (rows["draw"].isna() if draw is None else rows["draw"].eq(draw))]
    return own.set_index(layer_labels(own))[column]


@pytest.fixture(scope="module")
def rows():
    layers, y = toy()
    return information({**layers, "2": lambda: layers["1"]}, y, draws=199)


def test_signal_is_measured_and_noise_is_not(rows):
    assert truth() == pytest.approx(0.486, abs=1e-3)
    assert of(rows)["1"] == pytest.approx(truth(), abs=0.06)  # three standard deviations at this n
    assert of(rows, column="ci_low")["1"] < truth() < of(rows, column="ci_high")["1"]
    assert of(rows)["0"] <= of(rows, "shuffled", "ci_high")["0"] + 0.01
    assert of(rows, column="p_adjusted")["0"] > 0.05
    assert of(rows, column="ci_low")["0"] == 0
    np.testing.assert_allclose(of(rows, column="share"), of(rows) / of(rows, column="entropy"))
    assert of(rows)["2"] == of(rows)["1"]  # a function that gives the layer
    assert set(rows["unit"]) == {"bits"}
    assert set(rows["metric"]) == {"mutual-information"}


def test_where_noise_falls(rows):
    assert (of(rows, "shuffled", "ci_low") == 0).all()
    assert (of(rows, "shuffled", "value") > 0).all()  # values are reported from 0 on, so that their mean lies above it
    assert (of(rows, "shuffled", "ci_high") < 0.03).all()
    assert set(rows["shuffles"]) == {199}


def test_p_is_corrected_over_the_layers_of_a_curve(rows):
    """Holm (1979): the smallest times 3, the next times 2, and never less than the one before."""
    p, adjusted = of(rows, column="p"), of(rows, column="p_adjusted")
    assert p["1"] == p["2"] == 1 / 200
    assert adjusted["1"] == adjusted["2"] == pytest.approx(3 / 200)
    assert adjusted["0"] == p["0"]


def test_shuffled_labels_are_at_zero():
    (layers, y), found = toy(), 0
    for seed in range(6):
        rows = information(layers, np.random.default_rng(seed).permutation(y), draws=99)
        assert (of(rows) < 0.03).all()
        found += (of(rows, column="p_adjusted") <= 0.05).any()
    assert found <= 2  # of six, each with a chance of 0.05: more than two in 2 of 1,000 cases


def test_controls_are_whole_estimates_of_shuffled_labels():
    layers, y = toy(400)
    rows = information(layers, y, draws=50, controls=4)
    one = rows[rows["layer"] == 0]
    assert one["target"].tolist() == ["gold", *["shuffled"] * 5]
    assert one["draw"].tolist() == [pd.NA, 0, 1, 2, 3, pd.NA]
    drawn = np.stack([of(rows, "shuffled", draw=i) for i in range(4)])
    assert (drawn < 0.1).all()
    np.testing.assert_allclose(of(rows, "shuffled"), drawn.mean(0))
    np.testing.assert_allclose(of(rows, "shuffled", "ci_high"), np.quantile(drawn, 0.975, axis=0))
    assert of(rows, column="p")["1"] == 1 / 51  # the estimator's own
    fewer = information(layers, y, draws=50, controls=2)
    assert of(fewer, "shuffled", draw=1).tolist() == of(rows, "shuffled", draw=1).tolist()


def fake(calls, **own):
    """An estimator without a null: the difference of class means in the first column."""

    def estimate(x, y, estimator, *, seed, discrete, groups, draws=100, threads=1):
        calls.append((estimator, threading.current_thread().name, threads))
        value = float(abs(x[y == 1, 0].mean() - x[y == 0, 0].mean()) / 4)
        return Information(value, value, 1.0, len(x), str(estimator), **own)

    return estimate


def test_estimators_without_a_null_are_held_against_shuffled_labels(monkeypatch):
    calls, (layers, y) = [], toy(400)
    monkeypatch.setattr(module, "mutual_information", fake(calls))
    rows = information(layers, y, estimator="knn")
    assert len(calls) == 2 * (1 + 19)
    assert of(rows)["1"] == pytest.approx(0.5, abs=0.06) != of(rows, "shuffled")["1"]
    assert of(rows, "shuffled", "ci_high")["1"] < 0.1
    assert of(rows, column="p")["1"] == 1 / 20
    assert of(rows, column="p_adjusted")["1"] == 2 / 20
    few = information(layers, y, estimator="knn", controls=18)
    assert of(few, column="p").isna().all()  # nothing up to 0.05 could come of them
    many = information(layers, y, estimator="knn", controls=39)
    assert of(many, column="p")["1"] == 1 / 40
    assert of(many, column="null_sd")["1"] == pytest.approx(
        np.std([of(many, "shuffled", draw=i)["1"] for i in range(39)])
    )
    none = information(layers, y, estimator="knn", draws=0)
    assert set(none["target"]) == {"gold"}


def test_estimators_with_threads_of_their_own_run_one_after_another(monkeypatch):
    calls, (layers, y) = [], toy(400)
    monkeypatch.setattr(module, "mutual_information", fake(calls))
    information(layers, y, estimator=["edge-4.3.1", "knn"], draws=0, threads=2)
    here = threading.current_thread().name
    assert {(thread == here, threads) for name, thread, threads in calls if name == "edge-4.3.1"} == {(True, 2)}
    assert {(thread == here, threads) for name, thread, threads in calls if name == "knn"} == {(False, 1)}


@pytest.mark.parametrize("interval", [{"ci_low": 0.0, "ci_high": 1.0}, {}])
def test_what_is_undetermined_has_no_value_and_says_why(monkeypatch, tmp_path, interval):
    own = {"undetermined": "noise alone fills the buckets", "null": np.array([0.2, 0.6]), **interval}
    layers, y = toy(400)

    def estimate(x, y, estimator, **_):
        return Information(float("nan"), 0.7, 1.0, len(x), estimator, **own)

    monkeypatch.setattr(module, "mutual_information", estimate)
    rows = information(layers, y)
    rows = read_rows(write_rows(rows, tmp_path / "rows.parquet", {}))
    gold = rows[rows["target"] == "gold"]
    assert gold["value"].isna().all()
    assert gold["undetermined"].tolist() == ["noise alone fills the buckets"] * 2
    assert gold[["ci_low", "ci_high"]].to_numpy().tolist() == [[0.0, 1.0]] * 2
    assert of(rows, "shuffled").tolist() == [0.4, 0.4]


def test_the_numbers_do_not_depend_on_the_threads():
    layers, y = toy(300)
    one, three = (information(layers, y, draws=20, controls=1, threads=threads) for threads in (1, 3))
    pd.testing.assert_frame_equal(one, three)


@pytest.mark.parametrize("labels", ["classes", "numbers"])
def test_unlabelled_rows_are_left_out_and_counted(labels):
    layers, y = toy(300)
    if labels == "numbers":
        y = y + np.random.default_rng(1).normal(size=300)
    hidden = y.copy()
    hidden[:40] = np.nan if labels == "numbers" else -1
    rows = information(layers, hidden, draws=20)
    rest = information({name: x[40:] for name, x in layers.items()}, y[40:], draws=20)
    assert set(rows["left_out"]) == {40}
    assert set(rows["n"]) == {260}
    pd.testing.assert_series_equal(rows["value"], rest["value"])


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_numbers_below_0_are_labels(kind):
    layers, _ = toy(300)
    scores = np.random.default_rng(0).integers(-3, 4, size=300).astype(kind)
    told = information(layers, scores, draws=0, discrete=False)
    assert (set(told["n"]), set(told["left_out"])) == ({300}, {0})
    above = information(layers, scores + 3, draws=0, discrete=False)
    pd.testing.assert_series_equal(told["value"], above["value"])


def test_whole_numbers_may_be_numbers():
    layers, y = toy(300)
    assert (of(information(layers, y * 2.0, draws=0), column="bins") == 0).all()
    scores = np.random.default_rng(0).integers(6, size=300).astype(float)
    told = information(layers, scores, draws=0, discrete=False)
    assert (of(told, column="bins") > 0).all()
    assert of(told, column="share").isna().all()  # of the bins, which are the more the more examples there are
    drawn = information(layers, scores, draws=0, controls=1, discrete=False)
    assert drawn["share"].isna().all()


@pytest.mark.parametrize("estimator", ["edge", "knn", "edge-4.3.1"])
def test_groups_are_shuffled_as_wholes(estimator):
    """Ten near copies of each of 40 vectors, with one label each: they are 40 examples, not 400."""
    rng = np.random.default_rng(0)
    own = np.repeat(np.arange(41), 10)
    x, y = rng.normal(size=(41, 8))[own] + 0.01 * rng.normal(size=(410, 8)), rng.integers(2, size=41)[own]
    y[400:] = -1
    told = information({"0": x}, y, estimator=estimator, draws=99, groups=own)
    assert told["left_out"].eq(10).all()
    assert told.loc[told["target"] == "gold", "p"].item() > 0.05
    if estimator != "edge-4.3.1":
        assert of(told, column="n_groups")["0"] == 40
        assert not of(told)["0"] > 0.2  # of nearest neighbours it is undetermined
        assert of(information({"0": x}, y, estimator=estimator, draws=99))["0"] > 0.5  # the control: no groups


def test_progress_counts_layers_of_all_estimators():
    layers, y = toy(200)
    seen = []
    information(layers, y, estimator=("edge", "knn"), draws=5, progress=lambda *one: seen.append(one))
    assert seen == [("information", i, 4) for i in (1, 2, 3, 4)]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_layer_with_nan_is_named(bad):
    layers, y = toy(200)
    layers["1"][17, 2] = bad
    with pytest.raises(NonFiniteError, match="layer 1: .*NaN or infin"):
        information(layers, y, draws=5)


def test_what_cannot_be_measured():
    layers, y = toy(200)
    with pytest.raises(UsageError, match="unknown estimator 'edgy'; did you mean edge"):
        information(layers, y, estimator=["edge", "edgy"])
    with pytest.raises(UsageError, match=r"layer 1: vectors must have the shape .*n = 200 labels, not .199"):
        information({**layers, "1": layers["1"][1:]}, y, draws=5)
    with pytest.raises(UsageError, match="there is nothing to know"):
        information(layers, np.zeros(200, int))
    with pytest.raises(UsageError, match="at least 20"):
        information(layers, np.where(np.arange(200) < 15, y, -1))
    with pytest.raises(UsageError, match="no estimator was given"):
        information(layers, y, estimator=[])
    scores = y + np.random.default_rng(0).normal(size=200)
    for name, labels, said in (
        ("ridge", y, "ridge is for numbers, but the labels are classes; leave it out, or use logistic or mlp"),
        ("logistic", scores, "logistic is for classes, but the labels are numbers; leave it out, or use ridge"),
        ("mlp", scores, "mlp is for classes"),
        ("plug-in", y, "plug-in is for single values"),
    ):
        with pytest.raises(UsageError, match=said):
            information({"0": lambda: pytest.fail("read")}, labels, estimator=["edge", name])
    assert InformationOptions(estimator=("ridge", "edge", "ridge")).estimator == ("ridge", "edge")
    check_estimators(["ridge", "edge"], scores)
    with pytest.raises(UsageError, match="layers is empty"):
        information({}, y)
    with pytest.raises(UsageError, match="0 or more"):
        information(layers, y, draws=-1)
