"""Metrics of reward ensembles, clusterings, likelihoods and predicted trajectories, with confidence intervals."""

from typing import TYPE_CHECKING, Any

from limiirl.metrics.adequacy import Adequacy, check_fit
from limiirl.metrics.clusterings import anid, hard_labels, nid
from limiirl.metrics.evaluate import NLL, Evaluation, Recovery, ensemble_nll, evaluate, mixture_nll, recover
from limiirl.metrics.evd import evd, evd_interval, ile, ile_interval
from limiirl.metrics.gevd import GEVD, gevd
from limiirl.metrics.groups import GroupComparison, GroupContrast, compare_groups, condition_of_groups, correct_p_values
from limiirl.metrics.intervals import (
    Comparison,
    Interval,
    agrees_with,
    bootstrap_interval,
    compare_paired,
    mean_interval,
)
from limiirl.metrics.model_tests import (
    bootstrap_test,
    likelihood_ratio_test,
    vuong_test,
    wald_test,
)
from limiirl.metrics.reward_distances import dard, epic
from limiirl.metrics.routes import (
    bleu_scores,
    edit_distance,
    feature_distance,
    match_rate,
    missing_distance_fraction,
    next_action_accuracy,
    route_accuracy,
)
from limiirl.mixture import HypothesisTest

if TYPE_CHECKING:
    from limiirl.metrics.plotting import draw_flow

# fmt: off
__all__ = [
    "GEVD", "NLL", "Adequacy", "Comparison", "Evaluation", "GroupComparison", "GroupContrast", "HypothesisTest",
    "Interval", "Recovery", "agrees_with", "anid", "bleu_scores", "bootstrap_interval", "bootstrap_test", "check_fit",
    "compare_groups", "compare_paired", "condition_of_groups", "correct_p_values", "dard", "draw_flow",
    "edit_distance", "ensemble_nll", "epic", "evaluate", "evd", "evd_interval", "feature_distance", "gevd",
    "hard_labels", "ile", "ile_interval", "likelihood_ratio_test", "match_rate", "mean_interval",
    "missing_distance_fraction", "mixture_nll", "next_action_accuracy", "nid", "recover", "route_accuracy",
    "vuong_test", "wald_test",
]
# fmt: on


def __getattr__(name: str) -> Any:
    if name == "draw_flow":  # imported on first use, because it imports matplotlib
        from limiirl.metrics.plotting import draw_flow

        return draw_flow
    raise AttributeError(f"module 'limiirl.metrics' has no attribute {name!r}")
