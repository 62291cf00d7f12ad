"""Where a mixture begins: an `init` together with the data that it is applied to, for either estimator.

Anything that says who belongs together becomes responsibilities, which `IntentMixture` turns into rewards; rewards stay
what they are.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.irl.prepared import Prepared
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mixture import checks
from limiirl.mixture.best_start import BEST, Candidate, best_start, candidates
from limiirl.mixture.em import Start
from limiirl.mixture.embeddings import embedding as by_name
from limiirl.mixture.init import Rng, grouping, is_given, random_rewards
from limiirl.mixture.rewards import separated, start_from

Float = NDArray[np.float64]


def points(embedding: Any, prepared: Prepared) -> Float:
    """Return (G, m), what a warm start clusters: feature counts, or the embedding.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.prepared import prepare
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> ready = prepare(MaxEnt(), mdp, Demonstrations.from_lists([[0, 1], [0, 2]]))
    >>> points(None, ready).tolist(), points([[3], [4]], ready).tolist()
    ([[1.0], [-1.0]], [[3.0], [4.0]])
    """
    if embedding is None:
        return checks.points(prepared.features(), len(prepared.units), "The feature counts")
    if isinstance(embedding, str):
        return checks.points(by_name(embedding)(prepared), len(prepared.units), "The embedding")
    made = embedding(prepared.mdp, prepared.demos) if callable(embedding) else embedding
    found = checks.points(made, len(prepared.demos), "embedding")
    return prepared.units.mean(found)


class Starts:
    """An `init` with what it is applied to.

    Parameters
    ----------
    init, embedding : Any
        Those of `IntentMixture`.
    prepared : Prepared
    n_parameters : int, optional
        d, where the model does not say it; otherwise it is taken to have one for each feature.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.irl.prepared import prepare
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> ready = prepare(MaxEnt(2, bounds=(-3, 3)), mdp, Demonstrations.from_lists([[0, 1], [0, 2]]))
    >>> starts = Starts([0, 1], None, ready)
    >>> starts.guess(2, np.random.default_rng(0)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> starts.begin(2, "mle", np.random.default_rng(0)).thetas.tolist()
    [[3.0], [-3.0]]
    """

    def __init__(self, init: Any, embedding: Any, prepared: Prepared, n_parameters: int | None = None) -> None:
        self.init, self.embedding, self.prepared = init, embedding, prepared
        self._n_parameters = n_parameters

    @cached_property
    def points(self) -> Float:
        """(G, m), what is clustered; nobody asks where the start is given."""
        return points(self.embedding, self.prepared)

    @property
    def seeks_best(self) -> bool:
        """Whether several clusterings are compared by the rewards that they lead to."""
        return isinstance(self.init, str) and self.init == BEST

    @cached_property
    def _tried(self) -> list[Candidate]:
        return candidates(self.prepared, self.points, with_gradients=self.embedding is None)

    def guess(
        self, n_intents: int, rng: Rng, *, first: bool = True, order: NDArray[np.intp] | None = None
    ) -> Float | RewardEnsemble:
        """Return responsibilities (G, K), or an ensemble, as any `init` but "best" has it.

        Parameters
        ----------
        first : bool
            Whether this is the first of several starts; the others cluster from one random start each.
        order : (G,), optional
            In which a clusterer is shown the points.
        """
        shown = np.empty((len(self.prepared.units), 0)) if is_given(self.init) else self.points
        if isinstance(self.init, str) and self.init == "random_rewards":
            d = self._n_parameters or self.prepared.n_parameters or self.prepared.features().shape[1]
            box = self.prepared.box(d)
            return random_rewards(box.lower, box.upper, n_intents, rng)
        if order is None:
            return grouping(self.init, shown, n_intents, self.prepared.units, rng, first=first)
        found = grouping(self.init, shown[order], n_intents, self.prepared.units, rng, first=first)
        return found if isinstance(found, RewardEnsemble) else found[np.argsort(order)]

    def begin(self, n_intents: int, reward_init: Any, rng: Rng, *, first: bool = True) -> Start:
        """Return where EM begins: rewards by `reward_init` from responsibilities, or an ensemble as it is."""
        prepared = self.prepared
        if self.seeks_best:
            return best_start(prepared, self._tried, n_intents, reward_init, rng, first=first)
        found = self.guess(n_intents, rng, first=first)
        if isinstance(found, RewardEnsemble):
            checks.ensemble(found, n_intents, prepared)
            thetas = separated(np.array(found.thetas), found.weights > 0, prepared, rng)
            return Start(found.weights, thetas)
        return start_from(prepared, found, reward_init, rng)
