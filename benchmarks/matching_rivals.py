"""Matching speed compared with LeuvenMapMatching and mappymatch, on the same trips and network of Porto in one run.

Run as `python -m benchmarks.matching_rivals [--python PATH] [--seconds S] [--trips N]`. The other packages require a
separate environment, because their dependencies conflict with ours:

    python -m venv rivals && rivals/bin/pip install leuvenmapmatching mappymatch rtree

Pass `--python rivals/bin/python`; otherwise they must be importable here. Each one runs in a separate process with
python -O and one thread, on as many trips as it completes within S seconds (90 by default). limiirl is then timed on
the same trips with one thread and given noise. Only matching is timed, not loading, building maps and traces, or
compilation.

The settings are the fast ones of their documentations. LeuvenMapMatching: InMemMap in metres (not degrees) with an
R-tree over edges; DistanceMatcher with non-emitting states (several segments are driven in 15 s), lattice width 5, at
most 100 m distance. If it stops early, it is restarted from there, as documented; a fix from which it cannot start is
skipped. mappymatch: LCSSMatcher with default settings, with NxMap and with IGraphMap.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PATIENCE = 2.0
"""A package is stopped after this multiple of the time limit, plus one minute for loading."""
SIGMA_M = {"hmm": 8.0, "particles": 5.23}
"""Noise of a fix that is passed to the methods of limiirl."""
RIVALS = ("leuvenmapmatching", "mappymatch NxMap", "mappymatch IGraphMap")


def leuven(data: Any) -> Callable[[int], list[int]]:
    """Return a function that matches a trip to nodes with LeuvenMapMatching."""
    from leuvenmapmatching.map.inmem import InMemMap
    from leuvenmapmatching.matcher.distance import DistanceMatcher

    # Labels must be Python integers, and positions (y, x).
    graph: dict[int, tuple[tuple[float, float], list[int]]] = {
        v: ((y, x), []) for v, (x, y) in enumerate(data["xy"].tolist())
    }
    for tail, head in zip(data["tail"].tolist(), data["head"].tolist(), strict=True):
        graph[tail][1].append(head)
    streets = InMemMap("porto", use_latlon=False, use_rtree=True, index_edges=True, graph=graph)
    noise = {"obs_noise": 10, "obs_noise_ne": 50, "dist_noise": 50}
    limits = {"max_dist_init": 50, "max_dist": 100, "min_prob_norm": 0.001, "max_lattice_width": 5}
    traces = [[(y, x) for x, y in fixes.tolist()] for fixes in np.split(data["fix_xy"], data["offsets"][1:-1])]

    def one(i: int) -> list[int]:
        nodes: list[int] = []
        at = 0
        while at < len(traces[i]) - 1:
            matcher = DistanceMatcher(streets, non_emitting_states=True, **noise, **limits)
            _, last = matcher.match(traces[i][at:])
            nodes += matcher.path_pred_onlynodes
            at += max(last, 1)
        return nodes

    return one


def mappymatch(data: Any, kind: str) -> Callable[[int], list[int]]:
    """Return a function that matches a trip to nodes with mappymatch."""
    import networkx as nx
    import pandas as pd
    from mappymatch.constructs.trace import Trace
    from mappymatch.maps.igraph.igraph_map import IGraphMap
    from mappymatch.maps.nx.nx_map import NxMap
    from mappymatch.matchers.lcss.lcss import LCSSMatcher
    from mappymatch.utils.crs import LATLON_CRS, XY_CRS
    from pyproj import Transformer
    from shapely.geometry import LineString

    x, y = Transformer.from_crs(LATLON_CRS, XY_CRS, always_xy=True).transform(data["lon"], data["lat"])
    graph = nx.MultiDiGraph(crs=XY_CRS)
    for s, (tail, head) in enumerate(zip(data["tail"].tolist(), data["head"].tolist(), strict=True)):
        km = float(data["length_m"][s]) / 1000.0
        line = LineString([(x[tail], y[tail]), (x[head], y[head])])
        graph.add_edge(tail, head, 0, geometry=line, kilometers=km, minutes=km, metadata={})
    matcher = LCSSMatcher(NxMap(graph) if kind == "NxMap" else IGraphMap.from_nx_graph(graph))
    ends = data["offsets"][1:-1]
    parts = zip(np.split(data["fix_lat"], ends), np.split(data["fix_lon"], ends), strict=True)
    traces = [Trace.from_dataframe(pd.DataFrame({"latitude": north, "longitude": east})) for north, east in parts]

    def one(i: int) -> list[int]:
        path = matcher.match_trace(traces[i]).path or []
        return [path[0].road_id.start, *(road.road_id.end for road in path)] if path else []

    return one


def child(file: str, name: str, seconds: float) -> None:
    """Match trips until the time is up, and print the result as JSON."""
    data = np.load(file)
    one = leuven(data) if name == RIVALS[0] else mappymatch(data, name.split()[1])
    n, spent, paths = len(data["offsets"]) - 1, 0.0, []
    while len(paths) < n and spent < seconds:
        start = time.perf_counter()
        try:
            paths.append([int(node) for node in one(len(paths))])
        except Exception as error:  # noqa: BLE001 - a trip that a package cannot match is counted
            paths.append([])
            print(f"trip {len(paths) - 1}: {error!r:.200}", file=sys.stderr)
        spent += time.perf_counter() - start
    print(json.dumps({"seconds": spent, "paths": paths}))


def compare(python: str, seconds: float, most: int) -> None:
    """Print one line per package."""
    from benchmarks.matching import DATA, porto
    from benchmarks.measure import describe_machine
    from limiirl.roads import clean, match, read_trips
    from limiirl.roads.matching import candidates
    from limiirl.roads.matching.quality import measure_agreement

    print(describe_machine())
    network = porto()
    file = DATA / "porto_taxi_trips" / "porto_trips_1pct.csv.gz"
    if network is None or not file.exists():
        print("skipped: no porto_road_osm or porto_taxi_trips in the shared data; set LIMIIRL_DATA")
        return
    cleaned = clean(read_trips(file), network)
    trips = cleaned.trips[np.flatnonzero(cleaned.whole)]
    # In random order, so that the first trips are a representative sample.
    trips = trips[np.random.default_rng(0).permutation(len(trips))[:most]]
    grid = candidates.build_grid(network)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "porto.npz"
        np.savez(
            data, xy=network.node_xy, lat=network.lat, lon=network.lon, tail=network.tail, head=network.head,
            length_m=network.length_m, fix_lat=trips.lat, fix_lon=trips.lon, offsets=trips.offsets,
            fix_xy=network.plane.xy(trips.lat, trips.lon),
        )  # fmt: skip
        print(f"  {'':<22} {'trips':>5} {'fixes':>7} {'per s':>9}  limiirl: hmm, speed-up; particles, speed-up")
        for name in RIVALS:
            command = [python, "-O", __file__, "--child", str(data), name, "--seconds", str(seconds)]
            single = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            patience = PATIENCE * seconds + 60.0
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, env=single, timeout=patience
                )
            except subprocess.TimeoutExpired:
                print(f"  {name:<22} did not build its map and match a trip within {patience:.0f} s")
                continue
            if done.returncode:
                print(f"  {name:<22} did not run: {[*done.stderr.strip().splitlines(), 'no message'][-1]:.200}")
                continue
            answer = json.loads(done.stdout.splitlines()[-1])
            some = trips[: len(answer["paths"])]
            line = f"  {name:<22} {len(some):5d} {some.n_fixes:7,d} {some.n_fixes / answer['seconds']:9,.1f}"
            for method, sigma_m in SIGMA_M.items():
                match(network, some[:2], method, sigma_m=sigma_m, index=grid, threads=1)
                start = time.perf_counter()
                matches = match(network, some, method, sigma_m=sigma_m, index=grid, threads=1)
                spent = time.perf_counter() - start
                line += f"  {some.n_fixes / spent:9,.0f} {answer['seconds'] / spent:7,.0f}x"
                if method == "hmm":
                    ours = matches
            print(line)
            rows = [(int(ours.trip[i]), i) for i in np.flatnonzero(ours.whole)]
            rows = [(trip, i) for trip, i in rows if len(answer["paths"][trip]) > 1]
            nodes = [answer["paths"][trip] for trip, _ in rows]
            lines = [np.column_stack([network.lat[each], network.lon[each]]) for each in nodes]
            near = measure_agreement(network, [ours.geometry(network, i) for _, i in rows], lines).total
            empty = sum(len(path) < 2 for path in answer["paths"])
            print(
                f"  {'':<22} {empty} trips without a path; of {len(rows)} matched by both, {near[1]:.1%} of its "
                f"length is within 15 m of limiirl's hmm path, and {near[0]:.1%} vice versa"
            )


def main() -> None:
    """Run the comparison or, in the other environment, one package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="Python with the other packages")
    parser.add_argument("--seconds", type=float, default=90.0, help="time limit per package")
    parser.add_argument("--trips", type=int, default=2000, help="maximum number of trips")
    parser.add_argument("--child", nargs=2, metavar=("FILE", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child, options.seconds)
    else:
        compare(options.python, options.seconds, options.trips)


if __name__ == "__main__":
    main()
