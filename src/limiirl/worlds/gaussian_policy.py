"""Policies of the continuous PuddleWorld: Gaussian, with a mean that is linear in normalised radial features."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import InvalidParameter

Float = NDArray[np.float64]

VARIANCE = 0.1
"""Of each component of an action."""
SIZE = 9.0
"""The world is the square [0, 9] x [0, 9]."""


@dataclass(frozen=True, eq=False)
class GaussianPolicy:
    """a ~ N(W^T x(s), variance I), where x(s) are radial features of a position in the square [0, 9] x [0, 9].

    The centres form a grid with as many rows as columns, corners included. A feature falls off as a Gaussian whose
    standard deviation is half the distance of neighbouring centres, and the features of a position sum to 1. They are
    numbered along x first: feature 1 is to the right of feature 0.

    Parameters
    ----------
    weights : (p, b)
        W, for p = 4, 9, 16, 25, ... features and b components of an action. Read-only afterwards.
    variance : float
        Of each component.

    Examples
    --------
    >>> policy = GaussianPolicy(np.tile([1.0, 0.5], (25, 1)))
    >>> x = policy.features(np.array([0.0, 4.5]))
    >>> x.reshape(5, 5).round(2)[:, 0].tolist(), policy.mean(x).round(6).tolist()
    ([0.0, 0.09, 0.69, 0.09, 0.0], [1.0, 0.5])
    """

    weights: Float
    variance: float = VARIANCE

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        if weights.ndim != 2 or len(weights) < 4 or int(np.sqrt(len(weights))) ** 2 != len(weights):
            raise InvalidParameter(
                f"weights must have a row for each centre of a square grid, 4, 9, 16, 25, ...; the shape is "
                f"{weights.shape}. The agents of Sigma-GIRL have (25, 2)."
            )
        if not np.all(np.isfinite(weights)):
            i, j = np.argwhere(~np.isfinite(weights))[0]
            raise InvalidParameter(f"weights must be finite; row {i}, column {j} is {weights[i, j]}. Train it anew.")
        if not self.variance > 0.0:
            raise InvalidParameter(f"variance must be above 0; got {self.variance!r}. The agents have {VARIANCE}.")
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)

    @property
    def n_features(self) -> int:
        """Number of radial features, p."""
        return len(self.weights)

    @cached_property
    def _grid(self) -> Float:
        """Where the centres stand on each axis."""
        return np.linspace(0.0, SIZE, int(np.sqrt(self.n_features)))

    def features(self, positions: Float) -> Float:
        """Return the radial features (..., p) of positions (..., 2)."""
        grid = self._grid
        # On a grid, both a Gaussian and the sum over all centres are products of one factor an axis.
        axes = np.exp(-2.0 * ((positions[..., None] - grid) / (grid[1] - grid[0])) ** 2)
        axes /= np.add.reduce(axes, axis=-1, keepdims=True)
        products = axes[..., 1, :, None] * axes[..., 0, None, :]
        return np.asarray(products.reshape(*positions.shape[:-1], self.n_features))

    def mean(self, features: Float) -> Float:
        """Return the mean actions (..., b) where the radial features are (..., p)."""
        # Not a matrix product, whose last digit depends on how many positions there are: a walk in an environment, one
        # position at a time, is to be the same as among many.
        return np.asarray(np.add.reduce(features[..., None] * self.weights, axis=-2))

    def act(self, positions: Float, noise: Float) -> Float:
        """Return actions (..., b) at positions (..., 2), disturbed by standard normal noise (..., b).

        Examples
        --------
        >>> policy = GaussianPolicy(np.zeros((25, 2)))
        >>> policy.act(np.array([3.0, 3.0]), np.array([1.0, -2.0])).round(3).tolist()
        [0.316, -0.632]
        """
        return self.disturbed(self.mean(self.features(positions)), noise)

    def disturbed(self, means: Float, noise: Float) -> Float:
        """Return actions (..., b) from their means and standard normal noise."""
        return np.asarray(means + np.sqrt(self.variance) * noise)
