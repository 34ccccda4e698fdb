"""Probes of one model on another as curves by layer, and as a matrix of layers."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from probekit.errors import UsageError
from probekit.plots.curves import plot_rows
from probekit.plots.directions import caption, direction_panels
from probekit.plots.layers import curve_rows
from probekit.plots.look import Look
from probekit.plots.options import PlotOptions
from probekit.rows import make_rows

ABOUT = {
    "analysis": "directions", "task": "cola", "split": "dev", "model": "m", "checkpoint": "cola.fine-tune.0",
    "regime": "fine-tune", "head": "linear", "trained_on": "cola", "run_seed": 0, "against_model": "m, mean",
    "representation": "mean", "estimator": "logistic", "target": "gold", "n": 500, "n_train": 1500, "note": "",
}  # fmt: skip
LOST = {"native": 0.0, "as is": 0.2, "rescaled": 0.1, "mapped": 0.03}


def records(layers: int = 3, **own: Any) -> list[dict[str, Any]]:
    """Both ways, values on all pairs of layers, a row of a control, and angles."""
    found: list[dict[str, Any]] = []
    for way in ("forward", "back", "both"):
        for i in range(layers):
            here = ABOUT | own | {"way": way, "layer": i, "fitted_layer": str(i), "metric": "accuracy"}
            for after, lost in LOST.items():
                value = 0.8 + 0.1 * i / layers - lost * (i + 1) / layers
                ends = {"ci_low": value - 0.03, "ci_high": value + 0.03}
                found.append(here | {"after": after, "value": value} | ends)
                angle = {"metric": "direction-angle", "value": 100 * lost, "within_halves": 30.0, "null_low": 85.0}
                found += [here | {"after": after} | angle] if way != "both" and after != "native" else []
            found += [
                here | {"after": "mapped", "fitted_layer": str(j), "value": 0.6 + (i + j) / 100}
                for j in range(layers) if j != i and way != "both"
            ]  # fmt: skip
        found.append(here | {"after": "mapped", "target": "unrelated rows", "value": 0.5})
    return found


def test_lines_are_what_was_done_before_in_a_panel_for_each_way() -> None:
    figure = direction_panels(make_rows(records()))
    assert [[line.get_label() for line in ax.lines if line.get_label()[0] != "_"] for ax in figure.axes] == [
        [*LOST], [*LOST]
    ]  # fmt: skip
    under = [ax.texts[0].get_text().replace("\n", " ") for ax in figure.axes]
    assert under == [
        "pretrained probes on fine-tuned, dev, n = 500", "fine-tuned probes on pretrained, dev, n = 500"
    ]  # fmt: skip
    assert len({ax.get_ylim() for ax in figure.axes}) == 1
    [curve] = [line for line in figure.axes[0].lines if line.get_label() == "as is"]
    assert curve.get_ydata().tolist() == pytest.approx([0.8 + 0.1 * i / 3 - 0.2 * (i + 1) / 3 for i in range(3)])


def test_layers_draws_both_ways_together() -> None:
    points = curve_rows(make_rows(records()))
    assert points["label"].unique().tolist() == [f"m, {after}" for after in LOST]
    assert set(points["way"]) == {"both"}


def test_a_matrix_has_the_layer_of_the_probe_on_its_lines() -> None:
    figure = direction_panels(make_rows(records()), matrix="mapped")
    FigureCanvasAgg(figure)
    left, right, _ = figure.axes
    cells = left.images[0].get_array()
    assert cells[0, 2] == pytest.approx(0.62)
    assert cells[2, 2] == pytest.approx(0.8 + 0.2 / 3 - 0.03)
    assert [ax.get_title(loc="left").replace("\n", " ") for ax in (left, right)] == [
        "pretrained probes on fine-tuned", "fine-tuned probes on pretrained"
    ]  # fmt: skip
    alone = make_rows(row for row in records() if row["fitted_layer"] == str(row["layer"]))
    with pytest.raises(UsageError, match="make them again without --no-other-layers"):
        direction_panels(alone, matrix="mapped")
    with pytest.raises(UsageError, match="no layer has values after as-is"):
        direction_panels(make_rows(row for row in records() if row["after"] != "as is"), matrix="as-is")
    with pytest.raises(UsageError, match="there are no rows of probekit directions"):
        direction_panels(make_rows(row | {"analysis": "probe"} for row in records()))


def test_the_caption_says_what_the_lines_are_and_how_far_halves_are_apart() -> None:
    rows = make_rows(records())
    words = " ".join(caption(plot_rows(rows), PlotOptions(metric="direction-angle"), Look()))
    assert (
        "native probes of two halves of train are 30 to 30 degrees apart, 95 % of random directions more than 85"
        in words
    )
    words = " ".join(caption(plot_rows(rows), PlotOptions(), Look()))
    assert "Native: the probes of the model that is read." in words
    assert "95 % intervals" in words
