"""Variational inference for a Dirichlet process mixture of intents."""
