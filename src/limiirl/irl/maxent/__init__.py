"""Maximum entropy models of whole trajectories: path sums, likelihood, samples, and most likely trajectories."""
