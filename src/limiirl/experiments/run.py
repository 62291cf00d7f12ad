"""Execution of the trials that are missing from a store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from limiirl._progress import Progress, check_progress
from limiirl.errors import InvalidParameter
from limiirl.executors import Executor, LostTask, execute
from limiirl.experiments.record import AnySpec, BaseRecord, Record
from limiirl.experiments.results import TIES, GevdFlow, Results, WorldExample
from limiirl.experiments.spec import Spec, Study
from limiirl.experiments.store import Store
from limiirl.experiments.studies import PAPER_LENGTH, STUDIES, iterate_trials
from limiirl.experiments.trial import (
    WorldProblem,
    attempt,
    fit_problem,
    get_problem,
    make_mixture,
    make_problem,
    single_threaded,
)
from limiirl.mdp import RewardEnsemble
from limiirl.metrics import gevd
from limiirl.mixture import IntentMixture, align_to_labels

# Seconds between transactions. If a run is killed, the trials since the last transaction are lost.
_FLUSH_SECONDS = 1.0
WARM_START, RANDOM_START = "k-means, MLE", "random rewards"
_STUDIES_WITH_EXAMPLE = ("table1", "boxplots")

S = TypeVar("S", bound=AnySpec)
R = TypeVar("R", bound=BaseRecord)


@dataclass
class RunCounts:
    """Trial counts of a run.

    Attributes
    ----------
    total : int
        Number of trials.
    skipped, failed_before : int
        Number of trials that were already in the store, and how many of these had failed.
    done : int
        Number of trials that were run.
    failures : list of records
        Records of the trials that failed in this run.
    """

    total: int
    skipped: int = 0
    failed_before: int = 0
    done: int = 0
    failures: list[Any] = field(default_factory=list, repr=False)


def run_trials(
    trials: Sequence[tuple[S, int]],
    store: Store[R],
    attempt: Callable[[tuple[S, int]], R],
    executor: Executor | None = None,
    *,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> RunCounts:
    """Run every trial that is missing from a store, and write its record.

    Parameters
    ----------
    trials : sequence of (settings, seed)
    store : Store
    attempt : callable
        Runs one trial and returns its record; errors are recorded, not raised.
    executor : Executor, optional
        By default, trials run one after the other in this process, on all threads.
    retry_failed : bool
        Whether to run failed trials again.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after every trial, including skipped trials.
    """
    check_progress(progress)
    store.add_specs({spec for spec, _ in trials})
    counts = RunCounts(len(trials))
    ledger = _Ledger(store, retry_failed=retry_failed)

    def report() -> None:
        if progress is not None:
            skipped = f"{counts.skipped:,} finished before" if counts.skipped else ""
            progress(counts.done + counts.skipped, counts.total, skipped)

    def missing() -> Iterator[tuple[S, int]]:
        # A generator, so that trials that a concurrent run has written in the meantime are skipped.
        for spec, seed in trials:
            if (spec.hash, seed) in ledger.keys:
                counts.skipped += 1
                counts.failed_before += (spec.hash, seed) not in ledger.succeeded
                report()
            else:
                yield spec, seed

    try:
        for (spec, seed), result in _run(attempt, missing(), executor):
            if isinstance(result, LostTask):
                result = store.record(spec.hash, seed, f"LostTask: {result.message}")
            counts.done += 1
            if result.failed:
                counts.failures.append(result)
            ledger.add(result)
            report()
    finally:
        ledger.flush()  # also if the run is interrupted
    return counts


def _run(
    attempt: Callable[[tuple[S, int]], R], trials: Iterable[tuple[S, int]], executor: Executor | None
) -> Iterator[tuple[tuple[S, int], R | LostTask]]:
    return ((trial, attempt(trial)) for trial in trials) if executor is None else execute(attempt, trials, executor)


class _Ledger:
    """Keys of the store, and records not yet written; `add` synchronises them with the store about once per second."""

    def __init__(self, store: Store[Any], *, retry_failed: bool) -> None:
        self.store, self.retry_failed = store, retry_failed
        self.pending: list[BaseRecord] = []
        self.flush()

    def add(self, record: BaseRecord) -> None:
        self.pending.append(record)
        if time.monotonic() - self.flushed >= _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        self.store.append(self.pending)
        self.pending = []
        self.succeeded = self.store.keys(failed=False)
        self.keys = self.succeeded if self.retry_failed else self.store.keys()
        self.flushed = time.monotonic()


def run_studies(
    studies: Sequence[Study],
    store: Store[Record],
    executor: Executor | None = None,
    repeats: int | None = None,
    *,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> RunCounts:
    """Run every trial of the given studies that is missing from the store, and write its record.

    The records do not depend on the executor, the number of workers or interruptions. Several runs may share a store;
    each run skips the trials that another run has written. Example worlds, and the definitions of studies that are not
    in `STUDIES`, are stored for the report.

    Parameters
    ----------
    studies : sequence of Study
    store : Store
    executor : Executor, optional
        By default, all cores of this machine are used.
    repeats : int, optional
        Number of worlds per study. The default is `Study.repeats`.
    retry_failed : bool
        Whether to run failed trials again.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after every trial.

    Examples
    --------
    >>> import tempfile
    >>> from limiirl.experiments.studies import choose_studies
    >>> store = Store(tempfile.mkdtemp())
    >>> run_studies(choose_studies(["margin"]), store, Executor(workers=1), repeats=1).done
    5
    >>> run_studies(choose_studies(["margin"]), store, Executor(workers=1), repeats=1).skipped
    5
    """
    trials = list(iterate_trials(studies, repeats))
    for study in studies:
        if STUDIES.get(study.name) != study:
            store.put_study(study)
    # The first trial depends on the process, so that runs with a common store rarely execute the same trial twice.
    first = os.getpid() * 7919 % max(len(trials), 1)
    trials = trials[first:] + trials[:first]
    counts = run_trials(trials, store, attempt, executor or Executor(), retry_failed=retry_failed, progress=progress)
    store_examples(studies, store)
    return counts


def typical_seed(results: Results) -> int | None:
    """Return the seed of the example world, or None if no trial from the warm start succeeded.

    In the example world, the GEVD of the warm start is closest to its median. If possible, only worlds in which the
    GEVDs of the warm start and of random rewards differ are considered.
    """
    warm, random = (results.values(method, PAPER_LENGTH, "gevd") for method in (WARM_START, RANDOM_START))
    finite = np.isfinite(warm)
    if not finite.any():
        return None
    differ = finite & (np.abs(random - warm) > TIES["gevd"])
    candidates = np.flatnonzero(differ if differ.any() else finite)
    distance = np.abs(warm[candidates] - np.median(warm[finite]))
    return results.seeds[int(candidates[np.argmin(distance)])]


def make_example(results: Results) -> WorldExample | None:
    """Return the example world of a study in the paper's setting, or None if the warm start has no successful fit."""
    seed = typical_seed(results)
    if seed is None:
        return None
    fits = {}
    for method in (WARM_START, RANDOM_START):
        spec, record = results.study.spec(method, PAPER_LENGTH), results.record(method, PAPER_LENGTH, seed)
        if spec is not None and record is not None and record.thetas is not None:
            fits[method] = (spec, make_problem(spec, seed), restore(spec, record))
    if WARM_START not in fits:
        return None
    spec, problem, mixture = fits[WARM_START]
    return WorldExample(
        seed,
        spec,
        problem.demos.states.tolist(),
        problem.demos.offsets.tolist(),
        problem.labels.tolist(),
        np.asarray(mixture.responsibilities_).tolist(),
        mixture.weights_.tolist(),
        mixture.thetas_.tolist(),
        problem.truth.weights.tolist(),
        problem.truth.thetas.tolist(),
        list(problem.world.mdp.feature_names),
        {method: _flow(*fit) for method, fit in fits.items()},
    )


