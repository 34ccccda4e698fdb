"""Learning curves: results against the number of training examples."""

import numpy as np
import pytest

from probekit.errors import UsageError
from probekit.plots import learning_panels, learning_rows, plot
from probekit.rows import make_rows


def run(model, examples, value, *, seed=0, task="sst2", **more):
    """The kept evaluation of a run, and an earlier one."""
    base = {
        "analysis": "train", "task": task, "trained_on": task, "split": "dev", "model": model, "metric": "accuracy",
        "checkpoint": f"{model}-{examples}-{seed}", "regime": "feature-extraction", "head": "max-mlp",
        "variant": f"n={examples}", "n": 872, "representation": "tokens", "estimator": "", "target": "gold",
        "seed": seed, "examples": examples,
    } | more  # fmt: skip
    ends = {"ci_low": value - 0.02, "ci_high": value + 0.04}
    return [
        base | {"value": 0.1, "step": 5, "headline": False},
        base | ends | {"value": value, "step": 10, "headline": True},
    ]


ROWS = [
    *run("a", 1000, 0.8), *run("a", 100, 0.6), *run("a", 100, 0.7, seed=1), *run("org/b", 100, 0.5),
    *run("a", 100, 0.55, task="rte"),
    *run("a", 400, 0.99, regime="pretrain", trained_on="sst2"),
]  # fmt: skip


def test_points_are_main_metrics_by_number_of_training_examples():
    found = learning_rows(make_rows(ROWS))
    points = found[["task", "label", "examples", "value", "ci_low", "ci_high", "seeds"]].round(9)
    assert list(points.itertuples(index=False, name=None)) == [
        ("sst2", "a", 1000, 0.8, 0.78, 0.84, 1), ("sst2", "a", 100, 0.65, 0.63, 0.69, 2),
        ("sst2", "org/b", 100, 0.5, 0.48, 0.54, 1), ("rte", "a", 100, 0.55, 0.53, 0.59, 1),
    ]  # fmt: skip
    tuned = run("a", 100, 0.9, regime="fine-tune", head="linear")
    assert set(learning_rows(make_rows([*ROWS, *tuned]))["label"]) == {
        "a, feature-extraction, max-mlp", "org/b, feature-extraction, max-mlp", "a, fine-tune, linear",
    }  # fmt: skip


def test_a_panel_for_each_task_and_a_curve_for_each_model(tmp_path):
    figure = learning_panels(make_rows(ROWS))
    first, second = figure.axes
    curve = next(line for line in first.lines if line.get_label() == "a")
    np.testing.assert_allclose(curve.get_xdata(), [100, 1000])
    np.testing.assert_allclose(curve.get_ydata(), [0.65, 0.8])
    assert (first.get_xscale(), first.get_xlabel()) == ("log", "Training examples")
    assert [text.get_text() for text in second.get_xticklabels()] == ["100"]
    assert len(first.containers) == 3
    plot("learning", make_rows(ROWS), out=tmp_path / "a.png", dpi=40)
    caption = (tmp_path / "a.caption.txt").read_text()
    assert (
        "Results against the number of training examples. Accuracy. n = 872. Means over 1 to 2 seeds. Bars: 95 %"
        in caption
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS, *run("a", 100, 0.9, variant="other")], "a has two values for 100 training examples and one seed"),
        ([{**row, "headline": False} for row in ROWS], "no training runs with their number of training examples"),
        ([{k: v for k, v in row.items() if k != "examples"} for row in ROWS], "column examples"),
    ],
)
def test_what_cannot_be_drawn(rows, message):
    with pytest.raises(UsageError, match=message):
        learning_panels(make_rows(rows))
