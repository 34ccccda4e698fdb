"""Figures: what stands in the Axes is what stands in the rows."""

import re

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from probekit.errors import UsageError
from probekit.files import slug
from probekit.plots import layer_curve, layer_panels, save
from probekit.plots.curves import plot_rows
from probekit.plots.figure import details, plot
from probekit.plots.layers import curve_rows
from probekit.plots.look import Look
from probekit.plots.options import PlotOptions
from probekit.rows import make_rows

TASK = "control task (random tags by word type)"


def records(task="cola", model="tiny", depth=3, norm=False, shift=0.0, metric="matthews", **own):
    base = {
        "task": task, "split": "dev", "model": model, "representation": "mean", "estimator": "logistic",
        "target": "gold", "metric": metric, "seed": 0, "n": 1043, "analysis": "probe",
    } | own  # fmt: skip
    rng = np.random.default_rng(depth)
    out = [base | {"layer": None, "representation": "none", "value": 0.0, "estimator": "majority"}]
    for layer in [*range(depth + 1), *(["final_norm"] if norm else [])]:
        value = shift + rng.random()
        out.append(base | {"layer": layer, "value": value, "ci_low": value - 0.1, "ci_high": value + 0.2})
    return out


def tuned_on(task, seed):
    """What tells a fine-tuned model from others."""
    name = f"{slug(task)}.fine-tune.{seed}"
    return {"checkpoint": name, "regime": "fine-tune", "trained_on": task, "head": "linear", "run_seed": seed}


@pytest.fixture
def ax():
    return Figure().subplots()


REACHES, SHUFFLED = "not above noise (interval)", "shuffled labels: middle 95 %"


def labels(ax):
    return ax.get_legend_handles_labels()[1]


def line(ax, label):
    [found] = [x for x in (*ax.lines, *ax.containers) if x.get_label() == label]
    return found[0] if isinstance(found, tuple) else found


def hollow(ax):
    """Places of the layers whose marker is white."""
    return [x for one in ax.lines if one.get_markerfacecolor() == "white" for x in one.get_xdata()]


def band(collection, x):
    """Lowest and highest value of a band at a layer."""
    y = [y for at, y in collection.get_paths()[0].vertices if abs(at - x) < 1e-9]
    return min(y), max(y)


def test_the_axes_hold_the_rows(ax):
    rows = make_rows(records())
    assert layer_curve(rows.sample(frac=1, random_state=0), ax=ax) is ax  # whatever their order
    curve, baseline = line(ax, "tiny"), line(ax, "majority class")
    measured = rows[rows["layer"].notna()]
    np.testing.assert_array_equal(curve.get_xdata(), [0, 1, 2, 3])
    np.testing.assert_array_equal(curve.get_ydata(), measured["value"])
    np.testing.assert_array_equal(baseline.get_ydata(), [0.0, 0.0])
    edge = ax.collections[0].get_paths()[0].vertices
    assert {round(y, 9) for y in edge[:, 1]} == {round(y, 9) for c in ("ci_low", "ci_high") for y in measured[c]}
    assert ax.get_ylabel() == "Matthews correlation"
    assert ax.get_title(loc="left") == "CoLA"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2", "3"]
    assert labels(ax) == ["tiny", "majority class", "95 % interval"]


def test_final_norm_stands_after_the_last_layer(ax):
    rows = make_rows(records(norm=True))
    layer_curve(rows, ax=ax)
    curve, norm = ax.lines[:2]
    assert line(ax, "tiny") is curve
    assert len(curve.get_xdata()) == 4
    assert norm.get_xdata()[0] == 4
    assert norm.get_ydata()[0] == rows["value"].iloc[-1]
    assert [t.get_text() for t in ax.get_xticklabels()][-1] == "norm"


def test_layers_without_numbers_stand_side_by_side(ax):
    rows = make_rows([r | {"layer": r["layer"] and f"part {r['layer']}"} for r in records()[2:]])
    layer_curve(rows, ax=ax)
    curve, points = ax.lines[:2]
    assert line(ax, "tiny") is curve
    assert len(curve.get_xdata()) == 0  # nothing goes through them
    np.testing.assert_array_equal(points.get_xdata(), [0, 1, 2])
    np.testing.assert_array_equal(points.get_ydata(), rows["value"])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["part 1", "part 2", "part 3"]


