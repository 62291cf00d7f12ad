"""`MLIRL`: maximum likelihood IRL (Babes-Vroman et al. 2011), a Boltzmann policy on Q-values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from limiirl._validation import check_choice, check_count, check_positive
from limiirl.irl import validate
from limiirl.irl.causal.finite_horizon import SoftmaxAverageSolver
from limiirl.irl.causal.model import CausalModel
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import HardBellmanSolver, PolicySolver
from limiirl.irl.estimator import choose_device
from limiirl.mdp import MDP


class MLIRL(CausalModel):
    r"""Maximum likelihood IRL: pi(a | s) = exp beta Q(s, a) / sum_a' exp beta Q(s, a').

    Q(s, a) = r(s) + sum_s' P(s' | s, a) (r(s, a, s') + gamma V(s')), where V is the value of the best action (q="hard")
    or of the policy itself, V = sum_a pi Q (q="bv").

    Parameters
    ----------
    beta : float
        Inverse temperature. It is not learned, because only its product with the rewards affects the policy.
    q : {"hard", "bv"}
        "hard" is used in the paper's experiments; its likelihood is nonsmooth at parameters where the best action
        changes. "bv" is the model of Babes-Vroman et al. Its Bellman equation may have several solutions. Therefore the
        policy is defined by `n_backups` backups from Q = r; the method `residual` returns the Bellman residual.
    bounds : (low, high), (d, 2) array, or None
        Bounds on theta. There are none by default, because policies depend on differences of rewards, whose sign is
        arbitrary.
    n_backups : int
        Number of Bellman backups if q="bv". It is part of the model.
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
        "auto" uses a GPU if one works and the MDP is large. At discount 1, q="hard" always runs on the CPU.

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
    >>> from limiirl.demos import Demonstrations
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=[[0], [1], [0], [0]])
    >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 1, 3], [0, 1, 3], [0, 2, 3]])
    >>> theta = MLIRL(ridge=0.0).fit(mdp, demos)
    >>> print(round(0.5 * theta[0], 4))  # three of four visit state 1: the log-odds are log 3
    1.0986
    """

    def __init__(  # noqa: PLR0913 (a model's parameters, each with a default)
        self,
        beta: float = 0.5,
        q: str = "hard",
        bounds: Any = None,
        *,
        n_backups: int = 100,
        ridge: float | Mapping[str, float] = 1e-4,
        ridge_per: str = "demonstration",
        gtol: float = 1e-6,
        max_evaluations: int = 1000,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            beta, bounds, ridge=ridge, ridge_per=ridge_per, gtol=gtol, max_evaluations=max_evaluations, device=device
        )
        self.q = q
        self.n_backups = n_backups

    def _solver(self, mdp: MDP) -> PolicySolver:
        validate.mdp(mdp)
        beta, n_backups = check_positive(self.beta, "beta"), check_count(self.n_backups, "n_backups")
        hard = check_choice(self.q, "q", ("hard", "bv")) == "hard"
        device = choose_device(self.device, mdp.n_states + mdp.n_edges)
        if device is not None:
            from limiirl.irl.causal.gpu import GpuHardBellmanSolver, GpuSoftmaxAverageSolver

            if hard:
                return GpuHardBellmanSolver(StateActions(mdp), beta, device)
            return GpuSoftmaxAverageSolver(StateActions(mdp), beta, n_backups, device)
        if hard:
            return HardBellmanSolver(StateActions(mdp), beta)
        return SoftmaxAverageSolver(StateActions(mdp), beta, n_backups)
