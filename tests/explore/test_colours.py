"""What maps show, as arrays: colours, outcomes, places and captions. Needs no browser and no extra."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from scenes import SCRIPT, a_scene

from probekit.explore.colours import GAINED, LOST, STEPS, UNKNOWN, colours, outcomes
from probekit.explore.panels import panels, values
from probekit.explore.places import MARGIN, caption, methods, place
from probekit.explore.questions import answer
from probekit.rows import make_rows


def named(scene):
    return {colour.name: colour for colour in colours(scene)}


def test_all_colours_have_a_place_in_their_palette():
    found = named(a_scene(sides=3))
    assert list(found) == ["label", "prediction", "error", "change", "confidence", "length", "movement"]
    for colour in found.values():
        assert colour.values.dtype == np.uint8
        assert colour.values.max() < len(colour.palette)
        assert colour.values.shape[-1] == 120
        assert all(c.startswith("#") and len(c) == 7 for c in colour.palette)


def test_labels_and_predictions_share_their_colours():
    scene = a_scene()
    found = named(scene)
    label, prediction = found["label"], found["prediction"]
    assert label.palette == prediction.palette
    agrees = prediction.at(1, 1, 3) == label.at(0, 1, 0)
    np.testing.assert_array_equal(agrees, scene.sides[1].prediction[3] == scene.labels)


def test_many_classes_share_one_colour():
    scene = dataclasses.replace(a_scene(n=400, classes=4), label_names=tuple(f"c{i}" for i in range(20)))
    scene = dataclasses.replace(scene, labels=np.r_[np.arange(400) % 20, [-1]][:400].astype(np.int64))
    scene.labels[:3] = -1
    label = named(scene)["label"]
    assert label.labels[0][-2:] == ("15 others", "missing")
    assert set(label.at(0, 1, 0)[:3]) == {len(label.palette) - 1}
    assert len(set(label.palette[: len(label.labels[0]) - 2])) == 5


def test_outcomes_are_the_table():
    scene = a_scene(sides=3)
    found = outcomes(scene)
    assert found.shape == (2, 4, 120)
    right = [side.prediction[2] == scene.labels for side in scene.sides]
    assert ((found[1, 2] == GAINED) == (~right[0] & right[2])).all()
    assert ((found[1, 2] == LOST) == (right[0] & ~right[2])).all()
    change = named(scene)["change"]
    np.testing.assert_array_equal(change.at(0, 2, 2), found[1, 2])  # both maps show the pair
    np.testing.assert_array_equal(change.at(2, 2, 2), found[1, 2])


def test_a_checkpoint_without_rows_takes_nothing_from_the_others():
    scene = a_scene(sides=3)
    bare = dataclasses.replace(scene.sides[1], prediction=None, confidence=None, curve=None)
    part = dataclasses.replace(scene, sides=(scene.sides[0], bare, scene.sides[2]))
    assert (outcomes(part)[0] == UNKNOWN).all()
    np.testing.assert_array_equal(outcomes(part)[1], outcomes(scene)[1])
    assert list(named(part)) == list(named(scene))
    tests = values(part, [])["curve"]["tests"]
    assert "no rows with predictions of step 10" in tests[0][2]
    assert "Exact test" in tests[1][2]
    asked = {"question": "example", "index": 5, "layer": 1}
    sides = [answer(part, asked | {"step": step}, np.zeros(0, int))["predictions"]["sides"] for step in (1, 2)]
    assert [len(side["items"]) for side in sides[0]] == [4, 0]
    assert [len(side["items"]) for side in sides[1]] == [4, 4]


def test_numbers_are_scaled_and_missing_values_are_grey():
    scene = a_scene()
    scene.movement[0, 1, 5] = np.nan
    colour = named(scene)["movement"]
    assert colour.is_number
    assert colour.at(1, 1, 1)[5] == STEPS
    values, codes = np.delete(scene.movement[0, 1], 5), np.delete(colour.at(1, 1, 1), 5)
    order = np.argsort(values)
    assert (np.diff(codes[order].astype(int)) >= 0).all()


def test_movement_has_the_scale_of_its_layer():
    scene = a_scene(sides=3)
    scene.movement[:, 0] /= 100  # an early layer, which hardly moved
    colour = named(scene)["movement"]
    for layer in (0, 3):
        assert np.ptp(colour.at(1, 2, layer)) > STEPS / 2
        low, high = np.percentile(scene.movement[:, layer], (1, 99))
        assert colour.legend(layer)["labels"] == [f"{low:.3g}", f"{high:.3g}"]
    assert "scaled by layer" in colour.title


def test_labels_that_are_numbers():
    scene = a_scene()
    labels = np.linspace(0, 5, 120)
    labels[7] = np.nan
    sides = [dataclasses.replace(side, prediction=np.tile(labels, (4, 1))) for side in scene.sides]
    scene = dataclasses.replace(scene, labels=labels, label_names=(), sides=tuple(sides))
    found = named(scene)
    assert "error" not in found
    assert found["label"].labels == (("0", "5"),)
    np.testing.assert_array_equal(found["label"].at(0, 1, 0), found["prediction"].at(1, 1, 2))


def test_a_scene_without_predictions_or_a_second_side():
    scene = a_scene(sides=1)
    bare = dataclasses.replace(scene.sides[0], prediction=None, confidence=None, curve=None)
    scene = dataclasses.replace(scene, sides=(bare,))
    assert list(named(scene)) == ["label", "length"]
    assert len(outcomes(scene)) == 0
    assert panels(scene) == []


def test_places_keep_the_shape_and_are_inside():
    scene = a_scene()
    xy = scene.sides[1].maps["pca"].xy[3]
    found = place(scene, 1, "pca", 3)
    assert np.abs(found.xy).max() == pytest.approx(MARGIN, abs=1e-6)
    scale = MARGIN / found.half
    np.testing.assert_allclose(np.diff(found.xy, axis=0), scale * np.diff(xy, axis=0), atol=1e-5)


def test_captions_say_how_far_to_trust():
    scene = a_scene()
    assert methods(scene) == ["pca", "tsne"]
    text = caption(scene, 0, "pca", 2)
    assert "layer 2" in text
    assert "the plane holds 50 % of the variance" in text  # the axes are turned in it, so each has another share
    assert "trustworthiness 0.90; continuity 0.90" in text
    xy = scene.sides[0].maps["pca"].xy[2]
    assert f"the points span a Euclidean distance of {np.ptp(xy, axis=0).max():.3g}" in text
    assert "variance" not in caption(scene, 0, "tsne", 2)
    assert "span" not in caption(scene, 0, "tsne", 2)  # its distances mean nothing


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_captions_of_discriminants_say_what_holds_for_the_shown_points(classes):
    scene = a_scene(n=4000, classes=classes)
    share = {2: [1, np.nan], 3: [0.7, 0.3], 5: [0.5, 0.3]}[classes]
    axes = dataclasses.replace(scene.sides[0].maps["pca"], method="lda", explained=np.tile(share, (4, 1)))
    side = dataclasses.replace(scene.sides[0], maps={"lda": axes})
    text = caption(dataclasses.replace(scene, sides=(side,)), 0, "lda", 1)
    assert " nan" not in text
    assert "probe" not in text
    assert ("the plane holds 80 % of the variance between classes" in text) == (
        classes == 5
    )  # of two or three it is all
    gap = re.search(r"lie ([\d.]+) standard deviations apart horizontally, ([\d.]+) vertically", text)
    assert bool(gap) == (classes == 2)
    if gap:  # the classes lie at (±1, 0) with a standard deviation of 1; 4 standard errors, 2 / sqrt(4000)
        assert float(gap[1]) == pytest.approx(2, abs=0.15)
        assert float(gap[2]) == pytest.approx(0, abs=0.13)


def test_captions_of_numbers_say_how_the_axes_correlate_with_them():
    scene = a_scene(n=500)
    axes = dataclasses.replace(scene.sides[0].maps["pca"], method="lda", explained=np.full((4, 2), np.nan))
    labels = axes.xy[1, :, 0].astype(float)
    labels[3] = np.nan
    side = dataclasses.replace(scene.sides[0], maps={"lda": axes})
    text = caption(dataclasses.replace(scene, sides=(side,), labels=labels), 0, "lda", 1)
    assert "the axes correlate with the labels by 1.00 and 0." in text
    assert " nan" not in text


def test_curves_have_intervals_and_controls():
    [panel] = panels(a_scene(sides=2))
    assert panel["title"] == "Probe: Accuracy"
    gold = [curve for curve in panel["curves"] if not curve["control"]]
    controls = [curve for curve in panel["curves"] if curve["control"]]
    assert [curve["side"] for curve in gold] == [0, 1]
    assert len(gold[0]["values"]) == 4
    assert gold[0]["low"][0] == pytest.approx(gold[0]["values"][0] - 0.05)
    assert {curve["name"] for curve in controls} == {"pretrained, shuffled labels", "step 10, shuffled labels"}
    assert SCRIPT not in panel["title"]
    assert panel["notes"] == []


def test_floors_are_what_is_reached_without_a_layer():
    [panel] = panels(a_scene(sides=2))
    floors = [(floor["side"], floor["name"], floor["value"]) for floor in panel["floors"]]
    assert floors[:2] == [(0, "majority class", 0.52), (0, "bag of word pieces", 0.57)]
    assert [side for side, *_ in floors] == [0, 0, 1, 1]


def test_which_of_several_curves_is_drawn_is_said():
    scene = a_scene(sides=1)
    first = scene.sides[0].curve
    second = make_rows(first.assign(estimator="ridge", value=0.9))
    rows = pd.concat([first, second[second["layer"].notna()]], ignore_index=True)
    [panel] = panels(dataclasses.replace(scene, sides=(dataclasses.replace(scene.sides[0], curve=rows),)))
    [alone] = panels(scene)
    assert panel["curves"] == alone["curves"]  # controls of the other estimator are not mixed in
    assert panel["notes"] == ["pretrained: logistic is drawn; the rows also hold ridge."]
