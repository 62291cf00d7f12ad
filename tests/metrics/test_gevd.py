"""GEVD: the transport against other solvers, hand-solved ensembles, bounds, pictures, and errors."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from limiirl.errors import InvalidParameter
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mdp.planning import optimal_values
from limiirl.metrics import GEVD, dard, epic, evd, evd_interval, gevd, ile
from limiirl.metrics.gevd import solve_transport, transport_cost
from limiirl.worlds import ElementWorld
from tests.helpers import raises

mpl.use("agg")

Float = NDArray[np.float64]


def instance(seed: int) -> tuple[Float, Float, Float]:
    """Costs (2 to 7, 2 to 7), on any scale, with weights of two sums of 1."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2, 8, size=2)
    costs = rng.random((n, m)) ** rng.choice([1, 4]) * 10.0 ** rng.integers(-6, 7)
    costs[rng.random((n, m)) < 0.2] = 0.0
    rows, columns = (0.01 + rng.random(size) ** 3 for size in (n, m))
    return costs, rows / rows.sum(), columns / columns.sum()


@pytest.mark.parametrize("seed", range(60))
def test_transport_equals_pots_and_all_constraints_at_once(seed: int) -> None:
    ot = pytest.importorskip("ot", reason="needs POT, the oracle of optimal transport: pip install POT")
    costs, rows, columns = instance(seed)
    flow = solve_transport(costs, rows, columns)
    np.testing.assert_allclose(flow.sum(axis=1), rows, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(flow.sum(axis=0), columns, rtol=0.0, atol=1e-12)
    assert flow.min() >= 0.0
    value = (flow * costs).sum()
    assert value == transport_cost(costs, rows, columns)
    np.testing.assert_allclose(value, ot.emd2(rows, columns, costs), rtol=1e-9, atol=1e-12 * costs.max())
    # A second formulation: inequalities, which hold with equality because both sides sum to 1; interior point.
    n, m = costs.shape
    sums = [np.kron(np.eye(n), np.ones(m)), -np.kron(np.ones((1, n)), np.eye(m))]
    other = linprog(
        costs.ravel() / costs.max(),
        A_ub=np.vstack(sums),
        b_ub=np.concatenate([rows, -columns]) + 1e-15,
        method="highs-ipm",
    )
    np.testing.assert_allclose(value, other.fun * costs.max(), rtol=0.0, atol=1e-6 * costs.max())


@pytest.mark.parametrize("seed", range(40))
def test_transport_equals_min_cost_flow_on_integers(seed: int) -> None:
    """The paper's construction, with a source and a sink. Networkx is exact on integers."""
    networkx = pytest.importorskip("networkx", reason="needs networkx for the min-cost flow")
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2, 6, size=2)
    costs = rng.integers(0, 1000, size=(n, m))
    rows, columns = (rng.multinomial(1000, rng.dirichlet(np.ones(size))) for size in (n, m))
    graph = networkx.DiGraph()
    graph.add_node("S", demand=-1000)
    graph.add_node("T", demand=1000)
    for j in range(m):
        graph.add_edge("S", ("learned", j), capacity=int(columns[j]), weight=0)
        for i in range(n):
            graph.add_edge(("learned", j), ("true", i), capacity=1000, weight=int(costs[i, j]))
    for i in range(n):
        graph.add_edge(("true", i), "T", capacity=int(rows[i]), weight=0)
    expected = networkx.cost_of_flow(graph, networkx.min_cost_flow(graph))
    flow = solve_transport(costs, rows / 1000, columns / 1000)
    np.testing.assert_allclose((flow * costs).sum(), expected / 1000, rtol=1e-12, atol=1e-10)


def test_tiny_weights_and_costs_are_not_lost() -> None:
    """Solvers with absolute tolerances take costs of 1e-9 for equal; a detour of 2e-6 must be seen beside 1."""
    costs = np.array([[1e-6, 0.0, 1.0], [0.0, 3e-6, 1.0], [1.0, 1.0, 0.0]])
    third = np.full(3, 1 / 3)
    for scale in (1e-12, 1.0, 1e12):
        np.testing.assert_allclose(
            solve_transport(scale * costs, third, third)[0], [0.0, 1 / 3, 0.0], rtol=0.0, atol=1e-12
        )
    weights = np.array([1e-7, 1.0 - 1e-7])
    np.testing.assert_allclose(transport_cost(1.0 - np.eye(2), weights, weights[::-1]), 1.0 - 2e-7, rtol=1e-12)


