"""The saved page in Chromium: linked maps, panels that work offline, phones, dark paper, and text that stays text."""

import re

import pytest
from scenes import HARD, SCRIPT, a_scene

from probekit.errors import UsageError

for package in ("anywidget", "jscatter"):
    pytest.importorskip(package, reason="needs the extra 'explore'")

from probekit.explore.view import View

READY = "html[data-ready]"
LASSO = "Activate lasso selection"
QUIET = ("React DevTools", "jupyter-scatter v", "GPU stall due to ReadPixels")
"""What jupyter-scatter and the driver of software WebGL say when all is well."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    view = View(a_scene(sides=3))
    view.step = 1
    path = view.save(tmp_path_factory.mktemp("page") / "explore.html")
    view.close()
    return path


@pytest.fixture
def opened(browser, saved, request):
    """The page, drawn; afterwards nothing may have been complained of or asked for."""
    options = getattr(request, "param", {"viewport": {"width": 1280, "height": 900}})
    complaints, requests = [], []
    context = browser.new_context(**options)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(saved.as_uri())
    page.locator(READY).wait_for(state="attached")
    yield page
    context.close()
    assert [text for text in complaints if not any(quiet in text for quiet in QUIET)] == []
    assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [saved.as_uri()]


def selected(page):
    """What each map shows as selected."""
    return page.evaluate("probekit.maps.map(m => [...new Uint32Array(m.get('selection').view.buffer)])")


def lasso(page, side):
    """Draw around all of a map."""
    frame = page.locator(".pk-map").nth(side)
    frame.get_by_title(LASSO).click()
    box = frame.locator("canvas").first.bounding_box()
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.05)]
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*points[0])
    page.mouse.down()
    for x, y in points[1:]:
        page.mouse.move(x, y, steps=12)
    page.mouse.up()


@pytest.mark.parametrize("side", [0, 1])
def test_a_lasso_selects_on_both_maps(opened, side):
    lasso(opened, side)
    opened.wait_for_function("probekit.state.selected.byteLength > 0")
    left, right = map(sorted, selected(opened))
    assert left == right
    assert len(left) > 60
    opened.get_by_role("heading", name=f"{len(left)} of 120 selected").wait_for()
    opened.get_by_role("button", name="clear").click()
    assert selected(opened) == [[], []]


def test_a_click_shows_the_example(opened):
    opened.locator(".pk-map").first.scroll_into_view_if_needed()
    opened.wait_for_function(
        "document.querySelector('#map-left canvas').parentNode.parentNode.api?.get('isPointsDrawn') ?? true"
    )
    place = opened.evaluate(
        "() => { const box = document.querySelector('#map-left canvas').getBoundingClientRect();"
        " const api = [...document.querySelectorAll('#map-left div')].find(d => d.api).api;"
        " const [x, y] = api.getScreenPosition(17); return [box.x + x, box.y + y]; }"
    )
    opened.mouse.move(*place)
    opened.wait_for_function("probekit.maps[1].get('hovering') === 17")  # hover is linked
    opened.mouse.click(*place)
    opened.get_by_role("heading", name="Example e17, layer 2").wait_for()
    assert opened.locator("#example .text").inner_text() == "sentence number 17"
    assert selected(opened) == [[], []]
    opened.evaluate("probekit.models.curve.set('selected', new DataView(Uint32Array.from([3, 4]).buffer))")
    opened.mouse.click(*place)
    opened.wait_for_timeout(200)
    assert selected(opened) == [[3, 4], [3, 4]]  # a click leaves the selection


def test_arrow_keys_move_the_points(opened):
    points = "[...new Float32Array(probekit.maps[1].get('points').view.buffer)]"
    before = opened.evaluate(points)
    opened.get_by_role("slider", name="layer", exact=True).press("ArrowRight")
    assert opened.evaluate("probekit.state.layer") == 3
    assert "layer 3" in opened.locator("#left").inner_text()
    after = opened.evaluate(points)
    assert before[::4] != after[::4]
    assert before[2::4] == after[2::4]  # the same points have the same labels
    opened.locator("h1").click()
    opened.keyboard.press("ArrowLeft")
    assert opened.evaluate("probekit.state.layer") == 2
    assert opened.evaluate(points) == before


DRAWN = """() => [...document.querySelectorAll(".pk-map div")]
  .filter(({ api }) => api).map(({ api }) => api.get("points").map(([x]) => x))"""


def test_only_the_last_layer_of_a_quick_slide_counts(opened):
    """jupyter-scatter refuses points while it draws others; none may be lost."""
    slider = opened.get_by_role("slider", name="layer", exact=True)
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowLeft", "End"):
        slider.press(key)
    wanted = opened.evaluate(
        "probekit.maps.map(m => [...new Float32Array(m.get('points').view.buffer)].filter((_, i) => i % 4 === 0))"
    )
    opened.wait_for_function(f"wanted => JSON.stringify(({DRAWN})()) === JSON.stringify(wanted)", arg=wanted)


def test_the_points_are_those_of_python(opened, saved):
    from probekit.explore.places import place

    scene = a_scene(sides=3)
    for layer in (0, 3):
        opened.evaluate("layer => probekit.models.controls.set('layer', layer)", layer)
        for at, side in ((0, 0), (1, 1)):
            found = opened.evaluate("at => [...new Float32Array(probekit.maps[at].get('points').view.buffer)]", at)
            assert found[::4] == pytest.approx(place(scene, side, "pca", layer).xy[:, 0].tolist(), abs=2e-5)


def test_the_curve_the_table_and_the_selection(opened):
    chart = opened.get_by_role("slider", name="layer, on the curve of Probe: Accuracy")
    box = chart.bounding_box()
    chart.click(position={"x": 0.2 * box["width"], "y": 0.4 * box["height"]})
    assert opened.evaluate("probekit.state.layer") == 0
    button = opened.get_by_role("button", name="gained")
    number = int(button.inner_text())
    button.click()
    assert [len(one) for one in selected(opened)] == [number, number]
    assert "gained at layer 0, pretrained and step 10" in opened.locator("#selection").inner_text()
    opened.get_by_role("button", name="compare with the rest").click()
    accuracy = opened.locator("#selection tr", has_text="accuracy").last.locator("td")
    assert accuracy.all_inner_texts()[2:] == [""]  # it made the selection
    opened.evaluate("probekit.models.controls.set('layer', 1)")
    opened.locator("#selection tr", has_text="step 10, layer 1").wait_for()
    assert all(opened.locator("#selection tr", has_text="accuracy").last.locator("td").all_inner_texts())
    items = opened.locator("#selection li")
    assert items.count() == number
    items.first.get_by_role("button").click()
    opened.get_by_role("heading", name="Example e").wait_for()


def test_a_comparison_is_that_of_python(opened):
    view = View(a_scene(sides=3))
    chosen = [f"e{i}" for i in range(4, 44)]
    view.select(chosen)
    wanted = view.selection.compare()
    view.close()
    opened.evaluate(
        "i => probekit.models.curve.set('selected', new DataView(Uint32Array.from(i).buffer))", list(range(4, 44))
    )
    opened.get_by_role("button", name="compare with the rest").click()
    rows, of = {}, ""
    for row in opened.locator("#selection tbody tr").all():
        name, cells = row.locator("th").inner_text(), row.locator("td").all_inner_texts()
        if not cells:
            of = name
        else:
            rows[of, name] = cells
    shown = wanted[wanted["model"].isin(["", "pretrained", "step 10"])]
    assert len(rows) == len(shown)
    for row in shown.itertuples():
        cells = rows[f"{row.model}, layer {row.layer}" if row.model else "all layers", row.quantity]
        numbers = [float(cell) for cell in re.findall(r"-?[\d.]+", " ".join(cells))]
        expected = [row.selection, row.rest, row.difference, row.ci_low, row.ci_high]
        assert numbers == pytest.approx(expected, abs=1.1e-3)


def test_the_step_and_the_colour(opened):
    opened.get_by_role("slider", name="checkpoint").press("ArrowRight")
    assert opened.locator("#right h3").inner_text() == "step 20"
    opened.get_by_role("combobox", name="colour").select_option("confidence")
    codes = opened.evaluate(
        "[...new Float32Array(probekit.maps[0].get('points').view.buffer)].filter((_, i) => i % 4 === 2)"
    )
    assert len(set(codes)) > 20
    opened.get_by_role("combobox", name="colour").select_option("movement")
    ends = opened.locator("#controls .legend li > span")
    before = ends.all_inner_texts()
    opened.get_by_role("slider", name="layer", exact=True).press("ArrowRight")
    assert ends.all_inner_texts() != before  # each layer has its scale
    opened.get_by_role("combobox", name="projection").select_option("tsne")
    assert opened.locator("#left p").nth(1).inner_text() == "Distances between clusters mean nothing here."


def test_a_search_in_the_page(opened):
    opened.get_by_role("searchbox").fill("E17")
    opened.get_by_role("button", name="sentence number 17").click()
    opened.get_by_role("heading", name="Example e17, layer 2").wait_for()
    assert opened.locator("#right p").nth(1).inner_text() == ""  # what is said on the left is not said again


def test_text_stays_text(opened):
    assert opened.locator("h1").inner_text() == f"Toy {SCRIPT} (120 examples)"
    assert opened.locator("body script").count() == 2  # the data and the program
    for index, text in enumerate(HARD):
        opened.evaluate("index => probekit.models.example.set('example', index)", index)
        opened.get_by_role("heading", name=f"Example e{index},").wait_for()
        assert opened.locator("#example .text").inner_text().strip() == text.strip()
    assert opened.locator("#example b").count() == 0
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_names_for_screen_readers(opened):
    assert opened.get_by_role("group", name="Map of pretrained. PCA, layer 2").count() == 1
    assert opened.get_by_role("region", name="Selected examples").count() == 1
    unnamed = "[...document.querySelectorAll('.pk button, .pk select, .pk input, .pk [role]')].filter(e =>"
    unnamed += " !(e.ariaLabel || e.textContent.trim() || e.title || e.labels?.length)).map(e => e.outerHTML)"
    assert opened.evaluate(unnamed) == []


PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}


@pytest.mark.parametrize("opened", [PHONE], indirect=True, ids=["phone"])
def test_a_phone_stacks_the_maps(opened):
    assert opened.evaluate("document.documentElement.scrollWidth") == 360
    first, second = (opened.locator(".pk-map").nth(i).bounding_box() for i in (0, 1))
    assert second["y"] >= first["y"] + first["height"]
    canvas = opened.locator("#map-left canvas").first
    opened.wait_for_function("probekit.maps[0].get('height') < 330")
    assert canvas.bounding_box()["width"] > 250
    opened.evaluate("probekit.models.curve.set('selected', new DataView(Uint32Array.from([1, 2, 3, 4, 5, 6]).buffer))")
    opened.get_by_role("button", name="compare with the rest").click()
    opened.locator("#selection table").wait_for()
    assert opened.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize("opened", [PHONE], indirect=True, ids=["phone"])
def test_a_map_on_a_phone_is_no_higher_than_wide(opened):
    size = "document.querySelector('#map-left canvas').getBoundingClientRect()"
    fits = f"() => {{ const {{ width, height }} = {size}; return height === probekit.maps[0].get('height') && (%s); }}"
    opened.wait_for_function(fits % "height <= width + 8", timeout=5000)
    opened.set_viewport_size({"width": 740, "height": 360})  # turned: the height follows
    opened.wait_for_function(fits % "height === 380 || width < 424", timeout=5000)


def test_maps_are_drawn_in_a_buffer_of_their_size(opened):
    """jupyter-scatter's own is as large as the window: several times slower without a graphics card."""
    same = (
        "(() => { const buffer = jupyterScatter.renderer.canvas, sizes = [...document.querySelectorAll('.pk-map div')]"
        ".filter(d => d.api).map(d => d.api.get('canvas')); return ['width', 'height'].every(side =>"
        " buffer[side] === Math.max(...sizes.map(one => one[side]))); })()"
    )
    opened.wait_for_function(same)
    opened.set_viewport_size({"width": 1000, "height": 900})
    opened.wait_for_function(f"jupyterScatter.renderer.canvas.width < 500 && {same}")


