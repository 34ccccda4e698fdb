"""SVG in a page: what matplotlib draws is taken in, what could do something is kept out."""

import pytest
from matplotlib.figure import Figure

from probekit.errors import DataError
from probekit.plots.files import as_bytes
from probekit.report.svg import embed

SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="600pt">{}</svg>'


def put(inside):
    return str(embed(SVG.format(inside).encode(), "f", "short", "long"))


def test_what_matplotlib_draws_goes_in():
    figure = Figure(figsize=(3, 2))
    ax = figure.subplots()
    ax.imshow([[0, 1], [2, 3]])
    ax.bar([0], [1], hatch="//")
    ax.fill_between([0, 1], [0, 1], alpha=0.5)
    ax.plot([0, 1], [0, 1], "o--")
    ax.set_title("<a & b> $x^2$ 한국")
    svg = as_bytes(figure, ".svg")
    html = str(embed(svg, "f", "a title", "a description"))
    assert html.startswith("<svg ")  # inline, not as a picture
    assert 'role="img"' in html
    assert '<title id="f-title">a title</title><desc id="f-desc">a description</desc>' in html
    assert "style=" not in html.replace("font-style=", "")
    assert "<style" not in html
    assert "<metadata" not in html
    assert 'href="data:image/png;base64,' in html
    assert 'fill="url(#f-' in html  # the hatch
    assert html.count("stroke-linejoin") > 0
    assert svg == as_bytes(figure, ".svg")


def test_attributes_instead_of_styles():
    text = put("""<text style="font: italic bold 8px 'DejaVu Sans', serif; fill: red">x</text>""")
    for look in ('font-style="italic"', 'font-weight="bold"', 'font-size="8px"', 'fill="red"'):
        assert look in text
    assert """font-family="'DejaVu Sans', serif\"""" in text
    assert 'class="wide"' in text


def test_references_are_renamed():
    html = put('<defs><path id="a" d="M 0 0"/></defs><use xlink:href="#a" clip-path="url(#b)"/><g id="unused"/>')
    assert 'id="f-a"' in html
    assert 'href="#f-a"' in html
    assert "url(#f-b)" in html
    assert "unused" not in html


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        '<rect onclick="alert(1)"/>',
        '<image href="http://example.com/x.png"/>',
        '<use href="other.svg#a"/>',
        '<rect fill="url(http://example.com/x)"/>',
        '<rect style="background: url(http://example.com/x)"/>',
        "<style>rect { fill: red }</style>",
        "<foreignObject/>",
        '<a href="http://example.com"/>',
    ],
)
def test_what_could_do_something_is_a_picture(inside):
    html = put(inside)
    assert html.startswith('<img alt="short. long" src="data:image/svg+xml;base64,')
    assert html.count("<") == 1


@pytest.mark.parametrize("svg", [b"", b"<svg", b"<html/>", b"\xff"])
def test_no_svg(svg):
    with pytest.raises(DataError, match="this is not an SVG file"):
        embed(svg, "f", "x")
