"""Exact samples from the trajectory distribution: backward messages first, then one forward walk per sample."""

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


class Onward(NamedTuple):
    """What a walker needs at one step: the next message (S + 1,), the weight of stopping (S,), the step's discount."""

    message: FloatArray
    stop: FloatArray
    discount: float


def finite_steps(run: ForwardBackward) -> Iterator[Onward]:
    """Yield `Onward` for every step that can be left, in the order of time."""
    engine = run.engine
    end = np.ones(engine.mdp.n_states) if engine.end is None else engine.end
    with np.errstate(divide="ignore"):
        log_end = np.log(end)
    for first, rows, exponents in run.messages.stretches(run.resume):
        for i in range(rows.shape[0] - 1):
            stop = log_end - exponents[i + 1, 0] if run.log else np.ldexp(end, -exponents[i + 1, 0])
            yield Onward(rows[i + 1], stop, float(engine.discount[first + i]))


def walk(
    mdp: MDP,
    compiled: CompiledMDP,
    rewards: Rewards,
    log: bool,
    steps: Iterator[Onward],
    starts: IntArray,
    rng: np.random.Generator,
) -> Demonstrations:
    """Walk from each start (graph order) until the walker stops or the steps end."""
    graph = compiled.graph
    at, who = starts.copy(), np.arange(starts.size)
    visited, moves, walkers = [graph.order[at]], [], [who]
    for onward in steps:
        if who.size == 0:
            break
        chosen = np.empty(who.size, dtype=np.int64)
        choose(
            graph.out,
            rewards.prob,
            rewards.edge,
            onward.discount,
            onward.message,
            onward.stop,
            log,
            at,
            rng.random(who.size),
            chosen,
        )
        going = chosen >= 0
        who, edges = who[going], chosen[going]
        at = graph.out.idx[edges].astype(np.int64)
        moves.append(_mdp_edges(compiled, graph.edge_order[edges], rng))
        visited.append(graph.order[at])
        walkers.append(who)
    return _gather(mdp, visited, moves, walkers, starts.size)


def _mdp_edges(compiled: CompiledMDP, edges: IntArray, rng: np.random.Generator) -> IntArray:
    """Pick, for each graph edge taken, one of the MDP edges merged into it, by probability."""
    order, total = compiled.members
    first = np.searchsorted(compiled.edge_of[order], edges)
    after = np.searchsorted(compiled.edge_of[order], edges, side="right")
    point = total[first] + rng.random(edges.size) * (total[after] - total[first])
    place = np.clip(np.searchsorted(total, point, side="right") - 1, first, after - 1)
    return order[place]


def _gather(
    mdp: MDP, visited: list[IntArray], moves: list[IntArray], walkers: list[IntArray], n: int
) -> Demonstrations:
    """Sort the records, which are by step, by walker."""
    who = np.concatenate(walkers)
    by_walker = np.argsort(who, kind="stable")
    states = np.concatenate(visited)[by_walker]
    actions = np.full(who.size, -1, dtype=np.int64)
    # The move of step t belongs to the record of step t of the walker who made it; records of step t + 1 list just
    # these walkers.
    taken = np.concatenate([mdp.act[edges] for edges in moves]) if moves else np.empty(0, dtype=np.int64)
    later = by_walker >= n
    actions[np.flatnonzero(later) - 1] = taken[by_walker[later] - n]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(who, minlength=n))])
    return Demonstrations(states=states, offsets=offsets, actions=actions if moves else None)


def draw_starts(weights: FloatArray, n: int, rng: np.random.Generator) -> IntArray:
    """Draw n states in proportion to weights (S,)."""
    total = np.cumsum(weights)
    found = np.searchsorted(total, rng.random(n) * total[-1], side="right")
    return np.asarray(np.minimum(found, weights.size - 1), dtype=np.int64)
