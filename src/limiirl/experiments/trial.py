"""One trial: generate a world from a seed, fit a mixture to its demonstrations, and evaluate it.

Paper: section "ElementWorld Results", experimental configuration.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.mixture import GaussianMixture

from limiirl._parallel import one_thread
from limiirl.errors import InvalidParameter, LimiirlWarning
from limiirl.experiments.problem import AgentsProblem, WorldProblem, make_agents, make_problem, nan_to_none, with_agents
from limiirl.experiments.record import Record, describe_error
from limiirl.experiments.spec import FULL_GMM, Parameters, Spec
from limiirl.irl import model_class
from limiirl.mixture import IntentMixture
from limiirl.theory import inter_cluster_margin

_GMM_STARTS = 5


def get_problem(spec: Spec, seed: int) -> WorldProblem | AgentsProblem:
    """Return the problem of a trial, with demonstrations or agents depending on the model."""
    return make_agents(spec, seed) if with_agents(spec) else make_problem(spec, seed)


def make_mixture(spec: Spec, seed: int) -> IntentMixture:
    """Return the unfitted mixture of a trial.

    Examples
    --------
    >>> make_mixture(Spec(n_intents=2, init="gmm"), seed=3)
    IntentMixture(...)
    >>> make_mixture(Spec(model="MaxCausalEnt", max_length=30), seed=3).irl.max_length
    30
    """
    problem = get_problem(spec, seed)
    irl = model_class(spec.model)(**dict(spec.model_parameters))
    model_length = irl.get_params().get("max_length", 0)  # None for MaxEnt: the longest demonstration
    if not isinstance(spec.max_length, str):
        if model_length == 0:
            raise InvalidParameter.of("max_length", spec.max_length, f"must be 'longest' for {spec.model}")
        irl.set_params(max_length=spec.max_length)
    elif model_length is None and isinstance(problem, WorldProblem):
        irl.set_params(max_length=problem.longest)
    init: Any = spec.init
    if spec.supervised:
        init = problem.labels
    elif spec.init == FULL_GMM:
        init = GaussianMixture(init_params="random", n_init=_GMM_STARTS)
    more: dict[str, Any] = dict(spec.mixture_parameters)
    return IntentMixture(spec.n_intents, irl, init, spec.reward_init, max_iter=spec.max_iter, random_state=seed, **more)


def run_trial(spec: Spec, seed: int) -> Record:
    """Fit and evaluate one mixture; except for the times, the record depends only on the arguments.

    The initial ensemble is evaluated first, and EM starts from it. If `mixture_parameters` is set, which may request
    several initialisations, the mixture is instead fitted again from the beginning; the time of EM is then the time of
    this fit minus the time of the initialisation.

    Parameters
    ----------
    spec : Spec
    seed : int
        Seed of the world, of both sets of demonstrations and of the initialisation.

    Examples
    --------
    >>> record = run_trial(Spec(n_demos=60), seed=2)
    >>> record.n_iter, record.train_nll < record.train_nll_start, round(record.anid, 2)
    (2, True, 0.03)
    """
    with single_threaded():
        problem = get_problem(spec, seed)
        _warm_up(spec.model, spec.model_parameters, spec.mixture_parameters, with_agents(spec))
        mixture = make_mixture(spec, seed)
        first, seconds_start = _time(lambda: fit_problem(mixture.set_params(max_iter=0), problem))
        mixture = make_mixture(spec, seed)
        if spec.supervised or spec.max_iter == 0:
            last, seconds_em = first, 0.0
        elif spec.mixture_parameters:
            last, seconds = _time(lambda: fit_problem(mixture, problem))
            seconds_em = max(seconds - seconds_start, 0.0)
        else:
            last, seconds_em = _time(lambda: fit_problem(mixture.set_params(init=first.ensemble_), problem))
        start = problem.scores(first)
        final = start if last is first else problem.scores(last)
    max_length = last.irl_.get_params().get("max_length", math.inf)
    return Record(
        spec.hash,
        seed,
        max_length=max_length if math.isfinite(max_length) else None,
        n_iter=last.n_iter_,
        converged=last.converged_,
        seconds_start=seconds_start,
        seconds_em=seconds_em,
        margin=inter_cluster_margin(problem.points(last.irl_), problem.labels) if problem.n_labels > 1 else None,
        change=nan_to_none(first.history_[0].change),
        history=[-entry.log_likelihood for entry in last.history_],
        **{f"{name}_start": value for name, value in start.items()},
        **final,
    )


def attempt(task: tuple[Spec, int]) -> Record:
    """Run a trial and return its record; if the trial fails, the record contains the error.

    Examples
    --------
    >>> attempt((Spec(world="Nowhere"), 0)).error
    "InvalidParameter: world must be one of ElementWorld, PuddleWorld, ...; got 'Nowhere'."
    """
    spec, seed = task
    try:
        return run_trial(spec, seed)
    except Exception as error:  # noqa: BLE001 (any error is recorded and must not stop other trials)
        return Record(spec.hash, seed, *describe_error(error))


@lru_cache
def _warm_up(model: str, given: Parameters, more: Parameters, agents: bool) -> None:
    """Compile the kernels of a fit once per process, so that the times of trials do not include compilation."""
    small = Spec(n_demos=18, n_test=18, model=model, model_parameters=given, mixture_parameters=more)
    small = small.with_(n_agents=2) if agents else small
    for init in ("kmeans", "gmm"):
        fit_problem(make_mixture(small.with_(init=init, max_iter=1), 0), get_problem(small, 0))


@contextmanager
def single_threaded() -> Iterator[None]:
    """Return a context manager that suppresses warnings and uses one thread, because rounding depends on threads."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", LimiirlWarning)  # the record contains the content of these warnings
            warnings.simplefilter("ignore", SklearnConvergenceWarning)  # scikit-learn warns about poor clusterings
            yield
    finally:
        numba.set_num_threads(before)


def _time(function: Callable[[], IntentMixture]) -> tuple[IntentMixture, float]:
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def fit_problem(mixture: IntentMixture, problem: WorldProblem | AgentsProblem) -> IntentMixture:
    """Fit a mixture to the demonstrations or agents of a problem."""
    return mixture.fit(problem.mdp, problem.demos)  # type: ignore[arg-type]
