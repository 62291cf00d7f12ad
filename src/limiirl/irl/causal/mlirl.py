"""`MLIRL`: maximum likelihood IRL (Babes-Vroman et al. 2011), a Boltzmann policy on hard or on averaged Q-values."""

from __future__ import annotations

from typing import Any

from limiirl._validation import check_choice, check_count, check_positive
from limiirl.irl import validate
from limiirl.irl.causal.finite_horizon import SoftmaxAverageSolver
from limiirl.irl.causal.model import CausalModel
from limiirl.irl.causal.state_actions import StateActions
from limiirl.irl.causal.stationary import HardBellmanSolver, PolicySolver
from limiirl.irl.device import choose_device
from limiirl.mdp import MDP


class MLIRL(CausalModel):
    r"""Maximum likelihood IRL: the policy pi(a | s) in proportion to exp beta Q(s, a).

    Q(s, a) = r(s) + sum_s' P(s' | s, a) (r(s, a, s') + gamma V(s')). With q="hard" V is the value of the best action:
    whoever errs now expects not to err later. With q="bv" it is the average over the policy, V = sum_a pi Q.

    Parameters
    ----------
    beta : float
        How much better actions are preferred. Only its product with the rewards matters, so that it is fixed.
    q : {"hard", "bv"}
        "hard" is what the paper's experiments use. Its likelihood has kinks where the best action changes, at which the
        search looks around for a way on. "bv" is the published model: its equation may have several solutions, so that
        the policy is by definition that of `n_backups` Bellman backups from Q = r; `residual` says how far they got.
    bounds : (low, high), (d, 2) array, or None
        Bounds on theta. None by default; see `MaxCausalEnt`.
    n_backups : int
        Number of Bellman backups of q="bv", part of the model.
    ridge : float
        Adds ridge / 2 times the squared length of theta to minus the mean log-likelihood. Above 0 by default, since
        without it, or bounds, demonstrators who never err have no finite maximum.
    gtol : float
        Largest component of the projected gradient at the solution, relative to the mean number of choices.
    max_evaluations : int
        Cap on values with gradients in `fit`; the best point is kept.
    device : {"cpu", "gpu", "auto"}
        Where values and gradients are computed; "auto" takes a GPU where one works and the MDP is large enough to gain.
        At discount 1, q="hard" is computed on the CPU whatever the device.

    Attributes
    ----------
    result_ : FitResult
        What the last `fit` found.
    results_ : list of FitResult
        What the last `fit` or `fit_many` found for each column of weights.

    Examples
    --------
    >>> from limiirl.demos import Demonstrations
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=[[0], [1], [0], [0]])
    >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 1, 3], [0, 1, 3], [0, 2, 3]])
    >>> theta = MLIRL(ridge=0.0).fit(mdp, demos)
    >>> print(round(0.5 * theta[0], 4))  # three of four go by state 1: the log-odds are log 3
    1.0986
    """

    def __init__(
        self,
        beta: float = 0.5,
        q: str = "hard",
        bounds: Any = None,
        *,
        n_backups: int = 100,
        ridge: float = 1e-4,
        gtol: float = 1e-6,
        max_evaluations: int = 1000,
        device: str = "cpu",
    ) -> None:
        self.beta = beta
        self.q = q
        self.bounds = bounds
        self.n_backups = n_backups
        self.ridge = ridge
        self.gtol = gtol
        self.max_evaluations = max_evaluations
        self.device = device

    def _engine(self, mdp: MDP) -> PolicySolver:
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