def test_a_curve_is_named_by_what_tells_it_apart(ax):
    rows = make_rows([*records(model="org/a"), *records(model="org/a", random_weights=1), *records(model="b")])
    layer_curve(rows, ax=ax)
    assert labels(ax) == ["a", "b", "a, random weights 1", "majority class", "95 % interval"]
    random = line(ax, "a, random weights 1")
    assert (line(ax, "a").get_linestyle(), random.get_linestyle()) == ("-", "--")
    red, green, blue = mpl.colors.to_rgb(random.get_color())
    assert red == green == blue


def test_seeds_of_one_kind_look_alike():
    """Every seed is drawn, as a thin line; a name that ends with a number is not for that a seed."""
    random = [records(random_weights=i, depth=4, shift=i) for i in range(5)]
    tuned = [records(**tuned_on("cola", i), depth=4, shift=9 + i) for i in range(2)]
    others = [records(checkpoint=f"v1.{i}", depth=4, shift=20 + i) for i in range(2)]
    rows = make_rows([row for part in ([records(depth=4)], random, tuned, others) for each in part for row in each])
    figure = layer_panels(rows)
    [ax] = figure.axes
    names = ["pretrained", "fine-tuned, 2 seeds", "v1.0", "v1.1", "random weights, 5 seeds"]
    [legend] = figure.legends
    assert sorted(t.get_text().replace("tiny, ", "") for t in legend.get_texts()) == sorted(
        [*names, "majority class", "95 % interval"]
    )
    drawn = [one for one in ax.lines if one.get_label().endswith("random weights, 5 seeds")]
    held = rows[rows["random_weights"].notna() & rows["layer"].notna()].groupby("random_weights")["value"]
    np.testing.assert_array_equal(
        sorted(one.get_ydata()[0] for one in drawn if len(one.get_ydata())), sorted(held.first())
    )
    assert len({(one.get_color(), one.get_marker()) for one in drawn}) == 1
    assert max(one.get_linewidth() for one in drawn) < min(
        one.get_linewidth() for one in ax.lines if one.get_label() in ("tiny, v1.0", "pretrained")
    )


def test_random_weights_are_named_and_dashed_in_any_company(ax):
    """Alone, and in a panel of their own beside a trained model, whatever the order."""
    layer_curve(make_rows(records(random_weights=0)), ax=ax)
    assert labels(ax)[0] == "tiny, random weights"
    random, trained = records("rte", random_weights=3), records()
    for rows in (random + trained, trained + random):
        figure = layer_panels(make_rows(rows))
        styles = {x.get_label(): x.get_linestyle() for ax in figure.axes for x in ax.lines if "tiny" in x.get_label()}
        assert styles == {"tiny": "-", "tiny, random weights 3": "--"}


def test_of_several_metrics_the_first_or_the_one_asked_for(ax):
    rows = make_rows([*records(metric="f1"), *records(metric="accuracy", shift=5)])
    assert layer_curve(rows, ax=ax).get_ylabel() == "F1"
    other = layer_curve(rows, metric="accuracy", ax=Figure().subplots())
    assert other.get_ylabel() == "Accuracy"
    assert other.lines[0].get_ydata().min() >= 5
    with pytest.raises(UsageError, match="have no 'spearman'; they have f1, accuracy"):
        layer_curve(rows, metric="spearman", ax=ax)


def test_panels_share_their_styles():
    ridge = {"metric": "pearson", "estimator": "ridge"}
    rows = make_rows([*records(), *records(model="b"), *records("sts-b", "b", **ridge), *records("sts-b", **ridge)])
    figure = layer_panels(rows)
    cola, sts = figure.axes
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["CoLA", "sts-b"]
    assert line(cola, "b").get_color() == line(sts, "b").get_color() != line(cola, "tiny").get_color()
    [legend] = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["tiny", "b", "95 % interval", "majority class"]
    assert len(layer_panels(rows, columns=1).axes) == 2


