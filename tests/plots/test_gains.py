"""What layers gained against how far they moved."""

import pandas as pd
import pytest

from probekit.errors import UsageError
from probekit.plots import gain_panels, gain_rows, plot
from probekit.plots.look import INK
from probekit.rows import make_rows

ABOUT = {
    "task": "cola",
    "split": "dev",
    "model": "m",
    "representation": "mean",
    "estimator": "",
    "target": "gold",
    "n": 9,
}
NEW = {"checkpoint": "run"}


def compared(step, layer, gain, p=0.01):
    return {
        **ABOUT, **NEW, "analysis": "compare", "metric": "difference(accuracy)", "step": step, "layer": layer,
        "value": gain, "ci_low": gain - 0.1, "ci_high": gain + 0.1, "p_adjusted": p, "against": "m, pretrained",
    }  # fmt: skip


def alike(step, layer, value, layer_b=None, metric="cka"):
    """The reference against a checkpoint; the reference has no step."""
    return {
        **ABOUT, "analysis": "similarity", "metric": metric, "layer": layer, "value": value, "ci_low": value - 0.1,
        "ci_high": value + 0.05, "model_b": "m", "checkpoint_b": "run", "step_b": step, "representation_b": "mean",
        "layer_b": layer if layer_b is None else layer_b, "site_b": "resid_post", "null_mean": 0.0, "null_high": 0.1,
    }  # fmt: skip


ROWS = [
    *(compared(step, layer, gain) for step, layer, gain in ((4, 0, 0.0), (4, 1, 0.1), (9, 0, 0.02), (9, 1, 0.2))),
    *(alike(4, layer, value) for layer, value in ((0, 1.0), (1, 0.8))),
    *(alike(9, layer, value) for layer, value in ((0, 0.9), (1, 0.3))),
    alike(9, 0, 0.5, layer_b=1),  # another layer says nothing of how far one moved
]


def test_points_are_the_same_layers_of_the_same_checkpoint():
    points = gain_rows(make_rows(ROWS)).set_index(["step", "layer"])
    assert points["x"].to_dict() == pytest.approx({(4, 0): 0.0, (4, 1): 0.2, (9, 0): 0.1, (9, 1): 0.7})
    assert points.loc[(9, 1), ["x_low", "x_high", "value"]].tolist() == pytest.approx([0.65, 0.8, 0.2])


def test_each_task_has_its_reference():
    other = [row | {"task": "mrpc"} for row in ROWS]
    assert gain_rows(make_rows([*ROWS, *other])).groupby("task").size().to_dict() == {"cola": 4, "mrpc": 4}


def test_a_distance_is_drawn_as_it_is():
    moved = {**ABOUT, **NEW, "analysis": "movement", "metric": "relative-distance", "step": 9, "layer": 1, "value": 0.4}
    other = {**moved, "value": 9.0, "label": "a class"}
    one = {**moved, "value": 7.0, "example": "an example"}
    points = gain_rows(make_rows([*ROWS[:4], {**moved, "label": "", "example": ""}, other, one]))
    assert points[["step", "layer", "x"]].to_numpy().tolist() == [[9, 1, 0.4]]


def test_a_line_joins_checkpoints_and_hollow_points_show_nothing():
    rows = make_rows([row if row.get("layer") else row | {"p_adjusted": 0.5} for row in ROWS])
    ax = gain_panels(rows).axes[0]
    lines = [line.get_xdata() for line in ax.lines if line.get_marker() == "None"][1:]  # the first is at 0
    assert [list(x) for x in lines] == [pytest.approx([0.0, 0.1]), pytest.approx([0.2, 0.7])]
    marks = [line.get_markerfacecolor() for line in ax.lines if line.get_marker() == "o"]
    assert [isinstance(colour, str) and colour == "white" for colour in marks] == [True, True, False, False]
    assert [text.get_text() for text in ax.texts] == ["0", "1"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Distance from pretrained (1 − CKA)", "Accuracy:\nrun − pretrained")
    small, last = (line.get_markersize() for line in ax.lines[-2:])
    assert small < last


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS[:4], "needs rows of probekit similarity or movement"),
        (ROWS[4:], "needs rows of probekit compare"),
        ([*ROWS[:4], alike(5, 0, 0.1)], "no layer in common; .* the reference as the first cache"),
    ],
)
def test_what_is_lacking_is_named(rows, message):
    with pytest.raises(UsageError, match=message):
        gain_rows(make_rows(pd.DataFrame(rows)))


def test_only_layers_with_room_have_numbers_and_a_colour_bar_has_all():
    near = [*range(40), 99]
    rows = [row for i in near for row in (compared(9, i, 0.1), alike(9, i, 0.1 if i == 99 else 0.9 + 0.0001 * i))]
    figure = plot("gains", make_rows(rows), width="column")
    names = figure.axes[0].texts
    boxes = [text.get_window_extent() for text in names]
    assert [box.count_overlaps(boxes) for box in boxes] == [1] * len(boxes)  # each with itself
    assert 2 <= len(names) < 10
    assert "99" in [text.get_text() for text in names]
    assert {text.get_color() for text in names} == {INK}  # light colours are no ink
    assert [tick.get_text() for tick in figure.axes[-1].get_xticklabels()][:3] == ["0", "5", "10"]


def test_runs_have_shapes():
    other = [row | {key: "other" for key in ("checkpoint", "checkpoint_b") if key in row} for row in ROWS]
    figure = gain_panels(make_rows([*ROWS, *other]))
    assert len({line.get_marker() for line in figure.axes[0].lines} - {"None"}) == 2
    keys = ["run", "other", "probe differs (p ≤ 0.05)", "earlier checkpoints, the smaller the earlier"]
    keys += ["95 % interval"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == keys
    assert [text.get_text() for text in gain_panels(make_rows(ROWS)).legends[0].get_texts()] == keys[2:]


def test_an_unknown_measure():
    with pytest.raises(UsageError, match="no 'pwcca'; they have cka"):
        gain_rows(make_rows(ROWS), metric="pwcca")


@pytest.mark.slow
def test_the_caption_gives_n_of_each_task_and_what_p_is_corrected_over(tmp_path):
    other = [row | {"task": "mrpc", "n": 5} for row in ROWS]
    plot("gains", make_rows([*ROWS, *other]), out=tmp_path / "two.png", dpi=40)
    caption = (tmp_path / "two.caption.txt").read_text()
    assert "n = 9 (CoLA); n = 5 (MRPC)." in caption
    assert "Bars: 95 % intervals of the last checkpoint, each for a single layer. Filled:" in caption
    assert "(p ≤ .05, corrected over layers, not over checkpoints)." in caption
    assert "Difference in accuracy, against 1 − CKA with the reference's same layer." in caption
    assert "in the order of their steps (4 to 9)" in caption
    plot(
        "gains",
        make_rows([row for row in ROWS if 4 not in (row.get("step"), row.get("step_b"))]),
        out=tmp_path / "o.png",
    )
    caption = (tmp_path / "o.caption.txt").read_text()
    assert "n = 9. Numbers" in caption
    assert "Bars: 95 % intervals, each" in caption
    assert "corrected over layers)." in caption
