"""The per-layer protocol: against a plain scikit-learn pipeline, against chance, and against what must not matter."""

import logging
from dataclasses import replace
from time import monotonic

import numpy as np
import pytest
from builders import signal_and_noise
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, matthews_corrcoef
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probekit.errors import NonFiniteError, UsageError
from probekit.plots.layers import curve_rows
from probekit.probes.protocol.baselines import Baselines
from probekit.probes.protocol.diagnostic import evaluate_layers, layer_rows
from probekit.probes.protocol.label_sets import label_sets
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import Estimator, ProbeOptions
from probekit.probes.protocol.rows import probe_rows
from probekit.probes.solvers.logistic import CS
from probekit.probes.solvers.ridge import ALPHAS
from probekit.probes.solvers.sparse import SPARSE_CS, sparse_path, sparse_ridge
from probekit.report.curves import by_layer
from probekit.rows import layer_labels
from probekit.statistics.comparisons import compare_predictions
from probekit.statistics.folds import folds
from probekit.statistics.options import CompareOptions

ABOUT = {"task": "toy", "split": "dev", "model": "toy", "representation": "mean"}
QUICK = ProbeOptions(resamples=0, controls=0)
FITTED = [
    "site",
    "layer",
    "representation",
    "estimator",
    "target",
    "draw",
    "penalty",
    "held_out",
    "decrement",
    "digest",
]


def toy(n=300, d=12, classes=3, seed=0, signal=1.5):
    return signal_and_noise(n, d, classes, signal=signal, seed=seed)[:2]


def arguments(x, y, x_dev, y_dev, *, kind="classification", names=("accuracy",), label_names=(), options=QUICK, **more):
    layers = x if isinstance(x, dict) else {"0": x}
    dev = x_dev if isinstance(x_dev, dict) else {"0": x_dev}
    question = Question(kind, tuple(names), tuple(label_names), ABOUT)
    return (layers, y, dev, y_dev, question), {"options": options, **more}


def run(*args, **more):
    args, more = arguments(*args, **more)
    rows = layer_rows(*args, **more)
    return rows.assign(layer_name=layer_labels(rows))


def examples(*args, **more):
    args, more = arguments(*args, **more)
    return evaluate_layers(*args, **more)


def fitted(rows, target="gold", draw=None):
    drawn = rows["draw"].isna() if draw is None else rows["draw"] == draw
    return rows[(rows["layer_name"] != "") & (rows["target"] == target) & drawn]


@pytest.mark.parametrize("classes", [2, 5])
def test_equals_a_plain_pipeline(classes):
    """Scaled on each fold's own rows, C by mean log loss over all held-out rows, refitted on all of train."""
    (x, y), (x_dev, y_dev) = toy(classes=classes), toy(classes=classes, seed=1)
    found = examples(x, y, x_dev, y_dev)
    fit = found.fits[found.fits["layer"] == 0].iloc[0]

    def pipeline(C):
        return make_pipeline(StandardScaler(), LogisticRegression(C=C, solver="newton-cholesky", tol=1e-8))

    fold, scores = folds(y, 5, seed=0), []
    for C in CS:
        losses = []
        for f in range(5):
            twin = pipeline(C).fit(x[fold != f].astype(np.float64), y[fold != f])
            p = twin.predict_proba(x[fold == f].astype(np.float64))
            losses += list(-np.log(p[np.arange(len(p)), y[fold == f]]))
        scores.append(np.mean(losses))
    assert fit["penalty"] == CS[int(np.argmin(scores))]
    assert fit["held_out"] == pytest.approx(min(scores), abs=1e-5)  # measured 2e-6
    twin = pipeline(fit["penalty"]).fit(x.astype(np.float64), y)
    np.testing.assert_array_equal(found.predicted[-1], twin.predict(x_dev.astype(np.float64)))
    want = twin.predict_log_proba(x_dev.astype(np.float64))[np.arange(len(y_dev)), y_dev]
    np.testing.assert_allclose(found.log_loss[-1], -want, atol=1e-3)
    assert fit["converged"]
    assert (found.predicted[-1] == y_dev).mean() > 0.5  # measured .77 and .58; chance .5 and .2


def test_regression_equals_a_plain_pipeline():
    rng = np.random.default_rng(0)
    x, x_dev = (rng.normal(size=(n, 40)).astype(np.float32) for n in (120, 90))
    w = rng.normal(size=40)
    y, y_dev = (z @ w + 8 * rng.normal(size=len(z)) for z in (x, x_dev))
    rows = run(x, y, x_dev, y_dev, kind="regression", names=("pearson", "rmse"))
    fold, scores = folds(y, 5, seed=0, stratify=False), []
    for alpha in ALPHAS:
        errors = []
        for f in range(5):
            twin = make_pipeline(StandardScaler(), Ridge(alpha=alpha)).fit(x[fold != f], y[fold != f])
            errors.append((twin.predict(x[fold == f]) - y[fold == f]) ** 2)
        scores.append(np.concatenate(errors).mean())
    alpha = ALPHAS[int(np.argmin(scores))]
    assert ALPHAS[0] < alpha < ALPHAS[-1]
    twin = make_pipeline(StandardScaler(), Ridge(alpha=alpha)).fit(x.astype(np.float64), y)
    by_metric = fitted(rows).set_index("metric")
    assert set(by_metric["penalty"]) == {alpha}
    assert by_metric["held_out"].iloc[0] == pytest.approx(min(scores), rel=1e-5)
    assert by_metric.loc["pearson", "value"] == pytest.approx(np.corrcoef(twin.predict(x_dev), y_dev)[0, 1], abs=1e-5)
    mean = rows[rows["estimator"] == "mean"].set_index("metric")["value"]
    assert mean["rmse"] == pytest.approx(np.sqrt(np.mean((y_dev - y.mean()) ** 2)))
    assert mean["pearson"] == 0.0


