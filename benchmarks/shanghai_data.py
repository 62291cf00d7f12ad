"""Taxi paths in Shanghai: all paths in five random folds of this repository, and the authors' folds.

Reads `shanghai_taxi_rcm` of the shared data: ../shared/data beside the checkout, or the folder in `LIMIIRL_DATA`.
Network (c) OpenStreetMap contributors, ODbL; paths of Zhao and Liang (2023). The authors' folds, with training sets of
100, 1,000 and 10,000 paths, are in its folder cv; `limiirl reproduce rivals --part shanghai` reports results on them.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from limiirl import MDP
from limiirl.datasets import Dataset, load_shanghai

FOLDER = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data")) / "shanghai_taxi_rcm"
N_FOLDS = 5


@cache
def read(fold: int | None = None) -> Dataset:
    """Return all paths, or the 10,000 training paths and the test paths of one of the authors' folds."""
    return load_shanghai(FOLDER, fold=fold)


def lengths_only(mdp: MDP) -> MDP:
    """Return the network with the length in km as its only feature."""
    km = np.asarray(mdp.state_features)[:, :5].sum(axis=1, keepdims=True)  # one feature per road class
    return mdp.replace(state_features=km, edge_features=None, feature_names=("km",))


def folds(n: int) -> NDArray[np.int64]:
    """Return the random fold (n,) of each path: a permutation (seed 0) modulo 5. These are not the authors' folds.

    Examples
    --------
    >>> np.bincount(folds(12)).tolist()
    [3, 3, 2, 2, 2]
    """
    fold = np.empty(n, dtype=np.int64)
    fold[np.random.default_rng(0).permutation(n)] = np.arange(n) % N_FOLDS
    return fold
