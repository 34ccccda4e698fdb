"""SVG files as parts of a page: matplotlib's as inline elements from a safe list, any other as an image.

Text stays text, so a page is small and can be searched; a reader without DejaVu Sans sees another sans serif. Style
attributes become separate attributes, because the page's Content-Security-Policy allows no inline styles. Unused ids
are removed and the others prefixed, so that the figures of a page do not clash.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from markupsafe import Markup

from probekit.errors import DataError

ELEMENTS = frozenset(
    (
        *("svg", "g", "defs", "path", "use", "text", "tspan", "rect", "circle", "ellipse", "line", "polyline"),
        *("polygon", "title", "clipPath", "image", "linearGradient", "radialGradient", "stop", "pattern"),
    )
)
PLACES = frozenset(
    (
        *("id", "d", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry", "dx", "dy", "width", "height"),
        *("viewBox", "points", "transform", "offset", "href", "version", "preserveAspectRatio", "gradientUnits"),
        *("gradientTransform", "patternUnits", "patternTransform", "clipPathUnits"),
    )
)
LOOKS = frozenset(
    (
        *("fill", "fill-opacity", "fill-rule", "clip-path", "clip-rule", "stroke", "stroke-width", "stroke-opacity"),
        *("stroke-linecap", "stroke-linejoin", "stroke-miterlimit", "stroke-dasharray", "stroke-dashoffset"),
        *("opacity", "font-size", "font-family", "font-weight", "font-style", "font-stretch", "font-variant"),
        *("text-anchor", "image-rendering", "stop-color", "stop-opacity", "shape-rendering", "dominant-baseline"),
    )
)
MATPLOTLIB = "*{stroke-linejoin: round; stroke-linecap: butt}"
ROUND = {"stroke-linejoin": "round", "stroke-linecap": "butt"}
FONT = re.compile(r"((?:[\w-]+ )*)([\d.]+(?:px|pt)) (.+)")
REFERENCE = re.compile(r"url\(#([^)]+)\)")
PICTURE = "data:image/png;base64,"
WIDE = 400
"""Width in points above which a figure is as wide as the page, and scrolls on a phone instead of shrinking."""


class _Foreign(Exception):
    """An element or attribute that is not on the safe list."""


def embed(svg: bytes, name: str, alt: str, long: str = "") -> Markup:
    """An SVG file as HTML: an ``<svg role="img">`` with title and description, or an ``<img>`` if it is not plain.

    Parameters
    ----------
    name : str
        A unique name of the figure on the page, letters and digits.
    alt : str
        A short description.
    long : str, default ''
        A long description.

    Raises
    ------
    DataError
        If the bytes are not an SVG file.
    """
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise DataError(f"this is not an SVG file ({error}).") from None
    if _local(root.tag) != "svg":
        raise DataError(f"this is not an SVG file but <{_local(root.tag)}>.")
    try:
        return _inline(root, name, alt, long)
    except _Foreign:
        description = f"{alt}. {long}" if long else alt
        source = base64.b64encode(svg).decode()
        return Markup('<img alt="{}" src="data:image/svg+xml;base64,{}">').format(description, source)


def _inline(root: ElementTree.Element, name: str, alt: str, long: str) -> Markup:
    plain = _plain(root)
    referred = {ref for element in plain.iter() for ref in _references(element)}
    for element in plain.iter():
        if element.get("id") not in referred:
            element.attrib.pop("id", None)
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, f"{name}-{value}")
            elif key == "href" and value.startswith("#"):
                element.set(key, f"#{name}-{value[1:]}")
            else:
                element.set(key, REFERENCE.sub(rf"url(#{name}-\1)", value))
    families = [e.get("font-family", "") for e in plain.iter("text")]
    if families and len(set(families)) == 1:
        for element in plain.iter("text"):
            element.attrib.pop("font-family", None)
        plain.set("font-family", families[0])
    wide = float(re.sub(r"[^\d.]", "", plain.get("width", "")) or 0) > WIDE
    labels = f"{name}-title {name}-desc" if long else f"{name}-title"
    plain.attrib.update({"role": "img", "aria-labelledby": labels, "class": "wide" if wide else "narrow"})
    title, desc = ElementTree.Element("title", id=f"{name}-title"), ElementTree.Element("desc", id=f"{name}-desc")
    title.text, desc.text = alt, long
    plain[:0] = [title, desc] if long else [title]
    return Markup(ElementTree.tostring(plain, encoding="unicode"))  # contains only elements of the lists above


def _plain(element: ElementTree.Element) -> ElementTree.Element:
    """A copy without namespaces, with known elements and attributes only; raises _Foreign for any other."""
    if (tag := _local(element.tag)) not in ELEMENTS:
        raise _Foreign(tag)
    copy = ElementTree.Element(tag, dict(_attributes(element)))
    copy.text, copy.tail = _shown(element, element.text), _shown(element, element.tail)
    for child in element:
        if _local(child.tag) == "metadata":
            continue
        if _local(child.tag) == "style":
            if (child.text or "").strip() != MATPLOTLIB:
                raise _Foreign("style")
            continue
        copy.append(_plain(child))
    if tag == "svg":
        copy.attrib.update(ROUND)
    return copy


def _shown(element: ElementTree.Element, text: str | None) -> str | None:
    return text if _local(element.tag) in ("text", "tspan", "title") and (text or "").strip() else None


def _attributes(element: ElementTree.Element) -> Iterator[tuple[str, str]]:
    found = {_local(key): value for key, value in element.attrib.items()}
    style = [part.partition(":") for part in found.pop("style", "").split(";") if part.strip()]
    looks = [pair for key, _, value in style for pair in _font(key.strip(), value.strip())]
    for key, value in [*found.items(), *looks]:
        if key == "type" or (key == "space" and value == "preserve"):
            continue
        if key not in (LOOKS if (key, value) in looks else PLACES | LOOKS):
            raise _Foreign(key)
        value = " ".join(value.split())
        if key == "href":
            value = value.replace(" ", "")
            if not value.startswith(("#", PICTURE)):
                raise _Foreign(value)
        elif "url(" in value and not REFERENCE.fullmatch(value):
            raise _Foreign(value)
        yield key, value


def _font(key: str, value: str) -> Iterator[tuple[str, str]]:
    """Split the shorthand ``font: bold 8px 'DejaVu Sans'`` of older versions of matplotlib."""
    if key != "font" or not (match := FONT.fullmatch(value)):
        yield key, value
        return
    words, size, family = match.groups()
    for word in words.split():
        yield ("font-style" if word in ("italic", "oblique") else "font-weight"), word
    yield from (("font-size", size), ("font-family", family))


def _references(element: ElementTree.Element) -> Iterator[str]:
    for key, value in element.attrib.items():
        if key == "href":
            yield value.removeprefix("#")
        else:
            yield from REFERENCE.findall(value)


def _local(tag: str) -> str:
    return str(tag).rpartition("}")[2]
