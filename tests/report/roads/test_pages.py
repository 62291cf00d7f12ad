"""Reports on roads: street lines, normalised rewards, descriptions, routes, flows and counts."""

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter, InvalidTrips
from limiirl.forecast import Forecaster
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mixture import StandardErrors
from limiirl.report import Table, write
from limiirl.report.map_image import map_png
from limiirl.report.markup import prose_text
from limiirl.report.roads.data import network_page, quality_page
from limiirl.report.roads.figures import Panel, _free_side, find_pair, plot_driver_rewards
from limiirl.report.roads.forecasts import _turn_table, change_page, forecast_page, select_distinct
from limiirl.report.roads.layers import (
    StreetLines,
    flow_layers,
    join_segments,
    path_points,
    segments_near,
    street_layer,
)
from limiirl.report.roads.styles import drivers_page
from limiirl.report.roads.view import DriversView, ForecastExample
from limiirl.report.svg import PAPER
from limiirl.roads import City, DriverFit, RoadNetwork, Trips, close_streets
from limiirl.roads.drivers.styles import NormalisedRewards, describe_styles, match_rewards, normalise_rewards
from limiirl.roads.features import FeatureChoice, state_features, turn_features
from limiirl.roads.geometry import Plane
from limiirl.roads.matching.matches import MatchedPiece, Matches, TripMatch
from limiirl.roads.matching.quality import measure_quality
from tests.helpers import raises
from tests.oracles.browser import examine, require_browser

HOSTILE = "<script>alert(1)</script> & "


@pytest.fixture(scope="module")
def city() -> City:
    return City(seed=1, radius_km=1.3)


@pytest.fixture(scope="module")
def demos(city: City) -> Demonstrations:
    return city.drive(n_drivers=10, trips_each=6).demos


@pytest.fixture(scope="module")
def view(city: City, demos: Demonstrations) -> DriversView:
    truth = city.ensemble
    shuffled = RewardEnsemble(truth.weights[[2, 0, 1]], truth.thetas[[2, 0, 1]])
    longest = int(np.argmax(np.diff(demos.offsets)))
    path = demos.states[demos.offsets[longest] : demos.offsets[longest + 1]]
    successors = city.network.turn_to[city.network.out_ptr[path[4]] : city.network.out_ptr[path[4] + 1]]
    example = ForecastExample(
        f"{HOSTILE}trip",
        path[:5],
        path[5:],
        [(int(s), 0.9 / len(successors)) for s in successors],
        [(path[4:], 0.75)],
        city.places,
        np.full(city.places.size, 1.0 / city.places.size),
        np.array([0.2, 0.3, 0.5]),
    )
    return DriversView(
        city.network,
        city.mdp.feature_names,
        city.features.groups,
        {"hard": truth, "soft": shuffled, HOSTILE: truth},
        demos,
        np.eye(3)[demos.labels],
        demos.features(city.mdp),
        forecasts=[example],
        tables=[Table("cv", "Cross-validation", "", ["Method", "NLL"], [["one", 2.0]])],
        min_drivers=2,  # a style has three or four of the ten drivers
    )


# Lines of streets.


def steps(lines: StreetLines) -> Counter[tuple[tuple[float, ...], ...]]:
    """Return the undirected steps of all lines with their counts."""
    points = [tuple(point) for point in lines.points.tolist()]
    ends = lines.offsets.tolist()
    return Counter(tuple(sorted((points[i], points[i + 1]))) for a, b in pairwise(ends) for i in range(a, b - 1))


def test_every_street_is_drawn_once(city: City) -> None:
    network = city.network
    lines = join_segments(network)
    at = np.stack([network.lat, network.lon], axis=1).tolist()
    wanted = {tuple(sorted((tuple(at[a]), tuple(at[b])))) for a, b in zip(network.tail, network.head, strict=True)}
    drawn = steps(lines)
    assert set(drawn) == wanted
    assert set(drawn.values()) == {1}
    # Fewer lines than streets, because lines do not end at bends.
    assert lines.n_lines < 0.9 * len(wanted)


def test_lines_end_where_a_key_changes(city: City) -> None:
    network = city.network
    lines = join_segments(network, [network.road_class, network.speed_kmh])
    ends = lines.offsets.tolist()
    for i, start in enumerate(lines.starts.tolist()):
        own = lines.segments[start : start + ends[i + 1] - ends[i] - 1]
        assert np.unique(network.road_class[own]).size == 1
        assert np.unique(network.speed_kmh[own]).size == 1
        for place, s in enumerate(own.tolist()):
            step = {tuple(point) for point in lines.points[ends[i] + place : ends[i] + place + 2].tolist()}
            assert step == {(network.lat[n], network.lon[n]) for n in (network.tail[s], network.head[s])}
    np.testing.assert_allclose(
        lines.sum_along(network.length_m).sum(), network.length_m[lines.segments].sum(), rtol=1e-12
    )


def test_a_ring_is_one_closed_line() -> None:
    ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    lines = join_segments(ring)
    assert lines.offsets.tolist() == [0, 4]
    assert lines.points[0].tolist() == lines.points[-1].tolist()


