"""Mixtures of intents: EM from warm starts, selection of the number of intents, and inference with fitted mixtures."""

from limiirl.mixture.bayesian.estimator import BayesianIntentMixture
from limiirl.mixture.em import (
    Callback,
    ConvergenceMonitor,
    Iteration,
    Settings,
    Solution,
    Start,
    State,
    floor_weights,
    nearly_empty,
    report_iterations,
    run,
)
from limiirl.mixture.estimator import IntentMixture
from limiirl.mixture.information import StandardErrors, free_parameters
from limiirl.mixture.init import (
    REWARDS,
    Starts,
    as_responsibilities,
    find_equal_pair,
    find_indistinct_pair,
    is_given,
    kmeans,
)
from limiirl.mixture.io import NotSerialisable, Writer, check_target, decode, decode_history
from limiirl.mixture.restarts import Restart, align_to_labels, assign_columns
from limiirl.mixture.selection.recommend import SelectionRow, stick_breaking
from limiirl.mixture.selection.select import Selection, select_intents
from limiirl.mixture.summary import GroupWeights, Membership, Summary, check_suffix, membership_table, summarise
from limiirl.mixture.validate import check_fitted, check_irl, training_demos

__all__ = [
    "REWARDS",
    "BayesianIntentMixture",
    "Callback",
    "ConvergenceMonitor",
    "GroupWeights",
    "IntentMixture",
    "Iteration",
    "Membership",
    "NotSerialisable",
    "Restart",
    "Selection",
    "SelectionRow",
    "Settings",
    "Solution",
    "StandardErrors",
    "Start",
    "Starts",
    "State",
    "Summary",
    "Writer",
    "align_to_labels",
    "as_responsibilities",
    "assign_columns",
    "check_fitted",
    "check_irl",
    "check_suffix",
    "check_target",
    "decode",
    "decode_history",
    "find_equal_pair",
    "find_indistinct_pair",
    "floor_weights",
    "free_parameters",
    "is_given",
    "kmeans",
    "membership_table",
    "nearly_empty",
    "report_iterations",
    "run",
    "select_intents",
    "stick_breaking",
    "summarise",
    "training_demos",
]
