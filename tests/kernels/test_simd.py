"""The vectorisable exp: as good as libm's, and well-behaved at the ends of the range."""

import math

import mpmath
import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from limiirl.kernels.simd import exp

LEAST_NORMAL = np.finfo(np.float64).tiny


@njit(error_model="numpy")
def _apply(x: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    for i in range(x.size):
        out[i] = exp(x[i])


def apply(values: object) -> NDArray[np.float64]:
    x = np.asarray(values, dtype=np.float64)
    out = np.empty_like(x)
    _apply(x, out)
    return out


def ulps_off(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distance of exp(x) from the truth in units of the truth's last place."""
    actual = apply(x)
    with mpmath.workdps(50):
        truth = [mpmath.exp(mpmath.mpf(float(v))) for v in x]
        return np.array(
            [
                float(abs(mpmath.mpf(float(f)) - e) / mpmath.mpf(math.ulp(float(e))))
                for f, e in zip(actual, truth, strict=True)
            ]
        )


@pytest.mark.parametrize(("low", "high"), [(-708.39, 709.78), (-50.0, 50.0), (-1.0, 1.0), (-1e-8, 1e-8), (-0.35, 0.35)])
def test_is_within_two_units_in_the_last_place(low: float, high: float) -> None:
    x = np.random.default_rng(0).uniform(low, high, 4_000)
    assert ulps_off(x).max() <= 2.0


def test_is_accurate_where_the_exponent_changes() -> None:
    # The reduction picks another power of two at odd multiples of ln(2) / 2; both neighbours must be right.
    turns = (np.arange(-1021, 1023) + 0.5) * math.log(2.0)
    x = np.concatenate(
        [turns, np.nextafter(turns, np.inf), np.nextafter(turns, -np.inf), np.arange(-1021, 1024) * math.log(2.0)]
    )
    assert ulps_off(x).max() <= 2.0


def test_agrees_with_numpy_over_the_whole_range() -> None:
    x = np.linspace(-708.39, 709.78, 1_000_003)
    np.testing.assert_allclose(apply(x), np.exp(x), rtol=4 * np.finfo(np.float64).eps)


@pytest.mark.parametrize(
    ("x", "value"),
    [
        (0.0, 1.0),
        (-0.0, 1.0),
        (1e-300, 1.0),
        (-5e-324, 1.0),
        (-np.inf, 0.0),
        (np.inf, np.inf),
        (710.0, np.inf),
        (1e300, np.inf),
    ],
)
def test_exact_values(x: float, value: float) -> None:
    assert apply([x])[0] == value


@pytest.mark.parametrize("x", [-708.5, -745.0, -1e3, -1e308, np.nextafter(-708.39, -np.inf)])
def test_subnormal_results_are_zero(x: float) -> None:
    # The guard of linear space counts on it: never a denormal that has lost its digits.
    assert apply([x])[0] == 0.0


def test_the_ends_of_the_range_are_normal_and_finite() -> None:
    actual = apply([-708.39, 709.78])
    assert actual[0] >= LEAST_NORMAL
    assert np.isfinite(actual[1])
    assert actual[1] > 1.79e308


def test_nan_is_preserved() -> None:
    assert np.isnan(apply([np.nan, 1.0, -np.nan])).tolist() == [True, False, True]


def test_a_row_has_the_same_bits_as_its_parts() -> None:
    # LLVM sends whole vectors and the rest of a row through different code.
    x = np.random.default_rng(1).uniform(-720.0, 720.0, 67)
    x[::13] = [np.nan, np.inf, -np.inf, 0.0, -800.0, 800.0]
    one_by_one = np.concatenate([apply(x[i : i + 1]) for i in range(x.size)])
    for n in range(1, x.size + 1):
        np.testing.assert_array_equal(apply(x[:n]), one_by_one[:n])


def test_never_decreases() -> None:
    x = np.sort(np.concatenate([np.random.default_rng(2).uniform(-715.0, 715.0, 200_000), np.linspace(-1, 1, 100_001)]))
    actual = apply(x)
    # Two neighbours may each be one unit off, in opposite directions.
    assert np.all(actual[1:] >= actual[:-1] * (1 - 4e-16))
