"""Mixtures of intents: EM from warm starts, and what a fitted mixture can tell."""

from limiirl.mixture.estimator import IntentMixture
from limiirl.mixture.selection import Selection, select_intents

__all__ = ["IntentMixture", "Selection", "select_intents"]
