"""Records of trials; except for measured times, they are reproducible."""

from __future__ import annotations

import math
import traceback
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from limiirl.mdp import RewardEnsemble

MEASURED = ("seconds_start", "seconds_em")
"""Measured times, which differ between runs."""


class AnySpec(Protocol):
    """Settings of a trial: `Spec` or `DriverSpec`."""

    @property
    def hash(self) -> str:
        """Hash of the settings; equal settings have equal hashes."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""

    @classmethod
    def from_dict(cls, content: Any, /) -> Self:
        """Inverse of `to_dict`."""


@dataclass(frozen=True)
class BaseRecord:
    """Outcome of one trial, identified by the hash of its settings and its seed.

    If the trial failed, `error` is the error message and `trace` the stack trace; otherwise both are empty.
    """

    spec: str
    seed: int
    error: str = ""
    trace: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """The hash of the settings and the seed."""
        return self.spec, self.seed

    @property
    def failed(self) -> bool:
        """True if the trial failed."""
        return bool(self.error)

    def reproducible(self) -> dict[str, Any]:
        """Return all fields except the measured times (`MEASURED`), which differ between runs."""
        return {name: value for name, value in asdict(self).items() if name not in MEASURED}


@dataclass(frozen=True)
class Record(BaseRecord):
    """Outcome of one trial in a world.

    Fields with the suffix `_start` are the scores of the initial ensemble. Missing values are None.

    Attributes
    ----------
    max_length : int or None
        Maximum trajectory length of the model, if it has one.
    n_iter, converged : int, bool
        Number of EM iterations (0 for the supervised baseline), and whether EM converged.
    seconds_start, seconds_em : float
        Wall time of the initialisation and of EM.
    margin : float
        Smallest distance between feature counts of demonstrations of two different intents, averaged over pairs of
        intents.
    change : float
        Realised epsilon of the paper: change in the responsibilities in the first E-step after a warm start.
    nll, train_nll : float
        Mean negative log-likelihood of the test and training demonstrations.
    anid, anid_hard, anid_truth : float
        ANID on the test demonstrations between the true labels and the posterior, between the true labels and the most
        likely intents, and between the posteriors under the true and the learned ensemble, respectively.
    accuracy : float
        Fraction of test demonstrations or agents that are assigned to the correct intent, under the best matching of
        learned to true intents.
    gevd, gevd_normalised : float
        None if rewards cannot be compared with the truth.
    weights, thetas : (K,), (K, d)
    history : list of float
        Mean NLL of the training demonstrations per EM iteration, starting with the initial ensemble.
    """

    max_length: int | None = None
    n_iter: int | None = None
    converged: bool | None = None
    seconds_start: float | None = None
    seconds_em: float | None = None
    margin: float | None = None
    change: float | None = None
    nll_start: float | None = None
    nll: float | None = None
    train_nll_start: float | None = None
    train_nll: float | None = None
    anid_start: float | None = None
    anid: float | None = None
    anid_hard_start: float | None = None
    anid_hard: float | None = None
    anid_truth_start: float | None = None
    anid_truth: float | None = None
    accuracy_start: float | None = None
    accuracy: float | None = None
    gevd_start: float | None = None
    gevd: float | None = None
    gevd_normalised_start: float | None = None
    gevd_normalised: float | None = None
    weights_start: list[float] | None = None
    weights: list[float] | None = None
    thetas_start: list[list[float]] | None = None
    thetas: list[list[float]] | None = None
    history: list[float] | None = None

    @property
    def seconds(self) -> float | None:
        """Wall time of initialisation and EM, which the paper calls duration."""
        if self.seconds_start is None or self.seconds_em is None:
            return None
        return self.seconds_start + self.seconds_em


def describe_error(error: Exception) -> tuple[str, str]:
    """Return the error message and the stack trace, without folder names, because records are published."""
    message = str(error).strip().splitlines() or ["no message"]
    frames = traceback.extract_tb(error.__traceback__)
    stack = [f"{Path(f.filename).name}:{f.lineno} in {f.name}: {f.line}" for f in frames]
    return f"{type(error).__name__}: {message[0]}", "\n".join(stack)


FIELDS = tuple(field.name for field in fields(Record))


@dataclass(frozen=True)
class DriverRecord(BaseRecord):
    """Outcome of one trial of the driver experiment; its seed is the index of the split.

    NLLs are means per trip and include the first segment. For destination models, they are conditional on the first and
    the last segment.

    Attributes
    ----------
    method, gamma : str, float
    n_iter, converged, n_evaluations : int, bool, int
        Number of EM iterations, whether EM converged, and number of evaluations of the objective in all M-steps.
    seconds_start, seconds_em : float
        Wall time of the initialisation and of EM.
    train_nll, test_nll, test_nll_segment : float
        NLL of the mixture per trip; `test_nll_segment` is per segment.
    test_nll_bound : float
        Weighted mean of the NLLs under the individual intents, which the paper's released code reports; an upper bound
        on `test_nll`.
    missed, missed_distance, missed_time : float
        Mean fraction of the driven distance that is not on the predicted route between origin and destination, where
        the prediction is that of the mixture, the shortest route, and the fastest route, respectively.
    surplus, surplus_distance, surplus_time : float
        Mean fraction of the predicted distance that is not on the driven route, for the same three predictions.
    n_at_bounds : int
        Number of reward parameters at a bound.
    weights, thetas : (K,), (K, d)
    history : list of float
        NLL of the training trips per iteration.
    """

    method: str = ""
    gamma: float = math.nan
    n_iter: int = 0
    converged: bool = False
    n_evaluations: int = 0
    seconds_start: float = math.nan
    seconds_em: float = math.nan
    train_nll: float = math.nan
    test_nll: float = math.nan
    test_nll_bound: float = math.nan
    test_nll_segment: float = math.nan
    missed: float = math.nan
    missed_distance: float = math.nan
    missed_time: float = math.nan
    surplus: float = math.nan
    surplus_distance: float = math.nan
    surplus_time: float = math.nan
    n_at_bounds: int = 0
    weights: list[float] = field(default_factory=list)
    thetas: list[list[float]] = field(default_factory=list)
    history: list[float] = field(default_factory=list)

    @property
    def split(self) -> int:
        """Index of the split."""
        return self.seed

    @property
    def ensemble(self) -> RewardEnsemble:
        """Rewards and mixture weights."""
        return RewardEnsemble(np.array(self.weights), np.array(self.thetas))
