"""The objective of a causal fit: minus the weighted mean log-likelihood of choices, for K weightings at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import DivergentPartition, NumericalError
from limiirl.irl.choice_events import Events
from limiirl.irl.choice_values import Engine
from limiirl.irl.optimise import Box

Float = NDArray[np.float64]
# What `feasible_start` tries: features may be in any unit, so that a cost of 1 a step may need parameters of 1000.
_COSTS = (0.0, *(4.0**power for power in range(11)))


class ChoiceLikelihood:
    """The functions f_k(theta) = -sum_m c_mk log pi_theta(m) / n_k + ridge_k / 2 |theta|^2.

    Smooth but for hard values, and not convex where moves are uncertain.

    Parameters
    ----------
    totals : (m, K)
        How often each distinct choice was made, under each weighting.
    sizes, ridge : (K,)
        The weight of all demonstrations together, and the penalty.
    """

    def __init__(self, engine: Engine, events: Events, totals: Float, sizes: Float, ridge: Float) -> None:
        self.engine, self.events, self.ridge = engine, events, ridge
        self._share = totals / sizes
        self._repeats = np.diff(events.ptr)

    @property
    def n_choices(self) -> Float:
        """Mean number (K,) of choices a demonstration."""
        return np.asarray(self._share.sum(axis=0))

    def evaluate(self, thetas: Float, which: NDArray[np.intp]) -> tuple[Float, Float]:
        """Return values (J,) and gradients (J, d); infinite where values are, or are beyond float64."""
        try:
            found = self.engine.solve(thetas, self.events.moves)
            log_p, posterior = self.events.log_prob(found.log_choice)
            share = self._share[:, which]
            # An impossible choice that nobody made counts for nothing.
            with np.errstate(invalid="ignore"):
                values = -np.sum(np.where(share > 0.0, share * log_p, 0.0), axis=0)
            gradients = -found.gradient(np.repeat(share, self._repeats, axis=0) * posterior)
        except (DivergentPartition, NumericalError):
            if len(which) == 1:
                return np.array([np.inf]), np.zeros_like(thetas)
            parts = [self.evaluate(thetas[j : j + 1], which[j : j + 1]) for j in range(len(which))]
            return np.concatenate([value for value, _ in parts]), np.concatenate([gradient for _, gradient in parts])
        values += 0.5 * self.ridge[which] * np.sum(thetas**2, axis=1)
        gradients += self.ridge[which, None] * thetas
        return values, gradients

    def hessian(self, theta: Float, k: int) -> Float:
        """Not known: causal models are fitted by gradients."""
        raise NotImplementedError


def feasible_start(engine: Engine, events: Events, box: Box) -> Float:
    """Return a point (d,) within the bounds where values are finite: 0, or else growing costs.

    A cost is a parameter of the sign that makes its feature, summed over states and choices, a loss.
    """
    mdp = engine.choices.mdp
    start = box.clip(np.zeros(mdp.n_features))
    against = np.sign(engine.choices.features(np.ones((mdp.n_states, 1)), np.ones((mdp.n_pairs, 1)))[0])
    for cost in _COSTS:
        trial = box.clip(start - cost * against)
        try:
            engine.solve(trial[None], events.moves)
        except DivergentPartition:
            continue
        return trial
    raise DivergentPartition(
        "Values stay infinite whatever features cost within the bounds: at discount 1 some state never ends, or its "
        "choices are worth too much. Use gamma < 1, a finite horizon, wider bounds, or a start where they are finite."
    )
