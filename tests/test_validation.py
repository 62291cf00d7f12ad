"""Checks of arguments."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from limiirl import MDP, MLIRL, Agents, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, RewardEnsemble, SigmaGIRL
from limiirl._validation import as_floats, available_memory, check_count, check_each, check_positive, scale_exponent
from limiirl.errors import InvalidDemos, InvalidMDP, InvalidParameter, LimiirlError
from limiirl.irl import DestinationMaxEnt
from limiirl.mdp import PathFinder, policy_values
from limiirl.metrics import dard, epic, gevd, mean_interval
from limiirl.theory import inter_cluster_margin
from tests.helpers import raises


@pytest.mark.parametrize("value", [True, np.True_, "1", None, 0, -1.0, np.inf, np.nan])
def test_check_positive_rejects(value):
    with raises(InvalidParameter, parameter="ridge", value=value):
        check_positive(value, "ridge")


@pytest.mark.parametrize("value", [2, np.float32(2.0), np.int64(2)])
def test_check_positive_returns_a_float(value):
    assert type(check_positive(value, "ridge")) is float
    assert check_positive(value, "ridge") == 2.0


def test_counts_that_exceed_the_memory_are_rejected():
    assert 0 < available_memory() < 1e15
    assert check_count(10**9, "n", bytes_each=0.01) == 10**9
    for value in (10**9, 10**30):
        with raises(InvalidParameter, parameter="n", value=value):
            check_count(value, "n", bytes_each=1e9)


@pytest.mark.parametrize(
    ("values", "value", "index"),
    [
        ([True, False], "bool", None),
        ([1.0, 2.0j], "complex128", None),
        (["1", "2"], "str", None),
        (np.array([1, 2], dtype="m8[s]"), "timedelta64", None),
        (np.array([1, 2], dtype="M8[s]"), "datetime64", None),
        (np.array([1, "2"], dtype=object), "str", 1),
        (np.array([[1, 2], [3, None]], dtype=object), "NoneType", (1, 1)),
        (np.array([1, True], dtype=object), "bool", 1),
        (None, "NoneType", None),
        ([[1.0], [1.0, 2.0]], None, None),
    ],
    ids=str,
)
def test_as_floats_rejects_other_types(values, value, index) -> None:
    with raises(InvalidDemos, parameter="x", value=value, index=index):
        as_floats(values, "x", error=InvalidDemos)


def test_as_floats_rejects_masked_entries() -> None:
    with raises(InvalidParameter, parameter="x", index=1):
        as_floats(np.ma.array([1.0, 2.0], mask=[False, True]), "x")
    with raises(InvalidParameter, parameter="x", index=(0, 1)):
        as_floats(np.ma.array([[1.0, 2.0]], mask=[[False, True]]), "x")
    assert as_floats(np.ma.array([1.0, 2.0], mask=False), "x").tolist() == [1.0, 2.0]


def test_as_floats_accepts_real_numbers() -> None:
    array = np.array([1.0, 2.0])
    assert as_floats(array, "x") is array
    assert as_floats([1, np.float32(2.5), np.int8(3)], "x").tolist() == [1.0, 2.5, 3.0]
    assert as_floats(np.array([1, Fraction(1, 2)], dtype=object), "x").tolist() == [1.0, 0.5]
    assert as_floats([True, False], "x", boolean=True).tolist() == [1.0, 0.0]
    assert as_floats([], "x").shape == (0,)
    assert as_floats(2, "x") == 2.0


def test_decimal_numbers_are_not_real_numbers_of_python() -> None:
    with raises(InvalidParameter, parameter="x", value="Decimal", index=0):
        as_floats(np.array([Decimal(1)], dtype=object), "x")


def test_scaling_by_a_power_of_two_is_exact() -> None:
    rng = np.random.default_rng(0)
    for unit in (1e300, 1e-300, 1e120):
        values = rng.normal(size=100) * unit
        exponent = scale_exponent(values)
        assert exponent != 0
        assert 0.1 < np.abs(np.ldexp(values, -exponent)).max() <= 1.0
        np.testing.assert_array_equal(np.ldexp(np.ldexp(values, -exponent), exponent), values)
    assert (
        scale_exponent(rng.normal(size=100)) == scale_exponent(np.array([np.inf])) == scale_exponent(np.empty(0)) == 0
    )


CHAIN = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.5, state_features=np.eye(3))
WALKS = Demonstrations.from_lists([[0, 1, 2], [0, 2], [0, 1, 2]])
# Functions of an array, the type of their error, its parameter, and a valid array.
CONSUMERS = {
    "p0": (lambda x: MDP.from_edges([0, 0, 1], [1, 2, 2], p0=x), InvalidMDP, "p0", [1.0, 0.0, 0.0]),
    "prob": (
        lambda x: MDP.from_edges([0, 0, 1], [1, 2, 2], action=[0, 1, 0], prob=x),
        InvalidMDP,
        "prob",
        [1.0, 1.0, 1.0],
    ),
    "theta": (lambda x: MaxEnt(3).log_prob(CHAIN, x, WALKS), InvalidParameter, "thetas", [1.0, 0.0, 1.0]),
    "weights": (lambda x: MaxEnt().fit(CHAIN, WALKS, x), InvalidParameter, "weights", [1.0, 0.0, 1.0]),
    "bounds": (lambda x: MaxEnt(bounds=x).fit(CHAIN, WALKS), InvalidParameter, "bounds", [-1.0, 1.0]),
    "ensemble": (lambda x: RewardEnsemble(x, np.eye(3)), InvalidParameter, "weights", [1.0, 0.0, 0.0]),
    "policy": (lambda x: policy_values(CHAIN, x, [1.0, 0.0, 0.0]), InvalidParameter, "policy", [1.0, 0.0, 1.0]),
    "coverage": (
        lambda x: dard(CHAIN, [0.0, 1.0, 2.0], [1.0, 0.0, 3.0], coverage=x),
        InvalidParameter,
        "coverage",
        [1.0, 0.0, 1.0],
    ),
    "sample": (lambda x: mean_interval(x), InvalidParameter, "values", [1.0, 0.0, 1.0]),
    "features": (
        lambda x: inter_cluster_margin(np.asanyarray(x)[:, None], [0, 0, 1]),
        InvalidParameter,
        "features",
        [1.0, 0.0, 1.0],
    ),
    "cost": (lambda x: PathFinder(CHAIN, x), InvalidParameter, "cost", [1.0, 0.0, 1.0]),
    "sigma": (lambda x: SigmaGIRL().null_directions(None, x), InvalidParameter, "theta", [1.0, 0.0, 1.0]),
}


@pytest.mark.filterwarnings("ignore::limiirl.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("name", CONSUMERS)
def test_arrays_that_are_not_numbers_are_refused(name: str) -> None:
    function, error, parameter, valid = CONSUMERS[name]
    function(valid)
    array = np.array(valid)
    wrong = {
        "complex": array + 1j,
        "text": array.astype(str),
        "duration": array.astype("m8[s]"),
        "date": array.astype("M8[s]"),
        "masked": np.ma.array(array, mask=array == array[1]),
        "boolean": array.astype(bool),
    }
    if name == "weights":  # a mask selects demonstrations
        function(wrong.pop("boolean"))
    for kind, values in wrong.items():
        with pytest.raises(error) as caught:
            function(values)
        assert caught.value.parameter == parameter, kind


@pytest.mark.parametrize("kind", ["D", "m8[s]", "U3"])
def test_features_that_are_not_numbers_are_refused(kind: str) -> None:
    dense = np.eye(3).astype(kind)
    with raises(InvalidMDP, parameter="state_features"):
        MDP.from_edges([0, 0, 1], [1, 2, 2], state_features=dense)
    with raises(InvalidParameter, parameter="embedding"):
        IntentMixture(2, embedding=dense).fit(CHAIN, WALKS)
    if kind == "D":
        with raises(InvalidMDP, parameter="state_features"):
            MDP.from_edges([0, 0, 1], [1, 2, 2], state_features=sparse.csr_array(dense))


def test_agents_that_are_not_numbers_are_refused() -> None:
    x, actions, phi = np.ones((2, 3, 1)), np.zeros((2, 3), dtype=int), np.ones((2, 3, 1))
    for kind in ("D", "m8[s]"):
        with raises(InvalidDemos, parameter="policy_features"):
            Agents.from_arrays([x.astype(kind)], [actions], [phi])


# Sizes of rewards and features whose squares or sums overflow or vanish.
EXTREME = [1e200, 1e300, 1e-200, 1e-300]


@pytest.mark.parametrize("unit", EXTREME)
def test_reward_distances_do_not_depend_on_the_size_of_rewards(unit: float) -> None:
    one, other = np.array([0.0, 1.0, 2.0]), np.array([9.0, 3.0, 6.0])
    for distance in (epic, dard):
        expected = distance(CHAIN, one, other), distance(CHAIN, one, one[::-1])
        assert distance(CHAIN, unit * one, unit * other) == pytest.approx(expected[0], abs=1e-7)
        assert distance(CHAIN, one, unit * one[::-1]) == pytest.approx(expected[1], abs=1e-7)
        shape = (3, 2, 3) if distance is epic else (3,)
        assert distance(CHAIN, one, one[::-1], coverage=np.full(shape, 1e308)) == pytest.approx(expected[1], abs=1e-7)


@pytest.mark.parametrize("unit", EXTREME)
def test_margins_of_clusters_scale_with_the_features(unit: float) -> None:
    points, labels = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0], [1.0, 1.0]]), [0, 0, 1, 1]
    assert inter_cluster_margin(unit * points, labels) == pytest.approx(unit * inter_cluster_margin(points, labels))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_margins_of_features_that_are_not_finite(value: float) -> None:
    with raises(InvalidParameter, parameter="features"):
        inter_cluster_margin([[0.0], [value]], [0, 1])


@pytest.mark.filterwarnings("ignore::limiirl.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("irl", [MaxEnt(), MaxCausalEnt(), MLIRL(), DestinationMaxEnt(bounds=(-5.0, 5.0))], ids=str)
def test_only_ratios_of_sample_weights_matter(irl) -> None:
    mdp = CHAIN.replace(gamma=1.0)
    expected = irl.fit(mdp, WALKS, weights=[3.0, 1.0, 2.0])
    for unit in (5e307, 1e300, 1e-300):
        np.testing.assert_allclose(irl.fit(mdp, WALKS, weights=unit * np.array([3.0, 1.0, 2.0])), expected, rtol=1e-9)


@pytest.mark.parametrize("value", [1e308, -1e308])
@pytest.mark.parametrize(
    "irl", [MaxEnt(4), MaxCausalEnt(), MLIRL(), MLIRL(q="bv"), DestinationMaxEnt(bounds=None)], ids=str
)
def test_extreme_rewards_have_a_log_probability_or_an_error(irl, value: float) -> None:
    mdp = MDP.from_edges([0, 0, 1, 1, 2, 2], [1, 2, 2, 3, 3, 0], p0=[1, 0, 0, 0], gamma=1.0, state_features=np.eye(4))
    demos = Demonstrations.from_lists([[0, 1, 3], [0, 1, 2, 3]])
    try:
        log_prob = irl.log_prob(mdp, np.full(4, value), demos)
    except LimiirlError as error:
        assert error.parameter in ("theta", "thetas")  # noqa: PT017 (either outcome is valid)
    else:
        assert not np.any(np.isnan(log_prob))
        assert np.all(log_prob <= 0.0)


def test_costs_that_are_masked_are_refused() -> None:
    ensemble = RewardEnsemble([0.5, 0.5], np.eye(3)[:2])
    with raises(InvalidParameter, parameter="distance", index=(0, 1)):
        gevd(CHAIN, ensemble, ensemble, distance=np.ma.array(np.eye(2), mask=[[False, True], [False, False]]))


@pytest.mark.parametrize(
    ("values", "valid", "index", "value"),
    [
        ([3, -1, -2], [True, False, False], 1, -1),
        ([[0.5, np.nan], [np.inf, 1.0]], [[True, True], [False, True]], (1, 0), np.inf),
        ([[1.0, 2.0], [3.0, 4.0]], [True, False], 1, [3.0, 4.0]),
    ],
)
def test_the_first_invalid_entry_is_reported(values, valid, index, value):
    with raises(InvalidMDP, parameter="T", value=value, index=index):
        check_each(np.array(valid), np.array(values), "T", "must be valid", error=InvalidMDP)


def test_valid_entries_raise_no_error():
    check_each(np.ones((2, 3), dtype=bool), np.zeros((2, 3)), "T", "must be valid")
    check_each(np.empty(0, dtype=bool), np.empty(0), "T", "must be valid")
