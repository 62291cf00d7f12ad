"""A matplotlib figure as a file for paper and as markup of a page, in which its colours are CSS variables."""

import io
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from limiirl.report.markup import clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


INK = "#1a1b1e"
"""Text, and lines that carry the meaning."""

MUTED = "#5c6069"
"""Axes, ticks, secondary labels, reference lines."""

RULE = "#dcdee3"
"""Grid lines and faint frames."""

PAPER = "#fefefe"
"""The background itself: halos of labels, edges of markers, fills that hide what lies below."""

SERIES = ("#0b6bb0", "#bf5200", "#0a8560", "#b04f8d", "#8c6a00", "#117f96", "#b3243c", "#6a4fc0")
"""One colour an intent or a method, in this order; text of the colour `PAPER` can be read on each, and the reverse."""

VARIABLES: Mapping[str, str] = MappingProxyType(
    {INK: "--ink", MUTED: "--muted", RULE: "--rule", PAPER: "--paper"}
    | {colour: f"--series-{place}" for place, colour in enumerate(SERIES, start=1)}
)
"""The CSS variable that takes a colour's place on a page."""

WIDE, NARROW = 8.0, 4.6
"""Widths in inches of a figure as wide as the page, and of one that a phone shows without scrolling."""

STYLE: Mapping[str, object] = MappingProxyType(
    {
        "font.size": 9.0,
        "axes.titlesize": 9.5,
        "axes.labelsize": 9.0,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "legend.fontsize": 8.5,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "axes.titlelocation": "left",
        "axes.edgecolor": MUTED,
        "axes.facecolor": "none",
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": False,
        "grid.color": RULE,
        "grid.linewidth": 0.7,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": MUTED,
        "ytick.labelcolor": MUTED,
        "axes.prop_cycle": f"cycler('color', {list(SERIES)})",
        "legend.frameon": False,
        "lines.linewidth": 1.6,
        "figure.facecolor": "none",
        "figure.constrained_layout.use": True,
    }
)
"""The matplotlib settings under which every figure of a report is drawn and saved."""


DPI = 200
"""Of the PNG files: print quality at the width of a column."""

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_DROPPED = ("metadata", "style", "script", "foreignObject")
_HEX = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_FAMILY = re.compile(r"font-family: *([^;]+)")
_SHORTHAND = re.compile(r"\bfont: *([^;]*?)(\d[\d.]*px) *([^;]+)")
_DECIMALS = re.compile(r"-?\d+\.\d{3,}")


@dataclass(frozen=True)
class Picture:
    """The forms of one figure."""

    inline: str
    svg: bytes
    png: bytes


