"""Exact samples from the trajectory distribution, by forward sampling with backward messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.irl.maxent.backends import CompiledMDP
from limiirl.irl.maxent.messages import ForwardBackward
from limiirl.kernels.forward_backward.sampling import choose
from limiirl.kernels.graph import Rewards
from limiirl.mdp import MDP


class StepWeights(NamedTuple):
    """Weights at one step: backward message (S + 1,) of the next step, weights of stopping (S,), and discount."""

    message: FloatArray
    stop: FloatArray
    discount: float


def finite_steps(run: ForwardBackward) -> Iterator[StepWeights]:
    """Yield the `StepWeights` of all steps except the last."""
    path_sums = run.path_sums
    end = np.ones(path_sums.mdp.n_states) if path_sums.end is None else path_sums.end
    with np.errstate(divide="ignore"):
        log_end = np.log(end)
    for first, rows, exponents in run.messages.segments(run.resume):
        for i in range(rows.shape[0] - 1):
            stop = log_end - exponents[i + 1, 0] if run.log else np.ldexp(end, -exponents[i + 1, 0])
            yield StepWeights(rows[i + 1], stop, float(path_sums.discount[first + i]))


def sample_trajectories(
    mdp: MDP,
    compiled: CompiledMDP,
    rewards: Rewards,
    log: bool,
    steps: Iterator[StepWeights],
    starts: IntArray,
    rng: np.random.Generator,
) -> Demonstrations:
    """Draw one trajectory from each start state graph.order[starts] (n,)."""
    graph = compiled.graph
    at, who = starts.copy(), np.arange(starts.size)
    visited, moves, members = [graph.order[at]], [], [who]
    for weights in steps:
        if who.size == 0:
            break
        chosen = np.empty(who.size, dtype=np.int64)
        choose(
            graph.out,
            rewards.prob,
            rewards.edge,
            weights.discount,
            weights.message,
            weights.stop,
            log,
            at,
            rng.random(who.size),
            chosen,
        )
        continues = chosen >= 0
        who, edges = who[continues], chosen[continues]
        at = graph.out.idx[edges].astype(np.int64)
        moves.append(_mdp_edges(compiled, graph.edge_order[edges], rng))
        visited.append(graph.order[at])
        members.append(who)
    return _gather(mdp, visited, moves, members, starts.size)


def _mdp_edges(compiled: CompiledMDP, edges: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw, for each graph edge, one of the MDP edges merged into it, in proportion to their probabilities."""
    order, total = compiled.members
    first = np.searchsorted(compiled.edge_of[order], edges)
    after = np.searchsorted(compiled.edge_of[order], edges, side="right")
    point = total[first] + rng.random(edges.size) * (total[after] - total[first])
    place = np.clip(np.searchsorted(total, point, side="right") - 1, first, after - 1)
    return order[place]


def _gather(
    mdp: MDP, visited: list[IntArray], moves: list[IntArray], members: list[IntArray], n: int
) -> Demonstrations:
    """Return trajectories from visited states and edges that are ordered by step."""
    who = np.concatenate(members)
    by_trajectory = np.argsort(who, kind="stable")
    states = np.concatenate(visited)[by_trajectory]
    actions = np.full(who.size, -1, dtype=np.int64)
    # A trajectory has a record of step t + 1 if and only if it continues at step t.
    taken = np.concatenate([mdp.act[edges] for edges in moves]) if moves else np.empty(0, dtype=np.int64)
    later = by_trajectory >= n
    actions[np.flatnonzero(later) - 1] = taken[by_trajectory[later] - n]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(who, minlength=n))])
    return Demonstrations(states=states, offsets=offsets, actions=actions if moves else None)


def draw_starts(weights: FloatArray, n: int, rng: np.random.Generator) -> IntArray:
    """Draw n states in proportion to weights (S,)."""
    total = np.cumsum(weights)
    states = np.searchsorted(total, rng.random(n) * total[-1], side="right")
    return np.asarray(np.minimum(states, weights.size - 1), dtype=np.int64)
