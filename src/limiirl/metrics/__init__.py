"""How good an ensemble is: rewards, clusters, likelihood, forecasts, and how sure a figure is."""

from limiirl.metrics.clusterings import anid, hard, nid
from limiirl.metrics.evaluate import NLL, Evaluation, Recovery, ensemble_nll, evaluate, mixture_nll, recover
from limiirl.metrics.evd import evd, evd_interval, ile, ile_interval
from limiirl.metrics.gevd import GEVD, gevd
from limiirl.metrics.intervals import Comparison, Interval, agrees, bootstrap_interval, mean_interval, paired
from limiirl.metrics.plotting import draw_flow
from limiirl.metrics.reward_distances import dard, epic
from limiirl.metrics.routes import distance_missed, edit_distance, feature_distance, match_rate, next_action_accuracy

__all__ = [
    "GEVD",
    "NLL",
    "Comparison",
    "Evaluation",
    "Interval",
    "Recovery",
    "agrees",
    "anid",
    "bootstrap_interval",
    "dard",
    "distance_missed",
    "draw_flow",
    "edit_distance",
    "ensemble_nll",
    "epic",
    "evaluate",
    "evd",
    "evd_interval",
    "feature_distance",
    "gevd",
    "hard",
    "ile",
    "ile_interval",
    "match_rate",
    "mean_interval",
    "mixture_nll",
    "next_action_accuracy",
    "nid",
    "paired",
    "recover",
]
