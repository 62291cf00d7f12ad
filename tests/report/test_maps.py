"""Maps: GeoJSON, escaping, files, and rendering in a browser."""

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiirl.errors import InvalidParameter
from limiirl.report import Layer, Map, Report, Section, Stroke, Text, write
from limiirl.report.map_image import map_png
from limiirl.report.maps import map_columns, map_geojson
from limiirl.report.page import page_html
from limiirl.report.svg import INK, MUTED, SERIES
from tests.helpers import raises
from tests.oracles.browser import chromium, examine, require_browser

HOSTILE = '</script><script>alert(1)</script><img src=x onerror=alert(1)> & "double" \u2028'
SQUARE = np.array([[41.15, -8.64], [41.15, -8.62], [41.17, -8.62], [41.17, -8.64], [41.15, -8.64]])


def layers() -> list[Layer]:
    """Return layers of a square in two colourings, a diagonal and two dots, with hostile names."""
    points, offsets = SQUARE[[0, 1, 1, 2, 2, 3, 3, 4]], np.array([0, 2, 4, 6, 8])
    wide = [Stroke(HOSTILE, SERIES[0], 9.0), Stroke("other", SERIES[1], 9.0)]
    facts = {HOSTILE: [HOSTILE, "b", None, "d"]}
    return [
        Layer("first", points, offsets, strokes=wide, stroke=[0, 1, 0, 1], facts=facts, group="colouring"),
        Layer("second", points, offsets, strokes=[Stroke("", SERIES[2], 9.0)], stroke=[0, 0, 0, -1], group="colouring"),
        Layer.of_lines(HOSTILE, [SQUARE[[0, 2]]], strokes=[Stroke("", SERIES[3], 9.0, halo=True)]),
        Layer("dots", SQUARE[:2], strokes=[Stroke("", INK, 20.0)], kind="points", shown=False),
        Layer.of_lines("far only", [SQUARE[[1, 3]]], strokes=[Stroke("", SERIES[6], 9.0, detail=0.5)]),
    ]


def a_map(**changes: Any) -> Map:
    settings: dict[str, Any] = {"attribution": f"(c) {HOSTILE}", **changes}
    return Map("square", "A square", f"A square of streets. {HOSTILE}", "Look.", layers(), **settings)


def a_report() -> Report:
    return Report("Maps", "A map.", [Section("Here", [Text("Text."), a_map()]), Section("There", [Text("More.")])])


def feature(item: Map, number: int) -> Any:
    return json.loads(map_geojson(item))["features"][number]


def test_a_map_is_a_geojson_feature_collection_in_degrees() -> None:
    item = a_map()
    content = json.loads(map_geojson(item))
    assert content["type"] == "FeatureCollection"
    (south, west), (north, east) = item.bounds
    assert content["bbox"] == [west, south, east, north]
    assert {part["type"] for part in content["features"]} == {"Feature"}
    kinds = [part["geometry"]["type"] for part in content["features"]]
    assert kinds == ["LineString"] * 5 + ["Point"] * 2 + ["LineString"]
    assert content["features"][0]["geometry"]["coordinates"] == [[-8.64, 41.15], [-8.62, 41.15]]


@given(st.floats(-80.0, 80.0), st.floats(-179.0, 179.0))
def test_coordinates_have_six_decimals(lat: float, lon: float) -> None:
    at = Map("m", "M", "A.", "", [Layer("x", [[lat, lon]], kind="points")])
    np.testing.assert_allclose(feature(at, 0)["geometry"]["coordinates"], [lon, lat], rtol=0.0, atol=0.5001e-6)


def test_layers_that_share_an_array_share_its_features() -> None:
    content = json.loads(map_geojson(a_map()))
    shown = [list(part["properties"]) for part in content["features"]]
    assert shown == [["0", "1"], ["0", "1"], ["0", "1"], ["0"], ["2"], ["3"], ["3"], ["4"]]


def test_equal_facts_of_layers_are_written_once() -> None:
    facts = {"km": ["1", "2"], "name": ["a", None]}
    both = [
        Layer(title, SQUARE[:2], strokes=[Stroke()] * 2, stroke=[0, 1], facts=facts, kind="points") for title in "ab"
    ]
    both[1] = Layer("b", both[0].points, both[0].offsets, stroke=[0, 0], facts=facts, kind="points")
    other = Layer("c", both[0].points, both[0].offsets, stroke=[-1, 0], facts={"x": ["", "2"]}, kind="points")
    content = json.loads(map_geojson(Map("m", "M", "A.", "", [*both, other])))
    assert [part["properties"] for part in content["features"]] == [
        {"0": [0, "1", "a"], "1": 0},
        {"0": [1, "2"], "1": 0, "2": [0, "2"]},
    ]