def render(draw: Callable[[], "Drawing"], name: str, title: str, alt: str) -> Picture:
    """Draw a figure under the style of reports, and give its forms.

    Neither pyplot nor the caller's settings are touched, and the bytes depend on the drawing alone: they hold no date
    and no random name.

    Parameters
    ----------
    draw : callable
        Returns a matplotlib Figure.
    name : str
        Put before every id, so that several figures can share a page.
    title, alt : str
        The text alternative.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> picture = render(Figure, "blank", "Blank", "An empty frame.")
    >>> picture.inline.startswith('<svg'), picture.png[1:4]
    (True, b'PNG')
    """
    import matplotlib.style

    vector, raster = io.BytesIO(), io.BytesIO()
    settings = dict(STYLE) | {"svg.fonttype": "none", "svg.hashsalt": name, "savefig.bbox": None}
    # From the defaults, so that a report looks the same whatever the user has set for other figures.
    with matplotlib.style.context(["default", settings]), _pyplot_as_it_was():
        drawing = draw()
        drawing.savefig(vector, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        drawing.savefig(raster, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    source = vector.getvalue()
    return Picture(
        inline=_inline(_tree(source, name, title, alt)),
        svg=_standalone(_tree(source, name, title, alt)),
        png=raster.getvalue(),
    )


@contextmanager
def _pyplot_as_it_was() -> Iterator[None]:
    """Close the figures that a drawing left open in pyplot, and no other."""

    def numbers() -> set[int]:
        pyplot = sys.modules.get("matplotlib.pyplot")
        return set(pyplot.get_fignums()) if pyplot else set()

    before = numbers()
    try:
        yield
    finally:
        for number in numbers() - before:
            sys.modules["matplotlib.pyplot"].close(number)


def _tree(source: bytes, name: str, title: str, alt: str) -> ET.Element:
    root = ET.fromstring(source)
    _prune(root)
    _name_apart(root, name)
    # A rule for every element would reach beyond the figure on a page; set on the root, its parts inherit it.
    view = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib |= {"viewBox": view, "role": "img", "aria-labelledby": f"{name}-title {name}-desc"}
    root.attrib["style"] = "stroke-linejoin: round; stroke-linecap: butt"
    for place, (tag, text) in enumerate((("title", title), ("desc", alt))):
        element = ET.Element(tag, {"id": f"{name}-{tag}"})
        element.text = clean(text)
        root.insert(place, element)
    return root


def _prune(element: ET.Element) -> None:
    """Drop what a page must not hold: foreign names, metadata, rules, addresses; and what it need not: white space."""
    element.tag = element.tag.removeprefix(_SVG)
    if element.tag not in ("text", "tspan") and not (element.text or "").strip():
        element.text = None
    attributes = element.attrib
    href = attributes.pop(_HREF, attributes.pop("href", ""))
    for key in [key for key in attributes if key.startswith(("{", "on")) or key == "target"]:
        del attributes[key]
    if href.startswith(("#", "data:image/")):
        attributes["href"] = href
    if "d" in attributes:
        attributes["d"] = " ".join(_round(attributes["d"]).split())
    for key in ("x", "y"):
        if key in attributes:
            attributes[key] = _round(attributes[key])
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    for child in list(element):
        if not isinstance(child.tag, str) or child.tag.removeprefix(_SVG) in _DROPPED:
            element.remove(child)
            continue
        _prune(child)
        child.tail = child.tail if element.tag in ("text", "tspan") else None
        if child.tag == "defs" and not len(child):
            element.remove(child)


def _round(numbers: str) -> str:
    # A hundredth of a point is below what any screen or printer shows, and halves the size.
    return _DECIMALS.sub(lambda number: f"{float(number[0]):.2f}", numbers)


def _name_apart(root: ET.Element, name: str) -> None:
    """Put the figure's name before each id that is referred to, and drop the others."""
    referred: set[str] = set()
    for element in root.iter():
        for value in element.attrib.values():
            referred.update(_REFERENCE.findall(value))
        href = element.attrib.get("href", "")
        if href.startswith("#"):
            referred.add(href[1:])
            element.attrib["href"] = f"#{name}-{href[1:]}"
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                continue
            element.attrib[key] = _REFERENCE.sub(rf"url(#{name}-\1)", value)
        identity = element.attrib.pop("id", None)
        if identity in referred:
            element.attrib["id"] = f"{name}-{identity}"


def _inline(root: ET.Element) -> str:
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib["style"] += f"; --width: {width}; aspect-ratio: {width} / {height}"
    for element in root.iter():
        if "style" in element.attrib:
            style = _HEX.sub(_variable, element.attrib["style"])
            element.attrib["style"] = _families(style, "var(--sans)", "var(--mono)")
    return ET.tostring(root, encoding="unicode")


def _standalone(root: ET.Element) -> bytes:
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "width": f"{width}pt", "height": f"{height}pt"}
    for element in root.iter():
        if "style" in element.attrib:
            element.attrib["style"] = _families(element.attrib["style"], "Helvetica, Arial, sans-serif", "monospace")
        if "href" in element.attrib:
            # Older programs that read SVG files know only the old name of this attribute.
            root.attrib["xmlns:xlink"] = "http://www.w3.org/1999/xlink"
            element.attrib["xlink:href"] = element.attrib.pop("href")
    # White, so that the file can be read wherever it is opened.
    root.insert(2, ET.Element("rect", {"width": width, "height": height, "fill": "#ffffff"}))
    return b"<?xml version='1.0' encoding='utf-8'?>\n" + ET.tostring(root, encoding="unicode").encode() + b"\n"


def _variable(match: re.Match[str]) -> str:
    variable = VARIABLES.get(match[0])
    return f"var({variable})" if variable else match[0]


def _families(style: str, sans: str, mono: str) -> str:
    """Replace the long list of families that matplotlib writes by the page's own, or a short one."""

    def family(names: str) -> str:
        return f"font-family: {mono if 'mono' in names.partition(',')[0].lower() else sans}"

    style = _SHORTHAND.sub(lambda match: f"{_parts(match[1])}font-size: {match[2]}; font-family: {match[3]}", style)
    return _FAMILY.sub(lambda match: family(match[1]), style)


def _parts(words: str) -> str:
    """The style and weight of a `font:` shorthand, as matplotlib before 3.11 writes it, as properties of their own."""
    named = {"italic": "font-style", "oblique": "font-style"}
    return "".join(f"{named.get(word, 'font-weight')}: {word}; " for word in words.split())