def test_only_selected_segments_are_drawn(city: City) -> None:
    network = city.network
    chosen = network.road_class == network.road_class[0]
    lines = join_segments(network, within=chosen)
    both = np.where(network.opposite >= 0, network.opposite, np.arange(network.n_segments))
    assert (chosen[lines.segments] | chosen[both[lines.segments]]).all()
    assert join_segments(network, within=np.zeros(network.n_segments, dtype=bool)).n_lines == 0


def test_street_facts_mark_unknown_values(city: City) -> None:
    layer = street_layer(city.network)
    assert "unknown" in layer.facts["speed limit"]
    assert {"two-way", "one-way"} == set(layer.facts["direction"])


# Normalised rewards.


@cache
def small_features() -> tuple[NDArray[np.float64], NDArray[np.float64], FeatureChoice]:
    """Return lengths, features and feature choice of a small city with four groups of lengths."""
    network, choice = City(seed=1, radius_km=0.8).network, FeatureChoice(lanes=True)
    return network.length_m / 1000.0, state_features(network, choice).toarray(), choice


@given(st.integers(0, 2**32 - 1))
def test_normalised_rewards_keep_segment_rewards_and_drop_unidentified_directions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    length, phi, choice = small_features()
    thetas = rng.uniform(-10.0, 0.0, (3, phi.shape[1]))
    km = phi.T @ rng.integers(0, 4, len(phi)) + 1e-3
    normalised = normalise_rewards(thetas, choice.groups, km)
    np.testing.assert_allclose(normalised.reward(phi, length), thetas @ phi.T, rtol=1e-10, atol=1e-12)
    for places in choice.groups.values():
        np.testing.assert_allclose(normalised.thetas[:, list(places)] @ km[list(places)], 0.0, atol=1e-9 * km.sum())
    # Shifting reward between groups has no effect.
    moved = thetas.copy()
    shifts = rng.normal(size=len(choice.groups))
    shifts -= shifts.mean()
    for shift, places in zip(shifts, choice.groups.values(), strict=True):
        moved[:, list(places)] += shift
    again = normalise_rewards(moved, choice.groups, km)
    np.testing.assert_allclose(again.thetas, normalised.thetas, atol=1e-10)
    np.testing.assert_allclose(again.level, normalised.level, atol=1e-10)


def test_features_that_are_not_lengths_are_unchanged() -> None:
    normalised = normalise_rewards([[-1.0, -3.0, -2.0]], {"road class": (0, 1), "turns": (2,)}, [1.0, 1.0, 7.0])
    assert normalised.thetas.tolist() == [[1.0, -1.0, -2.0]]
    assert normalised.level.tolist() == [-2.0]


@pytest.mark.parametrize(
    ("groups", "km", "parameter"),
    [
        ({"road class": (0,)}, [1.0, 1.0], "groups"),
        ({"road class": (0, 1)}, [1.0], "km"),
        ({"road class": (0, 1)}, [0.0, 0.0], "km"),
    ],
)
def test_undefined_normalisations_are_rejected(groups: Any, km: Any, parameter: str) -> None:
    with raises(InvalidParameter, parameter=parameter):
        normalise_rewards([[0.0, 0.0]], groups, km)


