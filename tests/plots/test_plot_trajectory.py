"""Heat maps of training: what stands in the cells is what stands in the rows."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PatchCollection, QuadMesh
from matplotlib.figure import Figure

from probekit.cli import main
from probekit.errors import UsageError
from probekit.plots import plot, save, trajectory, trajectory_panels
from probekit.rows import make_rows, write_rows

STEPS = (0, 10, 20, 100)


def record(layer, step, value, target="gold", wide=0.05, **own):
    return {
        "task": "cola", "split": "dev", "model": "tiny", "checkpoint": "" if step is None else "run", "step": step,
        "layer": layer, "representation": "mean", "estimator": "logistic", "target": target, "metric": "matthews",
        "value": value, "ci_low": value - wide, "ci_high": value + wide, "seed": 0, "n": 1043, "analysis": "probe",
    } | own  # fmt: skip


def grid(steps=STEPS, layers=(0, 1, 2), seed=0, **own):
    """Rows of random values, with the array (layers, steps) of them."""
    values = np.random.default_rng(seed).uniform(0.2, 0.9, (len(layers), len(steps)))
    rows = [record(a, s, values[i, j], **own) for i, a in enumerate(layers) for j, s in enumerate(steps)]
    return rows, values


def draw(records, ax=None, **more):
    return trajectory(make_rows(records), ax=ax or Figure().subplots(), **more)


def cells(ax):
    [mesh] = [c for c in ax.collections if isinstance(c, QuadMesh)]
    return mesh.get_array().reshape(mesh.get_coordinates().shape[0] - 1, -1)


def dots(ax, label="best layer of the step"):
    [line] = [x for x in ax.lines if x.get_label() == label]
    return [tuple(map(float, at)) for at in line.get_xydata()]


def hatched(ax):
    """Step and layer of the hatched cells, by the hatch."""
    found = {}
    for one in ax.collections:
        if isinstance(one, PatchCollection):
            middle = [tuple(np.round(p.vertices[:4].mean(0), 9).tolist()) for p in one.get_paths()]
            found[one.get_hatch()] = set(middle)
    return found


def names(ax):
    return [t.get_text() for t in ax.get_xticklabels()], [t.get_text() for t in ax.get_yticklabels()]


def test_layers_go_up_and_steps_to_the_right():
    rows, values = grid()
    ax = Figure().subplots()
    shuffled = [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]
    assert draw(shuffled, ax) is ax
    np.testing.assert_array_equal(cells(ax), values)
    assert names(ax) == (["0", "10", "20", "100"], ["0", "1", "2"])
    assert ax.get_ylim() == (-0.5, 2.5)  # layer 0 at the bottom
    assert ax.get_xlim() == (-0.5, 3.5)
    assert dots(ax) == [(j, values[:, j].argmax()) for j in range(4)]
    [bar] = [a for a in ax.figure.axes if a is not ax]
    assert bar.get_ylabel() == "Matthews correlation"
    assert bar.get_ylim() == pytest.approx((values.min(), values.max()))
    assert ax.get_title(loc="left") == "CoLA"
    assert ax.texts[0].get_text() == "tiny, run, dev, n = 1,043"
    assert hatched(ax) == {}


def test_the_pretrained_model_is_step_0():
    later, values = grid((10, 20))
    before, pretrained = grid((None,), seed=5)
    ax = draw(later + before)
    np.testing.assert_array_equal(cells(ax), np.hstack([pretrained, values]))
    assert names(ax)[0] == ["0", "10", "20"]
    np.testing.assert_array_equal(cells(draw(later)), values)
    every, own = grid()
    np.testing.assert_array_equal(cells(draw(every + before)), own)  # the run's own step 0 is the same model
    for other in ({"model": "huge"}, {"representation": "max"}, {"random_weights": 0}):
        np.testing.assert_array_equal(cells(draw(later + grid((None,), **other)[0])), values)
    named_by_step, alone = grid((10, 20), checkpoint="")  # revisions: the last one is no beginning
    np.testing.assert_array_equal(cells(draw(named_by_step + before)), alone)


def test_what_no_row_is_of_is_blank_and_final_norm_is_on_top():
    rows, values = grid(layers=(0, 6, "final_norm"))
    ax = draw(rows[1:])
    got = cells(ax)
    assert got.mask.tolist() == [[True, False, False, False], [False] * 4, [False] * 4]
    np.testing.assert_array_equal(got[1:], values[1:])
    assert names(ax)[1] == ["0", "6", "norm"]


def test_light_is_good():
    def colour(metric, value):
        mesh = draw(grid(metric=metric)[0]).collections[0]
        return mesh.cmap(mesh.norm(value))

    assert colour("matthews", 0.9) == colour("log-loss", 0.1)
    assert sum(colour("matthews", 0.9)[:3]) > sum(colour("matthews", 0.1)[:3])
    rows, values = grid(metric="log-loss")
    assert dots(draw(rows)) == [(j, values[:, j].argmin()) for j in range(4)]


def test_cells_that_reach_noise_are_hatched_each_step_by_its_own_controls():
    rows = [record(layer, step, 0.3 + 0.1 * layer) for layer in (0, 1) for step in (0, 10)]
    noise = [record(layer, step, 0.0, "shuffled", wide) for layer in (0, 1) for step, wide in ((0, 0.26), (10, 0.4))]
    ax = draw(rows + noise)
    assert hatched(ax) == {3 * "\\": {(0, 0), (1, 0), (1, 1)}}
    assert dots(ax) == [(0, 1)]  # where all is noise nothing is best
    draws = [r | {"draw": i} for i, r in enumerate(noise)]
    assert hatched(draw(rows + draws)) == {}  # draws of 0 reach nothing


def test_information_is_hatched_by_its_p_and_a_diamond_is_undetermined():
    own = {"metric": "mutual-information", "estimator": "edge", "shuffles": 1000}
    p = {0: 0.4, 1: 0.01}
    rows = [record(layer, step, 0.2 + layer, p_adjusted=p[layer], **own) for layer in (0, 1) for step in (0, 10)]
    rows[-1] |= {"value": np.nan, "ci_low": 0.0, "ci_high": 1.0, "p_adjusted": np.nan}
    ax = draw(rows)
    assert hatched(ax) == {"///": {(0, 0), (1, 0)}}
    assert dots(ax, "undetermined") == [(1, 1)]
    assert cells(ax).mask.tolist() == [[False, False], [False, True]]
    assert dots(ax) == [(0, 1)]
    assert "EDGE" in ax.texts[0].get_text()
    assert ax.figure.axes[-1].get_ylim()[0] == 0
    assert ax.figure.axes[-1].get_ylabel() == "Mutual information (bits)"
    unknown = draw([r | {"value": np.nan, "ci_low": 0.0, "ci_high": 1.0, "p_adjusted": np.nan} for r in rows])
    assert cells(unknown).mask.all()


def test_weights_of_a_mix_have_a_largest_not_a_best():
    rows, values = grid(metric="mix-weight")
    assert dots(draw(rows), "largest weight of the step") == [(j, values[:, j].argmax()) for j in range(4)]


def test_what_can_not_be_drawn_is_told():
    rows, _ = grid()
    with pytest.raises(UsageError, match="no training steps.*cache-activations --model RUN/step"):
        draw(grid((None,))[0])
    with pytest.raises(UsageError, match="tiny, run has two values for layer 0 at step 10"):
        draw([*rows, rows[1] | {"value": 0.5, "ci_low": 0.4, "ci_high": 0.6}])
    with pytest.raises(UsageError, match="tiny, run; tiny, again; use trajectory_panels"):
        draw(rows + grid(checkpoint="again")[0])
    with pytest.raises(UsageError, match="draws one task"):
        draw(rows + grid(task="sst2")[0])
    with pytest.raises(UsageError, match="the rows of cola have no 'f1'"):
        draw(rows, metric="f1")
    with pytest.raises(UsageError, match="no rows to draw"):
        trajectory_panels(make_rows([]))


@pytest.mark.slow
def test_panels_of_runs_and_tasks(tmp_path):
    rows, values = grid()
    again, others = grid(checkpoint="again", seed=1)
    far, wide = grid(task="sst2", metric="accuracy", steps=(0, 1000, 2000, 50000), layers=range(25), seed=2)
    figure = trajectory_panels(make_rows(rows + again + far))
    maps = [ax for ax in figure.axes if ax.get_xlabel() or ax.get_title(loc="left")]
    assert [ax.get_title(loc="left") for ax in maps] == ["CoLA", "", "SST-2"]  # a title is not said twice
    for ax, held in zip(maps, (values, others, wide), strict=True):
        np.testing.assert_array_equal(cells(ax), held)
    one, two, three = (next(c for c in ax.collections if isinstance(c, QuadMesh)).get_clim() for ax in maps)
    assert one == two == (min(values.min(), others.min()), max(values.max(), others.max()))
    assert three == (wide.min(), wide.max())
    figure.canvas.draw()
    for ax in maps:
        boxes = [t.get_window_extent() for t in (*ax.get_xticklabels(), *ax.get_yticklabels())]
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
        assert ax.get_window_extent().width > 0.5 * figure.bbox.width / 3
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["best layer of the step"]
    save(figure, [tmp_path / f"a{suffix}" for suffix in (".pdf", ".svg", ".eps", ".png")], dpi=50)


@pytest.mark.slow  # as that of layers, which is quick
def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, rows in {"run": grid()[0], "plain": grid((None,))[0]}.items():
        write_rows(make_rows(rows), f"{name}.parquet", {})
    assert main(["plot", "trajectory", "run.parquet", "plain.parquet"]) == 0
    assert capsys.readouterr().out.split() == [f"figures/trajectory.{end}" for end in ("pdf", "png", "caption.txt")]
    assert main(["plot", "trajectory", "run.parquet", "--out", "a.svg"]) == 0
    assert "Training step" in Path("a.svg").read_text()
    assert main(["plot", "trajectory", "plain.parquet"]) == 2
    assert "have no training steps" in capsys.readouterr().err


def test_what_stands_over_maps_does_not_run_into_the_next():
    own = {"model": "a-model-with-a-long-name", "estimator": "", "regime": "feature-extraction", "head": "bilstm-crf"}
    rows = [r for c in ("one-run", "another-run") for r in grid(checkpoint=c, **own)[0]]
    figure = trajectory_panels(make_rows(rows))
    figure.canvas.draw()
    first, second = (ax.texts[0] for ax in figure.axes if ax.texts)
    assert first.get_text().splitlines() == ["a-model-with-a-long-name, one-run, dev,", "n = 1,043"]
    assert not first.get_window_extent().overlaps(second.get_window_extent())
    for ax in figure.axes:
        if ax.texts:
            assert not ax.texts[0].get_window_extent().overlaps(ax._left_title.get_window_extent())


def scale(ax):
    return next(c for c in ax.collections if isinstance(c, QuadMesh)).get_clim()


def test_noise_does_not_fill_the_colours():
    """The scale is as wide as an interval at least, about the values; where they differ by more it is theirs."""
    alike = [record(a, s, 0.5 + 0.001 * a) for a in range(3) for s in STEPS]
    assert scale(draw(alike)) == pytest.approx((0.501 - 0.05, 0.501 + 0.05))
    rows, values = grid()
    assert scale(draw(rows)) == pytest.approx((values.min(), values.max()))
    narrow = [record(a, s, 0.5 + 0.001 * a, wide=0.0001) for a in range(3) for s in STEPS]
    noise = [record(a, s, 0.4, "shuffled", wide=0.2) for a in range(3) for s in STEPS]
    assert scale(draw(narrow + noise)) == pytest.approx((0.301, 0.701))


def test_equal_mix_weights_lie_in_the_middle():
    weights = [
        record(a, s, 1 / 7 + 1e-4 * (a - 3), metric="mix-weight", analysis="train", ci_low=np.nan, ci_high=np.nan)
        for a in range(7)
        for s in STEPS
    ]
    assert scale(draw(weights)) == pytest.approx((0, 2 / 7))


def test_tasks_of_one_metric_share_a_scale_and_the_majority_class_is_on_it():
    rows = [*grid()[0], *grid(task="sst2", seed=3)[0]]
    whole = {"layer": None, "step": None, "checkpoint": "", "representation": "none", "estimator": "majority"}
    majority = [record(None, None, value, task=task) | whole for task, value in (("cola", 0.1), ("sst2", -9.0))]
    figure = trajectory_panels(make_rows(rows + majority))
    one, other = (ax for ax in figure.axes if ax.get_title(loc="left"))
    assert scale(one) == scale(other)
    assert scale(one)[0] < 0.1
    bars = [ax for ax in figure.axes if not ax.get_title(loc="left")]
    assert [[line.get_ydata()[0] for line in bar.lines if line.get_linewidth() < 2] for bar in bars] == [[0.1], []]
    assert "majority class (on the colour scale)" in [t.get_text() for t in figure.legends[0].get_texts()]


def test_first_and_last_step_are_named_in_a_narrow_figure():
    figure = trajectory_panels(make_rows(grid((0, *(8**i for i in range(1, 7))))[0]), width=2.4)
    shown = names(figure.axes[0])[0]
    assert (shown[0], shown[-1]) == ("0", "262,144")
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_the_caption_names_the_null_of_p_and_claims_no_test_that_the_rows_lack(tmp_path):
    rows = grid()[0]
    plot("trajectory", make_rows(rows), out=tmp_path / "plain.png", dpi=40)
    caption = (tmp_path / "plain.caption.txt").read_text()
    assert "Dots: the best layer of each step, not tested against the others." in caption
    assert "Light: better. Steps are evenly spaced" in caption
    assert "95 % intervals are not drawn; their median width is 0.1 (Matthews correlation)." in caption
    shuffled = [row | {"target": "shuffled", "value": 0.0} for row in rows]
    tested = [row | {"p_adjusted": 0.5 if row["layer"] == 0 else 0.001} for row in rows]
    plot("trajectory", make_rows([*tested, *shuffled]), out=tmp_path / "tested.png", dpi=40)
    caption = (tmp_path / "tested.caption.txt").read_text()
    assert "the best layer of each step that is above noise, not tested" in caption
    assert "Hatched: not above noise (permuted labels, p > 0.05, corrected over layers and steps)." in caption
