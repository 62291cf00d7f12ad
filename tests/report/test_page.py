"""HTML of the page and its inline figures; browser tests check the rendered page."""

import io
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure as Drawing

from limiirl.report import Report, Section, Text
from limiirl.report.page import page_html
from limiirl.report.svg import DPI, INK, MUTED, PAPER, RULE, SERIES, STYLE, VARIABLES, Picture, render
from tests.oracles.report import HOSTILE, bars, curves, every_kind, heat


class Tags(HTMLParser):
    """Parser that collects the names of all tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture(scope="module")
def report() -> Report:
    return every_kind()


@pytest.fixture(scope="module")
def pictures(report: Report) -> dict[str, Picture]:
    return {figure.name: render(figure.draw, figure.name, figure.title, figure.alt) for figure in report.figures}


@pytest.fixture(scope="module")
def page(report: Report, pictures: dict[str, Picture]) -> str:
    return page_html(report, {name: picture.inline for name, picture in pictures.items()})


def test_hostile_text_is_escaped(page: str) -> None:
    parser = Tags()
    parser.feed(page)
    assert not parser.tags & {"script", "img", "iframe", "object", "embed", "base", "form"}
    assert not [name for name in parser.attributes if name.startswith("on") or name in ("src", "srcset", "action")]
    assert page.count("alert(1)") > 15


def test_the_page_requests_no_external_resources(page: str) -> None:
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page
    assert re.findall(r'<link rel="(\w+)" href="(data:)?', page) == [("icon", "data:")]
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []
    addresses = re.findall(r'(?:src|href)="(?!#|data:|figures/|tables/)([^"]*)"', page)
    assert set(addresses) == {"https://example.org/paper", "https://example.org/"}


def test_download_links_match_the_files(page: str, report: Report) -> None:
    links = set(re.findall(r'href="((?:figures|tables)/[^"]*)" download', page))
    expected = {f"figures/{figure.name}.{ending}" for figure in report.figures for ending in ("svg", "png", "csv")}
    assert links == expected | {
        f"tables/{table.name}.{ending}" for table in report.tables for ending in ("tex", "md", "csv")
    }


def test_anchors_are_unique() -> None:
    sections = [
        Section("Same!", []),
        Section("same", [Section("Same", [])]),
        Section("Main", []),
        Section("Table 1", []),
    ]
    page = page_html(Report("R", "", sections, methods=[Text("x")]), {})
    anchors = re.findall(r'<h[23] id="([^"]*)">', page)
    assert anchors == ["contents", "same", "same-2", "same-3", "section-main", "section-table-1", "methods"]
    assert re.findall(r'<a href="#([^"]*)">', page)[0:] == anchors[1:]


def test_titles_end_with_one_full_stop() -> None:
    page = page_html(Report("R", "", [Section("S", [every_kind().tables[1]])]), {})
    assert "..</b>" not in page
    assert "&gt;.</b>" in page


def test_every_colour_is_a_variable_in_both_colour_schemes(page: str) -> None:
    light, dark = page.split("prefers-color-scheme: dark", 1)
    dark = dark.split("@media print")[0]
    for colour, variable in VARIABLES.items():
        assert f"{variable}: {colour};" in light
        assert re.search(rf"{variable}: #[0-9a-f]{{6}};", dark)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_have_contrast_in_both_colour_schemes(page: str) -> None:
    light, dark = page.split("prefers-color-scheme: dark", 1)
    for style in (light, dark.split("@media print")[0]):
        colours = dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6});", style))
        for name in ("--ink", "--muted", "--link", "--good", "--bad", "--open", *list(VARIABLES.values())[4:]):
            low, high = sorted((luminance(colours[name]), luminance(colours["--paper"])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, name


@pytest.mark.parametrize("draw", [curves, heat, bars])
def test_inline_figures_use_colour_variables(draw: object) -> None:
    inline = render(draw, "x", "T", "A.").inline  # type: ignore[arg-type]
    for colour in (INK, MUTED, RULE, PAPER, *SERIES):
        assert colour not in inline
    assert "var(--ink)" in inline
    assert "DejaVu" not in inline
    for forbidden in ("<!", "<?", "<style", "<metadata", "xlink", "http", "dc:date"):
        assert forbidden not in inline


def test_text_of_figures_is_escaped() -> None:
    root = ET.fromstring(render(heat, "x", HOSTILE, HOSTILE).inline)
    texts = ["".join(element.itertext()) for element in root.iter("text")]
    assert "start" in texts
    assert "<script>alert(1)</script>" in texts
    assert root.find("title").text == root.find("desc").text == HOSTILE  # type: ignore[union-attr]
    assert root.attrib["aria-labelledby"] == "x-title x-desc"
    assert root.attrib["role"] == "img"


def test_ids_of_figures_are_unique_and_referenced() -> None:
    seen: set[str] = set()
    for name in ("one", "two"):
        root = ET.fromstring(render(curves, name, "T", "A.").inline)
        ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
        assert len(ids) == len(set(ids)) > 4
        assert all(identity.startswith(f"{name}-") for identity in ids)
        assert not seen & set(ids)
        seen |= set(ids)
        inline = ET.tostring(root, encoding="unicode")
        assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', inline)) | {f"{name}-title", f"{name}-desc"} == set(ids)


def test_links_and_scripts_in_figures_are_removed() -> None:
    def draw() -> Drawing:
        drawing = Drawing()
        drawing.text(0.5, 0.5, "click", url="javascript:alert(1)")
        drawing.text(0.5, 0.2, "there", url="https://example.org/")
        return drawing

    picture = render(draw, "x", "T", "A.")
    for text in (picture.inline, picture.svg.decode()):
        assert "click" in text
        assert "javascript" not in text
        assert "example.org" not in text


def test_control_characters_and_missing_glyphs_do_not_prevent_a_figure() -> None:
    def draw() -> Drawing:
        drawing = Drawing()
        axes = drawing.add_subplot()
        axes.set_yticks([0.2, 0.8], ["\x1b[31mred", "\u6771\u4eac"])
        return drawing

    picture = render(draw, "x", "T", "A.")
    for text in (picture.inline, picture.svg.decode()):
        assert "\ufffd[31mred" in text
        assert "\u6771\u4eac" in text


def test_figures_are_deterministic_and_files_have_a_white_background() -> None:
    first, second = render(curves, "x", "T", "A."), render(curves, "x", "T", "A.")
    assert first == second
    root = ET.fromstring(first.svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.attrib["width"] == "576pt"
    assert "var(" not in first.svg.decode()
    assert SERIES[0] in first.svg.decode()
    assert root.find("{http://www.w3.org/2000/svg}rect").attrib["fill"] == "#ffffff"  # type: ignore[union-attr]


def test_the_png_has_the_resolution_and_a_white_background() -> None:
    image = mpl.image.imread(io.BytesIO(render(curves, "x", "T", "A.").png))
    assert DPI >= 150
    assert image.shape[:2] == (round(3.1 * DPI), 8 * DPI)
    assert image[0, 0].tolist() == [1.0, 1.0, 1.0, 1.0]


def test_the_settings_of_the_user_have_no_effect_and_do_not_change() -> None:
    plain = render(bars, "x", "T", "A.")
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "red", "svg.fonttype": "path"}):
        before = dict(mpl.rcParams)
        assert render(bars, "x", "T", "A.") == plain
        assert dict(mpl.rcParams) == before
    assert mpl.rcParams["font.size"] != STYLE["font.size"]


def test_new_pyplot_figures_are_closed_and_others_stay_open() -> None:
    mpl.use("agg")
    from matplotlib import pyplot as plt

    mine = plt.figure()
    try:
        render(lambda: plt.subplots()[0], "x", "T", "A.")
        assert plt.get_fignums() == [mine.number]

        def fail() -> Drawing:
            plt.figure()
            raise RuntimeError("drawing failed")

        with pytest.raises(RuntimeError, match="drawing failed"):
            render(fail, "x", "T", "A.")
        assert plt.get_fignums() == [mine.number]
    finally:
        plt.close(mine)


def test_font_shorthands_are_expanded() -> None:
    from limiirl.report.svg import _replace_fonts

    style = "font: italic 700 9px 'DejaVu Sans', 'Arial', sans-serif; text-anchor: middle"
    assert _replace_fonts(style, "S", "M") == (
        "font-style: italic; font-weight: 700; font-size: 9px; font-family: S; text-anchor: middle"
    )
    assert _replace_fonts("font: 9px 'DejaVu Sans Mono', monospace", "S", "M") == "font-size: 9px; font-family: M"
