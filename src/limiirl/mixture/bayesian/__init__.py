"""bayesian."""
