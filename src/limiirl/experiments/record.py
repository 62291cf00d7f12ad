"""Records of trials: flat values that are the same whenever a trial is computed again, times apart."""

from __future__ import annotations

import math
import traceback
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from limiirl.mdp import RewardEnsemble

MEASURED = ("seconds_start", "seconds_em")
"""Fields that are measured on a machine, and so differ between runs."""


class AnySpec(Protocol):
    """The settings of a trial: `Spec` or `DriverSpec`. Settings and a seed determine a trial."""

    @property
    def hash(self) -> str:
        """Key of the settings: equal settings have equal hashes."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""

    @classmethod
    def from_dict(cls, content: Any, /) -> Self:
        """Return the settings that `to_dict` described."""


@dataclass(frozen=True)
class BaseRecord:
    """The outcome of one trial of any experiment, keyed by the hash of its settings and its seed.

    Attributes
    ----------
    spec, seed : str, int
        The key.
    error, trace : str
        Empty; or the error of a trial that failed in one line, and its stack trace.
    """

    spec: str
    seed: int
    error: str = ""
    trace: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """Hash of the settings, and seed."""
        return self.spec, self.seed

    @property
    def failed(self) -> bool:
        """Whether the trial ended in an error."""
        return bool(self.error)

    def reproducible(self) -> dict[str, Any]:
        """Return all fields except the measured ones: any run of the same trial must give the same.

        >>> Record("ab", 0, seconds_em=1.0).reproducible() == Record("ab", 0, seconds_em=2.0).reproducible()
        True
        """
        return {name: value for name, value in asdict(self).items() if name not in MEASURED}


@dataclass(frozen=True)
class Record(BaseRecord):
    """The outcome of one trial in a world.

    The scores carry the suffix `_start` for the mixture with which EM began. A trial that failed has its `error`, and
    None for everything that was not reached.

    Attributes
    ----------
    max_length : int
        L of the model.
    n_iter, converged : int, bool
        Of EM. The supervised baseline makes no iteration.
    seconds_start, seconds_em : float
        Wall time of the initialisation, and of EM.
    margin : float
        Mean over pairs of intents of the smallest distance between their demonstrations' features.
    change : float
        Realised epsilon: how far the first E-step moves from the clusters of the warm start.
    nll, train_nll : float
        Of the test and training demonstrations.
    anid, anid_hard : float
        Of the test demonstrations' posterior, and of their most likely intents, from the true labels.
    anid_truth : float
        The same from the posterior of the true ensemble under the same model.
    accuracy : float
        Share of the test demonstrations, or test agents, whose most likely intent is the true one, after the best
        matching of intents.
    gevd, gevd_normalised : float
        None where rewards cannot be compared with the truth.
    weights, thetas : (K,), (K, d)
    history : list of float
        Mean NLL of the training demonstrations by iteration of EM; the first is the start's.
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
        """Wall time of initialisation and EM together: the paper's duration."""
        if self.seconds_start is None or self.seconds_em is None:
            return None
        return self.seconds_start + self.seconds_em


def describe_error(error: Exception) -> tuple[str, str]:
    """Return an error in one line, and its stack, innermost call last, by the names of files: records get published."""
    message = str(error).strip().splitlines() or ["no message"]
    frames = traceback.extract_tb(error.__traceback__)
    stack = [f"{Path(f.filename).name}:{f.lineno} in {f.name}: {f.line}" for f in frames]
    return f"{type(error).__name__}: {message[0]}", "\n".join(stack)


FIELDS = tuple(field.name for field in fields(Record))


@dataclass(frozen=True)
class DriverRecord(BaseRecord):
    """The outcome of one trial of the driver experiment; its seed is the number of the split.

    Likelihoods are in nats per trip and include that of the first segment; those of a model that is given a destination
    are of the path between both ends.

    Attributes
    ----------
    method, gamma : str, float
    n_iter, converged, n_evaluations : int, bool, int
        M-steps after the initial ensemble, whether EM converged, and values with gradients of all M-steps.
    seconds_start, seconds_em : float
        Wall time of the initial ensemble, and of EM.
    train_nll, test_nll : float
        Of the mixture.
    test_nll_bound : float
        The mean over intents of their own NLL, which the released code reports: an upper bound of the mixture's.
    test_nll_segment : float
        Of the mixture, per segment.
    missed, missed_distance, missed_time : float
        Share of the driven distance that predicted routes leave out, given origin and destination, averaged over test
        trips: of the mixture, of the shortest distance, and of the shortest time.
    surplus, surplus_distance, surplus_time : float
        The reverse of these: share of the predicted distance that is off the driven route.
    n_at_bounds : int
        Parameters of all intents that are on a bound.
    weights, thetas : (K,), (K, d)
    history : list of float
        NLL of the training trips by iteration.
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
        """Number of the split."""
        return self.seed

    @property
    def ensemble(self) -> RewardEnsemble:
        """The rewards and their mixture weights."""
        return RewardEnsemble(np.array(self.weights), np.array(self.thetas))
