"""Each widget's module in Chromium, against a fake model: what a reader does becomes a value."""

import numpy as np
import pytest
from scenes import HARD, SCRIPT

pytest.importorskip("anywidget", reason="needs the extra 'explore'")

LAYERS = ["0", "1", "2", "3"]
BOTH = ["pretrained", "fine-tuned"]


def controls(module, **change):
    legend = {"kind": "category", "title": "label", "labels": ["no", SCRIPT], "colours": ["#0072B2", "#D55E00"]}
    return module(
        "controls", title=SCRIPT, layers=LAYERS, layer=2, steps=[*BOTH, "step 20"], step=1, legend=legend,
        methods=[["pca", "PCA"], ["umap", "UMAP"]], method="pca", colours=[["label", "label"], ["error", "error"]],
        colour="label", **change,
    )  # fmt: skip


def test_arrow_keys_change_the_layer(module):
    page = controls(module)
    slider = page.get_by_role("slider", name="layer")
    assert slider.input_value() == "2"
    slider.press("ArrowRight")
    assert page.evaluate("saved.at(-1).layer") == 3
    slider.press("Home")
    assert page.evaluate("saved.at(-1).layer") == 0
    assert slider.get_attribute("aria-valuetext") == "layer 0"


def test_controls_are_values(module):
    page = controls(module)
    page.get_by_role("slider", name="checkpoint").press("ArrowRight")
    assert page.evaluate("saved.at(-1).step") == 2
    page.get_by_role("combobox", name="projection").select_option("umap")
    page.get_by_role("combobox", name="colour").select_option("error")
    assert page.evaluate("[saved.at(-1).method, saved.at(-1).colour]") == ["umap", "error"]


def test_a_change_from_python_is_shown(module):
    page = controls(module)
    page.evaluate("model.set('layer', 1)")
    assert page.get_by_role("slider", name="layer").input_value() == "1"
    page.evaluate(
        "model.set('legend', {kind: 'number', title: 'length', labels: ['3', '40'], colours: ['#000', '#fff', '#777']})"
    )
    assert page.locator(".legend li > span").all_inner_texts() == ["3", "", "40"]


def test_markup_in_names_stays_text(module):
    page = controls(module)
    assert page.locator("h2").inner_text() == SCRIPT
    assert page.locator(".legend bdi").all_inner_texts() == ["no", SCRIPT]
    assert page.locator("script").count() == 0


def test_dark_paper_is_reported(module):
    page = controls(module, dark=False)
    page.evaluate("document.body.style.color = 'white'; document.body.firstChild.style.color = 'white'")
    page.wait_for_function("saved.at(-1)?.dark === true")


def test_caption_names_the_map(module):
    page = module("left", name=BOTH[0], text="PCA, layer 2.", note="Distances between clusters mean nothing here.")
    page.evaluate("document.body.firstChild.className += ' pk-map'; model.set('text', 'PCA, layer 3.')")
    assert page.get_by_role("group", name="Map of pretrained. PCA, layer 3.").count() == 1
    assert page.get_by_text("Distances between clusters mean nothing here.").is_visible()
    assert page.evaluate("saved") == []  # a height that came now would be lost
    page.evaluate("document.body.firstChild.append(Object.assign(document.createElement('div'), {api: {}}))")
    page.wait_for_function("saved.at(-1)?.width > 0")


def curve(module, **change):
    values = {"values": [0.5, 0.6, 0.7, 0.8], "low": [0.4, 0.5, 0.6, None], "high": [0.6, 0.7, 0.8, None]}
    second = values | {"values": [0.5, 0.7, None, 0.9]}
    curves = [
        {"side": 0, "name": "pretrained", "control": False, **values},
        {"side": 0, "name": "shuffled labels", "control": True, **values},
        {"side": 1, "name": SCRIPT, "control": False, **second},
    ]
    outcomes = np.tile(np.array([0, 1, 2, 2, 3, 3, 3, 4], np.uint8), 4)
    return module(
        "curve", layers=LAYERS, layer=1, step=1, sides=BOTH, panels=[{"title": "Probe: Accuracy", "curves": curves}],
        outcomes=outcomes.tobytes(), n=8, tests=[[f"p of layer {i}" for i in range(4)]], **change,
    )  # fmt: skip


