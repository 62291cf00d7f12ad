"""One trial: make a world from a seed, fit a mixture to its demonstrations, and judge it by others and by the truth.

Paper: section "ElementWorld Results", experimental configuration.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.mixture import GaussianMixture

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter, LimiirlWarning
from limiirl.experiments.records import Record
from limiirl.experiments.spec import FULL_GMM, Parameters, Spec
from limiirl.irl.registry import model_class
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.metrics import evaluate
from limiirl.mixture import IntentMixture
from limiirl.mixture.align import in_order_of_labels
from limiirl.mixture.init import one_thread
from limiirl.theory import inter_cluster_margin
from limiirl.worlds import WORLDS, World, geometric_weights

_SECOND_SET = 1
_GMM_STARTS = 5


@dataclass(frozen=True, eq=False)
class Problem:
    """What a trial is about: a world, its demonstrations, and the truth behind them.

    Attributes
    ----------
    world : World
    truth : RewardEnsemble
        The true rewards, with the shares by which demonstrations were drawn.
    demos, labels : Demonstrations, (N,)
        To learn from.
    test, test_labels : Demonstrations, (N',)
        To judge by.
    """

    world: World
    truth: RewardEnsemble
    demos: Demonstrations
    labels: NDArray[np.int64]
    test: Demonstrations
    test_labels: NDArray[np.int64]

    @property
    def longest(self) -> int:
        """The longest demonstration of both sets."""
        return int(max(self.demos.lengths.max(), self.test.lengths.max()))


# Methods are compared on the same data, and come one after the other: a few problems are kept.
@lru_cache(maxsize=4)
def _problem(world: str, given: Parameters, sizes: tuple[int, int], imbalance: float, seed: int) -> Problem:
    if world not in WORLDS:
        raise InvalidParameter(f"There is no world named {world!r}; known are {', '.join(WORLDS)}.")
    made: World = WORLDS[world](**dict(given), seed=seed)
    truth, weights = made.ensemble, None
    if imbalance:
        weights = geometric_weights(truth.n_intents, imbalance)
        truth = RewardEnsemble(weights, truth.thetas)
    demos, labels = made.sample(sizes[0], seed=2 * seed, weights=weights)
    test, test_labels = made.sample(sizes[1], seed=2 * seed + _SECOND_SET, weights=weights)
    return Problem(made, truth, demos, labels, test, test_labels)


def make_problem(spec: Spec, seed: int) -> Problem:
    """Return the world and the demonstrations of a trial: those of two methods with one seed are the same.

    Examples
    --------
    >>> problem = make_problem(Spec(n_demos=12), seed=3)
    >>> problem.world.seed, len(problem.demos), len(problem.test), problem.truth.n_intents
    (3, 12, 100, 3)
    """
    return _problem(spec.world, spec.world_parameters, (spec.n_demos, spec.n_test), spec.imbalance, seed)


def make_mixture(spec: Spec, seed: int) -> IntentMixture:
    """Return the mixture of a trial, not fitted; the supervised one is given the true labels.

    Examples
    --------
    >>> make_mixture(Spec(n_intents=2, init="gmm"), seed=3)
    IntentMixture(...)
    """
    problem = make_problem(spec, seed)
    irl = model_class(spec.model)(**dict(spec.model_parameters))
    if "max_length" in irl.get_params():
        irl.set_params(max_length=problem.longest if isinstance(spec.max_length, str) else spec.max_length)
    init: Any = spec.init
    if spec.supervised:
        init = problem.labels
    elif spec.init == FULL_GMM:
        init = GaussianMixture(init_params="random", n_init=_GMM_STARTS)
    return IntentMixture(spec.n_intents, irl, init, spec.reward_init, max_iter=spec.max_iter, random_state=seed)


def run_trial(spec: Spec, seed: int) -> Record:
    """Fit and judge one mixture. The record depends on the arguments alone, its times apart.

    EM is run in two parts, so that the mixture with which it begins is judged by the same rules: the initialisation,
    then EM from there.

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
    problem = make_problem(spec, seed)
    with _alone():
        _warm_up(spec.model, spec.model_parameters)
        mixture = make_mixture(spec, seed)
        first, seconds_start = _timed(lambda: _fit(mixture.set_params(max_iter=0), problem))
        mixture = make_mixture(spec, seed)
        if spec.supervised or spec.max_iter == 0:
            last, seconds_em = first, 0.0
        else:
            last, seconds_em = _timed(lambda: _fit(mixture.set_params(init=first.ensemble_), problem))
        start = _scores(first, problem)
        final = start if last is first else _scores(last, problem)
    return Record(
        spec.hash,
        seed,
        max_length=getattr(last.irl_, "max_length", None),
        n_iter=last.n_iter_,
        converged=last.converged_,
        seconds_start=seconds_start,
        seconds_em=seconds_em,
        margin=inter_cluster_margin(problem.demos.features(problem.world.mdp), problem.labels)
        if problem.truth.n_intents > 1
        else None,
        change=_number(first.history_[0].change),
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
def _warm_up(model: str, given: Parameters) -> None:
    """Compile what a fit calls, once a process, so that no trial's time includes it."""
    small = Spec(n_demos=6, n_test=1, model=model, model_parameters=given)
    for init in ("kmeans", "gmm"):
        _fit(make_mixture(small.with_(init=init, max_iter=1), 0), make_problem(small, 0))


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


def _fit(mixture: IntentMixture, problem: Problem) -> IntentMixture:
    return mixture.fit(problem.world.mdp, problem.demos)


def _scores(mixture: IntentMixture, problem: Problem) -> dict[str, Any]:
    """Return the scores of one mixture by their names in a record."""
    found = evaluate(mixture, problem.test, problem.test_labels, problem.truth)
    assert found.recovery is not None  # labels were given
    assert found.gevd is not None  # and the truth
    return {
        "nll": found.nll.mean,
        "train_nll": -mixture.log_likelihood_,
        "anid": found.recovery.anid,
        "anid_hard": found.recovery.anid_hard,
        "anid_truth": None if found.reference is None else found.reference.anid,
        "gevd": found.gevd.value,
        "gevd_normalised": _number(found.gevd.normalised),
        "weights": mixture.weights_.tolist(),
        "thetas": mixture.thetas_.tolist(),
    }


def _number(value: float) -> float | None:
    """Return None for what does not exist, such as the change of a start without clusters."""
    return None if np.isnan(value) else float(value)


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
    problem = make_problem(spec, record.seed)
    found = RewardEnsemble(np.array(record.weights), np.array(record.thetas))
    mixture = make_mixture(spec, record.seed).set_params(init=found, max_iter=0, n_intents=len(found.weights))
    with _alone():
        fitted = _fit(mixture, problem)
    return in_order_of_labels(fitted, problem.labels, problem.truth.n_intents)
