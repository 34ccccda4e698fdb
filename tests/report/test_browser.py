"""The page in a browser (Chromium, by Playwright): nothing leaves it, tables sort, a phone and paper can hold it."""

import json
import shutil

import pandas as pd
import pytest
from pages import SCRIPT, curve, domain, evidence, save, training

from probekit.report import report as write_report

pytestmark = pytest.mark.slow
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra 'browser' (playwright)")
    if BROWSER is None:
        pytest.skip("needs Chromium on the PATH (Debian: apt install chromium)")
    with playwright.sync_playwright() as running:
        one = running.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield one
        one.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    steps = [row for step in (0, 9) for row in curve([0.5, 0.6], task="mrpc", step=step, checkpoint="run")]
    rows = [
        *curve([0.5, 0.9, 0.7, 0.65, 0.6, 0.62, 0.61, 0.6, 0.6, 0.58, 0.6, 0.6, 0.61], task=SCRIPT), *steps,
        *training("a", "fine-tune linear", 0.8), *training("b", "feature-extraction esim", 0.7),
        *(domain(a, b, 0.1 * i) for i, (a, b) in enumerate([("x", "y"), ("x", "z"), ("y", "z")], 1)),
    ]  # fmt: skip
    text = folder / "t.md"
    text.write_text("# Table\n\n| task | F1 |\n|---|--:|\n| a | 10 |\n| b | 9 |\n\n![x](http://example.com/x.png)\n")
    path = save(rows, folder / "rows.parquet", evidence(f"probekit probe '{SCRIPT}'"))
    return write_report(path, out=folder / "page.html", text=[text])


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A page of two studies, which have files of the same names, one of them not done."""
    folder = tmp_path_factory.mktemp("several")
    for name in "ab":
        runs = training("m.fine-tune.0", "fine-tune linear", 0.8) + training(
            "m.feature-extraction.0", "feature-extraction esim", 0.7
        )
        save(curve([0.5, 0.6, 0.7], task="a-task-of-some-length"), folder / name / "rows" / "probe.parquet")
        save(runs, folder / name / "runs" / "m" / "rows.parquet")
        (folder / name / "steps").mkdir()
        left = {"rows/probe.parquet": "1 a", "runs/m/rows.parquet": "1 a"}
        (folder / name / "steps" / "m.json").write_text(json.dumps({"step": "m", "left": left}))
        steps = [{"step": "m"}, {"step": "x", "error": "it failed"}]
        told = {"title": f"Study {name}", "about": "Of layers.", "steps": steps}
        (folder / name / "study.json").write_text(json.dumps(told))
    return write_report(folder / "a", folder / "b", out=folder / "page.html")


@pytest.fixture
def opened(browser, report, request):
    """The page, opened; afterwards nothing may have been complained of or asked for."""
    options = dict(getattr(request, "param", {"viewport": {"width": 1280, "height": 900}}))
    report = request.getfixturevalue(options.pop("of", "report"))
    said, asked = [], []
    context = browser.new_context(**options)
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda wanted: asked.append(wanted.url))
    page.goto(report.as_uri())
    yield page
    context.close()
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [report.as_uri()]


def column(table, number):
    return table.locator(f"tbody tr td:nth-child({number})").all_inner_texts()


def test_tables_sort(opened):
    table = opened.get_by_label("The main metric by layer").locator("table")
    heads = table.locator("th").all_inner_texts()
    place = 1 + heads.index("value")
    head = table.locator(f"th:nth-child({place})")
    assert head.get_attribute("aria-sort") == "none"
    head.locator("button").click()
    values = [float(text) for text in column(table, place)]
    assert values == sorted(values)
    assert values[0] != values[-1]
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").press("Enter")
    assert [float(text) for text in column(table, place)] == values[::-1]
    layer = 1 + heads.index("layer")
    table.locator(f"th:nth-child({layer}) button").click()
    assert [int(text) for text in column(table, layer)] == sorted(int(text) for text in column(table, layer))
    assert head.get_attribute("aria-sort") == "none"
    written = opened.locator("#texts table")
    written.locator("th:nth-child(2) button").click()
    assert column(written, 2) == ["9", "10"]


def test_filter_and_csv(opened, tmp_path):
    table = opened.locator("#probe .table").first
    table.get_by_label("filter rows").fill("mrpc step")
    assert table.locator("tbody tr:visible").count() == 4
    with opened.expect_download() as coming:
        table.get_by_role("button", name="CSV").click()
    coming.value.save_as(tmp_path / "a.csv")
    written = pd.read_csv(tmp_path / "a.csv")
    assert {"value", "ci_low", "ci_high", "noise_low", "noise_high"} <= set(written.columns)
    assert written.loc[written["task"] == SCRIPT, "value"].max() == 0.9
    assert len(written) == table.locator("tbody tr").count()


def test_a_task_stays_text(opened):
    assert opened.get_by_role("heading", level=1).inner_text().startswith(f"Results on {SCRIPT}")
    assert opened.locator("script").count() == 1
    assert opened.locator("svg[role=img] > title").count() == opened.locator("svg").count() >= 3


PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True}


@pytest.mark.parametrize("opened", [PHONE, PHONE | {"of": "several"}], indirect=True, ids=["one", "several"])
def test_a_phone_holds_the_page(opened):
    assert opened.evaluate("document.documentElement.scrollWidth") == 360
    outside = "[...document.querySelectorAll('h1, h2, p, pre, .paper, .scroll')].filter(e => e.getClientRects().length)"
    assert opened.evaluate(f"Math.max(...{outside}.map(e => e.getBoundingClientRect().right))") <= 360


@pytest.mark.parametrize("opened", [PHONE | {"of": "several"}], indirect=True, ids=["phone"])
def test_the_first_column_stays_when_a_table_is_scrolled(opened):
    scroll = opened.get_by_label("The main metric by layer").first
    cell = scroll.locator("tbody tr td").first
    before = cell.bounding_box()["x"]
    scroll.evaluate("element => { element.scrollLeft = 10000 }")
    assert scroll.evaluate("element => element.scrollLeft") > 50
    assert cell.bounding_box()["x"] == pytest.approx(before, abs=1)
    assert cell.inner_text() == "0"  # the layer


@pytest.mark.parametrize("opened", [{"of": "several"}], indirect=True, ids=["several"])
def test_studies_are_found_from_the_contents(opened):
    links = opened.locator("nav a")
    wanted = [link.get_attribute("href").removeprefix("#") for link in links.all()]
    assert len(wanted) == len(set(wanted)) == 12
    for name in wanted:
        assert opened.locator(f"[id='{name}']").count() == 1
    links.filter(has_text="Study b").click()
    assert opened.get_by_role("heading", name="Study b").bounding_box()["y"] < 200
    assert opened.locator(".study .caution").filter(has_text="x: it failed").count() == 2
    assert opened.locator("#s2-evidence pre.command").first.is_hidden()
    opened.locator("#s2-evidence details.cards > summary").click()
    assert opened.locator("#s2-evidence pre.command").first.is_visible()


@pytest.mark.parametrize("opened", [{"color_scheme": scheme} for scheme in ("light", "dark")], indirect=True)
def test_letters_stand_out(opened):
    """Contrast of 4.5 to 1 or more, as WCAG 2 asks for (AA)."""
    pairs = opened.evaluate(
        """() => [...document.querySelectorAll("h1, h2, h3, p, li, td, a, figcaption, summary, button, pre, dt")]
        .filter(e => e.getClientRects().length).map(e => {
            let under = e;
            const seen = c => c !== "rgba(0, 0, 0, 0)";
            while (under && !seen(getComputedStyle(under).backgroundColor)) under = under.parentElement;
            const ground = getComputedStyle(under ?? document.documentElement).backgroundColor;
            return [e.tagName + ": " + e.textContent.slice(0, 30), getComputedStyle(e).color, ground];
        })"""
    )

    def light(colour):
        parts = [int(part) / 255 for part in colour.strip("rgba()").split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert len(pairs) > 100
    for what, colour, ground in pairs:
        dark, bright = sorted((light(colour), light(ground)))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, what


def test_paper(opened, tmp_path):
    opened.emulate_media(media="print")
    assert opened.locator("nav").is_hidden()
    assert opened.get_by_role("button", name="CSV").count() == 0
    assert opened.locator("#evidence pre.command").first.is_hidden()
    assert "1 file of rows" in opened.locator("#evidence > p").inner_text()
    opened.set_viewport_size({"width": 688, "height": 1000})  # of A4 between the margins
    assert opened.evaluate("document.documentElement.scrollWidth") <= 688
    opened.evaluate("document.querySelector('.cards').open = true")  # who unfolds it has it on paper
    assert opened.locator("#evidence pre.command").first.is_visible()
    assert len(opened.pdf(path=tmp_path / "page.pdf", format="A4")) > 10_000


@pytest.mark.parametrize("opened", [{"color_scheme": "dark"}], indirect=True, ids=["dark"])
def test_dark(opened):
    def brightness(of):
        colour = opened.evaluate(f"getComputedStyle({of}).backgroundColor")
        return sum(int(part) for part in colour.strip("rgba()").split(",")[:3])

    assert brightness("document.documentElement") < 100
    assert brightness("document.querySelector('.paper')") == 765  # figures are drawn for white paper
    assert len(opened.screenshot(full_page=True)) > 10_000
    opened.locator("#theme").click()
    assert brightness("document.documentElement") > 700


@pytest.mark.parametrize("opened", [{"viewport": {"width": 1280, "height": 800}}], indirect=True, ids=["desktop"])
def test_tables_and_figures_fit_a_desktop(opened):
    """But for all rows as they are in the files, which are folded and scroll."""
    cut = """() => [...document.querySelectorAll(".scroll")].filter(e => !e.closest("details.rows")
        && e.scrollWidth > e.clientWidth + 1).map(e => e.getAttribute("aria-label"))"""
    assert opened.evaluate(cut) == []
    widths = """() => [...document.querySelectorAll("svg.wide")].map(e => e.getBoundingClientRect().width
        / e.parentElement.clientWidth)"""
    shown = opened.evaluate(widths)
    assert shown
    assert min(shown) > 0.95
