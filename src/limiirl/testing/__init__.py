"""Conformance checks for user-defined single-intent models."""

from limiirl.testing.conformance import Case, Check, ConformanceReport, cases, check_irl_model, checks

__all__ = ["Case", "Check", "ConformanceReport", "cases", "check_irl_model", "checks"]
