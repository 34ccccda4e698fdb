"""Figures as wide as a paper's columns: nothing is cut off, nothing overlaps, letters are as large as in print."""

from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from test_plot_differences import records as differences
from test_plot_domains import VALUES
from test_plot_domains import record as pair
from test_plot_layers import informed, records, tuned_on
from test_plot_mixes import run
from test_plot_trajectory import grid
from test_relation_plots import NAMES, crossed, points, said

from probekit.plots import (
    WIDTHS,
    difference_panels,
    domain_panels,
    layer_panels,
    mix_panels,
    relation_panels,
    trajectory_panels,
    transfer_panels,
)
from probekit.rows import make_rows

TASKS = ("cola", "sst2", "mrpc", "sts-b")
REGIMES = ({"regime": "fine-tune", "head": "linear"}, {"regime": "feature-extraction", "head": "esim"})


def of_layers(width):
    rows = [
        row
        for task in TASKS
        for own in ({}, {"random_weights": 0}, tuned_on(task, 0) | {"step": 99})
        for row in records(task, model="a-model-with-a-name-of-some-length", depth=12, **own)
    ]
    return layer_panels(make_rows(rows), width=width)


def of_trajectories(width):
    runs = [(task, run) for task in TASKS for run in ("feature-extraction.0", "again")]
    rows = [r for task, run in runs for r in grid(task=task, checkpoint=run, model="some-model")[0]]
    return trajectory_panels(make_rows(rows), width=width)


def of_mixes(width):
    tasks = (*TASKS, "mnli:government")
    return mix_panels(make_rows([r for t in tasks for r in run([0.2, 0.3, 0.5], t)]), width=width)


def of_estimators(width):
    how = {"edge": (0.2, 0.4, None, 0.3), "edge-4.3.1": (0.001,) * 4, "kernel-upper": (None,) * 4}
    many = [(t, e, v) for t in TASKS[:2] for e, v in [*how.items(), ("knn", how["edge"]), ("binning", (None,) * 4)]]
    return layer_panels(make_rows([r for t, e, v in many for r in informed(t, e, v)]), width=width)


def of_relations(width):
    own = [{**how, "corpus": corpus} for corpus in ("wikipedia", "novels") for how in REGIMES]
    told = [said(name, -0.5, 0.0002, **o) for o in own for name in ("pearson", "spearman", "kendall")]
    return relation_panels(make_rows([r for o in own for r in points(**o)]), make_rows(told), width=width)


def of_losses(width):
    rows = [r for how in REGIMES for r in crossed(NAMES, **how) if r["trained_on"] != r["domain"]]
    return relation_panels(make_rows(rows), width=width)


def of_transfers(width):
    return transfer_panels(make_rows([r for how in REGIMES for r in crossed(NAMES, **how)]), width=width)


def of_differences(width):
    return difference_panels(make_rows(differences()), width=width)


def of_domains(width):
    return domain_panels(make_rows([pair(*names, value) for names, value in VALUES.items()]), width=width)


KINDS = (
    *(of_layers, of_estimators, of_trajectories, of_mixes, of_differences),
    *(of_domains, of_relations, of_losses, of_transfers),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "width"),
    [pytest.param(draw, width, id=f"{draw.__name__}-{name}") for draw in KINDS for name, width in WIDTHS.items()],
)
def test_a_figure_has_the_width_of_the_paper(draw, width):
    figure = draw(width)
    FigureCanvasAgg(figure)
    figure.set_dpi(200)
    figure.draw_without_rendering()
    assert figure.get_figwidth() == width
    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text()]
    assert min(t.get_fontsize() for t in shown) >= 6
    for ax in figure.axes:
        x, y = ([t.label1 for t in axis._update_ticks()] for axis in (ax.xaxis, ax.yaxis))  # of those within the ends
        below = [t for t in x if t.get_text() and not t.get_rotation()]
        titles = [ax.title, ax._left_title, *ax.texts]
        boxes = [t.get_window_extent() for t in (*below, *y, *titles) if t.get_text()]
        assert all(figure.bbox.x0 <= b.x0 < b.x1 <= figure.bbox.x1 + 0.5 for b in boxes)
        assert all(figure.bbox.y0 <= b.y0 < b.y1 <= figure.bbox.y1 + 0.5 for b in boxes)
        labels = [t.get_window_extent() for t in below]
        assert not any(a.overlaps(b) for a, b in combinations(labels, 2))
        for label in (ax.xaxis.label, ax.yaxis.label):
            box = label.get_window_extent()
            assert not label.get_text() or figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1 + 0.5
    heads = [t.get_window_extent() for ax in figure.axes for t in (*ax.texts[:1], ax._left_title) if t.get_text()]
    if draw not in (of_domains, of_transfers, of_relations):  # whose texts are numbers in cells, or the next test's
        assert not any(a.overlaps(b) for a, b in combinations(heads, 2))
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_as_many_panels_side_by_side_as_there_is_room_for():
    def across(figure):
        return len({round(ax.get_position().x0, 1) for ax in figure.axes})

    rows = make_rows([r for t in TASKS for r in run([0.2, 0.3, 0.5], t)])
    assert [across(mix_panels(rows, width=w)) for w in (1.5, 3.03, 6.3, 20)] == [1, 2, 4, 4]
    assert across(mix_panels(rows, width=6.3, columns=2)) == 2
