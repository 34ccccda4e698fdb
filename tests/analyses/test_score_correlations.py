"""Do cheap scores foretell target results? Correlations over encoders, their table and their figure."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import probekit
from probekit.adaptation.pretraining.options import PRETRAIN
from probekit.analyses.glue import MEASURED
from probekit.analyses.score_correlations import score_correlations
from probekit.errors import UsageError
from probekit.rows import make_rows

ENCODERS = [f"e{i}" for i in range(9)]
DRAW = np.random.default_rng(0)
RESULT = {(e, t): x for e, row in zip(ENCODERS, DRAW.uniform(0.4, 0.8, (9, 8)), strict=True) for t, x in
          zip(MEASURED, row, strict=True)}  # fmt: skip
FEW = {"draws": 99, "resamples": 100}


def row(analysis, model, task, metric, value, **more):
    return {
        "analysis": analysis, "model": model, "task": task, "trained_on": task, "split": "dev", "metric": metric,
        "value": value, "representation": "mean", "estimator": "", "target": "gold", "n": 100, "layer": "output",
    } | more  # fmt: skip


def runs(shift=0.0, seed=0):
    about = {"regime": "feature-extraction", "kept": True, "layer": None, "seed": seed, "head": "max-mlp"}
    return [
        row("train", e, t, metric, value + shift, **about) for (e, t), value in RESULT.items() for metric in MEASURED[t]
    ]


def probes(values, task=None, *, metric="accuracy", **more):
    """Probes of all encoders: one for each target, or on another task."""
    return [row("probe", e, task or t, metric, value, estimator="logistic", **more) for (e, t), value in values.items()]


def of(found, score, task, score_task=""):
    (one,) = found[(found["score"] == score) & (found["task"] == task) & (found["score_task"] == score_task)].to_dict(
        "records"
    )
    return one


def test_correlations_are_spearman_s_and_their_mean():
    noisy = {key: x + DRAW.normal(0, 0.1) for key, x in RESULT.items()}
    rows = make_rows([*runs(), *probes(noisy), *probes(noisy, metric="log-loss"), *probes(noisy, layer="0")])
    found = score_correlations(rows, **FEW)
    expected = []
    for task in MEASURED:
        ours, theirs = ([values[e, task] for e in ENCODERS] for values in (noisy, RESULT))
        expected.append(stats.spearmanr(ours, theirs).statistic)
        one = of(found, "probe", task)
        assert one["value"] == pytest.approx(expected[-1])
        assert one["ci_low"] <= one["value"] <= one["ci_high"]
    mean = of(found, "probe", "glue")
    assert mean["value"] == pytest.approx(np.mean(expected))
    assert (mean["n"], mean["tasks"], mean["p"], mean["p_adjusted"]) == (9, 8, 0.01, 0.01)
    assert len(found) == 9  # neither layer 0 nor the log loss


@pytest.mark.slow
def test_scores_of_all_kinds():
    """On the target, on another task, without labels; two seeds; the last layer where there is no output."""
    score = {(e, t): float(i) for i, e in enumerate(ENCODERS) for t in MEASURED}
    depth = {(e, "depth"): -float(i) for i, e in enumerate(ENCODERS)}
    rows = [*runs(-0.05), *runs(0.05, seed=1)]
    rows += [
        row("transferability", e, t, "logme", x + s, split="train", layer=layer, run_seed=s)
        for s in (0, 1)
        for layer in ("0", "1")
        for (e, t), x in score.items()
    ]
    rows += [
        row("mi", e, t, "mutual-information", x, estimator=name)
        for name in ("edge", "knn")
        for (e, t), x in score.items()
    ]
    rows += probes(depth, "depth")
    rows += [row("train", e, "lm", "accuracy", 0.5, regime=PRETRAIN, kept=True, layer=None) for e in ENCODERS[1:]]
    alike = {(e, t): 1 - 0.1 * i for i, e in enumerate(ENCODERS) for t in MEASURED if i}
    rows += [
        row("similarity", "e0", t, "cka", x, model_b=e, site_b=place, layer_b=None if place == "output" else 1)
        for (e, t), x in alike.items()
        for place in ("output", "resid_post")
    ]
    found = score_correlations(make_rows(rows), **FEW)
    names = set(zip(found["score"], found["score_task"], strict=True))
    assert names == {
        ("logme", ""), ("mutual-information, edge", ""), ("mutual-information, knn", ""), ("probe", "depth"),
        ("cka with e0", ""),
    }  # fmt: skip
    expected = np.mean([stats.spearmanr(range(9), [RESULT[e, t] for e in ENCODERS]).statistic for t in MEASURED])
    for name, task in names:
        sign = -1 if task or "cka" in name else 1
        assert of(found, name, "glue", task)["value"] == pytest.approx(sign * expected), name
    mean = found[found["task"] == "glue"]
    assert (mean["p_adjusted"] >= 5 * mean["p"].min() - 1e-12).any()
    text = probekit.table("score-correlations", make_rows(rows)).to_markdown()
    assert all(name in text for name in ("LogME", "probe on depth", "CKA with e0", "over 9 encoders"))


@pytest.mark.slow
def test_a_score_without_five_encoders_is_left_out():
    lacks = {(e, t): x for (e, t), x in RESULT.items() if e in ENCODERS[:4]}
    with pytest.raises(UsageError, match=r"no score of 5 encoders .*\(9 have results\).*probekit probe"):
        score_correlations(make_rows([*runs(), *probes(lacks)]), **FEW)
    twice = [*runs(), *({**one, "variant": "long"} for one in runs())]
    with pytest.raises(UsageError, match="e0 has results in several regimes or variants"):
        score_correlations(make_rows([*twice, *probes(RESULT)]), **FEW)


def test_scores_that_read_labels_of_pretraining_do_not_count():
    on = {"e1": "rte", "e2": "rte+lm", "e3": "rte", "e4": "lm"}
    rows = [row("train", e, "x", "accuracy", 0.5, regime=PRETRAIN, trained_on=o, kept=True) for e, o in on.items()]
    found = score_correlations(make_rows([*rows, *runs(), *probes(RESULT)]), **FEW)
    others = "e0, e4, e5, e6, e7, e8"
    assert (of(found, "probe", "rte")["models"], of(found, "probe", "glue")["models"]) == (others, others)
    assert of(found, "probe", "cola")["n"] == 9
    assert found[found["task"] == "glue"]["tasks"].item() == 8


def test_a_target_with_equal_scores_is_left_out_and_two_values_are_refused():
    flat = {(e, t): 0.0 if t == "cola" else x for (e, t), x in RESULT.items()}
    found = score_correlations(make_rows([*runs(), *probes(flat)]), **FEW)
    assert "cola" not in set(found["task"])
    assert of(found, "probe", "glue")["tasks"] == 7
    assert of(found, "probe", "glue")["value"] == 1
    with pytest.raises(UsageError, match="e0 has several values of accuracy on cola dev"):
        score_correlations(make_rows([*runs(), *probes(RESULT), *probes(flat)]), **FEW)


def test_a_narrow_figure_has_numbers_and_crosses_where_there_is_no_value(tmp_path):
    rows = Path(__file__).parents[2] / "figures/studies/friends-small/table-scores.parquet"
    figure = probekit.plot("score-correlations", rows, width="column", out=tmp_path / "found.png", dpi=40)
    values, [cross] = figure.axes[0].images[0].get_array(), [x for x in figure.axes[0].lines if x.get_marker() == "x"]
    assert sorted(zip(*cross.get_data(), strict=True)) == sorted((j, i) for i, j in np.argwhere(values.mask))
    written = {text.get_text() for text in figure.axes[0].texts}
    assert {"−.9", ".6", ".0"} <= written
    assert len(figure.axes[0].texts) == values.count()
    caption = (tmp_path / "found.caption.txt").read_text()
    assert "Crossed cells: no value. No cell has a p of at most 0.05" in caption


@pytest.mark.slow
def test_the_figure_frames_what_is_found(tmp_path):
    rows = make_rows([*runs(), *probes(RESULT), *probes({(e, "x"): DRAW.uniform() for e in ENCODERS}, "x")])
    table = probekit.table("score-correlations", rows, rows_out=tmp_path / "found.parquet")
    figure = probekit.plot("score-correlations", tmp_path / "found.parquet", out=tmp_path / "found.png")
    cells, means = figure.axes[:2]
    assert [label.get_text() for label in cells.get_yticklabels()] == ["probe on the target", "probe on x"]
    framed = table.rows[(table.rows["task"] != "glue") & (table.rows["p_adjusted"] <= 0.05)]
    assert len(cells.patches) == len(framed) == 8
    assert next(float(line.get_xdata()[0]) for line in means.lines if line.get_marker() == "o") == 1
    assert "Framed cells" in (tmp_path / "found.caption.txt").read_text()
    with pytest.raises(UsageError, match="no correlations of scores"):
        probekit.plot("score-correlations", rows)


@pytest.mark.slow
@pytest.mark.parametrize("common", [0.1, 0.9])
def test_nothing_is_foretold_by_noise(common):
    """From rows to p: results and scores that share factors over targets, but none with each other."""
    found = []
    for s in range(300):
        draw = np.random.default_rng([s, int(10 * common)])
        x, y = (
            common**0.5 * draw.normal(size=(9, 1)) + (1 - common) ** 0.5 * draw.normal(size=(9, 8)) for _ in range(2)
        )
        rows = []
        for i, e in enumerate(ENCODERS):
            for j, t in enumerate(MEASURED):
                about = {"regime": "feature-extraction", "kept": True, "layer": None, "head": "max-mlp"}
                rows += [row("train", e, t, m, y[i, j], **about) for m in MEASURED[t]]
                rows.append(row("transferability", e, t, "logme", x[i, j]))
        of_mean = score_correlations(make_rows(rows), draws=199, resamples=0, seed=s).query("task == 'glue'")
        found.append(of_mean["p"].item() <= 0.05)
    assert abs(np.mean(found) - 0.05) <= 3 * np.sqrt(0.05 * 0.95 / 300)
