"""`fit_streamed`: EM of an `IntentMixture` on a feature store, with one pass over the store per iteration."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from limiirl._io import as_path
from limiirl._parallel import Mapper
from limiirl._progress import Progress, check_progress
from limiirl._validation import check_count
from limiirl.errors import InvalidParameter, MissingFile
from limiirl.irl import MaxEnt, MaxEntProblem
from limiirl.kernels.threading import BLOCK
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.mixture import IntentMixture, Start, Starts, State, is_given, validate
from limiirl.streams.checkpoint import identity, read_checkpoint, write_checkpoint
from limiirl.streams.passes import (
    WINDOW,
    StoreStatistics,
    check_mixture,
    open_executor,
    sample_problem,
    stream_problem,
    with_statistics,
)
from limiirl.streams.store import FeatureStore, as_store

# Number of rows for the initialisation; the standard error of a mean is then below 1 % of the standard deviation.
SAMPLE = 50_000


def fit_streamed(
    mixture: IntentMixture,
    mdp: MDP,
    store: FeatureStore | str | PathLike[str],
    *,
    sample: int = SAMPLE,
    checkpoint: str | PathLike[str] | None = None,
    executor: Mapper | None = None,
    block: int = WINDOW,
    progress: Progress | None = None,
) -> IntentMixture:
    """Fit a mixture to a feature store, which need not fit in memory, and return the mixture.

    The algorithm is the EM of `IntentMixture.fit`; with the same initialisation it converges to the same parameters up
    to rounding. The attributes with one row per demonstration (`responsibilities_`, `labels_`) are None; `assign`
    writes them to files.

    Parameters
    ----------
    mixture : IntentMixture
        Its model must be a `MaxEnt` with condition="none". `init` is computed on a sample, unless it is a
        `RewardEnsemble`.
    mdp : MDP
        The MDP that the store was written with.
    store : FeatureStore or path
        Result of `write_features`, or the folder of the store.
    sample : int
        Number of rows, drawn at random, on which `init` is computed; at least the number of intents.
    checkpoint : path, optional
        File that is written after every iteration. If it exists, the fit resumes from it: a converged fit, or one with
        at least `max_iter` iterations, is returned unchanged. A checkpoint of other data, another MDP or other
        settings (except `device`, `max_memory` and the stopping rule) raises an error; functions (a callable `init`, a
        generated store) are compared by name only.
    executor : limiirl.executors.Executor, Session or concurrent.futures.Executor, optional
        Runs the E-steps; its workers are reused for the whole fit. By default the E-steps run in this process with
        several threads, which is fastest on one machine.
    block : int
        Number of rows in memory at a time; it does not affect the result.
    progress : callable, optional
        Called as ``progress(done, total, message)`` with the number of rows processed in an E-step. The `progress` of
        the mixture is called after every iteration.

    Examples
    --------
    >>> import tempfile
    >>> from limiirl import Demonstrations
    >>> from limiirl.streams import write_features
    >>> phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
    >>> shards = [Demonstrations.from_lists([[0, 1, 3]] * 3), Demonstrations.from_lists([[0, 2, 3]])]
    >>> store = write_features(mdp, shards, Path(tempfile.mkdtemp()) / "features")
    >>> mix = fit_streamed(IntentMixture(2, MaxEnt(bounds=(-5, 5)), random_state=0), mdp, store)
    >>> mix.weights_.round(2)
    array([0.75, 0.25])
    """
    _check_settings(mixture)
    check_progress(progress)
    irl = validate.clone_model(MaxEnt() if mixture.irl is None else mixture.irl)
    path = _checkpoint_path(checkpoint)
    window = -(-check_count(block, "block") // BLOCK) * BLOCK
    rows = as_store(store)
    problem = stream_problem(irl, mdp, rows)
    validate.check_enough_units(mixture.n_intents, problem.units)
    if check_count(sample, "sample") < mixture.n_intents:
        raise InvalidParameter.of("sample", sample, f"must be at least n_intents = {mixture.n_intents}")
    settings = identity(mixture, irl, mdp, rows, sample)
    shape = (mixture.n_intents, mdp.n_features)
    begin: Start | State | None = None if path is None else read_checkpoint(path, settings, shape)
    if begin is None:
        begin = _start(mixture, problem, rows, sample)

    def keep(state: State) -> None:
        if path is not None:
            write_checkpoint(path, state, settings)

    with open_executor(executor) as session:
        statistics = StoreStatistics(rows, window=window, executor=session, progress=progress)
        return mixture.fit_from(with_statistics(problem, statistics), begin, keep=keep)


def _checkpoint_path(checkpoint: Any) -> Path | None:
    """Return the path of the checkpoint; check before the fit that its folder exists."""
    path = None if checkpoint is None else as_path(checkpoint, "checkpoint")
    if path is not None and not path.absolute().parent.is_dir():
        message = (
            f"The folder {path.parent} of the checkpoint {path.name} does not exist. Create it, or choose another."
        )
        raise MissingFile(message, parameter="checkpoint", value=str(path))
    return path


def _check_settings(mixture: IntentMixture) -> None:
    """Raise `InvalidParameter` for settings that need all demonstrations in memory."""
    check_mixture(mixture)
    validate.make_settings(mixture)
    if mixture.n_init != 1:
        remedy = "Fit a sample in memory and pass its ensemble as init, or compare objective_ for several seeds."
        raise InvalidParameter.of("n_init", mixture.n_init, "must be 1 for a stream", remedy=remedy)
    if mixture.refine is not None:
        rule = "must be None for a stream, which does not store responsibilities"
        raise InvalidParameter.of("refine", mixture.refine, rule)
    if mixture.degenerate == "reseed":
        rule = "must be 'fit' or 'keep' for a stream, because 'reseed' needs all demonstrations in memory"
        raise InvalidParameter.of("degenerate", "reseed", rule)
    if is_given(mixture.init) and not isinstance(mixture.init, RewardEnsemble):
        rule = "must be a name, a clusterer, a function or a RewardEnsemble for a stream"
        raise InvalidParameter.of("init", mixture.init, rule)
    embedding = mixture.embedding
    if embedding is not None and not (isinstance(embedding, str) and embedding in ("shares", "gradients")):
        raise InvalidParameter.of("embedding", embedding, "must be None, 'shares' or 'gradients' for a stream")


def _start(mixture: IntentMixture, problem: MaxEntProblem, store: FeatureStore, sample: int) -> Start:
    """Return the initialisation of EM from a sample of the rows.

    The first seed is the same as in `IntentMixture.fit`, so that a sample of all rows yields the same initialisation.
    """
    first, second = validate.spawn_seeds(mixture.random_state, 2)
    drawn = sample_problem(problem, store, sample, np.random.default_rng(second))
    starts = Starts(mixture.init, mixture.embedding, drawn)
    begin = starts.begin(mixture.n_intents, mixture.reward_init, np.random.default_rng(first))
    return replace(begin, U=None)
