"""Intents that switch within a demonstration."""

from limiirl.switching.em import SwitchingRestart
from limiirl.switching.estimator import SwitchingMixture
from limiirl.switching.inference import Segments
from limiirl.switching.transitions import Logits

__all__ = ["Logits", "Segments", "SwitchingMixture", "SwitchingRestart"]
