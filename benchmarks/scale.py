"""Estimated cost of a continent, and simulations of designs that would remove the first limits.

Run as `python -m benchmarks.scale [cost partition precision goals regions rows]`; by default all tables, in less than
three minutes on one core. `cost` extrapolates measurements of other benchmarks, which are named. The others are
simulations: passes over a partitioned network whose parts exchange messages at their borders; messages stored with 32
bits; the gradient of the destination model from a sample of goals, and from a region of the map; and the throughput of
feature sums of road trips. They run in one process, so they measure the amount of exchanged data and the loss of
accuracy, not the speed.
"""

import math
import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag, csr_array

from benchmarks.measure import describe_machine
from benchmarks.path_sums import intents
from benchmarks.scale_costs import (
    CONTINENT_S,
    EXCHANGE_S,
    FEATURES,
    LAUNCH_S,
    PAPER_LENGTH,
    PAPER_STATES,
    SEGMENTS,
    TRIPS,
    K,
    cost,
    least_traffic,
)
from benchmarks.scale_sweeps import Cut, bisect, evaluate, halo, in_strips, state_rank
from limiirl import MDP, Demonstrations
from limiirl.irl.destination.likelihood import ObservedTrips, arrives_once
from limiirl.irl.destination.path_sums import GoalPathSums, GoalValues
from limiirl.irl.maxent.backends import LOSS, expected_features, log_loss_bound
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.roads import City
from limiirl.worlds import RoadGrid

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LARGER = 1_170_416  # states of a second network, four times the paper's


