"""The paper's box plots with other models: ML-IRL on ElementWorld, Sigma-GIRL on the continuous PuddleWorld.

Paper: appendix "LiMIIRL algorithm - extended results".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from limiirl.experiments.spec import SUPERVISED, Spec, parameters
from limiirl.experiments.study import BASE, METHODS, Setting, Study, method_spec

ML_IRL = "ML-IRL, paper's"
"""The one point of the study of ML-IRL: the model's name, as in the studies beyond the paper."""

PAPERS_ML_IRL = parameters(q="hard", beta=0.5, bounds=(-10.0, 0.0))
"""The paper's ML-IRL: Boltzmann choices on the values of an optimal policy, and its bounds on rewards."""

PUDDLE_GAMMA = 0.999

_PUDDLE = Spec(
    world="ContinuousPuddleWorld",
    world_parameters=parameters(gamma=PUDDLE_GAMMA),
    n_intents=2,
    model="SigmaGIRL",
)


def _sigma(init: str, cluster_on: str = "reward", **changes: Any) -> Mapping[str, Any]:
    given = parameters(gamma=PUDDLE_GAMMA, cluster_on=cluster_on)
    return MappingProxyType({"init": init, "model_parameters": given, **changes})


SIGMA_METHODS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "k-means, reward features": _sigma("kmeans"),
        "k-means, policy features": _sigma("kmeans", "policy"),
        "GMM, reward features": _sigma("gmm"),
        "GMM, policy features": _sigma("gmm", "policy"),
        "random responsibilities": _sigma("random"),
        "random rewards": _sigma("random_rewards"),
        "supervised": _sigma(SUPERVISED, max_iter=0),
    }
)
"""Methods for Sigma-GIRL by name, as changes of a specification.

Agents are clustered by their mean discounted reward or policy features. The label "Babes-Vroman" in the paper's figure
is EM that begins at random; of what, it does not say, and both are here.
"""

TRAJECTORIES = (5, 20, 100)
"""Trajectories an agent, and as many others to judge by. The paper's figure does not say how many it has."""

MODEL_STUDIES = (
    Study(
        "mlirl",
        f"Box plots with {ML_IRL}",
        "model",
        20,
        tuple(
            Setting(method, ML_IRL, method_spec(BASE.with_(model="MLIRL", model_parameters=PAPERS_ML_IRL), method))
            for method in METHODS
        ),
    ),
    Study(
        "sigma-girl",
        "Box plots with Sigma-GIRL",
        "trajectories an agent",
        40,
        tuple(
            Setting(method, n, _PUDDLE.with_(n_demos=n, n_test=n, **changes))
            for n in TRAJECTORIES
            for method, changes in SIGMA_METHODS.items()
        ),
    ),
)
"""Those of the paper's appendix that are not of MaxEnt."""
