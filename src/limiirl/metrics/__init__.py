"""How good an ensemble is: the distance between clusterings."""

from limiirl.metrics.clusterings import anid, hard, nid

__all__ = ["anid", "hard", "nid"]
