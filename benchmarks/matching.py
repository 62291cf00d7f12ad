"""Matching of taxi trips to the streets of Porto: number of matched trips, speed, and agreement with other software.

Run as `python -m benchmarks.matching [--trips N] [--threads N]`; by default with all 17,084 trips and all cores. Reads
`porto_road_osm`, `porto_taxi_trips` and `porto_matched_green` of the shared data; absent data sets are skipped. The
network is built from OSM ways without service roads. Both matchers use their default settings, with the noise
estimated from the trips. The settings of the HMM were not tuned on the 1,000 reference trips; the fallbacks of the
particle filter were.

The reference trips were matched to another network (simplified, another date), so geometries are compared. Our paths
start and end at the first and the last fix; the reference paths are given both with whole edges at the ends and
clipped. Part of their length is more than 100 m from the line through the fixes (detours of kilometres), where a
correct matcher cannot agree. Two measures exclude it, both chosen after the raw results were known: only the part of
the reference within 100 m of the fixes counts ("reference near the fixes"), or only trips with at least 95 % of their
length within 100 m count.

The last table is for the synthetic city, where the true paths are known: with estimated noise, which is the default,
and with the true noise. Speeds are for matching alone with given noise; estimating the noise requires three matches of
at most 300 trips with the HMM. With one thread, speeds are per second of processor time, which other processes affect
little; with more threads, they are per second of wall-clock time, and the load of the machine is printed.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numba
import numpy as np

from benchmarks import green
from benchmarks.measure import describe_machine
from limiirl.errors import LimiirlWarning
from limiirl.roads import City, Matches, RoadNetwork, Trips, build, clean, estimate_noise, match, read_trips
from limiirl.roads import simulate_recording as record
from limiirl.roads.matching import candidates
from limiirl.roads.matching.quality import measure_agreement, measure_quality, path_recovery

DATA = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data"))
METHODS = ("hmm", "particles")
NEAR_M, FAR_M, TIMED = 15.0, 100.0, 1000


def porto() -> RoadNetwork | None:
    """Return the network of Porto, or None (with a message) if the data are absent."""
    folder = DATA / "porto_road_osm"
    if not folder.exists():
        print(f"Porto: skipped, no {folder.name} in the shared data; set LIMIIRL_DATA to its parent folder")
        return None
    start = time.perf_counter()
    network = build(folder)
    print(f"{network}, built in {time.perf_counter() - start:.1f} s")
    return network


def speed(network: RoadNetwork, trips: Trips, method: str, sigma_m: float, threads: int) -> tuple[Matches, float]:
    """Return the matches and the fixes per second, after a first call that compiles."""
    clock = time.process_time if threads == 1 else time.perf_counter
    grid = candidates.build_grid(network)
    match(network, trips[:3], method, sigma_m=sigma_m, index=grid, threads=threads)
    start = clock()
    matches = match(network, trips, method, sigma_m=sigma_m, index=grid, threads=threads)
    return matches, trips.n_fixes / (clock() - start)


def taxis(network: RoadNetwork, most: int | None, threads: int) -> None:
    """Read, clean and match the taxi trips."""
    file = DATA / "porto_taxi_trips" / "porto_trips_1pct.csv.gz"
    if not file.exists():
        print(f"\ntaxi trips: skipped, no {file.name} in the shared data")
        return
    trips = read_trips(file)
    trips = trips if most is None else trips[:most]
    cleaned = clean(trips, network)
    print(f"\n{len(trips):,} trips with {trips.n_fixes:,} fixes read, {len(trips.skipped)} skipped\n{cleaned}")
    some = cleaned.trips[np.linspace(0, len(cleaned) - 1, min(TIMED, len(cleaned))).astype(np.int64)]
    sigma_m, beta_m = estimate_noise(network, cleaned)
    print(f"\nestimated noise: sigma {sigma_m:.1f} m (used below), beta {beta_m:.1f} m (not used)")
    for method in METHODS:
        _, alone = speed(network, some, method, sigma_m, 1)
        grid, start = candidates.build_grid(network), time.perf_counter()
        matches = match(network, cleaned, method, sigma_m=sigma_m, index=grid, threads=threads)
        rate = cleaned.trips.n_fixes / (time.perf_counter() - start)
        print(
            f"\n{method}: {alone:,.0f} fixes per second of processor time, "
            f"{rate:,.0f} per second with {threads} threads"
        )
        print(f"{matches}\n{measure_quality(network, cleaned, matches)}")
        chosen, dropped = matches.selection()
        print(f"  usable     {len(chosen):,} paths of 10 to 300 segments; dropped: {dropped}")


def others(network: RoadNetwork, threads: int) -> None:
    """Compare with the reference trips."""
    if not green.available():
        print("\nreference trips: skipped, no porto_matched_green in the shared data")
        return
    theirs = green.load()
    fixes = [np.column_stack(trip[:2]) for trip in theirs.trips]
    kept = measure_agreement(network, fixes, theirs.clipped, FAR_M)
    near = set(np.flatnonzero(kept.shares[:, 1] >= 0.95).tolist())
    print(f"\n1,000 reference trips; {kept.total[1]:.1%} of their length is within {FAR_M:g} m of the trace")
    print(
        f"fraction of length within {NEAR_M:g} m of the other path, reference and limiirl: "
        "total, median, 5 % quantile; worst trips"
    )
    print(f"  {'':<43} {'refer.':>7} {'limiirl':>7} {'median':>7} {'median':>7} {'5 %':>6} {'5 %':>6}")
    for method in METHODS:
        matches = match(network, theirs.trips, method, threads=threads)
        # The pieces of a trip that was cut are concatenated, so the gaps between them count as errors.
        parts: dict[int, list[np.ndarray]] = {}
        for i in range(len(matches)):
            parts.setdefault(int(matches.trip[i]), []).append(matches.geometry(network, i, clip=True))
        whole = set(matches.trip[matches.whole].tolist())
        rows = {"all": parts.keys(), "end to end": whole, "near the fixes": near & parts.keys()}
        rows["near, end to end"] = near & whole
        for name, lines in (("whole edges", theirs.lines), ("clipped", theirs.clipped)):
            for label, chosen in rows.items():
                on = sorted(chosen)
                ours = [np.concatenate(parts[i]) for i in on]
                both = measure_agreement(network, ours, [lines[i] for i in on], NEAR_M)
                (our, their), shares = both.total, both.shares
                middle, low = np.nanquantile(shares, [0.5, 0.05], axis=0)
                least = ", ".join(f"{on[i]} ({shares[i].min():.2f})" for i in both.worst[:3])
                if label == "all":
                    plausible = sum(kept.near_m[i, 1] for i in on) if name == "clipped" else np.nan
                    of_near = both.near_m[:, 1].sum() / plausible
                print(
                    f"  {f'{method}, {name}, {label} ({len(on)})':<43} {their:7.2%} {our:7.2%} {middle[1]:7.2%} "
                    f"{middle[0]:7.2%} {low[1]:6.1%} {low[0]:6.1%}   {least}"
                )
            if name == "clipped":
                print(f"  {f'{method}, {name}, reference near the fixes':<43} {of_near:7.2%}")


def city(threads: int) -> None:
    """Print the fraction of the simulated trips that is recovered."""
    town = City()
    demos = town.drive(n_drivers=36, trips_each=8, seed=1).demos
    print(f"\nsynthetic city: {town.network}; {len(demos)} trips, one fix every 15 s")
    for noise_m, wanted in ((10.0, 0.98), (25.0, 0.90)):
        recording = record(town.network, demos, noise_m=noise_m, seed=2)
        for method in METHODS:
            estimated = match(town.network, recording.trips, method, threads=threads)
            given, rate = speed(town.network, recording.trips, method, noise_m, threads)
            for label, each in ((f"sigma {estimated.settings['sigma_m']:.1f} m", estimated), ("true sigma", given)):
                right = np.mean(each.fix_segment == recording.segment)
                print(
                    f"  {noise_m:4g} m  {method:<10} {label:<14} {path_recovery(town.network, demos, each)} (target "
                    f"{wanted:.0%}); {each.n_whole} whole, {right:.1%} of fixes on the true segment, mean confidence "
                    f"{each.confidence.mean():.3f}"
                )
            print(f"          {rate:,.0f} fixes per second with {threads} threads")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trips", type=int, help="number of taxi trips (default: all)")
    parser.add_argument("--threads", type=int, default=numba.get_num_threads())
    options = parser.parse_args()
    warnings.simplefilter("ignore", LimiirlWarning)
    print(describe_machine())
    network = porto()
    if network is not None:
        taxis(network, options.trips, options.threads)
        others(network, options.threads)
    city(options.threads)
    print(f"\naverage load over the last 15 minutes: {os.getloadavg()[2]:.1f} processes")


if __name__ == "__main__":
    main()
