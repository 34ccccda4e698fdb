"""Figures of similarity, movement and geometry: the values they draw, what they mark, and what they refuse."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from probekit.errors import UsageError
from probekit.plots import (
    geometry_panels,
    layer_curve,
    movement_panels,
    plot,
    similarity_matrix,
    similarity_panels,
    similarity_tree,
    similarity_values,
    trajectory_grids,
)
from probekit.plots.figure import details
from probekit.plots.layers import curve_rows
from probekit.plots.look import Look
from probekit.plots.options import PlotOptions
from probekit.rows import make_rows

mpl.use("Agg")
PLACE = {"task": "toy", "split": "dev", "representation": "mean", "estimator": "", "target": "gold", "n": 100}


def similar(*, a=("", None), b=("run", 5), layers=3, metric="cka", p=0.001, seed=0):
    """Rows of all pairs of layers of two states of one model; same layers have 1 - layer / 10."""
    rng = np.random.default_rng(seed)
    records = []
    for i in range(layers):
        for j in range(layers):
            value = 1 - i / 10 if i == j else 0.3 + 0.1 * rng.random()
            records.append(
                PLACE
                | {"analysis": "similarity", "model": "m", "checkpoint": a[0], "step": a[1], "metric": metric}
                | {"model_b": "m", "checkpoint_b": b[0], "step_b": b[1], "representation_b": "mean", "regime_b": ""}
                | {"layer": i, "site": "resid_post", "layer_b": j, "site_b": "resid_post", "value": value}
                | {"ci_low": value - 0.05, "ci_high": value + 0.05, "p": p, "p_adjusted": p, "null_mean": 0.0}
                | {"null_high": 0.02}
            )
    rows = make_rows(records)
    rows["step_b"] = rows["step_b"].astype("Int64")
    return rows


def together(*parts):
    return make_rows(pd.concat(parts, ignore_index=True))


def test_a_heat_map_shows_its_values_on_a_fixed_scale():
    rows = similar()
    ax = similarity_matrix(rows)
    [image] = ax.images
    [(name, values)] = similarity_values(rows).items()
    assert name == "m: pretrained and run, step 5"
    assert np.diag(values) == pytest.approx([1, 0.9, 0.8])
    assert np.asarray(image.get_array()) == pytest.approx(values.to_numpy())
    assert (image.get_clim(), image.origin) == ((0, 1), "lower")
    written = [text.get_text() for text in ax.texts if text.get_text() in ("1.0", ".90", ".80")]
    assert sorted(written) == [".80", ".90", "1.0"]
    assert not ax.patches
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("Layer (pretrained)", "Layer (run, step 5)")
    alone = similarity_matrix(similar(b=("", None)).assign(step_b=None))
    assert (alone.get_ylabel(), alone.get_xlabel()) == ("Layer", "Layer")


def test_pairs_that_may_be_chance_are_hatched():
    rows = similar()
    rows.loc[(rows["layer"] == 0) & (rows["layer_b"] == 2), "p_adjusted"] = 0.2
    ax = similarity_matrix(rows)
    assert [(p.get_x(), p.get_y()) for p in ax.patches if p.get_width()] == [(1.5, -0.5)]
    assert ax.get_legend_handles_labels()[1] == ["not shown to be more alike than chance"]
    assert not [p for p in similarity_matrix(rows, level=0.3).patches if p.get_width()]


def test_panels_for_pairs_and_measures():
    rows = together(similar(), similar(b=("run", 9)), similar(metric="mutual-knn"))
    figure = similarity_panels(rows)
    assert len([ax for ax in figure.axes if ax.images]) == 3
    assert len([ax for ax in similarity_panels(rows, metric="mutual-knn").axes if ax.images]) == 1
    with pytest.raises(UsageError, match="draws one pair of models, but the rows have 2"):
        similarity_matrix(rows, metric="cka")
    with pytest.raises(UsageError, match=r"the rows have no 'cca'; they have cka, mutual-knn"):
        similarity_matrix(rows, metric="cca")
    with pytest.raises(UsageError, match="were the same rows given twice"):
        similarity_matrix(together(similar(), similar()))


def test_the_same_layers_as_a_curve_with_permuted_examples():
    points = curve_rows(together(similar(), similar(b=("run", 9))))
    curve = points[points["role"] == "curve"]
    assert curve.groupby("label")["value"].apply(list).to_dict() == {
        f"m, run, step {step}": pytest.approx([1, 0.9, 0.8]) for step in (5, 9)
    }
    noise = points[points["role"] == "control"]
    assert set(noise["label"]) == {"permuted examples"}
    assert (noise["ci_low"].min(), noise["ci_high"].max()) == (0, 0.02)
    low = curve_rows(similar().assign(null_low=-0.03)).query("role == 'control'")
    assert set(low["ci_low"]) == {-0.03}
    assert set(curve["hollow"]) == {""}
    assert set(curve_rows(similar(p=0.3)).query("role == 'curve'")["hollow"]) == {
        "not above noise (corrected p > 0.05)"
    }
    ax = layer_curve(similar())
    assert (ax.get_ylabel(), ax.texts[0].get_text()) == ("CKA", "similarity to m, dev, n = 100")
    assert layer_curve(moved()).texts[0].get_text() == "distance from m, dev, n = 100"


def test_checkpoints_as_a_trajectory():
    [grid] = trajectory_grids(together(*(similar(a=("run", 0), b=("run", step)) for step in (4, 64)))).values()
    assert grid.steps == [4, 64]
    assert grid.value[:, 1] == pytest.approx([1, 0.9, 0.8])
    figure = plot("trajectory", together(*(similar(a=("run", 0), b=("run", step)) for step in (4, 64))))
    drawn = figure.axes[0]
    assert drawn.collections[0].get_clim() == (0, 1)
    assert not drawn.get_legend_handles_labels()[1]  # no layer is the best
    assert [text.get_text() for text in drawn.texts] == ["m, run, similarity to step 0, dev, n = 100"]


@pytest.mark.slow
def test_captions_name_the_reference_and_only_what_is_drawn():
    def caption(kind, rows):
        return details(kind, rows, PlotOptions(), Look())

    steps = together(*(similar(a=("run", 0), b=("run", step)) for step in (4, 64)))
    assert "Each layer is compared with the same layer of m, run, step 0." in caption("trajectory", steps)
    assert "Hatched" not in caption("trajectory", steps)
    assert "Hatched" in caption("trajectory", steps.assign(p_adjusted=0.5))
    assert "same layer of m, run, step 0. Permuted examples: the band shows the part from the mean to the 97.5 % " in (
        caption("layers", steps)
    )
    assert "band shows the middle 95 %" in caption("layers", steps.assign(null_low=-0.03))
    assert "Dotted lines" not in caption("movement", moved())  # 1.4 would flatten .3
    near = caption("movement", moved(others=0.5))
    assert "Dotted lines: mean distance to the reference vectors of other" in near
    assert "near the dotted line, most of the movement may be common to all examples." in near
    assert "mean CKA of the same layers (0, 1 and 2)" in caption("dendrogram", steps)


def test_measures_are_columns():
    rows = together(*(similar(b=("run", step), metric=m) for m in ("cka", "mutual-knn") for step in (5, 9)))
    drawn = [ax for ax in similarity_panels(rows).axes if ax.images]
    places = [(ax.get_subplotspec().rowspan.start, ax.get_subplotspec().colspan.start) for ax in drawn]
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert not any("CKA" in text.get_text() for ax in drawn for text in ax.texts)


def test_a_tree_of_models():
    states = [("", None), ("run", 1), ("run", 9)]
    parts = [similar(a=states[0], b=states[1]), similar(a=states[0], b=states[2]), similar(a=states[1], b=states[2])]
    for rows, value in zip(parts, (0.9, 0.1, 0.2), strict=True):
        rows["value"] = value
    ax = similarity_tree(together(*parts))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["run, step 9", "pretrained", "run, step 1"]
    ends = sorted({round(x, 9) for line in ax.collections for path in line.get_segments() for x in path[:, 0]})
    assert ends == pytest.approx([0, 0.1, 0.85])  # the mean of .9 and .8
    with pytest.raises(UsageError, match="--against all"):
        similarity_tree(together(*parts[:2]))
    with pytest.raises(UsageError, match="three or more models, not 2"):
        similarity_tree(parts[0])
    assert len(plot("dendrogram", together(*parts)).axes) == 1
    tree, map_, _ = plot("dendrogram", together(*parts), width="page").axes
    assert [text.get_text() for text in tree.get_yticklabels()] == ["run, step 9  3", "pretrained  2", "run, step 1  1"]
    np.testing.assert_allclose(np.ma.filled(map_.images[0].get_array(), 0)[0], [0.8, 0.9, 0])  # below: step 9
    assert tree.get_ylim()[0] / 10 - 0.5 == map_.get_ylim()[0]  # the lines of the map are the leaves of the tree
    words = details("dendrogram", together(*parts), PlotOptions(width="page"), Look())
    assert words.startswith("Model: m. Distance: 1 minus the mean CKA of the same layers (0, 1 and 2)")
    assert "Right: the distances" in words


def moved(metric="relative-distance", **more):
    records = [
        PLACE
        | {"analysis": "movement", "model": "m", "checkpoint": "run", "step": 5, "metric": metric, "layer": i}
        | {"value": 0.1 * (i + 1), "ci_low": 0.1 * i, "ci_high": 0.1 * (i + 2), "others": 1.4, "against": "m"}
        | {"label": "", "example": ""}
        | more
        for i in range(3)
    ]
    return make_rows(records)


def test_movement_draws_means_only():
    rows = together(
        moved(), moved("cosine-distance"), moved(label="yes"), moved(example="7", label="yes"),
        moved("difference(relative-distance)", label="yes"),
    )  # fmt: skip
    figure = movement_panels(rows)
    assert [ax.get_ylabel().splitlines()[0] for ax in figure.axes] == ["Relative distance", "Cosine distance"]
    line = figure.axes[0].lines[0]
    assert line.get_ydata() == pytest.approx([0.1, 0.2, 0.3])
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert "other examples" not in labels  # 1.4 would flatten .3
    near = movement_panels(moved(others=0.5))
    assert near.axes[0].lines[-1].get_ydata() == pytest.approx([0.5] * 3)
    with pytest.raises(UsageError, match="there are no rows of probekit movement to draw"):
        movement_panels(similar())


def test_geometry_panels():
    rows = together(
        *(moved(metric).assign(analysis="geometry") for metric in ("rank", "participation-ratio", "mean-cosine"))
    )
    assert len(geometry_panels(rows).axes) == 2
    assert geometry_panels(rows, metric="rank").axes[0].get_ylabel() == "Rank"
    caption = details("geometry", rows, PlotOptions(), Look())
    assert caption.startswith(
        "Participation ratio (toy, dev, n = 100); Mean cosine of two examples (toy, dev, n = 100)."
    )
    assert "Curves: m. Bands" in caption
    assert details("geometry", rows, PlotOptions(metric="rank"), Look()).startswith("Rank (toy")
    assert "left out" not in caption
    weights = [
        {"model": m, "random_weights": w, "checkpoint": c} for m in "abc" for w, c in ((None, ""), (0, "random-0"))
    ]
    six = together(*(moved("rank", **own).assign(analysis="geometry") for own in weights))
    assert "Intervals of random weights are left out." in details("geometry", six, PlotOptions(metric="rank"), Look())
    with pytest.raises(UsageError, match="the rows have no 'x'"):
        geometry_panels(rows, metric="x")


def test_axes_say_fine_tuned_where_one_run_is():
    tuned = similar().assign(regime="", regime_b="fine-tune")
    assert similarity_matrix(tuned).get_xlabel() == "Layer (fine-tuned, step 5)"
    assert "horizontal axis: layers of m (fine-tuned, step 5). " in details("similarity", tuned, PlotOptions(), Look())
    start = similar(b=("run", 0)).assign(regime="", regime_b="fine-tune")
    assert similarity_matrix(start).get_xlabel() == "Layer (before training, step 0)"
    two = together(tuned, similar(b=("other", 5), seed=1).assign(regime="", regime_b="fine-tune"))
    labels = [ax.get_xlabel() for ax in similarity_panels(two).axes if ax.images]
    assert labels == ["Layer (run, step 5)", "Layer (other, step 5)"]
    assert "layers of the two models that their labels name" in details("similarity", two, PlotOptions(), Look())
    alone = similar(b=("", None)).assign(step_b=None)
    assert "Both axes: layers of m, mean." in details("similarity", alone, PlotOptions(), Look())


def test_captions_say_what_is_drawn(tmp_path):
    rows = similar(p=0.2)
    plot("similarity", rows, out=tmp_path / "s.png", dpi=40)
    text = (tmp_path / "s.caption.txt").read_text()
    assert text.startswith(
        "Similarity of layers. Vertical axis: layers of m (pretrained); horizontal axis: layers of m (run, step 5). "
    )
    reach = "95 % intervals are in the rows; none reaches farther from its value than 0.05. "
    assert f"Measure: CKA. n = 100. {reach}Hatched cells: not shown to be more alike than chance (p > 0.05" in text
    plot("movement", moved(), out=tmp_path / "m.png", dpi=40)
    assert "Reference: m." in (tmp_path / "m.caption.txt").read_text()
