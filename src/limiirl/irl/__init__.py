"""Single-intent IRL models: a protocol, and the models that follow it."""

from limiirl.irl.base import FitResult, IRLModel, Status
from limiirl.irl.maxent import MaxEnt

__all__ = ["FitResult", "IRLModel", "MaxEnt", "Status"]
