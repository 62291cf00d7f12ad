"""`limiirl roads forecast` and `demo`: what comes next, and the whole chain with nothing else on the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from limiirl.cli.bars import told_stages
from limiirl.cli.inputs import check_page
from limiirl.cli.road_inputs import place, read_matched
from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from limiirl import MDP
    from limiirl.roads import RoadNetwork

Network = Annotated[Path, typer.Argument(help="An .npz that `limiirl roads build` wrote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Seed = Annotated[int, typer.Option(help="Seed of all that is random.")]


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

    roads, matched = read_matched(network, matches)
    demos = matched.demonstrations()
    mixture = IntentMixture.load(styles)
    check_same(mixture.mdp_, roads, styles, network)
    which = 0 if trip is None else place(demos, trip)
    # A trip's own end among the candidates would give it away.
    forecaster = Forecaster(mixture, demos[np.arange(len(demos)) != which])
    found = forecast_example(forecaster, roads, demos[which].states, title="", share=share, k=routes)
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


def check_same(mdp: MDP, roads: RoadNetwork, styles: Path, network: Path) -> None:
    """Check that an MDP is that of a network: its states are the segments, and its edges the turns."""
    if mdp.n_states != roads.n_segments:
        differ = f"{mdp.n_states:,} states, but {network} has {roads.n_segments:,} segments"
    elif mdp.n_edges != roads.n_turns:
        differ = f"{mdp.n_edges:,} turns, but {network} has {roads.n_turns:,}"
    elif not (np.array_equal(mdp.src, roads.turn_from) and np.array_equal(mdp.dst, roads.turn_to)):
        differ = f"other turns than {network} has"
    else:
        return
    raise InvalidParameter(f"{styles} was learned on {differ}. Name the network that it was fitted on.")


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
    from limiirl.roads.city.pipeline import run_demo

    folders = {name: out / name for name in ("network", "matching", "styles")}
    for folder in folders.values():
        check_page(folder)
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
