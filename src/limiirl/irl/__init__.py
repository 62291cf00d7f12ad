"""Single-intent IRL models: a protocol, and the models that follow it."""

from limiirl.irl.base import PARAMETERS, REQUIRED, FitResult, IRLModel, Status
from limiirl.irl.causal.likelihood import CausalLikelihood
from limiirl.irl.causal.maxcausalent import MaxCausalEnt
from limiirl.irl.causal.mlirl import MLIRL
from limiirl.irl.causal.model import CausalModel
from limiirl.irl.causal.problem import PreparedCausal
from limiirl.irl.destination.model import DestinationMaxEnt, with_choices
from limiirl.irl.destination.path_sums import GoalPathSums, GoalValues
from limiirl.irl.device import WORTH_IT, anywhere, check_device, choose_device
from limiirl.irl.maxent.inference import look_past
from limiirl.irl.maxent.likelihood import Evidence, PathLikelihood
from limiirl.irl.maxent.model import MaxEnt
from limiirl.irl.maxent.path_sums import FiniteEngine
from limiirl.irl.maxent.problem import Moments, PreparedMaxEnt, PreparedRows, PreparedSums
from limiirl.irl.optim.projected_newton import Box
from limiirl.irl.optim.solvers import minimise_lbfgs, minimise_ray
from limiirl.irl.problem import Expectation, Prepared, prepare
from limiirl.irl.registry import MODELS, model_class, model_name, register_model
from limiirl.irl.sigma_girl.likelihood import PreparedSigma
from limiirl.irl.sigma_girl.model import SigmaGIRL

__all__ = [
    "MLIRL",
    "MODELS",
    "PARAMETERS",
    "REQUIRED",
    "WORTH_IT",
    "Box",
    "CausalLikelihood",
    "CausalModel",
    "DestinationMaxEnt",
    "Evidence",
    "Expectation",
    "FiniteEngine",
    "FitResult",
    "GoalPathSums",
    "GoalValues",
    "IRLModel",
    "MaxCausalEnt",
    "MaxEnt",
    "Moments",
    "PathLikelihood",
    "Prepared",
    "PreparedCausal",
    "PreparedMaxEnt",
    "PreparedRows",
    "PreparedSigma",
    "PreparedSums",
    "SigmaGIRL",
    "Status",
    "anywhere",
    "check_device",
    "choose_device",
    "look_past",
    "minimise_lbfgs",
    "minimise_ray",
    "model_class",
    "model_name",
    "prepare",
    "register_model",
    "with_choices",
]
