"""Maps with layers of lines and points, exported as GeoJSON for the page and as well-known text for a GIS.

A script in the page draws the maps without map tiles. Titles, labels and facts are shown as plain text.
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

Kind: TypeAlias = Literal["lines", "points", "areas", "labels"]
Bounds: TypeAlias = tuple[tuple[float, float], tuple[float, float]]

_TALLEST = 1.15
WIDEST = 1.9
"""Largest ratio of width to height of a map."""


@dataclass(frozen=True)
class Stroke:
    """Line or point style of a class of features, and its label in the legend.

    Parameters
    ----------
    label : str
        Text in the legend, or "" for no entry.
    colour : str
        A colour of `limiirl.report.svg`, which has a light and a dark shade.
    width : float
        Width of a line or diameter of a point in pixels.
    strength : float
        Opacity: 1 is the full colour, 0 is the background.
    detail : float
        Largest scale in metres per pixel at which features are shown, or 0 to show them at all scales.
    halo : bool
        Draw an outline in the background colour.
    dashed : bool

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
            raise InvalidParameter.of(
                "colour", self.colour, "must be MUTED, INK or one of SERIES of limiirl.report.svg"
            )
        check_positive(self.width, "width")
        check_positive(self.detail, "detail", zero=True)
        if not 0.0 <= self.strength <= 1.0:
            raise InvalidParameter.of("strength", self.strength, "must be in [0, 1]")