def test_text_cannot_close_its_element() -> None:
    text = map_geojson(a_map())
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text)["layers"][2]["title"] == HOSTILE


def test_features_have_strokes_and_facts() -> None:
    layer = json.loads(map_geojson(a_map()))["layers"][0]
    assert layer["facts"] == [HOSTILE]
    assert [stroke["label"] for stroke in layer["strokes"]] == [HOSTILE, "other"]
    rows = [feature(a_map(), number)["properties"]["0"] for number in range(4)]
    assert rows == [[0, HOSTILE], [1, "b"], [0], [1, "d"]]


def test_one_layer_per_group_is_visible_initially() -> None:
    assert a_map().visible() == (True, False, True, False, True)


def test_the_default_view_contains_the_visible_layers() -> None:
    assert a_map().bounds == ((41.15, -8.64), (41.17, -8.62))
    window = ((41.0, -8.7), (41.1, -8.6))
    assert a_map(view=window).bounds == window
    np.testing.assert_allclose(a_map(view=((0.0, 0.0), (1.0, 1.5))).aspect, 1.5, rtol=1e-3)


@pytest.mark.parametrize(
    ("make", "parameter", "value", "index"),
    [
        (lambda: Stroke("red", "#ff0000"), "colour", "#ff0000", None),
        (lambda: Stroke("thin", MUTED, 0.0), "width", 0.0, None),
        (lambda: Stroke("pale", strength=1.5), "strength", 1.5, None),
        (lambda: Layer("x", [[-8.63, 141.15, 0.0]]), "points", (1, 3), None),
        (lambda: Layer("x", [[41.15, -8.63], [141.15, -8.63]]), "points", [141.15, -8.63], 1),
        (lambda: Layer("x", [[41.15, np.inf]]), "points", [41.15, np.inf], 0),
        (lambda: Layer("x", SQUARE, [0, 3]), "offsets", None, None),
        (lambda: Layer("x", SQUARE, [0, 0, 5]), "offsets", None, None),
        (lambda: Layer("x", SQUARE, [0, 5], stroke=[1]), "stroke", 1, 0),
        (lambda: Layer("x", SQUARE, [0, 5], stroke=[-2]), "stroke", -2, 0),
        (lambda: Layer("x", SQUARE, [0, 5], strokes=[]), "strokes", None, None),
        (lambda: Layer("x", SQUARE, [0, 5], facts={"km": [1, 2]}), "facts", "km", None),
        (lambda: Layer("x", SQUARE, kind="balls"), "kind", "balls", None),  # type: ignore[arg-type]
        (lambda: Layer(" ", SQUARE), "title", " ", None),
        (lambda: Map("m", "M", "A.", "", [Layer("x", np.empty((0, 2)))]), "layers", None, None),
        (lambda: Map("M", "M", "A.", "", layers()), "name", "M", None),
        (lambda: Map("m", "M", "", "", layers()), "alt", "", None),
        (lambda: Map("m", "M", "A.", "", layers(), view=((0.0, 0.0), (99.0, 0.0))), "view", [99.0, 0.0], 1),
        (lambda: Report("R", "", [Section("S", [a_map(), a_map()])]), "sections", "square", None),
    ],
)
def test_invalid_maps_are_rejected(make: Any, parameter: str, value: Any, index: Any) -> None:
    with raises(InvalidParameter, parameter=parameter, value=value, index=index):
        make()


def test_the_page_permits_only_its_own_script(tmp_path: Path) -> None:
    page = write(a_report(), tmp_path).read_text()
    script = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\">" in page
    assert page.count("<script") == 2
    plain = page_html(Report("R", "", [Section("S", [Text("x")])]), {})
    assert "<script" not in plain
    assert "script-src" not in plain
    assert "map-frame" not in plain


