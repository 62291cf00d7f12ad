"""Maximum entropy over whole trajectories: path sums, likelihood, samples, most likely paths."""