def fork(gamma: float = 0.5, starts: tuple[float, ...] = (1.0, 0.0, 0.0)) -> MDP:
    """From 0 to the terminal states 1 or 2."""
    return MDP.from_edges([0, 0], [1, 2], 3, gamma=gamma, p0=starts, state_features=np.eye(3))


A, B, BOTH = [0.0, 4.0, 2.0], [0.0, 0.0, 4.0], [0.0, 1.0, 1.0]


def test_by_hand() -> None:
    """EVD(A, B) is 1 and EVD(B, A) is 2; a quarter of B must be given to A's policy."""
    result = gevd(fork(), RewardEnsemble([0.5, 0.5], [A, B]), RewardEnsemble([0.75, 0.25], [A, B]))
    np.testing.assert_array_equal(result.evd, [[0.0, 1.0], [2.0, 0.0]])
    np.testing.assert_allclose(result.flow, [[0.5, 0.0], [0.25, 0.25]], rtol=0.0, atol=1e-15)
    np.testing.assert_allclose(result.value, 0.5, rtol=1e-14)
    # The worst policies lose 1 and 2; the rewards range over 4 both, 0 included.
    np.testing.assert_allclose(result.bounds, (0.0, 1.5), rtol=1e-14)
    np.testing.assert_allclose([result.normalised, result.normalised_tight], [0.5 / 8.0, 1 / 3], rtol=1e-14)
    assert result.interval == (result.value, result.value)
    assert result.distance == "evd"


def test_a_swapped_orientation_is_detected() -> None:
    one, other = RewardEnsemble([1.0], [A]), RewardEnsemble([1.0], [B])
    assert gevd(fork(), one, other).value == 1.0
    assert gevd(fork(), other, one).value == 2.0
    result = gevd(fork(), one, RewardEnsemble([0.5, 0.5], [A, B]))
    assert result.evd.shape == result.flow.shape == (1, 2)
    np.testing.assert_array_equal(result.evd, [[0.0, 1.0]])


def test_matrix_contains_the_distances_of_all_pairs() -> None:
    world = ElementWorld()
    learned = RewardEnsemble([0.7, 0.3], [world.ensemble.thetas[0] - 0.3, [-1.0, 0.0, -2.0, -3.0, -4.0]])
    for name, distance in (("evd", evd), ("ile", ile), ("epic", epic), ("dard", dard)):
        result = gevd(world.mdp, world.ensemble, learned, distance=name)
        pairs = [[distance(world.mdp, i, j) for j in learned.thetas] for i in world.ensemble.thetas]
        np.testing.assert_allclose(result.evd, pairs, rtol=1e-13, atol=0.0)
        own = gevd(world.mdp, world.ensemble, learned, distance=distance)
        np.testing.assert_array_equal(own.evd, pairs)
        np.testing.assert_allclose(own.value, result.value, rtol=1e-13)
        assert (own.distance, own.bounds) == (name, (0.0, math.inf))
        assert math.isnan(own.normalised)
        assert result.bounds[0] <= result.value <= result.bounds[1]
        assert 0.0 < result.normalised <= result.normalised_tight <= 1.0


def test_zero_against_itself_split_and_reordered() -> None:
    world = ElementWorld(seed=3)
    truth = RewardEnsemble([0.2, 0.3, 0.5], world.ensemble.thetas)
    split = RewardEnsemble([0.1, 0.3, 0.5, 0.1], truth.thetas[[0, 1, 2, 0]])
    shuffled = RewardEnsemble(split.weights[[3, 1, 0, 2]], 2.5 * split.thetas[[3, 1, 0, 2]])
    for other in (truth, split, shuffled):
        for one, two in ((truth, other), (other, truth)):
            result = gevd(world.mdp, one, two)
            assert (result.value, result.normalised, result.normalised_tight) == (0.0, 0.0, 0.0)
            assert result.interval == (0.0, 0.0)


def test_intents_of_no_weight_stay_in_the_matrix_only() -> None:
    world = ElementWorld()
    thetas = world.ensemble.thetas
    plain = gevd(world.mdp, RewardEnsemble([0.4, 0.6], thetas[:2]), RewardEnsemble([0.5, 0.5], thetas[1:]))
    # The one without weight earns most: it must not enter the bounds either.
    more = np.vstack([50.0 * thetas[2], thetas[:2]])
    result = gevd(world.mdp, RewardEnsemble([0.0, 0.4, 0.6], more), RewardEnsemble([0.5, 0.0, 0.5], thetas[[1, 0, 2]]))
    assert result.flow.shape == result.evd.shape == (3, 3)
    np.testing.assert_array_equal(result.flow[0], 0.0)
    np.testing.assert_array_equal(result.flow[:, 1], 0.0)
    np.testing.assert_array_equal(result.flow[1:, [0, 2]], plain.flow)
    assert result.evd[0, 0] > 0.0
    np.testing.assert_allclose(
        [result.value, *result.bounds, result.normalised], [plain.value, *plain.bounds, plain.normalised], rtol=1e-12
    )
    assert all(pair.true > 0 and pair.learned != 1 for pair in result.largest(9))