def controlled(target="shuffled", draws=3, summed=True, band=(0.3, 0.5), **own):
    """One model at .2, .4, .6, .8, ±.1, and a control at .4 in the band, as draws, as their sum or as both."""
    head = records(**own)[1]
    of = [
        head | {"layer": i, "value": 0.2 + 0.2 * i, "ci_low": 0.1 + 0.2 * i, "ci_high": 0.3 + 0.2 * i} for i in range(4)
    ]
    drawn = [
        row | {"target": target, "draw": d, "value": v, "ci_low": 0.0, "ci_high": 1.0}
        for row in of
        for d, v in zip(range(draws), (0.35, 0.45, 0.4), strict=False)
    ]
    low, high = band
    of += drawn
    return of + [row | {"target": target, "value": 0.4, "ci_low": low, "ci_high": high} for row in of[:4] if summed]


def test_controls_are_bands_and_their_draws_are_no_curves(ax):
    layer_curve(make_rows([*controlled(), *controlled("control-task", band=(0.0, 0.1))[4:]]), ax=ax)
    assert labels(ax) == ["tiny", REACHES, "95 % interval", SHUFFLED, f"{TASK}: middle 95 %"]
    assert len([x for x in ax.lines if len(x.get_xdata()) == 4]) == 5  # the model, and the ends of each band
    shuffled, task = line(ax, SHUFFLED), line(ax, f"{TASK}: middle 95 %")
    assert band(shuffled, 2) == (0.3, 0.5)
    assert band(task, 2) == (0.0, 0.1)
    assert task.get_hatch()
    assert not shuffled.get_hatch()


def test_draws_that_nothing_sums_up_become_their_range(ax):
    layer_curve(make_rows(controlled(summed=False)), ax=ax)
    assert band(line(ax, "shuffled labels: range of draws"), 1) == (0.35, 0.45)


@pytest.mark.parametrize(("analysis", "control"), [("structural", "shuffled trees"), ("pairs", "exchanged pairs")])
def test_controls_without_shuffled_labels_have_their_own_name(ax, analysis, control):
    rows = make_rows(controlled(summed=False)).assign(analysis=analysis)
    if analysis == "pairs":
        rows = rows.assign(level="all", of="", metric="accuracy")
    layer_curve(rows, ax=ax)
    assert f"{control}: range of draws" in labels(ax)


def test_a_marker_is_hollow_where_the_interval_reaches_a_control(ax):
    layer_curve(make_rows(controlled()), ax=ax)  # from .1, .3, .5, .7 up; the control ends at .5
    assert hollow(ax) == [0, 1, 2]
    layer_curve(make_rows(controlled(metric="log-loss")), ax=(down := Figure().subplots()))  # up to .3 …, from .3 on
    assert hollow(down) == [0, 1, 2, 3]
    assert down.get_ylabel() == "Log loss (nats)\n(lower is better)"
    layer_curve(make_rows(controlled(metric="log-loss", band=(0.4, 0.6))), ax=(lower := Figure().subplots()))
    assert hollow(lower) == [1, 2, 3]
    alone = make_rows(controlled()[:4])
    assert hollow(layer_curve(alone, ax=Figure().subplots())) == []


def test_each_model_is_held_against_its_own_controls(ax):
    rows = [*controlled(), *controlled(random_weights=0, band=(0.8, 0.9)), *controlled(step=3, band=(0.0, 0.0))]
    layer_curve(make_rows(rows), ax=ax)
    assert hollow(ax) == [0, 1, 2, 0, 1, 2, 3]
    bands = [x[0] for x in ax.containers if x.get_label() == SHUFFLED]
    assert [band(x, 0) for x in bands] == [(0.3, 0.5), (0.0, 0.0)]  # of trained weights
    edges = [(x.get_color(), x.get_ydata()[0]) for x in ax.lines if x.get_linestyle() == "--" and x.get_zorder() < 3]
    assert len({colour for colour, _ in edges}) == 2
    random = Figure().subplots()
    layer_curve(make_rows(controlled(random_weights=0, band=(0.8, 0.9))), ax=random)
    assert band(line(random, SHUFFLED), 0) == (0.8, 0.9)


def test_inputs_without_a_layer_are_lines_told_apart(ax):
    free = {"bag-of-pieces": "logistic", "length": "logistic", "word-type": "type-majority"}
    rows = records() + [
        records()[0] | {"representation": name, "estimator": how, "value": i / 8}
        for i, (name, how) in enumerate(free.items(), 1)
    ]
    twice = rows + [row | {"random_weights": 0} for row in rows]  # the same inputs for every model
    layer_curve(make_rows(twice), ax=ax)
    names = ["majority class", "bag of word pieces", "length", "majority by word type"]
    assert labels(ax)[2:] == [*names, "95 % interval"]
    assert [list(line(ax, name).get_ydata()) for name in names] == [[x, x] for x in (0, 1 / 8, 2 / 8, 3 / 8)]
    assert len({str(line(ax, name)._unscaled_dash_pattern) for name in names}) == 4


