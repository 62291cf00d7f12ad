"""`LinearRewardModel`, the base class of models with linear rewards, and the selection of their device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from limiirl._estimator import NoMetadataRouting
from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations, resolve_environments
from limiirl.errors import InvalidParameter
from limiirl.irl import validate
from limiirl.irl.base import Capabilities, FitResult
from limiirl.kernels.gpu.device import Device, find_device, need_device
from limiirl.mdp import MDP

if TYPE_CHECKING:
    from limiirl.irl.maxent.gpu import GpuBackend
    from limiirl.mixture import StandardErrors, Summary


DEVICES = ("cpu", "gpu", "auto")
# Smallest number of states plus edges for which "auto" uses a GPU; smaller problems are faster on the CPU (ADR 0018).
GPU_MIN_SIZE = 10_000


def choose_device(name: object, size: int) -> Device | None:
    """Return the GPU to use for a problem of `size` states plus edges, or None for the CPU.

    Raises
    ------
    BackendUnavailable
        If `name` is "gpu" and no GPU works.
    """
    check_device(name)
    if name == "gpu":
        return need_device()
    return find_device() if name == "auto" and size >= GPU_MIN_SIZE else None


def check_device(name: object) -> None:
    """Raise unless a device name is valid; whether the device is available is not checked."""
    if not (isinstance(name, str) and name in DEVICES):
        raise InvalidParameter.of("device", name, f"must be one of {', '.join(DEVICES)}")


def choose_backend(name: object, mdp: MDP) -> GpuBackend | None:
    """Return the backend of an MDP on a GPU, or None for the CPU."""
    device = choose_device(name, mdp.n_states + mdp.n_edges)
    if device is None:
        return None
    from limiirl.irl.maxent.gpu import gpu_backend

    return gpu_backend(mdp, device)


def allow_cpu(model: Any) -> Any:
    """Change a model's device from "gpu" to "auto", so that the model also runs without a GPU; return the model.

    Examples
    --------
    >>> from limiirl import MaxEnt
    >>> allow_cpu(MaxEnt(device="gpu")).device, allow_cpu(MaxEnt()).device
    ('auto', 'cpu')
    """
    if getattr(model, "device", None) == "gpu":
        model.device = "auto"
    return model


class LinearRewardModel(Capabilities, NoMetadataRouting, BaseEstimator, ABC):  # type: ignore[misc]
    """Base class of `MaxEnt`, `MaxCausalEnt`, `MLIRL` and `DestinationMaxEnt`.

    A subclass implements `log_prob`, `_fit` (one result per column of weights) and `_null_directions_of_fit`.
    """

    bounds: Any
    ridge: float | Mapping[str, float]
    gtol: float
    max_evaluations: int

    def fit(
        self,
        mdp: Any,
        demos: Demonstrations | None = None,
        weights: ArrayLike | None = None,
        start: ArrayLike | None = None,
    ) -> FloatArray:
        """Return the theta (d,) within the bounds that maximises the weighted log-likelihood minus the ridge penalty.

        Parameters
        ----------
        mdp : MDP, or list or mapping of pairs (MDP, Demonstrations)
            Pairs are environments with the same rewards; see `combine_environments`. `demos` is omitted then.
        demos : Demonstrations
        weights : (N,), optional
            Weight of each demonstration; 1 by default.
        start : (d,), optional
            Initial point of the optimiser. The default is a feasible point near 0. If the likelihood has several local
            maxima, as for causal models with stochastic transitions, the result depends on the initial point.
        """
        mdp, demos = resolve_environments(mdp, demos)
        demos = validate.in_numbers_of(mdp, demos)
        column = validate.weights(weights, validate.demonstrations(demos), columns=False)
        first = None if start is None else validate.one_theta(mdp, start, "start")[None]
        with validate.start_errors():
            result = self._search(mdp, demos, column, first)[0]
        self._store_resolved(demos)
        validate.warn_unless_converged(result)
        validate.warn_of_small_features(mdp)
        directions = self._null_directions_of_fit(mdp, demos, column[:, 0], result.theta)
        self.result_ = validate.with_identifiability(result, directions, self.bounds, mdp)
        self.theta_ = self.result_.theta
        return self.theta_

    def summary(
        self,
        mdp: MDP,
        demos: Demonstrations,
        groups: ArrayLike | None = None,
        *,
        covariance: str = "observed",
        clusters: ArrayLike | None = None,
    ) -> Summary:
        """Return a summary of the last `fit`: likelihood, and rewards with standard errors, t-values and p-values.

        It equals that of a mixture of one intent. Demonstrations have weights of 1.

        Parameters
        ----------
        mdp, demos : MDP, Demonstrations
            The arguments of `fit`.
        groups : (N,), optional
            Groups of demonstrations that count as one unit each.
        covariance : {"observed", "robust", "cluster"}
        clusters : (N,), optional
            See `IntentMixture.standard_errors`.

        Examples
        --------
        >>> from limiirl import MDP, Demonstrations, MaxEnt
        >>> mdp = MDP.from_edges([0], [1], p0=[1, 0], state_features=[[0], [1]], feature_names=["going on"])
        >>> demos = Demonstrations.from_lists([[0]] * 20 + [[0, 1]] * 60)
        >>> irl = MaxEnt(2, bounds=None)
        >>> theta = irl.fit(mdp, demos)
        >>> irl.summary(mdp, demos, covariance="robust").errors.round(4).tolist()
        [[0.2598]]
        """
        from limiirl.mixture import summarise_model

        return summarise_model(self, mdp, demos, groups, covariance, clusters)

    def standard_errors(
        self,
        mdp: MDP,
        demos: Demonstrations,
        groups: ArrayLike | None = None,
        *,
        covariance: str = "observed",
        clusters: ArrayLike | None = None,
    ) -> StandardErrors:
        """Return standard errors of the last `fit`, as of a mixture of one intent; see `summary`."""
        from limiirl.mixture import problem_of_model, standard_errors

        problem, theta = problem_of_model(self, mdp, demos, groups)
        return standard_errors(problem, np.ones(1), theta, covariance, clusters)

    def fit_many(
        self, mdp: MDP, demos: Demonstrations, weights: ArrayLike, starts: ArrayLike | None = None
    ) -> FloatArray:
        """Fit one theta per column of weights (N, K) in one batch, from `starts` (K, d); return thetas (K, d).

        Each row equals the result of `fit` with the corresponding column. Only the fitted attribute `results_` is set.
        """
        demos = validate.in_numbers_of(mdp, demos)
        columns = validate.weights(weights, validate.demonstrations(demos), columns=True)
        if starts is not None:
            validate.mdp(mdp)
            starts = mdp.check_thetas(starts, "starts")
        results = self._search(mdp, demos, columns, starts)
        return np.array([result.theta for result in results])

    def _search(
        self, mdp: MDP, demos: Demonstrations, weights: FloatArray, starts: FloatArray | None
    ) -> list[FitResult]:
        validate.starts(starts, weights.shape[1])
        self.results_ = self._fit(mdp, demos, weights, starts)
        return self.results_

    def _store_resolved(self, demos: Demonstrations) -> None:
        """Store the parameters that `fit` determines from the demonstrations; the default stores none."""

    @abstractmethod
    def _fit(self, mdp: MDP, demos: Demonstrations, weights: FloatArray, starts: FloatArray | None) -> list[FitResult]:
        """Minimise the objective of each column of weights (N, K), from `starts` (K, d) if given."""

    @abstractmethod
    def _null_directions_of_fit(
        self, mdp: MDP, demos: Demonstrations, weights: FloatArray, theta: FloatArray
    ) -> FloatArray:
        """Return the null directions (m, d) at the fitted theta, given the demonstrations and their weights."""