def test_ties_give_an_interval() -> None:
    world = ElementWorld()
    truth, zero = world.ensemble, RewardEnsemble([1.0], [np.zeros(5)])
    result = gevd(world.mdp, truth, zero)
    ends = np.array([evd_interval(world.mdp, theta, np.zeros(5)) for theta in truth.thetas])
    np.testing.assert_allclose(result.interval, (truth.weights @ ends)[[0, 2]], rtol=1e-12)
    np.testing.assert_allclose(result.value, 185.3, rtol=0.0, atol=0.1)
    assert "0 to 970.463 over tie-breaking rules" in str(result)
    # Half of what is tied goes where it does good.
    tied = gevd(fork(), RewardEnsemble([0.5, 0.5], [A, B]), RewardEnsemble([1.0], [BOTH]))
    np.testing.assert_allclose([*tied.interval, tied.value], [0.0, 1.5, 0.75], rtol=1e-14, atol=0.0)


def test_the_papers_bound_is_over_what_can_be_reached() -> None:
    """State 3, which costs 50, leads to 4, which pays 100, but is not reachable."""
    features = np.diag([-1.0, 4.0, 2.0, -50.0, 100.0])
    mdp = MDP.from_edges([0, 0, 3], [1, 2, 4], 5, gamma=0.5, p0=[1.0, 0, 0, 0, 0], state_features=features)
    truth, learned = RewardEnsemble([1.0], [np.ones(5)]), RewardEnsemble([1.0], [[0.0, 0.0, 1.0, 0.0, 0.0]])
    result = gevd(mdp, truth, learned)
    assert (result.value, result.normalised) == (1.0, 1.0 / (5.0 / 0.5))
    # For ILE every state is a start, 5 of them.
    assert gevd(mdp, truth, learned, distance="ile").normalised == 1.0 / (5 * 150.0 / 0.5)


def test_zero_is_earned_after_the_end_and_edges_earn_too() -> None:
    mdp = MDP.from_edges([0, 0], [1, 2], 3, gamma=0.5, p0=[1.0, 0, 0], edge_features=[3.0, 5.0])
    result = gevd(mdp, RewardEnsemble([1.0], [[1.0]]), RewardEnsemble([1.0], [[-1.0]]))
    assert (result.value, result.normalised, result.normalised_tight) == (2.0, 2.0 / (5.0 / 0.5), 1.0)
    pays = MDP.from_edges([0, 0], [1, 2], 3, gamma=0.5, p0=[1.0, 0, 0], state_features=[3.0, 5.0, 4.0])
    result = gevd(pays, RewardEnsemble([1.0], [[1.0]]), RewardEnsemble([1.0], [[-1.0]]))
    assert (result.value, result.normalised) == (0.5, 0.5 / (5.0 / 0.5))
    # Without an end only what is earned counts.
    loop = MDP.from_edges([0, 0], [0, 0], 1, action=[0, 1], gamma=0.5, edge_features=[3.0, 5.0])
    result = gevd(loop, RewardEnsemble([1.0], [[1.0]]), RewardEnsemble([1.0], [[-1.0]]))
    assert (result.value, result.normalised, result.normalised_tight) == (4.0, 1.0, 1.0)


def test_nothing_to_lose() -> None:
    """A reward of nothing at all: 0 / 0 is 0."""
    nothing = RewardEnsemble([1.0], [np.zeros(3)])
    for gamma in (0.5, 1.0):
        result = gevd(fork(gamma), nothing, RewardEnsemble([1.0], [A]))
        assert (result.value, result.normalised, result.normalised_tight, result.bounds) == (0.0, 0.0, 0.0, (0.0, 0.0))


def test_without_discount_the_papers_bound_is_infinite() -> None:
    result = gevd(fork(1.0), RewardEnsemble([1.0], [A]), RewardEnsemble([1.0], [B]))
    assert (result.value, result.bounds, result.normalised_tight) == (2.0, (0.0, 2.0), 1.0)
    assert math.isnan(result.normalised)
    assert result.to_dict()["normalised"] is None
    waiting = MDP.from_edges([0, 0], [0, 1], 2, gamma=1.0, p0=[1.0, 0.0], state_features=[-1.0, 0.0])
    result = gevd(waiting, RewardEnsemble([1.0], [[1.0]]), RewardEnsemble([0.5, 0.5], [[1.0], [0.0]]))
    assert (result.value, result.bounds, result.interval) == (0.5, (0.0, math.inf), (0.0, math.inf))
    assert math.isnan(result.normalised_tight)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["interval"] == [0.0, None]


