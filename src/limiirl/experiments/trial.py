"""One trial: make a world from a seed, fit a mixture to its demonstrations, and judge it by others and by the truth.

Paper: section "ElementWorld Results", experimental configuration.

What one trial came to: a flat record, the same whenever it is computed again, times apart.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.mixture import GaussianMixture

from limiirl._parallel import one_thread
from limiirl.errors import InvalidParameter, LimiirlWarning
from limiirl.experiments.problem import AgentsProblem, Problem, known, make_agents, make_problem, with_agents
from limiirl.experiments.spec import FULL_GMM, Parameters, Spec
from limiirl.irl import MaxEnt, model_class
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import IntentMixture, in_order_of_labels
from limiirl.theory import inter_cluster_margin

MEASURED = ("seconds_start", "seconds_em")
"""Fields that are measured on a machine, and so differ between runs."""


@dataclass(frozen=True)
class Record:
    """The outcome of one trial, keyed by its specification's hash and its seed.

    The scores carry the suffix `_start` for the mixture with which EM began. A trial that failed has its `error`, and
    None for everything that was not reached.

    Attributes
    ----------
    spec, seed : str, int
        The key.
    error, trace : str
        Empty, or what went wrong in one line, and Python's trace of it.
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

    spec: str
    seed: int
    error: str = ""
    trace: str = ""
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
    def key(self) -> tuple[str, int]:
        """Hash of the specification, and seed."""
        return self.spec, self.seed

    @property
    def failed(self) -> bool:
        """Whether the trial ended in an error."""
        return bool(self.error)

    @property
    def seconds(self) -> float | None:
        """Wall time of initialisation and EM together: the paper's duration."""
        if self.seconds_start is None or self.seconds_em is None:
            return None
        return self.seconds_start + self.seconds_em

    def reproducible(self) -> dict[str, Any]:
        """Return all fields but those that are measured: what any run of the same trial must come to.

        >>> Record("ab", 0, seconds_em=1.0).reproducible() == Record("ab", 0, seconds_em=2.0).reproducible()
        True
        """
        return {name: value for name, value in asdict(self).items() if name not in MEASURED}


FIELDS = tuple(field.name for field in fields(Record))


_GMM_STARTS = 5


def pose(spec: Spec, seed: int) -> Problem | AgentsProblem:
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
    if isinstance(problem, Problem) and irl.get_params().get("max_length", "") is None:  # left to the data
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
    with _alone():
        problem = pose(spec, seed)
        _warm_up(spec.model, spec.model_parameters, spec.mixture_parameters, with_agents(spec))
        mixture = make_mixture(spec, seed)
        first, seconds_start = _timed(lambda: _fit(mixture.set_params(max_iter=0), problem))
        mixture = make_mixture(spec, seed)
        if spec.supervised or spec.max_iter == 0:
            last, seconds_em = first, 0.0
        elif spec.mixture_parameters:
            last, seconds = _timed(lambda: _fit(mixture, problem))
            seconds_em = max(seconds - seconds_start, 0.0)
        else:
            last, seconds_em = _timed(lambda: _fit(mixture.set_params(init=first.ensemble_), problem))
        start = problem.scores(first)
        final = start if last is first else problem.scores(last)
    return Record(
        spec.hash,
        seed,
        max_length=last.irl_.max_length if isinstance(last.irl_, MaxEnt) else None,
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
    """Run a trial; where it fails, return a record that says how.

    Examples
    --------
    >>> attempt((Spec(world="Nowhere"), 0)).error
    "InvalidParameter: There is no world named 'Nowhere'; known are ElementWorld, PuddleWorld, ..."
    """
    spec, seed = task
    try:
        return run_trial(spec, seed)
    except Exception as error:  # noqa: BLE001 (whatever it is, it belongs in the record and must not stop the others)
        said = str(error).strip().splitlines() or ["no message"]
        return Record(spec.hash, seed, f"{type(error).__name__}: {said[0]}", _trace(error))


def _trace(error: Exception) -> str:
    """Return where an error came from, the innermost call last, by the names of files alone: records get published."""
    frames = traceback.extract_tb(error.__traceback__)
    return "\n".join(f"{Path(f.filename).name}:{f.lineno} in {f.name}: {f.line}" for f in frames)


@lru_cache
def _warm_up(model: str, given: Parameters, more: Parameters, agents: bool) -> None:
    """Compile what a fit calls, once a process, so that no trial's time includes it."""
    small = Spec(n_demos=18, n_test=18, model=model, model_parameters=given, mixture_parameters=more)
    small = small.with_(n_agents=2) if agents else small
    for init in ("kmeans", "gmm"):
        _fit(make_mixture(small.with_(init=init, max_iter=1), 0), pose(small, 0))


@contextmanager
def _alone() -> Iterator[None]:
    """Compute with one thread, as other trials keep the other cores busy; bits depend on the number, too."""
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


def _fit(mixture: IntentMixture, problem: Problem | AgentsProblem) -> IntentMixture:
    return mixture.fit(problem.fitted_in, problem.demos)  # type: ignore[arg-type]


def restore(spec: Spec, record: Record) -> IntentMixture:
    """Return the mixture of a record as it was fitted, with the intents in the order of the true ones.

    Examples
    --------
    >>> spec = Spec(n_demos=60)
    >>> mixture = restore(spec, run_trial(spec, seed=2))
    >>> bool((mixture.labels_ == make_problem(spec, 2).labels).mean() > 0.9)
    True
    """
    if record.weights is None or record.thetas is None:
        raise InvalidParameter(f"Trial {record.spec} with seed {record.seed} has no mixture: {record.error}")
    with _alone():
        problem = pose(spec, record.seed)
        found = RewardEnsemble(np.array(record.weights), problem.rewards(np.array(record.thetas)))
        mixture = make_mixture(spec, record.seed).set_params(init=found, max_iter=0, n_intents=len(found.weights))
        fitted = _fit(mixture, problem)
    return in_order_of_labels(fitted, problem.labels, problem.n_labels)
