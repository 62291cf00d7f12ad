"""The invented city: streets, people of known styles, noisy receivers, and the whole chain on it."""
