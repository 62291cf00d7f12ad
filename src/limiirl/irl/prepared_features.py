"""Demonstrations under a model whose parameters weigh the features of an MDP, within bounds and with a ridge."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl.irl import checks
from limiirl.irl.optimise import Box
from limiirl.irl.prepared import Prepared

Float = NDArray[np.float64]


class PreparedFeatures(Prepared):
    """What such models share: the number of parameters, the bounds, and the ridge.

    Parameters
    ----------
    model : IRLModel
        With `bounds` and `ridge`.
    n_demos : int
        N, all demonstrations together; the ridge is in proportion to it.
    """

    def __init__(self, model: Any, mdp: Any, demos: Any, units: Any, n_demos: int) -> None:
        super().__init__(model, mdp, demos, units)
        self.n_demos = n_demos
        self._ridge = checks.positive(model.ridge, "ridge", zero=True)
        self._box = checks.box(model.bounds, mdp.feature_names)
        self._start: Float | None = None

    @property
    def n_parameters(self) -> int:
        """d, the number of features of the MDP."""
        return int(self.mdp.n_features)

    def ridges(self, n_intents: int, counts: Float) -> Float:
        """Return (J,) the ridge of the M-step of intents that have so many demonstrations (J,), of `n_intents` in all.

        One penalty for the whole mixture, so that no share of an intent changes its prior: `penalty`, in the scale of a
        mean over the intent's demonstrations.
        """
        return np.asarray(self._ridge * self.n_demos / (n_intents * counts))

    def box(self, n_features: int) -> Box:
        """Return the bounds on theta."""
        del n_features
        return self._box

    def penalty(self, thetas: Float) -> float:
        """Return the ridge: a Gaussian prior on every intent, as strong as `fit` has it for N / K demonstrations."""
        return 0.5 * self._ridge * self.n_demos / len(thetas) * float(np.sum(thetas**2))
