"""Demonstrations larger than memory: features computed once into files, EM in one pass over them an iteration.

Where what is: `sources` has where demonstrations come from, `writing` makes a store of their features (`store`,
`parts`; `generated` without a disk), `claims` says whose folder it is, `recurring` finds names in two parts, `passes`
sums up a pass, `prepared` gives EM what it asks, `fitting` fits, `checkpoint` lets it go on after a kill, and
`assigning` writes who follows which intent.
"""

from limiirl.kernels.e_step import Rows
from limiirl.streams.assign import assign
from limiirl.streams.fit import fit_streamed
from limiirl.streams.sources import Calls
from limiirl.streams.store import FeatureStore
from limiirl.streams.write import write_features

__all__ = ["Calls", "FeatureStore", "Rows", "assign", "fit_streamed", "write_features"]