def test_files_of_a_map_are_written_and_removed(tmp_path: Path) -> None:
    page = write(a_report(), tmp_path)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "figures/square.csv").read_text())))
    # One row per feature; the fourth street is in the first colouring only.
    assert len(rows) == 4 + 1 + 2 + 1
    assert rows[1]["layers"] == "first: other; second"
    assert rows[3]["layers"] == "first: other"
    assert rows[1]["facts"] == f"{HOSTILE}: b"
    assert rows[0]["geometry"] == "LINESTRING (-8.64 41.15, -8.62 41.15)"
    assert rows[5]["geometry"] == "POINT (-8.64 41.15)"
    assert set(re.findall(r'href="(figures/[^"]*)" download', page.read_text())) == {
        "figures/square.png",
        "figures/square.csv",
    }
    write(Report("Maps", "None.", [Section("S", [Text("x")])]), tmp_path)
    assert not (tmp_path / "figures").exists()


def test_the_csv_file_has_layers_facts_and_geometry() -> None:
    assert set(map_columns(a_map())) == {"layers", "facts", "geometry"}


def count_pixels(picture: Any, colour: str) -> int:
    """Return the number of pixels with nearly this colour."""
    wanted = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return int((np.abs(picture[..., :3] - wanted).max(axis=-1) < 0.06).sum())


def test_the_image_shows_the_initially_visible_layers() -> None:
    data = map_png(a_map())
    picture = matplotlib.image.imread(io.BytesIO(data))
    assert count_pixels(picture, SERIES[0]) > 1000
    assert count_pixels(picture, SERIES[1]) > 1000
    assert count_pixels(picture, SERIES[3]) > 1000
    assert count_pixels(picture, SERIES[2]) < 20
    assert count_pixels(picture, SERIES[6]) < 20
    assert data == map_png(a_map())


# In a browser.


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_browser()
    written = write(a_report(), tmp_path_factory.mktemp("map"))
    return written.rename(tmp_path_factory.mktemp("alone") / "page.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    require_browser()
    with chromium() as instance:
        yield instance


@pytest.fixture
def tab(browser: Any, page: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1000, "height": 900}, reduced_motion="reduce")
    tab = context.new_page()
    problems: list[str] = []
    # Reading pixels issues a warning, which is ignored.
    tab.on("console", lambda message: message.type == "error" and problems.append(message.text))
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.goto(page.resolve().as_uri())
    # A map is drawn when an observer reports that it is in view, which can take longer than two frames.
    tab.wait_for_selector("figure[data-milliseconds]")
    wait_for_frames(tab)
    yield tab
    assert problems == []
    context.close()


def wait_for_frames(tab: Any) -> None:
    """Wait for two animation frames."""
    tab.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def count(tab: Any, variable: str) -> int:
    """Return the number of pixels of the canvas with the colour of a CSS variable."""
    pixels = tab.evaluate(
        """variable => {
          const canvas = document.querySelector('canvas');
          const wanted = getComputedStyle(canvas).getPropertyValue(variable).trim();
          const parts = [1, 3, 5].map(i => parseInt(wanted.slice(i, i + 2), 16));
          const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          let count = 0;
          for (let i = 0; i < data.length; i += 4)
            count += parts.every((part, j) => Math.abs(data[i + j] - part) < 6);
          return count;
        }""",
        variable,
    )
    return int(pixels)


def scale(tab: Any) -> str:
    """Return the length of the scale bar in metres and in pixels."""
    return str(
        tab.evaluate("() => { const b = document.querySelector('.map-scale'); return b.textContent + b.style.width }")
    )


def middle(tab: Any) -> tuple[float, float]:
    tab.evaluate("() => document.querySelector('canvas').scrollIntoView({behavior: 'instant', block: 'center'})")
    box = tab.locator("canvas").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_page_with_a_map_passes_the_browser_checks(page: Path) -> None:
    faults = examine(page).faults
    # The checks reject scripts; the script of this page is tested above.
    faults["structure"] = [fault for fault in faults.get("structure", []) if not fault.startswith("a script:")]
    assert {kind: lines for kind, lines in faults.items() if lines} == {}


def test_the_canvas_shows_the_layers(tab: Any) -> None:
    assert count(tab, "--series-1") > 500
    assert count(tab, "--series-2") > 500
    assert count(tab, "--series-4") > 500
    assert count(tab, "--series-3") == 0
    # Hidden at this scale.
    assert count(tab, "--series-7") == 0


def test_layers_can_be_shown_and_hidden(tab: Any) -> None:
    tab.locator("[data-layer='3']").check()
    wait_for_frames(tab)
    assert count(tab, "--ink") > 200
    tab.locator("[data-layer='2']").uncheck()
    wait_for_frames(tab)
    assert count(tab, "--series-4") == 0