@pytest.mark.parametrize(
    "opened", [{"viewport": {"width": 900, "height": 700}, "color_scheme": "dark"}], indirect=True, ids=["dark"]
)
def test_dark_paper(opened):
    opened.wait_for_function("probekit.state.dark && probekit.maps[0].get('background_color')[0] < 0.1")
    ink = opened.locator("h1").evaluate("e => getComputedStyle(e).color")
    assert min(int(part) for part in ink[4:-1].split(",")) > 200
    opened.emulate_media(color_scheme="light")
    opened.wait_for_function("!probekit.state.dark && probekit.maps[0].get('background_color')[0] === 1")


@pytest.mark.parametrize("opened", [{"reduced_motion": "reduce"}], indirect=True, ids=["still"])
def test_points_do_not_travel_for_readers_who_ask_for_less_motion(opened):
    opened.wait_for_function("probekit.state.still")
    opened.evaluate("probekit.models.controls.set('layer', 0)")
    assert opened.evaluate("probekit.maps[0].get('transition_points')") is False
    opened.emulate_media(reduced_motion="no-preference")
    opened.wait_for_function("!probekit.state.still")
    opened.evaluate("probekit.models.controls.set('layer', 1)")
    assert opened.evaluate("probekit.maps[0].get('transition_points')") is True


def test_the_same_view_is_the_same_page(tmp_path):
    pages = []
    for name in "ab":
        view = View(a_scene())
        pages.append(view.save(tmp_path / f"{name}.html").read_bytes())
        view.close()
    assert pages[0] == pages[1]


def test_where_a_page_may_be_written(view, tmp_path):
    with pytest.raises(UsageError, match="one HTML page"):
        view.save(tmp_path / "page.pdf")
    other = tmp_path / "mine.html"
    other.write_text("mine")
    with pytest.raises(UsageError, match="does not replace it"):
        view.save(other)
    assert other.read_text() == "mine"
    first = view.save(tmp_path / "page.html")
    view.layer = 0
    assert view.save(first) == first
