"""What a trial is about: a world made from a seed, demonstrations to learn from and others to judge by.

Paper: section "ElementWorld Results", experimental configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.experiments.spec import Parameters, Spec
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.metrics import evaluate
from limiirl.mixture import IntentMixture
from limiirl.worlds import WORLDS, World, geometric_weights

SECOND_SET = 1
"""Added to the seed of the demonstrations to learn from, it is that of those to judge by."""


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

    @property
    def fitted_in(self) -> MDP:
        """The MDP that a model is given."""
        return self.world.mdp

    @property
    def n_labels(self) -> int:
        """Number of true intents."""
        return self.truth.n_intents

    def points(self, irl: Any) -> NDArray[np.float64]:
        """Return (N, d), what a warm start clusters: the demonstrations' features."""
        del irl
        return self.demos.features(self.world.mdp)

    def rewards(self, thetas: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rewards (K, d) in the world from a model's parameters, or the other way round: they are the same."""
        return thetas

    def scores(self, mixture: IntentMixture) -> dict[str, Any]:
        """Return the scores of one mixture by their names in a record."""
        found = evaluate(mixture, self.test, self.test_labels, self.truth)
        assert found.recovery is not None  # labels were given
        assert found.gevd is not None  # and the truth
        return {
            "nll": found.nll.mean,
            "train_nll": -mixture.log_likelihood_,
            "anid": found.recovery.anid,
            "anid_hard": found.recovery.anid_hard,
            "anid_truth": None if found.reference is None else found.reference.anid,
            "accuracy": found.recovery.accuracy,
            "gevd": found.gevd.value,
            "gevd_normalised": known(found.gevd.normalised),
            "weights": mixture.weights_.tolist(),
            "thetas": mixture.thetas_.tolist(),
        }


def known(value: float) -> float | None:
    """Return None for what does not exist, such as the change of a start without clusters.

    Examples
    --------
    >>> known(1), known(float("nan"))
    (1.0, None)
    """
    return None if np.isnan(value) else float(value)


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
    test, test_labels = made.sample(sizes[1], seed=2 * seed + SECOND_SET, weights=weights)
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
