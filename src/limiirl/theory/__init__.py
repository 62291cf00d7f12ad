"""The paper's theory of warm starts: assumptions 1 and 2, lemmas 1 and 2, theorem 1, and the realised epsilon."""

from limiirl.theory.bound import Bound, Quantities, bound, compute_epsilon, inter_cluster_margin
from limiirl.theory.feature_sets import Extremes, PathSet, feature_distribution, feature_extremes
from limiirl.theory.separation import Separation, separation

__all__ = [
    "Bound",
    "Extremes",
    "PathSet",
    "Quantities",
    "Separation",
    "bound",
    "compute_epsilon",
    "feature_distribution",
    "feature_extremes",
    "inter_cluster_margin",
    "separation",
]
