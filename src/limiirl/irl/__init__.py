"""Single-intent IRL models, and the protocol that they implement."""

from limiirl.irl.base import (
    PARAMETERS,
    REQUIRED,
    SUFFICIENT_STATISTICS,
    Capabilities,
    FitResult,
    IRLModel,
    NextActions,
    OptionalMembers,
    Status,
)
from limiirl.irl.causal.likelihood import CausalLikelihood
from limiirl.irl.causal.likelihood import feasible_start as feasible_causal_start
from limiirl.irl.causal.maxcausalent import MaxCausalEnt
from limiirl.irl.causal.mlirl import MLIRL
from limiirl.irl.causal.model import CausalModel
from limiirl.irl.causal.problem import CausalProblem
from limiirl.irl.default_features import FeatureChoice, choose_features
from limiirl.irl.destination.model import DestinationMaxEnt, with_choices
from limiirl.irl.destination.path_sums import GoalPathSums, GoalValues
from limiirl.irl.device import GPU_MIN_SIZE, allow_cpu, check_device, choose_device
from limiirl.irl.maxent.inference import prefix_continuations
from limiirl.irl.maxent.model import MaxEnt
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.irl.maxent.problem import MaxEntProblem, Moments, PathLikelihood, RowStatistics
from limiirl.irl.maxent.problem import feasible_start as feasible_path_start
from limiirl.irl.observed_paths import ObservedPaths
from limiirl.irl.optim import evaluate_separately, minimise_lbfgs, minimise_ray
from limiirl.irl.optim.projected_newton import Box
from limiirl.irl.problem import EStep, FitProblem, impossible_unit, make_problem
from limiirl.irl.registry import MODELS, model_class, model_name, register_model
from limiirl.irl.sigma_girl.likelihood import SigmaProblem
from limiirl.irl.sigma_girl.model import SigmaGIRL

__all__ = [
    "GPU_MIN_SIZE",
    "MLIRL",
    "MODELS",
    "PARAMETERS",
    "REQUIRED",
    "SUFFICIENT_STATISTICS",
    "Box",
    "Capabilities",
    "CausalLikelihood",
    "CausalModel",
    "CausalProblem",
    "DestinationMaxEnt",
    "EStep",
    "FeatureChoice",
    "FinitePathSums",
    "FitProblem",
    "FitResult",
    "GoalPathSums",
    "GoalValues",
    "IRLModel",
    "MaxCausalEnt",
    "MaxEnt",
    "MaxEntProblem",
    "Moments",
    "NextActions",
    "ObservedPaths",
    "OptionalMembers",
    "PathLikelihood",
    "RowStatistics",
    "SigmaGIRL",
    "SigmaProblem",
    "Status",
    "allow_cpu",
    "check_device",
    "choose_device",
    "choose_features",
    "evaluate_separately",
    "feasible_causal_start",
    "feasible_path_start",
    "impossible_unit",
    "make_problem",
    "minimise_lbfgs",
    "minimise_ray",
    "model_class",
    "model_name",
    "prefix_continuations",
    "register_model",
    "with_choices",
]