def test_initialisations_are_matched_by_rewards(view: DriversView) -> None:
    hard, soft = view.panels["hard"], view.panels["soft"]
    for mine, theirs in zip(hard, soft, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    one, two = (
        NormalisedRewards(np.array([-1.0, -5.0]), np.zeros((2, 1))),
        NormalisedRewards(np.array([-4.9]), np.zeros((1, 1))),
    )
    assert match_rewards(one, two, [1.0]).tolist() == [-1, 0]


def test_the_reward_plot_has_the_rewards_of_all_initialisations(view: DriversView) -> None:
    everything = np.ones(len(view.feature_names), dtype=bool)
    drawn = plot_driver_rewards(view.panels, view.feature_names, view.groups, everything, ["0", "1", "2"])
    assert len(drawn.rows) == 3 * 3 * (1 + 7)
    first = [row for row in drawn.rows if row["initialisation"] == "hard" and row["intent"] == "1"]
    assert [row["reward"] for row in first[1:]] == view.panels["hard"][2][1].tolist()


# Descriptions.


def test_descriptions_follow_the_numbers() -> None:
    names, groups = ["km of lane", "km of road", "bends"], {"road class": (0, 1), "turns": (2,)}
    normalised = NormalisedRewards(np.array([-1.0, -4.0]), np.array([[1.0, -2.0, -0.1], [-3.0, 0.5, -2.0]]))
    mean, shares = np.array([[8.0, 2.0, 0.0], [0.5, 1.5, 3.0]]), np.array([0.2, 0.8])
    one, two = describe_styles(normalised, mean, shares, names, groups)
    assert one.short == "long trips, more lane, less road"
    assert "80 % of the km are lane (all trips: 56 %)" in one.long
    assert "Prefers lane (+1 per km)" in one.long
    assert "Avoids road (−2 per km)" in one.long
    assert "A km costs 1 on average (all trips: 3.4): less sensitive to detours." in one.long
    assert "Minds bends less (−0.1 each, all trips: −1.6)." in one.long
    assert two.short == "short trips, more road, less lane"
    assert "detours" not in two.long
    # The descriptions are permuted with the styles.
    back = describe_styles(
        NormalisedRewards(normalised.level[::-1], normalised.thetas[::-1]), mean[::-1], shares[::-1], names, groups
    )
    assert [words.long for words in back] == [two.long, one.long]
    equal = describe_styles(normalised, mean, [0.5, 0.5], names, groups)
    assert "more sensitive to detours" in equal[1].long


def describe_with_errors(theta: list[float], errors: list[float], level: float = 0.0) -> str:
    """Describe a style with equal use of all classes, beside an equal style with average rewards and no errors."""
    d = len(theta)
    normalised = NormalisedRewards(
        np.array([-2.0 + level, -2.0]), np.array([theta, [0.0] * d]), np.full(2, 0.1), np.array([errors, [0.0] * d])
    )
    names, groups = [f"km of {letter}" for letter in "abcdefgh"[: d - 1]] + ["bends"], {"road": range(d - 1)}
    groups |= {"turns": (d - 1,)}
    words = describe_styles(normalised, np.ones((2, d)), [0.5, 0.5], names, groups)
    return words[0].long.partition("(all trips: " + f"{d - 1} km). ")[2]


def test_rewards_within_two_standard_errors_are_not_described() -> None:
    assert describe_with_errors([0.28, -0.3, 0.0], [4.2, 0.1, 0.1]) == "Avoids b (−0.30 ± 0.10 per km)."
    assert describe_with_errors([0.28, -0.3, 0.0], [0.15, 0.2, 0.1]) == ""
    # The difference from the average of both styles is half the reward, and the error of the average adds to its own.
    assert "bends" not in describe_with_errors([0.0, 0.0, -3.0], [0.1, 0.1, 0.6])
    assert (
        describe_with_errors([0.0, 0.0, -3.0], [0.1, 0.1, 0.4]) == "Minds bends (−3.00 ± 0.40 each, all trips: −1.5)."
    )
    assert "costs" in describe_with_errors([0.0] * 3, [0.1] * 3, level=-2.0)
    assert "costs" not in describe_with_errors([0.0] * 3, [0.1] * 3, level=0.2)


def test_rewards_on_bounds_are_counted_and_not_described() -> None:
    text = describe_with_errors([5.0, -5.0, 0.0], [np.nan, 0.5, 0.1])
    assert "Prefers" not in text
    assert "Avoids b (−5.00 ± 0.50 per km)." in text
    assert text.endswith("1 of 2 rewards is on a bound or not determined by the trips.")


def test_tied_rewards_are_not_cut_off() -> None:
    """Of several rewards with the same text, either all or none are listed."""
    assert describe_with_errors([1.0] * 5 + [0.0], [0.01] * 6).startswith("Prefers 5 features equally (+1.000 ± 0.010")
    text = describe_with_errors([3.0, 1.0, 1.0, 1.0, -1.0, 0.0], [0.01] * 6)
    assert text == "Prefers a (+3.000 ± 0.010 per km). Avoids e (−1.000 ± 0.010 per km)."


def test_errors_of_normalised_rewards_are_those_of_contrasts(city: City) -> None:
    """The weights of the driven km times the rewards are subtracted, so the errors are those of a linear function."""
    covariance = np.diag([0.04, 0.09, 0.01])
    errors = StandardErrors(
        np.zeros(1), np.sqrt(np.diag(covariance))[None], np.array([["ok", "ok", "ok"]]), np.zeros((4, 4)), 3, "hessian",
        np.vstack([np.zeros((1, 3)), np.eye(3)]), covariance, np.ones(4),
    )  # fmt: skip
    groups = {"road": (0, 1), "turns": (2,)}
    normalised = normalise_rewards([[1.0, 2.0, 3.0]], groups, [3.0, 1.0, 5.0], errors=errors)
    assert normalised.errors is not None
    assert normalised.level_errors is not None
    np.testing.assert_allclose(normalised.errors[0], [0.25 * np.sqrt(0.13), 0.75 * np.sqrt(0.13), 0.1], rtol=1e-12)
    np.testing.assert_allclose(normalised.level_errors, [np.sqrt(0.75**2 * 0.04 + 0.25**2 * 0.09)], rtol=1e-12)


def test_the_reward_plot_separates_styles_and_orders_features() -> None:
    level, thetas = np.array([-1.0, -2.0]), np.array([[0.1, 0.9, -1.0], [0.1, 0.9, 0.0]])
    panel = Panel(np.array([0.5, 0.5]), level, thetas, np.array([0.1, np.nan]), np.full((2, 3), [0.2, 40.0, np.nan]))
    names, groups = ["km of a", "km of b", "turns"], {"class": (0, 1), "turns": (2,)}
    drawn = plot_driver_rewards({"x": panel}, names, groups, [True] * 3, ["style 0", "style 1"])
    body = drawn.figure.axes[1]
    assert [text.get_text() for text in body.get_yticklabels()] == ["class", "b", "a", "turns", "turns"]
    points = {
        (float(x), float(y)): line.get_markerfacecolor()
        for line in body.lines if line.get_marker() == "o"
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }  # fmt: skip
    heights = sorted(y for x, y in points if x == 0.9)
    assert len(heights) == 2  # equal rewards of two styles do not overlap
    assert heights[1] - heights[0] > 0.2
    assert points[next(at for at in points if at[0] == -1.0)] == PAPER  # no error: an open dot
    # A large error does not stretch the axis.
    assert body.get_xlim()[1] < 2.0
    assert [row["standard_error"] for row in drawn.rows if row["feature"] == "km of b"] == [40.0, 40.0]


def test_descriptions_of_regions() -> None:
    normalised, mean = (
        NormalisedRewards(np.array([-1.0, -1.0]), np.array([[0.5, -1.0], [-1.0, 0.5]])),
        [[8.0, 2.0], [2.0, 8.0]],
    )
    names, groups = ["km in centre", "km in N"], {"region": (0, 1)}
    one, _ = describe_styles(normalised, mean, [0.5, 0.5], names, groups)
    assert one.short == "more km in centre, fewer km in N"
    assert "80 % of the km are in centre (all trips: 50 %); fewer km in N (20 %, all trips: 50 %)." in one.long
    assert "Prefers km in centre (+0.5 per km). Avoids km in N (−1 per km)." in one.long


def test_equal_styles_have_equal_descriptions() -> None:
    normalised = NormalisedRewards(np.array([-1.0, -1.0]), np.zeros((2, 1)))
    words = describe_styles(normalised, [[5.0], [5.0]], [0.5, 0.5], ["km"], {"length": (0,)})
    assert [style.short for style in words] == ["like all trips"] * 2


@pytest.mark.parametrize(("theta", "text"), [
    (-2.2e-15, "Does not mind tolls (0 each, all trips: −5)."),
    (0.004, "Does not mind tolls (0 each, all trips: −5)."),
    (3.0, "Likes tolls (+3 each, all trips: −3.5)."),
    (-20.0, "Minds tolls (−20 each, all trips: −15)."),
    (-123.4, "Minds tolls (−120 each, all trips: −67)."),
])  # fmt: skip
def test_negligible_weights_are_described_as_zero(theta: float, text: str) -> None:
    normalised = NormalisedRewards(np.array([-1.0, -1.0]), np.array([[theta, 0.0], [-10.0, 0.0]]))
    words = describe_styles(normalised, np.ones((2, 2)), [0.5, 0.5], ["tolls", "km"], {"length": (1,), "turns": (0,)})
    assert words[0].long.endswith(text)
    assert "e−" not in words[0].long


def test_rounding_errors_are_not_preferences() -> None:
    """Rewards at the level of rounding errors are not described."""
    normalised = NormalisedRewards(np.array([-2e-15, 1e-16]), np.array([[3e-15, -1e-16], [-2e-16, 1e-15]]))
    names, groups = ["km of lane", "bends"], {"road class": (0,), "turns": (1,)}
    for words in describe_styles(normalised, np.ones((2, 2)), [0.5, 0.5], names, groups):
        assert words.long == "50 % of the trips. Typical trips: 1 km on average (all trips: 1 km)."
    near_zero = NormalisedRewards(np.array([-0.05, -1e-12]), np.zeros((2, 2)))
    assert all("costs" not in w.long for w in describe_styles(near_zero, np.ones((2, 2)), [0.5, 0.5], names, groups))


def test_segments_near_points_fill_the_window() -> None:
    """The box of a tall area becomes wide, and the box of a wide area becomes square."""
    at = np.arange(9) * 0.01
    lat, lon = (part.ravel() for part in np.meshgrid(41.0 + at, -8.0 + at, indexing="ij"))
    pairs = [(i, i + 1) for i in range(80) if i % 9 < 8]
    tail, head = zip(*pairs, strict=True)
    network = RoadNetwork.from_segments(lat, lon, tail, head)
    tall, wide = [[41.0, -7.961], [41.08, -7.959]], [[41.039, -8.0], [41.041, -7.92]]
    columns = [
        sorted({pairs[i][0] % 9 for i in np.flatnonzero(segments_near(network, tall, 1.0, widest=w))}) for w in (1, 1.5)
    ]
    assert columns == [[3, 4], [0, 1, 2, 3, 4, 5, 6, 7]]
    rows = [
        sorted({pairs[i][0] // 9 for i in np.flatnonzero(segments_near(network, wide, 1.0, widest=w))})
        for w in (1, 1.5)
    ]
    assert rows == [[4], [1, 2, 3, 4, 5, 6, 7]]


# Two routes.


def test_labels_of_ends_avoid_the_routes() -> None:
    """The routes occupy the right and the lower side of the start, and the left side of the end."""
    lines = [np.array([[0.0, 0.0], [1.0, 0.0], [1.0, -1.0]]), np.array([[0.0, 0.0], [0.0, -1.0], [1.0, -1.0]])]
    half = np.array([1.5, 1.5])
    assert _free_side(np.zeros((2, 2)), lines, half)[1] == (-1.0, 0.0)
    assert _free_side(np.full((2, 2), [1.0, -1.0]), lines, half)[1] == (1.0, 0.0)
    # The right side is outside the figure.
    assert _free_side(np.full((2, 2), [1.0, -1.0]), lines, np.array([1.2, 1.5]))[1] == (0.0, -1.0)


def test_short_legends_have_one_row() -> None:
    panel = (np.array([0.5, 0.3, 0.2]), np.array([-2.0, -3.0, -1.0]), np.zeros((3, 1)))
    drawn = plot_driver_rewards({"hard": panel}, ["km"], {"length": (0,)}, [True], ["style 0", "style 1", "style 2"])
    box = drawn.figure.legends[0]
    assert [text.get_text() for text in box.get_texts()] == ["style 0", "style 1", "style 2"]
    assert box._ncols == 3


def test_the_pair_overlaps_least(city: City, demos: Demonstrations) -> None:
    network, labels = city.network, np.asarray(demos.labels)
    paths = [demos.states[a:b] for a, b in pairwise(demos.offsets)]
    length = [float(network.length_m[path].sum()) for path in paths]
    best: dict[float, tuple[float, float]] = {}
    for reach in (200.0, 400.0, 800.0):
        for i, one in enumerate(paths):
            for j in range(i + 1, len(paths)):
                two = paths[j]
                ends = [
                    np.hypot(*(network.node_xy[node[one[at]]] - network.node_xy[node[two[at]]]))
                    for node, at in ((network.tail, 0), (network.head, -1))
                ]
                usable = all(
                    length[k] >= 1500.0
                    and length[k] <= 2.2 * np.hypot(*(network.node_xy[network.head[paths[k][-1]]] -
                                                     network.node_xy[network.tail[paths[k][0]]]))
                    for k in (i, j)
                )  # fmt: skip
                if labels[i] != labels[j] and max(ends) <= reach and usable:
                    both = set(one.tolist()) & set(two.tolist())
                    shared = sum(float(network.length_m[s]) for s in both) / min(length[i], length[j])
                    best[reach] = min(best.get(reach, (np.inf, 0.0)), (shared, float(max(ends))))
        if reach in best and best[reach][0] < 0.5:
            break
    pair = find_pair(network, demos, labels)
    assert pair is not None
    np.testing.assert_allclose(pair.shared, best[reach][0], atol=1e-12)
    np.testing.assert_allclose(pair.apart_m, best[reach][1], atol=1e-9)
    assert labels[pair.first] != labels[pair.second]


def test_one_style_has_no_pair(city: City, demos: Demonstrations) -> None:
    assert find_pair(city.network, demos, np.zeros(len(demos))) is None


# Flows.


def test_flows_of_both_directions_are_added() -> None:
    pair = RoadNetwork.from_segments([41.15, 41.16, 41.17], [-8.63, -8.63, -8.63], [0, 1, 1, 2], [1, 0, 2, 1])
    flows = np.array([[3.0, 1.0, 1.0, 0.0], [2.0, 0.0, 1.0, 1.0]])
    leader, one, two = flow_layers(pair, flows, ["one", "two"])
    assert leader.facts == {"one": ["4 trips", "1 trips"], "two": ["2 trips"] * 2}
    assert (one.stroke >= 0).all()
    assert (two.stroke >= 0).all()


def test_hidden_flows_are_marked_and_not_drawn() -> None:
    pair = RoadNetwork.from_segments([41.15, 41.16, 41.17], [-8.63, -8.63, -8.63], [0, 1], [1, 2])
    leader, one, two = flow_layers(pair, [[9.0, 9.0], [np.nan, 8.0]], ["one", "two"], hidden="few people")
    assert leader.facts == {"one": ["9 trips"] * 2, "two": ["few people", "8 trips"]}
    assert (one.stroke.tolist(), two.stroke.tolist()) == ([5, 5], [-1, 5])


def test_the_dominant_style_is_relative_to_its_number_of_trips() -> None:
    pair = RoadNetwork.from_segments([41.15, 41.16, 41.17], [-8.63, -8.63, -8.63], [0, 1], [1, 2])
    leader = flow_layers(pair, [[90.0, 10.0], [1.0, 9.0]], ["many", "few"])[0]
    labels = [leader.strokes[3 * (code // 3) + 2].label for code in leader.stroke]
    assert labels == ["mostly many", "mostly few"]


def drivers_of_streets(network: RoadNetwork, demos: Demonstrations) -> list[int]:
    """Return the number of drivers on each segment or its opposite, by enumeration."""
    seen: list[set[int]] = [set() for _ in range(network.n_segments)]
    assert demos.groups is not None
    for demo, driver in zip(demos, demos.groups.tolist(), strict=True):
        for s in demo.states.tolist():
            seen[s].add(driver)
    return [len(own | (seen[back] if back >= 0 else set())) for own, back in zip(seen, network.opposite, strict=True)]


def test_drivers_are_counted_by_style_and_street(view: DriversView) -> None:
    for k in range(3):
        own = view.demos[np.flatnonzero(view.labels == k)]
        assert own.groups is not None
        assert view.drivers_per_street[k].tolist() == drivers_of_streets(view.network, own)
        assert view.drivers_per_style[k] == len(set(own.groups.tolist()))


@pytest.mark.parametrize("groups", [[0, 1, 2, 3, 4, 5, 6, 7], None], ids=["drivers", "trips"])
def test_flows_of_few_drivers_are_hidden(groups: list[int] | None) -> None:
    """In one direction there are five trips of style 0 and one of style 1; in the other, one trip of each."""
    street = RoadNetwork.from_segments([41.15, 41.16, 41.17], [-8.63] * 3, [0, 1, 2, 1], [1, 2, 1, 0])
    trips = Demonstrations.from_lists([[0, 1]] * 6 + [[2, 3]] * 2, groups=groups)
    choice, own = FeatureChoice(speed_groups=None, regions=False), np.array([0.9] * 5 + [0.1, 0.9, 0.1])
    mdp = street.mdp(choice)
    rewards = RewardEnsemble([0.8, 0.2], -np.ones((2, mdp.n_features)))
    shares = np.stack([own, 1.0 - own], axis=1)
    view = DriversView(street, mdp.feature_names, choice.groups, {"x": rewards}, trips, shares, trips.features(mdp))
    page = drivers_page(view)
    leader, one, two = (layer for layer in page.maps[0].layers if layer.group == "flows")
    assert leader.facts == {"style 0": ["5.6 trips"], "style 1": [f"fewer than 5 {view.unit}"]}
    assert (one.stroke.tolist(), two.stroke.tolist()) == ([5], [-1])
    assert "Typical trips: style 1" not in [layer.title for layer in page.maps[0].layers]
    assert f"streets with fewer than 5 {view.unit}" in str(page.methods)
    # Six drivers are too few if the minimum is seven.
    bare = drivers_page(replace(view, min_drivers=7))
    assert [layer.n_features for layer in bare.maps[0].layers if layer.group == "flows"] == [0, 0, 0]
    assert "enough drivers" in bare.maps[0].alt
    assert "busiest" not in bare.maps[0].alt


def test_streets_of_few_drivers_are_not_drawn(view: DriversView) -> None:
    page = drivers_page(view)
    (flows, *_) = page.maps
    seen = {tuple(point) for point in flows.layers[1].points.tolist()}
    network = view.network
    total = drivers_of_streets(network, view.demos)
    alone = [s for s in np.unique(view.demos.states).tolist() if total[s] < view.min_drivers]
    assert alone
    steps_seen = steps(StreetLines(flows.layers[1].points, flows.layers[1].offsets, np.empty(0, dtype=np.int64)))
    for s in alone:
        ends = tuple(sorted((network.lat[n].item(), network.lon[n].item()) for n in (network.tail[s], network.head[s])))
        assert ends not in steps_seen
    assert seen


# The pages.


def test_the_network_page_includes_the_total_length(city: City) -> None:
    names = tuple(f"{HOSTILE}{name}" for name in city.network.class_names)
    network = city.network.replace(class_names=names, notes={HOSTILE: {"ways": {HOSTILE: 3}}})
    page = network_page(network)
    classes, regions = page.tables
    total = network.length_m.sum() / 1000.0
    for table in (classes, regions):
        np.testing.assert_allclose(sum(float(row[2].value) for row in table.cells), total, rtol=1e-9)  # type: ignore[arg-type]
        assert sum(int(row[1].value) for row in table.cells) == network.n_segments  # type: ignore[arg-type]
    (item,) = page.maps
    assert [layer.title for layer in item.layers] == ["Road class", "Speed limit", "Lanes", "Region"]
    assert len({id(layer.points) for layer in item.layers}) == 1
    assert item.attribution == network.attribution
    for layer in item.layers:
        assert layer.stroke.min() >= 0


def exact_matches(network: RoadNetwork, demos: Demonstrations) -> tuple[Trips, Matches]:
    """Return trips with a fix in the middle of every segment and their exact matches; the longest has two pieces."""
    paths = [demos.states[a:b] for a, b in pairwise(demos.offsets)]
    middles = [(path_points(network, path)[1:] + path_points(network, path)[:-1]) / 2.0 for path in paths]
    trips = Trips.from_lists([m[:, 0] for m in middles], [m[:, 1] for m in middles], groups=demos.groups)
    pieces_by_trip, cut = [], int(np.argmax([path.size for path in paths]))
    for place, path in enumerate(paths):
        n, segment = path.size, path.copy()
        pieces = [MatchedPiece(0, n - 1, path, 1.0 - 0.01 * place)]
        if place == cut:
            sixth = n // 6
            pieces = [
                MatchedPiece(0, 4 * sixth, path[: 4 * sixth + 1], 0.1),
                MatchedPiece(5 * sixth, n - 1, path[5 * sixth :], 0.2),
            ]
            segment[4 * sixth + 1 : 5 * sixth] = -1
        pieces_by_trip.append(TripMatch(tuple(pieces), segment, network.length_m[path] / 2.0, np.full(n, 1.5)))
    return trips, Matches.from_trips(trips, pieces_by_trip)


def test_the_quality_page_includes_all_trips(city: City, demos: Demonstrations, tmp_path: Path) -> None:
    trips, matches = exact_matches(city.network, demos)
    page = quality_page(city.network, trips, matches, measure_quality(city.network, trips, matches))
    tables = {table.name: table for table in page.tables}
    assert [row[1].value for row in tables["outcomes"].cells] == [len(trips) - 1, 0, 1, 0]
    lost = int((matches.fix_segment < 0).sum())
    assert sum(int(row[2].value) for row in tables["gaps"].cells) == lost > 1  # type: ignore[arg-type]
    assert sum(int(row[1].value) for row in tables["gaps"].cells) == 1  # type: ignore[arg-type]
    assert dict(page.highlights)["recorded trips"] == str(len(trips))
    assert len(page.maps) == 3
    assert "Other parts of the trip" in [layer.title for layer in page.maps[-1].layers]
    # The connecting lines of fixes on the path have zero length.
    links = next(layer for layer in page.maps[0].layers if layer.title == "Fixes to matched positions")
    np.testing.assert_allclose(links.points[::2], links.points[1::2], atol=1e-9)
    assert "Matched completely" in write(page, tmp_path).read_text()
    with raises(InvalidTrips, parameter="trips"):
        quality_page(city.network, trips[:3], matches)
    unread = replace(measure_quality(city.network, trips, matches), unread={"a cell is empty": 3})
    reasons = next(
        table for table in quality_page(city.network, trips, matches, unread).tables if table.name == "reasons"
    )
    assert ("rows or files: a cell is empty", 3) in [(row[0].text, row[1].value) for row in reasons.cells]
    bare = quality_page(city.network, trips, matches, examples=False)
    assert not bare.maps
    assert [section.title for section in bare.sections] == [section.title for section in page.sections[:-1]]


def test_a_matching_without_matches(city: City, demos: Demonstrations, tmp_path: Path) -> None:
    trips, _ = exact_matches(city.network, demos[:6])
    nothing = [
        TripMatch((), np.full(n, -1), np.full(n, np.nan), np.full(n, np.nan)) for n in np.diff(trips.offsets).tolist()
    ]
    page = quality_page(city.network, trips, Matches.from_trips(trips, nothing))
    assert page.lead == "None of the 6 recorded trips was matched."
    assert dict(page.highlights)["median distance"] == "–"
    assert not page.maps
    text = write(page, tmp_path).read_text(encoding="utf-8")
    assert "nan" not in re.sub(r"<(script|style).*?</\1>|<svg.*?</svg>", "", text, flags=re.DOTALL).lower().split()


def test_drivers_with_few_paths_are_counted_together(city: City, demos: Demonstrations) -> None:
    trips, matches = exact_matches(city.network, demos)
    page = quality_page(city.network, trips, matches)
    words = str(page.methods)
    assert "10: 10 with at least 5 paths, 0 with fewer than 5" in words


def test_the_drivers_page_has_all_sections(view: DriversView) -> None:
    page = drivers_page(view)
    titles = [section.title for section in page.sections]
    assert titles == ["Styles", "Streets by style", "Two routes", "Rewards", "Forecasts", "Cross-validation"]
    styles = page.tables[0]
    assert [cell.value for cell in (row[1] for row in styles.cells)] == view.main.weights.tolist()
    assert sum(int(row[2].text) for row in styles.cells) == len(view.demos)
    assert {"two-routes", "rewards"} == {figure.name for figure in page.figures}


def test_the_turn_table_marks_the_turn_taken(view: DriversView) -> None:
    table = _turn_table(view.network, 1, view.forecasts[0])
    assert [row[2].text for row in table.cells].count("yes") == 1


def test_turn_names_agree_with_the_features() -> None:
    """A segment from the south leads to streets at several angles."""
    degrees = np.array([-120.0, -46.0, -44.0, 0.0, 44.0, 46.0])
    angle = np.radians(degrees)
    ends = Plane(41.15, -8.63).degrees(300.0 * np.stack([np.sin(angle), np.cos(angle)], axis=1))
    before = Plane(41.15, -8.63).degrees([[0.0, -300.0], [0.0, 0.0]])
    at = np.concatenate([before, ends])
    star = RoadNetwork.from_segments(at[:, 0], at[:, 1], [0] + [1] * 6, [1, *range(2, 8)], centre=(41.15, -8.63))
    example = ForecastExample("A trip", np.array([0]), np.array([2]), [(s, 0.1) for s in range(1, 7)])
    texts = [row[0].text.split(",")[:2] for row in _turn_table(star, 1, example).cells]
    assert [words[1] for words in texts] == [f" {abs(d):.0f}°" for d in degrees]
    left, right, sharp = turn_features(star).T
    words = np.where(left > 0, "left", np.where(right > 0, "right", "straight on"))
    assert not sharp.any()
    assert [words[0] for words in texts] == words.tolist() == ["left"] * 2 + ["straight on"] * 3 + ["right"]
    with raises(InvalidParameter, parameter="target", value=0):
        _turn_table(star, 1, replace(example, turns=[(0, 0.5)]))


def test_a_style_of_few_drivers_has_no_counts(city: City, demos: Demonstrations) -> None:
    labels = np.zeros(len(demos), dtype=np.int64)
    assert demos.groups is not None
    labels[demos.groups < 4] = 1  # 24 trips
    rare = DriversView(
        city.network, city.mdp.feature_names, city.features.groups, {"hard": city.ensemble}, demos, np.eye(3)[labels],
        demos.features(city.mdp),
    )  # fmt: skip
    styles = drivers_page(rare).tables[0]
    assert [row[2].text for row in styles.cells] == [str(len(demos) - 24), *["fewer than 5 drivers"] * 2]
    assert styles.cells[1][3].text == styles.cells[1][4].text == "–"


def test_trips_of_another_network_are_rejected(view: DriversView) -> None:
    small = RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0], [1])
    with raises(InvalidDemos, parameter="demos", value=int(view.demos.states.max())):
        replace(view, network=small)


def test_the_drivers_page_passes_the_browser_checks(view: DriversView, tmp_path: Path) -> None:
    require_browser()
    page = write(drivers_page(view), tmp_path)
    text = page.read_text()
    assert "<script>alert" not in text
    assert len(re.findall(r'<figure class="figure map"', text)) == 2
    faults = examine(page).faults
    faults["structure"] = [fault for fault in faults.get("structure", []) if not fault.startswith("a script:")]
    assert {kind: lines for kind, lines in faults.items() if lines} == {}


def test_streets_with_different_names_are_different_lines() -> None:
    """The tooltip shows the name of a street, and the class as a further row; unnamed streets show their class."""
    straight = RoadNetwork.from_segments([41.15, 41.16, 41.17, 41.18], [-8.63] * 4, [0, 1, 2], [1, 2, 3])
    named = straight.replace(street_names=("", "Rua A", "Rua B"), street_of=[1, 2, 0])
    layer = street_layer(named)
    assert list(layer.facts[""]) == ["Rua A", "Rua B", "road"]
    assert list(layer.facts["class"]) == ["road", "road", ""]
    assert street_layer(straight).n_features == 1
    flows = flow_layers(named, [[5.0, 5.0, 5.0]], ["style 0"])[0]
    assert list(flows.facts["street"]) == ["Rua A", "Rua B", ""]
    assert "street" not in flow_layers(straight, [[5.0, 5.0, 5.0]], ["style 0"])[0].facts


def test_routes_of_a_forecast_are_distinct() -> None:
    """A route that repeats most of a more probable one is omitted, whatever its rank."""
    n = 10
    lat, lon = [41.15 + 0.001 * i for i in range(n)] + [41.15], [-8.63] * n + [-8.6]
    network = RoadNetwork.from_segments(lat, lon, [*range(n - 1), 0, 10], [*range(1, n), 10, n - 1])
    whole, most, other = np.arange(9), np.arange(8), np.array([9, 10])
    routes = [(whole, 0.4), (most, 0.3), (other, 0.2), (whole[:1], 0.1)]
    assert [p for _, p in select_distinct(network, routes, 3)] == [0.4, 0.2]
    assert [p for _, p in select_distinct(network, routes, 1)] == [0.4]


def test_maps_have_water_below_and_places_on_top(city: City) -> None:
    lat, lon = city.network.centre
    lake = [[lat, lon], [lat + 9.0, lon], [lat, lon + 9.0], [lat, lon]]
    landmarks = {
        "places": [["Quarter", "quarter", lat, lon], ["<City>", "city", lat, lon]],
        "water": [lake, [[lat, lon], [lat, lon + 0.001]]],
    }
    plain, drawn = (network_page(n).maps[0] for n in (city.network, city.network.replace(landmarks=landmarks)))
    titles = [layer.title for layer in drawn.layers]
    assert titles == ["Lakes", "Rivers", *(layer.title for layer in plain.layers), "Places"]
    assert [layer.kind for layer in (drawn.layers[0], drawn.layers[1], drawn.layers[-1])] == [
        "areas",
        "lines",
        "labels",
    ]
    # Large places come first, so that they are written where names overlap.
    assert list(drawn.layers[-1].facts[""]) == ["<City>", "Quarter"]
    # A lake that extends beyond the roads does not change the view.
    assert drawn.bounds == plain.bounds
    assert map_png(drawn)[1:4] == b"PNG"


def test_the_page_of_a_forecast_begins_with_the_most_probable_outcome(city: City, demos: Demonstrations) -> None:
    network, path = city.network, demos[0].states
    here = int(path[2])
    first, second = network.turn_to[network.out_ptr[here] : network.out_ptr[here] + 2].tolist()
    example = ForecastExample(
        "Trip", path[:3], path[3:], [(first, 0.2), (second, 0.7)], [(path[2:], 0.31)], intents=np.array([0.1, 0.9])
    )
    lead = forecast_page(network, example).lead.replace("\\", "")
    assert lead.startswith("The most probable style is style 1 (90\u00a0%); the most probable turn is ")
    assert "(70\u00a0%)" in lead
    assert lead.endswith("(31\u00a0%).")
    assert forecast_page(network, ForecastExample("Trip", path[:3], path[3:])).lead == ""


def test_percentages_of_a_closure_are_not_escaped(small_city: City, small_fit: DriverFit) -> None:
    demos = small_fit.demos
    busiest = int(np.bincount(demos.states, minlength=small_city.network.n_segments).argmax())
    closure = close_streets(small_city.network, Forecaster(small_fit.mixture, demos), demos, [busiest], least=1)
    page = change_page(closure)

    assert "\\ %" not in prose_text(page.lead)
    assert "\\" not in prose_text(page.lead)
