"""What each way to adapt does to a model and its layers, as a figure: the drawn points, lines and words."""

import numpy as np
import pytest

from probekit.errors import UsageError
from probekit.plots import adaptation_panels, adaptation_rows, plot
from probekit.rows import make_rows

BASE = {
    "split": "dev", "model": "m", "representation": "mean", "estimator": "", "target": "gold", "n": 100, "seed": 0,
    "metric": "accuracy", "checkpoint": "", "regime": "", "head": "", "variant": "", "trained_on": "",
}  # fmt: skip
WAYS = {"full": 1000, "lora": 50}


def result(way, seed, value, task="cola", **more):
    about = {"analysis": "train", "task": task, "trained_on": task, "regime": "fine-tune", "head": "linear"}
    interval = {"ci_low": value - 0.1, "ci_high": value + 0.1, "headline": True}
    kept = BASE | about | interval | {"variant": way, "seed": seed, "value": value, "checkpoint": f"{way}-{seed}"}
    constant = BASE | {"analysis": "train", "task": task, "estimator": "majority", "value": 0.5}
    return [kept | {"trained_parameters": WAYS.get(way, 10)} | more, constant]


def run(way, seed, on="cola"):
    return {"checkpoint": f"{way}-{seed}", "regime": "fine-tune", "variant": way, "trained_on": on, "run_seed": seed}


def probe(task, values, **of):
    about = BASE | {"analysis": "probe", "task": task, "estimator": "logistic"} | of
    return [about | {"layer": i, "value": v, "ci_low": v - 0.05, "ci_high": v + 0.05} for i, v in enumerate(values)]


def similarity(way, seed, values, *, swapped=False):
    ends = [{c: BASE.get(c) for c in run(way, seed)}, run(way, seed)][:: -1 if swapped else 1]
    second = {f"{c}_b": v for c, v in ends[1].items()} | {"model_b": "m", "random_weights_b": None}
    about = BASE | {"analysis": "similarity", "task": "cola", "metric": "cka"} | ends[0] | second
    return [
        about | {"layer": i, "layer_b": j, "site": "resid_post", "site_b": "resid_post", "value": v if i == j else 0.0}
        for i, v in enumerate(values)
        for j in range(3)
    ]


ROWS = [
    *result("full", 0, 0.8), *result("full", 1, 0.9), *result("lora", 0, 0.7), *result("frozen", 0, 0.6),
    *probe("cola", [0.5, 0.6, 0.7]), *probe("mrpc", [0.5, 0.5, 0.5]), *probe("sst2", [0.8, 0.8, 0.8]),
    *probe("cola", [0.5, 0.7, 0.8], **run("full", 0)), *probe("cola", [0.5, 0.7, 1.0], **run("full", 1)),
    *probe("mrpc", [0.5, 0.4, 0.3], **run("full", 0)), *probe("mrpc", [0.5, 0.4, 0.1], **run("full", 1)),
    *probe("sst2", [0.8, 0.8, 0.6], **run("full", 0)), *probe("sst2", [0.8, 0.8, 0.6], **run("full", 1)),
    *probe("cola", [0.5, 0.6], **run("lora", 0)),
    *probe("mrpc", [0.5, 0.6], **run("lora", 0)), *probe("sst2", [0.8, 0.8], **run("lora", 0)),
    *similarity("full", 0, [1.0, 0.8, 0.4]), *similarity("full", 1, [1.0, 0.6, 0.2]),
    *similarity("lora", 0, [1.0, 0.9], swapped=True),
]  # fmt: skip
FULL = {"probe": [0.5, 0.7, 0.9], "similarity": [1, 0.7, 0.3], "forgetting": [0, -0.05, -0.25]}
LORA = {"probe": [0.5, 0.6], "similarity": [1, 0.9], "forgetting": [0, 0.05]}


def test_values_are_means_over_seeds_and_over_other_tasks():
    values = adaptation_rows(make_rows(ROWS))
    assert set(values["task"]) == {"cola"}
    points = {panel: part.set_index("label") for panel, part in values.groupby("panel")}
    results = points["result"]
    assert dict(results["value"].round(9)) == {"full": 0.85, "lora": 0.7, "frozen": 0.6, "constant prediction": 0.5}
    assert results.loc["full", ["ci_low", "ci_high", "seeds"]].tolist() == pytest.approx([0.75, 0.95, 2])
    for panel in FULL:
        np.testing.assert_allclose(points[panel].loc["full", "value"], FULL[panel], atol=1e-12)
        np.testing.assert_allclose(points[panel].loc["lora", "value"], LORA[panel], atol=1e-12)
    assert points["forgetting"].loc["full", ["low", "high"]].to_numpy()[2].tolist() == pytest.approx([-0.3, -0.2])
    assert set(points["forgetting"]["others"]) == {"mrpc, sst2"}


