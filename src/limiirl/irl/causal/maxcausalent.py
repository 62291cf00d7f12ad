"""`MaxCausalEnt`: maximum causal entropy IRL (Ziebart 2010), of unbounded or bounded length."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import check_choice, check_count, check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.irl import validate
from limiirl.irl.causal.finite_horizon import FiniteHorizonSolver
from limiirl.irl.causal.likelihood import DecisionCounts
from limiirl.irl.causal.model import CausalModel
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import PolicySolver, SoftBellmanSolver
from limiirl.irl.device import choose_device
from limiirl.mdp import MDP


class MaxCausalEnt(CausalModel):
    r"""Maximum causal entropy: the policy pi(a | s) = exp beta (Q(s, a) - V(s)), V = log sum_a exp(beta Q) / beta.

    Choices are made before their outcomes are known, so that, unlike `MaxEnt`, the model assumes no luck: where moves
    are uncertain it recovers rewards better. Q(s, a) = r(s) + sum_s' P(s' | s, a) (r(s, a, s') + gamma V(s')), and a
    terminal state is worth its reward. A demonstration is the beginning of a behaviour that may go on, unless there is
    a `max_length`. Gradients are exact, by one linear solve whatever the number of features.

    Parameters
    ----------
    beta : float
        How much better actions are preferred. Only its product with the rewards matters, so that it is fixed: a larger
        one gives smaller rewards.
    bounds : (low, high), (d, 2) array, or None
        Bounds on theta. None by default, unlike `MaxEnt`: policies depend on differences of rewards alone, so that
        positive rewards are as good as negative ones.
    max_length : int or inf
        The largest number of states of a trajectory. If finite, to stop is a choice in each state, worth 0, and a
        demonstration says that it stopped where it ends. With certain moves, beta 1 and no discount this is `MaxEnt`
        with condition="start". By default trajectories go on to a terminal state; at discount 1 values must be finite.
    stop : {"anywhere", "terminal_or_max_length"}
        Where a trajectory may end, given a finite `max_length`.
    ridge : float
        Adds ridge / 2 times the squared length of theta to minus the mean log-likelihood. Above 0 by default, since
        without it, or bounds, demonstrators who never err have no finite maximum.
    gtol : float
        Largest component of the projected gradient at the solution, relative to the mean number of choices.
    max_evaluations : int
        Cap on values with gradients in `fit`; the best point is kept.
    device : {"cpu", "gpu", "auto"}
        Where values and gradients are computed; "auto" takes a GPU where one works and the MDP is large enough to gain.

    Attributes
    ----------
    result_ : FitResult
        What the last `fit` found.
    results_ : list of FitResult
        What the last `fit` or `fit_many` found for each column of weights.

    Examples
    --------
    Two ways lead from state 0 to state 3.

    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=[[0], [1], [0], [0]])
    >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 1, 3], [0, 1, 3], [0, 2, 3]])
    >>> theta = MaxCausalEnt(ridge=0.0).fit(mdp, demos)
    >>> print(round(theta[0], 4))  # three of four go by state 1: the log-odds are log 3
    1.0986
    """

    def __init__(
        self,
        beta: float = 1.0,
        bounds: Any = None,
        *,
        max_length: float = math.inf,
        stop: str = "anywhere",
        ridge: float = 1e-4,
        gtol: float = 1e-6,
        max_evaluations: int = 1000,
        device: str = "cpu",
    ) -> None:
        self.beta = beta
        self.bounds = bounds
        self.max_length = max_length
        self.stop = stop
        self.ridge = ridge
        self.gtol = gtol
        self.max_evaluations = max_evaluations
        self.device = device

    def _engine(self, mdp: MDP) -> PolicySolver:
        validate.mdp(mdp)
        beta = check_positive(self.beta, "beta")
        stop = check_choice(self.stop, "stop", ("anywhere", "terminal_or_max_length"))
        max_length = self._finite_length()
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
        """Return the largest number of states, or None if there is none."""
        if isinstance(self.max_length, float) and self.max_length == math.inf:
            return None
        return check_count(self.max_length, "max_length")

    def _events(self, mdp: MDP, demos: Demonstrations, units: Groups, *, whole: bool = True) -> DecisionCounts:
        max_length = self._finite_length()
        if max_length is None:
            return super()._events(mdp, demos, units, whole=whole)
        validate.fits_model(mdp, demos, self.stop if whole else "anywhere", max_length)
        return DecisionCounts(mdp, demos, units, max_length, whole and self.stop == "anywhere")

    def _step_of(self, demos: Demonstrations) -> NDArray[np.int64]:
        return super()._step_of(demos) if self._finite_length() is None else demos.lengths - 1

    def _last_step(self) -> int:
        return (self._finite_length() or 1) - 1
