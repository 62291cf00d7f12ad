"""The command line: parse, call, print; no logic of its own."""

from limiirl.cli.main import main

__all__ = ["main"]
