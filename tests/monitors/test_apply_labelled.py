"""Kept probes on labelled data: several labels and numbers, spans, and beside the predictions of then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tiny

import probekit
from probekit.errors import UsageError
from probekit.tasks.task import Example, Span, Split, Target, Task, TaskKind

WORDS = ("cat", "dog", "the")


def task_of(kind, make, names, metrics, n=60):
    rng = np.random.default_rng(0)
    splits = {name: Split(name, tuple(make(f"{name}{i}", rng) for i in range(n))) for name in ("train", "dev")}
    return Task(str(kind), kind, splits, names, metrics)


def text_of(rng, more=()):
    return " ".join([*rng.choice(["sees", "a", "runs", "walks"], rng.integers(2, 6)), *more])


def several(i, rng):
    held = tuple(int(k) for k in np.flatnonzero(rng.random(3) < (0.5, 0.4, 0.3)))
    return Example(i, text_of(rng, [WORDS[k] for k in held]), held)


def numbers(i, rng):
    text = text_of(rng, ["dog"] * int(rng.integers(4)))
    return Example(i, text, (float(text.count("dog")), float(len(text.split()))))


def spans(i, rng):
    """Two targets of each sentence, of which several labels can hold."""
    words = ("the", str(rng.choice(["cat", "dog"])), "sees", str(rng.choice(["cat", "dog"])))
    of = [
        Target((Span(k, k + 1),), tuple(n for n, w in enumerate(("cat", "the")) if w in words[: k + 1])) for k in (1, 3)
    ]
    return Example(i, " ".join(words), targets=tuple(of), words=words)


def of_one_label(i, rng):
    one = spans(i, rng)
    targets = (Target(t.spans, (int(one.words[t.spans[0].start] == "dog"),)) for t in one.targets)
    return replace(one, targets=tuple(targets))


TASKS = {
    "labels": task_of(TaskKind.MULTI_LABEL, several, WORDS, ("micro-f1", "macro-f1")),
    "numbers": task_of(TaskKind.MULTI_OUTPUT, numbers, ("dogs", "length"), ("pearson", "rmse")),
    "spans of several labels": task_of(TaskKind.SPAN_LABELLING, spans, ("first", "animal"), ("micro-f1",)),
    "spans": task_of(TaskKind.SPAN_LABELLING, of_one_label, ("cat", "dog"), ("accuracy",)),
}


@pytest.mark.parametrize("name", TASKS)
def test_metrics_are_those_of_probe(name, encoder, tmp_path):
    """Of the same examples, from a cache and from the task: the very predictions, each metric and each label."""
    task = TASKS[name]
    made = [probekit.cache_activations(encoder, task, s, out=tmp_path / f"{s}.h5") for s in task.splits]
    how = {"controls": 0, "resamples": 100, "layers": "1", "any_split": True, "groups": "none"}
    result = probekit.probe(*made, keep=tmp_path / "kept", **how)
    found = probekit.apply(tmp_path / "kept", made[1], resamples=100)
    own, fits = result.predictions[0], result.predictions[0].fits
    gold = int(fits.index[(fits["layer"] == 1) & (fits["target"] == "gold")][0])
    np.testing.assert_array_equal(found.predictions[0].predicted[0], own.predicted[gold])
    assert found.predictions[0].ids.tolist() == own.ids.tolist()
    rows = result.rows[(result.rows["layer"] == 1) & (result.rows["target"] == "gold")]
    then = {(row["metric"], str(row.get("label"))): row["value"] for row in rows.to_dict("records")}
    measured = found.rows[found.rows["metric"].str.fullmatch(r"by-label\(.*|[^(]+")]  # permuted are by group
    measured = measured[~measured["metric"].isin(["probe-score", "probability"])].to_dict("records")
    assert {row["metric"] for row in measured} >= {*task.metrics}
    for row in measured:
        key = row["metric"], str(row.get("label"))
        assert row["value"] == pytest.approx(then.get(key, row["value"]), abs=1e-9)
    assert sum(row["metric"].startswith("by-label(") for row in measured) >= len(task.label_names)
    assert measured[0]["kept"] == pytest.approx(measured[0]["value"], abs=1e-12)
    again = probekit.apply(tmp_path / "kept", task, split="dev", model=encoder, resamples=0)
    np.testing.assert_array_equal(again.predictions[0].predicted, found.predictions[0].predicted)
    scores = [f.rows[f.rows["metric"].isin(["probe-score", "probability"])]["value"] for f in (again, found)]
    np.testing.assert_array_equal(*scores)  # the model reads these texts with the same bits
    assert again.rows["text"].dropna().isin([e.text for e in task.split("dev")]).all()
    assert [*found.grids()]


def test_labels_in_another_order_and_some_of_them(encoder, tmp_path):
    task = TASKS["labels"]
    made = [probekit.cache_activations(encoder, task, s, out=tmp_path / f"{s}.h5") for s in task.splits]
    probe = probekit.probe(*made, controls=0, resamples=0, layers="1").probe(1)
    whole = probekit.apply(probe, made[1], resamples=0)

    def renamed(names):
        order = [WORDS.index(name) if name in WORDS else -1 for name in names]
        examples = [
            replace(e, label=tuple(sorted(order.index(k) for k in e.label if k in order))) for e in task.split("dev")
        ]
        return replace(task, splits={"dev": Split("dev", tuple(examples))}, label_names=names)

    turned = probekit.apply(probe, renamed(("the", "cat", "dog")), model=encoder, resamples=0)
    first = [found.rows.iloc[0] for found in (whole, turned)]
    assert first[0]["value"] == first[1]["value"] == first[1]["kept"]
    some = probekit.apply(probe, renamed(("the", "cat")), model=encoder, resamples=0).rows
    alone = whole.rows[(whole.rows["label"] == "cat") & (whole.rows["metric"] == "by-label(f1)")]["value"].iloc[0]
    assert some[(some["label"] == "cat") & (some["metric"] == "by-label(f1)")]["value"].iloc[0] == alone
    assert some["kept"].isna().all()  # a mean over other labels
    with pytest.raises(UsageError, match="the labels bird, which the probe does not know; its labels are cat,"):
        probekit.apply(probe, renamed(("the", "cat", "bird")), model=encoder, resamples=0)


@pytest.fixture(scope="module")
def other(caches, tmp_path_factory):
    """The dev split as another model reads it."""
    folder = tmp_path_factory.mktemp("other")
    task = probekit.load_task("grammar:sentiment")
    model = tiny.tiny_model("bert", folder / "model", seed=7)
    how = {"limit": 120, "out": folder / "dev.h5"}
    return probekit.cache_activations(probekit.load_encoder(model, device="cpu"), task, "dev", **how)


def test_paired_with_the_predictions_of_then(kept, caches, other):
    """The difference, its interval and p are those of compare."""
    folder, result = kept
    beside = folder.with_name("rows.parquet")
    found = probekit.apply(folder, other, layer="2", anyway=True, beside=beside, resamples=500)
    row = found.rows[found.rows["metric"] == "difference(accuracy)"].iloc[0]
    value = found.rows[found.rows["metric"] == "accuracy"].iloc[0]
    assert row["value"] == pytest.approx(value["value"] - value["kept"])
    fits = result.predictions[0].fits
    then = result.predictions[0].take(fits.index[(fits["layer"] == 2) & (fits["target"] == "gold")])
    right = probekit.compare(found.predictions[0], then, metric="accuracy", resamples=500).rows.iloc[0]
    for name in ("value", "ci_low", "ci_high", "p", "n"):
        assert row[name] == right[name]
    assert f"paired difference of {row['value']:+.3f} [" in found.verdict[0]
    assert str(beside.with_name("rows.examples.parquet")) in [read.path for read in found.reads]
    table = str(next(grid for grid, _ in found.grids()))
    assert "difference" in table
    same = probekit.apply(folder, caches["dev"], layer="2", beside=result, resamples=100).rows
    assert same[same["metric"].str.startswith("difference")]["value"].tolist() == [0, 0]


def test_other_predictions_are_refused(kept, caches, encoder, tmp_path):
    folder, result = kept
    with pytest.raises(UsageError, match="not those of grammar:sentiment dev that the probe was evaluated on"):
        probekit.apply(folder, caches["train"], beside=result)
    fewer = replace(result, predictions=(result.predictions[0].of_rows(np.arange(50)),), path=None)
    with pytest.raises(UsageError, match="no predictions of this probe"):
        probekit.apply(folder, caches["dev"], beside=fewer)
    weak = probekit.probe(caches["train"], caches["dev"], controls=0, resamples=0, layers="0")
    with pytest.raises(UsageError, match="no predictions of this probe"):
        probekit.apply(folder, caches["dev"], layer="2", beside=weak)
    with pytest.raises(UsageError, match="needs resamples"):
        probekit.apply(folder, caches["dev"], beside=result, resamples=0)
    (tmp_path / "a.txt").write_text("the cat")
    with pytest.raises(UsageError, match="a file of texts has no labels"):
        probekit.apply(folder, tmp_path / "a.txt", beside=result, model=encoder)


def test_metrics_are_those_of_the_card_and_rates_those_of_its_threshold(caches, tmp_path):
    how = {"controls": 0, "resamples": 100, "layers": "1", "penalties": (1.0,), "folds": 2}
    probe = probekit.probe(caches["train"], caches["dev"], metrics="auroc,recall-at-fpr-0.1", **how).probe()
    found = probekit.apply(probe, caches["train"], rate=0.1, resamples=100)
    rows = found.rows[found.rows["metric"] != "probe-score"].set_index("metric")
    assert rows.index[0] == "auroc"
    assert rows.index.is_unique
    assert {"recall-at-fpr-0.1", "log-loss", *caches["train"].spec["metrics"]} <= {*rows.index}
    known = {one["metric"]: one["value"] for one in probe.card["metrics"]}
    assert rows.loc["auroc", "kept"] == known["auroc"]
    scores, y = probe.decision_function(caches["train"].layer(1)), caches["train"].labels
    point, above = probe.operating_point(0.1), scores > probe.threshold(0.1)
    sides = (("false-positives-at-threshold", 0, "rate"), ("recall-at-threshold", 1, "recall"))
    for name, side, key in sides:
        row = rows.loc[name]
        assert row["value"] == pytest.approx(above[y == side].mean())
        assert row["n"] == (y == side).sum()
        assert row["ci_low"] <= row["value"] <= row["ci_high"] > row["ci_low"]
        for end in ("", "_low", "_high"):
            assert row[f"kept{end}"] == pytest.approx(point[key + end] or np.nan, nan_ok=True)
    assert f"here it flags {100 * above[y == 0].mean():.1f} [" in found.verdict[-1]
    assert "flagged 10 % of the negatives of dev; on similar texts expect" in found.verdict[-1]
