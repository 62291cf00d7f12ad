"""Dynamic programmes and inequalities of the theory, compared with enumerations of small random MDPs."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from limiirl.theory import PathSet, Quantities, feature_distribution, feature_extremes
from limiirl.theory.estimates import all_clouds, clouds_of_demos, distinct, quantities
from limiirl.theory.feature_sets import STOPS
from tests.helpers import examples
from tests.oracles.random_mdps import cases
from tests.oracles.theory import Listed, margin


@dataclass(frozen=True)
class Problem:
    paths: PathSet
    listed: Listed
    thetas: np.ndarray
    rng: np.random.Generator


@st.composite
def problems(draw, n_intents=2, most_paths=150, **kinds):
    case = draw(cases(columns=(3,), max_length=4, most_paths=most_paths, **kinds))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    supports = rng.random((n_intents, case.mdp.n_pairs)) < draw(st.sampled_from((0.4, 0.7, 1.0)))
    stop, complete = draw(st.sampled_from(STOPS)), draw(st.booleans())
    paths = PathSet(case.mdp, supports, case.max_length, stop, complete)
    return Problem(paths, Listed(case.mdp, supports, case.max_length, stop, complete), case.thetas, rng)


def log_of(mass):
    with np.errstate(divide="ignore"):
        return np.log(mass)


@settings(max_examples=examples(150))
@given(problems())
def test_masses_are_sums_over_all_trajectories(problem):
    paths, listed = problem.paths, problem.listed
    inside = listed.q @ listed.inside
    np.testing.assert_allclose(paths.log_Q, log_of(inside), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(paths.log_Q_other, log_of(listed.q @ ~listed.inside), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(paths.log_Q_all, log_of(listed.q.sum()), rtol=1e-12, atol=1e-12)


@settings(max_examples=examples(150))
@given(problems())
def test_extremes_equal_enumeration(problem):
    paths, listed = problem.paths, problem.listed
    weights = listed.F @ problem.thetas.T
    for k in range(paths.n_intents):
        mine = listed.inside[:, k]
        result = feature_extremes(paths, k, problem.thetas)
        expected = (
            (result.inside_min, weights[mine].min(axis=0, initial=np.inf)),
            (result.inside_max, weights[mine].max(axis=0, initial=-np.inf)),
            (result.outside_max, weights[~mine].max(axis=0, initial=-np.inf)),
        )
        for value, brute in expected:
            np.testing.assert_allclose(value, brute, rtol=1e-12, atol=1e-12)


@settings(max_examples=examples(100))
@given(problems())
def test_contains_equals_enumeration(problem):
    listed = problem.listed
    assume(len(listed.listed) > 0)
    every = listed.demos(problem.paths.mdp, list(range(len(listed.listed))))
    np.testing.assert_array_equal(problem.paths.contains(every), listed.inside)


@settings(max_examples=examples(100))
@given(problems())
def test_feature_distribution_equals_enumeration(problem):
    for k in range(problem.paths.n_intents):
        distribution = feature_distribution(problem.paths, k)
        mine = np.flatnonzero(problem.listed.inside[:, k])
        np.testing.assert_allclose(
            np.exp(distribution.log_mass).sum(), problem.listed.q[mine].sum(), rtol=1e-12, atol=1e-14
        )
        result = np.zeros(len(distribution.points))
        for i in mine:
            same = np.abs(distribution.points - problem.listed.F[i]).max(axis=1, initial=0.0) < 1e-7
            same &= (distribution.experts == problem.listed.inside[i]).all(axis=1)
            assert same.sum() == 1
            result[same] += problem.listed.q[i]
        np.testing.assert_allclose(np.exp(distribution.log_mass), result, rtol=1e-12, atol=0.0)


def draw_data(problem):
    """Draw demonstrations of both experts with clusters, some of them wrong; None if an expert has no trajectory."""
    mine = [np.flatnonzero(problem.listed.inside[:, k]) for k in range(problem.paths.n_intents)]
    if any(each.size == 0 for each in mine):
        return None
    chosen = np.concatenate([problem.rng.choice(each, 4) for each in mine])
    labels = np.repeat(np.arange(len(mine)), 4)
    clusters = np.where(np.arange(labels.size) % 4 == 3, 1 - labels, labels)
    return chosen, problem.listed.demos(problem.paths.mdp, chosen.tolist()), labels, clusters


@settings(max_examples=examples(80))
@given(problems(most_paths=60), st.sampled_from((0.0, 0.2, 0.45)))
def test_quantities_equal_enumeration(problem, zeta):
    data = draw_data(problem)
    assume(data is not None)
    chosen, demos, labels, clusters = data
    paths, listed = problem.paths, problem.listed
    clouds = all_clouds(paths, demos, labels, clusters, [feature_distribution(paths, k) for k in range(2)])
    mean = listed.F[chosen].mean(axis=0)
    result = quantities(clouds, zeta)
    expected = {name: [] for name in ("zeta", "delta", "d", "g", "ad", "ag", "md", "mg", "r")}
    for k, cloud in enumerate(clouds):
        core = typical_paths(cloud, cloud.typical(zeta), listed, k, mean)
        fringe, outside = listed.inside[:, k] & ~core, ~listed.inside[:, k]
        F = listed.F - mean
        members = chosen[clusters == k]
        misfits = F[members[~core[members]]]
        assert not np.any(core & listed.inside[:, 1 - k]), "typical trajectories belong to one expert"
        expected["zeta"].append(listed.q[fringe].sum() / listed.q[listed.inside[:, k]].sum())
        expected["delta"].append(len(misfits) / len(members))
        sets = ((F[core], "d", "g"), (F[fringe], "ad", "ag"), (misfits, "md", "mg"))
        for projectors, between, within in sets:
            expected[between].append(margin(projectors, F[core], F[outside]))
            expected[within].append(margin(projectors, F[core], F[fringe]))
        distances = [np.linalg.norm(a - b) for a in F[core] for b in F[core]]
        expected["r"].append(max(distances, default=0.0) / 2.0)
    np.testing.assert_allclose(result.zeta, max(expected["zeta"]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.delta, max(expected["delta"]), rtol=1e-12, atol=0.0)
    np.testing.assert_allclose(result.r, expected["r"], rtol=1e-6, atol=1e-6)
    got = (result.margin_between, result.margin_within, result.atypical_between, result.atypical_within)
    got += (result.misfit_between, result.misfit_within)
    wanted = [min(expected[name]) for name in ("d", "g", "ad", "ag", "md", "mg")]
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


def typical_paths(cloud, typical, listed, k, mean):
    """Return the mask of the listed trajectories at a typical point of expert k."""
    result = np.zeros(len(listed.F), dtype=bool)
    for i in np.flatnonzero(listed.inside[:, k]):
        near = np.abs(cloud.points - (listed.F[i] - mean)).max(axis=1, initial=0.0) < 1e-7
        near &= cloud.shared == (listed.inside[i].sum() > 1)
        assert near.any()
        result[i] = typical[near].any()
    return result


@settings(max_examples=examples(120))
@given(problems(most_paths=100), st.sampled_from((0.0, 0.3)))
def test_lemmas_on_any_mdp(problem, zeta):
    """Lemma 1 before delta is bounded, and lemma 2 with the margins of a mean, hold without assumptions."""
    data = draw_data(problem)
    assume(data is not None)
    chosen, demos, labels, clusters = data
    paths, listed = problem.paths, problem.listed
    clouds = all_clouds(paths, demos, labels, clusters, [feature_distribution(paths, k) for k in range(2)])
    F = listed.F - listed.F[chosen].mean(axis=0)
    for k, cloud in enumerate(clouds):
        kept = cloud.typical(zeta)
        core = typical_paths(cloud, kept, listed, k, listed.F[chosen].mean(axis=0))
        outside, fringe = ~listed.inside[:, k], listed.inside[:, k] & ~core
        if not core.any() or not outside.any():
            continue
        members = chosen[clusters == k]
        Phi = F[members].mean(axis=0)
        between, within = margin([Phi], F[core], F[outside]), margin([Phi], F[core], F[fringe])
        each = [margin([F[i]], F[core], F[outside]) for i in members]
        assert between >= np.mean(each) - 1e-9 * (1.0 + np.abs(each).max())
        atypical = listed.q[fringe].sum() / listed.q[listed.inside[:, k]].sum()
        two = [1.0, 1.0]
        q = Quantities(
            zeta=atypical,
            delta=0.0,
            margin_between=between,
            margin_within=within,
            r=[cloud_radius(F[core])] * 2,
            mean_norm=[np.linalg.norm(Phi)] * 2,
            sizes=two,
            log_Q=[paths.log_Q[k]] * 2,
            log_Q_other=[paths.log_Q_other[k]] * 2,
            typical_norm=two,
        )
        log_p = listed.log_prob(Phi)  # minus log q
        slack = 1e-9 * (1.0 + np.abs(log_p).max())
        assert log_p[core].min() >= q.log_lower()[0] - slack
        for i in np.flatnonzero(outside):
            assert log_p[i] <= q.log_upper(np.log(listed.q[i]))[0] + slack


def cloud_radius(points):
    return max(np.linalg.norm(a - b) for a in points for b in points) / 2.0


@settings(max_examples=examples(60))
@given(problems(most_paths=60))
def test_quantities_among_demonstrations_alone(problem):
    listed, labels, clusters = problem.listed, np.repeat([0, 1], 4), np.array([0, 0, 0, 1, 1, 1, 1, 0])
    order = problem.rng.permutation(len(listed.q))
    assume(order.size > 1)
    # The first trajectory of each expert is not among those of the other, so each has one of its own.
    drawn = [[order[k], *problem.rng.choice(order[order != order[1 - k]], 3)] for k in range(2)]
    chosen = np.concatenate(drawn)
    demos = listed.demos(problem.paths.mdp, chosen.tolist())
    result = quantities(clouds_of_demos(problem.paths.mdp, demos, labels, clusters), 0.0)
    own = [set(chosen[labels == k].tolist()) for k in range(2)]
    every, mean = own[0] | own[1], listed.F[chosen].mean(axis=0)
    F, least = listed.F - mean, []
    for k in range(2):
        core = sorted(own[k] - own[1 - k])
        least.append(margin(F[core], F[core], F[sorted(every - own[k])]))
        np.testing.assert_allclose(result.log_Q[k], np.log(listed.q[sorted(own[k])].sum()), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.margin_between, min(least), rtol=1e-9, atol=1e-9)
    assert distinct(demos).max() + 1 == len(every)


@pytest.mark.parametrize("limit", [0, 3])
def test_feature_distribution_is_none_above_the_limit(limit):
    from limiirl.mdp import MDP

    mdp = MDP.from_edges([0, 0, 0, 0], [1, 2, 3, 4], p0=[1, 0, 0, 0, 0], state_features=np.arange(5.0))
    paths = PathSet(mdp, np.ones((1, 4)), 2)
    assert feature_distribution(paths, 0, limit) is None
    assert len(feature_distribution(paths, 0, 4).points) == 4
