"""maxent."""
