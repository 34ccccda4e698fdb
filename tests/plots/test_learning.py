"""Learning curves: results against the number of training examples."""

import numpy as np
import pytest

from probekit.errors import UsageError
from probekit.plots import learning_panels, learning_rows, plot
from probekit.plots.figure import details
from probekit.plots.look import GREYS, Look
from probekit.plots.options import PlotOptions
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
        ("sst2", "b", 100, 0.5, 0.48, 0.54, 1), ("rte", "a", 100, 0.55, 0.53, 0.59, 1),
    ]  # fmt: skip
    tuned = run("a", 100, 0.9, regime="fine-tune", head="linear")
    assert set(learning_rows(make_rows([*ROWS, *tuned]))["label"]) == {
        "a, feature-extraction, max-mlp", "b, feature-extraction, max-mlp", "a, fine-tune, linear",
    }  # fmt: skip


def test_a_panel_for_each_task_and_a_curve_for_each_model(tmp_path):
    figure = learning_panels(make_rows(ROWS))
    first, second = figure.axes
    curve = next(line for line in first.lines if line.get_label() == "a")
    other = next(line for line in first.lines if line.get_label() == "b")
    beside, alone = curve.get_xdata()
    np.testing.assert_allclose([beside * other.get_xdata()[0], alone], [100**2, 1000])  # side by side, around 100
    assert beside < 100 < other.get_xdata()[0] < 110
    np.testing.assert_allclose(curve.get_ydata(), [0.65, 0.8])
    assert (first.get_xscale(), first.get_xlabel()) == ("log", "Training examples")
    assert [text.get_text() for text in second.get_xticklabels()] == ["100"]
    assert len(first.containers) == 3
    plot("learning", make_rows(ROWS), out=tmp_path / "a.png", dpi=40)
    caption = (tmp_path / "a.caption.txt").read_text()
    assert (
        "training examples. Accuracy. n = 872. Runs: feature extraction, max-mlp. Means over 1 to 2 seeds." in caption
    )
    [dashes] = [line for line in first.lines if line.get_marker() == "_"]
    assert sorted(dashes.get_ydata()) == [0.6, 0.7]  # the two runs


def test_constant_predictions_are_dotted_and_random_weights_grey():
    whole = {"examples": None, "estimator": "majority", "regime": "", "head": "", "headline": False}
    constant = [row | whole | {"value": 0.45} for row in run("a", 100, 0.6)[:1]]
    rows = make_rows(
        [*ROWS, *constant, *run("a", 100, 0.52, random_weights=0), *run("a", 1000, 0.53, random_weights=0)]
    )
    figure = plot("learning", rows)
    lines = {line.get_label(): line for line in figure.axes[0].lines if line.get_label()[0] != "_"}
    assert list(lines["majority class"].get_ydata()) == [0.45, 0.45]
    assert lines["a, random weights"].get_color() in GREYS
    assert lines["a, random weights"].get_linestyle() == "--"
    assert "majority class" not in [line.get_label() for line in figure.axes[1].lines]  # of another task
    assert "Dotted lines: majority class." in details("learning", rows, PlotOptions(), Look())


def test_first_and_last_number_of_examples_are_named():
    rows = make_rows([row for n in (32, 100, 316, 1000, 3162, 9000) for row in run("a", n, 0.5)])
    ax = plot("learning", rows, width=1.5).axes[0]
    shown = [text.get_text() for text in ax.get_xticklabels()]
    assert (shown[0], shown[-1]) == ("32", "9,000")
    assert len(shown) < 6


def test_points_of_many_curves_stay_nearer_to_their_size_than_to_the_next():
    sizes = [100 * 2**i for i in range(8)]
    (ax,) = learning_panels(make_rows([row for m in "abcdef" for n in sizes for row in run(m, n, 0.5)])).axes
    at = np.log2([line.get_xdata() for line in ax.lines if line.get_label() in tuple("abcdef")]) - np.log2(100)
    assert at.shape == (6, 8)
    assert np.abs(at - np.arange(8)).max() < 0.151
    assert (np.diff(at, axis=0) > 0.02).all()


def test_the_caption_of_a_heat_map_explains_its_white_cells():
    rows = [row for m in "abcdefghi" for n in (100, 200) for row in run(m, n, 0.5) if (m, n) != ("i", 200)]
    words = details("learning", make_rows(rows), PlotOptions(), Look())
    assert "lines of a heat map" in words
    assert "White cells: no value." in words
    whole = [*rows, *run("i", 200, 0.5)]
    assert "White cells" not in details("learning", make_rows(whole), PlotOptions(), Look())


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


def pretraining(model, on, *, seed=0, kept=20, **more):
    """The validations of an encoder's pretraining on objectives with their numbers of examples."""
    base = {
        "analysis": "train", "trained_on": "+".join(on), "split": "dev", "model": model, "checkpoint": model,
        "regime": "pretrain", "head": "", "variant": "", "n": 500, "representation": "sequence", "estimator": "",
        "target": "gold", "seed": seed, "sampling": "power-0.75", "scaling": "uniform", "metric": "accuracy",
        "value": 1,
    } | more  # fmt: skip
    return [
        base | {"task": task, "examples": n, "step": step, "headline": step == kept}
        for step in (10, 20, 30)
        for task, n in on.items()
    ]


