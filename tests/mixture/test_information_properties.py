"""The information of mixtures on random small MDPs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from limiirl import MaxEnt
from limiirl.irl.problem import make_problem
from limiirl.mixture.information import information, standard_errors
from tests.helpers import examples
from tests.oracles.curvature import second_derivatives, unit_log_likelihoods
from tests.oracles.enumeration import Enumeration
from tests.oracles.likelihood import as_demonstrations, possible
from tests.oracles.random_mdps import Case, cases

SOME = cases(columns=(1, 3), max_length=4, scales=(0.3, 1.0), most_paths=150)
SEEDS = st.integers(0, 2**32 - 1)


def observe(problem, rho, thetas):
    """Return the observed information of all parameters."""
    return information(problem, rho, thetas, np.ones(thetas.shape, dtype=bool))[0]


class Setting:
    """Demonstrations of a case, in groups or not, and a mixture that is no maximum of their likelihood."""

    def __init__(self, case: Case, seed: int, grouped: bool) -> None:
        rng = np.random.default_rng(seed)
        self.case, self.paths = case, Enumeration(case.mdp, case.max_length)
        self.rows = rng.choice(possible(self.paths), size=10)
        self.groups = rng.integers(4, size=10) if grouped else None
        shares = 0.2 + rng.random(len(case.thetas))
        self.rho, self.thetas = shares / shares.sum(), case.thetas
        self.direction = rng.normal(size=self.rho.size + self.thetas.size)

    def make(self, copies: int = 1, **parameters):
        demos = as_demonstrations(self.paths, np.tile(self.rows, copies))
        # Copies of a group are groups of their own.
        groups = None if self.groups is None else np.concatenate([self.groups + 10 * i for i in range(copies)])
        return make_problem(
            MaxEnt(self.case.max_length, **{"bounds": None, **parameters}), self.case.mdp, demos, groups
        )

    @property
    def units(self) -> list[list[list[int]]]:
        each = np.arange(10) if self.groups is None else self.groups
        return [[[int(i)] for i in self.rows[each == unit]] for unit in np.unique(each)]


@settings(max_examples=examples(40))
@given(SOME, SEEDS, st.booleans(), st.sampled_from(["none", "start"]))
def test_information_is_the_curvature_of_the_likelihood_in_every_direction(case, seed, grouped, condition):
    given_ = Setting(case, seed, grouped)
    K, v = given_.rho.size, given_.direction / np.linalg.norm(given_.direction)
    x = np.concatenate([given_.rho, given_.thetas.ravel()])

    def along(t):
        moved = x + t[0] * v
        thetas = moved[K:].reshape(given_.thetas.shape)
        each = unit_log_likelihoods(given_.paths, given_.units, moved[:K], thetas, condition == "start")
        return sum(each)

    result = observe(given_.make(condition=condition), given_.rho, given_.thetas)
    size = 1.0 + 10.0 * float(np.max(given_.paths.F**2, initial=0.0))
    curvature = second_derivatives(along, np.zeros(1), step=2e-3)[0, 0]
    np.testing.assert_allclose(v @ result @ v, -curvature, rtol=1e-5, atol=1e-6 * size)


@settings(max_examples=examples(25))
@given(SOME, SEEDS, st.booleans())
def test_information_is_equivariant_and_proportional_to_the_data(case, seed, grouped):
    given_ = Setting(case, seed, grouped)
    K, d = given_.thetas.shape
    order = np.random.default_rng(seed).permutation(K)
    where = np.concatenate([order, (K + order[:, None] * d + np.arange(d)).ravel()])
    result = observe(given_.make(), given_.rho, given_.thetas)
    size = 1.0 + float(np.max(np.abs(result)))
    permuted = observe(given_.make(), given_.rho[order], given_.thetas[order])
    np.testing.assert_allclose(permuted, result[np.ix_(where, where)], rtol=0, atol=1e-11 * size)
    twice = observe(given_.make(copies=2), given_.rho, given_.thetas)
    np.testing.assert_allclose(twice, 2.0 * result, rtol=0, atol=1e-11 * size)


@settings(max_examples=examples(50))
@given(SOME, SEEDS, st.sampled_from([None, (-0.5, 0.5)]), st.sampled_from(["none", "start"]))
def test_every_parameter_has_an_error_or_a_status(case, seed, bounds, condition):
    given_ = Setting(case, seed, grouped=False)
    thetas = given_.thetas if bounds is None else np.clip(given_.thetas, *bounds)
    result = standard_errors(given_.make(bounds=bounds, condition=condition), given_.rho, thetas)
    assert set(result.status.ravel()) <= {"ok", "contrast", "bound", "not identified", "flat"}
    np.testing.assert_array_equal(np.isfinite(result.thetas), result.status == "ok")
    assert np.all(result.thetas[result.status == "ok"] > 0.0)
    if bounds is not None:
        np.testing.assert_array_equal(result.status == "bound", np.abs(thetas) == 0.5)
    kept = np.isfinite(np.diag(result.covariance))
    covariance = result.covariance[np.ix_(kept, kept)]
    assert np.all(np.isfinite(covariance))
    size = float(np.max(np.abs(covariance), initial=1.0))
    assert np.min(np.linalg.eigvalsh(covariance), initial=0.0) >= -1e-9 * size
    assert result.n_free <= thetas.size + given_.rho.size - 1