def test_differences_have_a_line_at_zero_and_are_drawn_when_asked_for(ax):
    name = "selectivity(accuracy)"
    rows = make_rows([*controlled(metric=name)[:4], *records(metric="accuracy")])
    assert layer_curve(rows, ax=Figure().subplots()).get_ylabel() == "Accuracy"
    layer_curve(rows.assign(ci_low=rows["ci_low"] - 0.2), metric=name, ax=ax)
    assert ax.get_ylabel() == "Selectivity\n(accuracy)"
    assert any(list(x.get_ydata()) == [0, 0] for x in ax.lines)
    assert hollow(ax) == [0]  # from -.1, .1, .3, .5 up
    below = layer_curve(make_rows(controlled(metric="above-shuffled(log-loss)")[:4]), ax=Figure().subplots())
    assert below.get_ylabel() == "Log loss (nats)\nabove probes of shuffled labels\n(lower is better)"
    assert hollow(below) == [0, 1, 2, 3]


def statistics(task="cola", **own):
    head = records(task, **own)[0] | {
        "representation": "mean",
        "estimator": "logistic",
        "of_metric": "matthews",
        "analysis": "summary",
    }
    values = {"best-layer": (2, 1, 3), "centre-of-gravity": (1.5, 1.25, 2.0), "expected-layer": (None,) * 3}
    out = [
        head | {"metric": name, "value": value, "ci_low": low, "ci_high": high}
        for name, (value, low, high) in values.items()
    ]
    return [*out, head | {"metric": "first-good-layer", "value": 1}]


def test_a_summary_hangs_under_its_curve(ax):
    rows = make_rows(records())
    layer_curve(rows, summary=make_rows([*statistics(), *statistics(random_weights=0)]), ax=ax)
    [strip] = ax.child_axes
    assert strip.get_xlim() == ax.get_xlim()
    assert [t.get_text() for t in strip.get_yticklabels()][:2] == ["best layer", "first good layer"]
    [marks] = strip.lines  # of one curve; there is none with random weights
    assert dict(zip(marks.get_ydata(), marks.get_xdata(), strict=True)) == {0: 2, 1: 1, 2: 1.5}
    [bars] = strip.collections
    assert [tuple(s[:, 0]) for s in bars.get_segments()] == [(1, 3), (1.25, 2), (1, 1)]
    figure = layer_panels(
        make_rows([*records(), *records("sst2")]), summary=make_rows([*statistics(), *statistics(task="sst2")])
    )
    assert [len(panel.child_axes) for panel in figure.axes] == [1, 1]
    with pytest.raises(UsageError, match="the summary has no rows of matthews on sst2"):
        layer_curve(make_rows(records("sst2")), summary=make_rows(statistics()), ax=Figure().subplots())


def informed(task="cola", estimator="edge", values=(0.2, 0.4, None, 0.3), possible=0.9, **own):
    """Mutual information at four layers, ±.05, undetermined where there is no value, and noise up to .02."""
    head = records(task, metric="mutual-information", estimator=estimator, **own)[1]
    out = []
    for i, value in enumerate(values):
        low, high = (0.0, possible) if value is None else (value - 0.05, value + 0.05)
        out += [
            head | {"layer": i, "value": value, "ci_low": low, "ci_high": high},
            head | {"layer": i, "target": "shuffled", "value": 0.01, "ci_low": 0.0, "ci_high": 0.02},
        ]
    return out


