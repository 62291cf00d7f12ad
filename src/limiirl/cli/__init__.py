"""The command line: parse, call, print."""

from limiirl.cli.main import main

__all__ = ["main"]
