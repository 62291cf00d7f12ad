"""Driving styles: learned from matched trips, put in a fixed gauge, and described in words."""