def test_undetermined_layers_are_crosses_over_what_is_possible(ax):
    layer_curve(make_rows(informed()), ax=ax)
    assert ax.get_ylabel() == "Mutual information (bits)"
    assert labels(ax) == ["tiny", "undetermined (possible values)", "95 % interval", SHUFFLED]
    [cross] = [x for x in ax.lines if x.get_marker() == "x" and len(x.get_xdata())]
    [[x, y]] = cross.get_transform().transform(cross.get_xydata())
    assert x == pytest.approx(ax.transData.transform((2, 0))[0])
    assert y == pytest.approx(ax.transAxes.transform((0, 0))[1])
    assert y < ax.transData.transform((2, 0))[1] - 4.5  # on the bottom line, clear of zero
    assert not cross.get_clip_on()
    [dotted] = [x for x in ax.collections if hasattr(x, "get_segments") and x.get_linestyle()[0][1] is not None]
    assert [s.tolist() for s in dotted.get_segments()] == [[[2, 0], [2, 0.9]]]
    assert hollow(ax) == []  # no interval reaches noise
    assert 0.45 < ax.get_ylim()[1] < 0.6  # what is possible does not press the curve flat
    np.testing.assert_array_equal(line(ax, "tiny").get_ydata(), [0.2, 0.4, np.nan, 0.3])
    for path in ax.collections[0].get_paths():  # nor is the band drawn across
        assert 2 not in path.vertices[:, 0]
    alone = layer_curve(make_rows(informed(values=[None, None])), ax=Figure().subplots())
    assert alone.get_ylim()[1] > 0.9


def test_a_marker_is_half_filled_where_the_control_task_is_reached(ax):
    """Above shuffled labels, which reach nothing, but not above what a probe learns by heart: both are told."""
    far = {"p": 0.001, "p_adjusted": 0.004}
    rows = controlled(band=(0.0, 0.01)) + controlled("control-task", band=(0.3, 0.45))[4:]
    rows = [row | (far if row["target"] == "gold" else {}) for row in rows]
    layer_curve(make_rows(rows), ax=ax)
    assert "interval reaches control task" in labels(ax)
    assert REACHES not in labels(ax)
    drawn = curve_rows(make_rows(rows)).query("role == 'curve'")
    assert drawn["hollow"].tolist() == ["interval reaches control task"] * 2 + [""] * 2
    [half] = [x for x in ax.lines if x.get_fillstyle() == "bottom" and len(x.get_xdata())]
    assert half.get_xdata().tolist() == [0, 1]


def test_a_marker_is_hollow_where_p_is_large(ax):
    """Whatever the interval reaches, but not where no p could be small."""
    noise, far = (0.2, 0.4, None, 0.01), {"p_adjusted": 0.001, "shuffles": 1000}
    rows = [row | far for row in informed(values=noise)]
    layer_curve(make_rows(rows), ax=ax)
    assert "not above noise (p > 0.05)" not in labels(ax)
    assert hollow(ax) == []  # though layer 3 lies within noise
    rows[0] |= {"p_adjusted": 0.051}
    rows[4] |= {"p_adjusted": 1.0}  # undetermined
    layer_curve(make_rows(rows), ax=(tested := Figure().subplots()))
    assert hollow(tested) == [0]
    assert "not above noise (p > 0.05)" in labels(tested)
    assert REACHES not in labels(tested)
    few = [row | {"p_adjusted": 4 / 20, "shuffles": 19} for row in informed(values=(0.2, 0.4, 0.3, 0.01))]
    layer_curve(make_rows(few), ax=(blind := Figure().subplots()))
    assert hollow(blind) == [3]
    assert REACHES in labels(blind)
    untested = [row | {"p_adjusted": None} for row in rows]
    assert hollow(layer_curve(make_rows(untested), ax=Figure().subplots())) == [3]


def test_a_layer_between_undetermined_ones_keeps_its_interval(ax):
    layer_curve(make_rows(informed(values=[None, 0.4, None, 0.3, 0.2])), ax=ax)
    bars = [s.tolist() for x in ax.collections if hasattr(x, "get_segments") for s in x.get_segments()]
    assert [[1, pytest.approx(0.35)], [1, pytest.approx(0.45)]] in bars
    assert all(bar[0][0] != 3 for bar in bars)  # which is in the band


