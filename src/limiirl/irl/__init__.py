"""Single-intent IRL models: a protocol, and the models that follow it."""

from limiirl.irl.base import FitResult, IRLModel, Status
from limiirl.irl.causal import MaxCausalEnt
from limiirl.irl.destination import DestinationMaxEnt
from limiirl.irl.destination_choices import with_choices
from limiirl.irl.maxent import MaxEnt
from limiirl.irl.mlirl import MLIRL
from limiirl.irl.registry import MODELS, model_class, model_name, register_model
from limiirl.irl.sigma_girl import SigmaGIRL

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
