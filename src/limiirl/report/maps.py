"""Maps as values: layers of lines, points and areas, each drawn in one of a few strokes, with facts to read on them.

A map is drawn in the reader's browser by a script of ours that is part of the page; it asks nobody for tiles. What it
shows is data: titles, labels and facts are text, whatever they hold.

What a map's script reads: coordinates as small whole numbers, packed into few bytes, and texts as JSON.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl.errors import InvalidParameter
from limiirl.report.markup import clean
from limiirl.report.svg import MUTED, VARIABLES
from limiirl.report.tables import check_choice, check_filled, check_name
from limiirl.roads.geometry import Plane

Kind: TypeAlias = Literal["lines", "points", "areas"]

# A code takes one byte at most, and nobody tells more strokes apart.
_MOST_STROKES = 127
# Width over height of a window, where nobody asks for another.
_TALLEST = 1.15
WIDEST = 1.9
"""The widest window of a map whose proportions are its own: what streets around a place should fill."""


@dataclass(frozen=True)
class Stroke:
    """How a class of things is drawn, and what the legend calls it.

    Parameters
    ----------
    label : str
        For the legend; without one it has no entry there.
    colour : str
        One of the colours of `limiirl.report.svg`: the page has its own shade of it for light and for dark.
    width : float
        Of a line, or across a point, in pixels.
    strength : float
        1 is the full colour, 0 that of the paper.
    detail : float
        Drawn only where a pixel is at most so many metres; 0 is always.
    halo : bool
        Set off from what lies below.
    dashed : bool

    Examples
    --------
    >>> Stroke("motorway", width=3.0).colour
    '#5c6069'
    """

    label: str = ""
    colour: str = MUTED
    width: float = 2.0
    strength: float = 1.0
    detail: float = 0.0
    halo: bool = False
    dashed: bool = False

    def __post_init__(self) -> None:
        if self.colour not in VARIABLES:
            raise InvalidParameter(
                f"a stroke's colour must be one of limiirl.report.svg; got {self.colour!r} for {self.label!r}. Use "
                "MUTED, INK or one of SERIES."
            )
        if not (self.width > 0.0 and 0.0 <= self.strength <= 1.0 and self.detail >= 0.0):
            raise InvalidParameter(
                f"a stroke needs width > 0, strength in [0, 1] and detail >= 0; {self.label!r} has {self.width}, "
                f"{self.strength} and {self.detail}."
            )


@dataclass(frozen=True, eq=False)
class Layer:
    """Lines, points or areas of one kind, which the reader shows or hides together.

    Layers that share the array `points` share it on the page too, so that one set of streets can be coloured in
    several ways at the price of one.

    Parameters
    ----------
    title : str
        Plain text.
    points : (n, 2)
        Latitudes and longitudes in degrees of all things, one after the other.
    offsets : (m + 1,), optional
        Thing i has the points ``offsets[i]:offsets[i + 1]``; without it each point is a thing.
    strokes : sequence of Stroke
        Drawn in this order, the last on top.
    stroke : (m,), optional
        Which of them each thing has, -1 for none: it is not in this layer, though the arrays that it shares hold it.
        The first where absent.
    facts : mapping of str to m values
        What is read on a thing; None and "" are left out.
    kind : {"lines", "points", "areas"}
    group : str
        Of the layers of one group one is shown at a time.
    shown : bool
        From the start. Of a group, the first that says so.

    Examples
    --------
    >>> layer = Layer("Trip", [[41.15, -8.63], [41.16, -8.63], [41.16, -8.62]], [0, 3], facts={"km": [1.9]})
    >>> layer.n_things, layer.kind
    (1, 'lines')
    """

    title: str
    points: FloatArray
    offsets: IntArray
    strokes: tuple[Stroke, ...]
    stroke: IntArray
    facts: Mapping[str, Sequence[object]]
    kind: Kind
    group: str
    shown: bool

    def __init__(  # noqa: PLR0913 (what is drawn, and how; all but the first two have a default)
        self,
        title: str,
        points: ArrayLike,
        offsets: ArrayLike | None = None,
        *,
        strokes: Sequence[Stroke] = (Stroke(),),
        stroke: ArrayLike | None = None,
        facts: Mapping[str, Sequence[object]] | None = None,
        kind: Kind = "lines",
        group: str = "",
        shown: bool = True,
    ) -> None:
        check_filled("a layer's title", title)
        check_choice("kind", kind, Kind)
        at = np.asarray(points, dtype=np.float64)
        if at.ndim != 2 or at.shape[1] != 2:
            raise InvalidParameter(f"points must be rows of latitude and longitude; layer {title!r} has {at.shape}.")
        _check_degrees(title, at)
        ends = np.arange(len(at) + 1) if offsets is None else np.asarray(offsets, dtype=np.int64)
        if ends.ndim != 1 or not ends.size or ends[0] != 0 or ends[-1] != len(at) or np.any(np.diff(ends) < 1):
            raise InvalidParameter(
                f"offsets must rise from 0 to the number of points, {len(at)}, by at least 1 a step; layer {title!r} "
                "has others. Leave out things without a point."
            )
        m = ends.size - 1
        codes = np.zeros(m, dtype=np.int64) if stroke is None else np.asarray(stroke, dtype=np.int64)
        if not 0 < len(strokes) <= _MOST_STROKES:
            raise InvalidParameter(f"a layer has 1 to {_MOST_STROKES} strokes; layer {title!r} has {len(strokes)}.")
        if codes.shape != (m,) or (m and not (codes.min() >= -1 and codes.max() < len(strokes))):
            raise InvalidParameter(
                f"stroke must be (m,) = ({m},) numbers of one of the {len(strokes)} strokes; layer {title!r} has "
                f"shape {codes.shape}."
            )
        for name, values in (facts or {}).items():
            if len(values) != m:
                raise InvalidParameter(
                    f"a fact has one value a thing; {name!r} of layer {title!r} has {len(values)} for {m}."
                )
        for name, value in {
            "title": title,
            "points": at,
            "offsets": ends,
            "strokes": tuple(strokes),
            "stroke": codes,
            "facts": dict(facts or {}),
            "kind": kind,
            "group": group,
            "shown": bool(shown),
        }.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of_lines(cls, title: str, lines: Iterable[ArrayLike], **settings: object) -> "Layer":
        """Return a layer of separate lines, or areas, each (k, 2) latitudes and longitudes; settings as of `Layer`.

        Examples
        --------
        >>> Layer.of_lines("Two", [[[41.15, -8.63], [41.16, -8.63]], [[41.0, -8.0], [41.0, -8.1]]]).n_things
        2
        """
        parts = [np.asarray(line, dtype=np.float64).reshape(-1, 2) for line in lines]
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        return cls(title, np.concatenate([*parts, np.empty((0, 2))]), offsets, **settings)  # type: ignore[arg-type]

    @property
    def n_things(self) -> int:
        """Number m of lines, points or areas."""
        return int(self.offsets.size - 1)


@dataclass(frozen=True)
class Map:
    """A map to zoom, move and read, as an item of a report; on paper, a picture of it.

    Parameters
    ----------
    name : str
        File name without ending, unique in a report.
    title : str
        A few words.
    alt : str
        One or two sentences for those who do not see it.
    caption : str
        Prose that says how to read it.
    layers : sequence of Layer
        The last on top.
    attribution : str
        Whom to name on the map.
    view : ((south, west), (north, east)), optional
        What is seen at first, in degrees; all that is shown where absent.
    aspect : float, optional
        Width over height; that of what is seen at first where absent, within reason.
    legend : bool
        Whether the reader is offered the layers; a small map may do without.

    Examples
    --------
    >>> trip = Layer("Trip", [[41.15, -8.63], [41.16, -8.62]], [0, 2])
    >>> Map("trip", "A trip", "A line to the north-east.", "", [trip]).bounds
    ((41.15, -8.63), (41.16, -8.62))
    """

    name: str
    title: str
    alt: str
    caption: str
    layers: Sequence[Layer]
    attribution: str = ""
    view: tuple[tuple[float, float], tuple[float, float]] | None = None
    aspect: float | None = None
    legend: bool = True

    def __post_init__(self) -> None:
        check_name("map", self.name)
        check_filled("a map's title", self.title)
        check_filled("a map's alt", self.alt)
        object.__setattr__(self, "layers", tuple(self.layers))
        if not any(layer.n_things for layer in self.layers):
            raise InvalidParameter(f"a map needs something to draw; map {self.name!r} has none. Leave the map out.")
        if self.aspect is not None and not self.aspect > 0.0:
            raise InvalidParameter(f"a map's aspect must be positive; map {self.name!r} has {self.aspect}.")
        if self.view is not None:
            _check_degrees(self.name, np.asarray(self.view, dtype=np.float64))

    @property
    def bounds(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """South-west and north-east corner of what is seen at first."""
        if self.view is not None:
            return self.view
        filled = [layer for layer in self.layers if layer.n_things]
        points = np.concatenate([layer.points for layer in [layer for layer in filled if layer.shown] or filled])
        south, west = points.min(axis=0).tolist()
        north, east = points.max(axis=0).tolist()
        return (south, west), (north, east)

    @property
    def shape(self) -> float:
        """Width over height of the window."""
        if self.aspect is not None:
            return self.aspect
        (south, west), (north, east) = self.bounds
        tall = max(north - south, 1e-9)
        return float(np.clip((east - west) * np.cos(np.radians(0.5 * (south + north))) / tall, _TALLEST, WIDEST))

    def starts_shown(self) -> tuple[bool, ...]:
        """Whether each layer is shown at first: of a group, the first that asks for it.

        Examples
        --------
        >>> both = [Layer(title, [[41.0, -8.0]], kind="points", group="one") for title in "ab"]
        >>> Map("m", "M", "Points.", "", both).starts_shown()
        (True, False)
        """
        taken: set[str] = set()
        shown = []
        for layer in self.layers:
            shown.append(layer.shown and layer.group not in taken)
            if layer.shown and layer.group:
                taken.add(layer.group)
        return tuple(shown)


def _check_degrees(name: str, points: FloatArray) -> None:
    wrong = ~(np.abs(points) <= [90.0, 360.0]).all(axis=1)
    if wrong.any():
        place = int(np.argmax(wrong))
        raise InvalidParameter(
            f"a map's points are finite latitudes and longitudes in degrees; point {place} of {name!r} is "
            f"{points[place].tolist()}. Pass (latitude, longitude), in this order."
        )


UNIT_M = 0.5
"""Metres of a coordinate's unit: less than a pixel at the closest view."""

