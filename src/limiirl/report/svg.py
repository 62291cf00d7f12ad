"""Matplotlib figures as SVG and PNG files, and as inline SVG whose colours are CSS variables of the page."""

import io
import re
import sys
import warnings
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
"""Text and main lines."""

MUTED = "#5c6069"
"""Axes, ticks, secondary labels and reference lines."""

RULE = "#dcdee3"
"""Grid lines and frames."""

PAPER = "#fefefe"
"""Background, for outlines of labels, edges of markers and opaque fills."""

SERIES = ("#0b6bb0", "#bf5200", "#0a8560", "#b04f8d", "#8c6a00", "#117f96", "#b3243c", "#6a4fc0")
"""Colours of intents and methods, in this order; each has sufficient contrast with `PAPER`."""

VARIABLES: Mapping[str, str] = MappingProxyType(
    {INK: "--ink", MUTED: "--muted", RULE: "--rule", PAPER: "--paper"}
    | {colour: f"--series-{index}" for index, colour in enumerate(SERIES, start=1)}
)
"""CSS variable of each colour."""

WIDE, NARROW = 8.0, 4.6
"""Figure widths in inches, for the full page and for the screen of a phone."""

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
"""Matplotlib settings for all figures of a report."""


DPI = 200
"""Resolution of the PNG files."""

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
    """A figure as inline SVG, and the contents of its SVG and PNG files."""

    inline: str
    svg: bytes
    png: bytes


def render(draw: Callable[[], "Drawing"], name: str, title: str, alt: str) -> Picture:
    """Draw a figure with the settings of reports, and return it in all formats.

    Every id starts with `name`, so that several figures can be on one page; `title` and `alt` are the text alternative.
    The state of pyplot and the settings of the caller do not change, and the output is deterministic.

    >>> from matplotlib.figure import Figure
    >>> picture = render(Figure, "blank", "Blank", "An empty frame.")
    >>> picture.inline.startswith('<svg'), picture.png[1:4]
    (True, b'PNG')
    """
    import matplotlib.style

    vector, raster = io.BytesIO(), io.BytesIO()
    settings = dict(STYLE) | {"svg.fonttype": "none", "svg.hashsalt": name, "savefig.bbox": None}
    # Start from the defaults, so that the output does not depend on the user's settings.
    with matplotlib.style.context(["default", settings]), _close_new_figures(), warnings.catch_warnings():
        # The PNG has a box for a character that matplotlib's font lacks; the SVG on the page uses the reader's fonts.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        drawing = draw()
        drawing.savefig(vector, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        drawing.savefig(raster, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    source = vector.getvalue()
    return Picture(
        inline=_to_inline(_parse_svg(source, name, title, alt)),
        svg=_to_file(_parse_svg(source, name, title, alt)),
        png=raster.getvalue(),
    )


@contextmanager
def _close_new_figures() -> Iterator[None]:
    """Close the pyplot figures that are opened inside the context."""

    def list_figures() -> set[int]:
        pyplot = sys.modules.get("matplotlib.pyplot")
        return set(pyplot.get_fignums()) if pyplot else set()

    before = list_figures()
    try:
        yield
    finally:
        for number in list_figures() - before:
            sys.modules["matplotlib.pyplot"].close(number)


def _parse_svg(source: bytes, name: str, title: str, alt: str) -> ET.Element:
    # matplotlib does not escape control characters, which are invalid in XML.
    root = ET.fromstring(clean(source.decode()))
    _prune(root)
    _prefix_ids(root, name)
    # Set as attributes of the root element; a style sheet would affect the whole page.
    view = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib |= {"viewBox": view, "role": "img", "aria-labelledby": f"{name}-title {name}-desc"}
    root.attrib["style"] = "stroke-linejoin: round; stroke-linecap: butt"
    for index, (tag, text) in enumerate((("title", title), ("desc", alt))):
        element = ET.Element(tag, {"id": f"{name}-{tag}"})
        element.text = clean(text)
        root.insert(index, element)
    return root


def _prune(element: ET.Element) -> None:
    """Remove namespaces, metadata, style sheets, scripts, external links and white space."""
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
    # Rounding to two decimals is invisible and halves the size of the file.
    return _DECIMALS.sub(lambda number: f"{float(number[0]):.2f}", numbers)


def _prefix_ids(root: ET.Element, name: str) -> None:
    """Prefix each referenced id with the name of the figure, and remove all other ids."""
    referenced: set[str] = set()
    for element in root.iter():
        for value in element.attrib.values():
            referenced.update(_REFERENCE.findall(value))
        href = element.attrib.get("href", "")
        if href.startswith("#"):
            referenced.add(href[1:])
            element.attrib["href"] = f"#{name}-{href[1:]}"
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                continue
            element.attrib[key] = _REFERENCE.sub(rf"url(#{name}-\1)", value)
        identity = element.attrib.pop("id", None)
        if identity in referenced:
            element.attrib["id"] = f"{name}-{identity}"


def _to_inline(root: ET.Element) -> str:
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib["style"] += f"; --width: {width}; aspect-ratio: {width} / {height}"
    for element in root.iter():
        if "style" in element.attrib:
            style = _HEX.sub(_to_variable, element.attrib["style"])
            element.attrib["style"] = _replace_fonts(style, "var(--sans)", "var(--mono)")
    return ET.tostring(root, encoding="unicode")


def _to_file(root: ET.Element) -> bytes:
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "width": f"{width}pt", "height": f"{height}pt"}
    for element in root.iter():
        if "style" in element.attrib:
            element.attrib["style"] = _replace_fonts(
                element.attrib["style"], "Helvetica, Arial, sans-serif", "monospace"
            )
        if "href" in element.attrib:
            # Older SVG readers require the namespace xlink.
            root.attrib["xmlns:xlink"] = "http://www.w3.org/1999/xlink"
            element.attrib["xlink:href"] = element.attrib.pop("href")
    # The background of a viewer may be dark.
    root.insert(2, ET.Element("rect", {"width": width, "height": height, "fill": "#ffffff"}))
    return b"<?xml version='1.0' encoding='utf-8'?>\n" + ET.tostring(root, encoding="unicode").encode() + b"\n"


def _to_variable(match: re.Match[str]) -> str:
    variable = VARIABLES.get(match[0])
    return f"var({variable})" if variable else match[0]


def _replace_fonts(style: str, sans: str, mono: str) -> str:
    style = _SHORTHAND.sub(
        lambda match: f"{_expand_font(match[1])}font-size: {match[2]}; font-family: {match[3]}", style
    )
    return _FAMILY.sub(
        lambda match: f"font-family: {mono if 'mono' in match[1].partition(',')[0].lower() else sans}", style
    )


def _expand_font(words: str) -> str:
    """Return the style and weight of a `font:` shorthand (matplotlib before 3.11) as separate properties."""
    named = {"italic": "font-style", "oblique": "font-style"}
    return "".join(f"{named.get(word, 'font-weight')}: {word}; " for word in words.split())
