"""Split-and-merge moves escape local maxima, never lower the objective, and leave global maxima unchanged."""

import itertools
import warnings

import numpy as np
import pytest

from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, RewardEnsemble
from limiirl.errors import ConvergenceWarning, DegenerateIntentWarning, InvalidParameter
from limiirl.irl.problem import make_problem
from limiirl.mixture.em import Settings, Solution, Start, run
from limiirl.mixture.restarts import cheapest_merger, propose_moves, refine, split_in_two
from tests.helpers import raises
from tests.oracles.mixture import crossings, walks

# Three kinds of walks: by 6; by 1 and 4; by 2 and 5. No single reward has the last two without 1 and 5, 2 and 4.
FORKS = MDP.from_edges([0, 0, 0, 1, 2, 3, 3], [1, 2, 6, 3, 3, 4, 5], p0=[1, 0, 0, 0, 0, 0, 0])
KINDS = [[0, 6], [0, 1, 3, 4], [0, 2, 3, 5]]
WALKS = Demonstrations.from_lists(KINDS * 6)
IRL = MaxEnt(4, bounds=(-4, 4))
# Rewards without cost or benefit end on the bounds, which these tests do not examine.
pytestmark = pytest.mark.filterwarnings("ignore::limiirl.errors.BoundWarning")
AWAY = np.array([0, 0, 0, 0, 0, 0, -4.0])
# Two intents for the first kind, one for the others.
BAD = RewardEnsemble(np.ones(3) / 3, np.array([-AWAY, -0.9 * AWAY, AWAY]))


def fit_mixture(groups=None, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DegenerateIntentWarning)
        given = {"n_intents": 3, "irl": IRL, "init": BAD, "random_state": 0, "refine": "split_merge"}
        return IntentMixture(**given | parameters).fit(FORKS, WALKS, groups=groups)


def find_moves(mix) -> list:
    return [entry for entry in mix.history_ if entry.event.startswith("split")]


@pytest.mark.slow
@pytest.mark.parametrize("irl", [IRL, MaxCausalEnt(bounds=(-4, 4))], ids=["MaxEnt", "MaxCausalEnt"])
def test_a_move_escapes_a_local_maximum(irl):
    stuck, free = fit_mixture(irl=irl, refine=None), fit_mixture(irl=irl)
    assert len(set(stuck.labels_[:3])) == 2
    assert len(set(free.labels_[:3])) == 3
    assert free.objective_ > stuck.objective_ + 0.1
    assert find_moves(free)
    assert not find_moves(stuck)


@pytest.mark.parametrize("n_intents", [2, 4])
@pytest.mark.parametrize("init", ["kmeans", "random_rewards"])
def test_the_objective_never_decreases(n_intents, init):
    plain = fit_mixture(n_intents=n_intents, init=init, refine=None, max_iter=20)
    mix = fit_mixture(n_intents=n_intents, init=init, max_iter=20)
    for before, after in itertools.pairwise(mix.history_[1:]):
        assert after.objective >= before.objective - 1e-9 * abs(before.objective)
        assert after.iteration > before.iteration
    assert mix.objective_ >= plain.objective_
    assert mix.history_[-1].objective == mix.objective_
    assert mix.n_iter_ == mix.history_[-1].iteration
    assert [entry.objective for entry in mix.history_[: len(plain.history_)]] == [e.objective for e in plain.history_]


@pytest.mark.parametrize("ridge", [0.05, 0.2])
def test_a_move_that_gains_less_than_its_penalty_is_rejected(ridge):
    """There are moves that raise the likelihood; the ridge takes more than that from the objective."""
    ready = make_problem(MaxEnt(4, bounds=(-4, 4), ridge=ridge), FORKS, WALKS)
    start = Start(np.ones(3) / 3, np.random.default_rng(0).uniform(-2, 2, size=(3, 7)))
    settings = Settings(max_iter=200, resp_tol=1e-5)
    result = run(ready, start, settings)
    assert result.converged
    offered = propose_moves(ready, result, settings)
    assert offered
    assert min(move.gain for move in offered) > 0.2
    assert refine(ready, result, settings) is result


