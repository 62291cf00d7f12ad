"""Causal models: maximum causal entropy and ML-IRL, with exact gradients."""
