"""`limiirl roads forecast`, `close` and `demo`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limiirl._progress import show_progress
from limiirl.cli.inputs import check_page, show_page
from limiirl.cli.options import AsJson, MatchesFile, Network, Page, Seed, Styles
from limiirl.cli.roads_inputs import find_trip, plural, point, read_matched, some
from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from limiirl import MDP, Demonstrations
    from limiirl._typing import IntArray
    from limiirl.report.roads import ForecastExample
    from limiirl.roads import RoadNetwork


def forecast(  # noqa: PLR0913 (a command's options, each with a default)
    network: Network,
    styles: Styles,
    matches: MatchesFile,
    trip: Annotated[str | None, typer.Option(help="Id of the trip; the first one by default.")] = None,
    share: Annotated[
        float,
        typer.Option(
            help="Share of the trip's segments that is known; it is cut at the next crossing.", min=0.0, max=1.0
        ),
    ] = 0.5,
    routes: Annotated[int, typer.Option("--routes", "-k", help="How many routes.", min=1)] = 3,
    by_driver: Annotated[
        bool, typer.Option("--by-driver", help="Judge the driver's style by their other trips as well.")
    ] = False,
    page: Page = None,
    as_json: AsJson = False,
) -> None:
    """Forecast how a trip goes on from its beginning: the next turn, the routes to its end, and where it may end.

    Example: limiirl roads forecast porto.npz styles matches.npz --share 0.3
    """
    from limiirl import IntentMixture
    from limiirl.forecast import Forecaster
    from limiirl.report.roads import forecast_example, forecast_page

    check_page(page)
    roads, matched = read_matched(network, matches)
    demos = matched.demonstrations()
    mixture = IntentMixture.load(styles)
    check_same(mixture.mdp_, roads, styles, network)
    which = 0 if trip is None else find_trip(demos, trip)
    # A trip's own end among the candidates would give it away.
    forecaster = Forecaster(mixture, demos[[i for i in range(len(demos)) if i != which]])
    earlier = _others(demos, which) if by_driver else None
    if earlier is not None:
        forecaster = forecaster.given_history(earlier)
    name = f"Trip {which if demos.ids is None else demos.ids[which]}"
    found = forecast_example(forecaster, roads, demos[which].states, title=name, share=share, k=routes)
    likely = sorted(zip(found.probability.tolist(), found.destinations.tolist(), strict=True), reverse=True)[:5]
    told = {
        "trip": name.removeprefix("Trip "),
        "known_segments": len(found.driven),
        "known_km": _km(roads, found.driven),
        "km": _km(roads, demos[which].states),
        "other_trips_of_the_driver": None if earlier is None else len(earlier),
        "styles": found.intents.tolist(),
        "next": [_named(roads, s, p) for s, p in sorted(found.turns, key=lambda turn: -turn[1])],
        "routes": [{"probability": p, "km": _km(roads, path), "segments": path.tolist()} for path, p in found.routes],
        "destinations": [_named(roads, s, p) for p, s in likely],
    }
    typer.echo(json.dumps(told) if as_json else "\n".join(_lines(roads, found, told)))
    if page is not None:
        show_page(forecast_page(roads, found), page, as_json)


def _lines(roads: RoadNetwork, found: ForecastExample, told: dict[str, Any]) -> Iterator[str]:
    """Yield a forecast in words."""
    from limiirl.report.roads import turn_words
    from limiirl.roads import describe_street, list_street_names

    total = len(found.driven) + len(found.actual)
    known = f"{told['known_km']:.1f} of {told['km']:.1f} km ({len(found.driven)} of {total} segments)"
    yield f"{found.title}, after {known}, on {describe_street(roads, int(found.driven[-1]))}:"
    if told["other_trips_of_the_driver"] is not None:
        yield f"  driver      judged by {plural(told['other_trips_of_the_driver'], 'other trip')} too"
    yield "  style       " + ", ".join(f"{k + 1}: {p:.1%}" for k, p in enumerate(found.intents))
    for turn in told["next"]:
        yield f"  next        {turn['probability']:.1%}: {turn_words(roads, int(found.driven[-1]), turn['segment'])}"
    for (path, p), route in zip(found.routes, told["routes"], strict=True):
        by = ", ".join(list_street_names(roads, path)[:3])
        yield f"  route       {p:.1%}: {route['km']:.1f} km to its end" + (f", mostly by {by}" if by else "")
    for end in told["destinations"]:
        yield f"  destination {end['probability']:.1%}: {describe_street(roads, end['segment'])}"


def _others(demos: Demonstrations, which: int) -> Demonstrations:
    """Return the other trips of the driver of one."""
    if demos.groups is None:
        raise InvalidParameter(
            "--by-driver needs trips with drivers; these trips have no drivers. Leave it out.", parameter="by_driver"
        )
    others = [i for i, group in enumerate(demos.groups) if group == demos.groups[which] and i != which]
    if not others:
        raise InvalidParameter(
            "The driver of this trip has no other trip to be judged by. Leave out --by-driver.", parameter="by_driver"
        )
    return demos[others]


def _named(roads: RoadNetwork, segment: int, probability: float) -> dict[str, Any]:
    return {"segment": segment, "street": roads.street(segment), "probability": probability}


def _km(roads: RoadNetwork, segments: Any) -> float:
    return float(roads.length_m[segments].sum()) / 1000.0


def check_same(mdp: MDP, roads: RoadNetwork, styles: Path, network: Path) -> None:
    """Check that an MDP is that of a network: its states are the segments, and its edges the turns."""
    if mdp.n_states != roads.n_segments:
        differ = f"{mdp.n_states:,} states, but {network} has {roads.n_segments:,} segments"
    elif mdp.n_edges != roads.n_turns:
        differ = f"{mdp.n_edges:,} turns, but {network} has {roads.n_turns:,}"
    elif (mdp.src != roads.turn_from).any() or (mdp.dst != roads.turn_to).any():
        differ = f"other turns than {network} has"
    else:
        return
    raise InvalidParameter(
        f"{styles} was learned on {differ}. Name the network that it was fitted on.",
        parameter="styles",
        value=str(styles),
    )


def demo(  # noqa: PLR0913 (a command's options, each with a default)
    seed: Seed = 0,
    radius_km: Annotated[float, typer.Option("--radius", help="Of the city's ring road in km, 0.8 to 6.")] = 2.1,
    n_drivers: Annotated[int, typer.Option("--drivers", help="How many people drive.")] = 36,
    trips_each: Annotated[int, typer.Option(help="How often each drives.")] = 10,
    noise_m: Annotated[float, typer.Option("--noise", help="Standard deviation of a fix's coordinates, in m.")] = 10.0,
    step_s: Annotated[float, typer.Option("--step", help="Seconds between fixes.")] = 15.0,
    method: Annotated[str, typer.Option(help="hmm or particles.")] = "hmm",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the pages.")] = Path("roads-report"),
    as_json: AsJson = False,
) -> None:
    """Show the whole chain in a small invented city: drivers, noisy GPS, matching, styles, forecasts and pages.

    Example: limiirl roads demo --noise 25 --out roads-report
    """
    from limiirl.report import write
    from limiirl.report.roads import network_page, quality_page, write_styles
    from limiirl.roads import run_demo

    folders = {name: out / name for name in ("network", "matching", "styles")}
    for folder in folders.values():
        check_page(folder)
    with show_progress() as progress:
        found = run_demo(
            seed,
            radius_km=radius_km,
            n_drivers=n_drivers,
            trips_each=trips_each,
            noise_m=noise_m,
            step_s=step_s,
            method=method,
            progress=progress,
        )
    roads = found.city.network
    pages = {
        "network": write(network_page(roads, title="An invented city"), folders["network"]),
        "matching": write(quality_page(roads, found.cleaned, found.matches), folders["matching"]),
        "styles": write_styles(roads, found.fit, folders["styles"]),
    }
    if as_json:
        typer.echo(json.dumps(found.scores() | {"pages": {name: str(page) for name, page in pages.items()}}))
        return
    typer.echo(f"{roads}\n{found}\n")
    for name, page in pages.items():
        typer.echo(f"{name:<9} {page}")


_LISTED = 8


def close(  # noqa: PLR0913 (a command's options, each with a default)
    network: Network,
    styles: Styles,
    matches: MatchesFile,
    at: Annotated[str | None, typer.Option("--at", help="LAT,LON of a place: the street there is closed.")] = None,
    street: Annotated[
        str | None, typer.Option("--street", help="Name of a street, or a part of it: all of it is closed.")
    ] = None,
    segments: Annotated[str | None, typer.Option("--segments", help="Numbers of segments: 1,2.")] = None,
    both: Annotated[
        bool | None,
        typer.Option(
            "--both/--one-way", help="Both directions, or one; both by default, but with --segments those alone."
        ),
    ] = None,
    trips: Annotated[
        int | None,
        typer.Option("--trips", help="Take the demand from this many trips, drawn at random; all by default."),
    ] = None,
    least: Annotated[int, typer.Option(help="Hide numbers behind which fewer drivers stand.", min=1)] = 5,
    seed: Seed = 0,
    page: Page = None,
    as_json: AsJson = False,
) -> None:
    """Close a street, and say who drives where instead, how much further, and who is cut off.

    Who wants to go where does not change: the demand is where the matched trips begin and end, driven as the styles
    would drive.

    Example: limiirl roads close porto.npz styles matches.npz --at 41.1475,-8.6403 --page closed
    """
    from limiirl import IntentMixture
    from limiirl.forecast import Forecaster
    from limiirl.roads import close_streets, summarize_closure

    check_page(page)
    roads, matched = read_matched(network, matches)
    closed = _closed(roads, at, street, segments, both)
    demos = some(matched.demonstrations(), trips, seed)
    with show_progress() as progress:
        progress(0, None, "reading the styles")
        mixture = IntentMixture.load(styles)
        check_same(mixture.mdp_, roads, styles, network)
        progress(0, None, f"driving {plural(len(demos), 'trip')} with and without {plural(closed.size, 'segment')}")
        closure = close_streets(roads, Forecaster(mixture, demos), demos, closed, least=least)
    typer.echo(json.dumps(summarize_closure(closure)) if as_json else str(closure))
    if page is not None:
        from limiirl.report.roads import change_page

        show_page(change_page(closure), page, as_json)


def _closed(
    roads: RoadNetwork, at: str | None, street: str | None, segments: str | None, both: bool | None
) -> IntArray:
    """Return the segments to close."""
    import numpy as np

    from limiirl.roads import nearest_segments

    if sum(given is not None for given in (at, street, segments)) != 1:
        raise InvalidParameter("Exactly one of --at LAT,LON, --street NAME and --segments 1,2 must say what to close.")
    here = point(at, "--at")
    if here is not None:
        return nearest_segments(roads, *here, both=both is not False)
    if street is not None:
        return _named_closure(roads, street, both)
    try:
        numbers = np.array([int(part) for part in str(segments).split(",")], dtype=np.int64)
    except ValueError:
        raise InvalidParameter(
            f"--segments must be whole numbers, such as 12,31; got {segments!r}.", parameter="segments", value=segments
        ) from None
    if not both or numbers.min() < 0 or numbers.max() >= roads.n_segments:
        return numbers  # what is wrong with them is said where they are closed
    pairs = np.concatenate([numbers, roads.opposite[numbers]])
    return np.unique(pairs[pairs >= 0])


def _named_closure(roads: RoadNetwork, street: str, both: bool | None) -> IntArray:
    """Return all of one street; a part of a name that several streets have would close them all."""
    from limiirl.roads import list_street_names

    if both is False:
        raise InvalidParameter(
            "--one-way does not go with --street. Name the direction's segments: --segments 1,2.",
            parameter="both",
            value=both,
        )
    found = roads.find(street)
    names = list_street_names(roads, found)
    if len(names) > 1:
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        raise InvalidParameter(
            f"{len(names)} streets have {street!r} in their names: {'; '.join(names[:_LISTED])}{more}. Name one of "
            "them, or point at it with --at LAT,LON.",
            parameter="street",
            value=street,
        )
    return found
