"""The page of a matching: how much of the trips was found on the network, how near, why not the rest, and examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.report.document import Facts, Figure, Grid, Item, Report, Section, Text
from limiirl.report.figures.quality import spread
from limiirl.report.figures.style import Drawn
from limiirl.report.maps import WIDEST, Layer, Map, Stroke
from limiirl.report.markup import literal
from limiirl.report.roads.layers import near, streets, window
from limiirl.report.svg import INK, MUTED, SERIES
from limiirl.report.tables import Cell, Column, Content, Table
from limiirl.roads import Matches, RoadNetwork, Trips
from limiirl.roads import measure_quality as measure
from limiirl.roads.matching import LEVELS, LONG_M, LONG_S, Quality

if TYPE_CHECKING:
    from limiirl.roads import CleanedTrips


_LEAST = 5
_DISTANCES = np.arange(0.0, 61.0, 2.5)


def quality_page(
    network: RoadNetwork,
    trips: Trips | CleanedTrips,
    matches: Matches,
    quality: Quality | None = None,
    *,
    title: str = "Map matching",
    examples: bool = True,
) -> Report:
    """Return the report of a matching.

    Parameters
    ----------
    network : RoadNetwork
    trips : Trips or CleanedTrips
        What was matched.
    matches : Matches
    quality : Quality, optional
        From `limiirl.roads.measure_quality`; measured where absent.
    title : str
    examples : bool
        Draw a sure, an ordinary and a doubtful trip, with the fixes of a person.

    Examples
    --------
    >>> from limiirl.roads import City, match, simulate_gps
    >>> city = City(seed=1, radius_km=0.8)
    >>> trips = simulate_gps(city.network, city.drive(n_drivers=2, trips_each=3).demos, seed=0)
    >>> page = quality_page(city.network, trips, match(city.network, trips))
    >>> [section.title for section in page.sections]
    ['How much was matched', 'How near', 'Examples']
    """
    given: Trips = trips if isinstance(trips, Trips) else trips.trips
    found = measure(network, trips, matches) if quality is None else quality
    middle = float(found.distance_m[list(LEVELS).index(0.5)]) if found.n_fixes_matched else None
    distances = matches.fix_distance_m[matches.fix_segment >= 0]
    sections = [
        Section("How much was matched", [_numbers(found), _outcomes(given, matches), *_losses(found)]),
        Section("How near", [Grid(_spreads(matches, distances)), _quantiles(found), _gaps(matches)]),
        *(_examples(network, given, matches) if examples else []),
    ]
    return Report(
        title,
        _lead(found, middle).replace("%", "\u00a0%"),
        sections,
        methods=[Facts({**_settings(matches), **_groups(matches)})],
        highlights={
            "recorded trips": f"{found.n_trips:,}",
            "matched end to end": _percent(found.share_whole).replace("%", "\u00a0%"),
            "fixes on a path": _percent(found.share_fixes).replace("%", "\u00a0%"),
            "median distance": "–" if middle is None else f"{middle:.1f} m",
        },
    )


def _percent(share: float) -> str:
    """A share in percent; a dash for one of nothing."""
    return f"{share:.1%}" if np.isfinite(share) else "–"


def _lead(found: Quality, middle: float | None) -> str:
    if middle is None:
        return f"None of {found.n_trips:,} recorded trips was matched: no fix lies on a path of the network."
    return (
        f"{found.n_whole:,} of {found.n_trips:,} recorded trips were matched end to end, and {found.share_fixes:.1%} "
        f"of the fixes lie on a path, half of them within {middle:.1f} m of it."
    )


def _numbers(found: Quality) -> Facts:
    ratio = found.length_ratio[np.isfinite(found.length_ratio)]
    near_by = ", ".join(f"{share:.1%} within {metres:g} m" for metres, share in found.within.items())
    told = {
        "Recorded trips": f"{found.n_trips:,}",
        "Given to the matcher": f"{found.n_pieces_given:,} trips or pieces of them, {found.n_fixes:,} fixes",
        "Matched in part at least": f"{found.n_matched:,} trips, in {found.n_paths:,} unbroken paths",
        "Matched end to end": f"{found.n_whole:,} trips",
        "Fixes on a path": f"{found.n_fixes_matched:,}: {near_by}" if found.n_fixes_matched else "none",
        "Length of a path": f"{np.median(ratio):.2f} times that of the line through its fixes" if ratio.size else "",
        "Long gaps": f"{found.n_gaps:,} over {LONG_S:g} s or {LONG_M:g} m, {_percent(found.gap_share)} of the length: "
        "there the path is the shortest way, not evidence"
        if found.n_paths
        else "",
    }
    return Facts({name: text.replace("%", "\u00a0%") for name, text in told.items() if text})


def _outcomes(trips: Trips, matches: Matches) -> Table:
    """What became of each trip or piece that the matcher was given; each is in one row."""
    pieces = np.bincount(matches.trip, minlength=len(trips))
    whole = np.zeros(len(trips), dtype=bool)
    whole[matches.trip[matches.whole]] = True
    rows: list[list[Content]] = []
    for name, chosen in (
        ("end to end", whole),
        ("in one piece, not all of it", (pieces == 1) & ~whole),
        ("in several pieces", (pieces > 1) & ~whole),
        ("not at all", pieces == 0),
    ):
        count = int(chosen.sum())
        rows.append(
            [
                name,
                Cell(f"{count:,}", value=count),
                Cell(f"{count / max(len(trips), 1):.1%}", value=count / max(len(trips), 1)),
            ]
        )
    columns: list[Column | str] = [Column("Matched", "left"), "Trips or pieces", "Share"]
    caption = "Of what the matcher was given: trips, and the pieces into which cleaning cut some."
    return Table("outcomes", "What became of the trips", caption, columns, rows)


def _losses(found: Quality) -> list[Table]:
    """Everything that was lost on the way, and why."""
    rows: list[list[Content]] = []
    for what, counts in (
        ("trip", found.lost),
        ("row or file not read", found.unread),
        ("fixes dropped in cleaning", found.dropped),
        ("matching", found.reasons),
    ):
        for reason, count in sorted(counts.items(), key=lambda pair: -pair[1]):
            rows.append([f"{what}: {reason}", Cell(f"{count:,}", value=int(count))])
    if not rows:
        return []
    caption = (
        "Trips that never came to the matcher, what else could not be read, fixes that cleaning dropped, and what the "
        "matcher skipped or cut."
    )
    return [Table("reasons", "What was lost, and why", caption, [Column("Reason", "left"), "Count"], rows)]


def _quantiles(found: Quality) -> Table:
    rows: list[list[Content]] = [
        [name, *(Cell.number(float(value), 1) for value in values)]
        for name, values in (
            ("metres from fix to path", found.distance_m),
            ("seconds between fixes", found.gap_s),
            ("metres driven between fixes", found.gap_m),
        )
    ]
    columns: list[Column | str] = [Column("Quantile", "left"), *(f"{100 * level:g} %" for level in LEVELS)]
    return Table("quantiles", "Quantiles", "Of matched fixes, and of neighbouring ones on a path.", columns, rows)


def _told(value: Any) -> str:
    """A setting as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


