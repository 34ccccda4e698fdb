"""Minimal pairs in figures by layer: the values drawn for all pairs, and a panel for each group."""

import pytest
from matplotlib.figure import Figure

import probekit
from probekit.errors import UsageError
from probekit.plots import layer_curve
from probekit.rows import make_rows

FIELDS = {"syntax": 0.1, "morphology": -0.1}


def records(model="owner/tiny", scores=("log-probability",), layers=(0, 1, 2), **own):
    base = {
        "analysis": "pairs", "task": "blimp", "split": "test", "model": model, "target": "gold", "metric": "accuracy",
        "n": 200,
    } | own  # fmt: skip
    out = []
    for s, score in enumerate(scores):
        for layer in (None, *layers):
            kind = "lm-head" if layer is None else "logit-lens"
            value = 0.6 + 0.05 * s + 0.02 * (max(layers, default=0) if layer is None else layer)
            groups = [("all", "", 0.0), *(("field", name, by) for name, by in FIELDS.items()), ("attractors", "1", 0.2)]
            for level, of, by in groups:
                out.append(base | {
                    "estimator": score, "representation": kind, "layer": layer, "level": level, "of": of,
                    "value": value + by, "ci_low": value + by - 0.03, "ci_high": value + by + 0.04,
                })  # fmt: skip
    return out


def line(ax, label):
    [found] = [x for x in ax.lines if x.get_label() == label]
    return list(found.get_ydata())


def labels(ax):
    return ax.get_legend_handles_labels()[1]


def test_one_curve_of_all_pairs_with_the_head_and_chance_as_lines():
    ax = layer_curve(make_rows(records()), ax=Figure().subplots())
    assert line(ax, "tiny") == pytest.approx([0.6, 0.62, 0.64])
    assert line(ax, "tiny's own head") == pytest.approx([0.64, 0.64])
    assert line(ax, "chance") == [0.5, 0.5]
    [band] = [c for c in ax.collections if c.get_label() == "_bands"]
    ends = {round(float(y), 6) for x, y in band.get_paths()[0].vertices if x == 1}
    assert ends == {0.59, 0.66}


def test_models_and_scores_are_curves_and_their_heads_are_told_apart():
    rows = [*records(scores=("pll", "pll-word")), *records("other", ("log-probability",))]
    ax = layer_curve(make_rows(rows), ax=Figure().subplots())
    assert {"tiny, pll", "tiny, pll-word", "other, log-probability", "tiny's own head, pll", "chance"} <= {*labels(ax)}
    found = {name: next(list(x.get_ydata()) for x in ax.lines if x.get_label() == name) for name in labels(ax)[:3]}
    assert found["tiny, pll-word"] == pytest.approx([0.65, 0.67, 0.69])


def test_a_panel_for_each_group_of_a_level():
    figure = probekit.plot("layers", make_rows(records()), by="field")
    found = {ax.get_title(loc="left"): line(ax, "tiny") for ax in figure.axes}
    assert found["BLiMP: syntax"] == pytest.approx([0.7, 0.72, 0.74])
    assert found["BLiMP: morphology"] == pytest.approx([0.5, 0.52, 0.54])
    [ax] = probekit.plot("layers", make_rows(records()), by="attractors").axes
    assert ax.get_title(loc="left").split(":")[1].strip() == "attractors 1"
    assert line(ax, "tiny") == pytest.approx([0.8, 0.82, 0.84])


def test_exchanged_pairs_are_a_band():
    noise = [
        row | {"target": "shuffled", "draw": draw, "value": 0.45 + draw / 10, "ci_low": None, "ci_high": None}
        for row in records(representation="mean") if row["layer"] is not None and row["level"] == "all"
        for draw in (0, 1)
    ]  # fmt: skip
    ax = layer_curve(make_rows(records() + noise), ax=Figure().subplots())
    [band] = [c for c in ax.collections if c.get_label() != "_bands" and hasattr(c, "get_paths") and c.get_paths()][:1]
    assert {round(float(y), 6) for x, y in band.get_paths()[0].vertices if x == 1} == {0.45, 0.55}


def test_what_cannot_be_drawn():
    with pytest.raises(UsageError, match="--by-layer"):
        layer_curve(make_rows(records(layers=())), ax=Figure().subplots())
    with pytest.raises(UsageError, match="no groups by 'fields'.*field"):
        probekit.plot("layers", make_rows(records()), by="fields")
    with pytest.raises(UsageError, match="only those of probekit pairs"):
        probekit.plot("layers", make_rows([records()[0] | {"analysis": "probe", "level": None}]), by="field")
