"""Matching: from fixes to paths of segments, by a hidden Markov model or by particles; and how good it is."""
