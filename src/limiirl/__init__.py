"""limiirl: multiple-intent inverse reinforcement learning.

From demonstrations in a Markov decision process it learns one reward function per intent, the mixture weights, and each
demonstration's posterior over intents. Names are imported on first use, to keep `import limiirl` fast.

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
        baselines,
        datasets,
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
    from limiirl.demos import (
        Agents,
        Demonstrations,
        combine_environments,
        to_environment,
        with_counter,
        with_history,
    )
    from limiirl.irl import MLIRL, DestinationMaxEnt, MaxCausalEnt, MaxEnt, SigmaGIRL
    from limiirl.mdp import MDP, RewardEnsemble
    from limiirl.mixture import BayesianIntentMixture, IntentMixture, Selection, select_intents
    from limiirl.report import compare
    from limiirl.switching import SwitchingMixture, select_switching

_HOMES = {
    "limiirl.demos": (
        "Agents",
        "Demonstrations",
        "combine_environments",
        "to_environment",
        "with_counter",
        "with_history",
    ),
    "limiirl.irl": ("DestinationMaxEnt", "MLIRL", "MaxCausalEnt", "MaxEnt", "SigmaGIRL"),
    "limiirl.mdp": ("MDP", "RewardEnsemble"),
    "limiirl.mixture": ("BayesianIntentMixture", "IntentMixture", "Selection", "select_intents"),
    "limiirl.report": ("compare",),
    "limiirl.switching": ("SwitchingMixture", "select_switching"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

# fmt: off
__all__ = [
    "MDP", "MLIRL", "Agents", "BayesianIntentMixture", "Demonstrations", "DestinationMaxEnt", "IntentMixture",
    "MaxCausalEnt", "MaxEnt", "RewardEnsemble", "Selection", "SigmaGIRL", "SwitchingMixture", "__version__",
    "baselines", "combine_environments", "compare", "datasets", "errors", "executors", "experiments", "forecast",
    "metrics", "report", "roads", "select_intents", "select_switching", "streams", "testing", "theory",
    "to_environment", "with_counter", "with_history", "worlds",
]
# fmt: on


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    if name in __all__:
        return import_module(f"limiirl.{name}")
    raise AttributeError(f"module 'limiirl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
