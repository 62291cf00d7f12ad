"""Maps as values: layers of lines, points and areas, each drawn in one of a few strokes, with facts to read on them.

A map is drawn in the reader's browser by a script of ours that is part of the page; it asks nobody for tiles. What it
shows is data: titles, labels and facts are text, whatever they hold.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.errors import InvalidParameter
from limiirl.report.checks import check_choice, check_filled, check_name
from limiirl.report.ink import MUTED, VARIABLES

Float = NDArray[np.float64]
Int = NDArray[np.int64]
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
        One of the colours of `limiirl.report.ink`: the page has its own shade of it for light and for dark.
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
                f"a stroke's colour must be one of limiirl.report.ink; got {self.colour!r} for {self.label!r}. Use "
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
    points: Float
    offsets: Int
    strokes: tuple[Stroke, ...]
    stroke: Int
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


def _check_degrees(name: str, points: Float) -> None:
    wrong = ~(np.abs(points) <= [90.0, 360.0]).all(axis=1)
    if wrong.any():
        place = int(np.argmax(wrong))
        raise InvalidParameter(
            f"a map's points are finite latitudes and longitudes in degrees; point {place} of {name!r} is "
            f"{points[place].tolist()}. Pass (latitude, longitude), in this order."
        )
