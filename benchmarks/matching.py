"""Matching Porto's taxi trips to its streets: how many, how fast, and how far it agrees with what others matched.

Run as `python -m benchmarks.matching [--trips N] [--threads N]`: all 17,084 trips and all cores by default. Reads
`porto_road_osm`, `porto_taxi_trips` and `porto_matched_green` of the shared data, and skips what is absent. The network
is of OSM ways without service roads. Both matchers run with their default settings, the noise estimated from the trips
themselves. The HMM's were not tuned on the 1,000 trips that others matched; the particle filter's fallbacks were chosen
with an eye on them. These are on another
network (simplified, of another date), so that lines are compared; ours begin and end at the first and the last fix,
theirs are given with whole edges at the ends and without. A part of their length is more than 100 m from the line
through the very fixes (detours of kilometres), where no right matcher can agree. Two measures leave it out, both chosen
after the raw figures were seen: of their line, count only what keeps within 100 m of the fixes ("of what is near the
fixes"); and the rows of the trips of which 95 % does.

The last table is of the synthetic city, where the truth is known: with the noise estimated, which is the default, and
with the noise that was added. Speeds are of matching alone, with the noise given; estimating it takes three matches of
at most 300 trips by the HMM. With one thread they are by processor time, which other programs disturb little; with more
by the clock, so that the load of the machine is printed.
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
from limiirl.roads.matching.evaluation import measure_agreement, path_recovery
from limiirl.roads.matching.quality import measure_quality

DATA = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data"))
METHODS = ("hmm", "particles")
NEAR_M, FAR_M, TIMED = 15.0, 100.0, 1000


def porto() -> RoadNetwork | None:
    """Return Porto's network; print that it is skipped if it is absent."""
    folder = DATA / "porto_road_osm"
    if not folder.exists():
        print(f"Porto: skipped, no {folder.name} in the shared data; set LIMIIRL_DATA to the folder that holds it")
        return None
    start = time.perf_counter()
    network = build(folder)
    print(f"{network}, built in {time.perf_counter() - start:.1f} s")
    return network


def speed(network: RoadNetwork, trips: Trips, method: str, sigma_m: float, threads: int) -> tuple[Matches, float]:
    """Return the matches and fixes per second, after a first match of a few that compiles."""
    clock = time.process_time if threads == 1 else time.perf_counter
    grid = candidates.build_grid(network)
    match(network, trips[:3], method, sigma_m=sigma_m, index=grid, threads=threads)
    start = clock()
    matches = match(network, trips, method, sigma_m=sigma_m, index=grid, threads=threads)
    return matches, trips.n_fixes / (clock() - start)


def taxis(network: RoadNetwork, most: int | None, threads: int) -> None:
    """Read, clean and match the taxis' trips."""
    file = DATA / "porto_taxi_trips" / "porto_trips_1pct.csv.gz"
    if not file.exists():
        print(f"\ntaxi trips: skipped, no {file.name} in the shared data")
        return
    trips = read_trips(file)
    trips = trips if most is None else trips[:most]
    cleaned = clean(trips, network)
    print(f"\n{len(trips):,} trips read of {trips.n_fixes:,} fixes, {len(trips.skipped)} not readable\n{cleaned}")
    some = cleaned.trips[np.linspace(0, len(cleaned) - 1, min(TIMED, len(cleaned))).astype(np.int64)]
    sigma_m, beta_m = estimate_noise(network, cleaned)
    print(f"\nnoise as the trips have it: sigma {sigma_m:.1f} m, used below; beta {beta_m:.1f} m, not used")
    for method in METHODS:
        _, alone = speed(network, some, method, sigma_m, 1)
        grid, start = candidates.build_grid(network), time.perf_counter()
        matches = match(network, cleaned, method, sigma_m=sigma_m, index=grid, threads=threads)
        rate = cleaned.trips.n_fixes / (time.perf_counter() - start)
        print(f"\n{method}: {alone:,.0f} fixes per second of one processor, {rate:,.0f} by the clock with {threads}")
        print(f"{matches}\n{measure_quality(network, cleaned, matches)}")
        chosen, dropped = matches.selection()
        print(f"  usable     {len(chosen):,} paths of 10 to 300 segments; others: {dropped}")


def others(network: RoadNetwork, threads: int) -> None:
    """Compare with the trips that others matched."""
    if not green.available():
        print("\ntrips matched by others: skipped, no porto_matched_green in the shared data")
        return
    theirs = green.load()
    fixes = [np.column_stack(trip[:2]) for trip in theirs.trips]
    kept = measure_agreement(network, fixes, theirs.clipped, FAR_M)
    near = set(np.flatnonzero(kept.shares[:, 1] >= 0.95).tolist())
    print(
        f"\n1,000 trips matched by others; {kept.total[1]:.1%} of their length is within {FAR_M:g} m of the fixes' line"
    )
    print(
        f"share of length within {NEAR_M:g} m of the other line: total, median, and 5 % of trips have less; least trips"
    )
    print(f"  {'':<43} {'theirs':>7} {'ours':>7} {'median':>7} {'median':>7} {'5 %':>6} {'5 %':>6}")
    for method in METHODS:
        matches = match(network, theirs.trips, method, threads=threads)
        # Of a trip that was cut, the pieces are laid end to end, which costs what is missing between them.
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
                print(f"  {f'{method}, {name}, of what is near the fixes':<43} {of_near:7.2%}")


def city(threads: int) -> None:
    """Print the share of known drives that is recovered."""
    town = City()
    demos = town.drive(n_drivers=36, trips_each=8, seed=1).demos
    print(f"\nsynthetic city: {town.network}; {len(demos)} drives, a fix every 15 s")
    for noise_m, wanted in ((10.0, 0.98), (25.0, 0.90)):
        made = record(town.network, demos, noise_m=noise_m, seed=2)
        for method in METHODS:
            estimated = match(town.network, made.trips, method, threads=threads)
            given, rate = speed(town.network, made.trips, method, noise_m, threads)
            for label, each in ((f"sigma {estimated.settings['sigma_m']:.1f} m", estimated), ("sigma known", given)):
                right = np.mean(each.fix_segment == made.segment)
                print(
                    f"  {noise_m:4g} m  {method:<10} {label:<14} {path_recovery(town.network, demos, each)} (wanted "
                    f"{wanted:.0%}); {each.n_whole} whole, {right:.1%} of fixes on the very segment, mean confidence "
                    f"{each.confidence.mean():.3f}"
                )
            print(f"          {rate:,.0f} fixes per second with {threads} threads")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trips", type=int, help="only so many taxi trips")
    parser.add_argument("--threads", type=int, default=numba.get_num_threads())
    options = parser.parse_args()
    warnings.simplefilter("ignore", LimiirlWarning)
    print(describe_machine())
    network = porto()
    if network is not None:
        taxis(network, options.trips, options.threads)
        others(network, options.threads)
    city(options.threads)
    print(f"\nload of the machine, on average over the last 15 minutes: {os.getloadavg()[2]:.1f} processes")


if __name__ == "__main__":
    main()
