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
from limiirl.mixture.em import Solution, Start, State, nearly_empty, run
from limiirl.mixture.inference import Inference, Reporting
from limiirl.mixture.init import is_given
from limiirl.mixture.monitor import EMProgress, reporting
from limiirl.mixture.restarts import EMFromSeed, Restart, compare
from limiirl.mixture.reward_init import equal_pair, indistinct_pair


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
    max_evaluations : int, optional
        Cap on evaluations of an M-step; None: the paper's 50, or, of a model with its own `fit` alone, that model's. A
        model that cannot honour a number refuses it. A step that is cut short still never lowers the likelihood.
    degenerate : {"fit", "keep", "reseed"}
        What to do with an intent of hardly any members: fit it nevertheless, from which it often recovers; keep its
        reward; or plant it at the demonstration that is explained worst. ADR 0006 measures all three.
    annealing : (temperature, iterations), optional
        Begin with responsibilities softened by this temperature, which falls to 1 over so many iterations.
    random_state : int, Generator, RandomState or None
    callback : callable, optional
        Called with an `EMProgress` (done, total, message, restart, iteration) after every iteration.
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
        max_evaluations: int | None = None,
        degenerate: str = "fit",
        annealing: tuple[float, int] | None = None,
        random_state: Any = None,
        callback: Callable[[EMProgress], None] | None = None,
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
        em = EMFromSeed(self, irl, settings, mdp, validate.demonstrations(demos), groups)
        validate.enough(self.n_intents, em.problem.units)
        n_init = check_count(self.n_init, "n_init")
        seeds = validate.seeds(self.random_state, 1 if is_given(self.init) else n_init)
        with reporting(self.verbose, len(seeds), settings.max_iter, self.callback) as reports:
            if executor is None:
                em.reports = reports
                outcomes = list(map(em, enumerate(seeds)))
            else:
                outcomes = em.map(seeds, reports, executor)
        solutions = [outcome.solution for outcome in outcomes]
        best = solutions[int(np.argmax([solution.objective for solution in solutions]))]
        self._store(best, em.problem, compare(solutions, best))
        self.irl_ = em.irl  # which may differ from the problem's, if the model's `make_problem` replaces it
        self._warn(best, em.problem, {k for outcome in outcomes for k in outcome.empty}, stacklevel=3)
        return self

    def fit_from(
        self, problem: FitProblem, start: Start | State, *, keep: Callable[[State], None] | None = None
    ) -> IntentMixture:
        """Run EM on a fit problem from one start, and keep its solution: what `limiirl.streams` calls.

        Parameters
        ----------
        problem : FitProblem
            A model with statistics of demonstrations, in memory or streamed. What has one row per demonstration is None
            after a fit to a problem that keeps no responsibilities.
        start : Start or State
        keep : callable, optional
            Given the `State` after each iteration.
        """
        settings = validate.settings(self)
        with reporting(self.verbose, 1, settings.max_iter, self.callback) as reports:
            solution = run(problem, start, settings, reports(0), keep)
        ensemble = RewardEnsemble(solution.rho, solution.thetas)
        restart = Restart(solution.objective, solution.n_iter, solution.converged, ensemble, 0.0, True)
        self._store(solution, problem, [restart])
        self._warn(solution, problem, set(start.empty) if isinstance(start, Start) else set(), stacklevel=4)
        return self

    def fit_predict(self, mdp: Any, demos: Demonstrations, groups: ArrayLike | None = None) -> NDArray[np.int64]:
        """Fit, and return the intent (N,) of each demonstration."""
        self.fit(mdp, demos, groups)
        return np.asarray(self.labels_)

    def _store(self, best: Solution, problem: FitProblem, restarts: list[Restart]) -> None:
        units, kept = problem.units, isinstance(best.U, np.ndarray)
        self.weights_, self.thetas_ = best.rho, best.thetas
        self.responsibilities_: Any = units.broadcast(best.U) if kept else None
        self.labels_: Any = None if self.responsibilities_ is None else np.argmax(self.responsibilities_, axis=1)
        self.groups_ = units.names if kept and units.grouped else None
        self.group_responsibilities_ = best.U if kept and units.grouped else None
        self.log_likelihood_, self.objective_ = best.log_likelihood, best.objective
        self.history_, self.n_iter_, self.converged_ = best.history, best.n_iter, best.converged
        self.restarts_ = restarts
        self.irl_, self.mdp_ = problem.model, problem.mdp
        if problem.demos is None:
            self.__dict__.pop("_problem", None)  # of an earlier fit
        else:
            self._problem = problem

    @property
    def ensemble_(self) -> RewardEnsemble:
        """The weights and rewards as one value."""
        validate.fitted(self)
        return RewardEnsemble(self.weights_, self.thetas_)

    def _warn(self, best: Solution, problem: FitProblem, known_empty: set[int], stacklevel: int) -> None:
        """Warn of nearly empty intents, except those that were reported when they began empty, and of equal ones.

        A stream is fitted from one start and without reseeding: the advice differs.
        """
        n_units, streamed = len(problem.units), problem.demos is None
        empty = nearly_empty(best.sizes, n_units)
        small = np.array([k for k in np.flatnonzero(empty) if k not in known_empty], dtype=np.int64)
        pair = equal_pair(best.thetas, ~empty)
        what = "ended with the same rewards"
        # One warning is enough; and annealed responsibilities are alike where intents differ.
        if pair is None and not (small.size or streamed) and n_units > 1 and best.history[-1].event != "annealed":
            pair, what = indistinct_pair(best.U, ~empty), "assign the same likelihood to every demonstration"
        if pair is not None and self.max_iter > 0:
            warnings.warn(
                f"Intents {pair[0]} and {pair[1]} {what}: they are not separately identified. Use fewer intents.",
                DegenerateIntentWarning,
                stacklevel=stacklevel,
            )
        if small.size:
            listed = ", ".join(f"{k} (weight {best.rho[k]:.2g})" for k in small)
            advice = "or another init" if streamed else "another init, or degenerate='reseed'"
            warnings.warn(
                f"Nearly empty: intent {listed}; its reward is unreliable. Use fewer intents, {advice}.",
                DegenerateIntentWarning,
                stacklevel=stacklevel,
            )
        if not best.converged and self.max_iter > 0:
            last = best.history[-1]
            still = f"responsibilities still change by {last.change:.2g} per demonstration, above tol={self.tol:g}"
            why = f"its last step was {last.event}" if last.event else still
            more = "another random_state" if streamed else "a larger n_init"
            warnings.warn(
                f"EM stopped after {best.n_iter} iterations; {why}. Raise max_iter or tol; {more} may help.",
                ConvergenceWarning,
                stacklevel=stacklevel,
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
