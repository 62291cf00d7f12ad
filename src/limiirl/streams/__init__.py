"""Demonstrations that do not fit in memory: feature sums are written to files once, and read in every EM iteration."""

from limiirl.kernels.e_step import Rows
from limiirl.streams.fit import fit_streamed
from limiirl.streams.passes import assign
from limiirl.streams.sources import FunctionSource
from limiirl.streams.store import FeatureStore
from limiirl.streams.write import write_features

__all__ = ["FeatureStore", "FunctionSource", "Rows", "assign", "fit_streamed", "write_features"]