def test_a_click_on_the_curve_goes_to_the_layer(module):
    page = curve(module)
    chart = page.get_by_role("slider", name="layer, on the curve of Probe: Accuracy")
    box = chart.bounding_box()
    chart.click(position={"x": box["width"] * 0.93, "y": 40})
    assert page.evaluate("saved.at(-1).layer") == 3
    assert chart.get_attribute("aria-valuetext") == f"layer 3: pretrained 0.8, shuffled labels 0.8, {SCRIPT} 0.9"
    chart.press("ArrowLeft")
    assert page.evaluate("saved.at(-1).layer") == 2
    for key, layer in (("Home", 0), ("End", 3)):
        chart.press(key)
        assert page.evaluate("saved.at(-1).layer") == layer
    assert page.evaluate("document.activeElement.role ?? document.activeElement.getAttribute('role')") == "slider"
    assert page.locator("script").count() == 0


def test_floors_are_named_lines(module):
    values = {"values": [0.5, 0.6, 0.7, 0.8], "low": [None] * 4, "high": [None] * 4}
    curves = [
        {"side": side, "name": f"{name}{kind}", "control": bool(kind), **values}
        for side, name in enumerate(BOTH)
        for kind in ("", ", shuffled")
    ]
    floors = [{"side": side, "name": "majority class", "value": 0.4} for side in (0, 1)]
    floors += [{"side": side, "name": "bag", "value": 0.6 + side / 10} for side in (0, 1)]
    panel = {"title": "Probe: Accuracy", "curves": curves, "floors": floors, "notes": ["pretrained: ridge is drawn."]}
    page = module("curve", layers=LAYERS, layer=1, step=1, sides=BOTH, panels=[panel])
    names = page.locator(".legend li").all_inner_texts()
    assert names[4:] == ["majority class (0.4)", "bag, pretrained (0.6)", "bag, fine-tuned (0.7)"]
    lines = page.locator("[role=slider] line.floor")
    heights = [float(line.get_attribute("y1")) for line in lines.all()]
    assert heights == sorted(heights, reverse=True)  # 0.4 is below the curves, and visible
    assert heights[0] < 156
    assert page.get_by_text("pretrained: ridge is drawn.").is_visible()
    look = "g => [getComputedStyle(g).stroke, getComputedStyle(g.querySelector('polyline')).strokeDasharray]"
    looks = [tuple(g.evaluate(look)) for g in page.locator("[role=slider] > g").all()]
    assert len(set(looks)) == 4  # the controls of both models are told apart


def test_a_cell_selects_its_examples(module):
    page = curve(module)
    page.get_by_role("button", name="gained: 2 examples, select them").click()
    assert page.evaluate("[...new Uint32Array(saved.at(-1).selected.buffer)]") == [2, 3]
    assert page.get_by_text("p of layer 1").count() == 1
    assert page.get_by_role("button").all_inner_texts() == ["1", "2", "1", "3"]


def test_no_curves_and_no_predictions(module):
    page = module("curve", layers=LAYERS, sides=["one"], missing="No curves.")
    assert page.get_by_text("No curves.").is_visible()
    assert page.get_by_role("button").count() == 0


def example(module, **change):
    return module(
        "example", layers=LAYERS, layer=1, step=1, kinds=[["norm", "norm"], ["unit", "one unit"]], **change,
    )  # fmt: skip


ITEM = {"label": "yes", "confidence": "87 %", "right": True}
FOUND = {
    "question": "example", "index": 3, "id": "e3", "texts": list(HARD),
    "facts": [["label", SCRIPT], ["length", "7 tokens"]],
    "predictions": {"layers": LAYERS, "sides": [{"name": "pretrained", "items": [ITEM, {**ITEM, "right": False}] * 2}]},
    "neighbours": [
        {"name": "pretrained", "items": [{"index": 5, "text": HARD[0], "label": "no", "distance": 0.125}]},
        {"name": "fine-tuned", "items": [], "reason": "The caches are closed."},
    ],
}  # fmt: skip
STRIP = {
    "question": "strip", "index": 3, "most": 2, "layers": LAYERS, "note": "Norm of each vector.",
    "sides": [{"name": "pretrained", "tokens": ["<b>", "שלום", "c"], "values": [[1, -2, None]] * 4}],
}  # fmt: skip


