"""Should a warm start work? The quantities of the paper's theory, its bound, and what the data themselves say."""

from limiirl.theory.bound import Bound, Quantities, bound, inter_cluster_margin, realised_epsilon
from limiirl.theory.feature_sets import Extremes, PathSet, feature_distribution, feature_extremes
from limiirl.theory.separation import Separation, separation

__all__ = [
    "Bound",
    "Extremes",
    "PathSet",
    "Quantities",
    "Separation",
    "bound",
    "feature_distribution",
    "feature_extremes",
    "inter_cluster_margin",
    "realised_epsilon",
    "separation",
]
