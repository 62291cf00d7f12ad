"""Single-intent IRL models: a protocol, and the models that follow it."""

from limiirl.irl.base import FitResult, IRLModel, Status
from limiirl.irl.maxent import MaxEnt
from limiirl.irl.registry import MODELS, model_class, model_name, register_model

__all__ = ["MODELS", "FitResult", "IRLModel", "MaxEnt", "Status", "model_class", "model_name", "register_model"]