def target(model, *values, task="sst2", **more):
    """The run of each seed on an encoder."""
    return [
        row | {"kept": row["headline"], "metric": {"cola": "matthews"}.get(task, "accuracy")}
        for seed, value in enumerate(values)
        for row in run(model, 50, value, seed=seed, task=task, **more)
    ]


ENCODERS = [
    *pretraining("small", {"mnli": 600}), *pretraining("small", {"mnli": 600}, seed=1),
    *pretraining("big", {"mnli": 9000}),
    *pretraining("mixed", {"skip-thought:a.txt": 1000, "mnli": 100}, kept=10),
    *target("none", 0.5, 0.6), *target("small", 0.6, 0.8), *target("big", 0.9), *target("mixed", 0.7),
]  # fmt: skip
RTE = [
    *target("none", 0.4, 0.4, task="rte"), *target("small", 0.4, 0.6, task="rte"), *target("big", 0.5, task="rte"),
    *target("mixed", 0.5, task="rte"),
]  # fmt: skip


def test_over_pretraining_a_curve_has_the_encoders_of_the_same_objectives():
    points = learning_rows(make_rows([*ENCODERS, *RTE]), over="pretraining").set_index(["task", "model"])
    found = points[["label", "examples", "value", "sd", "seeds"]].round(3)
    nan = float("nan")
    expected = {
        "none": ("none", nan, 0.55, 0.071, 2), "small": ("MNLI", 600, 0.7, 0.141, 2),
        "big": ("MNLI", 9000, 0.9, nan, 1),
        "mixed": ("MNLI + Skip-Thought: a", 1100, 0.7, nan, 1),
    }  # fmt: skip
    for model, values in expected.items():
        np.testing.assert_equal(tuple(found.loc["sst2", model]), values)
    # the mean of each seed, then over seeds: (.6 + .4) / 2 and (.8 + .6) / 2
    np.testing.assert_equal(tuple(found.loc["GLUE", "small"]), ("MNLI", 600, 0.6, 0.141, 2))
    np.testing.assert_equal(tuple(found.loc["GLUE", "none"]), ("none", nan, 0.475, 0.035, 2))


def test_a_run_on_the_kept_step_of_a_pretraining_has_its_name():
    renamed = [
        row | {"model": "big@step-20"} if row["regime"] != "pretrain" and row["model"] == "big" else row
        for row in ENCODERS
    ]
    points = [learning_rows(make_rows(rows), over="pretraining") for rows in (ENCODERS, renamed)]
    assert points[1].equals(points[0])


def test_tasks_that_an_encoder_lacks_are_left_out(tmp_path):
    rows = make_rows([*ENCODERS, *(row for row in RTE if row["model"] != "big")])
    plot("learning", rows, over="pretraining", out=tmp_path / "a.png", dpi=40)
    assert "Tasks that some encoders lack are left out." in (tmp_path / "a.caption.txt").read_text()
    assert set(learning_rows(rows, over="pretraining")["task"]) == set(learning_rows(make_rows(ENCODERS))["task"])


def test_untrained_encoders_are_dashed_lines_with_bands_over_seeds(tmp_path):
    rows = make_rows([*ENCODERS, *RTE])
    figure = plot("learning", rows, over="pretraining", out=tmp_path / "a.png", dpi=40)
    ax = figure.axes[0]
    lines = {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}
    np.testing.assert_allclose(lines["MNLI"].get_xdata(), [600, 9000])
    np.testing.assert_allclose(lines["none"].get_ydata(), [0.55, 0.55])
    assert (lines["none"].get_linestyle(), ax.get_xlabel(), ax.get_title("left")) == (
        "--", "Pretraining examples", "SST-2",
    )  # fmt: skip
    assert figure.axes[2].get_title("left") == "GLUE"
    caption = (tmp_path / "a.caption.txt").read_text()
    assert "encoders without rows of pretraining (none). GLUE: mean of 2 tasks" in caption
    assert "Means over 1 to 2 seeds. Bars and bands: one standard deviation over seeds" in caption


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (target("none", 0.5), "no pretraining of these encoders"),
        ([*ENCODERS, *pretraining("small", {"mnli": 700}, seed=2)], "small has several pretrainings"),
        ([*ENCODERS, *pretraining("x", {"mnli": 600}), *target("x", 0.1)], "MNLI has two values for 600 training"),
        ([*ENCODERS, *target("y", 0.5), *target("y", 0.5)], "y has two values without pretraining"),
        ([*ENCODERS, *pretraining("z", {"text": None}), *target("z", 0.5)], "do not count the training examples of z"),
    ],
)
def test_what_cannot_be_drawn_over_pretraining(rows, message):
    with pytest.raises(UsageError, match=message):
        learning_rows(make_rows(rows), over="pretraining")