def test_estimators_of_information_stand_side_by_side_on_one_scale():
    faithful = informed(estimator="edge-4.3.1", values=(0.001,) * 4)
    for row in faithful[::2]:
        row |= {"ci_low": None, "ci_high": None}
    other = [*informed("mrpc"), *informed("mrpc", random_weights=0, values=(0.1,) * 4)]
    figure = layer_panels(make_rows([*informed(), *other, *faithful]), columns=3)
    assert [(x.get_title(loc="left"), x.texts[0].get_text()) for x in figure.axes] == [
        ("CoLA", "EDGE, dev, n = 1,043"),
        ("", "EDGE 4.3.1, dev, n = 1,043"),
        ("MRPC", "EDGE, dev, n = 1,043"),
    ]
    calibrated, published, mrpc = figure.axes
    assert calibrated.get_ylim() == published.get_ylim()
    assert calibrated.get_position().y0 == published.get_position().y0 != mrpc.get_position().y0  # two in a row
    np.testing.assert_array_equal(line(published, "tiny").get_ydata(), [0.001] * 4)
    assert hollow(published) == [0, 1, 2, 3]  # values without an interval, within noise
    assert labels(mrpc)[:2] == ["tiny", "tiny, random weights"]  # estimators are told by their panels
    probes = layer_panels(make_rows([*records(), *records(estimator="mlp")]))
    assert len(probes.axes) == 1  # of other metrics they are curves


def test_panels_that_are_undetermined_at_every_layer_are_left_out_and_told(caplog):
    gone = informed(estimator="binning", values=(None,) * 4)
    rows = make_rows([*informed(), *gone, *informed(estimator="knn")])
    edge, knn = plot("layers", rows, width=6.3).axes
    assert edge.get_ylim() == knn.get_ylim()
    assert edge.get_ylim()[1] < 0.6
    words = "eft out, because undetermined at every layer: binning (CoLA)."
    assert words in details("layers", rows, PlotOptions(), Look())
    assert caplog.text.count(words) == 1
    [alone] = layer_panels(make_rows(gone)).axes
    assert "undetermined\nat every layer" in [t.get_text() for t in alone.texts]


@pytest.mark.slow
def test_panels_of_a_task_fill_lines_of_their_own():
    names = ["edge", "edge-4.3.1", "knn", "binning", "kernel-upper"]
    figure = layer_panels(make_rows([r for t in ("cola", "mrpc") for n in names for r in informed(t, n)]), width=6.3)
    figure.draw_without_rendering()
    tops = [round(ax.get_position().y1, 2) for ax in figure.axes]
    assert [tops.count(top) for top in dict.fromkeys(tops)] == [3, 2, 3, 2]
    assert [bool(ax.get_ylabel()) for ax in figure.axes] == [True, False, False, True, False] * 2


def test_intervals_of_many_curves_are_bars_side_by_side(ax):
    rows = [r for i in range(3) for r in records(model=f"m{i}")] + records(model="m2", random_weights=0)
    layer_curve(make_rows(rows), ax=ax)
    segments = [s for x in ax.collections if hasattr(x, "get_segments") for s in x.get_segments()]
    at = sorted(s[0, 0] for s in segments)
    assert len(at) == 16
    assert not any(x.get_paths() for x in ax.collections if not hasattr(x, "get_segments"))  # no band
    assert len({round(x, 6) for x in at}) == 16
    assert all(abs(x - round(x)) < 0.3 for x in at)
    assert line(ax, "m2, random weights").get_marker() == line(ax, "m2").get_marker() != line(ax, "m1").get_marker()


def test_what_looks_the_same_is_one_entry_of_the_legend():
    tested = [row | {"p_adjusted": 0.2, "shuffles": 1000} for row in informed()]
    [legend] = layer_panels(make_rows([*tested, *informed("mrpc", values=(0.01,) * 4)])).legends
    named = [t.get_text() for t in legend.get_texts()]
    assert "not above noise" in named
    assert REACHES not in named


def test_next_to_nothing_is_drawn_as_such(ax):
    layer_curve(make_rows(informed(values=(0.0001,) * 4)[::2]).assign(ci_low=None, ci_high=None), ax=ax)
    low, high = ax.get_ylim()
    assert low < 0
    assert high >= 0.01


def test_deep_models_have_few_ticks(ax):
    layer_curve(make_rows(records(depth=32)), ax=ax)
    assert [int(t.get_text()) for t in ax.get_xticklabels()] == list(range(0, 33, 3))


