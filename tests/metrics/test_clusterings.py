"""NID and ANID against scikit-learn, Monte Carlo, closed forms and high precision."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

from limiirl.errors import InvalidParameter
from limiirl.metrics import anid, hard_labels, nid
from limiirl.metrics.clusterings import expected_information
from tests.helpers import raises

Float = NDArray[np.float64]


def information(U: Float, V: Float) -> Float:
    """I of stacks of clusterings (..., N, K), term by term: sum p log(p / (a b))."""
    joint = np.swapaxes(U, -1, -2) @ V / U.shape[-2]
    product = U.mean(axis=-2)[..., :, None] * V.mean(axis=-2)[..., None, :]
    ratio = np.divide(joint, product, out=np.ones_like(joint), where=joint > 0)
    return np.asarray((joint * np.log(ratio)).sum(axis=(-1, -2)))


def random_clusterings(rng: np.random.Generator, draws: int, n: int, k: int) -> Float:
    return rng.dirichlet(np.full(k, 1.0 / k), size=(draws, n))


def soft_labels(labels: NDArray[np.int64], k: int) -> Float:
    return 0.9 * np.eye(k)[labels] + 0.1 / k


@pytest.mark.parametrize(("n", "k1", "k2"), [(100, 3, 3), (20, 6, 6), (2, 2, 2), (5, 3, 8), (30, 2, 5)])
def test_null_expectation_equals_the_mean_of_random_draws(n: int, k1: int, k2: int) -> None:
    """5 standard errors: a right value fails once in two million seeds; the closed form fails by far at (20, 6, 6)."""
    rng = np.random.default_rng(n)
    number = max(4000, 200_000 // n)
    draws = information(random_clusterings(rng, number, n, k1), random_clusterings(rng, number, n, k2))
    error = draws.std() / np.sqrt(draws.size)
    assert error < 0.02 * draws.mean()
    np.testing.assert_allclose(expected_information(n, k1, k2), draws.mean(), rtol=0.0, atol=5.0 * error)


def precise_expectation(n: int, k1: int, k2: int) -> float:
    """The same integral with the transforms as hypergeometric functions, by mpmath's Gauss-Legendre rule."""
    a, b = mpmath.mpf(1) / k1, mpmath.mpf(1) / k2

    def h(upper: list[mpmath.mpf]) -> mpmath.mpf:
        lower, mean = [1] * len(upper), mpmath.fprod(upper)
        raised = [x + 1 for x in upper], [x + 1 for x in lower]

        def integrand(log_s: mpmath.mpf) -> mpmath.mpf:
            z = mpmath.exp(log_s) / n
            power = mpmath.hyper(upper, lower, -z) ** (n - 1)
            return mean * (mpmath.exp(-n * z) - power * mpmath.hyper(*raised, -z))

        return mpmath.quad(integrand, mpmath.linspace(-36, 12, 13), method="gauss-legendre", maxdegree=5)

    return float(k1 * k2 * h([a, b]) - k1 * h([a]) - k2 * h([b]))


@pytest.mark.parametrize(("n", "k1", "k2"), [(20, 3, 4), (100, 3, 3)])
def test_null_expectation_in_another_quadrature(n: int, k1: int, k2: int) -> None:
    np.testing.assert_allclose(expected_information(n, k1, k2), precise_expectation(n, k1, k2), rtol=1e-10, atol=0.0)


@pytest.mark.parametrize(("n", "k", "ratio"), [(100, 3, 1.0), (20, 6, 0.91), (10**6, 4, 1.0)])
def test_null_expectation_is_near_the_delta_method(n: int, k: int, ratio: float) -> None:
    """spec.md, section D: within 1 % at N = 100, K = 3, but 9 % off at N = 20, K = 6."""
    closed = (k - 1) ** 2 / (8.0 * n)
    np.testing.assert_allclose(expected_information(n, k, k) / closed, ratio, rtol=0.0, atol=0.005)


def test_null_expectation_does_not_depend_on_the_order_and_vanishes_where_nothing_can_be_shared() -> None:
    assert expected_information(17, 3, 5) == expected_information(17, 5, 3) > 0.0
    assert expected_information(17, 1, 5) == expected_information(17, 5, 1) == expected_information(1, 3, 3) == 0.0


