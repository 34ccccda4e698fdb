"""Figures: what stands in the Axes is what stands in the rows."""

import re

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from probekit.errors import UsageError
from probekit.plots import layer_curve, layer_panels, save
from probekit.rows import make_rows


def records(task="cola", model="tiny", depth=3, norm=False, shift=0.0, metric="matthews", **own):
    base = {
        "task": task, "split": "dev", "model": model, "representation": "mean", "estimator": "logistic",
        "target": "gold", "metric": metric, "seed": 0, "n": 1043,
    } | own  # fmt: skip
    rng = np.random.default_rng(depth)
    out = [base | {"layer": None, "representation": "none", "value": 0.0, "estimator": "majority"}]
    for layer in [*range(depth + 1), *(["final_norm"] if norm else [])]:
        value = shift + rng.random()
        out.append(base | {"layer": layer, "value": value, "ci_low": value - 0.1, "ci_high": value + 0.2})
    return out


@pytest.fixture
def ax():
    return Figure().subplots()


def labels(ax):
    return ax.get_legend_handles_labels()[1]


def test_the_axes_hold_the_rows(ax):
    rows = make_rows(records())
    assert layer_curve(rows.sample(frac=1, random_state=0), ax=ax) is ax  # whatever their order
    curve, baseline = ax.lines
    measured = rows[rows["layer_name"] != ""]
    np.testing.assert_array_equal(curve.get_xdata(), [0, 1, 2, 3])
    np.testing.assert_array_equal(curve.get_ydata(), measured["value"])
    np.testing.assert_array_equal(baseline.get_ydata(), [0.0, 0.0])
    band = ax.collections[0].get_paths()[0].vertices
    assert {round(y, 9) for y in band[:, 1]} == {round(y, 9) for c in ("ci_low", "ci_high") for y in measured[c]}
    assert ax.get_ylabel() == "Matthews correlation"
    assert ax.get_title(loc="left") == "cola"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2", "3"]
    assert labels(ax) == ["tiny", "majority class"]


def test_final_norm_stands_after_the_last_layer(ax):
    rows = make_rows(records(norm=True))
    layer_curve(rows, ax=ax)
    curve, norm = ax.lines[:2]
    assert len(curve.get_xdata()) == 4
    assert norm.get_xdata()[0] == 4
    assert norm.get_ydata()[0] == rows["value"].iloc[-1]
    assert [t.get_text() for t in ax.get_xticklabels()][-1] == "norm"


def test_a_curve_is_named_by_what_tells_it_apart(ax):
    rows = make_rows(
        [
            *records(model="org/a"),
            *records(model="org/a", checkpoint="random-1"),
            *records(model="b", target="shuffled"),
        ]
    )
    layer_curve(rows, ax=ax)
    assert labels(ax) == ["a, gold", "a, random weights 1, gold", "b, shuffled", "majority class"]
    model, random, shuffled = (ax.lines[i] for i in range(3))
    assert model.get_linestyle() == "-"
    assert random.get_linestyle() == shuffled.get_linestyle() == "--"
    red, green, blue = mpl.colors.to_rgb(random.get_color())
    assert red == green == blue


def test_of_several_metrics_the_first_or_the_one_asked_for(ax):
    rows = make_rows([*records(metric="f1"), *records(metric="accuracy", shift=5)])
    assert layer_curve(rows, ax=ax).get_ylabel() == "F1"
    other = layer_curve(rows, metric="accuracy", ax=Figure().subplots())
    assert other.get_ylabel() == "Accuracy"
    assert other.lines[0].get_ydata().min() >= 5
    with pytest.raises(UsageError, match="no rows of 'spearman'; it has f1, accuracy"):
        layer_curve(rows, metric="spearman", ax=ax)


def test_panels_share_their_styles():
    ridge = {"metric": "pearson", "estimator": "ridge"}
    rows = make_rows([*records(), *records(model="b"), *records("sts-b", "b", **ridge), *records("sts-b", **ridge)])
    figure = layer_panels(rows)
    cola, sts = figure.axes
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["cola", "sts-b"]
    assert cola.lines[1].get_color() == sts.lines[0].get_color() != cola.lines[0].get_color()
    [legend] = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["tiny", "b", "majority class"]
    assert len(layer_panels(rows, columns=1).axes) == 2


def test_deep_models_have_few_ticks(ax):
    layer_curve(make_rows(records(depth=32)), ax=ax)
    assert [int(t.get_text()) for t in ax.get_xticklabels()] == list(range(0, 33, 3))


def test_an_axes_of_ones_own_gets_a_figure_with_a_legend():
    with mpl.rc_context({"backend": "agg"}):
        ax = layer_curve(make_rows(records()))
        assert len(ax.figure.legends) == 1
        import matplotlib.pyplot as plt

        plt.close(ax.figure)


def test_what_cannot_be_drawn(ax):
    with pytest.raises(UsageError, match="one task, these are rows of cola, sst2; see layer_panels"):
        layer_curve(make_rows([*records(), *records("sst2")]), ax=ax)
    with pytest.raises(UsageError, match="tiny has two values for layer 0; were the same rows given twice"):
        layer_curve(make_rows([*records(), *records()]), ax=ax)
    with pytest.raises(UsageError, match="no rows to draw"):
        layer_panels(make_rows([]))


def test_files_hold_text_in_embedded_fonts_and_no_date(tmp_path):
    figure = layer_panels(make_rows(records()))
    pdf, svg, png = save(figure, [tmp_path / "new" / f"f{suffix}" for suffix in (".pdf", ".svg", ".png")])
    assert b"/Type /Font" in pdf.read_bytes()
    assert b"/Subtype /Type3" not in pdf.read_bytes()
    assert b"/FontFile2" in pdf.read_bytes()  # TrueType, embedded
    assert re.search("<text[^>]*>(.|\n)*cola", svg.read_text())
    first = [f.read_bytes() for f in (pdf, svg, png)]
    save(layer_panels(make_rows(records())), [pdf, svg, png])
    assert first == [f.read_bytes() for f in (pdf, svg, png)]
    assert len(list(pdf.parent.iterdir())) == 3
    with pytest.raises(UsageError, match=r"not '\.jpeg'"):
        save(figure, [tmp_path / "f.jpeg"])