def test_an_axes_of_ones_own_gets_a_figure_with_a_legend():
    with mpl.rc_context({"backend": "agg"}):
        ax = layer_curve(make_rows(records()))
        assert len(ax.figure.legends) == 1
        import matplotlib.pyplot as plt

        plt.close(ax.figure)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("MiniLM", marks=pytest.mark.slow),
        "a-model-of-a-rather-long-name-that-says-how-it-was-trained-and-on-what",
    ],
)
@pytest.mark.parametrize("dpi", [72, *(pytest.param(dpi, marks=pytest.mark.slow) for dpi in (100, 300))])
def test_a_legend_lies_within_its_figure(model, dpi):
    near = {"model": model, "values": (0.2, 0.01, 0.1, 0.2)}
    figure = layer_panels(make_rows([*informed(**near), *informed(**near, random_weights=0)]))
    FigureCanvasAgg(figure)
    figure.set_dpi(dpi)
    figure.draw_without_rendering()
    box, [legend] = figure.bbox, figure.legends
    drawn = legend.get_window_extent()
    assert box.x0 <= drawn.x0 < drawn.x1 <= box.x1
    assert box.y0 <= drawn.y0 < drawn.y1 <= box.y1


def test_what_cannot_be_drawn(ax):
    with pytest.raises(UsageError, match="one task, but the rows are of cola, sst2; use layer_panels"):
        layer_curve(make_rows([*records(), *records("sst2")]), ax=ax)
    with pytest.raises(UsageError, match="tiny has two values for layer 0; were the same rows given twice"):
        layer_curve(make_rows([*records(), *records()]), ax=ax)
    near = make_rows(records()).assign(value=lambda rows: rows["value"] + 0.001)
    other = (
        r"tiny has two values for layer 0 \(.*, .*\); the rows do not say why; compare dtype .* --model-name NAME-bf16"
    )
    with pytest.raises(UsageError, match=other):
        layer_curve([make_rows(records()), near], ax=ax)
    near.loc[near["layer"] == 0, "value"] -= 0.001  # equal in the first layer only
    with pytest.raises(UsageError, match=other):
        layer_curve([make_rows(records()), near], ax=ax)
    with pytest.raises(UsageError, match=r"two values for layer 0 .*; the rows differ in n: 100, 50\. Draw one file"):
        layer_curve([make_rows(records()).assign(n=100), near.assign(n=50)], ax=ax)
    with pytest.raises(UsageError, match="the rows of cola have no layers"):
        layer_curve(make_rows(records()[:1]), ax=ax)
    with pytest.raises(UsageError, match="no rows to draw"):
        layer_panels(make_rows([]))


def test_files_hold_text_in_embedded_fonts_and_no_date(tmp_path):
    figure = layer_panels(make_rows(records()))
    pdf, svg, png = save(figure, [tmp_path / "new" / f"f{suffix}" for suffix in (".pdf", ".svg", ".png")])
    assert b"/Type /Font" in pdf.read_bytes()
    assert b"/Subtype /Type3" not in pdf.read_bytes()
    assert b"/FontFile2" in pdf.read_bytes()  # TrueType, embedded
    assert re.search("<text[^>]*>(.|\n)*CoLA", svg.read_text())
    first = [f.read_bytes() for f in (pdf, svg, png)]
    save(layer_panels(make_rows(records())), [pdf, svg, png])
    assert first == [f.read_bytes() for f in (pdf, svg, png)]
    assert len(list(pdf.parent.iterdir())) == 3
    with pytest.raises(UsageError, match=r"not '\.jpeg'"):
        save(figure, [tmp_path / "f.jpeg"])


@pytest.mark.slow
def test_no_file_tells_when_it_was_written(tmp_path, monkeypatch):
    """Whenever, by whatever process, and under whatever name."""
    files = [tmp_path / f"f{suffix}" for suffix in (".pdf", ".svg", ".eps", ".png")]
    first = [f.read_bytes() for f in save(layer_panels(make_rows(records())), files)]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")  # which matplotlib takes for now
    monkeypatch.setattr("os.getpid", lambda: 7)
    others = [tmp_path / f"other{f.suffix}" for f in files]
    assert first == [f.read_bytes() for f in save(layer_panels(make_rows(records())), others)]


@pytest.mark.slow
def test_eps_is_drawn_in_tints_and_the_figure_stays_as_it_was(tmp_path, caplog):
    figure = layer_panels(make_rows(controlled()))
    looks = [(x.get_facecolor().tolist(), x.get_alpha()) for x in figure.axes[0].collections]
    save(figure, [tmp_path / "f.eps"])
    assert looks == [(x.get_facecolor().tolist(), x.get_alpha()) for x in figure.axes[0].collections]
    assert "does not support transparency" not in caplog.text
    assert re.search("^0.92(0*|0 ).* set(gray|rgbcolor)", (tmp_path / "f.eps").read_text(), re.M)


