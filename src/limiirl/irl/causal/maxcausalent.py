"""`MaxCausalEnt`: maximum causal entropy IRL (Ziebart 2010)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from limiirl._validation import check_choice, check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.irl import validate
from limiirl.irl.causal.finite_horizon import FiniteHorizonSolver
from limiirl.irl.causal.model import CausalModel
from limiirl.irl.causal.problem import DecisionCounts
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import PolicySolver, SoftBellmanSolver
from limiirl.irl.estimator import choose_device
from limiirl.mdp import MDP


class MaxCausalEnt(CausalModel):
    r"""Maximum causal entropy IRL: pi(a | s) = exp beta (Q(s, a) - V(s)), V = log sum_a exp(beta Q) / beta.

    Q(s, a) = r(s) + sum_s' P(s' | s, a) (r(s, a, s') + gamma V(s')); the value of a terminal state is its reward.
    Outcomes follow the dynamics: unlike in `MaxEnt`, their probabilities do not depend on the rewards. With
    max_length=inf, a demonstration is a prefix of a trajectory that may continue.

    Parameters
    ----------
    beta : float
        Inverse temperature. It is not learned, because only its product with the rewards affects the policy.
    bounds : (low, high), (d, 2) array, or None
        Bounds on theta. Unlike in `MaxEnt`, there are none by default, because policies depend on differences of
        rewards, whose sign is arbitrary.
    max_length : int or inf
        Maximum number of states in a trajectory. If finite, stopping is an additional action of value 0 in each state,
        and every demonstration ends with it. With deterministic transitions, beta = 1 and discount 1, the model then
        equals `MaxEnt` with condition="start". If inf, trajectories continue to a terminal state; at discount 1, the
        values must be finite.
    stop : {"anywhere", "terminal_or_max_length"}
        States in which a trajectory may end if `max_length` is finite.
    ridge : float or mapping of str to float
        Coefficient of the penalty ``|theta|^2 / 2`` that is added to the negative mean log-likelihood. It is positive
        by default, because theta diverges without a ridge and bounds if the demonstrations are optimal. A mapping has
        one coefficient per pattern of feature names, such as ``{"link *": 0.01}``. The first pattern that matches a
        name applies; features without a pattern are not penalised.
    ridge_per : {"demonstration", "step"}
        Whether the ridge is added to the negative mean log-likelihood per demonstration or per step. With "step", the
        fit does not depend on how recordings are divided into demonstrations.
    gtol : float
        Tolerance on the largest component of the projected gradient, relative to the mean number of decisions per
        demonstration.
    max_evaluations : int
        Maximum number of evaluations in `fit`. If it is reached, the best point is returned.
    device : {"cpu", "gpu", "auto"}
        "auto" uses a GPU if one works and the MDP is large.

    Attributes
    ----------
    theta_ : (d,)
        Result of the last `fit`.
    result_ : FitResult
        Details of the last `fit`.
    results_ : list of FitResult
        Details of the last `fit` or `fit_many`, one per column of weights.

    Examples
    --------
    Two paths lead from state 0 to state 3.

    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=[[0], [1], [0], [0]])
    >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 1, 3], [0, 1, 3], [0, 2, 3]])
    >>> theta = MaxCausalEnt(ridge=0.0).fit(mdp, demos)
    >>> print(round(theta[0], 4))  # three of four visit state 1: the log-odds are log 3
    1.0986
    """

    def __init__(  # noqa: PLR0913 (a model's parameters, each with a default)
        self,
        beta: float = 1.0,
        bounds: Any = None,
        *,
        max_length: float = math.inf,
        stop: str = "anywhere",
        ridge: float | Mapping[str, float] = 1e-4,
        ridge_per: str = "demonstration",
        gtol: float = 1e-6,
        max_evaluations: int = 1000,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            beta, bounds, ridge=ridge, ridge_per=ridge_per, gtol=gtol, max_evaluations=max_evaluations, device=device
        )
        self.max_length = max_length
        self.stop = stop

    def _solver(self, mdp: MDP) -> PolicySolver:
        validate.mdp(mdp)
        beta = check_positive(self.beta, "beta")
        stop = check_choice(self.stop, "stop", ("anywhere", "terminal_or_max_length"))
        max_length = self._finite_length()
        if max_length is None:
            validate.check_termination(mdp)
        device = choose_device(self.device, mdp.n_states + mdp.n_edges)
        if device is not None:
            from limiirl.irl.causal.gpu import GpuFiniteHorizonSolver, GpuSoftBellmanSolver

            if max_length is None:
                return GpuSoftBellmanSolver(StateActions(mdp), beta, device)
            return GpuFiniteHorizonSolver(StateActions(mdp), beta, max_length, device, stop=stop == "anywhere")
        if max_length is None:
            return SoftBellmanSolver(StateActions(mdp), beta)
        return FiniteHorizonSolver(StateActions(mdp), beta, max_length, stop=stop == "anywhere")

    def _finite_length(self) -> int | None:
        if isinstance(self.max_length, float) and self.max_length == math.inf:
            return None
        return int(validate.max_length(self.max_length))

    def _check(self, mdp: MDP, demos: Demonstrations, *, whole: bool) -> None:
        max_length = self._finite_length()
        if max_length is None:
            super()._check(mdp, demos, whole=whole)
        else:
            validate.check_trajectories(mdp, demos, self.stop if whole else "anywhere", max_length)

    def _decisions(self, mdp: MDP, demos: Demonstrations, units: Groups, *, whole: bool = True) -> DecisionCounts:
        max_length = self._finite_length()
        if max_length is None:
            return super()._decisions(mdp, demos, units, whole=whole)
        self._check(mdp, demos, whole=whole)
        return DecisionCounts.from_demos(mdp, demos, units, max_length, whole and self.stop == "anywhere")

    def _last_step(self) -> int | None:
        max_length = self._finite_length()
        return None if max_length is None else max_length - 1
