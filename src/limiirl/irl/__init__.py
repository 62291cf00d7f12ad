"""Single-intent IRL models, and the protocol that they implement."""

from limiirl.irl.base import (
    PARAMETERS,
    REQUIRED,
    SUFFICIENT_STATISTICS,
    Capabilities,
    FitResult,
    IRLModel,
    NextActions,
    Status,
)
from limiirl.irl.causal.maxcausalent import MaxCausalEnt
from limiirl.irl.causal.mlirl import MLIRL
from limiirl.irl.causal.model import CausalModel
from limiirl.irl.defaults import (
    MODELS,
    RIDGES,
    DefaultFeatures,
    ModelChoice,
    choose_features,
    choose_model,
    default_model,
    model_class,
    model_name,
    register_model,
)
from limiirl.irl.destination.by_goal import ConditionalGoalValues, link_size
from limiirl.irl.destination.dense import make_goal_values
from limiirl.irl.destination.model import DestinationMaxEnt, group_conditions, with_choices
from limiirl.irl.destination.path_sums import GoalPathSums, GoalValues
from limiirl.irl.estimator import GPU_MIN_SIZE, allow_cpu, check_device, choose_device
from limiirl.irl.identifiability import Identifiability, compare_environments
from limiirl.irl.maxent.inference import prefix_continuations
from limiirl.irl.maxent.model import MaxEnt
from limiirl.irl.maxent.problem import MaxEntProblem, Moments, RowStatistics
from limiirl.irl.observed_paths import ObservedPaths
from limiirl.irl.optim import evaluate_separately, minimise_lbfgs, minimise_ray
from limiirl.irl.optim.projected_newton import Box
from limiirl.irl.penalty import PenaltyPath, select_penalty
from limiirl.irl.problem import AT_BOUND, EStep, FitProblem, OptionalMembers, impossible_unit, make_problem
from limiirl.irl.reward_gradient import (
    RewardLikelihood,
    RewardTable,
    jax_log_likelihood,
    torch_log_likelihood,
    value_and_reward_grad,
)
from limiirl.irl.sigma_girl.model import SigmaGIRL

__all__ = [
    "AT_BOUND",
    "GPU_MIN_SIZE",
    "MLIRL",
    "MODELS",
    "PARAMETERS",
    "REQUIRED",
    "RIDGES",
    "SUFFICIENT_STATISTICS",
    "Box",
    "Capabilities",
    "CausalModel",
    "ConditionalGoalValues",
    "DefaultFeatures",
    "DestinationMaxEnt",
    "EStep",
    "FitProblem",
    "FitResult",
    "GoalPathSums",
    "GoalValues",
    "IRLModel",
    "Identifiability",
    "MaxCausalEnt",
    "MaxEnt",
    "MaxEntProblem",
    "ModelChoice",
    "Moments",
    "NextActions",
    "ObservedPaths",
    "OptionalMembers",
    "PenaltyPath",
    "RewardLikelihood",
    "RewardTable",
    "RowStatistics",
    "SigmaGIRL",
    "Status",
    "allow_cpu",
    "check_device",
    "choose_device",
    "choose_features",
    "choose_model",
    "compare_environments",
    "default_model",
    "evaluate_separately",
    "group_conditions",
    "impossible_unit",
    "jax_log_likelihood",
    "link_size",
    "make_goal_values",
    "make_problem",
    "minimise_lbfgs",
    "minimise_ray",
    "model_class",
    "model_name",
    "prefix_continuations",
    "register_model",
    "select_penalty",
    "torch_log_likelihood",
    "value_and_reward_grad",
    "with_choices",
]
