"""Expected validation performance as a figure and as a table."""

import numpy as np
import pytest

from probekit.errors import UsageError
from probekit.plots import expected_panels, expected_values, plot
from probekit.rows import make_rows
from probekit.tables import table

ABOUT = {
    "analysis": "expected-performance", "task": "rte", "split": "dev", "model": "m", "regime": "fine-tune",
    "head": "linear", "variant": "", "representation": "first", "estimator": "", "target": "gold", "n": 100,
    "metric": "accuracy", "drawn": "random",
}  # fmt: skip


def curve(values, **more):
    return [
        {**ABOUT, "trials": n, "value": v, "unbiased": v + 0.01, "sd": 0.05, **more} for n, v in enumerate(values, 1)
    ]


def test_a_curve_for_each_search(tmp_path):
    rows = make_rows([*curve([0.5, 0.6, 0.65]), *curve([0.4, 0.7], regime="feature-extraction", drawn="tpe")])
    labels = ["m, feature-extraction, tpe", "m, fine-tune, random"]
    assert sorted(expected_values(rows)["label"].unique()) == labels
    (ax,) = expected_panels(rows).axes
    drawn = {line.get_label(): line.get_xydata() for line in ax.get_lines() if line.get_label() in labels}
    assert np.allclose(drawn[labels[1]], [[1, 0.5], [2, 0.6], [3, 0.65]])
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() <= 0.71 + 1e-9  # not above the best trial
    assert (ax.get_ylabel(), list(ax.get_xticks())) == ("Expected accuracy", [1, 2, 3])
    plot("expected", rows, out=tmp_path / "a.png", dpi=40)
    assert "not independent" in (tmp_path / "a.caption.txt").read_text()
    with pytest.raises(UsageError, match="two searches have the same name"):
        expected_values(make_rows([*curve([0.5]), *curve([0.6])]))
    with pytest.raises(UsageError, match="no searches"):
        expected_values(rows.assign(analysis="train"))


def test_the_table_has_a_column_for_each_budget():
    made = table("expected", make_rows(curve(np.linspace(0.5, 0.8, 12))))
    grid = made.parts[0]
    assert [column.name for column in grid.columns[2:]] == ["1", "2", "5", "10", "12"]
    assert grid.rows[0][2] == "0.500 ± 0.050 (0.510)"
    with pytest.raises(UsageError, match="no searches"):
        table("expected", make_rows(curve([0.5])).assign(analysis="train"))


def test_a_legend_stands_in_the_empty_place_of_the_last_line():
    rows = make_rows([r for task in ("rte", "cola", "mrpc") for r in curve([0.5, 0.6, 0.65], task=task)])
    figure = plot("expected", rows, width="column")
    figure.draw_without_rendering()
    [legend], last = figure.legends, figure.axes[2].get_window_extent()
    box = legend.get_window_extent()
    assert box.x0 > last.x1
    assert last.y0 < box.y0 < box.y1 < figure.axes[1].get_tightbbox().y0
    assert plot("expected", rows, width="page").legends[0].get_window_extent().y1 < 60
