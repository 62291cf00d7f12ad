"""`IntentMixture`: the estimator that learns intents, their shares, and who follows which."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from limiirl._parallel import Mapper
from limiirl._validation import check_count
from limiirl.demos import Demonstrations
from limiirl.errors import ConvergenceWarning, DegenerateIntentWarning
from limiirl.irl import FitProblem, MaxEnt
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import io, validate
from limiirl.mixture.em import Iteration, Solution, few
from limiirl.mixture.inference import Inference, Reporting
from limiirl.mixture.init import is_given
from limiirl.mixture.monitor import reporting
from limiirl.mixture.restarts import FromStart, Restart, compare
from limiirl.mixture.reward_init import alike, indistinct


class IntentMixture(Inference, Reporting, BaseEstimator):  # type: ignore[misc]
    r"""A mixture of intents: p(tau) = sum_k rho_k p(tau | theta_k), fitted by EM from a warm start (LiMIIRL).

    Demonstrations are clustered in feature space first, which costs next to nothing; each cluster gives an intent its
    first reward, and EM goes on from there. The single-intent model is any object with `fit` and `log_prob`.

    Parameters
    ----------
    n_intents : int
        K, the number of intents.
    irl : model, optional
        The single-intent model; `MaxEnt()` by default. It is cloned, never changed.
    init : str, array, RewardEnsemble, clusterer or callable
        "kmeans", "gmm" (soft clusters), "best" (both, and k-means of gradients: the start that explains the
        demonstrations best), "random" (random responsibilities), "random_rewards" (the paper's baseline);
        labels (N,); responsibilities (N, K); a `RewardEnsemble`; a scikit-learn clusterer; or a function of the points
        (N, m), K and a Generator that returns any of these.
    reward_init : {"mle", "mean", "mean_clipped", "mean_ray"} or callable
        The first reward of a cluster: the one that explains it best; its centred mean features; these moved into the
        bounds; or these times the factor that explains it best.
    embedding : {"shares", "gradients"}, (N, m) array or callable, optional
        What to cluster instead of feature counts: their shares, which do not depend on a walk's length; gradients of
        the likelihood; points; or a function of (mdp, demos) that makes them.
    refine : {"split_merge"}, optional
        Go on after EM with moves that split one intent and merge two others, wherever that raises the objective.
    n_init : int
        How many times to start; the solution of the highest objective is kept. Starts that are given run once.
    max_iter : int
        Most M-steps after the start, and after each move of `refine`; 0 keeps the initial ensemble.
    tol : float
        EM has converged when the mean absolute change of responsibilities is below this (the paper's rule).
    likelihood_tol : float, optional
        It has also converged when the objective rises by less than this.
    max_evaluations : int
        Cap on evaluations of an M-step, the paper's 50. A step that is cut short still never lowers the likelihood.
    degenerate : {"fit", "keep", "reseed"}
        What to do with an intent of hardly any members: fit it nevertheless, from which it often recovers; keep its
        reward; or plant it at the demonstration that is explained worst. ADR 0006 measures all three.
    annealing : (temperature, iterations), optional
        Begin with responsibilities softened by this temperature, which falls to 1 over so many iterations.
    random_state : int, Generator, RandomState or None
    callback : callable, optional
        Called with (restart, `Iteration`) after every iteration.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    weights_, thetas_, ensemble_ : (K,), (K, d), RewardEnsemble
    responsibilities_, labels_ : (N, K), (N,)
    groups_, group_responsibilities_ : (G,), (G, K), where `fit` was given groups; else None
    log_likelihood_ : float
        Mean over demonstrations, or groups.
    history_ : list of Iteration
        Likelihood, change and weights at each iteration of the best start.
    n_iter_, converged_ : int, bool
        M-steps after the initial ensemble, and whether a stopping rule held.
    restarts_ : list of Restart
        What each start found, and how far from the best.
    irl_, mdp_ : the model and the MDP that were fitted

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
    >>> demos = Demonstrations.from_lists([[0, 1, 3]] * 3 + [[0, 2, 3]])
    >>> mix = IntentMixture(n_intents=2, irl=MaxEnt(bounds=(-5, 5)), random_state=0).fit(mdp, demos)
    >>> mix.labels_.tolist()
    [0, 0, 0, 1]
    >>> mix.weights_.round(2)
    array([0.75, 0.25])
    """

    def __init__(  # noqa: PLR0913 (an estimator's parameters, each with a default)
        self,
        n_intents: int = 2,
        irl: Any = None,
        init: Any = "kmeans",
        reward_init: Any = "mle",
        *,
        embedding: Any = None,
        refine: str | None = None,
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-6,
        likelihood_tol: float | None = None,
        max_evaluations: int = 50,
        degenerate: str = "fit",
        annealing: tuple[float, int] | None = None,
        random_state: Any = None,
        callback: Callable[[int, Iteration], None] | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_intents = n_intents
        self.irl = irl
        self.init = init
        self.reward_init = reward_init
        self.embedding = embedding
        self.refine = refine
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.likelihood_tol = likelihood_tol
        self.max_evaluations = max_evaluations
        self.degenerate = degenerate
        self.annealing = annealing
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    def fit(
        self, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None, *, executor: Mapper | None = None
    ) -> IntentMixture:
        """Learn the intents behind demonstrations.

        Parameters
        ----------
        mdp : MDP
        demos : Demonstrations
        groups : (N,), optional
            Whom each demonstration belongs to: all those of a driver, an animal or a recording then share an intent.
            Weights are shares of groups. `demos.groups` has them where they were recorded.
        executor : limiirl.executors.Executor, optional
            Where the `n_init` starts run, at once; or any executor of processes. The result is the same, bit for
            bit. `callback` is called for a start once it has ended.
        """
        settings = validate.settings(self)
        irl = validate.fresh(MaxEnt() if self.irl is None else self.irl)
        starts = FromStart(self, irl, settings, mdp, validate.demonstrations(demos), groups)
        validate.enough(self.n_intents, starts.prepared.units)
        n_init = check_count(self.n_init, "n_init")
        seeds = validate.seeds(self.random_state, 1 if is_given(self.init) else n_init)
        with reporting(self.verbose, len(seeds), settings.max_iter, self.callback) as told:
            outcomes = starts.run(seeds, told, executor)
        solutions = [outcome.solution for outcome in outcomes]
        best = solutions[int(np.argmax([solution.objective for solution in solutions]))]
        self._keep(best, starts.prepared, compare(solutions, best))
        self.irl_ = starts.irl
        self._warn(best, len(starts.prepared.units), {k for outcome in outcomes for k in outcome.empty})
        return self

    def fit_predict(self, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None) -> NDArray[np.int64]:
        """Fit, and return the intent (N,) of each demonstration."""
        self.fit(mdp, demos, groups)
        return np.asarray(self.labels_)

    def _keep(self, best: Solution, prepared: FitProblem, restarts: list[Restart]) -> None:
        units = prepared.units
        self.weights_, self.thetas_ = best.rho, best.thetas
        self.responsibilities_ = units.broadcast(best.U)
        self.labels_ = np.argmax(self.responsibilities_, axis=1)
        self.groups_ = units.names if units.grouped else None
        self.group_responsibilities_ = best.U if units.grouped else None
        self.log_likelihood_, self.objective_ = best.log_likelihood, best.objective
        self.history_, self.n_iter_, self.converged_ = best.history, best.n_iter, best.converged
        self.restarts_ = restarts
        self.mdp_, self._problem = prepared.mdp, prepared

    @property
    def ensemble_(self) -> RewardEnsemble:
        """The weights and rewards as one value."""
        validate.fitted(self)
        return RewardEnsemble(self.weights_, self.thetas_)

    def _warn(self, best: Solution, n_units: int, told: set[int], *, streamed: bool = False) -> None:
        """Warn of intents that nobody follows, unless their start was told to be empty, or that are the same.

        A stream is fitted from one start and without reseeding, so that these are no advice there.
        """
        empty = few(best.sizes, n_units)
        small = np.array([k for k in np.flatnonzero(empty) if k not in told], dtype=np.int64)
        pair = alike(best.thetas, ~empty)
        what = "ended with the same rewards"
        # One word is enough; and what is annealed looks alike that is not.
        if pair is None and not (small.size or streamed) and n_units > 1 and best.history[-1].event != "annealed":
            pair, what = indistinct(best.U, ~empty), "explain every demonstration equally well"
        if pair is not None and self.max_iter > 0:
            warnings.warn(
                f"Intents {pair[0]} and {pair[1]} {what}: the data do not tell them apart. Use fewer intents.",
                DegenerateIntentWarning,
                stacklevel=3,
            )
        if small.size:
            listed = ", ".join(map(str, small))
            todo = "or another init" if streamed else "another init, or degenerate='reseed'"
            warnings.warn(
                f"Hardly anybody follows intent {listed} (weights {best.rho[small].round(6).tolist()}): its reward "
                f"means little. Use fewer intents, {todo}.",
                DegenerateIntentWarning,
                stacklevel=3,
            )
        if not best.converged and self.max_iter > 0:
            last = best.history[-1]
            still = f"responsibilities still change by {last.change:.2g} a demonstration, above tol={self.tol:g}"
            why = f"its last step was {last.event}" if last.event else still
            more = "another random_state" if streamed else "a larger n_init"
            warnings.warn(
                f"EM stopped after {best.n_iter} iterations; {why}. Raise max_iter or tol; {more} may help.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a fitted mixture to a folder of JSON and npz, whole or not at all; `IntentMixture.load` reads it.

        A mixture that stands there already is replaced once the new one is complete; any other folder is refused. The
        model must have a name (`limiirl.irl.register_model`). What has no form in a file is replaced: a clusterer or
        function given as `init` by the ensemble that was found, a callback, a Generator, or a function given as
        `embedding` or `reward_init` by that parameter's default. The training data are not written.
        """
        io.save(self, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> IntentMixture:
        """Read a mixture that `save` wrote; it predicts bit for bit what the saved one does.

        A folder that is incomplete, truncated, not ours or from a newer limiirl is an `InvalidFile` that says so. A
        model of your own must be registered first. The training data are not in the folder. A model that was fitted
        with device="gpu" comes back with "auto": it can be used where there is no GPU.
        """
        return io.load(cls, folder)
