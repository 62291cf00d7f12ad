"""Mixtures of intents: EM from warm starts, and what a fitted mixture can tell."""

from limiirl.mixture.bayesian.estimator import BayesianIntentMixture
from limiirl.mixture.em import Settings, Solution, Start, State, run
from limiirl.mixture.estimator import IntentMixture
from limiirl.mixture.init import Starts, is_given, kmeans
from limiirl.mixture.io import Unwritable, Writer, check_target, decode, decode_history
from limiirl.mixture.monitor import EMProgress, Iteration, reporting
from limiirl.mixture.restarts import Restart, assign, in_order_of_labels
from limiirl.mixture.reward_init import REWARDS
from limiirl.mixture.selection.recommend import SelectionRow, stick_breaking
from limiirl.mixture.selection.select import Selection, select_intents
from limiirl.mixture.summary import Membership, check_suffix, membership
from limiirl.mixture.validate import fitted, model, trained_on

__all__ = [
    "REWARDS",
    "BayesianIntentMixture",
    "EMProgress",
    "IntentMixture",
    "Iteration",
    "Membership",
    "Restart",
    "Selection",
    "SelectionRow",
    "Settings",
    "Solution",
    "Start",
    "Starts",
    "State",
    "Unwritable",
    "Writer",
    "assign",
    "check_suffix",
    "check_target",
    "decode",
    "decode_history",
    "fitted",
    "in_order_of_labels",
    "is_given",
    "kmeans",
    "membership",
    "model",
    "reporting",
    "run",
    "select_intents",
    "stick_breaking",
    "trained_on",
]
