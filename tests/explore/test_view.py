"""The view in Python: traits, links between maps, selection and state."""

import dataclasses
import json

import numpy as np
import pytest
from scenes import a_scene

from probekit.errors import UsageError

for package in ("anywidget", "jscatter"):
    pytest.importorskip(package, reason="needs the extra 'explore'")

from probekit.explore.places import place
from probekit.explore.view import View


def panel(view, name):
    return view._panels[name]


def test_a_selection_on_one_map_is_on_the_other(view):
    left, right = view.maps
    left.selection = np.array([7, 3], np.uint32)
    assert view.selection.ids == ["e3", "e7"]
    np.testing.assert_array_equal(right.selection, [3, 7])
    right.selection = np.array([5], np.uint32)  # a click
    assert view.example == 5
    assert view.selection.ids == ["e3", "e7"]
    for one in (left, right):
        np.testing.assert_array_equal(one.selection, [3, 7])
    left.selection = None
    assert view.selection.ids == []
    assert len(right.selection) == 0


def test_a_panel_selects_on_both_maps(view):
    panel(view, "curve").selected = np.array([2, 9], np.uint32).tobytes()
    for one in view.maps:
        np.testing.assert_array_equal(one.selection, [2, 9])
    assert panel(view, "selection").selected == view.selected


def test_hover_is_linked(view):
    left, right = view.maps
    left.hovering = 4
    assert right.hovering == 4
    left.hovering = None
    assert right.hovering == -1


def test_the_layer_moves_the_points(view):
    for layer in (0, 3):
        view.layer = layer
        assert {panel(view, name).layer for name in ("controls", "curve", "example")} == {layer}
        for side, one in zip((0, view.step), view.maps, strict=True):
            np.testing.assert_array_equal(one.points[:, :2], place(view.scene, side, "pca", layer).xy)
    panel(view, "controls").layer = 1
    assert view.layer == 1
    assert f"layer {view.scene.layers[1]};" in panel(view, "left").text


def test_the_step_changes_the_right_map_only(view):
    before = [np.array(one.points) for one in view.maps]
    assert view.step == 2  # the last
    view.step = 1
    np.testing.assert_array_equal(view.maps[0].points, before[0])
    assert (view.maps[1].points != before[1]).any()
    assert panel(view, "right").name == "step 10"


def test_colour_and_paper(view):
    view.colour = "confidence"
    assert view.maps[0].points[:, 2].max() > 2
    assert panel(view, "controls").legend["kind"] == "number"
    light = view.maps[0].background_color
    panel(view, "controls").dark = True
    assert view.maps[0].background_color != light


def test_less_motion(view):
    view.layer = 0
    assert view.maps[0].transition_points
    panel(view, "controls").still = True
    view.layer = 1
    assert not view.maps[0].transition_points


def test_a_value_that_is_not_there(view):
    for name, value, message in (
        ("layer", 9, "layer is 9; it must be from 0 to 3"),
        ("step", 3, "step is 3; it must be from 0 to 2"),
        ("method", "pcb", "did you mean pca"),
        ("colour", "labels", "did you mean label"),
    ):
        before = getattr(view, name)
        with pytest.raises(UsageError, match=message):
            setattr(view, name, value)
        assert getattr(view, name) == before


def test_state_is_json_and_comes_back(view, tmp_path):
    view.layer, view.step, view.colour, view.method, view.example = 1, 2, "length", "tsne", 8
    view.select(["e4", "e2"])
    text = json.dumps(view.state)
    path = tmp_path / "state.json"
    path.write_text(text)
    for given in (text, json.loads(text), path):
        other = View(a_scene(sides=3), given)
        assert other.state == view.state
        assert other.selection.ids == ["e2", "e4"]
        np.testing.assert_array_equal(other.maps[1].selection, [2, 4])
        np.testing.assert_array_equal(other.maps[1].points, view.maps[1].points)
        other.close()


def test_a_state_of_something_else():
    scene = a_scene()
    for state, message in (
        ("{", "not JSON"),
        ("gone.json", "cannot be read"),
        ({"layr": "3"}, "did you mean layer"),
        ({"layer": "x"}, "layer is 'x'"),
        ({"right": "other"}, "right is 'other'"),
        ({"method": 5}, "method is 5"),
        ({"colour": "nope"}, "colour is 'nope'"),
        ({"selected": "r1"}, "give a list of ids"),
        ({"selected": ["nobody"]}, "1 of 1 ids"),
    ):
        with pytest.raises(UsageError, match=message):
            View(scene, state)


def test_questions_are_a_closed_set(view):
    sent = []
    example = panel(view, "example")
    example.send = sent.append
    for message in (
        {"question": "eval", "number": 1},
        {"question": "example", "number": 2, "index": 10**6, "layer": 0, "step": 1},
    ):
        view._ask(example, message, [])
    assert "not a question" in sent[0]["error"]
    assert "index is 1000000" in sent[1]["error"]
    view._ask(example, {"question": "example", "number": 3, "index": 1, "layer": 0, "step": 1}, [])
    assert sent[2]["id"] == "e1"
    assert sent[2]["number"] == 3
    assert [side["name"] for side in sent[2]["predictions"]["sides"]] == ["pretrained", "step 10"]


def test_a_search_finds_ids_and_texts(view):
    def found(text):
        asked = {"question": "find", "number": 1, "text": text}
        sent = []
        panel(view, "example").send = sent.append
        view._ask(panel(view, "example"), asked, [])
        return sent[0]

    assert [item["index"] for item in found("E17")["items"]] == [17]
    assert found("e11")["items"][0]["index"] == 11
    assert found("number 55")["items"][0]["index"] == 55
    assert found("SENTENCE")["total"] == 120 - 4
    assert len(found("sentence")["items"]) == 20
    assert found(" ")["items"] == []
    assert "error" in found(5)


def test_one_model_has_one_map():
    one = View(a_scene(sides=1))
    assert len(one.maps) == 1
    one.select(["e1"])
    np.testing.assert_array_equal(one.maps[0].selection, [1])
    assert panel(one, "curve").outcomes == b""
    one.close()


def test_no_texts():
    scene = a_scene(texts=False)
    one = View(dataclasses.replace(scene, movement=None))
    assert one.scene.texts is None
    one.close()


def test_it_is_shown_by_its_name(view):
    assert "4 layers" in repr(view)
    assert (
        "application/vnd.jupyter.widget-view+json" in view._repr_mimebundle_()[0]
        if isinstance(view._repr_mimebundle_(), tuple)
        else view._repr_mimebundle_()
    )