def _flow(spec: Spec, problem: WorldProblem, mixture: IntentMixture) -> GevdFlow:
    error = gevd(problem.world.mdp, problem.truth, mixture.ensemble_)
    return GevdFlow(spec.init, error.value, error.flow.tolist(), error.evd.tolist())


def store_examples(studies: Iterable[Study], store: Store[Record]) -> None:
    """Store the example worlds that the report shows in detail."""
    for study in studies:
        if study.name in _STUDIES_WITH_EXAMPLE:
            example = make_example(Results.of(study, store.read([spec.hash for spec in study.specs])))
            if example is not None:
                store.put_example(study.name, example.to_dict())


def restore(spec: Spec, record: Record) -> IntentMixture:
    """Return the fitted mixture of a record, with its intents in the order of the true intents.

    Examples
    --------
    >>> spec = Spec(n_demos=60)
    >>> mixture = restore(spec, attempt((spec, 2)))
    >>> bool((mixture.labels_ == make_problem(spec, 2).labels).mean() > 0.9)
    True
    """
    if record.weights is None or record.thetas is None:
        raise InvalidParameter(
            f"record must contain a fit; trial {record.spec} with seed {record.seed} failed: {record.error}",
            parameter="record",
            value=record.key,
        )
    with single_threaded():
        problem = get_problem(spec, record.seed)
        ensemble = RewardEnsemble(np.array(record.weights), problem.rewards(np.array(record.thetas)))
        mixture = make_mixture(spec, record.seed).set_params(init=ensemble, max_iter=0, n_intents=len(ensemble.weights))
        fitted = fit_problem(mixture, problem)
    return align_to_labels(fitted, problem.labels, problem.n_labels)
