"""`limiirl roads forecast`, `close` and `demo`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limiirl._progress import show_progress
from limiirl.cli.inputs import check_page, write_page
from limiirl.cli.options import AsJson, GeoJSON, MatchesFile, Network, Page, Seed, Styles, echo
from limiirl.cli.roads_inputs import (
    check_geojson,
    find_trip,
    parse_point,
    plural,
    read_matched,
    sample_demos,
    write_geojson,
)
from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from limiirl import MDP, Demonstrations
    from limiirl._typing import IntArray
    from limiirl.report.roads import ForecastExample
    from limiirl.roads import RoadNetwork

_MOST_STREETS = 8  # in an error message
_MOST_DESTINATIONS = 5
_GIVEN_ENDS = (
    "The styles were fitted with MaxEnt. Routes are predicted with DestinationMaxEnt and a constant reward per "
    "segment, which reproduces the mean length of the trips."
)


def forecast(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    network: Network,
    styles: Styles,
    matches: MatchesFile,
    trip: Annotated[str | None, typer.Option(help="Id of the trip. [default: the first trip]")] = None,
    fraction: Annotated[float, typer.Option(help="Observed fraction of the trip.", min=0.0, max=1.0)] = 0.5,
    routes: Annotated[int, typer.Option("--routes", "-k", help="Number of routes to print.", min=1)] = 3,
    by_driver: Annotated[
        bool, typer.Option("--by-driver", help="Use the driver's other trips, too, to infer the style.")
    ] = False,
    geojson: GeoJSON = None,
    page: Page = None,
    as_json: AsJson = False,
) -> None:
    """Forecast the rest of a trip.

    Prints the probabilities of driving styles, next turns, routes to the true destination, and destinations.
    """
    from limiirl import IntentMixture
    from limiirl.forecast import Forecaster
    from limiirl.report.roads import forecast_example, forecast_page

    check_page(page, network, styles)
    check_geojson(geojson, network, styles, matches)
    roads, matched = read_matched(network, matches)
    demos = matched.demonstrations()
    mixture = IntentMixture.load(styles)
    _check_same_network(mixture.mdp_, roads, styles, network)
    index = 0 if trip is None else find_trip(demos, trip)
    # The candidate destinations are those of the other trips.
    forecaster = Forecaster(mixture, demos[[i for i in range(len(demos)) if i != index]])
    history = _other_trips(demos, index) if by_driver else None
    if history is not None:
        forecaster = forecaster.with_history(history)
    name = str(index if demos.ids is None else demos.ids[index])
    example = forecast_example(
        forecaster, roads, demos[index].states, title=f"Trip {name}", fraction=fraction, k=routes
    )
    likely = sorted(zip(example.probability.tolist(), example.destinations.tolist(), strict=True), reverse=True)
    facts = {
        "trip": name,
        "known_segments": len(example.driven),
        "known_km": _km(roads, example.driven),
        "km": _km(roads, demos[index].states),
        "other_trips_of_the_driver": None if history is None else len(history),
        "styles": example.intents.tolist(),
        "next": [_street(roads, s, p) for s, p in sorted(example.turns, key=lambda turn: -turn[1])],
        "routes": [{"probability": p, "km": _km(roads, path), "segments": path.tolist()} for path, p in example.routes],
        "destinations": [_street(roads, s, p) for p, s in likely[:_MOST_DESTINATIONS]],
    }
    echo(json.dumps(facts) if as_json else "\n".join(_format_forecast(roads, example, facts)))
    write_geojson(example.routes, roads, geojson, as_json)
    if page is not None:
        write_page(context, forecast_page(roads, example), page, as_json)


def _format_forecast(roads: RoadNetwork, example: ForecastExample, facts: dict[str, Any]) -> Iterator[str]:
    from limiirl.report.roads import describe_turn
    from limiirl.roads import describe_street, list_street_names

    last, total = int(example.driven[-1]), len(example.driven) + len(example.actual)
    known = f"{facts['known_km']:.1f} of {facts['km']:.1f} km ({len(example.driven)} of {total} segments)"
    yield f"{example.title}, after {known}, on {describe_street(roads, last)}:"
    if facts["other_trips_of_the_driver"] is not None:
        yield f"  history     {plural(facts['other_trips_of_the_driver'], 'other trip')} of the driver"
    yield "  style       " + ", ".join(f"{k}: {p:.1%}" for k, p in enumerate(example.intents))
    for turn in facts["next"]:
        yield f"  next        {turn['probability']:.1%}: {describe_turn(roads, last, turn['segment'])}"
    for (path, p), route in zip(example.routes, facts["routes"], strict=True):
        streets = ", ".join(list_street_names(roads, path)[:3])
        yield f"  route       {p:.1%}: {route['km']:.1f} km to the destination" + (f" via {streets}" if streets else "")
    by_street = Counter[str]()  # several segments may be on one street
    for segment, p in zip(example.destinations.tolist(), example.probability.tolist(), strict=True):
        by_street[describe_street(roads, segment)] += p
    for street, p in by_street.most_common(_MOST_DESTINATIONS):
        yield f"  destination {p:.1%}: {street}"


def _other_trips(demos: Demonstrations, index: int) -> Demonstrations:
    """Return the other trips of the driver of a trip."""
    if demos.groups is None:
        raise InvalidParameter(
            "--by-driver requires trips with driver ids; MATCHES has no driver ids. Omit --by-driver.",
            parameter="by_driver",
            value=True,
        )
    others = [i for i, group in enumerate(demos.groups) if group == demos.groups[index] and i != index]
    if not others:
        raise InvalidParameter(
            f"--by-driver requires other trips of driver {demos.groups[index]}; there are none. Omit --by-driver.",
            parameter="by_driver",
            value=True,
        )
    return demos[others]


def _street(roads: RoadNetwork, segment: int, probability: float) -> dict[str, Any]:
    return {"segment": segment, "street": roads.street(segment), "probability": probability}


def _km(roads: RoadNetwork, segments: Any) -> float:
    return float(roads.length_m[segments].sum()) / 1000.0


def _check_same_network(mdp: MDP, roads: RoadNetwork, styles: Path, network: Path) -> None:
    """Raise unless the states and edges of an MDP are the segments and turns of a network."""
    if mdp.n_states != roads.n_segments:
        difference = f"{mdp.n_states:,} segments, but {network} has {roads.n_segments:,}"
    elif mdp.n_edges != roads.n_turns:
        difference = f"{mdp.n_edges:,} turns, but {network} has {roads.n_turns:,}"
    elif (mdp.src != roads.turn_from).any() or (mdp.dst != roads.turn_to).any():
        difference = f"turns that differ from the turns of {network}"
    else:
        return
    raise InvalidParameter(
        f"{styles} was fitted on a network with {difference}. Pass the network of the fit.",
        parameter="styles",
        value=str(styles),
    )


def demo(  # noqa: PLR0913 (a command's options, each with a default)
    seed: Seed = 0,
    radius_km: Annotated[float, typer.Option("--radius", help="Radius of the city in km, 0.8 to 6.")] = 2.1,
    n_drivers: Annotated[int, typer.Option("--drivers", help="Number of drivers.")] = 36,
    trips_each: Annotated[int, typer.Option(help="Number of trips per driver.")] = 10,
    noise_m: Annotated[float, typer.Option("--noise", help="Standard deviation of the GPS noise in metres.")] = 10.0,
    step_s: Annotated[float, typer.Option("--step", help="Seconds between fixes.")] = 15.0,
    method: Annotated[str, typer.Option(help="Matching method: hmm or particles.")] = "hmm",
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder of the reports.")] = Path("roads-report"),
    as_json: AsJson = False,
) -> None:
    """Run all steps in a synthetic city.

    Simulates drivers and noisy GPS traces, matches the traces, learns driving styles, and writes reports.
    """
    from limiirl.report import write
    from limiirl.report.roads import network_page, quality_page, styles_report
    from limiirl.roads import run_demo

    check_page(out, option="out")
    folders = {name: out / name for name in ("network", "matching", "styles")}
    for folder in folders.values():
        check_page(folder)
    with show_progress() as progress:
        result = run_demo(
            seed,
            radius_km=radius_km,
            n_drivers=n_drivers,
            trips_each=trips_each,
            noise_m=noise_m,
            step_s=step_s,
            method=method,
            progress=progress,
        )
    roads = result.city.network
    pages = {
        "network": write(network_page(roads, title="A synthetic city"), folders["network"]),
        "matching": write(quality_page(roads, result.cleaned, result.matches), folders["matching"]),
        "styles": write(styles_report(roads, result.fit), folders["styles"]),
    }
    if as_json:
        echo(json.dumps(result.scores() | {"pages": {name: str(page) for name, page in pages.items()}}))
    else:
        lines = [f"{name:<9} {page}" for name, page in pages.items()]
        echo("\n".join([str(roads), f"{result}\n", *lines]))


def close(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    network: Network,
    styles: Styles,
    matches: MatchesFile,
    at: Annotated[str | None, typer.Option("--at", metavar="LAT,LON", help="Close the street at this point.")] = None,
    street: Annotated[
        str | None, typer.Option("--street", metavar="NAME", help="Close the street whose name contains NAME.")
    ] = None,
    segments: Annotated[
        str | None, typer.Option("--segments", metavar="INDEX,...", help="Close the segments with these indices.")
    ] = None,
    both: Annotated[
        bool | None,
        typer.Option(
            "--both/--one-way", help="Close both directions, or one direction. [default: both; for --segments, one]"
        ),
    ] = None,
    trips: Annotated[
        int | None, typer.Option("--trips", help="Number of trips, sampled at random. [default: all]")
    ] = None,
    least: Annotated[
        int,
        typer.Option(
            "--min-drivers", help="Minimum number of drivers in a statistic; others are not shown, for privacy.", min=1
        ),
    ] = 5,
    seed: Seed = 0,
    geojson: GeoJSON = None,
    page: Page = None,
    as_json: AsJson = False,
) -> None:
    """Predict the detours after closing a street.

    Trips keep their origins and destinations; their routes are predicted from the driving styles.
    """
    from limiirl import IntentMixture, MaxEnt
    from limiirl.forecast import Forecaster, condition_on_ends
    from limiirl.roads import close_streets, summarize_closure

    check_page(page, network, styles)
    check_geojson(geojson, network, styles, matches)
    roads, matched = read_matched(network, matches)
    closed = _find_segments(roads, at, street, segments, both)
    demos = sample_demos(matched.demonstrations(), trips, seed)
    with show_progress() as progress:
        progress(0, None, "reading the styles")
        mixture = IntentMixture.load(styles)
        _check_same_network(mixture.mdp_, roads, styles, network)
        if isinstance(mixture.irl_, MaxEnt):
            mixture = condition_on_ends(mixture, demos)
            if not as_json:
                echo(_GIVEN_ENDS, err=True)
        closing = f"with and without {plural(closed.size, 'segment')}"
        progress(0, None, f"routing {plural(len(demos), 'trip')} {closing}")
        closure = close_streets(roads, Forecaster(mixture, demos), demos, closed, least=least)
    echo(json.dumps(summarize_closure(closure)) if as_json else str(closure))
    write_geojson(closure, roads, geojson, as_json)
    if page is not None:
        from limiirl.report.roads import change_page

        write_page(context, change_page(closure), page, as_json)


def _find_segments(
    roads: RoadNetwork, at: str | None, street: str | None, segments: str | None, both: bool | None
) -> IntArray:
    """Return the segments to close."""
    import numpy as np

    from limiirl.roads import nearest_segments

    options = {"--at": at, "--street": street, "--segments": segments}
    given = [f"{name} {value}" for name, value in options.items() if value is not None]
    if len(given) != 1:
        raise InvalidParameter(
            f"Exactly one of --at, --street and --segments must be given; got {' and '.join(given) or 'none'}.",
            parameter="at",
            value=at,
        )
    point = parse_point(at, "at")
    if point is not None:
        return nearest_segments(roads, *point, both=both is not False)
    if street is not None:
        return _find_street(roads, street, both)
    try:
        numbers = np.array([int(part) for part in str(segments).split(",")], dtype=np.int64)
    except ValueError:
        raise InvalidParameter.of("segments", segments, "must be comma-separated integers, for example 12,31") from None
    if not both or numbers.min() < 0 or numbers.max() >= roads.n_segments:
        return numbers  # `close_streets` checks the range
    pairs = np.concatenate([numbers, roads.opposite[numbers]])
    return np.unique(pairs[pairs >= 0])


def _find_street(roads: RoadNetwork, street: str, both: bool | None) -> IntArray:
    """Return the segments of the street whose name contains `street`; raise unless there is exactly one."""
    from limiirl.roads import list_street_names

    if both is False:
        raise InvalidParameter(
            f"--one-way cannot be combined with --street {street!r}. Use --at or --segments.",
            parameter="street",
            value=street,
        )
    segments = roads.find(street)
    names = list_street_names(roads, segments)
    if len(names) > 1:
        more = f" and {len(names) - _MOST_STREETS} more" if len(names) > _MOST_STREETS else ""
        raise InvalidParameter(
            f"--street {street!r} matches {len(names)} streets: {'; '.join(names[:_MOST_STREETS])}{more}. Pass a more "
            "specific name, or --at LAT,LON.",
            parameter="street",
            value=street,
        )
    return segments
