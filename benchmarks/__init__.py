"""Benchmarks: each module prints what it measures, as ratios within one run. `make bench` runs them all."""
