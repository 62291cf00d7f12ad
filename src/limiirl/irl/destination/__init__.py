"""Maximum entropy paths to a known destination (Ziebart et al. 2008)."""
