"""The paper's findings with other models than MaxEnt: ML-IRL, and Sigma-GIRL, of which it found no certain gain.

The paper also calls Sigma-GIRL's NLL the same from all starts. It is that of a profile likelihood, which does not
integrate to 1: how large a difference would matter cannot be said, so that nothing is claimed of it here.

Paper: appendix "LiMIIRL algorithm - extended results", captions of the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from limiirl.experiments.results import Results
from limiirl.experiments.studies_models import ML_IRL
from limiirl.experiments.verdicts import (
    HARD,
    MEAN,
    QUALITY,
    RANDOM,
    RANDOM_GMM,
    SOFT,
    SUPERVISED,
    TIED,
    UNIFORM,
    Finding,
    at_each,
    everywhere_below,
    finding,
    on_par,
    over,
)

_REWARD, _POLICY = "k-means, reward features", "k-means, policy features"
_SOFT_REWARD, _SOFT_POLICY = "GMM, reward features", "GMM, policy features"
_RANDOM_STARTS = (UNIFORM, RANDOM)


def _mlirl(results: Results) -> list[Finding]:
    at = (ML_IRL,)
    return [
        *(
            finding(
                "mlirl",
                f"{method} is ahead of {other} in ANID, GEVD and iterations",
                everywhere_below,
                over(results, method, other, at, (*QUALITY, "n_iter")),
            )
            for method in (HARD, MEAN)
            for other in (RANDOM, UNIFORM)
        ),
        *(
            finding(
                "mlirl",
                f"Hard clustering is ahead of soft ({kind})",
                everywhere_below,
                over(results, HARD, soft, at, QUALITY),
            )
            for kind, soft in ((RANDOM_GMM, SOFT), ("GMM", TIED))
        ),
        finding(
            "mlirl",
            "Hard clustering is on par with supervision",
            on_par,
            over(results, HARD, SUPERVISED, at, QUALITY),
        ),
    ]


def _sigma(results: Results) -> list[Finding]:
    points = results.study.points
    return [
        *(
            finding(
                "sigma-girl",
                f"Warm starts and {other} end with the same ANID",
                on_par,
                over(results, _REWARD, other, points, ("anid",)),
            )
            for other in _RANDOM_STARTS
        ),
        *(
            finding(
                "sigma-girl",
                f"Warm starts need fewer iterations and less time than {other} (the paper: a little, not certainly)",
                everywhere_below,
                over(results, _REWARD, other, points, ("n_iter", "seconds")),
            )
            for other in _RANDOM_STARTS
        ),
        *(
            finding(
                "sigma-girl",
                f"Reward and policy features are equally good to cluster by ({kind})",
                on_par,
                over(results, reward, policy, points, ("anid",)),
            )
            for kind, reward, policy in (("k-means", _REWARD, _POLICY), ("GMM", _SOFT_REWARD, _SOFT_POLICY))
        ),
        # Not the paper's: it saw no difference.
        *(
            finding(
                "sigma-girl",
                f"Warm starts put more agents right than {other} with {n} trajectories an agent",
                everywhere_below,
                at_each(results, other, _REWARD, (n,), ("accuracy",)),
            )
            for other in _RANDOM_STARTS
            for n in points
        ),
    ]


MODEL_FINDINGS: Mapping[str, Callable[[Results], list[Finding]]] = MappingProxyType(
    {"mlirl": _mlirl, "sigma-girl": _sigma}
)
"""What each study says, by its name."""