def test_rmse_of_an_outlying_target_has_a_warning_where_probes_of_gold_values_do():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(size=60)
    more = replace(QUICK, resamples=100, controls=1)
    rows = run(
        x, y, x, np.where(np.arange(60) == 4, 300.0, y), kind="regression", names=("pearson", "rmse"), options=more
    )
    warned = rows[rows["warning"].fillna("") != ""]
    assert set(warned["metric"]) == {"rmse", "above-permuted(rmse)", "above-shuffled(rmse)"}
    assert set(warned["target"]) == {"gold"}


@pytest.mark.slow
def test_planted_signal_is_found_where_it_is():
    """Six layers that hold more and more of the label, beside shuffled labels that none holds."""
    rng = np.random.default_rng(0)
    y, y_dev = rng.integers(2, size=600), rng.integers(2, size=1000)

    def layer(t, i):
        return np.column_stack([rng.normal(size=(len(t), 19)), rng.normal(size=len(t)) + i * 0.6 * t])

    layers, dev = ({str(i): layer(t, i) for i in range(6)} for t in (y, y_dev))
    rows = run(layers, y, dev, y_dev, options=ProbeOptions(resamples=100, controls=5))
    for name in ("accuracy", "log-loss"):
        gold = fitted(rows[rows["metric"] == name]).set_index("layer_name")["value"]
        order = gold.sort_values(ascending=name == "accuracy").index.tolist()
        assert order == list("012345")
    noise = fitted(rows[rows["metric"] == "accuracy"], "shuffled")
    assert noise["value"].between(0.46, 0.54).all()  # the mean of five draws; each has a standard error of .016
    assert (noise["ci_low"] < noise["value"]).all()
    above = rows[rows["metric"] == "above-shuffled(accuracy)"].set_index("layer_name")
    assert above.loc["5", "ci_low"] > 0.3
    assert above.loc["0", "ci_low"] < 0 < above.loc["0", "ci_high"]


