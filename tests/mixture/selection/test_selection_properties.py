"""Properties of selections: balanced folds, whitening, paired differences, and recommendations."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import limiirl as ll
from limiirl.mixture.selection.cross_validation import SelectionProblem, agreement, resample_size
from limiirl.mixture.selection.recommend import (
    SelectionRow,
    adequate,
    compare_held_out,
    explain,
    recommend,
    stick_breaking,
    whiten,
)
from tests.helpers import examples

SEEDS = st.integers(0, 2**32 - 1)


def problem(n: int, seed: int, groups=None) -> SelectionProblem:
    mdp = ll.MDP.from_edges([0], [1], p0=[1, 0])
    return SelectionProblem.from_data(ll.IntentMixture(), mdp, ll.Demonstrations.from_lists([[0, 1]] * n), groups, seed)


@given(st.integers(2, 60), st.integers(2, 10), SEEDS)
def test_folds_are_a_balanced_partition(n, folds, seed):
    folds = min(folds, n)
    sizes = np.bincount(problem(n, seed).folds(folds), minlength=folds)
    assert sizes.sum() == n
    assert sizes.max() - sizes.min() <= 1
    assert n - sizes.max() == n - -(-n // folds)  # what `SelectionProblem.check` counts on


@given(st.integers(1, 60), st.integers(0, 5), SEEDS)
def test_resamples_have_their_size_and_are_reproducible(n, i, seed):
    chosen = problem(n, seed).resample(i)
    assert np.count_nonzero(chosen) == resample_size(n)
    np.testing.assert_array_equal(chosen, problem(n, seed).resample(i))


@given(st.lists(st.integers(0, 4), min_size=4, max_size=30), SEEDS)
def test_subsets_contain_whole_groups(groups, seed):
    n_groups = len(set(groups))
    if n_groups < 2:
        return
    ready = problem(len(groups), seed, np.array(groups))
    out = ready.folds(2) == 0
    demos, inside = ready.subset(out)
    _, outside = ready.subset(~out)
    assert not set(inside) & set(outside)
    assert len(demos) == len(inside)
    assert len(inside) + len(outside) == len(groups)


@given(st.integers(2, 30), st.integers(1, 5), SEEDS, st.booleans(), st.booleans())
def test_whitened_points_have_the_identity_as_covariance(n, m, seed, constant, collinear):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, m)) * 10.0 ** rng.integers(-3, 4, size=m) + 100.0 * rng.normal(size=m)
    if collinear:
        points = np.column_stack([points, points.sum(axis=1)])
    if constant:
        points = np.column_stack([points, np.full(n, 0.1)])
    white = whiten(points)
    # Nearly all of a random (n, m) matrix's directions vary: one is lost to the mean.
    assert white.shape == (n, min(n - 1, m))
    np.testing.assert_allclose(white.T @ white / n, np.eye(white.shape[1]), atol=1e-6)
    np.testing.assert_allclose(white.mean(axis=0), 0.0, atol=1e-6)


@settings(max_examples=examples(25))
@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 6), SEEDS)
def test_stick_breaking_counts_between_one_and_the_maximum(n, m, most, seed):
    points = np.random.default_rng(seed).integers(0, 3, size=(n, m)).astype(float)
    result = stick_breaking(points, most, seed=seed)
    assert 1 <= result <= min(n, most)
    assert result == stick_breaking(points, most, seed=seed)


@given(st.integers(2, 30), st.integers(2, 5), SEEDS)
def test_agreement_does_not_depend_on_the_names_of_intents(n, k, seed):
    rng = np.random.default_rng(seed)
    labels = [rng.integers(0, k, size=n) for _ in range(3)]
    renamed = [rng.permutation(k)[own] for own in labels]
    np.testing.assert_allclose(agreement(labels), agreement(renamed), atol=1e-12)
    assert agreement([labels[0], renamed[0]]) == 1.0 or np.unique(labels[0]).size == 1
    assert not agreement(labels) > 1.0  # nan where all labels are alike


@given(st.integers(2, 30), st.integers(1, 6), SEEDS, st.floats(0.0, 1e3))
def test_differences_are_invariant_to_shifts_per_unit(n, most, seed, spread):
    rng = np.random.default_rng(seed)
    scores = {k: rng.normal(size=n) for k in range(1, most + 1)}
    common = spread * rng.normal(size=n)
    rows = [SelectionRow(k) for k in scores]
    plain = compare_held_out(rows, scores)
    shifted = compare_held_out(rows, {k: own + common for k, own in scores.items()})
    for one, other in zip(plain, shifted, strict=True):
        np.testing.assert_allclose([other.behind, other.behind_se], [one.behind, one.behind_se], atol=1e-9)
    assert min(row.behind for row in plain) == 0.0
    assert max(row.held_out for row in plain) == next(row.held_out for row in plain if row.behind == 0.0)


VALUES = st.one_of(st.just(np.nan), st.floats(-1e3, 1e3))


@st.composite
def tables(draw) -> list[SelectionRow]:
    """Rows of which some criteria are unknown; the fit of at least one worked."""
    rows = []
    for k in range(1, draw(st.integers(1, 5)) + 1):
        if k > 1 and draw(st.booleans()):
            rows.append(SelectionRow(k, error="fit: failed"))
            continue
        bic, aic, icl, stable = (draw(VALUES) for _ in range(4))
        rows.append(
            SelectionRow(k, draw(st.floats(-50, 0)), bic, aic, icl, stability=stable, converged=draw(st.booleans()))
        )
    fitted = [row.n_intents for row in rows if not row.error]
    held = draw(st.lists(st.sampled_from(fitted), unique=True))
    scores = {k: np.array([draw(st.floats(-20, 0)) for _ in range(4)]) for k in held}
    return compare_held_out(rows, scores)


@given(tables(), st.one_of(st.none(), st.integers(1, 9)))
def test_only_fitted_numbers_are_recommended_and_the_reason_names_every_criterion(rows, clusters):
    result = recommend(rows, clusters)
    chosen, reason = explain(rows, result, "demonstrations")
    fitted = {row.n_intents for row in rows if not row.error}
    assert chosen in fitted
    assert {k for name, k in result.items() if name != "stick_breaking"} <= fitted
    assert reason.startswith(f"{chosen} intent")
    assert all(f"{k} (" in reason for k in result.values() if k != chosen)
    near = adequate(rows)
    if near:
        assert result["held_out"] == min(row.n_intents for row in adequate(rows, within=1.0))
        priced = [row for row in near if np.isfinite(row.bic)]
        lowest = min((row.bic for row in priced), default=None)
        assert chosen == min(row.n_intents for row in (priced or near) if lowest is None or row.bic == lowest)
    elif "bic" in result:
        assert chosen == result["bic"]
