"""One trial: make a world from a seed, fit a mixture to its demonstrations, and judge it by others and by the truth.

Paper: section "ElementWorld Results", experimental configuration.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.mixture import GaussianMixture

from limiirl._parallel import one_thread
from limiirl.errors import LimiirlWarning
from limiirl.experiments.problem import AgentsProblem, WorldProblem, known, make_agents, make_problem, with_agents
from limiirl.experiments.record import Record, describe_error
from limiirl.experiments.spec import FULL_GMM, Parameters, Spec
from limiirl.irl import MaxEnt, model_class
from limiirl.mixture import IntentMixture
from limiirl.theory import inter_cluster_margin

_GMM_STARTS = 5


def pose(spec: Spec, seed: int) -> WorldProblem | AgentsProblem:
    """Return what a trial is about, with demonstrations or with agents, as its model needs.

    Examples
    --------
    >>> len(pose(Spec(n_demos=12), seed=3).demos), len(pose(Spec(n_demos=12, n_agents=2), seed=3).demos)
    (12, 6)
    """
    return make_agents(spec, seed) if with_agents(spec) else make_problem(spec, seed)


def make_mixture(spec: Spec, seed: int) -> IntentMixture:
    """Return the mixture of a trial, not fitted; the supervised one is given the true labels.

    Examples
    --------
    >>> make_mixture(Spec(n_intents=2, init="gmm"), seed=3)
    IntentMixture(...)
    """
    problem = pose(spec, seed)
    irl = model_class(spec.model)(**dict(spec.model_parameters))
    if isinstance(problem, WorldProblem) and irl.get_params().get("max_length", "") is None:  # left to the data
        irl.set_params(max_length=problem.longest if isinstance(spec.max_length, str) else spec.max_length)
    init: Any = spec.init
    if spec.supervised:
        init = problem.labels
    elif spec.init == FULL_GMM:
        init = GaussianMixture(init_params="random", n_init=_GMM_STARTS)
    more: dict[str, Any] = dict(spec.mixture_parameters)
    return IntentMixture(spec.n_intents, irl, init, spec.reward_init, max_iter=spec.max_iter, random_state=seed, **more)


def run_trial(spec: Spec, seed: int) -> Record:
    """Fit and judge one mixture. The record depends on the arguments alone, its times apart.

    EM is run in two parts, so that the mixture with which it begins is judged by the same rules: the initialisation,
    then EM from there. Where further parameters of the mixture are given, which may ask for several starts, the second
    part is a whole fit, and what it takes longer than the first is the time of EM.

    Parameters
    ----------
    spec : Spec
    seed : int
        Of the world, of both sets of demonstrations and of the initialisation.

    Examples
    --------
    >>> record = run_trial(Spec(n_demos=60), seed=2)
    >>> record.n_iter, record.train_nll < record.train_nll_start, round(record.anid, 2)
    (2, True, 0.03)
    """
    with run_alone():
        problem = pose(spec, seed)
        _warm_up(spec.model, spec.model_parameters, spec.mixture_parameters, with_agents(spec))
        mixture = make_mixture(spec, seed)
        first, seconds_start = _timed(lambda: fit_problem(mixture.set_params(max_iter=0), problem))
        mixture = make_mixture(spec, seed)
        if spec.supervised or spec.max_iter == 0:
            last, seconds_em = first, 0.0
        elif spec.mixture_parameters:
            last, seconds = _timed(lambda: fit_problem(mixture, problem))
            seconds_em = max(seconds - seconds_start, 0.0)
        else:
            last, seconds_em = _timed(lambda: fit_problem(mixture.set_params(init=first.ensemble_), problem))
        start = problem.scores(first)
        final = start if last is first else problem.scores(last)
    return Record(
        spec.hash,
        seed,
        max_length=getattr(last.irl_, "max_length", None) if isinstance(last.irl_, MaxEnt) else None,
        n_iter=last.n_iter_,
        converged=last.converged_,
        seconds_start=seconds_start,
        seconds_em=seconds_em,
        margin=inter_cluster_margin(problem.points(last.irl_), problem.labels) if problem.n_labels > 1 else None,
        change=known(first.history_[0].change),
        history=[-entry.log_likelihood for entry in last.history_],
        **{f"{name}_start": value for name, value in start.items()},
        **final,
    )


def attempt(task: tuple[Spec, int]) -> Record:
    """Run a trial; if it fails, return a record of its error.

    Examples
    --------
    >>> attempt((Spec(world="Nowhere"), 0)).error
    "InvalidParameter: world must be one of ElementWorld, PuddleWorld, ...; got 'Nowhere'."
    """
    spec, seed = task
    try:
        return run_trial(spec, seed)
    except Exception as error:  # noqa: BLE001 (whatever it is, it belongs in the record and must not stop the others)
        return Record(spec.hash, seed, *describe_error(error))


@lru_cache
def _warm_up(model: str, given: Parameters, more: Parameters, agents: bool) -> None:
    """Compile what a fit calls, once a process, so that no trial's time includes it."""
    small = Spec(n_demos=18, n_test=18, model=model, model_parameters=given, mixture_parameters=more)
    small = small.with_(n_agents=2) if agents else small
    for init in ("kmeans", "gmm"):
        fit_problem(make_mixture(small.with_(init=init, max_iter=1), 0), pose(small, 0))


@contextmanager
def run_alone() -> Iterator[None]:
    """Compute on one thread: other trials keep the other cores busy, and the last bits depend on the number."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", LimiirlWarning)  # what they say is in the record
            warnings.simplefilter("ignore", SklearnConvergenceWarning)  # a poor clustering is part of what is judged
            yield
    finally:
        numba.set_num_threads(before)


def _timed(work: Callable[[], IntentMixture]) -> tuple[IntentMixture, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def fit_problem(mixture: IntentMixture, problem: WorldProblem | AgentsProblem) -> IntentMixture:
    """Fit a mixture to the demonstrations, or agents, of a problem."""
    return mixture.fit(problem.fitted_in, problem.demos)  # type: ignore[arg-type]
