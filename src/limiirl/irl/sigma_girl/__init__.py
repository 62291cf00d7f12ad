"""sigma_girl."""
