"""`limiirl roads`: from a map and GPS traces to driving styles and forecasts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from limiirl.cli.bars import counted, told_stages
from limiirl.cli.inputs import check_target
from limiirl.errors import InvalidFile, InvalidParameter

app = typer.Typer(
    help="Roads: from a map and GPS traces to driving styles and forecasts.", no_args_is_help=True, add_completion=False
)

Network = Annotated[Path, typer.Argument(help="An .npz that `limiirl roads build` wrote.")]
Page = Annotated[Path | None, typer.Option("--page", help="Folder for a page about it, which opens in a browser.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Seed = Annotated[int, typer.Option(help="Seed of all that is random.")]


@app.command(no_args_is_help=True)
def build(
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
    from limiirl.roads import describe

    network = build_network(source, nodes=nodes, service=service, u_turns=u_turns, centre=_point(centre))
    network.save(out)
    facts = describe(network)
    if as_json:
        typer.echo(json.dumps(facts | {"saved": str(out)}))
    else:
        typer.echo(f"{network}\n\n{_told(facts)}\n\nSaved to {out}.")
    if page is not None:
        from limiirl.report.roads import network_page
        from limiirl.report.write import write

        typer.echo(f"The page is {write(network_page(network), page)}", err=as_json)


@app.command(no_args_is_help=True)
def match(  # noqa: PLR0913 (a command's options, each with a default)
    network: Network,
    trips: Annotated[Path, typer.Argument(help="CSV with JSON polylines, parquet, CSV a row a fix, or GPX; .gz too.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The matched trips.")] = Path("matches.npz"),
    method: Annotated[str, typer.Option(help="hmm (Viterbi) or particles (the paper's).")] = "hmm",
    step: Annotated[float, typer.Option(help="Seconds between fixes, where the file has no times.")] = 15.0,
    trim: Annotated[
        float, typer.Option(help="Cut this many metres off both ends of every trip: homes are there.")
    ] = 0.0,
    sigma: Annotated[
        float | None, typer.Option(help="Noise of a fix in metres; estimated from the trips by default.")
    ] = None,
    seed: Seed = 0,
    page: Page = None,
    as_json: AsJson = False,
) -> None:
    """Match GPS traces to the segments of a network, and say what was dropped and why.

    Example: limiirl roads match porto.npz trips.csv.gz --out matches.npz --page quality
    """
    from limiirl.roads import RoadNetwork, clean, estimate_noise, read_trips
    from limiirl.roads import match as match_trips
    from limiirl.roads.privacy import trim_ends
    from limiirl.roads.quality import quality

    roads = RoadNetwork.load(network)
    read = read_trips(trips, step_s=step, network=roads)
    kept = trim_ends(read, trim, seed=seed) if trim > 0.0 else read
    cleaned = clean(kept, roads)
    given: dict[str, Any] = {"sigma_m": estimate_noise(roads, cleaned)[0] if sigma is None else sigma}
    if method == "particles":
        given["seed"] = seed
    with counted(f"matching {len(cleaned.trips):,} pieces") as progress:
        matches = match_trips(roads, cleaned, method, progress=progress, **given)
    matches.save(out)
    found = quality(roads, cleaned, matches)
    counts = {"trips": found.n_trips, "matched_end_to_end": found.n_whole, "fixes_matched": found.n_fixes_matched}
    losses = {"fixes_dropped": dict(found.dropped), "trips_lost": dict(found.lost), "matching": dict(found.reasons)}
    if as_json:
        typer.echo(json.dumps(counts | losses | {"saved": str(out)}))
    else:
        typer.echo(f"{found}\n  noise      {given['sigma_m']:.1f} m a coordinate\n\n{_told(losses)}")
        typer.echo(f"\nSaved to {out}; `limiirl roads fit {network} {out}` learns styles from it.")
    if page is not None:
        from limiirl.report.roads import quality_page
        from limiirl.report.write import write

        typer.echo(f"The page is {write(quality_page(roads, cleaned, matches, found), page)}", err=as_json)


@app.command(no_args_is_help=True)
def fit(  # noqa: PLR0913 (a command's options, each with a default)
    network: Network,
    matches: Annotated[Path, typer.Argument(help="An .npz that `limiirl roads match` wrote.")],
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
    seed: Seed = 0,
    page: Page = None,
    as_json: AsJson = False,
) -> None:
    """Learn driving styles from matched trips of 10 to 300 segments.

    Example: limiirl roads fit porto.npz matches.npz --intents 3 --trips 1000 --out styles --page styles-page
    """
    from limiirl.report.roads import styles_view, write_styles
    from limiirl.roads import Matches, RoadNetwork
    from limiirl.roads.fitting import fit_drivers

    check_target(out)
    roads = RoadNetwork.load(network)
    matched = _matched_to(roads, Matches.load(matches), matches)
    usable, left_out = matched.demonstrations(), matched.selection()[1]
    demos = _some(usable, trips, seed)
    number = int(n_intents) if n_intents.isdecimal() else n_intents
    found = fit_drivers(
        roads,
        demos,
        number,
        model=model,
        features=features,
        gamma=gamma,
        by_driver=by_driver,
        init=init,
        random_state=seed,
        verbose=sys.stderr.isatty(),
    )
    found.mixture.save(out)
    if len(found.demos) < len(demos):
        left_out["the end passed before"] = len(demos) - len(found.demos)
    styles = [words.long for words in styles_view(roads, found).words]
    if as_json:
        told = {"sticks": found.sticks, "styles": styles, "left_out": left_out, "saved": str(out)}
        typer.echo(json.dumps(found.mixture.summary().to_dict() | told))
    else:
        typer.echo(f"{len(found.demos):,} trips; a stick-breaking GMM of their features sees {found.sticks} clusters.")
        if left_out:
            typer.echo(_told({"left out": left_out}))
        if found.selection is not None:
            typer.echo(f"\n{found.selection}\n")
        typer.echo(str(found.mixture.summary()))
        typer.echo("\n" + "\n".join(f"Style {k + 1}: {said}" for k, said in enumerate(styles)))
        typer.echo(f"\nSaved to {out}.")
    if page is not None:
        typer.echo(f"The page is {write_styles(roads, found, page)}", err=as_json)


@app.command(no_args_is_help=True)
def forecast(
    network: Network,
    styles: Annotated[Path, typer.Argument(help="A folder that `limiirl roads fit` wrote.")],
    matches: Annotated[Path, typer.Argument(help="An .npz that `limiirl roads match` wrote.")],
    trip: Annotated[str | None, typer.Option(help="Id of the trip; the first one by default.")] = None,
    share: Annotated[float, typer.Option(help="Share of the trip that is known.", min=0.0, max=1.0)] = 0.5,
    routes: Annotated[int, typer.Option("--routes", "-k", help="How many routes.", min=1)] = 3,
    as_json: AsJson = False,
) -> None:
    """Forecast how a trip goes on from its beginning: the next turn, the routes to its end, and where it may end.

    Example: limiirl roads forecast porto.npz styles matches.npz --share 0.3
    """
    from limiirl import IntentMixture
    from limiirl.forecast import Forecaster
    from limiirl.report.roads import forecast_example
    from limiirl.roads import Matches, RoadNetwork

    roads = RoadNetwork.load(network)
    demos = _matched_to(roads, Matches.load(matches), matches).demonstrations()
    mixture = IntentMixture.load(styles)
    if mixture.mdp_.n_states != roads.n_segments:
        raise InvalidParameter(
            f"{styles} was learned on {mixture.mdp_.n_states:,} states, but {network} has {roads.n_segments:,} "
            "segments. Name the network that it was fitted on."
        )
    which = 0 if trip is None else _place(demos, trip)
    found = forecast_example(Forecaster(mixture, demos), roads, demos[which].states, title="", share=share, k=routes)
    likely = sorted(zip(found.probability.tolist(), found.destinations.tolist(), strict=True), reverse=True)[:5]
    told = {
        "known_segments": len(found.driven),
        "styles": found.intents.tolist(),
        "next": [{"segment": s, "probability": p} for s, p in found.turns],
        "routes": [{"probability": p, "segments": path.tolist()} for path, p in found.routes],
        "destinations": [{"segment": s, "probability": p} for p, s in likely],
    }
    if as_json:
        typer.echo(json.dumps(told))
        return
    km = [float(roads.length_m[path].sum()) / 1000.0 for path, _ in found.routes]
    typer.echo(f"After {len(found.driven)} of {len(demos[which].states)} segments:")
    typer.echo("  style       " + ", ".join(f"{k + 1}: {p:.1%}" for k, p in enumerate(found.intents)))
    typer.echo("  next        " + ", ".join(f"segment {s}: {p:.1%}" for s, p in found.turns))
    for (_, p), length in zip(found.routes, km, strict=True):
        typer.echo(f"  route       {length:.1f} km to its end: {p:.1%}")
    typer.echo("  destination " + ", ".join(f"segment {s}: {p:.1%}" for p, s in likely))


@app.command()
def demo(  # noqa: PLR0913 (a command's options, each with a default)
    seed: Seed = 0,
    radius: Annotated[float, typer.Option(help="Of the city's ring road in km, 0.8 to 6.")] = 2.1,
    drivers: Annotated[int, typer.Option(help="How many people drive.")] = 36,
    trips_each: Annotated[int, typer.Option(help="How often each drives.")] = 10,
    noise: Annotated[float, typer.Option(help="Standard deviation of each coordinate of a fix, in metres.")] = 10.0,
    step: Annotated[float, typer.Option(help="Seconds between fixes.")] = 15.0,
    method: Annotated[str, typer.Option(help="hmm or particles.")] = "hmm",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the pages.")] = Path("roads-report"),
    as_json: AsJson = False,
) -> None:
    """Show the whole chain in a small invented city: drivers, noisy GPS, matching, styles, forecasts and pages.

    Example: limiirl roads demo --noise 25 --out roads-report
    """
    from limiirl.report.roads import network_page, quality_page, write_styles
    from limiirl.report.write import write
    from limiirl.roads.pipeline import run_demo

    with told_stages() as tell:
        found = run_demo(
            seed,
            radius_km=radius,
            n_drivers=drivers,
            trips_each=trips_each,
            noise_m=noise,
            step_s=step,
            method=method,
            progress=lambda stage, *_: tell(stage),
        )
    roads = found.city.network
    pages = {
        "network": write(network_page(roads, title="An invented city"), out / "network"),
        "matching": write(quality_page(roads, found.cleaned, found.matches), out / "matching"),
        "styles": write_styles(roads, found.fit, out / "styles"),
    }
    if as_json:
        typer.echo(json.dumps(found.scores() | {"pages": {name: str(page) for name, page in pages.items()}}))
        return
    typer.echo(f"{roads}\n{found}\n")
    for name, page in pages.items():
        typer.echo(f"{name:<9} {page}")


def _matched_to(roads: Any, found: Any, path: Path) -> Any:
    """Return matches, or say that they are of another network: their segments would be any others here."""
    if found.settings.get("network", roads.fingerprint()) != roads.fingerprint():
        raise InvalidFile(f"{path} was matched to another network. Name that one, or match the trips again.")
    return found


def _point(text: str | None) -> tuple[float, float] | None:
    """Return the latitude and longitude of LAT,LON."""
    if text is None:
        return None
    try:
        lat, lon = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameter(f"--centre takes LAT,LON in degrees, such as 41.148,-8.633; it is {text!r}.") from None
    return lat, lon


def _place(demos: Any, trip: str) -> int:
    """Return the number of the demonstration of an id."""
    import numpy as np

    ids = np.arange(len(demos)) if demos.ids is None else demos.ids
    found = np.flatnonzero(ids.astype(str) == trip)
    if not found.size:
        raise InvalidParameter(
            f"No matched trip of 10 to 300 segments has the id {trip!r}; there are {len(demos)}, the first is {ids[0]}."
        )
    return int(found[0])


def _some(demos: Any, n: int | None, seed: int) -> Any:
    """Return n demonstrations drawn at random, or all."""
    import numpy as np

    if n is None or n >= len(demos):
        return demos
    if n < 1:
        raise InvalidParameter(f"--trips must be at least 1; it is {n}.")
    return demos[np.sort(np.random.default_rng(seed).permutation(len(demos))[:n])]


def _told(facts: dict[str, Any]) -> str:
    """Return plain facts a line each, nested ones indented."""
    lines = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {key}: {_figure(entry)}" for key, entry in value.items()]
        else:
            lines.append(f"{name}: {_figure(value)}")
    return "\n".join(lines)


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000.0 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