def test_runs_of_one_kind_look_alike_in_the_panels_of_all_tasks():
    """Whatever they are called; the step of a run that has one is no news."""
    parts = []
    for task, step in (("cola", 376), ("ud:en_ewt", 90)):
        for seed in (0, 1):
            parts += records(task, **tuned_on(task, seed), step=step)
        parts += [*records(task), *records(task, random_weights=0), *records(task, **tuned_on("mnli", 0))]
    cola, ud = layer_panels(make_rows(parts)).axes
    names = ["tiny, pretrained", "tiny, fine-tuned, 2 seeds", "tiny, fine-tuned on MNLI", "tiny, random weights"]
    assert list(dict.fromkeys(labels(cola)))[:4] == list(dict.fromkeys(labels(ud)))[:4] == names
    drawn = [{x.get_label(): x.get_color() for x in ax.lines if x.get_label() in names} for ax in (cola, ud)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0].values())) == 4
    [legend] = cola.figure.legends
    assert [t.get_text() for t in legend.get_texts()][:4] == [name.removeprefix("tiny, ") for name in names]
    assert legend.get_title().get_text() == "tiny"


def test_steps_are_told_of_runs_that_have_several_and_stand_in_their_order(ax):
    rows = [r for step in (128, 9, 10) for r in records(checkpoint="run", step=step)]
    layer_curve(make_rows([*rows, *records()]), ax=ax)
    assert labels(ax)[:4] == ["tiny, pretrained", "tiny, run, step 9", "tiny, run, step 10", "tiny, run, step 128"]


def test_no_two_of_many_curves_look_the_same(ax):
    layer_curve(make_rows([r for i in range(30) for r in records(model=f"model {i}")]), ax=ax)
    looks = {(x.get_color(), x.get_marker()) for x in ax.lines if x.get_label().startswith("model")}
    assert len(looks) == 30


def test_bands_of_several_controls_are_one_tint():
    """Where they lie over each other they are no darker than in the legend, and lines stay above them."""
    rows = [*controlled(), *controlled(model="b", band=(0.35, 0.6)), *records()[:1]]
    ax = layer_curve(make_rows(rows), ax=Figure().subplots())
    bands = [c for c in ax.collections if c.get_zorder() == 1.5]
    assert len(bands) == 2
    assert {tuple(c.get_facecolor()[0]) for c in bands} == {(0.92, 0.92, 0.92, 1.0)}
    assert line(ax, "majority class").get_zorder() > 1.5


@pytest.mark.parametrize("name", ["costs $5_a$ \x1b[31mb", pytest.param(r"$\frac{1$ x", marks=pytest.mark.slow)])
@pytest.mark.parametrize("column", ["model", pytest.param("task", marks=pytest.mark.slow)])
def test_names_are_drawn_as_they_are(tmp_path, column, name):
    """Neither as mathematics nor with control characters, for which matplotlib would warn that no font has them."""
    rows = [record | {column: name} for record in records()]
    rows += [record | {"model": f"other {name}"} for record in rows]
    figure = plot("layers", make_rows(rows), title=name, out=tmp_path / "a.svg")
    own = layer_curve(make_rows(rows), ax=Figure().subplots())
    for drawn in (*figure.findobj(Text), *own.figure.findobj(Text)):
        assert not (drawn.get_parse_math() and "$" in drawn.get_text())
        assert "\x1b" not in drawn.get_text()
    svg = (tmp_path / "a.svg").read_text()
    assert "$" in svg
    assert ("x1b[31mb" in svg) == ("\x1b" in name)


def test_runs_of_one_kind_and_seed_are_told_apart_by_their_names():
    row = records()[0]
    tuned = row | {"regime": "fine-tune", "trained_on": row["task"], "run_seed": 0}
    two = [tuned | {"checkpoint": name} for name in "xy"]
    assert plot_rows(make_rows([row, *two]))["run"].tolist() == ["", "x", "y"]
    assert plot_rows(make_rows([row, *two[:1]]))["run"].tolist() == ["", "fine-tuned"]
