"""Single-intent IRL models: a protocol, and the models that follow it."""

from limiirl.irl.base import FitResult, IRLModel, Status
from limiirl.irl.causal.maxcausalent import MaxCausalEnt
from limiirl.irl.causal.mlirl import MLIRL
from limiirl.irl.destination.model import DestinationMaxEnt, with_choices
from limiirl.irl.maxent.model import MaxEnt
from limiirl.irl.registry import MODELS, model_class, model_name, register_model
from limiirl.irl.sigma_girl.model import SigmaGIRL

__all__ = [
    "MLIRL",
    "MODELS",
    "DestinationMaxEnt",
    "FitResult",
    "IRLModel",
    "MaxCausalEnt",
    "MaxEnt",
    "SigmaGIRL",
    "Status",
    "model_class",
    "model_name",
    "register_model",
    "with_choices",
]
