"""forward_backward."""
