"""Compiled loops: arrays in, arrays out; nothing here knows of MDPs."""