def test_an_example_is_asked_and_shown_as_text(module):
    page = example(module)
    assert page.get_by_text("Click a point").is_visible()
    page.evaluate("model.set('example', 3)")
    assert page.evaluate("sent.map(m => m.question)") == ["example", "strip"]
    assert page.evaluate("sent[0]") == {"question": "example", "number": 1, "index": 3, "step": 1, "layer": 1}
    page.evaluate(
        "([a, b]) => { fire('msg:custom', {...a, number: 1}); fire('msg:custom', {...b, number: 2}); }", [FOUND, STRIP]
    )
    page.get_by_role("heading", name="Example e3, layer 1").wait_for()
    assert [text.strip() for text in page.locator(".text").all_inner_texts()] == [text.strip() for text in HARD]
    assert page.locator("script").count() == page.locator("b").count() == 0
    assert page.evaluate("getComputedStyle(document.querySelectorAll('.text')[1]).direction") == "rtl"
    assert page.locator(".text").nth(3).bounding_box()["height"] < 200
    assert page.get_by_text("The caches are closed.").is_visible()
    assert page.locator("td").first.get_attribute("aria-label") == "yes, right, 87 %"
    page.get_by_text("Norm of each vector. The text has the colours of this layer").wait_for()
    assert page.get_by_text("Negative numbers are orange and underlined.").is_visible()
    assert page.get_by_text("Numbers are cosine distances between the vectors").is_visible()
    assert page.locator(".tokens span").all_inner_texts() == ["<b>", "שלום", "c"]
    assert page.get_by_role("img").count() == 1
    page.get_by_role("button", name="0.125").click()
    assert page.evaluate("saved.at(-1).example") == 5


def test_a_token_is_marked_in_its_text(module):
    page = example(module, unit="Token", example=3)
    text = f"👩 emoji {SCRIPT}"
    found = FOUND | {"id": "e3:1", "texts": ["emoji", text], "mark": [1, 2, 7]}  # characters, not UTF-16 units
    page.evaluate("a => fire('msg:custom', {...a, number: 1})", found)
    page.get_by_role("heading", name="Token e3:1, layer 1").wait_for()
    assert page.locator(".text").all_inner_texts() == [text]
    assert page.locator("mark").all_inner_texts() == ["emoji"]


def test_an_example_is_found_without_a_pointer(module):
    page = example(module, n=9)
    page.get_by_role("searchbox").fill("gut")
    assert page.evaluate("sent.at(-1)") == {"question": "find", "number": 1, "text": "gut"}
    items = [{"index": 5, "text": HARD[0], "label": "no"}]
    page.evaluate("items => fire('msg:custom', {question: 'find', number: 1, items, total: 31})", items)
    page.get_by_text("31 found, the first 1 are listed").wait_for()
    page.get_by_role("button", name="bold").click()
    assert page.evaluate("saved.at(-1).example") == 5
    page.get_by_role("button", name="next").click()
    assert page.evaluate("saved.at(-1).example") == 6
    page.get_by_role("button", name="previous").click()
    assert page.evaluate("saved.at(-1).example") == 5


def test_the_note_of_tokens_takes_no_column(module):
    page = example(module, example=3)
    zero = {"name": "left", "tokens": ["a"], "values": [[0]] * 4}  # distances of the left model from itself
    both = STRIP | {"sides": [zero, *STRIP["sides"] * 2]}
    page.evaluate("a => fire('msg:custom', {...a, number: 2})", both)
    page.get_by_text("Norm of each vector.").wait_for()
    assert page.locator("canvas").count() == 2
    width = page.evaluate("document.body.firstChild.getBoundingClientRect().width")
    assert page.locator("canvas").nth(0).bounding_box()["width"] > 0.45 * width
    page.locator("canvas").nth(0).press("ArrowRight")
    assert page.locator("output").first.inner_text() == "layer 1, שלום: -2"


def test_an_old_answer_is_not_shown(module):
    page = example(module, example=3)
    page.evaluate("model.set('example', 4)")
    page.evaluate("a => fire('msg:custom', {...a, number: 1})", FOUND)
    page.evaluate("new Promise(done => setTimeout(done))")
    assert page.get_by_role("heading", name="Example e3").count() == 0


def test_a_refusal_is_shown_where_it_was_asked(module):
    page = example(module, example=3)
    page.evaluate("fire('msg:custom', {number: 2, index: 3, error: 'no token vectors'})")
    page.get_by_text("no token vectors").wait_for()


