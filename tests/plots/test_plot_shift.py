"""Heat maps of probes of one data set on others."""

from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from probekit.errors import UsageError
from probekit.plots import plot, shift_panels, shift_values
from probekit.plots.figure import details
from probekit.plots.look import Look
from probekit.plots.options import PlotOptions
from probekit.rows import make_rows

ABOUT = {"analysis": "shift", "split": "dev", "model": "m", "representation": "mean", "estimator": "mass-mean",
         "target": "gold", "n": 9, "n_train": 20}  # fmt: skip
AUROC = {(0, "a", "a"): 0.6, (0, "a", "b"): 0.9, (0, "b", "a"): 0.9, (0, "b", "b"): 0.6,
         (1, "a", "a"): 0.8, (1, "a", "b"): 0.2, (1, "b", "a"): 0.4, (1, "b", "b"): 0.7}  # fmt: skip
WEIGHTS: tuple[dict[str, Any], ...] = ({}, {"checkpoint": "random-3", "random_weights": 3})


def records() -> list[dict[str, Any]]:
    """Two data sets and two layers; on layer 1 the diagonal is higher, with random weights on layer 0."""
    found = []
    for weights in WEIGHTS:
        for (layer, a, b), value in AUROC.items():
            cell = {**ABOUT, **weights, "layer": layer, "trained_on": a, "task": b}
            share = 1 - layer / 2 if weights else value
            found.append(cell | {"metric": "auroc", "value": share, "ci_low": share - 0.1, "ci_high": share + 0.1})
            found.append(cell | {"metric": "false-positive-rate", "value": layer / 4 + 0.1, "rate": 0.01})
            found += [cell | {"target": "shuffled", "draw": draw, "metric": "auroc", "value": v}
                      for draw, v in enumerate((0.45, 0.55))]  # fmt: skip
            if a != b:
                p = 0.001 if (a, b) == ("a", "b") and not weights else 0.3
                found.append(cell | {"metric": "difference(auroc)", "value": -0.5, "p": p / 4, "p_adjusted": p})
    return found


def test_cells_are_of_the_layer_with_the_highest_diagonal_of_trained_weights() -> None:
    values = shift_values(make_rows(records()))
    assert set(values["layer"]) == {1}
    assert values["chosen"].all()
    trained = values[~values["random"]].set_index(["trained_on", "task"])
    assert trained["value"].to_dict() == {(a, b): value for (layer, a, b), value in AUROC.items() if layer}
    assert trained["p_difference"].to_dict() == pytest.approx(
        {("a", "a"): np.nan, ("a", "b"): 0.001, ("b", "a"): 0.3, ("b", "b"): np.nan}, nan_ok=True
    )
    rates = shift_values(make_rows(records()), "false-positive-rate")
    assert set(rates["layer"]) == {1}, "every metric is drawn at the same layer"
    assert rates["p_difference"].isna().all()
    assert set(shift_values(make_rows(records()), layer="0")["value"]) == {0.6, 0.9, 1.0}


def test_numbers_colours_and_frames_are_those_of_the_cells() -> None:
    figure = shift_panels(make_rows(records()))
    left, right, bar = figure.axes
    assert [ax.get_title(loc="left") for ax in (left, right)] == ["m", "m, random weights 3"]
    assert {t.get_position(): t.get_text() for t in left.texts} == {
        (0, 0): ".80", (1, 0): ".20", (0, 1): ".40", (1, 1): ".70"
    }  # fmt: skip
    assert np.asarray(left.images[0].get_array()).tolist() == [[0.8, 0.2], [0.4, 0.7]]
    assert left.images[0].get_clim() == (0, 1)
    (frame,) = left.patches
    assert isinstance(frame, Rectangle)
    assert (round(frame.get_x() + 0.45), round(frame.get_y() + 0.44)) == (1, 0)
    assert not right.patches
    assert [label.get_text() for label in left.get_yticklabels()] == ["a", "b"]
    assert bar.get_xlabel().replace(",\n", ", ") == "AUROC, mass-mean probe, layer 1"  # below, as the figure is narrow
    two = make_rows([row | {"estimator": name} for row in records() for name in ("mass-mean", "logistic")])
    assert shift_panels(two).axes[0].get_title(loc="left").split() == "m mass-mean probe, layer 1".split()
    both = shift_panels(make_rows(records()), level=0.5).axes
    assert [len(ax.patches) for ax in both[:2]] == [2, 2]


def test_the_caption_says_which_layer_and_why() -> None:
    rows = make_rows(records())
    words = details("shift", rows, PlotOptions(), Look())
    assert "The layer with the highest mean AUROC of the diagonal, on the evaluated examples (m: layer 1)." in words
    assert "p of at most 0.05; paired" in words
    assert words.startswith("AUROC (dev, n = 9 in each data set). ")
    assert "none reaches farther from its value than 0.1." in words
    asked = details("shift", rows, PlotOptions(layer="0", metric="false-positive-rate"), Look())
    assert "At 1 % false positives in train" in asked
    assert "highest mean" not in asked
    assert "Framed" not in asked


def test_what_cannot_be_drawn_is_refused() -> None:
    rows = records()
    with pytest.raises(UsageError, match="the rows have no layer '7'; they have 0, 1"):
        plot("shift", make_rows(rows), layer="7")
    with pytest.raises(UsageError, match="no 'f1'; they have auroc, false-positive-rate"):
        plot("shift", make_rows(rows), metric="f1")
    with pytest.raises(UsageError, match="the probe of a on a has two values in m; were the rows given twice"):
        plot("shift", make_rows([*rows, *rows]))
    with pytest.raises(UsageError, match="give those of probekit shift"):
        plot("shift", make_rows([row | {"analysis": "probe"} for row in rows]))


def test_curves_by_layer_are_those_of_each_training_set() -> None:
    rows = make_rows([row for row in records() if "random_weights" not in row])
    figure = plot("layers", rows, metric="auroc")
    drawn = {}
    for ax, task in zip(figure.axes, ("a", "b"), strict=True):
        for line in ax.get_lines():
            if "trained on" in str(line.get_label()):
                drawn[str(line.get_label())[-1], task] = np.asarray(line.get_ydata()).tolist()
    assert drawn == {(a, b): [AUROC[0, a, b], AUROC[1, a, b]] for a in "ab" for b in "ab"}