def _spreads(matches: Matches, distances: FloatArray) -> list[Figure]:
    near_by = spread(distances, "metres from fix to path", "matched fixes", _DISTANCES, unit=" m")
    sure = spread(matches.confidence, "confidence of a path", "paths", np.linspace(0.0, 1.0, 21))
    return [
        _figure("distances", "Distances", "How far fixes lie from where the path puts them.", near_by),
        _figure("confidence", "Confidence", "How sure the matcher is of each path.", sure),
    ]


def _figure(name: str, title: str, caption: str, drawn: Drawn) -> Figure:
    return Figure(name, title, drawn.alt, caption, lambda: drawn.figure, drawn.columns)


def _gaps(matches: Matches) -> Table:
    """Runs of fixes that no path holds."""
    lost = _runs(matches)
    rows: list[list[Content]] = []
    for name, chosen in (
        ("1 fix", lost == 1),
        ("2 to 4 fixes", (lost >= 2) & (lost <= 4)),
        ("5 to 19 fixes", (lost >= 5) & (lost <= 19)),
        ("20 fixes and more", lost >= 20),
    ):
        count, fixes = int(chosen.sum()), int(lost[chosen].sum())
        rows.append([name, Cell(f"{count:,}", value=count), Cell(f"{fixes:,}", value=fixes)])
    columns: list[Column | str] = [Column("Lost in a row", "left"), "How often", "Fixes"]
    return Table("gaps", "Gaps", "Fixes of one trip, one after the other, that have no place on a path.", columns, rows)


def _runs(matches: Matches) -> IntArray:
    """Return the lengths of runs of fixes of one trip that were not matched."""
    lost = matches.fix_segment < 0
    trip = np.repeat(np.arange(matches.fix_offsets.size - 1), np.diff(matches.fix_offsets))
    begins = lost & np.concatenate([[True], ~lost[:-1] | (np.diff(trip) > 0)])[: lost.size]
    return np.bincount((np.cumsum(begins) - 1)[lost]) if lost.any() else np.empty(0, dtype=np.int64)


