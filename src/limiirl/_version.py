"""The version, in the one place from which the package and its metadata read it."""

__version__ = "0.1.0"