def test_one_layer_per_group_is_visible_and_hidden_features_are_not_drawn(tab: Any) -> None:
    tab.locator("[data-layer='1']").check()
    wait_for_frames(tab)
    assert count(tab, "--series-1") == 0
    three = count(tab, "--series-3")
    tab.locator("[data-layer='0']").check()
    wait_for_frames(tab)
    one, two = count(tab, "--series-1"), count(tab, "--series-2")
    # This colouring has three sides of the square and the other has four.
    assert 0.65 < three / (one + two) < 0.85


def test_keys_zoom_pan_and_describe(tab: Any) -> None:
    wait_for_frames(tab)
    before = scale(tab)
    tab.locator("canvas").focus()
    tab.keyboard.press("+")
    tab.keyboard.press("+")
    wait_for_frames(tab)
    assert scale(tab) != before
    tab.keyboard.press("Enter")
    assert HOSTILE.partition(" ")[0] in tab.text_content(".map-status")
    for _ in range(3):
        tab.keyboard.press("ArrowLeft")
    wait_for_frames(tab)
    assert tab.text_content(".map-status") == "No feature here"
    tab.keyboard.press("0")
    wait_for_frames(tab)
    assert scale(tab) == before


def test_detailed_features_appear_when_zoomed_in(tab: Any) -> None:
    for _ in range(4):
        tab.locator("[data-zoom='1']").click()
        wait_for_frames(tab)
    assert count(tab, "--series-7") > 500


def test_buttons_zoom(tab: Any) -> None:
    before = scale(tab)
    tab.locator("[data-zoom='-1']").click()
    wait_for_frames(tab)
    assert scale(tab) != before
    tab.locator("[data-zoom='0']").click()
    wait_for_frames(tab)
    assert scale(tab) == before


def test_the_wheel_zooms_only_if_the_map_has_focus(tab: Any) -> None:
    before = scale(tab)
    tab.mouse.move(*middle(tab))
    tab.mouse.wheel(0, -400)
    tab.wait_for_timeout(100)
    assert scale(tab) == before
    tab.mouse.click(*middle(tab))
    for _ in range(6):
        tab.mouse.wheel(0, -200)
    tab.wait_for_timeout(150)
    assert scale(tab) != before


def test_dragging_pans_the_map(tab: Any) -> None:
    x, y = middle(tab)
    before = count(tab, "--series-2")
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + 200, y, steps=4)
    tab.mouse.move(x + 400, y, steps=4)
    tab.mouse.up()
    wait_for_frames(tab)
    assert count(tab, "--series-2") < 0.9 * before


def test_tooltips_show_names_as_text(tab: Any) -> None:
    x, y = middle(tab)
    box = tab.locator("canvas").bounding_box()
    tab.mouse.move(x, y)
    wait_for_frames(tab)
    assert tab.text_content(".map-tip b") == HOSTILE
    # The lower side of the square: the title is its label, and its fact is below.
    for part in np.linspace(0.6, 0.99, 80):
        tab.mouse.move(x, box["y"] + part * box["height"])
        if tab.locator(".map-tip span span").count():
            break
    assert tab.text_content(".map-tip b") == HOSTILE
    assert tab.text_content(".map-tip span span") == HOSTILE
    assert tab.locator(".map-tip img, .map-tip script").count() == 0
    assert tab.locator("canvas").get_attribute("aria-label").startswith("A square. A square of streets. </script>")


def test_the_dark_colour_scheme_has_other_colours(browser: Any, page: Path) -> None:
    context = browser.new_context(viewport={"width": 1000, "height": 900}, color_scheme="dark")
    tab = context.new_page()
    tab.goto(page.resolve().as_uri())
    wait_for_frames(tab)
    assert count(tab, "--series-1") > 500
    assert (
        tab.evaluate("() => getComputedStyle(document.querySelector('canvas')).getPropertyValue('--series-1')")
        != (SERIES[0])
    )
    tab.emulate_media(color_scheme="light")
    wait_for_frames(tab)
    assert count(tab, "--series-1") > 500
    context.close()


def test_the_image_is_shown_in_print_and_without_scripts(browser: Any, page: Path) -> None:
    for scripts, media in ((False, "screen"), (True, "print")):
        context = browser.new_context(viewport={"width": 1000, "height": 900}, java_script_enabled=scripts)
        tab = context.new_page()
        tab.goto(page.resolve().as_uri())
        tab.emulate_media(media=media)
        assert tab.locator(".map-image").is_visible()
        assert not tab.locator("canvas").is_visible()
        assert not tab.locator(".map-layers").is_visible()
        context.close()