@dataclass(frozen=True, eq=False)
class Layer:
    """Lines or points that are shown or hidden together.

    Layers that share the array `points` store it once on the page, for example for several colourings of one street
    network.

    Parameters
    ----------
    title : str
        Plain text.
    points : (n, 2)
        Latitudes and longitudes of all features in degrees, concatenated.
    offsets : (m + 1,), optional
        Feature i has the points ``offsets[i]:offsets[i + 1]``; by default, each point is a feature.
    strokes : sequence of Stroke
        Drawn in this order, with the last on top.
    stroke : (m,), optional
        Index into `strokes` of each feature, or -1 to hide it; 0 by default.
    facts : mapping of str to m values
        Shown in the tooltip of a feature, except for None and "".
    kind : {"lines", "points", "areas", "labels"}
        Areas are filled polygons. Labels are texts at points, given by ``facts[""]``; of overlapping labels, the first
        is shown. Areas and labels have no tooltip.
    group : str
        Layers with the same non-empty group are shown one at a time.
    shown : bool
        Show the layer initially; in a group, only the first layer with ``shown=True`` is visible.

    >>> layer = Layer("Trip", [[41.15, -8.63], [41.16, -8.63], [41.16, -8.62]], [0, 3], facts={"km": [1.9]})
    >>> layer.n_features, layer.kind
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

    def __init__(  # noqa: PLR0913 (all arguments after the second have a default)
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
        at = np.atleast_1d(np.asarray(points, dtype=np.float64))
        ends = np.arange(len(at) + 1) if offsets is None else np.asarray(offsets, dtype=np.int64)
        codes = np.zeros(max(ends.size - 1, 0), dtype=np.int64) if stroke is None else np.asarray(stroke, np.int64)
        values: dict[str, object] = {"title": title, "points": at, "offsets": ends, "strokes": tuple(strokes)}
        values |= {"stroke": codes, "facts": dict(facts or {}), "kind": kind, "group": group, "shown": bool(shown)}
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        check_filled("title", self.title)
        check_choice(self.kind, "kind", get_args(Kind))
        at, ends, codes = self.points, self.offsets, self.stroke
        where = f"layer {self.title!r}"
        if at.ndim != 2 or at.shape[1] != 2:
            raise InvalidParameter.of(
                "points", at.shape, "must have shape (n, 2), with latitude and longitude in each row"
            )
        _check_degrees("points", self.title, at)
        if ends.ndim != 1 or not ends.size or ends[0] != 0 or ends[-1] != len(at) or np.any(np.diff(ends) < 1):
            raise InvalidParameter(
                f"offsets must increase strictly from 0 to {len(at)}, the number of points, in {where}. Omit features "
                "without points.",
                parameter="offsets",
            )
        m = self.n_features
        if not self.strokes:
            raise InvalidParameter(f"strokes must not be empty; {where} has none.", parameter="strokes")
        if codes.shape != (m,):
            raise InvalidParameter.of("stroke", codes.shape, f"must have shape ({m},), one entry per feature")
        for i in np.flatnonzero((codes < -1) | (codes >= len(self.strokes)))[:1].tolist():
            raise InvalidParameter.of("stroke", int(codes[i]), f"must be in [-1, {len(self.strokes) - 1}]", index=i)
        for name, values in self.facts.items():
            if len(values) != m:
                raise InvalidParameter.of("facts", name, f"must have one value per feature ({m})")

    @classmethod
    def of_lines(cls, title: str, lines: Iterable[ArrayLike], **settings: object) -> "Layer":
        """Create a layer from separate lines (k, 2) of latitudes and longitudes; `settings` are those of `Layer`."""
        parts = [np.asarray(line, dtype=np.float64).reshape(-1, 2) for line in lines]
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        return cls(title, np.concatenate([*parts, np.empty((0, 2))]), offsets, **settings)  # type: ignore[arg-type]

    @property
    def n_features(self) -> int:
        """Number m of lines or points."""
        return int(self.offsets.size - 1)


@dataclass(frozen=True)
class Map:
    """An interactive map; in print, an image of its initial view.

    Parameters
    ----------
    name : str
        File name without extension, unique in a report.
    title : str
    alt : str
        One or two sentences for readers who cannot see the map.
    caption : str
        Prose that explains the map.
    layers : sequence of Layer
        Drawn in this order, with the last on top.
    attribution : str
        Source of the data, shown on the map.
    view : ((south, west), (north, east)), optional
        Initial view in degrees; by default the bounding box of the visible layers.

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
    view: Bounds | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        check_filled("title", self.title)
        check_filled("alt", self.alt)
        object.__setattr__(self, "layers", tuple(self.layers))
        if not any(layer.n_features for layer in self.layers):
            raise InvalidParameter(
                f"layers must contain at least one feature; map {self.name!r} has none.", parameter="layers"
            )
        if self.view is not None:
            _check_degrees("view", self.name, np.asarray(self.view, dtype=np.float64))

    @property
    def bounds(self) -> Bounds:
        """South-west and north-east corners of the initial view."""
        if self.view is not None:
            return self.view
        filled = [layer for layer in self.layers if layer.n_features and layer.kind in ("lines", "points")]
        filled = filled or [layer for layer in self.layers if layer.n_features]
        points = np.concatenate([layer.points for layer in [layer for layer in filled if layer.shown] or filled])
        south, west = points.min(axis=0).tolist()
        north, east = points.max(axis=0).tolist()
        return (south, west), (north, east)

    @property
    def aspect(self) -> float:
        """Aspect ratio (width to height) of the map on the page."""
        (south, west), (north, east) = self.bounds
        tall = max(north - south, 1e-9)
        return float(np.clip((east - west) * np.cos(np.radians(0.5 * (south + north))) / tall, _TALLEST, WIDEST))

    def visible(self) -> tuple[bool, ...]:
        """Return the initial visibility of each layer."""
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
        index = int(np.argmax(wrong))
        raise InvalidParameter(
            f"{parameter} must have finite latitudes and longitudes in degrees; point {index} of {name!r} is "
            f"{points[index].tolist()}. Pass (latitude, longitude), in this order.",
            parameter=parameter,
            value=points[index].tolist(),
            index=index,
        )


