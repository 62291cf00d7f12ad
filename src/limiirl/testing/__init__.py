"""Whether a model of your own keeps the rules that mixtures rely on: `check_irl_model` says which it breaks."""

from limiirl.testing.conformance import Check, Report, check_irl_model, checks
from limiirl.testing.rules import Failure

__all__ = ["Check", "Failure", "Report", "check_irl_model", "checks"]
