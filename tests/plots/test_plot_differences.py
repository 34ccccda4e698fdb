"""Figures of paired differences: markers, both intervals, and what is hollow."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from probekit.errors import UsageError
from probekit.plots import difference_panels, layer_differences
from probekit.plots.figure import details
from probekit.plots.look import Look
from probekit.plots.options import PlotOptions
from probekit.rows import make_rows

VALUES = {0: -0.3, 1: -0.1, 2: 0.0, "final_norm": 0.2}
BASE = {
    "split": "dev", "model": "org/tiny", "representation": "mean", "estimator": "logistic", "target": "gold",
    "metric": "difference(matthews)", "analysis": "compare", "seed": 0, "n": 1043,
}  # fmt: skip


def records(task="cola", against="layer 3 (best)", **own):
    base = BASE | {"task": task, "against": against} | own
    return [
        base | {"layer": layer, "value": v, "ci_low": v - 0.1, "ci_high": v + 0.1, "joint_low": v - 0.2,
                "joint_high": v + 0.2, "p_adjusted": 0.3 - abs(v)}
        for layer, v in VALUES.items()
    ]  # fmt: skip


def series(ax):
    return {x.get_label(): x for x in ax.lines if not x.get_label().startswith("_")}


BARS = ("thick: 95 % interval, one layer", "thin: all layers at once")
NAMES = ("b, random weights", "shuffled labels")


def test_the_axes_hold_the_rows():
    ax = layer_differences(make_rows(records()), level=0.15, ax=Figure().subplots())
    marks = series(ax)["tiny"]
    np.testing.assert_array_equal(marks.get_xdata(), [0, 1, 2, 3])
    np.testing.assert_array_equal(marks.get_ydata(), list(VALUES.values()))
    own, joint = ([tuple(s[:, 1]) for s in c.get_segments()] for c in ax.collections)
    assert joint == [(v - 0.2, v + 0.2) for v in VALUES.values()]
    assert own == [(v - 0.1, v + 0.1) for v in VALUES.values()]
    [hollow] = [x for x in ax.lines if x.get_markerfacecolor() == "white" and len(x.get_xdata())]
    np.testing.assert_array_equal(hollow.get_xdata(), [1, 2])  # p = 0, .2, .3, .1
    assert list(series(ax)) == [*BARS, "tiny", "not shown to differ (corrected p > 0.15)"]
    assert ax.get_ylabel() == "Matthews correlation:\neach layer − layer 3 (best)"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2", "norm"]


def test_series_stand_side_by_side():
    rows = make_rows([*records(against="a/b, random weights"), *records(against="shuffled")])
    ax = layer_differences(rows, ax=Figure().subplots())
    one, two = (series(ax)[x] for x in ("tiny, minus b, random weights", "not shown to differ (corrected p > 0.05)"))
    assert set(series(ax)) == {*BARS, "not shown to differ (corrected p > 0.05)", *(f"tiny, minus {x}" for x in NAMES)}
    assert (series(ax)["tiny, minus shuffled labels"].get_xdata() > one.get_xdata()).all()
    assert ax.get_ylabel() == "Matthews correlation:\ndifference"
    assert len(two.get_xdata()) == 0  # the hollow marker of the legend


def test_a_trained_model_minus_the_pretrained_one_names_both():
    trained = {"checkpoint": "cola.fine-tune.0", "regime": "fine-tune", "head": "linear", "trained_on": "cola"}
    ax = layer_differences(make_rows(records(against="org/tiny, pretrained", **trained)), ax=Figure().subplots())
    assert ax.get_ylabel() == "Matthews correlation:\nfine-tuned − pretrained"
    assert "tiny, fine-tuned" in series(ax)


def test_panels_and_holm():
    lower = {"metric": "difference(log-loss)", "joint_low": None, "joint_high": None}
    rows = make_rows([*records(), *(r | lower for r in records("sst2", "layer 0"))])
    figure = difference_panels(rows)
    assert [ax.get_ylabel() for ax in figure.axes] == [
        "Matthews correlation:\neach layer − layer 3 (best)",
        "Log loss (nats):\neach layer − layer 0\n(lower is better)",
    ]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [
        "tiny",
        *BARS,
        "not shown to differ (corrected\np > 0.05)",
    ]


def test_what_cannot_be_drawn():
    rows = make_rows(records())
    with pytest.raises(UsageError, match="one task, but the rows are of cola, sst2; use difference_panels"):
        layer_differences(make_rows([*records(), *records("sst2")]))
    with pytest.raises(UsageError, match="rows of probekit compare lack against; run"):
        layer_differences(rows.drop(columns="against"))
    with pytest.raises(UsageError, match="two differences for one layer; were the same rows given twice"):
        layer_differences(make_rows([*records(), *records()]), ax=Figure().subplots())
    both = make_rows([*records(), *records(metric="difference(accuracy)")])
    with pytest.raises(UsageError, match="matthews and accuracy have no common axis"):
        layer_differences(both, ax=Figure().subplots())


def test_a_figure_shows_itself_in_a_notebook():
    figure = difference_panels(make_rows(records()))
    png, size = figure._repr_png_()
    assert png.startswith(b"\x89PNG")
    drawn = int.from_bytes(png[16:20], "big")
    assert drawn == pytest.approx(2 * size["width"], abs=2)


def test_the_caption_says_of_which_task_the_groups_are():
    rows = make_rows([*records(n_train=900), *(r | {"n_groups": 40} for r in records("sst2", n_train=900))])
    text = details("differences", rows, PlotOptions(), Look())
    assert "Fitted on 900 examples. SST-2: 40 groups, resampled as wholes." in text


def test_a_model_minus_itself_is_named_once_and_its_panel_is_its_own_where_there_is_no_room():
    rows = make_rows([r for m in ("a/x", "b/y") for r in records(model=m, against=f"{m}, random weights")])
    together, alone = difference_panels(rows, width=3.3), difference_panels(rows, width=1.25)
    assert set(series(together.axes[0])) >= {"x", "y"}
    assert together.axes[0].get_ylabel() == "Matthews correlation:\nmodel − random weights"
    assert [ax.get_title("right") for ax in alone.axes] == ["x", "y"]
    assert alone.axes[0].get_ylim() == alone.axes[1].get_ylim()
    assert "Paired differences from random weights of the same model. " in details(
        "differences", rows, PlotOptions(), Look()
    )


def test_many_curves_are_a_map_that_is_white_at_0():
    rows = make_rows([r for i in range(9) for r in records(model=f"m{i}", against=f"m{i}, random weights")])
    figure = difference_panels(rows, width=7.1)
    image = figure.axes[0].images[0]
    assert (image.get_cmap().name, image.get_clim()) == ("RdBu_r", (-0.3, 0.3))
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == [f"m{i}" for i in range(9)]
    assert "white is 0, blue lower, red higher" in details("differences", rows, PlotOptions(), Look())
