"""Mixtures of intents: EM from warm starts, and what a fitted mixture can tell."""

from limiirl.mixture.bayesian.estimator import BayesianIntentMixture
from limiirl.mixture.estimator import IntentMixture
from limiirl.mixture.selection.select import Selection, select_intents

__all__ = ["BayesianIntentMixture", "IntentMixture", "Selection", "select_intents"]
