"""Figures of whether distance explains adaptation: what is drawn is what stands in the rows."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from probekit.errors import UsageError
from probekit.plots import plot, relation_panels, transfer_matrix, transfer_panels
from probekit.rows import make_rows

NAMES = ["fiction", "travel", "telephone", "slate", "$government$"]


def record(value, **own):
    return {
        "task": "mnli", "split": "dev", "model": "a/minilm", "layer": None, "representation": "none",
        "regime": "fine-tune", "head": "linear", "estimator": "", "target": "gold",
        "analysis": "transfer", "metric": "accuracy", "value": value, "n": 100,
        "ci_low": value - 0.02, "ci_high": value + 0.04,
    } | own  # fmt: skip


def points(**own):
    return [
        record(0.7 + k / 100, domain=d, corpus="wikipedia", x=0.2 - k / 50, x_low=0.19 - k / 50, x_high=0.25) | own
        for k, d in enumerate(NAMES)
    ]


def crossed(names=NAMES[:3], **own):
    return [
        record(0.5 + i / 10 + j / 100, trained_on=a, domain=b, corpus="", x=abs(i - j) / 10, x_low=None, x_high=None)
        | own
        for i, a in enumerate(names)
        for j, b in enumerate(names)
    ]


def said(metric, value, p, **own):
    own = {"corpus": "wikipedia", "of_metric": "accuracy", "p": p, "ci_low": value - 0.1, "ci_high": value + 0.1} | own
    return record(value, metric=metric, **own)


def marks(ax):
    return {(float(x), float(y)) for line in ax.lines for x, y in [(line.get_xdata()[0], line.get_ydata()[0])]
            if line.get_marker() not in ("_", "|", "None")}  # fmt: skip


def test_a_panel_for_each_corpus_metric_and_regime():
    rows = [*points(), *points(regime="feature-extraction"), *points(corpus="novels")]
    figure = relation_panels(make_rows(rows), columns=2)
    assert [ax.get_title("left") for ax in figure.axes] == [
        "fine-tuning, linear", "feature extraction, linear", "fine-tuning, linear"]  # fmt: skip
    assert [ax.get_xlabel() for ax in figure.axes] == [
        f"Distance from {c}" for c in ("wikipedia", "wikipedia", "novels")
    ]
    assert figure.axes[0].get_ylabel() == "Accuracy"
    two = relation_panels(make_rows([*points(), *points(model="b/gpt")]))
    below = [next(t.get_text() for t in ax.texts if not isinstance(t, Annotation)) for ax in two.axes]
    assert below == ["MNLI, MiniLM, dev", "MNLI, gpt, dev"]
    other = relation_panels(make_rows([*points(), *points(corpus="novels", value=0.2)]))
    assert len({ax.get_ylim() for ax in other.axes}) == 1  # one metric, one scale


def test_points_stand_where_the_rows_say_with_their_intervals():
    (ax,) = relation_panels(make_rows(points())).axes
    assert marks(ax) == {(p["x"], p["value"]) for p in points()}
    across, up = (ax.containers[0].lines[2][k].get_segments()[0] for k in (0, 1))
    np.testing.assert_allclose(across, [[0.19, 0.7], [0.25, 0.7]])
    np.testing.assert_allclose(up, [[0.2, 0.68], [0.2, 0.74]])
    names = {t.xy: t.get_text() for t in ax.texts if isinstance(t, Annotation)}
    assert names == {(p["x"], p["value"]): p["domain"] for p in points()}
    (bare,) = relation_panels(make_rows(points(ci_low=None, ci_high=None, x_low=None, x_high=None))).axes
    assert bare.containers[0].lines[2] == ()


def test_names_keep_out_of_each_others_way():
    near = [p | {"x": 0.1 + 0.01 * (k % 2), "value": 0.7 + 0.001 * k} for k, p in enumerate(points(x_low=0, x_high=1))]
    far = [near[0] | {"domain": d, "x": x, "value": x} for d, x in (("left", 0.0), ("right", 1.0))]
    figure = relation_panels(make_rows([*near[:3], *far]))
    figure.draw_without_rendering()
    boxes = [t.get_window_extent() for t in figure.axes[0].texts if isinstance(t, Annotation)]
    assert len(boxes) == 5
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


@pytest.mark.parametrize("width", [3.03, *(pytest.param(one, marks=pytest.mark.slow) for one in (6.3, None))])
def test_names_cover_neither_points_nor_intervals(width):
    own = ({"corpus": corpus, "estimator": how} for corpus in ("wikipedia", "novels") for how in ("a", "b"))
    spread = [(0.31, 0.63), (0.24, 0.595), (0.2, 0.624), (0.16, 0.53), (0.1, 0.588)]
    rows = [
        p | {"x": x, "x_low": x - 0.01, "x_high": x + 0.01, "value": y, "ci_low": y - 0.02, "ci_high": y + 0.02}
        for o in own
        for p, (x, y) in zip(points(**o), spread, strict=True)
    ]
    figure = relation_panels(make_rows(rows), width=width)
    figure.draw_without_rendering()
    for ax in figure.axes:
        names = [t.get_window_extent() for t in ax.texts if isinstance(t, Annotation)]
        bars = [s for c in ax.containers for arms in c.lines[2] for s in arms.get_segments()]
        ends = [ax.transData.transform(segment) for segment in bars]
        assert len(ends) == 10
        covered = [Bbox.from_extents(*a, *b).padded(0.5) for a, b in ends]
        assert not any(name.overlaps(other) for name in names for other in covered)
        assert not any(a.overlaps(b) for a, b in combinations(names, 2))
        assert all(ax.bbox.x0 <= n.x0 and n.x1 <= ax.bbox.x1 for n in names)


@pytest.mark.slow
def test_a_line_is_of_one_corpus_or_of_all():
    """As many regimes side by side as there are, else the corpora."""
    own = [{"estimator": how, "corpus": corpus} for corpus in ("wikipedia", "novels") for how in "abc"]
    rows = make_rows([r for o in own for r in points(**o)])
    wide, narrow = (relation_panels(rows, width=width) for width in (9, 6.3))
    titles = [[ax.get_title("left") for ax in figure.axes] for figure in (wide, narrow)]
    assert titles == [["a", "b", "c", "a", "b", "c"], ["a", "a", "b", "b", "c", "c"]]


def test_one_correlation_stands_above_its_panel_and_the_caption_has_the_others(tmp_path):
    relations = [
        said("pearson", -0.5, 0.42, caution="5 points carry little."), said("kendall", -0.4, 0.0002),
        said("pearson", np.nan, np.nan, corpus="novels"),
    ]  # fmt: skip
    rows = make_rows(
        [*points(x_metric="js-divergence"), *points(corpus="novels", x_metric="js-divergence"), *relations]
    )
    figure = plot("relation", rows, out=tmp_path / "of.png", dpi=40)
    texts = [next(t.get_text() for t in ax.texts if not isinstance(t, Annotation)) for ax in figure.axes]
    data = "MNLI, MiniLM, dev\n"
    assert texts == [f"{data}Pearson's r −0.50 [−0.60, −0.40], p = 0.420", f"{data}Pearson's r undefined"]
    assert figure.axes[0].get_xlabel().replace("\n", " ") == "Jensen-Shannon divergence (bits) from wikipedia"
    caption = (tmp_path / "of.caption.txt").read_text()
    assert "Also: fine-tuning, linear, distance from wikipedia: Kendall's τ −0.40, p < .001." in caption
    assert "Distance: Jensen-Shannon divergence." in caption
    assert "5 points carry little." in caption


def lost(names, **own):
    own = {"metric": "lost(accuracy)", "ci_low": None, "ci_high": None} | own
    return [r | own for r in crossed(names) if r["trained_on"] != r["domain"]]


def test_pairs_have_the_colour_and_number_of_one_domain_and_the_shape_of_the_other(tmp_path):
    rows = [r | {"x_low": 0.05, "x_high": 0.3} for r in lost(NAMES[:3])]
    both = [said("pearson", r, 0.02, corpus="", of_metric="lost(accuracy)", adjust=adjust)
            for adjust, r in (("in-domain", 0.4), ("effects", 0.8))]  # fmt: skip
    figure = plot("relation", make_rows([*rows, *both]), transfer=True, width="page", out=tmp_path / "of.png", dpi=40)
    (ax,), (legend,) = figure.axes, figure.legends
    looks = {
        t.get_text(): (h.get_color(), h.get_marker())
        for t, h in zip(legend.get_texts(), legend.legend_handles, strict=True)
    }
    assert looks.pop("95 % interval of the distance")[1] == "_"
    assert list(looks) == [f"{k} {name}" for k, name in enumerate(NAMES[:3], 1)]
    of = dict(zip(NAMES, looks.values(), strict=False))
    drawn = {(c.lines[0].get_ydata()[0], c.lines[0].get_color(), c.lines[0].get_marker()) for c in ax.containers}
    assert drawn == {(r["value"], of[r["domain"]][0], of[r["trained_on"]][1]) for r in rows}
    places = [c.lines[0].get_xdata()[0] for c in ax.containers]
    assert len(set(places)) > len({r["x"] for r in rows})  # the directions of a pair are side by side
    assert sorted(t.get_text() for t in ax.texts)[:6] == ["1", "1", "2", "2", "3", "3"]
    assert ax.get_xlabel() == "Distance of the two domains"
    above = next(t.get_text() for t in ax.texts if "\n" in t.get_text())
    assert above.splitlines()[1:] == [
        "Pearson's r 0.40 [0.30, 0.50], p = 0.020", "Pearson's r, adjusted 0.80 [0.70, 0.90], p = 0.020"]  # fmt: skip
    caption = (tmp_path / "of.caption.txt").read_text()
    assert "Adjusted: without what each domain adds as training and as evaluation domain." in caption
    assert "Bars: 95 % intervals of the distance; the rows have none of the loss." in caption


def test_pairs_of_many_domains_have_one_colour():
    figure = relation_panels(make_rows(lost([f"domain {i}" for i in range(9)])))
    assert len({c.lines[0].get_color() for c in figure.axes[0].containers}) == 1
    assert not figure.legends


def test_the_matrix_is_trained_on_by_evaluated_on():
    ax = transfer_matrix(make_rows(crossed()), ax=Figure().subplots())
    values = np.ma.filled(ax.images[0].get_array(), np.nan)
    np.testing.assert_allclose(values, [[0.5, 0.51, 0.52], [0.6, 0.61, 0.62], [0.7, 0.71, 0.72]])
    assert [t.get_text() for t in ax.get_yticklabels()] == [t.get_text() for t in ax.get_xticklabels()] == NAMES[:3]
    assert [t.get_text() for t in ax.texts][:2] == [".50", ".51"]
    assert sum(isinstance(p, Rectangle) for p in ax.patches) == 3
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Evaluated on", "Trained on")


def test_a_matrix_may_have_gaps_and_other_rows_than_columns():
    rows = [*crossed()[1:], record(0.9, trained_on="all", domain="travel", corpus="", x=0, x_low=0, x_high=0)]
    ax = transfer_matrix(make_rows(rows), ax=Figure().subplots())
    values = np.ma.filled(ax.images[0].get_array(), np.nan)
    down, along = ([t.get_text() for t in labels] for labels in (ax.get_yticklabels(), ax.get_xticklabels()))
    assert down[-1] == "all"
    assert values[3, along.index("travel")] == 0.9
    assert np.isnan(values[down.index("fiction"), along.index("fiction")])
    assert np.isnan(values).sum() == 3
    assert len(ax.texts) == 9


def test_regimes_share_one_scale():
    rows = make_rows([*crossed(), *crossed(estimator="esim", value=0.2), *crossed(metric="f1")])
    figure = transfer_panels(rows, metric="accuracy")
    left, right, bar = figure.axes
    assert [ax.get_title("left") for ax in (left, right)] == ["fine-tuning, linear", "ESIM"]
    assert [ax.images[0].get_clim() for ax in (left, right)] == [(0.2, pytest.approx(0.72))] * 2
    assert bar.get_ylabel() == "Accuracy"
    assert len(transfer_panels(rows, metric="f1").axes) == 2
    figure.canvas.draw()


def test_what_cannot_be_drawn():
    with pytest.raises(UsageError, match="fiction has two values"):
        relation_panels(make_rows([*points(), points()[0]]))
    with pytest.raises(UsageError, match="lack the columns domain, corpus, x, x_low, x_high"):
        relation_panels(make_rows([record(0.5)]))
    with pytest.raises(UsageError, match="no rows to draw"):
        relation_panels(make_rows(points())[:0])
    with pytest.raises(UsageError, match="lack the columns of_metric"):
        relation_panels(make_rows(points()), make_rows([record(0.5, corpus="", p=0.1)]))
    with pytest.raises(UsageError, match="use transfer_panels"):
        transfer_matrix(make_rows([*crossed(), *crossed(estimator="esim")]))
    with pytest.raises(UsageError, match="contain no f1, only accuracy"):
        transfer_panels(make_rows(crossed()), metric="f1")
    with pytest.raises(UsageError, match="fiction → fiction has two values"):
        transfer_matrix(make_rows([*crossed(), *crossed()]))