def test_null_expectation_is_remembered() -> None:
    expected_information(23, 3, 3)
    before = expected_information.cache_info().hits
    anid(np.repeat([0, 1, 2, 0], 5)[:20], np.repeat([0, 1, 2, 0], 5))
    expected_information(23, 3, 3)
    assert expected_information.cache_info().hits == before + 1


@pytest.mark.parametrize("seed", range(5))
def test_hard_clusterings_agree_with_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.integers(3 + seed, size=40)
    b = np.where(rng.random(40) < 0.5, a % 3, rng.integers(4, size=40))
    by_max = normalized_mutual_info_score(a, b, average_method="max")
    adjusted = adjusted_mutual_info_score(a, b, average_method="max")
    np.testing.assert_allclose(nid(a, b), 1.0 - by_max, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(anid(a, b, null="hypergeometric"), 1.0 - adjusted, rtol=0.0, atol=1e-12)
    one_hot = np.eye(9)[a]  # with empty columns
    np.testing.assert_allclose(anid(one_hot, b, null="hypergeometric"), 1.0 - adjusted, rtol=0.0, atol=1e-12)
    assert abs(anid(a, b) - (1.0 - adjusted)) > 1e-4  # the Dirichlet null is another one


def test_soft_clusterings_by_the_definition() -> None:
    rng = np.random.default_rng(3)
    U, V = random_clusterings(rng, 1, 50, 4)[0], random_clusterings(rng, 1, 50, 3)[0]
    I = float(information(U, V))  # noqa: E741
    H = max(-float((p * np.log(p)).sum()) for p in (U.mean(axis=0), V.mean(axis=0)))
    E = expected_information(50, 4, 3)
    np.testing.assert_allclose(nid(U, V), 1.0 - I / H, rtol=1e-12, atol=0.0)
    np.testing.assert_allclose(anid(U, V), 1.0 - (I - E) / (H - E), rtol=1e-12, atol=0.0)
    np.testing.assert_allclose(anid(U, V), anid(V[:, ::-1], U[:, [2, 0, 3, 1]]), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("null", ["dirichlet", "hypergeometric"])
def test_equal_labels_are_at_distance_zero(null: str) -> None:
    labels = np.random.default_rng(0).integers(4, size=60)
    np.testing.assert_allclose(anid(labels, 3 - labels, null=null), 0.0, rtol=0.0, atol=1e-14)  # type: ignore[arg-type]
    np.testing.assert_allclose(nid(labels, 3 - labels), 0.0, rtol=0.0, atol=1e-14)
    assert min(anid(labels, labels), nid(labels, labels)) >= 0.0


def test_a_soft_clustering_is_not_at_distance_zero_from_itself() -> None:
    """spec.md, section D, gives .431 for U = .9 one-hot + .1/3; it depends on N and on how even the labels are."""
    U = soft_labels(np.arange(40) % 3, 3)
    np.testing.assert_allclose(anid(U, U), 0.431, rtol=0.0, atol=5e-4)
    rng = np.random.default_rng(0)
    drawn = [anid(U, U) for U in (soft_labels(rng.integers(3, size=100), 3) for _ in range(100))]
    assert np.min(drawn) < 0.431 < np.max(drawn)
    np.testing.assert_allclose(np.mean(drawn), 0.431, rtol=0.0, atol=2e-3)
    np.testing.assert_allclose(anid(hard_labels(U), hard_labels(U)), 0.0, rtol=0.0, atol=1e-14)


def test_random_clusterings_are_at_distance_one_on_average_and_some_beyond() -> None:
    rng = np.random.default_rng(0)
    U, V = random_clusterings(rng, 400, 100, 3), random_clusterings(rng, 400, 100, 3)
    result = np.array([anid(u, v) for u, v in zip(U, V, strict=True)])
    np.testing.assert_allclose(result.mean(), 1.0, rtol=0.0, atol=5.0 * result.std() / 20.0)
    assert 1.001 < result.max() < 1.01
    assert np.mean([nid(u, v) for u, v in zip(U, V, strict=True)]) < 0.997


LABELS = np.arange(12) % 3


@pytest.mark.parametrize("null", ["dirichlet", "hypergeometric"])
@pytest.mark.parametrize(
    ("U", "V", "adjusted", "plain"),
    [
        (np.ones((12, 1)), np.ones((12, 1)), 0.0, 0.0),  # one cluster on both sides
        (np.ones((12, 1)), LABELS, 1.0, 1.0),  # one cluster on one side
        (LABELS, np.zeros(12, dtype=int), 1.0, 1.0),
        (np.eye(3)[np.zeros(12, dtype=int)], np.ones((12, 1)), 0.0, 0.0),  # one cluster in use, of three
        (np.eye(3)[np.zeros(12, dtype=int)], np.eye(2)[np.ones(12, dtype=int)], 0.0, 0.0),
        ([1], [7], 0.0, 0.0),  # one item
        (np.eye(3)[[2]], np.eye(2)[[0]], 0.0, 0.0),
        (np.eye(4)[LABELS], np.eye(5)[LABELS + 2], 0.0, 0.0),  # empty columns
    ],
)
def test_edge_cases(U: Float, V: Float, adjusted: float, plain: float, null: str) -> None:
    np.testing.assert_allclose(anid(U, V, null=null), adjusted, rtol=0.0, atol=1e-14)  # type: ignore[arg-type]
    np.testing.assert_allclose(anid(V, U, null=null), adjusted, rtol=0.0, atol=1e-14)  # type: ignore[arg-type]
    np.testing.assert_allclose(nid(U, V), plain, rtol=0.0, atol=1e-14)


def test_empty_columns_count_for_the_null() -> None:
    labels, other = np.arange(30) % 3, np.arange(30) // 3 % 3
    wide = np.eye(5)[other]
    assert nid(labels, wide) == pytest.approx(nid(labels, other), rel=1e-12)
    assert expected_information(30, 3, 5) > expected_information(30, 3, 3)
    H, I = np.log(3.0), float(information(np.eye(3)[labels], wide))  # noqa: E741
    expected = (H - I) / (H - expected_information(30, 3, 5))
    np.testing.assert_allclose(anid(labels, wide), expected, rtol=1e-12, atol=0.0)


def test_where_chance_shares_all_there_is_the_distance_is_not_adjusted() -> None:
    """Two items nearly in one cluster: less entropy than two random clusterings share on average."""
    U = np.array([[1.0, 0.0, 0.0], [0.99, 0.01, 0.0]])
    V = np.array([[1.0, 0.0, 0.0], [0.98, 0.02, 0.0]])
    assert nid(U, np.eye(3)[[0, 0]]) == 1.0
    assert anid(U, np.eye(3)[[0, 0]]) == 0.0  # nothing shared
    assert 0.0 < nid(U, V) < 1.0
    assert anid(U, V) == nid(U, V)


def test_hard_takes_the_first_of_equals_and_keeps_empty_columns() -> None:
    U = [[0.2, 0.3, 0.5, 0.0], [0.4, 0.4, 0.2, 0.0], [0.0, 1.0, 0.0, 0.0]]
    np.testing.assert_array_equal(hard_labels(U), np.eye(4)[[2, 0, 1]])
    np.testing.assert_array_equal(hard_labels([4, -1, 4]), np.eye(2)[[1, 0, 1]])


@pytest.mark.parametrize(
    ("U", "V", "parameter", "index"),
    [
        ([[0.5, 0.6]], [[1.0]], "U", 0),
        ([[1.0]] * 2, [[0.5, 0.5], [1.5, -0.5]], "V", 1),
        ([[np.nan, 1.0]], [[1.0]], "U", 0),
        ([0, 1, 1], [0, 1], "V", None),
        ([0.0, 1.0], [0, 1], "U", None),
        ([], [], "U", None),
        (np.ones((3, 0)), np.ones((3, 1)), "U", None),
        (["a", "b"], [0, 1], "U", None),
    ],
)
def test_bad_clusterings(U: object, V: object, parameter: str, index: int | None) -> None:
    for distance in (nid, anid):
        with raises(InvalidParameter, parameter=parameter, index=index):
            distance(U, V)  # type: ignore[arg-type]


def test_bad_null() -> None:
    with raises(InvalidParameter, parameter="null", value="uniform"):
        anid([0, 1], [0, 1], null="uniform")  # type: ignore[arg-type]
    soft = [[1.0, 0.0], [0.25, 0.75]]
    with raises(InvalidParameter, parameter="V", index=1):
        anid([0, 1], soft, null="hypergeometric")
