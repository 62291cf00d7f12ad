"""What a map's script reads: coordinates as small whole numbers, packed into few bytes, and texts as JSON.

Coordinates are half metres on a flat map, each as the difference to the one before: most fit into a byte, since streets
are short. Texts that occur often are written once.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.errors import InvalidParameter
from limiirl.report.ink import VARIABLES
from limiirl.report.inline import clean
from limiirl.report.map_item import Layer, Map, Stroke
from limiirl.roads.geodesy import Plane

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
