"""Maps as values: layers of lines, points and areas with facts, as GeoJSON for the page and well-known text for a GIS.

A script within the page draws a map on a canvas; it requests no tiles. Titles, labels and facts are shown as text only.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import check_choice, check_positive
from limiirl.errors import InvalidParameter
from limiirl.report.markup import clean
from limiirl.report.svg import MUTED, VARIABLES
from limiirl.report.tables import check_filled, check_name

Kind: TypeAlias = Literal["lines", "points", "areas"]

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
                f"colour must be MUTED, INK or one of SERIES of limiirl.report.svg; got {self.colour!r} for "
                f"{self.label!r}.",
                parameter="colour",
                value=self.colour,
            )
        check_positive(self.width, "width")
        check_positive(self.detail, "detail", zero=True)
        if not 0.0 <= self.strength <= 1.0:
            raise InvalidParameter(
                f"strength must be in [0, 1]; got {self.strength}.", parameter="strength", value=self.strength
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
        check_filled("title", title)
        check_choice(kind, "kind", get_args(Kind))
        at = np.asarray(points, dtype=np.float64)
        if at.ndim != 2 or at.shape[1] != 2:
            raise InvalidParameter(
                f"points must be rows of latitude and longitude; layer {title!r} has shape {at.shape}.",
                parameter="points",
                value=at.shape,
            )
        _check_degrees("points", title, at)
        ends = np.arange(len(at) + 1) if offsets is None else np.asarray(offsets, dtype=np.int64)
        if ends.ndim != 1 or not ends.size or ends[0] != 0 or ends[-1] != len(at) or np.any(np.diff(ends) < 1):
            raise InvalidParameter(
                f"offsets must increase from 0 to {len(at)}, the number of points, by at least 1; layer {title!r} has "
                "others. Leave out things without a point.",
                parameter="offsets",
            )
        m = ends.size - 1
        codes = np.zeros(m, dtype=np.int64) if stroke is None else np.asarray(stroke, dtype=np.int64)
        if not strokes:
            raise InvalidParameter(f"strokes must not be empty; layer {title!r} has none.", parameter="strokes")
        if codes.shape != (m,) or (m and not (codes.min() >= -1 and codes.max() < len(strokes))):
            raise InvalidParameter(
                f"stroke must be (m,) = ({m},) numbers from -1 to {len(strokes) - 1}; layer {title!r} has shape "
                f"{codes.shape}.",
                parameter="stroke",
                value=codes.shape,
            )
        for name, values in (facts or {}).items():
            if len(values) != m:
                raise InvalidParameter(
                    f"facts must have one value per thing; {name!r} of layer {title!r} has {len(values)} for {m}.",
                    parameter="facts",
                    value=name,
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
        check_name(self.name)
        check_filled("title", self.title)
        check_filled("alt", self.alt)
        object.__setattr__(self, "layers", tuple(self.layers))
        if not any(layer.n_things for layer in self.layers):
            raise InvalidParameter(
                f"layers must have something to draw; map {self.name!r} has nothing. Leave the map out.",
                parameter="layers",
            )
        if self.aspect is not None:
            check_positive(self.aspect, "aspect")
        if self.view is not None:
            _check_degrees("view", self.name, np.asarray(self.view, dtype=np.float64))

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


def _check_degrees(parameter: str, name: str, points: FloatArray) -> None:
    wrong = ~(np.abs(points) <= [90.0, 360.0]).all(axis=1)
    if wrong.any():
        place = int(np.argmax(wrong))
        raise InvalidParameter(
            f"{parameter} must be finite latitudes and longitudes in degrees; point {place} of {name!r} is "
            f"{points[place].tolist()}. Pass (latitude, longitude), in this order.",
            parameter=parameter,
            value=points[place].tolist(),
            index=place,
        )


def map_geojson(item: Map) -> str:
    """Return a map as a GeoJSON FeatureCollection that can stand within a page's markup.

    The view is the member ``bbox``. The member ``layers`` has the title, strokes and names of facts of each layer. The
    properties of a feature are ``{layer: [stroke, fact, ...]}`` for each layer that shows it, or ``{layer: stroke}``
    where the facts are those of the first such layer. So layers which share an array of points share its features.
    Coordinates have six decimals, 0.1 m.

    Examples
    --------
    >>> trip = Layer("</script>", [[41.15, -8.63], [41.16, -8.62]], [0, 2])
    >>> text = map_geojson(Map("trip", "A trip", "A line.", "", [trip]))
    >>> "</" in text, json.loads(text)["features"][0]["geometry"]["type"]
    (False, 'LineString')
    """
    (south, west), (north, east) = item.bounds
    features: list[dict[str, Any]] = []
    for numbers in _shared_points(item):
        first = item.layers[numbers[0]]
        coordinates = np.round(first.points[:, ::-1], 6).tolist()
        ends = first.offsets.tolist()
        rows = {number: _properties(item.layers[number]) for number in numbers}
        for thing in range(first.n_things):
            shown: dict[str, Any] = {}
            base: tuple[object, ...] | None = None
            for number in numbers:
                stroke, *facts = rows[number][thing]
                if stroke < 0:
                    continue
                named = (*item.layers[number].facts, *facts)
                shown[str(number)] = stroke if named == base else [stroke, *facts]
                base = base or named
            if shown:
                geometry = _geometry(first.kind, coordinates[ends[thing] : ends[thing + 1]])
                features.append({"type": "Feature", "geometry": geometry, "properties": shown})
    layers = [
        {
            "title": clean(layer.title),
            "kind": layer.kind,
            "shown": shown,
            "facts": [clean(name) for name in layer.facts],
            "strokes": [
                asdict(stroke) | {"label": clean(stroke.label), "colour": VARIABLES[stroke.colour]}
                for stroke in layer.strokes
            ],
        }
        for layer, shown in zip(item.layers, item.starts_shown(), strict=True)
    ]
    content = {"type": "FeatureCollection", "bbox": [west, south, east, north], "layers": layers, "features": features}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    # No text may end the element that holds it, open a comment, or be read as an entity.
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _shared_points(item: Map) -> list[list[int]]:
    """Return the numbers of the layers that share their points and offsets, by identity."""
    sharing: dict[tuple[int, int, str], list[int]] = {}
    for number, layer in enumerate(item.layers):
        sharing.setdefault((id(layer.points), id(layer.offsets), layer.kind), []).append(number)
    return list(sharing.values())


def _properties(layer: Layer) -> list[list[Any]]:
    """Return the stroke and the facts of each thing, without the empty ones at the end."""
    rows: list[list[Any]] = []
    facts = list(layer.facts.values())
    for thing, stroke in enumerate(layer.stroke.tolist()):
        row = [stroke, *("" if fact[thing] is None else clean(str(fact[thing])) for fact in facts)]
        while row[-1] == "":
            row.pop()
        rows.append(row)
    return rows


def _geometry(kind: str, coordinates: list[list[float]]) -> dict[str, Any]:
    if kind == "areas":
        return {"type": "Polygon", "coordinates": [[*coordinates, coordinates[0]]]}
    if kind == "points" or len(coordinates) == 1:
        return {"type": "Point", "coordinates": coordinates[0]}
    return {"type": "LineString", "coordinates": coordinates}


def map_columns(item: Map) -> dict[str, list[object]]:
    """Return the columns of a map's CSV file: one row per thing, with its geometry as well-known text for a GIS.

    Examples
    --------
    >>> trip = Layer("Trip", [[41.15, -8.63], [41.16, -8.62]], [0, 2], facts={"km": [1.4]})
    >>> map_columns(Map("trip", "A trip", "A line.", "", [trip]))["geometry"]
    ['LINESTRING (-8.63 41.15, -8.62 41.16)']
    """
    columns: dict[str, list[object]] = {"layers": [], "facts": [], "geometry": []}
    for numbers in _shared_points(item):
        layers = [item.layers[number] for number in numbers]
        first = layers[0]
        coordinates = [f"{lon:.6f}".rstrip("0") + f" {lat:.6f}".rstrip("0") for lat, lon in first.points.tolist()]
        ends = first.offsets.tolist()
        for thing in range(first.n_things):
            within = [layer for layer in layers if layer.stroke[thing] >= 0]
            facts = {name: layer.facts[name][thing] for layer in within for name in layer.facts}
            texts = (f"{name}: {fact}" if name else str(fact) for name, fact in facts.items() if fact not in (None, ""))
            columns["layers"].append("; ".join(_class_of(layer, thing) for layer in within))
            columns["facts"].append("; ".join(texts))
            columns["geometry"].append(_well_known_text(first.kind, coordinates[ends[thing] : ends[thing + 1]]))
    return columns


def _class_of(layer: Layer, thing: int) -> str:
    label = layer.strokes[int(layer.stroke[thing])].label
    return f"{layer.title}: {label}" if label and len(layer.strokes) > 1 else layer.title


def _well_known_text(kind: str, coordinates: Sequence[str]) -> str:
    if kind == "areas":
        return f"POLYGON (({', '.join([*coordinates, coordinates[0]])}))"
    if kind == "points" or len(coordinates) == 1:
        return f"POINT ({coordinates[0]})"
    return f"LINESTRING ({', '.join(coordinates)})"