def test_a_unit_is_asked_and_shown(module):
    page = module("units", sides=BOTH, layers=LAYERS, layer=1, step=1)
    page.get_by_label("unit", exact=True).fill("7")
    page.get_by_role("button", name="show").click()
    assert page.evaluate("sent.at(-1)") == {
        "question": "unit",
        "number": page.evaluate("sent.at(-1).number"),
        "side": 0,
        "layer": 1,
        "unit": 7,
    }
    found = {
        "unit": 7, "units": 32, "name": "pretrained", "layerName": "1", "ranking": [7, 3],
        "of": "Tokens with the highest values",
        "top": [{"index": 2, "before": "a ", "token": "<i>", "after": " c", "label": SCRIPT, "value": 1.5}],
        "values": "Values of the examples, by label",
        "histogram": {
            "edges": [0, 1, 2], "groups": [{"name": "no", "counts": [3, 1]}, {"name": "yes", "counts": [5, 5]}],
        },
        "similar": [{"side": 1, "name": "fine-tuned", "layer": 3, "layerName": "3", "unit": 9, "r": 0.5}],
    }  # fmt: skip
    page.evaluate("a => fire('msg:custom', {...a, number: sent.at(-1).number})", found)
    assert page.locator("i, script").evaluate_all("all => all.filter(e => e.textContent).length") == 0
    assert page.get_by_role("img", name="Histogram of no: 4 values from 0 to 2, most between 0 and 1").count() == 1
    heights = page.locator(".bars i").evaluate_all("all => all.map(bar => parseFloat(bar.style.height))")
    assert heights == pytest.approx([100, 100 / 3, 200 / 3, 200 / 3], abs=0.01)  # shares of each label, on one scale
    for heading in ("Tokens with the highest values", "Values of the examples, by label"):
        assert page.get_by_role("heading", name=heading).count() == 1
    page.get_by_role("button", name="1.5").click()
    assert page.evaluate("saved.at(-1).example") == 2
    page.get_by_role("button", name="fine-tuned, layer 3, unit 9: r = 0.50").click()
    assert page.evaluate("[saved.at(-1).layer, sent.at(-1).side, sent.at(-1).unit]") == [3, 1, 9]


def selection(module, **change):
    return module("selection", n=100, layer=1, step=1, hint="In Python", **change)


def test_the_selection_is_listed_and_compared(module):
    page = selection(module, selected=np.array([3, 5], np.uint32).tobytes())
    assert page.get_by_role("heading", name="2 of 100 selected").count() == 1
    items = [{"index": 3, "text": HARD[0], "label": "no"}, {"index": 5, "text": HARD[1], "label": ""}]
    page.evaluate("items => fire('msg:custom', {question: 'selection', number: 1, ids: ['a', 'b', 'c'], items})", items)
    assert page.locator("li").all_inner_texts() == [f"{HARD[0]} (no)", HARD[1], "and 1 more"]
    page.get_by_role("button", name="compare with the rest").click()
    assert page.evaluate("sent.at(-1).question") == "compare"
    rows = [["pretrained, layer 1", "accuracy", "0.900", "0.800", "0.100", "0.050 to 0.150"]]
    page.evaluate("rows => fire('msg:custom', {question: 'compare', number: 2, rows, notes: ['By eye.']})", rows)
    assert page.locator("td").all_inner_texts() == ["0.900", "0.800", "0.100\n[0.050 to 0.150]"]
    page.evaluate("model.set('layer', 2)")  # the table is of the layer that is shown
    assert page.evaluate("[sent.at(-1).question, sent.at(-1).layer]") == ["compare", 2]
    page.get_by_role("button", name="clear").click()
    assert page.evaluate("saved.at(-1).selected.byteLength") == 0
    assert page.get_by_role("heading", name="Nothing is selected").count() == 1


def test_ids_are_saved_as_text(module, tmp_path):
    page = selection(module, selected=np.array([3], np.uint32).tobytes())
    page.evaluate("fire('msg:custom', {question: 'selection', number: 1, ids: ['a', 'b'], items: []})")
    with page.expect_download() as coming:
        page.get_by_role("button", name="save ids").click()
    coming.value.save_as(tmp_path / "ids.txt")
    assert (tmp_path / "ids.txt").read_text() == "a\nb\n"
