"""The whole pipeline in the synthetic city: the recovered length of driven paths, and the clustering of drivers."""

from collections import Counter

import numpy as np
import pytest

from limiirl import roads
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.roads.matching.match_trips import match
from limiirl.roads.matching.quality import path_recovery
from limiirl.roads.synthetic.demo import run_demo
from limiirl.roads.traces.cleaning import clean
from tests.helpers import raises


@pytest.fixture(scope="module")
def city():
    return roads.City(seed=0, radius_km=1.2)


@pytest.fixture(scope="module")
def demos(city):
    return city.drive(6, 5, seed=1).demos


@pytest.fixture(scope="module")
def noisy(city, demos):
    cleaned = clean(roads.simulate_gps(city.network, demos, noise_m=30.0), city.network)
    return cleaned, match(city.network, cleaned, threads=1)


@pytest.fixture(scope="module")
def reports():
    return []


@pytest.fixture(scope="module")
def demo(reports):
    return run_demo(3, radius_km=1.5, n_drivers=12, trips_each=12, progress=lambda *words: reports.append(words))


class TestPathRecovery:
    def test_is_the_overlap_of_multisets(self, city, demos, noisy):
        cleaned, matches = noisy
        recovery = path_recovery(city.network, demos, matches, cleaned.source)
        length = city.network.length_m
        for i, demo in enumerate(demos):
            true, seen = Counter(demo.states.tolist()), Counter()
            for j in np.flatnonzero(cleaned.source[matches.trip] == i):
                seen.update(matches.path(j).tolist())
            weigh = [sum(n * length[s] for s, n in part.items()) for part in (true, true & seen, seen - true)]
            np.testing.assert_allclose(
                [recovery.driven_m[i], recovery.recovered_m[i], recovery.added_m[i]], weigh, rtol=1e-12
            )
        assert 0.5 < recovery.share < 1.0
        assert recovery.added > 0.0

    def test_trips_of_which_nothing_is_left_count_as_missed(self, city, demos):
        trips = roads.simulate_gps(city.network, demos, noise_m=1.0)
        some = match(city.network, trips[:20], threads=1)
        recovery = path_recovery(city.network, demos, some, np.arange(20))
        assert np.all(recovery.recovered_m[20:] == 0.0)
        np.testing.assert_allclose(recovery.driven_m.sum(), city.network.length_m[demos.states].sum(), rtol=1e-12)
        assert recovery.share < 0.8

    def test_source_maps_matches_to_trips(self, city, demos):
        trips = roads.simulate_gps(city.network, demos, noise_m=20.0)
        forth, back = (match(city.network, some, threads=1) for some in (trips, trips[::-1]))
        order = np.arange(len(demos))[::-1]
        recovery, again = path_recovery(city.network, demos, forth), path_recovery(city.network, demos, back, order)
        np.testing.assert_allclose(again.recovered_m, recovery.recovered_m, rtol=1e-12)
        assert recovery.share > 0.9

    def test_segments_driven_twice_count_twice(self, city):
        network = city.network
        graph = {}
        for a, b in zip(network.turn_from.tolist(), network.turn_to.tolist(), strict=True):
            graph.setdefault(a, []).append(b)
        ring = np.flatnonzero(np.array(network.class_names)[network.road_class] == "motorway").tolist()
        lap = [ring[0]]
        while len(lap) < 2 or lap[-1] != lap[0]:
            lap.append(next(s for s in graph[lap[-1]] if s in set(ring)))
        once, twice = Demonstrations.from_lists([lap]), Demonstrations.from_lists([lap + lap[1:]])
        matches = match(network, roads.simulate_gps(network, once, noise_m=1.0, step_s=5.0), threads=1)
        np.testing.assert_allclose(path_recovery(network, once, matches).share, 1.0, rtol=1e-12)
        np.testing.assert_allclose(path_recovery(network, twice, matches).share, 0.5, atol=0.02)

    def test_a_source_that_does_not_fit(self, city, demos, noisy):
        with raises(InvalidParameter, parameter="source"):
            path_recovery(city.network, demos, noisy[1], np.arange(3))


class TestDemo:
    @pytest.mark.smoke
    def test_recovers_the_driven_paths(self, demo):
        assert demo.recovery.share >= 0.98
        assert demo.recovery.added <= 0.02
        assert demo.matches.n_whole >= 0.95 * len(demo.driven.demos)

    def test_drivers_are_clustered_better_than_single_trips(self, demo):
        assert demo.drivers.anid < 0.1
        assert demo.drivers.anid < demo.trips.anid < 0.8

    def test_learns_from_matched_trips_not_from_true_paths(self, demo):
        used = demo.fit.demos
        true = demo.driven.demos
        same = [np.array_equal(one.states, true[int(name)].states) for one, name in zip(used, used.ids, strict=True)]
        assert not all(same)
        np.testing.assert_array_equal(used.labels, demo.driven.style[used.groups])

    def test_intents_come_in_the_order_of_styles(self, demo):
        np.testing.assert_array_equal(demo.drivers.intent, np.arange(3))
        # Style 0 prefers the ring, and has the largest reward per km of it; style 2 avoids the centre.
        assert np.argmax(demo.fit.mixture.thetas_[:, 0]) == 0
        assert np.argmin(demo.fit.mixture.thetas_[:, 3]) == 2

    def test_every_stage_reports_progress(self, demo, reports):
        stages = ("city", "drives", "recordings", "cleaning", "matching", "styles", "scores")
        assert tuple(dict.fromkeys(stage for _, _, stage in reports)) == stages == tuple(demo.seconds)
        assert (len(demo.cleaned), len(demo.cleaned), "matching") in reports
        assert sum(stage == "styles" for _, _, stage in reports) > 2

    def test_scores_are_plain_numbers(self, demo):
        scores = demo.scores()
        assert all(isinstance(value, int | float) for value in scores.values())
        assert scores["trips_driven"] == 144
        assert scores["fixes_kept"] < scores["fixes"]
        assert f"ANID {scores['drivers_anid']:.3f}" in repr(demo)
