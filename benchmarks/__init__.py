"""Benchmarks. Each module prints measurements, as ratios within one run; `make bench` runs all modules."""
