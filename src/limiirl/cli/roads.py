"""`limiirl roads`: from a map and GPS traces to driving styles and forecasts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limiirl._progress import LineReport, iterations, show_progress
from limiirl.cli import roads_forecast
from limiirl.cli.inputs import check_page, check_target, show_page
from limiirl.cli.options import (
    AsJson,
    DeviceName,
    ExecutorName,
    MatchesFile,
    Network,
    Page,
    Scheduler,
    Seed,
    Workers,
    resolve_executor,
    tell_device,
)
from limiirl.cli.roads_inputs import (
    as_lines,
    check_cleaned,
    check_file,
    check_trips,
    plural,
    point,
    read_columns,
    read_matched,
    read_network,
    read_zones,
    some,
)
from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from limiirl.roads import DriverFit


app = typer.Typer(
    help="Roads: from a map and GPS traces to driving styles and forecasts.", no_args_is_help=True, add_completion=False
)

NoExamples = Annotated[bool, typer.Option("--no-examples", help="Draw no trip of a person in the page.")]


@app.command(no_args_is_help=True)
def build(  # noqa: PLR0913 (a command's options, each with a default)
    source: Annotated[
        Path,
        typer.Argument(
            help="An .osm, .osm.gz or .osm.pbf file, or a folder with osm_ways.jsonl.gz and osm_nodes.csv.gz."
        ),
    ],
    nodes: Annotated[Path | None, typer.Option(help="CSV of nodes, where SOURCE is a file of ways.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The network.")] = Path("network.npz"),
    service: Annotated[bool, typer.Option("--service", help="Keep service roads.")] = False,
    u_turns: Annotated[bool, typer.Option("--u-turns", help="Allow turning back.")] = False,
    component: Annotated[
        str,
        typer.Option(
            help="What to keep of a map that falls apart: street_nodes (the largest part by streets), turns (by legal "
            "turns) or all."
        ),
    ] = "street_nodes",
    centre: Annotated[
        str | None,
        typer.Option(help="LAT,LON of the centre, for the regions; by default the map's middle."),
    ] = None,
    page: Page = None,
    as_json: AsJson = False,
) -> None:
    """Make a road network of a map: directed segments, legal turns, the largest connected part.

    Example: limiirl roads build porto.osm.pbf --out porto.npz --page porto
    """
    from limiirl.roads import build as build_network
    from limiirl.roads import summarize

    check_file(out)
    check_page(page)
    part = None if component == "all" else component
    with show_progress() as progress:
        progress(0, None, f"building a network of {source}")
        network = build_network(
            source, nodes=nodes, service=service, u_turns=u_turns, component=part, centre=point(centre)
        )
    network.save(out)
    facts = summarize(network)
    if as_json:
        typer.echo(json.dumps(facts | {"saved": str(out)}))
    else:
        typer.echo(f"{network}\n\n{as_lines(facts)}\n\nSaved to {out}.")
    if page is not None:
        from limiirl.report.roads import network_page

        show_page(network_page(network), page, as_json)


@app.command(no_args_is_help=True)
def match(  # noqa: PLR0913 (a command's options, each with a default)
    network: Network,
    trips: Annotated[Path, typer.Argument(help="CSV with JSON polylines, parquet, CSV a row a fix, or GPX; .gz too.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The matched trips.")] = Path("matches.npz"),
    method: Annotated[str, typer.Option(help="hmm (Viterbi) or particles (the paper's).")] = "hmm",
    step_s: Annotated[float, typer.Option("--step", help="Seconds between fixes, where the file has no times.")] = 15.0,
    trim: Annotated[
        float, typer.Option(help="Cut this many metres off both ends of every trip: homes are there.", min=0.0)
    ] = 0.0,
    mask: Annotated[
        list[str] | None,
        typer.Option("--mask", help="LAT,LON,METRES: drop what lies in this circle, and cut trips there. Repeatable."),
    ] = None,
    swap: Annotated[
        bool, typer.Option("--swap", help="Latitude and longitude stand in each other's place in the file.")
    ] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            help="Which column is what, where names are not understood: lat=Breite,lon=Laenge; driver= leaves one out.",
        ),
    ] = None,
    sigma_m: Annotated[
        float | None, typer.Option("--sigma", help="Noise of a fix in metres; estimated from the trips by default.")
    ] = None,
    no_examples: NoExamples = False,
    seed: Annotated[
        int, typer.Option(help="Of --method particles. What --trim cuts is always drawn anew: a seed would tell it.")
    ] = 0,
    page: Page = None,
    as_json: AsJson = False,
) -> None:
    """Match GPS traces to the segments of a network, and say what was dropped and why.

    Example: limiirl roads match porto.npz trips.csv.gz --out matches.npz --page quality
    """
    from limiirl.roads import clean, measure_quality, read_trips
    from limiirl.roads import match as match_trips
    from limiirl.roads.privacy import mask_zones, trim_cleaned

    check_file(out)
    check_page(page)
    named, zones = read_columns(columns or []), read_zones(mask or [])
    roads = read_network(network)
    with show_progress() as progress:
        progress(0, None, f"reading {trips}")
        read = read_trips(trips, step_s=step_s, columns=named, swap=swap, network=roads)
        check_trips(read, trips)
        read = mask_zones(read, zones) if zones else read
        progress(0, None, f"cleaning {plural(len(read), 'trip')}")
        cleaned = clean(read, roads)
        check_cleaned(cleaned, trips)
        if trim > 0.0:
            cleaned = trim_cleaned(cleaned, roads, trim)
    given: dict[str, Any] = {"sigma_m": sigma_m} | ({"seed": seed} if method == "particles" else {})
    with show_progress() as progress:
        progress(0, None, f"matching {plural(len(cleaned.trips), 'piece')}")
        matches = match_trips(roads, cleaned, method, progress=progress, **given)
    matches.save(out)
    found = measure_quality(roads, cleaned, matches)
    counts = {"trips": found.n_trips, "matched_end_to_end": found.n_whole, "fixes_matched": found.n_fixes_matched}
    losses: dict[str, Any] = {"fixes_dropped": dict(found.dropped), "cuts": dict(cleaned.cuts)}
    losses |= {"trips_lost": dict(found.lost), "unread": dict(found.unread), "matching": dict(found.reasons)}
    if as_json:
        typer.echo(json.dumps(counts | losses | {"saved": str(out)}))
    else:
        typer.echo(f"{found}\n  noise      {matches.settings['sigma_m']:.1f} m a coordinate\n\n{as_lines(losses)}")
        onward = f"`limiirl roads fit {network} {out}` learns styles from it."
        typer.echo(f"\nSaved to {out}; {onward if found.n_whole else 'no trip in it is whole. Is this their map?'}")
    if page is not None:
        from limiirl.report.roads import quality_page

        show_page(quality_page(roads, cleaned, matches, found, examples=not no_examples), page, as_json)


@app.command(no_args_is_help=True)
def fit(  # noqa: PLR0913 (a command's options, each with a default)
    network: Network,
    matches: MatchesFile,
    n_intents: Annotated[
        str,
        typer.Option(
            "--intents", "-k", help="A number; sticks: what a stick-breaking GMM sees; select: cross-validated."
        ),
    ] = "sticks",
    model: Annotated[
        str, typer.Option(help="MaxEnt (the paper's), or DestinationMaxEnt (given where it ends).")
    ] = "MaxEnt",
    features: Annotated[str, typer.Option(help="paper (24 dimensions) or plain.")] = "paper",
    gamma: Annotated[float, typer.Option(help="Discount; 0.999 is the released code's.")] = 1.0,
    trips: Annotated[int | None, typer.Option("--trips", help="Learn from this many trips, drawn at random.")] = None,
    by_driver: Annotated[bool, typer.Option("--by-driver", help="All trips of a driver share a style.")] = False,
    init: Annotated[str, typer.Option(help="kmeans, gmm, best, random or random_rewards.")] = "kmeans",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the fitted mixture.")] = Path("styles"),
    no_examples: NoExamples = False,
    device: DeviceName = None,
    executor: ExecutorName = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    seed: Seed = 0,
    page: Page = None,
    as_json: AsJson = False,
) -> None:
    """Learn driving styles from matched trips of 10 to 300 segments.

    With --executor or --workers the fits of `--intents select` run at once; what is found is the same.

    Example: limiirl roads fit porto.npz matches.npz --intents 3 --trips 1000 --out styles --page styles-page
    """
    from limiirl.roads import describe_fit, fit_drivers

    check_target(out)
    check_page(page)
    placed = resolve_executor(executor, workers, scheduler)
    if placed is not None and n_intents != "select":
        raise InvalidParameter(
            "--executor, --workers and --scheduler are for the many fits of --intents select. Leave them out.",
            parameter="executor",
            value=executor,
        )
    roads, matched = read_matched(network, matches)
    tell_device(device, roads.n_segments + roads.n_turns)
    usable, left_out = matched.demonstrations(), matched.selection()[1]
    demos = some(usable, trips, seed)
    number = int(n_intents) if n_intents.isdecimal() else n_intents
    on_terminal = sys.stderr.isatty()  # where EM draws a bar of its own
    found = fit_drivers(
        roads,
        demos,
        number,
        model=model,
        features=features,
        gamma=gamma,
        by_driver=by_driver,
        init=init,
        device=device or "cpu",
        executor=placed,
        random_state=seed,
        verbose=on_terminal,
        callback=None if on_terminal else iterations(f"learning styles from {plural(len(demos), 'trip')}"),
        progress=None if on_terminal else LineReport("fits"),
    )
    found.mixture.save(out)
    if len(found.demos) < len(demos):
        left_out["the end passed before"] = len(demos) - len(found.demos)
    styles = [style.long for style in describe_fit(found)]
    if as_json:
        told = {"sticks": found.sticks, "sticks_capped": found.capped, "styles": styles}
        typer.echo(json.dumps(found.mixture.summary().to_dict() | told | {"left_out": left_out, "saved": str(out)}))
    else:
        _tell_fit(found, styles, left_out)
        typer.echo(f"\nSaved to {out}.")
    if page is not None:
        from limiirl.report.roads import styles_report

        show_page(styles_report(roads, found, examples=not no_examples), page, as_json)


def _tell_fit(found: DriverFit, styles: list[str], left_out: dict[str, int]) -> None:
    """Print what was learned."""
    most = ", as many as it may: --intents select would say more" if found.capped else ""
    seen = f"; a stick-breaking GMM of their features sees {plural(found.sticks, 'cluster')}{most}."
    # A selection has its own, from other random numbers, among its criteria.
    typer.echo(plural(len(found.demos), "trip") + (seen if found.selection is None else "."))
    if left_out:
        typer.echo(as_lines({"left out": left_out}))
    if found.selection is not None:
        typer.echo(f"\n{found.selection}\n")
    typer.echo(str(found.mixture.summary()))
    typer.echo("\n" + "\n".join(f"Intent {k} (style {k + 1} on the page): {said}" for k, said in enumerate(styles)))


app.command(no_args_is_help=True)(roads_forecast.forecast)
app.command(no_args_is_help=True)(roads_forecast.close)
app.command()(roads_forecast.demo)