def _settings(matches: Matches) -> dict[str, str]:
    return {str(name).replace("_", " "): _told(value) for name, value in matches.settings.items()}


def _groups(matches: Matches) -> dict[str, str]:
    """Drivers as a number only; few trips of one would tell of a person."""
    if matches.groups is None:
        return {}
    _, counts = np.unique(matches.groups, return_counts=True)
    shown = int((counts >= _LEAST).sum())
    few = f"{counts.size - shown:,} with fewer than {_LEAST} paths, of whom nothing more is said"
    return {"drivers": f"{counts.size:,}: {shown:,} with at least {_LEAST} paths, {few}"}


def _examples(network: RoadNetwork, trips: Trips, matches: Matches) -> list[Section]:
    """Return a good, a typical and a poor path, by confidence, among those of usual length."""
    if not len(matches):
        return []
    usual = np.flatnonzero(matches.lengths >= np.median(matches.lengths))
    order = usual[np.lexsort((usual, matches.confidence[usual]))]
    places = {"A sure path": order[-1], "An ordinary path": order[order.size // 2], "A doubtful path": order[0]}
    maps: list[Item] = []
    taken: set[int] = set()
    for number, (name, piece) in enumerate(places.items(), start=1):
        if int(piece) not in taken:
            taken.add(int(piece))
            maps.append(_example(network, trips, matches, int(piece), name, number))
    text = Text(
        "Dots are fixes, the line is the path on the network; thin lines lead from each fix to its place on it."
    )
    return [Section("Examples", [text, *maps])]


def _example(network: RoadNetwork, trips: Trips, matches: Matches, piece: int, name: str, number: int) -> Map:
    path = matches.path(piece)
    trip = int(matches.trip[piece])
    own = slice(int(matches.fix_offsets[trip]), int(matches.fix_offsets[trip + 1]))
    at = np.stack([trips.lat[own], trips.lon[own]], axis=1)
    segment, along, away = matches.fix_segment[own], matches.fix_along_m[own], matches.fix_distance_m[own]
    line = matches.geometry(network, piece, clip=True)
    on = segment >= 0
    layers = [streets(network, near(network, np.concatenate([line, at[on]]), 500.0, widest=WIDEST))]
    others = [i for i in np.flatnonzero(matches.trip == trip).tolist() if i != piece]
    if others:
        lines = [matches.geometry(network, i, clip=True) for i in others]
        layers.append(Layer.of_lines("Other pieces of the trip", lines, strokes=[Stroke("", SERIES[0], 4.0, 0.5)]))
    layers.append(
        Layer.of_lines(
            "Matched path", [line], strokes=[Stroke("", SERIES[0], 5.0, halo=True)], facts={"segments": [path.size]}
        )
    )
    if on.any():
        placed = _places(network, segment[on], along[on])
        links = np.stack([at[on], placed], axis=1)
        layers.append(Layer.of_lines("From fix to path", list(links), strokes=[Stroke("", INK, 1.0, 0.6)]))
    strokes = [Stroke("fix without a place on a path", MUTED, 7.0, halo=True), Stroke("fix", SERIES[1], 7.0, halo=True)]
    facts = {
        "time": [f"{value:.0f} s" for value in (trips.time_s[own] - trips.time_s[own.start]).tolist()],
        "distance": [f"{value:.1f} m" if good else "" for value, good in zip(away.tolist(), on.tolist(), strict=True)],
    }
    layers.append(Layer("Fixes", at, strokes=strokes, stroke=on.astype(np.int64), facts=facts, kind="points"))
    metres = away[on]
    said = f"median distance {np.median(metres):.1f} m, largest {metres.max():.1f} m" if metres.size else "no fix on it"
    return Map(
        f"example-{number}",
        name,
        f"A trip of {at.shape[0]} fixes and the path of {path.size} segments matched to it: {said}.",
        f"Confidence {matches.confidence[piece]:.2f}; {literal(said)}. "
        + ("It covers the trip end to end." if matches.whole[piece] else "It covers part of the trip."),
        layers,
        attribution=network.attribution,
        view=window(np.concatenate([line, at[on]])),
    )


def _places(network: RoadNetwork, segment: IntArray, along_m: FloatArray) -> FloatArray:
    """Return the points (n, 2) that lie so many metres along segments."""
    share = (along_m / network.length_m[segment])[:, None]
    tail, head = (
        np.stack([network.lat[n[segment]], network.lon[n[segment]]], axis=1) for n in (network.tail, network.head)
    )
    return np.asarray(tail + share * (head - tail))