def test_infinite_costs_are_avoided_where_they_can_be() -> None:
    costs = np.array([[1.0, np.inf, 3.0], [2.0, 5.0, np.inf], [np.inf, 0.0, 7.0]])
    third = np.full(3, 1 / 3)
    # The finite pairings are 0-0, 1-1, 2-2 (13) and 0-2, 1-0, 2-1 (5).
    np.testing.assert_allclose(transport_cost(costs, third, third), 5 / 3, rtol=1e-12)
    costs[0, 2] = np.inf
    np.testing.assert_allclose(transport_cost(costs, third, third), 13 / 3, rtol=1e-12)
    costs[2, 2] = np.inf
    assert transport_cost(costs, third, third) == math.inf


def test_the_largest_contributions() -> None:
    flow = np.array([[0.5, 0.0], [0.3, 0.2]])
    result = GEVD(1.3, 0.1, 0.2, (0.0, 6.5), (1.3, 1.3), flow, np.array([[1.0, 9.0], [1.0, 2.5]]), "evd")
    assert [tuple(pair) for pair in result.largest(2)] == [(0, 0, 0.5, 1.0, 0.5), (1, 1, 0.2, 2.5, 0.5)]
    assert len(result.largest()) == 3
    assert result.largest(0) == ()
    assert result.largest(3)[2].contribution == 0.3
    with raises(InvalidParameter, parameter="n"):
        result.largest(-1)
    text = str(result).splitlines()
    assert text[0] == "GEVD 1.3 (EVD), 20 % of the bound 6.5, 10 % of the paper's bound"
    assert len(text) == 5
    assert text[2].split() == ["0", "0", "0.5", "1", "0.5"]


def test_everything_goes_to_json() -> None:
    world = ElementWorld()
    result = gevd(world.mdp, world.ensemble, RewardEnsemble([1.0], [np.zeros(5)]))
    read = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert read["value"] == result.value
    assert read["bounds"] == list(result.bounds)
    assert read["interval"] == list(result.interval)
    np.testing.assert_array_equal(read["flow"], result.flow)
    np.testing.assert_array_equal(read["evd"], result.evd)
    assert read["largest"][0]["contribution"] == result.largest(1)[0].contribution
    assert read["distance"] == "evd"


def test_a_matrix_of_distances() -> None:
    truth, learned = RewardEnsemble([0.5, 0.5], [A, B]), RewardEnsemble([1.0], [A])
    result = gevd(fork(), truth, learned, distance=[[3.0], [1.0]])
    assert (result.value, result.distance) == (2.0, "matrix")
    for distance, index in (
        ([[3.0, 1.0]], None),
        ([[3.0], [-1.0]], (1, 0)),
        ([[np.nan], [1.0]], (0, 0)),
        ([["a"], ["b"]], None),
        ("emd", None),
        (lambda mdp, one, other: -1.0, (0, 0)),
    ):
        with raises(InvalidParameter, parameter="distance", index=index):
            gevd(fork(), truth, learned, distance=distance)


def test_a_callable_is_given_the_true_reward_first() -> None:
    truth, learned = RewardEnsemble([1.0], [A]), RewardEnsemble([1.0], [B])
    seen = []

    def gap(mdp: MDP, true: Float, other: Float) -> float:
        seen.append((mdp, true.tolist(), other.tolist()))
        return float(np.abs(true - other).sum())

    mdp = fork()
    result = gevd(mdp, truth, learned, distance=gap)
    assert seen == [(mdp, A, B)]
    assert (result.value, result.distance) == (6.0, "gap")


def test_ensembles_that_do_not_fit() -> None:
    truth = RewardEnsemble([1.0], [A])
    with raises(InvalidParameter, parameter="learned", value=(1, 2)):
        gevd(fork(), truth, RewardEnsemble([1.0], [[1.0, 2.0]]))
    with raises(InvalidParameter, parameter="truth", value=(1, 1)):
        gevd(fork(), RewardEnsemble([1.0], [[1.0]]), truth)
    with raises(InvalidParameter, parameter="truth"):
        gevd(fork(), [A], truth)  # type: ignore[arg-type]
    with raises(InvalidParameter, parameter="weights", value=0.9):
        gevd(fork(), truth, RewardEnsemble([0.5, 0.4], [A, B]))
    with raises(InvalidParameter, parameter="weights", value=-0.5, index=1):
        gevd(fork(), truth, RewardEnsemble([1.5, -0.5], [A, B]))
    lost = MDP.from_edges([0, 1], [1, 0], gamma=1.0, state_features=[[-1.0], [-1.0]])
    pair = RewardEnsemble([0.5, 0.5], [[0.0], [1.0]])
    with raises(InvalidParameter, parameter="truth", index=1):
        gevd(lost, pair, pair)
    with raises(InvalidParameter, parameter="learned", index=1):
        gevd(lost, RewardEnsemble([1.0], [[0.0]]), pair)


