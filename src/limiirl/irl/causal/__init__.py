"""causal."""
