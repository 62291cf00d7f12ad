"""Map matching with a hidden Markov model or a particle filter, and measures of its quality."""

from limiirl.roads.matching.candidates import build_grid
from limiirl.roads.matching.match_trips import estimate_noise, match
from limiirl.roads.matching.matches import MatchedPiece, Matches, TripMatch
from limiirl.roads.matching.quality import (
    LEVELS,
    LONG_M,
    LONG_S,
    Agreement,
    PathRecovery,
    Quality,
    measure_agreement,
    measure_quality,
    path_recovery,
)

__all__ = [
    "LEVELS", "LONG_M", "LONG_S", "Agreement", "MatchedPiece", "Matches", "PathRecovery", "Quality", "TripMatch",
    "build_grid", "estimate_noise", "match", "measure_agreement", "measure_quality", "path_recovery",
]  # fmt: skip
