"""Engines: the same tasks on processes of this machine, on a Dask cluster or on a Ray cluster, with the same results.

Where what is: `executors` has the loop that drives every engine, `pools` what it needs of one and the engine of this
machine, `clusters` Dask and Ray. What is called again and again opens its engine once: `with engine.session()`.
"""

from limiirl.engines.executors import Engine, Lost, Session, execute, ordered

__all__ = ["Engine", "Lost", "Session", "execute", "ordered"]
