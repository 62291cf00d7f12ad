"""Predictors of the next action without rewards, with which every table of results should be compared.

All have `fit(demos, mdp=None)`, `predictive_log_prob(demos)`, which is comparable with that of `SwitchingMixture`, and
`score(demos)`, its mean in nats per step.
"""

from limiirl.baselines.chains import MarkovChain, NGram
from limiirl.baselines.cloning import BehaviourCloning
from limiirl.baselines.events import Baseline, Uniform
from limiirl.baselines.hmm import HMM

__all__ = ["HMM", "Baseline", "BehaviourCloning", "MarkovChain", "NGram", "Uniform"]
