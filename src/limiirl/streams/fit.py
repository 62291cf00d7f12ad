"""`fit_streamed`: the EM of `IntentMixture` on a store of features, with one pass over the store per iteration."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

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
from limiirl.streams.store import FeatureStore, as_store, check_path

# Rows that the warm start clusters: the standard error of a cluster mean is below 1 % of its standard deviation.
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
    """Fit a mixture to a feature store, which need not fit into memory, and return it.

    This is the EM of `IntentMixture.fit`; from the same start it reaches the same parameters up to rounding. The
    attributes with one row per demonstration (`responsibilities_`, `labels_`) are None; `assign` writes them to files.

    Parameters
    ----------
    mixture : IntentMixture
        Its model must be a `MaxEnt` with condition="none". `init` is applied to a sample; a `RewardEnsemble` is used
        as it is.
    mdp : MDP
        The MDP that the store was written with.
    store : FeatureStore or path
        Result of `write_features`, or its folder.
    sample : int
        Number of rows, drawn at random, that the warm start clusters; at least the number of intents.
    checkpoint : path, optional
        A file that is written after every iteration, and resumed from if it exists. A finished fit is returned at
        once, or continued if `max_iter` is larger; a fit with more than `max_iter` iterations is returned as it is. A
        checkpoint of other data, another MDP or other settings (except `device`, `max_memory` and the stopping rule)
        is an error; functions (an `init`, a generated store) are compared by name only.
    executor : limiirl.executors.Executor, Session or concurrent.futures.Executor, optional
        Runs the passes; its workers are kept for the whole fit. By default they run in this process, with its threads,
        which is fastest on one machine.
    block : int
        Rows in memory at a time; the result does not depend on it.
    progress : callable, optional
        Called as ``progress(done, total, message)`` with the rows done in a pass. The `progress` of the
        mixture is called after every iteration.

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
    place = _checkpoint_path(checkpoint)
    window = -(-check_count(block, "block") // BLOCK) * BLOCK
    rows = as_store(store)
    problem = stream_problem(irl, mdp, rows)
    validate.check_enough_units(mixture.n_intents, problem.units)
    if check_count(sample, "sample") < mixture.n_intents:
        raise InvalidParameter.of("sample", sample, f"must be at least n_intents = {mixture.n_intents}")
    settings = identity(mixture, irl, mdp, rows, sample)
    shape = (mixture.n_intents, mdp.n_features)
    begin: Start | State | None = None if place is None else read_checkpoint(place, settings, shape)
    if begin is None:
        begin = _start(mixture, problem, rows, sample)

    def keep(state: State) -> None:
        if place is not None:
            write_checkpoint(place, state, settings)

    with open_executor(executor) as session:
        statistics = StoreStatistics(rows, window=window, executor=session, progress=progress)
        return mixture.fit_from(with_statistics(problem, statistics), begin, keep=keep)


def _checkpoint_path(checkpoint: Any) -> Path | None:
    """Return the path of the checkpoint; a missing folder is an error before the fit, not after it."""
    place = None if checkpoint is None else check_path(checkpoint, "checkpoint")
    if place is not None and not place.absolute().parent.is_dir():
        message = f"There is no folder {place.parent} for the checkpoint {place.name}. Create it, or choose another."
        raise MissingFile(message, parameter="checkpoint", value=str(place))
    return place


def _check_settings(mixture: IntentMixture) -> None:
    """Raise for settings that need all demonstrations at once."""
    check_mixture(mixture)
    validate.make_settings(mixture)
    if mixture.n_init != 1:
        remedy = "Fit a sample in memory and pass its ensemble as init, or compare objective_ for several random_state."
        raise InvalidParameter.of("n_init", mixture.n_init, "must be 1 for a stream", remedy=remedy)
    if mixture.refine is not None:
        rule = "must be None for a stream, which does not keep responsibilities"
        raise InvalidParameter.of("refine", mixture.refine, rule)
    if mixture.degenerate == "reseed":
        rule = "must be 'fit' or 'keep' for a stream, which cannot search for a demonstration to reseed from"
        raise InvalidParameter.of("degenerate", "reseed", rule)
    if is_given(mixture.init) and not isinstance(mixture.init, RewardEnsemble):
        rule = "must be a name, a clusterer, a function or a RewardEnsemble for a stream"
        raise InvalidParameter.of("init", mixture.init, rule)
    how = mixture.embedding
    if how is not None and not (isinstance(how, str) and how in ("shares", "gradients")):
        raise InvalidParameter.of("embedding", how, "must be None, 'shares' or 'gradients' for a stream")


def _start(mixture: IntentMixture, problem: MaxEntProblem, store: FeatureStore, sample: int) -> Start:
    """Return the start of EM on a sample of the rows, without the responsibilities of the sample.

    The first seed is that of `IntentMixture.fit`: a sample of all rows gives the same start.
    """
    first, second = validate.spawn_seeds(mixture.random_state, 2)
    drawn = sample_problem(problem, store, sample, np.random.default_rng(second))
    starts = Starts(mixture.init, mixture.embedding, drawn)
    begin = starts.begin(mixture.n_intents, mixture.reward_init, np.random.default_rng(first))
    return replace(begin, U=None)