def test_dev_is_never_looked_at():
    """Every fitted number of every target is byte for byte the same, whatever dev holds."""
    rng = np.random.default_rng(0)
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    types, types_dev = rng.integers(40, size=300), rng.integers(40, size=300)
    train = Labels(y, np.arange(300) // 3, types)
    bag = sparse.csr_matrix((rng.random((300, 30)) < 0.2).astype(np.float32))
    kind, layers = {"kind": "sequence-labelling", "options": ProbeOptions()}, {"0": x, "1": x[:, ::2]}
    dev, labels = {"0": x_dev, "1": x_dev[:, ::2]}, Labels(y_dev, np.arange(300) // 3, types_dev)
    one = examples(layers, train, dev, labels, baselines=Baselines((bag, bag), (x[:, :2], x_dev[:, :2])), **kind)
    x_other = 1e3 * rng.normal(size=(50, 12)).astype(np.float32)
    y_other = np.append([-1], rng.integers(3, size=49))
    types_other = rng.integers(30, 60, size=50)  # some that train lacks
    dev = {"0": x_other, "1": x_other[:, ::2]}
    labels = Labels(y_other, np.arange(50) // 3, types_other, seen=np.ones(50, dtype=bool))
    other = examples(
        layers, train, dev, labels, baselines=Baselines((bag, bag[:50]), (x[:, :2], x_other[:, :2])), **kind
    )
    asked = set(zip(one.fits["target"], one.fits["draw"].fillna(-1), strict=True))
    assert asked == {("gold", -1), *((c, i) for c in ("shuffled", "control-task") for i in range(3))}
    assert one.fits[FITTED].astype(str).equals(other.fits[FITTED].astype(str))
    assert (one.fits[FITTED[6:9]].to_numpy(float).tobytes()) == other.fits[FITTED[6:9]].to_numpy(float).tobytes()
    moved = x.copy()
    moved[0, 0] += 0.1
    plain, third = (examples(z, y, x_dev, y_dev).fits["digest"].iloc[-1] for z in (x, moved))
    assert plain != third  # the control: train is looked at


def test_a_metric_where_less_is_better_chooses_the_lowest():
    rng = np.random.default_rng(0)
    x, x_dev = (rng.normal(size=(200, 5)).astype(np.float32) for _ in range(2))
    options = replace(QUICK, choose_by="rmse")
    y, y_dev = x @ np.arange(5.0), x_dev @ np.arange(5.0)
    row = fitted(run(x, y, x_dev, y_dev, kind="regression", names=("rmse",), options=options)).iloc[0]
    assert row["penalty"] == ALPHAS[0]
    assert row["value"] < 0.1  # measured .001; the strongest penalty gives 5.4


def test_accuracy_chooses_the_majority_class():
    """Nine of ten rows are of one class, and little tells which: the log loss and Matthews find it, accuracy not."""
    rng = np.random.default_rng(0)
    x, x_dev = (rng.normal(size=(2000, 30)).astype(np.float32) for _ in range(2))
    y, y_dev = ((0.6 * z[:, 0] + rng.normal(size=2000) > 1.5).astype(int) for z in (x, x_dev))
    found = {}
    for name in ("accuracy", "matthews", "log-loss"):
        options = replace(QUICK, choose_by=name)
        rows = run(x, y, x_dev, y_dev, names=("accuracy", "matthews"), options=options)
        found[name] = fitted(rows).set_index("metric")
    matthews = {name: rows.loc["matthews", "value"] for name, rows in found.items()}
    assert found["accuracy"]["penalty"].iloc[0] < found["log-loss"]["penalty"].iloc[0] < 1
    assert matthews["accuracy"] < 0.1 < min(matthews["matthews"], matthews["log-loss"])
    even = fitted(run(x, y, x_dev, y_dev, names=("accuracy", "matthews"), options=replace(QUICK, balanced=True)))
    even = even.set_index("metric")["value"]
    assert even["matthews"] > max(matthews.values())  # balanced weights raise Matthews and cut accuracy
    assert even["accuracy"] < found["log-loss"].loc["accuracy", "value"] - 0.1


def test_balanced_weights_are_scikit_learns():
    (x, y), (x_dev, y_dev) = toy(classes=3), toy(classes=3, seed=1)
    y[np.random.default_rng(0).random(300) < 0.5] = 0
    found = examples(x, y, x_dev, y_dev, options=replace(QUICK, balanced=True, penalties=(0.1,)))
    logistic = LogisticRegression(C=0.1, class_weight="balanced", tol=1e-8, max_iter=1000)
    twin = make_pipeline(StandardScaler(), logistic).fit(x.astype(np.float64), y)
    want = log_loss(y_dev, twin.predict_proba(x_dev.astype(np.float64)))
    assert found.log_loss[-1].mean() == pytest.approx(want, abs=1e-4)


@pytest.mark.slow
def test_shuffled_labels_stay_at_chance():
    """The control's interval holds the share of a class over 20 draws, as gold labels that are noise would."""
    inside = []
    for seed in range(20):
        (x, y), (x_dev, y_dev) = toy(classes=2, seed=seed), toy(classes=2, seed=100 + seed)
        rows = run(x, y, x_dev, y_dev, options=ProbeOptions(resamples=200, controls=1, seed=seed))
        row = fitted(rows[rows["metric"] == "accuracy"], "shuffled", 0).iloc[0]
        inside.append(row["ci_low"] <= 0.5 <= row["ci_high"])
        assert fitted(rows[rows["metric"] == "accuracy"])["ci_low"].iloc[0] > 0.5  # and the true labels do not
    assert np.mean(inside) >= 0.8  # 95 % expected; 15 of 20 or fewer has probability .003


def test_selectivity():
    """A vector a word type learns any label of types by heart; a vector of the tag alone does not (Hewitt & Liang)."""
    rng = np.random.default_rng(0)
    tag = rng.integers(2, size=30)

    def words(n):
        kind = rng.integers(30, size=n)
        x = {"0": np.eye(30, dtype=np.float32)[kind], "1": np.eye(2, dtype=np.float32)[tag[kind]]}
        return x, Labels(tag[kind], np.arange(n) // 5, kind)

    (x, y), (x_dev, y_dev) = words(900), words(900)
    rows = run(
        x, y, x_dev, y_dev, kind="sequence-labelling", names=("token-accuracy",), options=ProbeOptions(resamples=100)
    )
    rows = rows[rows["metric"].str.contains("token-accuracy")]
    assert set(fitted(rows)["value"]) == {1.0, *fitted(rows[rows["metric"] != "token-accuracy"])["value"]}
    control = fitted(rows, "control-task").set_index("layer_name")["value"]
    assert control["0"] == 1.0
    assert control["1"] < 0.8
    drawn = fitted(rows[rows["layer_name"] == "1"], "control-task", 1)
    assert len(drawn) == 1
    select = rows[rows["metric"] == "selectivity(token-accuracy)"].set_index("layer_name")
    assert select.loc["0", "value"] == 0.0
    assert select.loc["1", "value"] == pytest.approx(1 - control["1"])
    assert select.loc["1", "ci_low"] > 0.1
    types = rows[rows["estimator"] == "type-majority"].set_index("metric")
    assert types.loc["token-accuracy", "value"] == 1.0  # the word alone tells its tag


def named_words(n, seed):
    """Words of sixty types, ten of which are names in nine of ten places, their tag told by the place alone."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(60, n, p=np.where(np.arange(60) < 10, 0.018, 0.82 / 50))
    tag = np.where((kind < 10) & (rng.random(n) < 0.9), rng.integers(1, 5, n), 0)
    layers = {"0": np.eye(60)[kind], "1": np.eye(5)[tag], "2": rng.normal(size=(n, 5))}
    return {name: x.astype(np.float32) for name, x in layers.items()}, Labels(tag, np.arange(n) // 10, kind)


SPANS = ("O", "B-PER", "B-LOC", "B-ORG", "B-MISC")


def test_what_words_tell_of_spans_is_no_noise():
    """A layer of word types learns the spans of a control task by heart; gold spans are told by another layer."""
    (x, y), (x_dev, y_dev) = named_words(1000, 0), named_words(800, 1)
    about = {"kind": "sequence-labelling", "label_names": SPANS}
    options = ProbeOptions(resamples=100, controls=2, penalties=(1.0,))
    found = examples(x, y, x_dev, y_dev, names=("span-f1",), options=options, **about)
    rows = probe_rows(found, resamples=100)
    rows = rows.assign(layer_name=layer_labels(rows))
    value = fitted(rows).set_index(["metric", "layer_name"])["value"]
    control = fitted(rows, "control-task").set_index(["metric", "layer_name"])["value"]
    assert value["span-f1", "1"] == 1
    assert control["span-f1", "0"] == 1 > value["span-f1", "0"] + 0.5  # the headline that misled
    assert not any(name.startswith("selectivity(span") for name in rows["metric"])
    select = rows[rows["metric"] == "selectivity(token-accuracy)"].set_index("layer_name")
    assert select.loc["0", "value"] < 0 < select.loc["1", "ci_low"]
    assert select.loc["2", "value"] == pytest.approx(0, abs=0.04)  # it knows nothing; two standard errors of the shares
    assert value["span-f1", "2"] < 0.05
    drawn = curve_rows(rows)
    assert set(drawn.loc[drawn["role"] == "control", "label"]) == {"shuffled labels"}
    at = drawn[drawn["role"] == "curve"].set_index("layer_name")["hollow"]
    assert at["1"] == ""
    assert at["2"] == "not above noise (corrected p > 0.05)"
    words = curve_rows(rows, "token-accuracy").query("role == 'control'")
    assert set(words["label"]) == {"shuffled labels", "control task (random tags by word type)"}
    told = by_layer(rows).set_index("layer")
    assert told.loc["1", ["metric", "verdict"]].tolist() == ["span-f1", "above noise"]
    assert told["noise_high"].max() < 0.3
    assert told["control_task"].isna().all()
    how = {"against": "control-task", "resamples": 100}
    for metric, used in ((None, "token-accuracy"), ("span-f1", "span-f1")):
        compared = compare_predictions(found, options=CompareOptions(metric=metric, **how))
        assert set(compared["metric"]) == {f"difference({used})"}
    for names, same in ((("span-f1",), True), (("token-accuracy",), False)):  # as many words in spans as gold has
        sets = label_sets(y, y_dev, Question("sequence-labelling", names, SPANS), options)
        tags = sets.y_dev[[target["target"] == "control-task" for target in sets.targets]]
        assert ((tags > 0) == (y_dev.types < 10)).all() == same


def test_examples_that_train_holds_too():
    (x, y), (x_dev, y_dev) = toy(signal=0.3), toy(seed=1, signal=0.3)
    x_dev[:100], y_dev[:100] = x[:100], y[:100]
    seen = np.arange(300) < 100
    found = examples(x, y, x_dev, Labels(y_dev, seen=seen), options=replace(QUICK, penalties=(1.0,)))
    rows = run(x, y, x_dev, Labels(y_dev, seen=seen), options=replace(QUICK, penalties=(1.0,)))
    row = fitted(rows).set_index("metric").loc["accuracy"]
    right = found.predicted[-1] == y_dev
    assert row["value"] == pytest.approx(right.mean())
    assert row["value_unseen"] == pytest.approx(right[100:].mean())
    assert row["value_unseen"] < row["value"]
    assert row["seen_in_train"] == 100
    none = fitted(run(x, y, x_dev, Labels(y_dev, seen=seen & False), options=QUICK)).iloc[0]
    assert (none["seen_in_train"], none["value_unseen"]) == (0, none["value"])


def test_scale_and_shift_of_features_do_not_matter():
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    rng = np.random.default_rng(2)
    scale, shift = np.exp2(rng.integers(-6, 6, size=x.shape[1])), rng.integers(-4, 4, size=x.shape[1])
    moved = [(z * scale + shift).astype(np.float32) for z in (x, x_dev)]
    plain, other = (fitted(run(a, y, b, y_dev)) for a, b in ((x, x_dev), moved))
    np.testing.assert_allclose(plain["value"], other["value"], atol=1e-4)
    assert plain["penalty"].iloc[0] == other["penalty"].iloc[0]


@pytest.mark.parametrize(
    ("value", "estimator"),
    [
        pytest.param(value, estimator, marks=[pytest.mark.slow] if (value, estimator) == (np.inf, "mlp") else [])
        for value in (np.nan, np.inf)
        for estimator in (None, "mlp", "k-sparse", "mass-mean")
    ],
)
def test_what_is_not_finite_names_the_layer(value, estimator):
    (x, y), (x_dev, y_dev) = toy(60, classes=2), toy(60, classes=2, seed=1)
    bad = x.copy()
    bad[17, 1] = value
    options = replace(QUICK, estimator=estimator and Estimator(estimator), penalties=(1.0,))
    with pytest.raises(NonFiniteError, match=r"layer 4: .*NaN or infinity.*row 17"):
        run({"3": x, "4": bad}, y, {"3": x_dev, "4": x_dev}, y_dev, options=options)
    bad = x_dev.copy()
    bad[y_dev == 0, 0] = value  # infinitely far, on the right side
    with pytest.raises(NonFiniteError, match="layer 4 of dev contains NaN or infinity"):
        run({"4": x}, y, {"4": bad}, y_dev, options=options)


def test_what_did_not_converge_is_said(caplog):
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    with caplog.at_level(logging.WARNING):
        rows = fitted(run(x, y, x_dev, y_dev, options=replace(QUICK, max_iter=2)))
    assert not rows["converged"].any()
    assert "probes did not converge in 2 iterations: layer 0." in caplog.text
    caplog.clear()
    assert fitted(run(x, y, x_dev, y_dev))["converged"].all()
    assert "converge" not in caplog.text


def test_the_edge_of_the_grid_is_said_where_it_matters(caplog):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    common = rng.normal(size=400)  # only a difference of features tells the classes apart: the penalty must be weak
    x = np.stack([common + 0.1 * y, common], 1).astype(np.float32)
    with caplog.at_level(logging.INFO):
        rows = run(x, y, x, y, options=replace(QUICK, penalties=(100.0, 1e-7, 1e-2)))
    assert fitted(rows)["penalty_at_edge"].all()
    assert "the best penalty is at the edge of the grid in layer 0 (100)" in caplog.text
    caplog.clear()
    same = np.ones((50, 2), dtype=np.float32)  # every penalty gives the same, so no edge is better than its neighbour
    rows = run(same, np.arange(50) % 2, same, np.arange(50) % 2)
    assert "edge" not in caplog.text
    assert not rows["penalty_at_edge"].any()
    assert fitted(rows)["penalty"].iloc[0] == CS[0]  # of equals, the strongest


@pytest.mark.slow
def test_same_seed_same_rows_whatever_the_threads():
    (x, y), (x_dev, y_dev) = toy(d=60), toy(d=60, seed=1)
    layers = {str(i): np.roll(x, i, 0) if i else x for i in range(2)}
    dev = dict.fromkeys(layers, x_dev)
    options = ProbeOptions(resamples=100, controls=1)
    one, two, three = (run(layers, y, dev, y_dev, options=replace(options, threads=t)) for t in (1, 1, 2))
    assert one.equals(two)
    assert one.equals(three)
    assert fitted(one)["digest"].nunique() == 2
    other = run(layers, y, dev, y_dev, options=replace(options, seed=1))
    assert not fitted(one)["held_out"].equals(fitted(other)["held_out"])


def test_progress_counts_the_folds_of_all_layers_and_never_falls(monkeypatch):
    monkeypatch.setattr("probekit.probes.protocol.diagnostic.EVERY", 1e-3)
    told = []
    (x, y), (x_dev, y_dev) = toy(n=2000, d=60), toy(d=60, seed=1)
    run(x, y, x_dev, y_dev, progress=lambda *of: told.append(of))
    parts = QUICK.folds + 1
    assert {stage for stage, *_ in told} == {"probe"}
    assert {total % parts for *_, total in told} == {0}
    counts = [done for _, done, _ in told]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, told[0][2])
    assert any(done % parts for done in counts)


def test_unlabelled_rows_are_left_out_and_counted():
    """Whatever they hold."""
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    plain = run(x, y, x_dev, y_dev)
    junk = np.full((5, x.shape[1]), np.nan, dtype=np.float32)
    more = run(
        np.vstack([junk, x]), np.append([-1] * 5, y), lambda: np.vstack([x_dev, junk[:2]]), np.append(y_dev, [-1, -1])
    )
    assert more["value"].tolist() == plain["value"].tolist()
    assert more["digest"].tolist() == plain["digest"].tolist()
    assert more[["n", "n_train", "left_out_train", "left_out_dev"]].iloc[0].tolist() == [300, 300, 5, 2]


def test_layers_may_be_functions_and_memory_maps(tmp_path):
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    calls = []
    lazy = run({"0": lambda: calls.append(0) or mapped}, y, {"0": lambda: x_dev}, y_dev)
    assert lazy.equals(run(x, y, x_dev, y_dev))
    assert calls == [0]


def test_the_majority_is_that_of_train():
    x, x_dev = np.eye(6, 2, dtype=np.float32), np.eye(4, 2, dtype=np.float32)
    options = replace(QUICK, folds=2)
    rows = run(x, np.array([1, 1, 1, 1, 0, 0]), x_dev, np.array([0, 0, 0, 1]), options=options)
    part = rows[rows["estimator"] == "majority"].set_index("metric")
    assert part.loc["accuracy", ["value", "layer_name", "representation"]].tolist() == [0.25, "", "none"]
    assert part.loc["log-loss", "value"] == pytest.approx(-(3 * np.log(1 / 3) + np.log(2 / 3)) / 4)


def test_words_with_spans():
    """Words whose vector is their tag: every span is found; sentences are not torn by the folds."""
    rng = np.random.default_rng(0)
    names = ("O", "B-PER", "I-PER")

    def words(n):
        y = rng.integers(3, size=n)
        x = np.eye(3, dtype=np.float32)[y] + 0.01 * rng.normal(size=(n, 3)).astype(np.float32)
        return x, Labels(y, np.arange(n) // 4)

    (x, y), (x_dev, y_dev) = words(400), words(200)
    names_ = {"kind": "sequence-labelling", "names": ("span-f1", "token-accuracy"), "label_names": names}
    for options in (replace(QUICK, resamples=100), replace(QUICK, choose_by="span-f1")):
        rows = fitted(run(x, y, x_dev, y_dev, options=options, **names_)).set_index("metric")
        assert rows.loc[["span-f1", "token-accuracy"], "value"].tolist() == [1.0, 1.0]
        assert set(rows["n"]) == {200}
    with pytest.raises(UsageError, match="sentence"):
        run(x, y.y, x_dev, y_dev.y, **names_)


@pytest.mark.slow
def test_other_probes_go_the_same_way():
    """Two features whose product is the label: a perceptron finds it, what is linear does not."""
    rng = np.random.default_rng(0)
    x, x_dev = (rng.normal(size=(600, 2)).astype(np.float32) for _ in range(2))
    y, y_dev = ((z.prod(1) > 0).astype(int) for z in (x, x_dev))
    options = replace(QUICK, estimator=Estimator.MLP, folds=2, penalties=(1e-4, 1e-2))
    perceptron = fitted(run(x, y, x_dev, y_dev, options=options)).set_index("metric")
    assert perceptron.loc["accuracy", "value"] > 0.85
    assert set(perceptron["estimator"]) == {"mlp"}
    assert set(perceptron["penalty"]) < {1e-4, 1e-2}
    line = fitted(run(x, y, x_dev, y_dev)).set_index("metric")
    assert line.loc["accuracy", "value"] < 0.65
    (x, y), (x_dev, y_dev) = toy(classes=2), toy(classes=2, seed=1)
    for own in (Estimator.K_SPARSE, Estimator.MASS_MEAN):
        rows = run(x, y, x_dev, y_dev, options=ProbeOptions(resamples=100, controls=2, estimator=own))
        gold = fitted(rows[rows["metric"] == "accuracy"]).iloc[0]
        assert gold["value"] > 0.7
        assert gold["estimator"] == own
        assert gold["penalty"] in ((1, 2, 4, 8, 16) if own is Estimator.K_SPARSE else (0, *np.linspace(0, 1, 11)))
        noise = fitted(rows[rows["metric"] == "accuracy"], "shuffled").iloc[0]
        assert abs(noise["value"] - 0.5) < 0.1
    with pytest.raises(UsageError, match="ridge probes cannot be fitted to classes"):
        run(x, y, x_dev, y_dev, options=replace(QUICK, estimator=Estimator.RIDGE))
    with pytest.raises(UsageError, match="at most 12 dimensions"):
        run(x, y, x_dev, y_dev, options=replace(QUICK, estimator=Estimator.K_SPARSE, penalties=(99.0,)))


def test_calibration_is_measured_on_request():
    (x, y), (x_dev, y_dev) = toy(signal=3, n=150, d=60, classes=2), toy(signal=3, d=60, classes=2, seed=1)
    options = replace(QUICK, calibrate=True, penalties=(1.0,))
    rows = fitted(run(x, y, x_dev, y_dev, options=replace(options, penalties=(10.0, 1e2)))).set_index("metric")
    assert rows["temperature"].iloc[0] > 1.2  # 150 rows in 60 dimensions, hardly any penalty: too sure of itself
    for name in ("calibration-error-15", "brier"):
        assert rows.loc[f"{name}, scaled", "value"] < rows.loc[name, "value"]
    assert not run(x, y, x_dev, y_dev)["metric"].str.contains("brier").any()


def test_inputs_that_need_no_model():
    rng = np.random.default_rng(0)
    y, y_dev = rng.integers(2, size=400), rng.integers(2, size=300)

    def bag(t):
        pieces = (rng.random((len(t), 20)) < 0.2).astype(np.float32)
        pieces[:, 3] = t  # one piece tells the label
        return sparse.csr_matrix(pieces)

    length, length_dev = (t[:, None] + rng.normal(size=(len(t), 1)).astype(np.float32) for t in (y, y_dev))
    x, x_dev = (rng.normal(size=(len(t), 5)).astype(np.float32) for t in (y, y_dev))
    given = Baselines((bag(y), bag(y_dev)), (length, length_dev))
    rows = run(x, y, x_dev, y_dev, baselines=given, options=ProbeOptions(resamples=100, controls=1))
    part = rows[(rows["metric"] == "accuracy") & (rows["target"] == "gold")].set_index("representation")["value"]
    assert part["bag-of-pieces"] == 1.0
    assert 0.6 < part["length"] < 0.8  # one standard deviation apart: .69
    assert abs(part["mean"] - 0.5) < 0.1


@pytest.mark.parametrize("share", [None, 0.25])
def test_types_are_held_out_with_their_sentences(share):
    """No probe is chosen on a word whose type or sentence it was fitted on; the loss is that of scikit-learn."""
    rng = np.random.default_rng(0)
    (x, y), (x_dev, y_dev) = toy(n=400, classes=2), toy(classes=2, seed=1)
    labels = Labels(y, np.arange(400) // 8, rng.integers(60, size=400))
    dev = Labels(y_dev, np.arange(300) // 8, rng.integers(60, size=300))
    options = replace(QUICK, hold_out_types=True, folds=3, held_out=share, penalties=(0.01, 0.1))
    sets = label_sets(labels, dev, Question("sequence-labelling", ("accuracy",), (), ABOUT), options)
    loss, count = np.zeros(2), 0
    for f in range(3 if share is None else 1):
        held, fitted_on = sets.fold == f, ~(sets.apart == f).any(1)
        assert held.any()
        for of in (labels.types, labels.groups):
            assert not np.isin(of[held], of[fitted_on]).any()
        for i, C in enumerate(options.penalties):
            plain = make_pipeline(StandardScaler(), LogisticRegression(C=C, tol=1e-8, max_iter=1000))
            said = plain.fit(x[fitted_on], y[fitted_on]).predict_proba(x[held])
            loss[i] -= np.log(said[np.arange(held.sum()), y[held]]).sum()
        count += held.sum()
    one = fitted(run(x, labels, x_dev, dev, kind="sequence-labelling", options=options)).iloc[0]
    assert one["held_out"] == pytest.approx(loss.min() / count, abs=1e-4)
    assert one["penalty"] == options.penalties[loss.argmin()]


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_bags_choose_their_penalty_on_all_folds(kind):
    rng = np.random.default_rng(3)
    x, x_dev = (sparse.csr_matrix((rng.random((n, 40)) < 0.2).astype(np.float32)) for n in (200, 100))
    classify = kind == "classification"
    y = x[:, 0].toarray()[:, 0] + rng.normal(size=200)
    y, y_dev = (y > 0.5).astype(int) if classify else y, rng.integers(2, size=100) if classify else rng.normal(size=100)
    rows = run(
        x.toarray(), y, x_dev.toarray(), y_dev, kind=kind, baselines=Baselines((x, x_dev)),
        names=("accuracy",) if classify else ("pearson",),
    )  # fmt: skip
    one = rows[rows["representation"] == "bag-of-pieces"].iloc[0]
    fold = folds(y, 5, stratify=classify)
    losses = []
    for f in range(5):
        held = fold == f
        if classify:
            log_p = sparse_path(x[~held], y[~held], 2, SPARSE_CS).log_proba(x[held])
            losses.append(-log_p[:, np.arange(held.sum()), y[held]])
        else:
            losses.append((sparse_ridge(x[~held], y[~held], ALPHAS).predict(x[held]) - y[held]) ** 2)
    mean, grid = np.concatenate(losses, 1).mean(1), SPARSE_CS if classify else ALPHAS
    assert one["penalty"] == grid[mean.argmin()]
    assert one["held_out"] == pytest.approx(mean.min(), rel=1e-5)
    assert losses[0].mean(1).min() != pytest.approx(one["held_out"], rel=1e-3)  # the control: one fold


def test_bad_input():
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    with pytest.raises(UsageError, match="train has the layers 0; dev has 1"):
        run({"0": x}, y, {"1": x_dev}, y_dev)
    with pytest.raises(
        UsageError, match=r"layer 0: vectors must have the shape \(n, d\) with n = 300 labels, not \(299, 12\)"
    ):
        run(x[1:], y, x_dev, y_dev)
    with pytest.raises(UsageError, match="train has 12 features, dev has 11"):
        run(x, y, x_dev[:, 1:], y_dev)
    with pytest.raises(UsageError, match="all labels in train are the same"):
        run(x, y * 0, x_dev, y_dev)
    with pytest.raises(UsageError, match=r"300 in train \(2 needed\), 0 in dev"):
        run(x, y, x_dev, y_dev * 0 - 1)
    with pytest.raises(UsageError, match="no metric"):
        run(x, y, x_dev, y_dev, names=())
    with pytest.raises(UsageError, match="choose_by must be log-loss or one of the metrics accuracy, not 'f2'"):
        run(x, y, x_dev, y_dev, options=replace(QUICK, choose_by="f2"))
    with pytest.raises(UsageError, match="folds is .*; it must be 2 or more"):
        run(x, y, x_dev, y_dev, options=replace(QUICK, folds=1))
    with pytest.raises(UsageError, match="penalties is .*above 0|penalties is empty"):
        ProbeOptions(penalties=(0.0,))
    with pytest.raises(UsageError, match="held_out"):
        ProbeOptions(held_out=1.0)
    with pytest.raises(UsageError, match="controls"):
        ProbeOptions(controls=-1)
    with pytest.raises(UsageError, match="estimator is 'svm'; it must be one of logistic"):
        ProbeOptions(estimator="svm")
    for wrong in ({"level": 95}, {"resamples": -1}, {"threads": 0}):
        with pytest.raises(
            UsageError, match=r"level is .* between 0 and 1|resamples is -1; .* or 0 for no intervals|threads is 0"
        ):
            ProbeOptions(**wrong)
    for kind in (float, str, bool):
        with pytest.raises(UsageError, match="classes must be whole numbers from 0"):
            run(x, y.astype(kind), x_dev, y_dev.astype(kind))


def test_matthews_is_reported_as_scikit_learn_defines_it():
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    found = examples(x, y, x_dev, y_dev, names=("matthews",))
    rows = run(x, y, x_dev, y_dev, names=("matthews",), options=replace(QUICK, resamples=100))
    row = fitted(rows[rows["metric"] == "matthews"]).iloc[0]
    assert row["value"] == pytest.approx(matthews_corrcoef(y_dev, found.predicted[-1]))
    assert row["ci_low"] < row["value"] < row["ci_high"]


def test_an_estimator_may_be_named():
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    named, plain, other = (
        fitted(run(x, y, x_dev, y_dev, options=ProbeOptions(resamples=0, controls=0, estimator=estimator)))
        for estimator in ("logistic", None, "mass-mean")
    )
    assert list(named["digest"]) == list(plain["digest"]) != [""] * len(plain)
    assert set(named["estimator"]) == {"logistic"}
    assert set(other["estimator"]) == {"mass-mean"}


def test_folds_that_give_answers_away_are_told(caplog):
    rng = np.random.default_rng(0)
    template = rng.integers(20, size=400)
    x = np.eye(20, dtype=np.float32)[template] + 0.01 * rng.normal(size=(400, 20)).astype(np.float32)
    y = template % 2  # train's templates tell the label, dev's are others
    x_dev, y_dev = np.roll(x, 1, axis=1), y
    run(x, y, x_dev, y_dev, options=ProbeOptions(resamples=0, controls=0))
    assert "related to each other" in caplog.text
    caplog.clear()
    run(x, y, x, y, options=ProbeOptions(resamples=0, controls=0))
    assert "related to each other" not in caplog.text


def test_v_information_of_a_control_is_held_against_its_own_classes():
    """A control task has other shares of classes than the gold labels; of noise there is nothing to know."""
    rng = np.random.default_rng(0)
    x, x_dev = (rng.normal(size=(n, 8)).astype(np.float32) for n in (3000, 1500))
    y, y_dev = ((rng.random(n) < 0.9).astype(int) for n in (3000, 1500))
    few = np.array([0, 1])  # word types, so that a draw's shares differ from .9
    types, types_dev = (few[rng.integers(2, size=n)] for n in (3000, 1500))
    rows = run(x, Labels(y, types=types), x_dev, Labels(y_dev, types=types_dev), options=ProbeOptions(resamples=200))
    part = rows[(rows["metric"] == "v-information") & (rows["layer_name"] == "0")].set_index(["target", "draw"])[
        "value"
    ]
    assert part.abs().max() < 0.02
    assert {("control-task", 0), ("control-task", 1), ("shuffled", 0)} < set(part.index)
    balanced = run(x, y, x_dev, y_dev, options=ProbeOptions(resamples=0, controls=0, balanced=True))
    assert "v-information" not in set(balanced["metric"])


def test_one_group_has_no_interval():
    (x, y), (x_dev, y_dev) = toy(), toy(seed=1)
    rows = fitted(run(x, y, x_dev, Labels(y_dev, np.zeros(len(y_dev), dtype=int))))
    assert rows["ci_low"].isna().all()


def test_calibration_is_measured_with_one_penalty_too():
    (x, y), (x_dev, y_dev) = toy(n=200, d=60), toy(n=200, d=60, seed=1)
    options = ProbeOptions(resamples=0, controls=0, penalties=(100.0,), calibrate=True)
    rows = fitted(run(x, y, x_dev, y_dev, options=options)).set_index("metric")["value"]
    assert rows["calibration-error-15, scaled"] < rows["calibration-error-15"] - 0.05  # weights are far too sure


def test_whole_word_types_are_held_out():
    """Labels by word type are known by heart in mixed folds, and not by a fold of other types."""
    rng = np.random.default_rng(0)
    types = rng.integers(60, size=1200)
    x = np.eye(60, dtype=np.float32)[types] + 0.05 * rng.normal(size=(1200, 60)).astype(np.float32)
    y = rng.integers(2, size=60)[types]
    labels = Labels(y, types=types)
    held = [
        fitted(run(x, labels, x, labels, options=ProbeOptions(resamples=0, controls=0, hold_out_types=own)))[
            "held_out"
        ].iloc[0]
        for own in (False, True)
    ]
    assert held[0] < 0.1
    assert held[1] > 0.6
    with pytest.raises(UsageError, match="word type"):
        run(x, y, x, y, options=ProbeOptions(hold_out_types=True))


@pytest.mark.parametrize("estimator", ["logistic", "mlp"])
def test_an_interrupt_ends_the_fits_that_run(estimator):
    """Each fold would take seconds or minutes; what is queued does not begin."""
    rng, ticks = np.random.default_rng(0), []
    x, y = rng.standard_normal((40_000, 256), dtype=np.float32), rng.integers(10, size=40_000)
    layers = dict.fromkeys("0123", x)

    def interrupt(stage, done, total):
        ticks.append(monotonic())
        if len(ticks) == 2:
            raise KeyboardInterrupt

    question = Question("classification", ("accuracy",), tuple(map(str, range(10))), ABOUT)
    with pytest.raises(KeyboardInterrupt):
        evaluate_layers(
            layers, y, layers, y, question, options=ProbeOptions(estimator=estimator, threads=1), progress=interrupt
        )
    assert monotonic() - ticks[1] < 4  # 0.1 measured
