"""Exact samples from the trajectory distribution: backward messages first, then one forward walk per sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.irl.engine.compiled import CompiledMDP
from limiirl.irl.engine.passes import Pass
from limiirl.kernels.choose import choose
from limiirl.kernels.layout import Rewards
from limiirl.mdp import MDP

Float = NDArray[np.float64]
Int = NDArray[np.int64]


class Onward(NamedTuple):
    """What a walker needs at one step: the next message (S + 1,), the weight of stopping (S,), the step's discount."""

    message: Float
    stop: Float
    discount: float


def finite_steps(run: Pass) -> Iterator[Onward]:
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
    starts: Int,
    rng: np.random.Generator,
) -> Demonstrations:
    """Walk from each start (engine order) until the walker stops or the steps end."""
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


def _mdp_edges(compiled: CompiledMDP, edges: Int, rng: np.random.Generator) -> Int:
    """Pick, for each engine edge taken, one of the MDP edges merged into it, by probability."""
    order, total = compiled.members
    first = np.searchsorted(compiled.edge_of[order], edges)
    after = np.searchsorted(compiled.edge_of[order], edges, side="right")
    point = total[first] + rng.random(edges.size) * (total[after] - total[first])
    place = np.clip(np.searchsorted(total, point, side="right") - 1, first, after - 1)
    return order[place]


def _gather(mdp: MDP, visited: list[Int], moves: list[Int], walkers: list[Int], n: int) -> Demonstrations:
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


def draw_starts(weights: Float, n: int, rng: np.random.Generator) -> Int:
    """Draw n states in proportion to weights (S,)."""
    total = np.cumsum(weights)
    found = np.searchsorted(total, rng.random(n) * total[-1], side="right")
    return np.asarray(np.minimum(found, weights.size - 1), dtype=np.int64)
