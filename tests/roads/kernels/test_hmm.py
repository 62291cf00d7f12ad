"""Properties of HMM matching: agreement with enumeration, legal paths, invariance to order, translation and threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiirl.roads import Trips, match
from limiirl.roads.kernels.hmm import MatchingProblem, collect_candidates, decode, follow, posteriors, thin
from limiirl.roads.kernels.routing import router
from limiirl.roads.matching.candidates import build_grid, build_streets
from limiirl.roads.matching.hmm import HmmSettings
from tests.helpers import examples
from tests.oracles.map_matching import enumerate_sequences
from tests.oracles.road_networks import drive, from_xy, illegal_turns, random_grid, random_path

SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=examples(40), deadline=None)
EXACT = {"thin_sigmas": 0.0, "detour_betas": 1e6, "beam": 1e6}


def trips_of(network, places, step_s=15.0):
    degrees = [network.plane.degrees(xy) for xy in places]
    return Trips.from_lists([d[:, 0] for d in degrees], [d[:, 1] for d in degrees], step_s=step_s)


def some_trips(seed, n=4, noise_m=15.0, **grid):
    network, rng = random_grid(seed, **grid), np.random.default_rng((seed, 1))
    paths = [random_path(network, rng, 12) for _ in range(n)]
    return network, [drive(network, path, step_m=45.0, rng=rng, noise_m=noise_m) for path in paths]


@FEW
@given(seed=SEEDS, beta_m=st.sampled_from([5.0, 20.0]), back=st.sampled_from([0.0, 3.0]), u_turns=st.booleans())
def test_viterbi_path_and_posteriors_agree_with_enumeration(seed, beta_m, back, u_turns):
    network, rng = random_grid(seed, nx=3, ny=3, u_turns=u_turns), np.random.default_rng(seed)
    xy = drive(network, random_path(network, rng, 4), step_m=60.0, rng=rng, noise_m=12.0)[:4]
    time_s = 15.0 * np.arange(len(xy))
    chosen = HmmSettings(sigma_m=10.0, beta_m=beta_m, back_sigmas=back, most=5, max_skips=0, **EXACT)
    model, roads = chosen.model(), build_streets(network)
    trip = thin(np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1]), time_s, model.thin_m)
    layers = collect_candidates(build_grid(network), roads, trip, model)
    listed = [
        [(int(layers.segment[a]), layers.along_m[a], layers.distance_m[a]) for a in range(*layers.ptr[k : k + 2])]
        for k in range(len(xy))
    ]
    assert all(listed)
    sequences, log_weight = enumerate_sequences(
        network, xy, time_s, listed,
        sigma_m=10.0, beta_m=beta_m, back_m=model.back_m, speed_ms=model.speed_ms, slack_m=model.slack_m,
    )  # fmt: skip
    delta, back_to = np.empty(layers.segment.size), np.empty(layers.segment.size, dtype=np.int64)
    chain, ptr, links = follow(MatchingProblem(roads, layers, trip, model, router(roads)), 0, delta, back_to)
    if not np.isfinite(log_weight.max()):
        assert chain.size < len(xy)
        return
    assert chain.tolist() == list(range(len(xy)))
    best = decode(layers, chain, delta, back_to) - layers.ptr[:-1]
    row = int(np.flatnonzero((sequences == best).all(axis=1))[0])
    np.testing.assert_allclose(log_weight[row], log_weight.max(), rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(delta[layers.ptr[-2] :].max(), log_weight.max(), rtol=0.0, atol=1e-9)
    weight = np.exp(log_weight - log_weight.max())
    probability = posteriors(layers, chain, ptr, links, model)
    for k in range(len(xy)):
        exact = np.bincount(sequences[:, k], weights=weight, minlength=len(listed[k])) / weight.sum()
        np.testing.assert_allclose(probability[layers.ptr[k] : layers.ptr[k + 1]], exact, rtol=0.0, atol=1e-9)


@FEW
@given(seed=SEEDS, noise_m=st.sampled_from([0.0, 15.0, 60.0]), u_turns=st.booleans(), most=st.sampled_from([1, 16]))
def test_paths_are_legal_and_contain_their_fixes(seed, noise_m, u_turns, most):
    network, places = some_trips(seed, noise_m=noise_m, u_turns=u_turns)
    matches = match(network, trips_of(network, places), threads=1, most=most)
    # There is always a match that contains a turn.
    assert len(matches) > 0
    assert matches.lengths.max() > 1
    for i in range(len(matches)):
        assert illegal_turns(network, matches.path(i)) == []
        low, high = matches.span[i]
        on = matches.fix_segment[low : high + 1]
        assert set(on[on >= 0].tolist()) <= set(matches.path(i).tolist())
    on = matches.fix_segment >= 0
    assert np.all(np.isnan(matches.fix_along_m[~on]))
    assert np.all(
        (matches.fix_along_m[on] >= 0.0) & (matches.fix_along_m[on] <= network.length_m[matches.fix_segment[on]])
    )
    assert np.all((matches.confidence >= 0.0) & (matches.confidence <= 1.0))


@FEW
@given(seed=SEEDS)
def test_dense_noiseless_fixes_recover_the_path(seed):
    network, rng = random_grid(seed), np.random.default_rng(seed)
    path = random_path(network, rng, 10)
    places = drive(network, path, step_m=8.0)
    matches = match(network, trips_of(network, [places], step_s=1.0), sigma_m=1.0, beta_m=1.0, threads=1)
    assert len(matches) == 1
    assert matches.whole.all()
    assert matches.path(0).tolist() == path.tolist()
    np.testing.assert_allclose(matches.fix_distance_m, 0.0, rtol=0.0, atol=1e-6)


@FEW
@given(seed=SEEDS, threads=st.sampled_from([1, 3]))
def test_order_of_trips_and_threads_do_not_matter(seed, threads):
    network, places = some_trips(seed, noise_m=20.0)
    order = np.random.default_rng(seed).permutation(len(places))
    trips = trips_of(network, places)
    first, second = match(network, trips, threads=1), match(network, trips[order], threads=threads)
    for place, i in enumerate(order):
        one, two = np.flatnonzero(first.trip == i), np.flatnonzero(second.trip == place)
        assert [first.path(k).tolist() for k in one] == [second.path(k).tolist() for k in two]
        np.testing.assert_array_equal(first.confidence[one], second.confidence[two])


@FEW
@given(seed=SEEDS, east=st.floats(-3e3, 3e3), north=st.floats(-3e3, 3e3), cell_m=st.sampled_from([30.0, 90.0]))
def test_translation_of_the_map_does_not_matter(seed, east, north, cell_m):
    # The shift is at most 3 km, so that metres per degree of longitude change by less than 0.05 %.
    network, places = some_trips(seed, noise_m=10.0)
    moved = from_xy(
        network.node_xy + np.array([east, north]), network.tail, network.head,
        turns=np.column_stack([network.turn_from, network.turn_to]), length_m=network.length_m,
    )  # fmt: skip
    here = match(network, trips_of(network, places), threads=1)
    there = match(
        moved,
        trips_of(moved, [xy + np.array([east, north]) for xy in places]),
        threads=1,
        index=build_grid(moved, cell_m),
    )
    assert [here.path(k).tolist() for k in range(len(here))] == [there.path(k).tolist() for k in range(len(there))]
    np.testing.assert_allclose(here.confidence, there.confidence, rtol=0.0, atol=1e-6)


@FEW
@given(seed=SEEDS)
def test_pruning_does_not_change_the_result(seed):
    network, places = some_trips(seed, noise_m=10.0, missing=0.0, one_way=0.2)
    trips = trips_of(network, places)
    quick = match(network, trips, threads=1)
    exact = match(network, trips, threads=1, detour_betas=1e6, beam=1e6)
    # Without missing streets, every fix is reachable.
    assert quick.whole.tolist() == exact.whole.tolist() == [True] * len(places)
    assert [quick.path(i).tolist() for i in range(len(quick))] == [exact.path(i).tolist() for i in range(len(exact))]
    np.testing.assert_allclose(quick.confidence, exact.confidence, rtol=0.0, atol=5e-3)


def in_order(network, path, segment, along, slack_m):
    """Return True if fixes lie on a path in order, each at most `slack_m` behind the previous one."""
    start, came = np.cumsum(network.length_m[path]) - network.length_m[path], -np.inf
    for s, metres in zip(segment.tolist(), along.tolist(), strict=True):
        # The earliest possible position leaves most room for later fixes.
        places = start[path == s] + metres
        places = places[places >= came - slack_m]
        if not places.size:
            return False
        came = places.min()
    return True


@pytest.mark.parametrize("seed", range(4))
def test_fixes_never_move_backward_on_a_one_way_street(seed):
    """Fixes move backward along a path by at most 5 sigma, even if all trips are driven in the wrong direction."""
    network = random_grid(seed, one_way=0.9, missing=0.0)
    rng, sigma_m = np.random.default_rng(seed), 4.0
    backward = [drive(network, random_path(network, rng, 8), step_m=30.0)[::-1].copy() for _ in range(10)]
    matches = match(network, trips_of(network, backward), sigma_m=sigma_m, threads=1)
    one_way, n_fixes = network.opposite == -1, 0
    for i in range(len(matches)):
        rows = np.arange(matches.span[i, 0], matches.span[i, 1] + 1)
        # The first and the last fix are excluded: a loop supported only by one of them is removed.
        rows = rows[matches.fix_segment[rows] >= 0][1:-1]
        segment, along = matches.fix_segment[rows], matches.fix_along_m[rows]
        assert in_order(network, matches.path(i), segment, along, 5.0 * sigma_m + 1e-6)
        n_fixes += np.count_nonzero(one_way[segment])
    assert n_fixes > 20