def test_moves_are_reported_and_deterministic():
    seen = []
    mix = fit_mixture(progress=lambda *report: seen.append(report))
    assert [done for done, _, _ in seen] == [entry.iteration for entry in mix.history_]
    again = fit_mixture()
    np.testing.assert_array_equal(again.thetas_, mix.thetas_)
    assert [entry.event for entry in again.history_] == [entry.event for entry in mix.history_]


def test_groups_are_split_as_units():
    groups = np.repeat(np.arange(6), 3)
    mixed = np.tile([0, 1, 2], 6)
    by_kind = fit_mixture(groups=mixed * 10 + groups)  # each walk by itself, under another name
    assert len(set(by_kind.labels_[:3])) == 3
    together = fit_mixture(groups=groups)  # every group has all three kinds: there is one intent
    assert not find_moves(together)


def test_an_empty_intent_is_refilled():
    start = RewardEnsemble([0.5, 0.5, 0.0], np.array([-AWAY, AWAY, -AWAY + np.eye(7)[1]]))
    mix = fit_mixture(init=start, degenerate="keep")
    assert len(set(mix.labels_[:3])) == 3


def test_no_move_for_one_intent_or_one_point():
    assert not find_moves(fit_mixture(n_intents=1, init="kmeans"))
    assert fit_mixture(max_iter=0).history_[-1].iteration == 0
    same = Demonstrations.from_lists([[0, 6]] * 5)
    ready = make_problem(IRL, FORKS, same)
    assert propose_moves(ready, run(ready, Start(np.ones(2) / 2, BAD.thetas[:2]), Settings()), Settings()) == []


def test_a_global_maximum_is_unchanged():
    demos, _ = walks(80, seed=3)
    ready = make_problem(MaxEnt(7, bounds=(-5, 5)), crossings(), demos)
    thetas = np.array([[0.5, 1.5, -0.5], [0.4, -0.5, 1.2]])
    result = run(ready, Start(np.array([0.6, 0.4]), thetas), Settings())
    assert propose_moves(ready, result, Settings()) == []  # none raises the likelihood
    assert refine(ready, result, Settings()) is result


def test_the_cheapest_merger_equals_enumeration():
    rng = np.random.default_rng(1)
    log_p, rho = rng.normal(size=(20, 5)) * 3, rng.dirichlet(np.ones(5))
    value, kept, gone = cheapest_merger(log_p, rho, split=1)
    every = {}
    for i, j in itertools.permutations(range(5), 2):
        if {i, j} != {1, 4}:
            changed = rho.copy()
            changed[i] += changed[j]
            changed[j] = 0.0
            every[i, j] = float(np.sum(np.log(np.exp(log_p) @ changed)))
    assert max(every, key=every.get) == (kept, gone)
    np.testing.assert_allclose(value, every[kept, gone], rtol=1e-10)


def test_the_gain_of_a_move_is_exact():
    ready = make_problem(IRL, FORKS, WALKS)
    stuck = run(ready, Start(BAD.weights, BAD.thetas), Settings())
    for move in propose_moves(ready, stuck, Settings()):
        np.testing.assert_allclose(move.start.rho.sum(), 1.0, rtol=1e-12)
        log_p = ready.log_prob(move.start.thetas) + np.log(move.start.rho)
        reached = float(np.sum(np.logaddexp.reduce(log_p, axis=1)))
        np.testing.assert_allclose(reached - len(WALKS) * stuck.log_likelihood, move.gain, rtol=1e-8)


def test_splits_use_members_only():
    points = np.array([[0.0], [0.1], [1.0], [1.1], [50.0]])
    halves = split_in_two(points, np.array([1.0, 1.0, 1.0, 1.0, 0.0]), seed=0)
    assert halves[0, 0] == halves[1, 0] != halves[2, 0] == halves[3, 0]
    assert split_in_two(points[[0, 0, 4]], np.array([1.0, 1.0, 0.0]), seed=0) is None


def test_refine_is_checked():
    with raises(InvalidParameter, parameter="refine", value="anneal"):
        fit_mixture(refine="anneal")


def test_refine_returns_a_single_intent_unchanged():
    result = Solution(np.ones(1), AWAY[None], np.ones((18, 1)), -1.0, -1.0, True)
    assert refine(make_problem(IRL, FORKS, WALKS), result, Settings()) is result
