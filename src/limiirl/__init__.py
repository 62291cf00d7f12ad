"""limiirl: the distinct intents behind unlabelled behaviour.

From demonstrations in a Markov decision process it learns reward functions. Names are loaded when first used, so that
`import limiirl` is quick.

Examples
--------
>>> import limiirl as ll
>>> ll.MDP.from_edges([0, 1], [1, 2]).n_states
3
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from limiirl._version import __version__

if TYPE_CHECKING:
    from limiirl import (
        errors,
        executors,
        experiments,
        forecast,
        metrics,
        report,
        roads,
        streams,
        testing,
        theory,
        worlds,
    )
    from limiirl.demos import Agents, Demonstrations
    from limiirl.irl import MLIRL, DestinationMaxEnt, MaxCausalEnt, MaxEnt, SigmaGIRL
    from limiirl.mdp import MDP, RewardEnsemble
    from limiirl.mixture import BayesianIntentMixture, IntentMixture, Selection, select_intents

_HOMES = {
    "Agents": "limiirl.demos",
    "BayesianIntentMixture": "limiirl.mixture",
    "Demonstrations": "limiirl.demos",
    "DestinationMaxEnt": "limiirl.irl",
    "IntentMixture": "limiirl.mixture",
    "MDP": "limiirl.mdp",
    "MLIRL": "limiirl.irl",
    "MaxCausalEnt": "limiirl.irl",
    "MaxEnt": "limiirl.irl",
    "RewardEnsemble": "limiirl.mdp.ensemble",
    "Selection": "limiirl.mixture",
    "SigmaGIRL": "limiirl.irl",
    "select_intents": "limiirl.mixture",
}
_MODULES = (
    "errors",
    "executors",
    "experiments",
    "forecast",
    "metrics",
    "report",
    "roads",
    "streams",
    "testing",
    "theory",
    "worlds",
)

__all__ = [
    "MDP",
    "MLIRL",
    "Agents",
    "BayesianIntentMixture",
    "Demonstrations",
    "DestinationMaxEnt",
    "IntentMixture",
    "MaxCausalEnt",
    "MaxEnt",
    "RewardEnsemble",
    "Selection",
    "SigmaGIRL",
    "__version__",
    "errors",
    "executors",
    "experiments",
    "forecast",
    "metrics",
    "report",
    "roads",
    "select_intents",
    "streams",
    "testing",
    "theory",
    "worlds",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"limiirl.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'limiirl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
