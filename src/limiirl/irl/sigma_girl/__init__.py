"""Sigma-GIRL: model-free IRL from policy gradients."""
