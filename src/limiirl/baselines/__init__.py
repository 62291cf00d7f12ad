"""Reward-free predictors of the next action, to be included as baselines in every table of results.

Every predictor has `fit(demos, mdp=None)`, `predictive_log_prob(demos)` and `score(demos)`. `predictive_log_prob` is
comparable with the method of `SwitchingMixture`, and `score` is its mean in nats per step.
"""

from limiirl.baselines.chains import MarkovChain, NGram
from limiirl.baselines.cloning import BehaviourCloning
from limiirl.baselines.events import Baseline, Uniform
from limiirl.baselines.hmm import HMM

__all__ = ["HMM", "Baseline", "BehaviourCloning", "MarkovChain", "NGram", "Uniform"]
