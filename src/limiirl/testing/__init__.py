"""Checks of the rules that mixtures rely on, for a model of your own: `check_irl_model` lists those that it breaks."""

from limiirl.testing.conformance import Case, Check, ConformanceReport, cases, check_irl_model, checks

__all__ = ["Case", "Check", "ConformanceReport", "cases", "check_irl_model", "checks"]
