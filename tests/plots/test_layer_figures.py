"""What figures of layer curves show of crowds, noise and baselines, and what their captions claim."""

from test_plot_layers import informed, records

from probekit.plots.figure import details, plot
from probekit.plots.look import Look
from probekit.plots.options import PlotOptions
from probekit.rows import make_rows


def test_an_estimator_that_stays_at_its_floor_is_left_out_and_told():
    values = informed(values=(0.001,) * 4, estimator="edge-4.3.1")
    floor = [row | {"value": 0.001, "ci_low": None, "ci_high": None} for row in values]
    floor = [row | {"draw": None if row["target"] == "gold" else 0} for row in floor]
    rows = make_rows([*informed(), *floor])
    assert len(plot("layers", rows).axes) == 1
    words = details("layers", rows, PlotOptions(), Look())
    assert "Left out, because at the estimator's floor, as with shuffled labels: EDGE 4.3.1 (CoLA)." in words


def test_intervals_of_information_are_told_as_what_they_are():
    rows = make_rows([row | {"ci_high": 0.9, "shown_high": 0.5} for row in informed()])
    words = details("layers", rows, PlotOptions(), Look())
    assert "Values are lower bounds. Bands and bars: 95 % intervals of the information that an estimator" in words
    assert "the mutual information itself may be up to 0.9 bits (CoLA)." in words


def test_the_metric_of_a_caption_is_that_of_the_axis():
    rows = make_rows(records(metric="above-permuted(matthews)"))
    words = details("layers", rows, PlotOptions(metric="above-permuted(matthews)"), Look())
    assert words.startswith("Matthews correlation above permuted labels (CoLA, dev")


def test_permuted_labels_far_below_do_not_squash_the_curves():
    rows = [row | {"null_mean": 9.0, "null_edge": 8.0} for row in records(metric="log-loss")]
    assert plot("layers", make_rows(rows)).axes[0].get_ylim()[1] < 4
    near = [row | {"null_mean": 1.3, "null_edge": 1.2} for row in records(metric="log-loss")]
    assert plot("layers", make_rows(near)).axes[0].get_ylim()[1] > 1.3
    far, by = (details("layers", make_rows(some), PlotOptions(), Look()) for some in (rows, near))
    assert "leaves the axes" in far
    assert "leaves the axes" not in by


def test_baselines_that_hide_each_other_are_told():
    whole = {"layer": None, "representation": "length", "value": 0.0}
    flat = [row | {"random_weights": 0, "value": 0.0} for row in records()[1:]]
    rows = make_rows([*records(), records()[0] | whole, *flat])
    words = details("layers", rows, PlotOptions(), Look())
    assert "CoLA: length, majority class and random weights coincide at 0." in words


def test_a_control_does_not_make_eight_models_a_heat_map():
    models = [row for i in range(8) for row in records(model=f"model {i}")]
    figure = plot("layers", make_rows([*models, *records(model="model 0", random_weights=0)]), width="column")
    assert not figure.axes[0].images
    assert figure.legends[0]._ncols > 1
    assert plot("layers", make_rows([*models, *records(model="model 8")])).axes[0].images


def test_curves_of_many_layers_are_told_apart_by_a_few_large_markers():
    rows = make_rows([row for i in range(3) for row in records(model=f"model {i}", depth=40)])
    figure = plot("layers", rows, width="column")
    large = {line.get_marker(): len(line.get_xdata()) for line in figure.axes[0].lines if line.get_markersize() > 4}
    assert set(large) >= {"o", "s", "^"}
    handles = figure.legends[0].legend_handles[:3]
    assert [handle.get_markersize() for handle in handles] == [4.5] * 3


def test_a_narrow_legend_keeps_lines_together():
    names = ("bag-of-pieces", "length")
    more = [records()[0] | {"representation": name, "value": 0.1 * i} for i, name in enumerate(names)]
    rows = [row | {"null_mean": 0.0, "null_edge": 0.3} for row in records(model="a-model")]
    shown = [t.get_text() for t in plot("layers", make_rows([*rows, *more]), width="column").legends[0].get_texts()]
    at = sorted(shown.index(name) for name in ("length", "majority class", "bag of word pieces"))
    assert at == list(range(at[0], at[0] + 3))
