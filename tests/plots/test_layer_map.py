"""Maps of layers: the points that stand in the scene, with colours and words that say what they are."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from probekit.errors import UsageError
from probekit.plots import layer_map, map_panels, map_points, save

N, LAYERS = 60, ("0", "1", "2")


@pytest.fixture
def scene():
    """Two sides of a scene of 60 points; the first is unlabelled."""
    rng = np.random.default_rng(0)
    labels = np.arange(N) % 3
    labels[0] = -1

    def side(name, note):
        maps = {
            method: SimpleNamespace(
                xy=rng.normal(size=(3, N, 2)).astype(np.float32), explained=np.full((3, 2), 0.21),
                trustworthiness=np.full(3, 0.75), continuity=np.full(3, 0.85), note=note,
            )
            for method in ("pca", "tsne", "lda")
        }  # fmt: skip
        prediction = np.tile((np.arange(N) // 2) % 3, (3, 1))
        return SimpleNamespace(
            name=name, layers=LAYERS, maps=maps, prediction=prediction,
            confidence=rng.random((3, N), dtype=np.float32), clusters=np.tile(np.arange(N) % 10 - 1, (3, 1)),
        )  # fmt: skip

    return SimpleNamespace(
        layers=LAYERS, position=lambda layer: LAYERS.index(str(layer)), ids=np.arange(N).astype(str), labels=labels,
        label_names=("a", "$b$", "c_d"), domains=None, lengths=np.arange(N), movement=rng.random((1, 3, N)),
        sides=(side("pretrained", ""), side("tuned", "The horizontal axis separates …")),
    )  # fmt: skip


def drawn(ax):
    """The points of an Axes by colour, without the entries of the legend."""
    found = {}
    for collection in ax.collections:
        for xy in np.asarray(collection.get_offsets()).reshape(-1, 2).tolist():
            found.setdefault(tuple(collection.get_facecolor()[0][:3].round(3)), []).append(tuple(xy))
    return found


def test_every_point_is_drawn_once_where_the_scene_says(scene):
    ax = layer_map(scene, 1, side=1)
    expected = {tuple(xy) for xy in scene.sides[1].maps["pca"].xy[1].astype(float).tolist()}
    points = [xy for group in drawn(ax).values() for xy in group]
    assert len(points) == N
    assert set(points) == expected
    assert sorted(len(group) for group in drawn(ax).values()) == [1, 19, 20, 20]  # one is unlabelled
    assert ax.get_title("left") == "tuned: layer 1"
    assert ax.get_xlabel().replace("\n", " ") == "PCA: 42 % of the variance; trustworthiness 0.75; continuity 0.85"
    assert {text.get_text() for text in ax.figure.legends[0].get_texts()} == {"a", "$b$", "c_d", "none"}


@pytest.mark.parametrize("colour", ["prediction", "error", "confidence", "movement", "length", "cluster", "none"])
def test_values_are_those_of_the_side_and_layer(scene, colour):
    values = map_points(scene, 2, side=1, colour=colour)["value"]
    side = scene.sides[1]
    expected = {
        "prediction": [scene.label_names[i] for i in side.prediction[2]],
        "error": [None, *np.where(side.prediction[2] == scene.labels, "right", "wrong")[1:]],
        "confidence": side.confidence[2],
        "movement": scene.movement[0, 2],
        "length": scene.lengths,
        "cluster": [None if c < 0 else f"cluster {c + 1}" for c in side.clusters[2]],
        "none": [None] * N,
    }[colour]
    assert [None if v != v else v for v in values.tolist()] == list(expected)
    assert isinstance(layer_map(scene, 2, side=1, colour=colour).figure, Figure)


def test_wrong_predictions_are_crosses_on_grey(scene):
    ax = layer_map(scene, 0, colour="error")
    wrong = int((map_points(scene, 0, colour="error")["value"] == "wrong").sum())
    crosses = [c for c in ax.collections if len(c.get_offsets()) and np.allclose(c.get_edgecolor()[0][0], 0xD5 / 255)]
    assert sum(len(c.get_offsets()) for c in crosses if len(c.get_offsets())) >= wrong


def test_words_say_how_to_read_the_map(scene):
    assert "distances between clusters mean nothing here" in layer_map(scene, 0, method="tsne").get_xlabel().replace(
        "\n", " "
    )
    lda = [layer_map(scene, 0, side=side, method="lda").get_xlabel().replace("\n", " ") for side in (0, 1)]
    assert lda[0].startswith("The axes separate the labels (fitted on train)")
    assert lda[1].startswith("The horizontal axis separates the labels (fitted on train)")


@pytest.mark.slow
def test_panels_share_the_scale_of_colours_and_one_legend(scene, tmp_path):
    figure = map_panels(scene, [0, 2], colour="confidence")
    limits = {ax.collections[-1].get_clim() for ax in figure.axes if ax.get_title("left")}
    every = [side.confidence[at] for side in scene.sides for at in (0, 2)]
    assert limits == {(float(np.min(every)), float(np.max(every)))}
    figure = map_panels(scene, 1, width=6.3)
    assert [ax.get_title("left") for ax in figure.axes] == ["pretrained: layer 1", "tuned: layer 1"]
    assert len(figure.legends) == 1
    narrow = map_panels(scene, 1, width=3.03)
    assert narrow.get_figwidth() == pytest.approx(3.03)
    assert len({ax.get_position().x0.round(2) for ax in narrow.axes}) == 1
    one, two = (save(map_panels(scene, 1), [tmp_path / f"{k}.pdf", tmp_path / f"{k}.png"]) for k in "ab")
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in two]


def test_a_table_is_drawn_like_the_scene_it_came_from(scene, tmp_path):
    table = map_points(scene, 1).rename(columns={"value": "label"})
    table.to_parquet(tmp_path / "map.parquet")
    again = map_points(tmp_path / "map.parquet")
    np.testing.assert_array_equal(again[["x", "y"]], table[["x", "y"]])
    assert len([xy for group in drawn(layer_map(tmp_path / "map.parquet")).values() for xy in group]) == N
    with pytest.raises(UsageError, match="the table has no column 'domain'"):
        layer_map(table, colour="domain")
    assert isinstance(table, pd.DataFrame)


def test_wrong_requests_say_what_there_is(scene):
    for wrong, words in (
        ({"layer": 0, "colour": "colour"}, "did you mean"), ({"layer": None}, "name the layer; the scene has 0, 1, 2"),
        ({"layer": 0, "side": 2}, "there is no side 2"), ({"layer": 0, "method": "umap"}, "no umap map; it has pca"),
        ({"layer": 0, "colour": "domain"}, "no domains"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            layer_map(scene, **wrong)
    scene.sides[0].prediction = None
    with pytest.raises(UsageError, match="no predictions for pretrained; give the rows of probekit probe"):
        layer_map(scene, 0, colour="error")