def test_a_model_of_a_pretraining_is_the_pretrained_one():
    rows = make_rows(ROWS)
    pretrained = {"regime": "pretrain", "checkpoint": "mini", "trained_on": "wiki"}
    own = rows.assign(**{c: rows[c].where(rows["checkpoint"] != "", value) for c, value in pretrained.items()})
    own = own.assign(**{f"{c}_b": own[f"{c}_b"].mask(own[f"{c}_b"].eq(""), value) for c, value in pretrained.items()})
    own["regime"] = own["regime"].where(own["estimator"] != "majority", "")
    values, same = adaptation_rows(rows), adaptation_rows(own)
    columns = ["panel", "label", "layer", "value"]
    assert values[columns].astype(str).values.tolist() == same[columns].astype(str).values.tolist()


def test_a_panel_of_each_kind_with_a_line_for_each_way(tmp_path):
    rows = make_rows(ROWS)
    result_, *layers = adaptation_panels(rows).axes
    points = {line.get_label(): line.get_xydata().tolist() for line in result_.lines if line.get_label()[0] != "_"}
    assert {way: points[way] for way in ("full", "lora")} == {
        "full": [[1000, pytest.approx(0.85)]],
        "lora": [[50, 0.7]],
    }
    assert (result_.get_xscale(), result_.get_xlabel()) == ("log", "Trained weights")
    for ax, panel in zip(layers, FULL, strict=True):
        drawn = {line.get_label(): line for line in ax.lines}
        np.testing.assert_allclose(drawn["full"].get_ydata(), FULL[panel], atol=1e-12)
        np.testing.assert_allclose(drawn["lora"].get_xydata(), list(enumerate(LORA[panel])), atol=1e-12)
        assert ("pretrained" in drawn) == (panel == "probe")
        mine = next(line for line in result_.lines if line.get_label() == "full")
        assert (drawn["full"].get_color(), drawn["full"].get_marker()) == (mine.get_color(), mine.get_marker())
    plot("adaptation", rows, out=tmp_path / "a.png", dpi=40, width="text")
    caption = (tmp_path / "a.caption.txt").read_text()
    assert "means over tasks (CoLA: MRPC and SST-2; Accuracy)" in caption
    assert "from the smallest to the largest value of a seed" in caption


def test_panels_without_rows_are_left_out_and_many_ways_are_lines():
    runs = [row for i in range(12) for row in result(f"way {i}", 0, 0.5 + i / 50)]
    two = [row for way in ("full", "lora") for row in result(way, 0, 0.6, task="mrpc")]
    cola, mrpc = adaptation_panels(make_rows([*runs, *two])).axes
    names = [*(f"way {i}" for i in range(12)), "full", "lora"]
    assert [t.get_text() for t in cola.get_yticklabels()] == names
    assert [t.get_text() for t in cola.texts if t.get_text().isdigit()] == ["10"] * 12  # trained weights
    assert [t.get_text() for t in mrpc.texts][:3] == ["1 k", "50", "weights"]
    points = {bar.lines[0].get_ydata()[0]: bar.lines[0].get_xdata()[0] for bar in mrpc.containers}
    assert {names[i]: x for i, x in points.items() if x == x} == {"full": 0.6, "lora": 0.6}
    assert (cola.get_xlabel(), mrpc.yaxis.get_tick_params()["labelleft"]) == ("Accuracy", False)
    (only,) = adaptation_panels(make_rows([row for row in ROWS if row["analysis"] == "similarity"])).axes
    assert only.get_ylabel() == "CKA\nto pretrained"


def test_relative_distance_without_cka():
    moved = [
        BASE | {"analysis": "movement", "task": "cola", "metric": "relative-distance", "against": against, "layer": i,
                "value": i / 10, "example": "", "label": ""} | run("full", 0)
        for i in range(3)
        for against in ("m, mean", "m, other-run, mean")
    ]  # fmt: skip
    values = adaptation_rows(make_rows(moved))
    assert values[["metric", "value"]].to_numpy().tolist() == [["relative-distance", i / 10] for i in range(3)]


def test_nothing_to_draw_and_two_values():
    with pytest.raises(UsageError, match="no runs and no layers of trained models"):
        adaptation_rows(make_rows(probe("cola", [0.5])))
    with pytest.raises(UsageError, match="full has two values on cola with one seed"):
        adaptation_rows(make_rows([*ROWS, *result("full", 0, 0.3)]))
    with pytest.raises(UsageError, match="lora has two values on cola, layer 0 with one seed"):
        adaptation_rows(make_rows([*ROWS, *probe("cola", [0.2], **run("lora", 0))]))
