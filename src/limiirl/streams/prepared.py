"""A MaxEnt model with a store of features: what EM asks of data that it never sees as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.demos.units import Units
from limiirl.irl import MaxEnt
from limiirl.irl.checks import max_length
from limiirl.irl.prepared import Expectation
from limiirl.irl.prepared_rows import Moments, PreparedRows, PreparedSums
from limiirl.kernels.expectation import Weighed
from limiirl.mdp import MDP
from limiirl.streams.models import check_facts, check_model
from limiirl.streams.passes import WINDOW, sweep
from limiirl.streams.store import FeatureStore
from limiirl.streams.workers import Workers

Float = NDArray[np.float64]


@dataclass
class Remembered:
    """Stands for responsibilities (G, K): the ensemble that they belong to, from which any row's can be made."""

    ensemble: Weighed | None = None


@dataclass(frozen=True)
class Uncounted:
    """Units that are known by number only."""

    n: int
    noun: str
    grouped: bool

    def __len__(self) -> int:
        return self.n


class PreparedStream(PreparedSums):
    """The rows of a store under a MaxEnt model: an E-step is one pass, whatever their number.

    Parameters
    ----------
    model : MaxEnt
        Its `max_length_` is settled by the longest demonstration of the store, unless it is given.
    store : FeatureStore
    workers : Engine or Session, optional
        Where passes run; by default in this process, on its threads.
    window : int
        Rows in memory at a time.
    progress : callable, optional
        Called with the rows done in a pass, and all.
    """

    def __init__(
        self,
        model: MaxEnt,
        mdp: MDP,
        store: FeatureStore,
        *,
        workers: Workers = None,
        window: int = WINDOW,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        store.check(mdp)
        check_model(model)
        longest = store.longest if model.max_length is None else max_length(model.max_length)
        for part in store.parts:
            check_facts(model, part.facts, part.name, mdp, longest)
        units = Uncounted(store.n, store.noun, store.by_group)
        super().__init__(model, mdp, None, units, model.settle(mdp, store.longest), store.n_demos)
        self.store, self.workers, self.window, self.progress = store, workers, window, progress

    def blank(self, n_intents: int) -> Remembered:
        """Return what `expect` overwrites."""
        del n_intents
        return Remembered()

    def expect(self, rho: Float, thetas: Float, U: Any, temperature: float = 1.0) -> Expectation:
        """Make U (a `Remembered`) that of an ensemble; see `Prepared.expect`."""
        now = Weighed(thetas, self.engine.log_partition(thetas), np.log(rho), 1.0 / temperature)
        found = sweep(self.store, now, U.ensemble, engine=self.workers, window=self.window, progress=self.progress)
        U.ensemble = now
        counts = found.counts if self.units.grouped else found.sizes
        return Expectation(
            found.log_likelihood, found.change / len(self.units), found.sizes, Moments(found.features, counts, None)
        )

    def sample(self, n: int, rng: np.random.Generator) -> PreparedRows:
        """Return n rows drawn at random without replacement, in order, under the same model; all where there are fewer.

        Which they are depends on the number of rows in the store, and not on its parts.
        """
        total = len(self.units)
        # Numpy draws a small share of many without a table of all.
        chosen = np.arange(total) if n >= total else np.sort(rng.choice(total, size=n, replace=False, shuffle=False))
        rows = self.store.take(chosen.astype(np.int64))
        index = np.arange(len(chosen), dtype=np.int64) if self.units.grouped else None
        units = Units(index, rows.counts, chosen)
        return PreparedRows(self.model, self.mdp, None, units, self.engine, rows)
