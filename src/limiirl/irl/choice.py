"""Choice of a single-intent model for an MDP and demonstrations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from limiirl.demos import Agents, Demonstrations
from limiirl.errors import DivergentPartition
from limiirl.irl.causal.maxcausalent import MaxCausalEnt
from limiirl.irl.destination.model import DestinationMaxEnt
from limiirl.irl.graph import find_reachable
from limiirl.irl.maxent.model import MaxEnt
from limiirl.irl.problem import make_problem
from limiirl.irl.sigma_girl.model import SigmaGIRL
from limiirl.mdp import MDP

# Goal-directed trips (ADR 0022 lists these numbers for every data set): least number of distinct last states, largest
# fraction of trips with the same one, least ratio of shortest paths to trips in moves, and number of trips examined.
_LEAST_GOALS, _MOST_COMMON_GOAL, _LEAST_DIRECT = 10, 0.25, 0.6
_EXAMINED = 50


@dataclass(frozen=True)
class ModelChoice:
    """A single-intent model, the reason for choosing it, and the names of alternatives."""

    model: Any
    reason: str
    alternatives: tuple[str, ...]

    def __str__(self) -> str:
        others = f"; alternatives: {', '.join(self.alternatives)}" if self.alternatives else ""
        return f"{type(self.model).__name__} by default, because {self.reason}{others}"


def default_model(mdp: MDP | None, demos: Demonstrations | Agents | None = None) -> Any:
    """Return the unfitted model that is used if no model is given; see `choose_model`."""
    return choose_model(mdp, demos).model


def choose_model(
    mdp: MDP | None, demos: Demonstrations | Agents | None = None, *, estimated: bool = False
) -> ModelChoice:
    """Choose the single-intent model with the best predictions for this type of data (ADR 0022).

    - `SigmaGIRL` without an MDP.
    - `DestinationMaxEnt` for goal-directed trips, if transitions are deterministic and the discount is 1. Every trip
      visits its last state only once, there are at least ten different last states, each is that of at most a quarter
      of the trips, and trips have on average at most 1 / 0.6 times as many moves as the shortest path.
    - `MaxCausalEnt` if transitions are stochastic or estimated, or if the discount is below 1. If soft values are
      infinite, which happens at discount 1 only, trajectories have a maximum length: that of the longest demonstration.
    - `MaxEnt` otherwise: deterministic transitions and discount 1, as in the theory of the paper.

    Parameters
    ----------
    mdp : MDP or None
    demos : Demonstrations or Agents, optional
        Without demonstrations, only the MDP is considered.
    estimated : bool
        The MDP was estimated from the demonstrations.

    Returns
    -------
    ModelChoice

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.9)
    >>> print(choose_model(mdp))
    MaxCausalEnt by default, because the discount is below 1; alternatives: MLIRL, MaxEnt
    >>> choose_model(mdp.replace(gamma=1.0)).model
    MaxEnt()
    """
    if mdp is None or isinstance(demos, Agents):
        return ModelChoice(SigmaGIRL(), "the data are agents", ())
    if mdp.deterministic and mdp.gamma == 1.0 and isinstance(demos, Demonstrations) and is_goal_directed(mdp, demos):
        reason = "trips lead directly to many different destinations"
        return ModelChoice(DestinationMaxEnt(), reason, ("MaxEnt", "MaxCausalEnt"))
    if not mdp.deterministic or estimated or mdp.gamma < 1.0:
        reason = "the transitions are estimated" if estimated else "the transitions are stochastic"
        if not estimated and mdp.deterministic:
            reason = "the discount is below 1"
        return ModelChoice(_finite(mdp, demos), reason, ("MLIRL", "MaxEnt"))
    return ModelChoice(MaxEnt(), "the transitions are deterministic and the discount is 1", ("MaxCausalEnt",))


def _finite(mdp: MDP, demos: Demonstrations | None) -> MaxCausalEnt:
    """Return the causal model, with a maximum length if its values are infinite."""
    model = MaxCausalEnt()
    if mdp.gamma < 1.0 or not isinstance(demos, Demonstrations):
        return model
    if np.all(find_reachable(mdp.dst, mdp.src, mdp.terminal)):
        try:
            make_problem(model, mdp, demos).feasible_start()
        except DivergentPartition:
            pass
        else:
            return model
    return MaxCausalEnt(max_length=int(demos.lengths.max()))


def is_goal_directed(mdp: MDP, demos: Demonstrations) -> bool:
    """Return True if demonstrations are trips to many different destinations along nearly shortest paths.

    Examples
    --------
    >>> mdp = MDP.from_edges(np.arange(20), np.arange(1, 21))
    >>> trips = Demonstrations.from_lists([list(range(i + 1)) for i in range(1, 21)])
    >>> is_goal_directed(mdp, trips), is_goal_directed(mdp, trips[:5])
    (True, False)
    """
    n = len(demos)
    possible = n >= _LEAST_GOALS and demos.states.max() < mdp.n_states and np.all(demos.lengths > 1)
    if not possible or not np.all(DestinationMaxEnt().admits(demos)):
        return False
    common = np.unique_counts(demos.last_states).counts
    if common.size < _LEAST_GOALS or common.max() > _MOST_COMMON_GOAL * n:
        return False
    part = demos[np.linspace(0, n - 1, min(n, _EXAMINED)).astype(np.int64)]
    shortest = _count_fewest_moves(mdp, part.start_states, part.last_states)
    return bool(shortest.sum() >= _LEAST_DIRECT * (part.lengths - 1).sum())


def _count_fewest_moves(mdp: MDP, start: NDArray[np.integer], goal: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the number (n,) of moves of a shortest path from each start to its goal."""
    shape = (mdp.n_states, mdp.n_states)
    graph = sparse.csr_array((np.ones(mdp.n_edges), (mdp.src, mdp.dst)), shape=shape)
    moves = np.empty(start.size)
    for state in np.unique(start):  # one search at a time: a table of all pairs may not fit in memory
        own = start == state
        moves[own] = csgraph.dijkstra(graph, indices=np.array([state]), unweighted=True)[0, goal[own]]
    return moves