_INT32 = 2**31 - 1


def packed(values: ArrayLike) -> str:
    """Return whole numbers as base64 of their differences, each zigzag and in as few bytes of seven bits as it needs.

    Examples
    --------
    >>> packed([1, 2, 3, 3, -100])
    'AgICAM0B'
    >>> unpacked('AgICAM0B')
    array([   1,    2,    3,    3, -100])
    """
    given = np.asarray(values, dtype=np.int64).reshape(-1)
    steps = np.diff(given, prepend=0)
    # The script counts in 32 bits.
    if steps.size and np.abs(steps).max() > _INT32 // 2:
        raise InvalidParameter(f"packed numbers differ by at most {_INT32 // 2}; got {int(np.abs(steps).max())}.")
    rest = ((steps << 1) ^ (steps >> 63)).astype(np.uint64)
    columns = []
    while True:
        more = rest >= 128
        columns.append(np.where(more, rest & 127 | 128, rest & 127))
        if not more.any():
            break
        rest = rest >> np.uint64(7)
    table = np.stack(columns, axis=1).astype(np.uint8)
    # Column c of a number is written if all bytes before it ask for more.
    asks = np.logical_and.accumulate(table >= 128, axis=1)
    written = np.concatenate([np.ones((len(table), 1), dtype=bool), asks[:, :-1]], axis=1)
    return base64.b64encode(table[written].tobytes()).decode()