def map_geojson(item: Map) -> str:
    """Return a map as a GeoJSON FeatureCollection that can be embedded in a page.

    The member ``bbox`` is the initial view; ``layers`` has titles, strokes and names of facts. The properties of a
    feature are ``{layer: [stroke, fact, ...]}`` for each layer that contains it, or ``{layer: stroke}`` if the facts
    are the same as in the first such layer. Layers with the same points share features. Coordinates have six decimals
    (0.1 m).

    >>> trip = Layer("</script>", [[41.15, -8.63], [41.16, -8.62]], [0, 2])
    >>> text = map_geojson(Map("trip", "A trip", "A line.", "", [trip]))
    >>> "</" in text, json.loads(text)["features"][0]["geometry"]["type"]
    (False, 'LineString')
    """
    (south, west), (north, east) = item.bounds
    features: list[dict[str, Any]] = []
    for numbers in _group_layers(item):
        first = item.layers[numbers[0]]
        coordinates = np.round(first.points[:, ::-1], 6).tolist()
        ends = first.offsets.tolist()
        rows = {number: _properties(item.layers[number]) for number in numbers}
        for i in range(first.n_features):
            shown: dict[str, Any] = {}
            base: tuple[object, ...] | None = None
            for number in numbers:
                stroke, *facts = rows[number][i]
                if stroke < 0:
                    continue
                named = (*item.layers[number].facts, *facts)
                shown[str(number)] = stroke if named == base else [stroke, *facts]
                base = base or named
            if shown:
                line = coordinates[ends[i] : ends[i + 1]]
                point = first.kind in ("points", "labels") or len(line) == 1
                geometry = {"type": "Point" if point else "LineString", "coordinates": line[0] if point else line}
                features.append({"type": "Feature", "geometry": geometry, "properties": shown})
    layers = [
        {
            "title": clean(layer.title),
            "kind": layer.kind,
            "shown": visible,
            "facts": [clean(name) for name in layer.facts],
            "strokes": [
                asdict(stroke) | {"label": clean(stroke.label), "colour": VARIABLES[stroke.colour]}
                for stroke in layer.strokes
            ],
        }
        for layer, visible in zip(item.layers, item.visible(), strict=True)
    ]
    content = {"type": "FeatureCollection", "bbox": [west, south, east, north], "layers": layers, "features": features}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    # Text must not close the script element, open a comment, or form an entity.
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _group_layers(item: Map) -> list[list[int]]:
    """Return the indices of layers, in groups of the same kind that share their arrays of points and offsets."""
    sharing: dict[tuple[int, int, str], list[int]] = {}
    for number, layer in enumerate(item.layers):
        sharing.setdefault((id(layer.points), id(layer.offsets), layer.kind), []).append(number)
    return list(sharing.values())


def _properties(layer: Layer) -> list[list[Any]]:
    """Return the stroke and the attributes of each feature, without trailing empty attributes."""
    rows: list[list[Any]] = []
    facts = list(layer.facts.values())
    for i, stroke in enumerate(layer.stroke.tolist()):
        row = [stroke, *("" if fact[i] is None else clean(str(fact[i])) for fact in facts)]
        while row[-1] == "":
            row.pop()
        rows.append(row)
    return rows


def map_columns(item: Map) -> dict[str, list[object]]:
    """Return the columns of the CSV file of a map: one row per feature, with the geometry as well-known text.

    >>> trip = Layer("Trip", [[41.15, -8.63], [41.16, -8.62]], [0, 2], facts={"km": [1.4]})
    >>> map_columns(Map("trip", "A trip", "A line.", "", [trip]))["geometry"]
    ['LINESTRING (-8.63 41.15, -8.62 41.16)']
    """
    columns: dict[str, list[object]] = {"layers": [], "facts": [], "geometry": []}
    for numbers in _group_layers(item):
        layers = [item.layers[number] for number in numbers]
        first = layers[0]
        coordinates = [f"{lon:.6f}".rstrip("0") + f" {lat:.6f}".rstrip("0") for lat, lon in first.points.tolist()]
        ends = first.offsets.tolist()
        for i in range(first.n_features):
            within = [layer for layer in layers if layer.stroke[i] >= 0]
            facts = {name: layer.facts[name][i] for layer in within for name in layer.facts}
            texts = (f"{name}: {fact}" if name else str(fact) for name, fact in facts.items() if fact not in (None, ""))
            line = coordinates[ends[i] : ends[i + 1]]
            point = first.kind in ("points", "labels") or len(line) == 1
            columns["layers"].append("; ".join(_class_name(layer, i) for layer in within))
            columns["facts"].append("; ".join(texts))
            columns["geometry"].append(f"POINT ({line[0]})" if point else f"LINESTRING ({', '.join(line)})")
    return columns


def _class_name(layer: Layer, i: int) -> str:
    label = layer.strokes[int(layer.stroke[i])].label
    return f"{layer.title}: {label}" if label and len(layer.strokes) > 1 else layer.title
