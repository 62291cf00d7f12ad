"""Sparse elimination for path sums to all goals: symbolic and numeric phases."""
