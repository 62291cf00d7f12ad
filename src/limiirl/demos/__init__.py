"""Demonstrated trajectories, and trajectories grouped by agent."""

from limiirl.demos.agents import Agent, Agents
from limiirl.demos.covariates import Covariates, CovariateScale
from limiirl.demos.demonstrations import Demonstration, Demonstrations, same_arrays
from limiirl.demos.environments import (
    Environment,
    combine_environments,
    resolve_environments,
    split_environments,
    to_environment,
)  # fmt: skip
from limiirl.demos.groups import Groups
from limiirl.demos.history import with_counter, with_history
from limiirl.demos.io import read_table
from limiirl.demos.names import with_common_names
from limiirl.demos.simulate import simulate
from limiirl.demos.transitions import Steps, feature_counts
from limiirl.demos.validate import as_attribute, as_readonly, name_demo

# fmt: off
__all__ = [
    "Agent", "Agents", "CovariateScale", "Covariates", "Demonstration", "Demonstrations", "Environment", "Groups",
    "Steps", "as_attribute", "as_readonly", "combine_environments", "feature_counts", "name_demo", "read_table",
    "resolve_environments", "same_arrays", "simulate", "split_environments", "to_environment", "with_common_names",
    "with_counter", "with_history",
]
# fmt: on
