"""Time, evaluations and memory of training on city networks, per EM iteration and to convergence.

The settings are those of `limiirl reproduce drivers`: K = 3 intents, 1,000 trips of at most 300 segments, M-steps of
at most 50 evaluations, rewards between -10 and 0, and initialisation with k-means. There are two networks: Porto,
built from OpenStreetMap with matched taxi trips (from `porto_road_osm` and `porto_taxi_trips` of the shared data, or
from files written by `limiirl roads build` and `match`), and a synthetic network with the paper's 292,604 segments,
whose trips are the cheapest paths of drivers with three different reward functions.

The paper reports about 58 minutes per iteration on 12 cores, on a network that was not released.

Run as `python -m benchmarks.drivers [--porto NETWORK MATCHES] [--quick]`.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.measure import describe_machine, peak_bytes, run_fresh
from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
from limiirl.errors import LimiirlWarning
from limiirl.mdp.shortest_paths import PathFinder
from limiirl.worlds import RoadGrid

MAX_LENGTH, N_TRIPS, N_INTENTS, EVALUATIONS, TOLERANCE = 300, 1000, 3, 50, 1e-3
BOUNDS, M_TOLERANCE = (-10.0, 0.0), 1e-3
PAPER_MINUTES = 58.0
# Bounding box of the taxi trips, as in docs/results/drivers.
CENTRE = (41.1480637, -8.6329584)
DATA = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data"))


def generate(quick: bool, gamma: float) -> tuple[MDP, Demonstrations]:
    """Return a synthetic network, and the cheapest paths between random ends for three reward functions."""
    mdp = RoadGrid(gamma=gamma, **({"n_states": 14_630, "n_edges": 29_746} if quick else {})).mdp
    rng = np.random.default_rng(0)
    thetas = -rng.uniform(0.5, 5.0, (N_INTENTS, mdp.n_features))
    paths = []
    for k, weight in enumerate((0.5, 0.3, 0.2)):
        cost = -mdp.rewards(thetas[k])[0][mdp.dst, 0]
        wanted = round(weight * N_TRIPS)
        while wanted:
            starts = rng.integers(mdp.n_states, size=wanted)
            # A random walk of a few hundred turns determines a destination near the origin.
            goals = starts.copy()
            for _ in range(400):
                low, high = mdp.out_ptr[goals], mdp.out_ptr[goals + 1]
                goals = mdp.dst[rng.integers(low, high)].astype(np.int64)
            routes = PathFinder(mdp, cost).shortest(starts, goals)
            for i in range(wanted):
                edges = routes.edges[routes.offsets[i] : routes.offsets[i + 1]]
                if 10 <= edges.size < MAX_LENGTH:
                    paths.append(np.concatenate([starts[i : i + 1], mdp.dst[edges]]))
            wanted = round(sum((0.5, 0.3, 0.2)[: k + 1]) * N_TRIPS) - len(paths)
    return mdp, Demonstrations.from_lists(paths)


def build_porto(folder: Path) -> list[str]:
    """Build the network of Porto and match taxi trips; return both files, or no files if the data are absent."""
    from limiirl.roads import build, clean, match, read_trips

    roads, taxis = DATA / "porto_road_osm", DATA / "porto_taxi_trips" / "porto_trips_1pct.csv.gz"
    if not (roads.exists() and taxis.exists()):
        return []
    files = [str(folder / "network.npz"), str(folder / "matches.npz")]
    network = build(roads, centre=CENTRE)
    network.save(files[0])
    match(network, clean(read_trips(taxis), network)).save(files[1])
    return files


def porto(network: str, matches: str, gamma: float) -> tuple[MDP, Demonstrations]:
    """Return the network of Porto, and 1,000 matched trips."""
    from limiirl.roads import Matches, RoadNetwork

    demos = Matches.load(matches).demonstrations()
    chosen = np.random.default_rng(0).permutation(len(demos))[:N_TRIPS]
    return RoadNetwork.load(network).mdp(gamma=gamma), demos[chosen]


def measure(mdp: MDP, demos: Demonstrations) -> dict:
    """Fit once, and return times, evaluations and memory."""
    warnings.simplefilter("ignore", LimiirlWarning)
    irl = MaxEnt(MAX_LENGTH, bounds=BOUNDS, solver="lbfgs", gtol=M_TOLERANCE, max_evaluations=EVALUATIONS)
    # Compile the kernels on a few trips with few evaluations.
    IntentMixture(N_INTENTS, irl, max_iter=1, max_evaluations=2, random_state=0).fit(mdp, demos[:50])
    stamps = []
    mixture = IntentMixture(
        N_INTENTS, irl, resp_tol=TOLERANCE, max_iter=30, max_evaluations=EVALUATIONS, random_state=0,
        progress=lambda *_: stamps.append(time.perf_counter()),
    )  # fmt: skip
    begun = time.perf_counter()
    mixture.fit(mdp, demos)
    spent = np.diff(stamps)
    return {
        "segments": mdp.n_states,
        "turns": mdp.n_edges,
        "start": stamps[0] - begun,
        "first": float(spent[0]),
        "longest": float(spent.max()),
        "mean": float(spent.mean()),
        "iterations": mixture.n_iter_,
        "converged": bool(mixture.converged_),
        "evaluations": sum(entry.n_evaluations for entry in mixture.history_),
        "total": time.perf_counter() - begun,
        "peak": peak_bytes() / 2**30,
        "nll": -mixture.log_likelihood_,
    }


def main() -> None:
    """Print one line per network and discount."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--porto", nargs=2, metavar=("NETWORK", "MATCHES"))
    parser.add_argument("--quick", action="store_true", help="a synthetic network of a twentieth of the size")
    parser.add_argument("--one", choices=("porto", "synthetic"), help=argparse.SUPPRESS)
    parser.add_argument("--gamma", type=float, default=1.0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        problem = porto(*given.porto, given.gamma) if given.one == "porto" else generate(given.quick, given.gamma)
        print(json.dumps(measure(*problem)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        compare(given.porto or build_porto(Path(scratch)), given.quick)


def compare(files: list[str], quick: bool) -> None:
    """Print the table; `files` contains the network and the matches of Porto, or is empty."""
    print(f"drivers: K = {N_INTENTS}, {N_TRIPS} trips, L = {MAX_LENGTH}, M-steps of at most {EVALUATIONS} evaluations")
    print(f"until responsibilities change by less than {TOLERANCE:g} per trip; initialised by k-means")
    print(describe_machine())
    head = ("network", "discount", "segments", "turns", "init s", "first s", "mean s", "longest s", "iterations",
            "evaluations", "total s", "peak GiB", "NLL")  # fmt: skip
    print("{:<10} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>10} {:>11} {:>8} {:>8} {:>8}".format(*head))
    more = ["--quick"] if quick else []
    for name in (["porto"] if files else []) + ["synthetic"]:
        for gamma in (1.0, 0.999):
            words = ["--one", name, "--gamma", str(gamma), *more, *(["--porto", *files] if files else [])]
            row = json.loads(run_fresh("benchmarks.drivers", *words).splitlines()[-1])
            mark = "" if row["converged"] else "+"
            print(
                f"{name:<10} {gamma:8g} {row['segments']:9,} {row['turns']:9,} {row['start']:8.1f} {row['first']:8.1f} "
                f"{row['mean']:8.1f} {row['longest']:9.1f} {row['iterations']:9}{mark or ' '} {row['evaluations']:11} "
                f"{row['total']:8.1f} {row['peak']:8.2f} {row['nll']:8.2f}",
                flush=True,
            )
            # The paper does not state whether its minutes per iteration include the initialisation.
            paper, each = 60 * PAPER_MINUTES, row["total"] / max(row["iterations"], 1)
            print(
                f"{'':10} minutes per iteration, paper / limiirl: {paper / row['mean']:.0f} without initialisation, "
                f"{paper / each:.0f} with it",
                flush=True,
            )
    if not files:
        print("Porto is skipped: no porto_road_osm and porto_taxi_trips in the shared data (set LIMIIRL_DATA to its")
        print("folder), and --porto NETWORK MATCHES is not set.")


if __name__ == "__main__":
    main()
