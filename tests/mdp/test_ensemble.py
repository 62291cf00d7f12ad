"""RewardEnsemble: immutability, validation and files."""

import dataclasses
import json

import numpy as np
import pytest

from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.mdp.ensemble import RewardEnsemble
from tests.helpers import raises

WEIGHTS = [0.25, 0.75]
THETAS = [[0.0, -1.0, -10.0], [0.0, -10.0, -1.0]]


def test_ensemble_stores_weights_and_thetas() -> None:
    ensemble = RewardEnsemble(WEIGHTS, THETAS)
    assert (ensemble.n_intents, ensemble.n_features) == (2, 3)
    np.testing.assert_array_equal(ensemble.weights, WEIGHTS)
    np.testing.assert_array_equal(ensemble.thetas, THETAS)
    assert ensemble.weights.dtype == ensemble.thetas.dtype == np.float64


def test_arrays_are_read_only_copies() -> None:
    thetas = np.array(THETAS)
    ensemble = RewardEnsemble(WEIGHTS, thetas)
    thetas[0, 0] = 5.0
    assert ensemble.thetas[0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        ensemble.thetas[0, 0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        ensemble.weights = np.ones(2)  # type: ignore[misc]


def test_equality_and_hash_compare_content() -> None:
    ensemble = RewardEnsemble(WEIGHTS, THETAS)
    signed_zeros = np.where(np.array(THETAS) == 0.0, -0.0, THETAS)
    assert ensemble == RewardEnsemble(WEIGHTS, signed_zeros)
    assert hash(ensemble) == hash(RewardEnsemble(WEIGHTS, signed_zeros))
    assert ensemble != RewardEnsemble(WEIGHTS[::-1], THETAS)
    assert ensemble != RewardEnsemble(WEIGHTS, THETAS[::-1])
    assert ensemble != "an ensemble"


def test_repr_shows_weights_and_rewards() -> None:
    text = repr(RewardEnsemble(WEIGHTS, THETAS))
    assert "2 intents, 3 features" in text
    assert "25.0 %" in text
    assert "-10." in text


def test_weights_must_sum_to_one_up_to_rounding() -> None:
    RewardEnsemble([0.5, 0.5 + 9e-9], THETAS)
    with raises(InvalidParameter, parameter="weights", value=1.0000000199999999):
        RewardEnsemble([0.5, 0.5 + 2e-8], THETAS)


@pytest.mark.parametrize(
    ("weights", "thetas", "expected"),
    [
        ([], np.zeros((0, 3)), {"parameter": "weights", "value": (0,)}),
        ([WEIGHTS], THETAS, {"parameter": "weights", "value": (1, 2)}),
        ([1.25, -0.25], THETAS, {"parameter": "weights", "value": -0.25, "index": 1}),
        ([np.nan, 1.0], THETAS, {"parameter": "weights", "index": 0}),
        ([0.5, 0.25], THETAS, {"parameter": "weights", "value": 0.75}),
        (["a", "b"], THETAS, {"parameter": "weights"}),
        (WEIGHTS, THETAS[0], {"parameter": "thetas", "value": (3,)}),
        (WEIGHTS, THETAS[:1], {"parameter": "thetas", "value": (1, 3)}),
        (WEIGHTS, np.zeros((2, 0)), {"parameter": "thetas", "value": (2, 0)}),
        (WEIGHTS, [[0.0, 1.0], [2.0, np.inf]], {"parameter": "thetas", "index": (1, 1)}),
        (WEIGHTS, [[0.0, np.nan], [2.0, np.inf]], {"parameter": "thetas", "index": (0, 1)}),
        (WEIGHTS, [[0.0], [1.0, 2.0]], {"parameter": "thetas"}),
    ],
)
def test_invalid_input_has_index_and_value(weights: object, thetas: object, expected: dict[str, object]) -> None:
    with raises(InvalidParameter, **expected):
        RewardEnsemble(weights, thetas)  # type: ignore[arg-type]


def test_saved_ensemble_is_loaded_bit_for_bit(tmp_path) -> None:
    rng = np.random.default_rng(0)
    ensemble = RewardEnsemble(rng.dirichlet(np.ones(5)), 10.0 ** rng.uniform(-300, 300, (5, 7)) * rng.choice([-1, 1]))
    ensemble.save(tmp_path / "truth.json")
    assert RewardEnsemble.load(tmp_path / "truth.json") == ensemble
    assert [path.name for path in tmp_path.iterdir()] == ["truth.json"]  # nothing half-written is left behind
    content = json.loads((tmp_path / "truth.json").read_text())
    assert (content["format"], content["version"]) == ("limiirl.ensemble", 1)
    RewardEnsemble(WEIGHTS, THETAS).save(str(tmp_path / "truth.json"))  # replaces the older one
    assert RewardEnsemble.load(str(tmp_path / "truth.json")) == RewardEnsemble(WEIGHTS, THETAS)


def test_any_npz_file_with_weights_and_thetas_is_read(tmp_path) -> None:
    np.savez(tmp_path / "truth.npz", weights=WEIGHTS, thetas=THETAS)
    assert RewardEnsemble.load(tmp_path / "truth.npz") == RewardEnsemble(WEIGHTS, THETAS)
    np.savez(tmp_path / "half.npz", weights=WEIGHTS)
    with pytest.raises(InvalidFile, match="'thetas'"):
        RewardEnsemble.load(tmp_path / "half.npz")
    np.savez(tmp_path / "objects.npz", weights=np.array(WEIGHTS, dtype=object), thetas=THETAS)
    with pytest.raises(InvalidFile, match=r"objects\.npz"):
        RewardEnsemble.load(tmp_path / "objects.npz")
    with (tmp_path / "array.npz").open("wb") as stream:
        np.save(stream, np.ones(3))
    with pytest.raises(InvalidFile, match="single array"):
        RewardEnsemble.load(tmp_path / "array.npz")


GOOD = {"format": "limiirl.ensemble", "version": 1, "weights": WEIGHTS, "thetas": THETAS}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(GOOD)[:-9], "not JSON"),
        ("\x00\xff", "not JSON"),
        ("[1, 2]", "not a reward ensemble"),
        (json.dumps(GOOD | {"format": "limiirl.mdp"}), "not a reward ensemble"),
        (json.dumps(GOOD | {"version": True}), "not a reward ensemble"),
        (json.dumps(GOOD | {"version": 2, "limiirl": "9.0"}), r"version 2 \(limiirl 9\.0\)"),
        (json.dumps({name: GOOD[name] for name in ("format", "version", "weights")}), "'thetas'"),
        (json.dumps(GOOD | {"weights": [0.5, 0.4]}), r"weights .* 0\.9"),
        (json.dumps(GOOD | {"thetas": [[1.0], [float("nan")]]}), r"thetas\[1, 0\]"),
        (json.dumps(GOOD | {"thetas": [[1.0], None]}), "thetas must"),
    ],
)
def test_error_for_an_invalid_file_states_the_reason(tmp_path, text, message) -> None:
    (tmp_path / "truth.json").write_text(text, encoding="latin-1")
    with pytest.raises(InvalidFile, match=message):
        RewardEnsemble.load(tmp_path / "truth.json")


def test_missing_file_raises_file_not_found(tmp_path) -> None:
    for name in ("absent.json", "absent.npz"):
        with pytest.raises(FileNotFoundError):
            RewardEnsemble.load(tmp_path / name)


def test_save_requires_the_extension_json(tmp_path):
    with pytest.raises(InvalidFile, match=r"\.json"):
        RewardEnsemble([1.0], [[0.0]]).save(tmp_path / "truth.npz")