def test_weights_are_renormalised() -> None:
    """Sums may miss 1 by 1e-8; the two sides would then not match."""
    world = ElementWorld()
    weights = np.full(3, 1 / 3)
    result = gevd(world.mdp, RewardEnsemble(weights + 3e-9, world.ensemble.thetas), world.ensemble)
    np.testing.assert_allclose(result.flow.sum(), 1.0, rtol=1e-14)
    assert result.value == 0.0


def test_the_tolerance_of_ties_is_handed_on() -> None:
    mdp = MDP.from_edges([0, 0, 0], [1, 2, 3], 4, gamma=0.5, p0=[1.0, 0, 0, 0], state_features=np.eye(4))
    truth, learned = RewardEnsemble([1.0], [[0.0, 4.0, 2.0, 0.0]]), RewardEnsemble([1.0], [[0.0, 1.0, 1.0 - 1e-4, 0.0]])
    assert gevd(mdp, truth, learned).value == 0.0
    result = gevd(mdp, truth, learned, tol=1e-2)
    assert (result.value, result.interval) == (0.5, (0.0, 1.0))


def test_the_bound_is_what_the_worst_policies_lose() -> None:
    world = ElementWorld()
    truth = RewardEnsemble([0.2, 0.3, 0.5], world.ensemble.thetas * [[1.0], [2.0], [3.0]])
    result = gevd(world.mdp, truth, world.ensemble)
    lost = [
        world.mdp.p0 @ (optimal_values(world.mdp, theta) - optimal_values(world.mdp, theta, minimise=True))
        for theta in truth.thetas
    ]
    np.testing.assert_allclose(result.bounds, (0.0, truth.weights @ lost), rtol=1e-12)
    np.testing.assert_allclose(result.normalised, result.value / 3000.0, rtol=1e-12)


def test_plot_draws_every_ribbon() -> None:
    import matplotlib.pyplot as plt
    from matplotlib.patches import PathPatch, Rectangle

    result = gevd(fork(), RewardEnsemble([0.5, 0.5], [A, B]), RewardEnsemble([0.75, 0.25], [A, B]))
    figure = result.plot()
    ax = figure.axes[0]
    ribbons = [patch for patch in ax.patches if isinstance(patch, PathPatch)]
    assert len(ribbons) == 3
    widths = sorted(float(np.ptp(patch.get_path().vertices[[0, -1], 1])) for patch in ribbons)
    np.testing.assert_allclose(widths, [0.25, 0.25, 0.5], rtol=1e-12)
    # At both ends the ribbons of an intent lie one below the other, and fill its bar.
    for end, bars in (([0, -1], [(0.0, 0.75), (0.87, 1.12)]), ([3, 4], [(0.0, 0.5), (0.62, 1.12)])):
        spans = sorted(tuple(-patch.get_path().vertices[end, 1]) for patch in ribbons)
        assert all(one[1] <= other[0] + 1e-12 for one, other in pairwise(spans))
        filled = [span for low, high in bars for span in spans if low - 1e-9 <= span[0] and span[1] <= high + 1e-9]
        assert filled == spans
    heights = [patch.get_height() for patch in ax.patches if isinstance(patch, Rectangle)]
    np.testing.assert_allclose(heights, [0.75, 0.25, 0.5, 0.5], rtol=1e-12)
    texts = [text.get_text() for text in ax.texts]
    assert "learned 0  (75 %)" in texts
    assert "true 1  (50 %)" in texts
    own, place = plt.subplots()
    assert result.plot(place) is own
    # A GEVD of nothing, with a single intent on each side.
    assert gevd(fork(), RewardEnsemble([1.0], [A]), RewardEnsemble([1.0], [A])).plot().axes
    plt.close("all")


def test_a_pair_that_costs_a_trillion_hides_nothing():
    costs = np.array([[1e12, 1.0, 5.0], [2.0, 1e12, 3.0], [4.0, 2.0, 1e12]])
    third = np.full(3, 1 / 3)
    np.testing.assert_allclose((solve_transport(costs, third, third) * costs).sum(), 8 / 3, rtol=1e-9)
