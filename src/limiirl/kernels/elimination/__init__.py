"""elimination."""
