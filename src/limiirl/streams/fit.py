"""`fit_streamed`: the EM of `IntentMixture` on a store of features, with one pass over it an iteration."""

from __future__ import annotations

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
from limiirl.mixture import (
    IntentMixture,
    Start,
    Starts,
    State,
    is_given,
    validate,
)
from limiirl.streams.checkpoint import identity, read_checkpoint, write_checkpoint
from limiirl.streams.passes import WINDOW, check_mixture, open_executor, sample_problem, stream_problem
from limiirl.streams.store import FeatureStore, as_store, check_path

# Rows that a warm start clusters: their means are known to a third of a percent of their spread.
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
    """Fit a mixture to a store of features, which need not fit into memory, and return it.

    It is the EM of `IntentMixture.fit` with the same solver and the same kernel; from the same start it finds the same
    parameters but for rounding. What has a row for each demonstration (`responsibilities_`, `labels_`) is None;
    `assign` writes it to files.

    Parameters
    ----------
    mixture : IntentMixture
        Its model must be a `MaxEnt` that is not conditioned on the start. `init` is applied to a sample; a
        `RewardEnsemble` is taken as it is.
    mdp : MDP
        The one that the store was written with.
    store : FeatureStore or path
        Of `write_features`, or the folder of one.
    sample : int
        Rows, drawn at random, that the warm start clusters; at least as many as there are intents.
    checkpoint : path, optional
        A file that is written after every iteration. If it is there, the fit goes on from it; one that has ended is
        returned at once, or goes on if `max_iter` was raised. One that has more iterations than `max_iter` already is
        returned as it is, with all of them: `n_iter_` says how many. That of other data, of another MDP or of other
        settings is refused, whatever the `device` and the `max_memory`; functions (an `init`, a generated store) are
        told apart by their names only.
    executor : limiirl.executors.Executor, Session or concurrent.futures.Executor, optional
        Where the passes run; its workers remain from the first to the last. By default in this process, on its threads,
        which is best on one machine.
    block : int
        Rows in memory at a time; the result does not depend on it.
    progress : callable, optional
        Called as ``progress(done, total, message)`` with the rows done in a pass. The mixture's `callback` is called
        after every iteration.

    Examples
    --------
    >>> import tempfile
    >>> from limiirl import Demonstrations
    >>> from limiirl.streams import write_features
    >>> phi = [[0, 0], [1, 0], [0, 1], [0, 0]]
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=phi)
    >>> parts = [Demonstrations.from_lists([[0, 1, 3]] * 3), Demonstrations.from_lists([[0, 2, 3]])]
    >>> store = write_features(mdp, parts, Path(tempfile.mkdtemp()) / "features")
    >>> mix = fit_streamed(IntentMixture(2, MaxEnt(bounds=(-5, 5)), random_state=0), mdp, store)
    >>> mix.weights_.round(2)
    array([0.75, 0.25])
    """
    _check_settings(mixture)
    check_progress(progress)
    irl = validate.fresh(MaxEnt() if mixture.irl is None else mixture.irl)
    place = _place(checkpoint)
    window = -(-check_count(block, "block") // BLOCK) * BLOCK
    rows = as_store(store)
    problem = stream_problem(irl, mdp, rows, window=window, progress=progress)
    validate.enough(mixture.n_intents, problem.units)
    fitted = identity(mixture, irl, mdp, rows, _enough_drawn(sample, mixture.n_intents))
    shape = (mixture.n_intents, mdp.n_features)
    begin: Start | State | None = None if place is None else read_checkpoint(place, fitted, shape)
    if begin is None:
        begin = _start(mixture, problem, rows, sample)

    def keep(state: State) -> None:
        if place is not None:
            write_checkpoint(place, state, fitted)

    with open_executor(executor) as problem.statistics.workers:  # type: ignore[attr-defined]
        return mixture.fit_from(problem, begin, keep=keep)


def _place(checkpoint: Any) -> Path | None:
    """Return the path of the checkpoint; a missing folder is an error before the work, not after it."""
    place = None if checkpoint is None else check_path(checkpoint, "checkpoint")
    if place is not None and not place.absolute().parent.is_dir():
        raise MissingFile(
            f"There is no folder {place.parent} for the checkpoint {place.name}. Create it, or give another.",
            parameter="checkpoint",
            value=str(place),
        )
    return place


def _check_settings(mixture: IntentMixture) -> None:
    """Raise for a mixture that needs all demonstrations at once."""
    check_mixture(mixture)
    validate.settings(mixture)
    if mixture.n_init != 1:
        raise InvalidParameter(
            f"n_init must be 1 for a stream; got {mixture.n_init}. Compare starts on a sample in memory and pass the "
            "best ensemble as init, or fit with several random_state and compare objective_.",
            parameter="n_init",
            value=mixture.n_init,
        )
    if mixture.refine is not None:
        raise InvalidParameter(
            f"refine must be None for a stream, which does not keep responsibilities; got {mixture.refine!r}.",
            parameter="refine",
            value=mixture.refine,
        )
    if mixture.degenerate == "reseed":
        raise InvalidParameter(
            "degenerate must be 'fit' or 'keep' for a stream; got 'reseed', which would search it for a demonstration.",
            parameter="degenerate",
            value="reseed",
        )
    if is_given(mixture.init) and not isinstance(mixture.init, RewardEnsemble):
        raise InvalidParameter(
            "init must be a name, a clusterer, a function or a RewardEnsemble for a stream, not labels or "
            "responsibilities: they have one row per demonstration.",
            parameter="init",
            value=mixture.init,
        )
    how = mixture.embedding
    if how is not None and not (isinstance(how, str) and how in ("shares", "gradients")):
        raise InvalidParameter(
            "embedding must be None, 'shares' or 'gradients' for a stream: others need the demonstrations, which it "
            "does not keep.",
            parameter="embedding",
            value=how,
        )


def _enough_drawn(sample: int, n_intents: int) -> int:
    """Return how many rows to draw, of which each intent needs one."""
    if check_count(sample, "sample") < n_intents:
        raise InvalidParameter(
            f"sample must be at least n_intents={n_intents}; got {sample}.", parameter="sample", value=sample
        )
    return sample


def _start(mixture: IntentMixture, problem: MaxEntProblem, store: FeatureStore, sample: int) -> Start:
    """Return where EM begins: a start on a sample of the rows, without the sample's responsibilities.

    The first seed is that of `IntentMixture.fit`, so that a sample of everything starts where that does.
    """
    first, second = validate.seeds(mixture.random_state, 2)
    drawn = sample_problem(problem, store, sample, np.random.default_rng(second))
    starts = Starts(mixture.init, mixture.embedding, drawn)
    begin = starts.begin(mixture.n_intents, mixture.reward_init, np.random.default_rng(first))
    return Start(begin.rho, begin.thetas, None, begin.empty)