def partition() -> None:
    """Print the amount of data exchanged between parts of a network, and check the result against path sums."""
    town = RoadGrid(n_states=20_000, n_edges=40_660, seed=0)
    thetas = intents(town.mdp, K)
    log_Z, expected = FinitePathSums(town.mdp, 100).value_and_grad(thetas)
    print("partition: passes over parts with exchanged borders compared with path sums, 20,000 states, L = 100, K = 3")
    for name, parts in (("bisection", bisect(midpoints(town), 8)), ("strips", in_strips(state_rank(town.mdp), 8))):
        cut = Cut(town.mdp, parts)
        result = evaluate(cut, thetas, 100)
        print(
            f"  8 parts by {name:<9} relative error of log Z {gap(result.log_Z, log_Z):.0e}, of the gradient "
            f"{gap(result.features, expected):.0e}; {result.exchanged / 1e6:.1f} MB exchanged, "
            f"{cut.halo_states * 99 * K * 8 / 1e6:.1f} MB expected from the size of the halo"
        )
    # Bytes per state and step in both passes, from gpu.txt for K = 3.
    computed = (4.33e9 + 10.7e9) / (2 * PAPER_LENGTH * PAPER_STATES)
    means: dict[tuple[int, int], float] = {}
    for n_states, n_edges in ((PAPER_STATES, 594_933), (LARGER, 2_379_732)):
        town = RoadGrid(n_states=n_states, n_edges=n_edges, seed=0)
        rank, fine = state_rank(town.mdp), bisect(midpoints(town), 64)
        print(
            f"  {n_states:,} states: states received by a part per step, and bytes exchanged relative to bytes "
            f"computed ({computed:.0f} per state)"
        )
        for n in (2, 4, 8, 16, 32, 64):
            cells = []
            for name, parts in (("strips", in_strips(rank, n)), ("bisection", fine * n // 64)):
                received = halo(town.mdp, parts, n)
                share = received.sum() * K * 8 / (computed * n_states)
                cells.append(f"{name} {received.mean():6.0f}, at most {received.max():6.0f}, {share:7.3%}")
            means[n_states, n] = received.mean()
            print(f"    {n:3} parts   " + "   ".join(cells))
    for n in (8, 64):
        small, large = means[PAPER_STATES, n], means[LARGER, n]
        power = math.log(large / small) / math.log(LARGER / PAPER_STATES)
        size = large * (SEGMENTS / LARGER) ** power
        print(
            f"  {n} parts by bisection: the halo grows as S^{power:.2f}; extrapolated, {size:,.0f} states per part of "
            f"{SEGMENTS:,.0f}, {size * K * 8 / 1e3:.0f} kB per step"
        )
    deep_halos()


def deep_halos() -> None:
    """Print the cost of an exchange every d steps."""
    town, depth = RoadGrid(seed=0), 16
    print(f"  an exchange every d steps, {PAPER_STATES:,} states: states received, and duplicated work")
    for n in (8, 64):
        rings, cells = halo(town.mdp, bisect(midpoints(town), n), n, depth), []
        for d in (1, 4, depth):
            # A state at distance j is needed in d - j of the d steps until the next exchange.
            again = sum(rings[j - 1].sum() * (d - j) for j in range(1, d)) / d / PAPER_STATES
            cells.append(f"d = {d}: {rings[:d].sum(axis=0).mean():.0f}, {again:.1%}")
        print(f"    {n:3} parts   " + "   ".join(cells))
        extra = again * math.sqrt(PAPER_STATES / SEGMENTS)
        per_step = CONTINENT_S / (3 * PAPER_LENGTH) / n
        waits = (LAUNCH_S + EXCHANGE_S[n]) / depth
        print(
            f"      {SEGMENTS:,.0f} states, d = {depth}, extrapolated with the square root of the size: "
            f"{extra:.1%}; efficiency {per_step / (per_step * (1 + extra) + waits):.0%}, linear arithmetic"
        )


def precision() -> None:
    """Print the error of 32-bit messages, and the lengths for which linear arithmetic is proven."""
    town = RoadGrid(n_states=20_000, n_edges=40_660, seed=1)
    mdp = town.mdp
    # Plausible rewards, and random rewards at the bounds -10 and 0, as for most features in Porto.
    at_bounds = -10.0 * np.random.default_rng(1).integers(0, 2, mdp.n_features)
    thetas = np.vstack([intents(mdp, 1), at_bounds])
    whole = Cut(mdp, np.zeros(mdp.n_states, dtype=np.int64))
    print("precision: 32-bit messages and 64-bit sums compared with path sums; 20,000 states; mild rewards, and -10")
    for length in (300, 1000):
        log_Z, expected = FinitePathSums(mdp, length).value_and_grad(thetas)
        for kind in ("float64", "kept", "carried"):
            result = evaluate(whole, thetas, length, kind)
            value = np.abs(result.log_Z - log_Z) / np.abs(log_Z)
            gradient = np.max(np.abs(result.features - expected), axis=1) / np.max(np.abs(expected), axis=1)
            print(
                f"  L = {length:5} {kind:<8} error of log Z {value[0]:.0e}, {value[1]:.0e}; of the gradient "
                f"{gradient[0]:.0e}, {gradient[1]:.0e}; {result.stored / 1e6:.0f} MB of messages; "
                f"{result.lost[0]:.2%}, {result.lost[1]:.2%} of the messages rounded to zero"
            )
    print(
        f"  K = {K}: {least_traffic(4)} bytes per state and step instead of {least_traffic(8)} if only messages "
        f"have 32 bits ({1 - least_traffic(4) / least_traffic(8):.0%} less); half the memory for messages"
    )
    print_unconnected_towns(mdp)
    scales_of_parts(RoadGrid(n_states=5_000, n_edges=10_165, seed=1), thetas, 2000)
    reward = mdp.state_features @ thetas.T
    links = csr_array((np.ones(mdp.n_edges), (mdp.src, mdp.dst)), shape=(mdp.n_states, mdp.n_states))
    growth = np.log(np.max(links @ np.exp(reward), axis=0))
    lengths = np.arange(1, 20_001)
    print(f"  largest growth per step: {np.exp(growth).round(2).tolist()}; linear arithmetic is proven up to L =")
    for bits, span in ((64, 0.0), (32, 708.0 - 87.0)):
        for n_states in (20_000, SEGMENTS):
            safe = [int(np.sum(bound_loss(n_states, lengths, g) + span < math.log(LOSS))) for g in growth]
            print(f"    {bits} bits, {n_states:12,.0f} states: {safe}")


def print_unconnected_towns(mdp: MDP) -> None:
    """Print the error of 32-bit messages if two towns are not connected."""
    n, features = mdp.n_states, block_diag([mdp.state_features] * 2, format="csr")
    src, dst = (np.concatenate([end, end + n]) for end in (mdp.src, mdp.dst))
    both = MDP.from_edges(src, dst, n_states=2 * n, state_features=csr_array(features))
    # Mild rewards in the first; in the second, a kilometre costs 30.
    theta = np.concatenate([intents(mdp, 1)[0], np.full(FEATURES, -10.0)])[None]
    log_Z, expected = FinitePathSums(both, 300).value_and_grad(theta)
    apart = FinitePathSums(mdp, 300).log_partition(theta.reshape(2, -1))
    print(f"  two unconnected towns, mild and -10, L = 300: fraction of Z from the second: e^{apart[1] - apart[0]:.0f}")
    for name, parts in (("one scale", np.zeros(2 * n, dtype=np.int64)), ("a scale per town", np.repeat([0, 1], n))):
        result = evaluate(Cut(both, parts), theta, 300, "carried")
        second = gap(result.features[:, FEATURES:], expected[:, FEATURES:])
        print(
            f"    carried, {name}: error of log Z {gap(result.log_Z, log_Z):.0e}, of the gradient "
            f"{gap(result.features, expected):.0e}, of its part for the second town {second:.0e}; "
            f"{result.lost[0]:.0%} of messages rounded to zero"
        )


def scales_of_parts(town: RoadGrid, thetas: Float, length: int) -> None:
    """Compare linear arithmetic with one scale per part with log arithmetic, beyond the proven lengths."""
    exact = FinitePathSums(town.mdp, length, arithmetic="log").value_and_grad(thetas)
    for n in (1, 16):
        cut = Cut(town.mdp, bisect(midpoints(town), n))
        for kind in ("float64", "carried"):
            result = evaluate(cut, thetas, length, kind)
            print(
                f"  {town.n_states:,} states, L = {length:,}, {n:2} parts, linear, {kind:<8} compared with log "
                f"arithmetic: log Z {gap(result.log_Z, exact[0]):.0e}, gradient {gap(result.features, exact[1]):.0e}"
            )


def bound_loss(n_states: float, lengths: Int, growth: float) -> Float:
    """Return the bound on the error of linear arithmetic for each length."""
    return np.array([log_loss_bound(int(n_states), int(n), np.float64(growth)) for n in lengths])


def goals() -> None:
    """Print the error of the gradient from a sample of goals."""
    city = City(seed=1, n_places=300)
    demos = city.drive(n_drivers=300, trips_each=10).demos
    trips = ObservedTrips.from_demos(city.mdp, demos[arrives_once(demos)])
    solution = GoalValues(city.mdp).solve(city.ensemble.thetas[0])
    goal_of = trips.goals[trips.pair]
    names, which = np.unique(goal_of, return_inverse=True)
    begun = time.process_time()
    score = np.array([score_sum(solution, trips, np.flatnonzero(which == g)) for g in range(names.size)])
    each = (time.process_time() - begun) / names.size
    count = np.bincount(which)
    full = score.sum(axis=0) / count.sum()
    begun = time.process_time()
    at_once = score_sum(solution, trips, np.arange(which.size)) / count.sum()
    taken = time.process_time() - begun
    print(
        f"goals: {city.network}; {which.size:,} trips to {names.size} goals; the gradient for one goal takes "
        f"{1e3 * each:.1f} ms, for all goals at once {1e3 * taken:.0f} ms, relative difference {gap(at_once, full):.0e}"
    )
    rng = np.random.default_rng(0)
    sizes = [n for n in (4, 8, 16, 32, 64, 128) if n < names.size]
    errors = []
    print(
        "  relative error of the gradient from n of G goals (root mean square of 2,000 draws), times sqrt(n), and times"
    )
    print("  sqrt(n / (1 - n / G))")
    for n in sizes:
        drawn = np.array([rng.choice(names.size, n, replace=False) for _ in range(2000)])
        estimates = score[drawn].sum(axis=1) / count[drawn].sum(axis=1)[:, None]
        error = math.sqrt(np.mean(np.sum((estimates - full) ** 2, axis=1)) / np.sum(full**2))
        errors.append(error)
        rest = 1.0 - n / names.size
        print(f"    n = {n:4}  {error:7.4f}  {error * math.sqrt(n):6.3f}  {error * math.sqrt(n / rest):6.3f}")
    left = np.sqrt(1.0 - np.array(sizes) / names.size)
    exponents = [np.polyfit(np.log(sizes), np.log(np.array(errors) / by), 1)[0] for by in (1.0, left)]
    print(f"    exponent of n: {exponents[0]:.2f}, and {exponents[1]:.2f} with finite-population correction")


def score_sum(solution: GoalPathSums, trips: ObservedTrips, chosen: Int) -> Float:
    """Return the sum (d,) over trips of expected features given both ends, minus observed features."""
    pairs, weight = np.unique(trips.pair[chosen], return_counts=True)
    flow = solution.pair_sums(trips.starts[pairs], trips.goals[pairs], weight.astype(np.float64)).flow
    return features_of(trips.observed.mdp, flow) - trips.features[chosen].sum(axis=0)


def features_of(mdp: MDP, flow: Float) -> Float:
    """Return the features (d,) of expected edge counts (E,); the reward of a state is added to its incoming edges."""
    node = np.bincount(mdp.dst, weights=flow, minlength=mdp.n_states)
    return expected_features(mdp, node[:, None], flow[:, None])[0]


def regions() -> None:
    """Print the errors of values and gradients in a region of the map, and the time saved."""
    town = RoadGrid(n_states=60_000, n_edges=73_000, seed=2)
    mdp, at = town.mdp, midpoints(town)
    values, taken = measure_seconds(lambda: GoalValues(mdp))
    theta = next(t for cost in (-1.0, -2.0, -4.0, -8.0, -16.0, -32.0) if values.is_finite(t := np.full(FEATURES, cost)))
    solution, solved = measure_seconds(lambda: values.solve(theta))
    reach = 0.15 * np.max(np.abs(at))
    within = np.max(np.abs(at), axis=1)
    inner = np.flatnonzero(within <= reach)
    rng = np.random.default_rng(0)
    starts, ends = rng.choice(inner, (2, 300))
    keep = starts != ends
    starts, ends = starts[keep], ends[keep]
    whole = solution.pair_sums(starts, ends, np.ones(starts.size))
    gradient = features_of(mdp, whole.flow)
    print(
        f"regions: {mdp.n_states:,} states, theta {theta[0]:g}; {starts.size} pairs in a square of {2 * reach:.1f} km; "
        f"symbolic {taken:.2f} s, factorisation {solved:.2f} s, {values.symbolic.up.size:,} edges after elimination"
    )
    for margin in (0.0, 0.25, 0.5, 1.0, 2.0):
        kept = np.flatnonzero(within <= reach * (1.0 + margin))
        part, number = cut_out(mdp, kept)
        small = GoalValues(part)
        local, factored = measure_seconds(lambda small=small: small.solve(theta))
        sums = local.pair_sums(number[starts], number[ends], np.ones(starts.size))
        reached = sums.log_value > -np.inf
        off = np.abs(sums.log_value - whole.log_value)[reached]
        print(
            f"    margin {margin:4.2f} of half the side: {kept.size:6,} states, factorisation {factored:.3f} s; "
            f"{np.mean(~reached):.1%} of pairs cut off; error of log value {np.median(off):.0e} (median), "
            f"{off.max():.0e} (largest), of the gradient {gap(features_of(part, sums.flow), gradient):.0e}"
        )


def cut_out(mdp: MDP, kept: Int) -> tuple[MDP, Int]:
    """Return the MDP restricted to some states, and the new index of each state, or -1 if it is excluded."""
    number = np.full(mdp.n_states, -1)
    number[kept] = np.arange(kept.size)
    inside = (number[mdp.src] >= 0) & (number[mdp.dst] >= 0)
    src, dst = number[mdp.src[inside]], number[mdp.dst[inside]]
    ends = np.bincount(src, minlength=kept.size) == 0
    return MDP.from_edges(src, dst, n_states=kept.size, state_features=mdp.state_features[kept], terminal=ends), number


def rows() -> None:
    """Print the throughput of feature sums of road trips."""
    mdp, rng = RoadGrid(seed=0).mdp, np.random.default_rng(0)
    n, length = 20_000, 159  # docs/results/matching.txt: 3,202,445 segments in 20,149 paths
    first = np.concatenate([[0], np.cumsum(np.bincount(mdp.src, minlength=mdp.n_states))])
    order = np.argsort(mdp.src, kind="stable")
    states = np.empty((n, length), dtype=np.int64)
    states[:, 0] = rng.integers(mdp.n_states, size=n)
    for t in range(1, length):
        here = states[:, t - 1]
        degree = first[here + 1] - first[here]
        states[:, t] = mdp.dst[order[first[here] + rng.integers(1 << 30, size=n) % np.maximum(degree, 1)]]
    demos = Demonstrations(states.ravel(), np.arange(0, n * length + 1, length))
    demos.features(mdp)
    _, taken = measure_seconds(lambda: (demos.features(mdp), demos.log_q(mdp)))
    print(
        f"rows: feature sums and log q of {n:,} trajectories of {length} segments: {n / taken:,.0f} per second of "
        f"processor time; {TRIPS:,.0f} take {TRIPS / n * taken / 3600:.1f} core-hours"
    )


def measure_seconds(call: Callable[[], object]) -> tuple[object, float]:
    """Return the result of a call, and its processor time in seconds."""
    begun = time.process_time()
    result = call()
    return result, time.process_time() - begun


def gap(actual: Float, expected: Float) -> float:
    """Return the largest difference, relative to the largest expected value."""
    return float(np.max(np.abs(actual - expected)) / np.max(np.abs(expected)))


def midpoints(town: RoadGrid) -> Float:
    """Return the midpoint (S, 2) of each segment."""
    return (town.start_xy + town.end_xy) / 2.0


PARTS = {"cost": cost, "partition": partition, "precision": precision, "goals": goals, "regions": regions, "rows": rows}


def main() -> None:
    """Print the tables named on the command line."""
    print("scale: estimated cost of a continent, and simulations of designs that would reduce it")
    print(describe_machine())
    for name in sys.argv[1:] or PARTS:
        PARTS[name.lower()]()


if __name__ == "__main__":
    main()
