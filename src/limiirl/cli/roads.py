"""`limiirl roads`: build networks, match GPS traces, and learn driving styles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limiirl._progress import show_progress
from limiirl.cli import options, roads_forecast
from limiirl.cli.inputs import check_file, check_page, check_target, write_page
from limiirl.cli.roads_inputs import (
    check_cleaned,
    check_geojson,
    check_trips,
    format_facts,
    parse_columns,
    parse_point,
    parse_zones,
    plural,
    read_matched,
    read_network,
    sample_demos,
    write_geojson,
)
from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from limiirl.executors import Executor
    from limiirl.roads import DriverFit


app = options.make_app("Learn driving styles from GPS traces and forecast trips.", "roads demo")


def build(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="OpenStreetMap file (.osm, .osm.gz, .osm.pbf), or folder with osm_ways.jsonl.gz and osm_nodes.csv.gz.",
        ),
    ],
    nodes: Annotated[Path | None, typer.Option(help="Node file (.csv.gz) for SOURCE osm_ways.jsonl.gz.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output file.")] = Path("network.npz"),
    service: Annotated[bool, typer.Option("--service", help="Include service roads.")] = False,
    u_turns: Annotated[bool, typer.Option("--u-turns", help="Allow U-turns.")] = False,
    component: Annotated[
        str,
        typer.Option(help="Component to keep: the largest by streets (street_nodes) or legal turns (turns), or all."),
    ] = "street_nodes",
    centre: Annotated[
        str | None,
        typer.Option(metavar="LAT,LON", help="Centre of the regions in the features. [default: middle of the map]"),
    ] = None,
    geojson: options.GeoJSON = None,
    page: options.Page = None,
    as_json: options.AsJson = False,
) -> None:
    """Build a road network from a map.

    States are directed road segments, and transitions are legal turns.
    """
    from limiirl._validation import check_choice
    from limiirl.roads import build as build_network
    from limiirl.roads import summarize

    check_file(out, source, nodes)
    check_page(page, source, nodes, out)
    check_geojson(geojson, source, nodes, out)
    part = None if check_choice(component, "component", ("street_nodes", "turns", "all")) == "all" else component
    with show_progress() as progress:
        progress(0, None, f"building a network from {source}")
        network = build_network(
            source, nodes=nodes, service=service, u_turns=u_turns, component=part, centre=parse_point(centre)
        )
    network.save(out)
    facts = summarize(network)
    if as_json:
        options.echo(json.dumps(facts | {"saved": str(out)}))
    else:
        options.echo(f"{network}\n\n{format_facts(facts)}\n\nSaved to {out}.")
    write_geojson(network, None, geojson, as_json)
    if page is not None:
        from limiirl.report.roads import network_page

        write_page(context, network_page(network), page, as_json)


def match(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    network: options.Network,
    trips: Annotated[
        Path,
        typer.Argument(
            metavar="TRIPS", help="GPX file, CSV file with JSON polylines, or CSV or parquet file with one row per fix."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output file.")] = Path("matches.npz"),
    method: Annotated[str, typer.Option(help="Matching method: hmm (Viterbi) or particles (particle filter).")] = "hmm",
    step_s: Annotated[float, typer.Option("--step", help="Seconds between fixes, if the file has no times.")] = 15.0,
    trim: Annotated[
        float, typer.Option(help="Remove this many metres from both ends of each trip, for privacy.", min=0.0)
    ] = 0.0,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            "--mask", metavar="LAT,LON,METRES", help="Remove the fixes in this circle, for privacy. Repeatable."
        ),
    ] = None,
    swap: Annotated[bool, typer.Option("--swap", help="Swap latitude and longitude.")] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="ROLE=NAME",
            help="Column of trip, piece, driver, time, polyline, lat, lon or missing, such as lat=Breite. Repeatable.",
        ),
    ] = None,
    sigma_m: Annotated[
        float | None,
        typer.Option("--sigma", help="GPS noise (standard deviation) in metres. [default: estimated from the trips]"),
    ] = None,
    no_examples: options.NoExamples = False,
    seed: Annotated[int, typer.Option(help="Random seed for --method particles. It does not affect --trim.")] = 0,
    geojson: options.GeoJSON = None,
    page: options.Page = None,
    as_json: options.AsJson = False,
) -> None:
    """Match GPS traces to a road network.

    Prints the number of matched trips, and the number of dropped fixes by reason.
    """
    from limiirl.roads import clean, measure_quality, privacy, read_trips
    from limiirl.roads import match as match_trips

    check_file(out, network, trips)
    check_page(page, network, trips, out)
    check_geojson(geojson, network, trips, out)
    names, zones = parse_columns(columns or []), parse_zones(mask or [])
    roads = read_network(network)
    with show_progress() as progress:
        progress(0, None, f"reading {trips}")
        traces = read_trips(trips, step_s=step_s, columns=names, swap=swap, network=roads)
        check_trips(traces, trips)
        traces = privacy.mask_zones(traces, zones) if zones else traces
        progress(0, None, f"cleaning {plural(len(traces), 'trip')}")
        cleaned = clean(traces, roads)
        check_cleaned(cleaned, trips)
        if trim > 0.0:
            cleaned = privacy.trim_cleaned(cleaned, roads, trim)
    settings: dict[str, Any] = {"sigma_m": sigma_m} | ({"seed": seed} if method == "particles" else {})
    with show_progress() as progress:
        progress(0, None, f"matching {plural(len(cleaned.trips), 'cleaned trip')}")
        matches = match_trips(roads, cleaned, method, progress=progress, **settings)
    matches.save(out)
    quality = measure_quality(roads, cleaned, matches)
    _print_quality(quality, cleaned, matches, network, out, as_json)
    write_geojson(matches, roads, geojson, as_json)
    if page is not None:
        from limiirl.report.roads import quality_page

        write_page(context, quality_page(roads, cleaned, matches, quality, examples=not no_examples), page, as_json)


def _print_quality(quality: Any, cleaned: Any, matches: Any, network: Path, out: Path, as_json: bool) -> None:
    """Print the number of matched trips, the number of dropped fixes by reason, and the next command."""
    counts = {"trips": quality.n_trips, "matched_end_to_end": quality.n_whole, "fixes_matched": quality.n_fixes_matched}
    losses: dict[str, Any] = {"fixes_dropped": dict(quality.dropped), "cuts": dict(cleaned.cuts)}
    losses |= {"trips_lost": dict(quality.lost), "unread": dict(quality.unread), "matching": dict(quality.reasons)}
    if as_json:
        options.echo(json.dumps(counts | losses | {"saved": str(out)}))
        return
    noise = f"{matches.settings['sigma_m']:.1f} m per coordinate"
    options.echo(f"{quality}\n  noise      {noise}\n\n{format_facts(losses)}\n\nSaved to {out}.")
    if quality.n_whole:
        options.echo(f"Learn driving styles with `limiirl roads fit {network} {out}`.")
    else:
        options.echo("No trip was matched completely. Check that the map covers the trips.")


def fit(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    network: options.Network,
    matches: options.MatchesFile,
    n_intents: Annotated[
        str,
        typer.Option(
            "--intents",
            "-k",
            help="Number of styles; or stick_breaking (estimate with a Gaussian mixture) or select (cross-validate).",
        ),
    ] = "stick_breaking",
    model: Annotated[
        str,
        typer.Option(help="DestinationMaxEnt (routes given the destination), or MaxEnt (also models where trips end)."),
    ] = "DestinationMaxEnt",
    features: Annotated[str, typer.Option(help="Road features: paper (24 dimensions) or plain.")] = "paper",
    gamma: Annotated[float, typer.Option(help="Discount factor.")] = 1.0,
    trips: Annotated[
        int, typer.Option("--trips", help="Maximum number of trips; a random sample is used if the file has more.")
    ] = 3000,
    by_driver: Annotated[
        bool, typer.Option("--by-driver", help="Assign one style per driver instead of per trip.")
    ] = False,
    init: options.Init = "kmeans",
    out: options.MixtureOut = Path("styles"),
    no_examples: options.NoExamples = False,
    device: options.DeviceName = None,
    executor: options.ExecutorName = None,
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
    seed: options.Seed = 0,
    geojson: options.GeoJSON = None,
    page: options.Page = None,
    as_json: options.AsJson = False,
) -> None:
    """Learn driving styles from matched trips.

    Uses trips of 10 to 300 segments. With --executor or --workers, the fits of --intents select run in parallel; the
    result is the same.
    """
    from limiirl._validation import check_count
    from limiirl.roads import fit_drivers

    check_target(out, network, matches)
    check_page(page, network, matches, out)
    check_geojson(geojson, network, matches, out)
    check_count(trips, "trips")
    backend = _resolve_executor(n_intents, executor, workers, scheduler)
    roads, matched = read_matched(network, matches)
    options.report_device(device, roads.n_segments + roads.n_turns)
    usable, excluded = matched.demonstrations(), matched.selection()[1]
    demos = sample_demos(usable, trips, seed)
    with show_progress() as progress:
        progress(0, None, f"learning styles from {plural(len(demos), 'trip')}")
        result = fit_drivers(
            roads,
            demos,
            int(n_intents) if n_intents.isdecimal() else n_intents,
            model=model,
            features=features,
            gamma=gamma,
            by_driver=by_driver,
            init=init,
            device=device or "cpu",
            executor=backend,
            seed=seed,
            progress=progress,
        )
    result.mixture.save(out)
    if len(result.demos) < len(demos):
        excluded["last segment visited twice"] = len(demos) - len(result.demos)
    _print_fit(result, len(usable), len(demos), excluded, out, as_json)
    write_geojson(result, roads, geojson, as_json)
    if page is not None:
        from limiirl.report.roads import styles_report

        write_page(context, styles_report(roads, result, examples=not no_examples), page, as_json)


def _resolve_executor(
    n_intents: str, executor: str | None, workers: int | None, scheduler: str | None
) -> Executor | None:
    """Return the executor that the options select; raise if it is set without --intents select."""
    backend = options.resolve_executor(executor, workers, scheduler)
    if backend is not None and n_intents != "select":
        given = {"executor": executor, "workers": workers, "scheduler": scheduler}
        name = next(name for name, value in given.items() if value is not None)
        rule, remedy = "requires --intents select", f"Pass --intents select, or omit --{name}."
        raise InvalidParameter.of(name, given[name], rule, remedy=remedy)
    return backend


_MODEL_LINES = {
    "DestinationMaxEnt": "DestinationMaxEnt, which models routes given the destination (alternative: --model MaxEnt, "
    "the paper's model, which also models where trips end, but predicts routes less accurately)",
    "MaxEnt": "MaxEnt, the paper's model, which also models where trips end (alternative: --model DestinationMaxEnt, "
    "the default, which predicts routes more accurately)",
}


def _print_fit(
    result: DriverFit, n_usable: int, n_sampled: int, excluded: dict[str, int], out: Path, as_json: bool
) -> None:
    from limiirl.roads import describe_fit

    styles, model = [style.long for style in describe_fit(result)], type(result.mixture.irl_).__name__
    if as_json:
        facts = {"model": model, "trips": n_usable, "n_clusters": result.n_clusters, "capped": result.capped}
        facts |= {"styles": styles, "excluded": excluded, "saved": str(out)}
        options.echo(json.dumps(result.mixture.summary().to_dict() | facts))
        return
    options.echo(f"Fitted to {plural(len(result.demos), 'trip')}.")
    if n_sampled < n_usable:
        options.echo(f"They are a random sample of {n_usable:,} trips; pass --trips {n_usable} to use all.")
    options.echo(f"Model: {_MODEL_LINES[model]}.")
    if result.selection is None:  # with --intents select, the table of criteria contains the number of clusters
        capped = ", the maximum; use --intents select to cross-validate" if result.capped else ""
        options.echo(f"Number of styles estimated by a Gaussian mixture of trip features: {result.n_clusters}{capped}.")
    if excluded:
        options.echo(format_facts({"excluded paths (a trip may have several)": excluded}))
    if result.selection is not None:
        options.echo(f"\n{result.selection}\n")
    options.echo(str(result.mixture.summary()))
    options.echo("\n" + "\n".join(f"Style {k} (intent {k}): {text}" for k, text in enumerate(styles)))
    options.echo(f"\nSaved to {out}.")


_FILES = "porto.npz styles matches.npz"
options.add_command(app, build, "roads build porto.osm.pbf --out porto.npz --page porto")
options.add_command(app, match, "roads match porto.npz trips.csv.gz --out matches.npz --page quality")
options.add_command(app, fit, "roads fit porto.npz matches.npz --intents 3 --out styles --page styles-page")
options.add_command(app, roads_forecast.forecast, f"roads forecast {_FILES} --fraction 0.3")
options.add_command(app, roads_forecast.close, f"roads close {_FILES} --at 41.1475,-8.6403 --page closed")
options.add_command(app, roads_forecast.demo, "roads demo --noise 25 --out roads-report", show_help=False)