def unpacked(text: str) -> NDArray[np.int64]:
    """Return the numbers that `packed` packed: what the script does, for tests and for reading a page back."""
    values: list[int] = []
    number = shift = total = 0
    for byte in base64.b64decode(text):
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            total += (number >> 1) ^ -(number & 1)
            values.append(total)
            number = shift = 0
    return np.array(values, dtype=np.int64)


def map_json(item: Map) -> str:
    """Return all that the script needs to draw a map, as JSON that can stand within a page's markup.

    Examples
    --------
    >>> trip = Layer("</script>", [[41.15, -8.63], [41.16, -8.62]], [0, 2])
    >>> "</" in map_json(Map("trip", "A trip", "A line.", "", [trip]))
    False
    """
    (south, west), (north, east) = item.bounds
    plane = Plane(0.5 * (south + north), 0.5 * (west + east))
    corners = plane.xy([south, north], [west, east])
    shapes: list[dict[str, Any]] = []
    # By identity, which is how layers share: equal arrays of different makers are rare, and comparing them is not free.
    seen: dict[tuple[int, int], int] = {}
    layers = []
    for layer, shown in zip(item.layers, item.starts_shown(), strict=True):
        key = (id(layer.points), id(layer.offsets))
        if key not in seen:
            seen[key] = len(shapes)
            shapes.append(_shape(layer, plane))
        layers.append(_layer(layer, shape=seen[key], shown=shown))
    content = {
        "unit": UNIT_M,
        # South is down, as on a screen.
        "view": [*(np.array([corners[0, 0], -corners[1, 1], corners[1, 0], -corners[0, 1]]) / UNIT_M).tolist()],
        "shapes": shapes,
        "layers": layers,
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    # No text may end the element that holds it, open a comment, or be read as an entity.
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def map_columns(item: Map) -> dict[str, list[object]]:
    """Return the columns of a map's CSV file: a row a thing, with its geometry as well-known text, which a GIS reads.

    Examples
    --------
    >>> trip = Layer("Trip", [[41.15, -8.63], [41.16, -8.62]], [0, 2], facts={"km": [1.4]})
    >>> map_columns(Map("trip", "A trip", "A line.", "", [trip]))["geometry"]
    ['LINESTRING (-8.63 41.15, -8.62 41.16)']
    """
    columns: dict[str, list[object]] = {"layers": [], "facts": [], "geometry": []}
    sharing: dict[tuple[int, int], list[Layer]] = {}
    for layer in item.layers:
        sharing.setdefault((id(layer.points), id(layer.offsets)), []).append(layer)
    for layers in sharing.values():
        first = layers[0]
        coordinates = [f"{lon:.6f}".rstrip("0") + f" {lat:.6f}".rstrip("0") for lat, lon in first.points.tolist()]
        ends = first.offsets.tolist()
        for thing in range(first.n_things):
            within = [layer for layer in layers if layer.stroke[thing] >= 0]
            facts = {name: layer.facts[name][thing] for layer in within for name in layer.facts}
            told = (f"{name}: {fact}" if name else str(fact) for name, fact in facts.items() if fact not in (None, ""))
            columns["layers"].append("; ".join(_class(layer, thing) for layer in within))
            columns["facts"].append("; ".join(told))
            columns["geometry"].append(_well_known(first.kind, coordinates[ends[thing] : ends[thing + 1]]))
    return columns


def _class(layer: Layer, thing: int) -> str:
    label = layer.strokes[int(layer.stroke[thing])].label
    return f"{layer.title}: {label}" if label and len(layer.strokes) > 1 else layer.title


def _well_known(kind: str, coordinates: Sequence[str]) -> str:
    if kind == "areas":
        return f"POLYGON (({', '.join([*coordinates, coordinates[0]])}))"
    if kind == "points" or len(coordinates) == 1:
        return f"POINT ({coordinates[0]})"
    return f"LINESTRING ({', '.join(coordinates)})"


def _shape(layer: Layer, plane: Plane) -> dict[str, Any]:
    xy = np.rint(plane.xy(layer.points[:, 0], layer.points[:, 1]) / UNIT_M).astype(np.int64)
    return {"x": packed(xy[:, 0]), "y": packed(-xy[:, 1]), "n": packed(np.diff(layer.offsets))}


def _layer(layer: Layer, *, shape: int, shown: bool) -> dict[str, Any]:
    return {
        "title": clean(layer.title),
        "kind": layer.kind,
        "shape": shape,
        "shown": shown,
        "strokes": [_stroke(stroke) for stroke in layer.strokes],
        "stroke": packed(layer.stroke),
        "facts": [_fact(name, values) for name, values in _told(layer).items()],
    }


def _told(layer: Layer) -> Mapping[str, Sequence[object]]:
    """The facts, after what the legend calls the thing."""
    labels = [stroke.label for stroke in layer.strokes]
    named = (
        {}
        if not any(labels) or "" in layer.facts
        else {"": [labels[code] if code >= 0 else "" for code in layer.stroke.tolist()]}
    )
    return named | dict(layer.facts)


def _stroke(stroke: Stroke) -> dict[str, Any]:
    return {
        "colour": VARIABLES[stroke.colour],
        "width": round(stroke.width, 2),
        "strength": round(stroke.strength, 3),
        "detail": stroke.detail,
        "halo": stroke.halo,
        "dashed": stroke.dashed,
    }


def _fact(name: str, values: Sequence[object]) -> dict[str, Any]:
    texts: dict[str, int] = {}
    codes = [texts.setdefault("" if value is None else clean(str(value)), len(texts)) for value in values]
    return {"name": clean(name), "texts": list(texts), "codes": packed(codes)}
