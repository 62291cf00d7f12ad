"""`limiirl roads close`: what changes if a street is closed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from limiirl.cli.bars import told_stages
from limiirl.cli.inputs import check_page, show_page
from limiirl.cli.road_forecasts import AsJson, Network, Seed, check_same
from limiirl.cli.road_inputs import plural, point, read_matched, some
from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from limiirl.roads import RoadNetwork

_LISTED = 8


def close(  # noqa: PLR0913 (a command's options, each with a default)
    network: Network,
    styles: Annotated[Path, typer.Argument(help="A folder that `limiirl roads fit` wrote.")],
    matches: Annotated[Path, typer.Argument(help="An .npz that `limiirl roads match` wrote: who wants to go where.")],
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
    page: Annotated[
        Path | None, typer.Option("--page", help="Folder for a page with a map, which opens in a browser.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Close a street, and say who drives where instead, how much further, and who is cut off.

    Who wants to go where does not change: the demand is where the matched trips begin and end, driven as the styles
    would drive.

    Example: limiirl roads close porto.npz styles matches.npz --at 41.1475,-8.6403 --page closed
    """
    from limiirl import IntentMixture
    from limiirl.forecast import Forecaster
    from limiirl.roads import close_streets
    from limiirl.roads.closure_words import facts

    check_page(page)
    roads, matched = read_matched(network, matches)
    closed = _closed(roads, at, street, segments, both)
    demos = some(matched.demonstrations(), trips, seed)
    with told_stages() as tell:
        tell("reading the styles")
        mixture = IntentMixture.load(styles)
        check_same(mixture.mdp_, roads, styles, network)
        tell(f"driving {plural(len(demos), 'trip')} with and without {plural(closed.size, 'segment')}")
        closure = close_streets(roads, Forecaster(mixture, demos), demos, closed, least=least)
    typer.echo(json.dumps(facts(closure)) if as_json else str(closure))
    if page is not None:
        from limiirl.report.roads import change_page

        show_page(change_page(closure), page, as_json)


def _closed(
    roads: RoadNetwork, at: str | None, street: str | None, segments: str | None, both: bool | None
) -> NDArray[np.int64]:
    """Return the segments to close."""
    from limiirl.roads import segments_at

    if sum(given is not None for given in (at, street, segments)) != 1:
        raise InvalidParameter("Say what to close: one of --at LAT,LON, --street NAME and --segments 1,2.")
    here = point(at, "--at")
    if here is not None:
        return segments_at(roads, *here, both=both is not False)
    if street is not None:
        return _named(roads, street, both)
    try:
        numbers = np.array([int(part) for part in str(segments).split(",")], dtype=np.int64)
    except ValueError:
        raise InvalidParameter(f"--segments takes whole numbers, such as 12,31; it is {segments!r}.") from None
    if not both or numbers.min() < 0 or numbers.max() >= roads.n_segments:
        return numbers  # what is wrong with them is said where they are closed
    pairs = np.concatenate([numbers, roads.opposite[numbers]])
    return np.unique(pairs[pairs >= 0])


def _named(roads: RoadNetwork, street: str, both: bool | None) -> NDArray[np.int64]:
    """Return all of one street; a part of a name that several streets have would close them all."""
    from limiirl.roads.street_names import names_of

    if both is False:
        raise InvalidParameter("--one-way does not go with --street. Name the direction's segments: --segments 1,2.")
    found = roads.find(street)
    names = names_of(roads, found)
    if len(names) > 1:
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        raise InvalidParameter(
            f"{len(names)} streets have {street!r} in their names: {'; '.join(names[:_LISTED])}{more}. Name one of "
            "them, or point at it with --at LAT,LON."
        )
    return found
