"""Forecasts of both models on small random MDPs, compared with an enumeration of all trips, and invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.forecast import Forecaster
from limiirl.irl import MaxEnt
from limiirl.irl.destination.model import DestinationMaxEnt
from limiirl.mdp import MDP
from tests.helpers import examples, raises
from tests.oracles.enumeration import Path
from tests.oracles.forecasts import Begun, Trips, make_mixture
from tests.oracles.random_mdps import cases

RHO = np.array([0.7, 0.3])
KINDS = [("anywhere", "none"), ("anywhere", "start"), ("terminal", "none"), ("terminal", "start"), ("ends", "ends")]


def close(result: object, wanted: object) -> None:
    """Assert equality up to the rounding of sums of a few hundred probabilities."""
    np.testing.assert_allclose(result, wanted, rtol=1e-9, atol=1e-12)


class Drawn:
    """A forecaster in a random MDP, and all its trips."""

    def __init__(self, draw: st.DataObject, kind: tuple[str, str], *, costs: bool = False) -> None:
        by_ends = kind[0] == "ends"
        acyclic = {"acyclic": True, "discounts": (1.0,)} if by_ends else {}
        case = draw.draw(cases(columns=(2,), max_length=5, most_paths=120, **acyclic))  # type: ignore[arg-type]
        mdp, thetas = case.mdp, case.thetas
        if costs:
            kinds = ("state_features", "action_features", "edge_features")
            mdp = mdp.replace(**{name: abs(x) for name in kinds if (x := getattr(mdp, name)) is not None})
            thetas = -np.abs(thetas)
        self.rng = np.random.default_rng(draw.draw(st.integers(0, 2**32 - 1)))
        ends = self.rng.integers(1, 4, size=mdp.n_states)
        self.mdp, self.ends, self.thetas, self.kind = mdp, ends, thetas, kind
        self.max_length = mdp.n_states if by_ends else case.max_length
        irl = DestinationMaxEnt(None) if by_ends else MaxEnt(case.max_length, None, stop=kind[0], condition=kind[1])
        self.trips = self.list_trips(mdp)
        demos = Demonstrations.from_lists([[s] for s in range(mdp.n_states) for _ in range(ends[s])])
        self.forecast = Forecaster(make_mixture(irl, mdp, RHO, thetas), demos)
        used = (self.trips.p.sum(axis=1) > 0.0) & (by_ends | (mdp.p0[self.trips.first] > 0.0))
        assume(np.any(used))
        self.used = np.flatnonzero(used)

    def list_trips(self, mdp: MDP) -> Trips:
        """Enumerate the trips in an MDP."""
        if self.kind[0] == "ends":
            prior = self.ends / self.ends.sum()
            return Trips(mdp, self.max_length, self.thetas, RHO, condition="ends", ends=prior)
        return Trips(mdp, self.max_length, self.thetas, RHO, stop=self.kind[0], condition=self.kind[1])

    def with_closures(self, edges: np.ndarray) -> Forecaster:
        """Return the forecaster without some edges; reject the example if it has no valid closure."""
        try:
            return self.forecast.with_closures(edges=edges)
        except InvalidParameter as error:
            assume(error.parameter != "edges")
            raise

    def trip(self) -> Path:
        return self.trips.trips[int(self.rng.choice(self.used))]

    def begun(self) -> tuple[Begun, Demonstrations]:
        """Return a random prefix of a trip, with or without actions."""
        states, edges = self.trip()
        m = int(self.rng.integers(1, len(states) + 1))
        if self.rng.random() < 0.5:
            return Begun(states[:m], None), Demonstrations.from_lists([states[:m]])
        actions = self.mdp.act[list(edges[: m - 1])].tolist()
        return Begun(states[:m], edges[: m - 1]), Demonstrations.from_lists([states[:m]], [actions])


kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(dict.fromkeys(kind)))

# With stop="terminal" most closures are rejected because of dead ends: see the unit tests.
changing = pytest.mark.parametrize("kind", [KINDS[0], KINDS[1], KINDS[4]], ids=["none", "start", "ends"])


@kinds
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_next_states_and_intents(kind: tuple[str, str], data: st.DataObject):
    drawn = Drawn(data, kind)
    for goal in [None, *range(drawn.mdp.n_states)]:
        begun, demos = drawn.begun()
        wanted = drawn.trips.intents(begun, goal)
        if wanted is None:
            with raises(InvalidDemos, parameter="goal", value=goal):
                drawn.forecast.next_states(demos, goal)
            continue
        close(drawn.forecast.intents(demos, goal)[0], wanted)
        result = drawn.forecast.next_states(demos, goal)
        move, stop = drawn.trips.next(begun, goal)
        close(result.probability, [move.get(e, 0.0) for e in result.edge.tolist()])
        np.testing.assert_allclose(result.stop, [stop], rtol=1e-9, atol=1e-10)
        assert set(move) <= set(result.edge.tolist())
        np.testing.assert_array_equal(result.state, drawn.mdp.dst[result.edge])
        np.testing.assert_allclose(result.probability.sum() + result.stop, 1.0, rtol=1e-10)


@kinds
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_many_partial_trips_agree_with_single_ones(kind: tuple[str, str], data: st.DataObject):
    drawn = Drawn(data, kind)
    trips = [drawn.trip() for _ in range(4)]
    parts = Demonstrations.from_lists([states[: 1 + i % len(states)] for i, (states, _) in enumerate(trips)])
    goals = np.array([states[-1] for states, _ in trips])
    together = drawn.forecast.next_states(parts, goals)
    where = drawn.forecast.destinations(parts)
    for i in range(4):
        alone = drawn.forecast.next_states(parts[[i]], int(goals[i]))
        np.testing.assert_array_equal(together[i].edge, alone.edge)
        np.testing.assert_allclose(together[i].probability, alone.probability, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(together[i].stop, alone.stop, rtol=1e-12, atol=1e-14)
        close(where.probability[i], drawn.forecast.destinations(parts[[i]]).probability[0])


@kinds
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_destinations(kind: tuple[str, str], data: st.DataObject):
    drawn = Drawn(data, kind)
    begun, demos = drawn.begun()
    every = list(range(drawn.mdp.n_states))
    wanted = drawn.trips.destinations(begun, every, drawn.ends / drawn.ends.sum())
    result = drawn.forecast.destinations(demos)
    np.testing.assert_array_equal(result.candidates, every)
    close(result.probability[0], wanted)
    np.testing.assert_allclose(result.probability.sum(), 1.0, rtol=1e-12)
    if kind[0] != "ends":
        own = drawn.forecast.destinations(demos, every, "model")
        close(own.probability[0], drawn.trips.destinations(begun, every, None))
    some = drawn.rng.permutation(every)[: 1 + len(every) // 2].tolist()
    prior = drawn.rng.random(len(some))
    wanted = drawn.trips.destinations(begun, some, prior)
    if wanted.sum() == 0.0:
        with raises(InvalidDemos, parameter="candidates"):
            drawn.forecast.destinations(demos, some, prior)
    else:
        close(drawn.forecast.destinations(demos, some, prior).probability[0], wanted)


@kinds
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_flows(kind: tuple[str, str], data: st.DataObject):
    drawn = Drawn(data, kind)
    mdp, trips = drawn.mdp, [drawn.trip() for _ in range(3)]
    starts = np.array([states[0] for states, _ in trips])
    goals = np.append([states[-1] for states, _ in trips[:2]], drawn.rng.integers(mdp.n_states))
    weights = drawn.rng.integers(1, 5, size=3).astype(float)
    result = drawn.forecast.flows(starts, goals, weights)
    edge, state = np.zeros((2, mdp.n_edges)), np.zeros((2, mdp.n_states))
    cut_off = [i for i in range(3) if drawn.trips.joint(drawn.trips.first == starts[i], int(goals[i])).sum() == 0.0]
    for i in set(range(3)) - set(cut_off):
        of_edge, of_state = drawn.trips.flow(int(starts[i]), int(goals[i]))
        edge, state = edge + weights[i] * of_edge, state + weights[i] * of_state
    assert result.cut_off.tolist() == cut_off
    np.testing.assert_allclose(result.edge_by_intent, edge, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(result.state_by_intent, state, rtol=1e-9, atol=1e-11)
    # Conservation: entries plus starts equal exits plus ends.
    kept = np.setdiff1d(np.arange(3), cut_off)
    begun, ended = (np.bincount(x[kept], weights=weights[kept], minlength=mdp.n_states) for x in (starts, goals))
    entered, left = (np.bincount(x, weights=result.edge, minlength=mdp.n_states) for x in (mdp.dst, mdp.src))
    np.testing.assert_allclose(entered + begun, left + ended, rtol=1e-9, atol=1e-11)
    if kind[0] != "ends" and kind[1] == "none":
        own = drawn.forecast.flows(n_trips=10.0)
        for got, listed in zip((own.edge_by_intent, own.state_by_intent), drawn.trips.own_flow(), strict=True):
            np.testing.assert_allclose(got, 10.0 * listed, rtol=1e-9, atol=1e-11)


@kinds
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_routes(kind: tuple[str, str], data: st.DataObject):
    drawn = Drawn(data, kind, costs=True)
    states, _ = drawn.trip()
    start, goal = states[0], states[-1]
    wanted = drawn.trips.routes(start, goal)
    result = drawn.forecast.routes(start, goal, k=3)
    assert len(result) == min(3, len(wanted))
    assert len({tuple(route.edges.tolist()) for route in result}) == len(result)
    for route in result:
        np.testing.assert_allclose(route.probability, wanted[tuple(route.edges.tolist())], rtol=1e-9)
        np.testing.assert_allclose(np.exp(route.log_prob), route.probability, rtol=1e-12)
        assert (route.states[0], route.states[-1]) == (start, goal)
        np.testing.assert_allclose(route.intents.sum(), 1.0, rtol=1e-12)
    # With so few routes, all of them are enumerated for every discount.
    assert all(route.exact for route in result)
    best = sorted(wanted.values(), reverse=True)[:3]
    np.testing.assert_allclose([route.probability for route in result], best, rtol=1e-9)


@pytest.mark.parametrize("kind", [("anywhere", "none"), ("ends", "ends")], ids=["anywhere", "ends"])
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_route_is_the_most_likely_of_the_intents_best_routes(kind: tuple[str, str], data: st.DataObject):
    drawn = Drawn(data, kind, costs=True)
    states, _ = drawn.trip()
    start, goal = states[0], states[-1]
    assume(drawn.mdp.gamma == 1.0)
    rows = np.flatnonzero((drawn.trips.first == start) & (drawn.trips.last == goal))
    p = drawn.trips.p[rows]
    # If several routes tie for an intent's best, any of them may be compared with the other intents' routes.
    own = [p[p[:, k] >= p[:, k].max() * (1 - 1e-9)].sum(axis=1) for k in range(p.shape[1])]
    least, most = max(each.min() for each in own), max(each.max() for each in own)
    try:
        route = drawn.forecast.route(start, goal)
    except InvalidParameter as error:
        assert error.parameter == "goal"  # noqa: PT017 (rare: every cheapest route exceeds max_length)
        return
    mine = next(i for i in rows if drawn.trips.trips[i][1] == tuple(route.edges.tolist()))
    assert least * (1 - 1e-9) <= drawn.trips.p[mine].sum() <= most * (1 + 1e-9)
    (demo,) = drawn.forecast.predict_routes([start], [goal])
    np.testing.assert_array_equal(demo.states, route.states)
    assert int(np.argmax(drawn.trips.p[mine])) == demo.label or np.ptp(drawn.trips.p[mine]) < 1e-12


@changing
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_closing_unused_edges_changes_nothing(kind: tuple[str, str], data: st.DataObject):
    drawn = Drawn(data, kind)
    states, _ = drawn.trip()
    start, goal = states[0], states[-1]
    before = drawn.forecast.flows([start], [goal])
    used = before.edge > 0.0
    unused = np.flatnonzero(~used & ~np.isin(drawn.mdp.pair_of_edge, drawn.mdp.pair_of_edge[used]))
    closed = drawn.with_closures(unused)
    change = drawn.forecast.compare(closed, [start], [goal])
    assert change.cut_off.size == 0
    np.testing.assert_allclose(change.edge, 0.0, atol=1e-10)
    np.testing.assert_allclose(change.state, 0.0, atol=1e-10)
    one, two = (f.next_states([start], goal) for f in (drawn.forecast, closed))
    close(one.probability[np.isin(one.edge, closed.edges)], two.probability)


@changing
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_closures_keep_the_demand_and_change_the_routes(kind: tuple[str, str], data: st.DataObject):
    drawn = Drawn(data, kind)
    states, _ = drawn.trip()
    start, goal = states[0], states[-1]
    intents = drawn.trips.intents(Begun((start,), None), goal)
    closed = drawn.with_closures(np.flatnonzero(drawn.rng.random(drawn.mdp.n_edges) < 0.3))
    left = drawn.list_trips(closed.mdp)
    change = drawn.forecast.compare(closed, [start], [goal], [2.0])
    joint = left.joint(left.first == start, goal)
    if joint.sum() == 0.0:
        assert change.cut_off.tolist() == [0]
        assert change.trips_lost == 2.0
        np.testing.assert_array_equal(change.after.edge, 0.0)
        return
    edge = left.flow(start, goal)[0] * (intents / (joint / joint.sum()))[:, None]
    np.testing.assert_allclose(change.after.edge_by_intent[:, closed.edges], 2.0 * edge, rtol=1e-9, atol=1e-11)
    close(closed.intents([start], goal)[0], intents)
    where = closed.destinations([start]).probability[0]
    np.testing.assert_allclose(where.sum(), 1.0, rtol=1e-12)
