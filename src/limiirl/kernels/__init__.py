"""Compiled kernels on plain arrays, independent of MDPs."""
