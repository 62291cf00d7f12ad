"""What the sweeps read and write: rewards and weights, the forward message, and the tallies."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Rewards(NamedTuple):
    """The rewards of K intents on one direction of a graph, in engine order, flat with K fastest.

    `discount[t]` multiplies every reward of step t. `steady` says that it is 1 throughout, so that weights need
    computing only once. `prob` is None where every edge has probability 1, `edge` is None where edges bring no reward.
    """

    node: NDArray[np.float64]
    prob: NDArray[np.float64] | None
    edge: NDArray[np.float64] | None
    discount: NDArray[np.float64]
    steady: bool


class Weights(NamedTuple):
    """Buffers for w (S K) and, unless every edge weighs 1, for x.

    x has (E + table width) K entries: the last row's empty slots read past the edges.
    """

    node: NDArray[np.float64]
    edge: NDArray[np.float64] | None


class Alpha(NamedTuple):
    """The forward message: `value` (2, (S + 1) K) holds alpha_t in row t % 2, `exponent` (K,) its scale.

    Tallies are divided by exp(log_norm).
    """

    value: NDArray[np.float64]
    exponent: NDArray[np.int64]
    log_norm: NDArray[np.float64]


class Tally(NamedTuple):
    """What a forward sweep accumulates; None is not computed.

    node (S K) and edge (E K, sorted by target) sum gain_t times the probability of being there at step t; visits (n,
    S K) and share (n, E K) record, step by step, the probability of each state and the chance that one who stands in
    it came by each edge.
    """

    node: NDArray[np.float64] | None
    edge: NDArray[np.float64] | None
    visits: NDArray[np.float64] | None
    share: NDArray[np.float64] | None
