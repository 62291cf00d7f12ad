"""Traces: recorded trips out of files, checked, sorted and cleaned, with an account of every fix."""
