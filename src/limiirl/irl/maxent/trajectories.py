"""Random trajectories for given rewards, and the heaviest trajectory between two states."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.irl.maxent.backends import CompiledMDP, check_rewards
from limiirl.irl.maxent.messages import ForwardBackward
from limiirl.kernels.forward_backward import sampling
from limiirl.kernels.forward_backward.sampling import choose
from limiirl.kernels.graph import Rewards
from limiirl.mdp import MDP, shortest_path


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


class HeaviestPath(NamedTuple):
    """Edges of a trajectory and its log-weight, the sum of log transition probabilities and rewards, without p0."""

    edges: IntArray
    log_weight: float


class Layers:
    """Viterbi recursion over the steps of a trajectory.

    V_t(s) is the largest log-weight of a trajectory of t + 1 states that ends in s:

        V_{t+1}(s') = gamma^{t+1} r(s') + max over edges (s, a, s') of V_t(s) + log p + gamma^t r(s, a, s').

    Every sqrt(L)-th layer is stored as a checkpoint. Instead of back-pointers, the other layers are recomputed during
    backtracking.
    """

    def __init__(self, mdp: MDP, theta: FloatArray) -> None:
        node, edge = finite_rewards(mdp, theta)
        order = mdp.in_order
        self.mdp, self.node = mdp, np.ascontiguousarray(node)
        log_prob = None if mdp.deterministic else np.log(mdp.prob[order])
        self._moves = (mdp.in_ptr, mdp.src[order], log_prob, None if edge is None else edge[order])
        # Without positive rewards, the weight never increases along a trajectory.
        self._falling = bool(np.all(node <= 0.0)) and (edge is None or bool(np.all(edge <= 0.0)))

    def heaviest(self, start: int, goal: int, max_length: int, *, only_last: bool = False) -> HeaviestPath | None:
        """Return the heaviest trajectory of at most `max_length` states, or exactly this number if `only_last`.

        Ties are broken by length, then by edge index. If there is no trajectory, the result is None.
        """
        spacing = max(1, math.isqrt(max_length - 1))
        layer = np.full(self.mdp.n_states, -np.inf)
        layer[start] = top = self.node[start]
        spare, marks = np.empty_like(layer), list[FloatArray]()
        best, length = -math.inf, 0
        for t in range(max_length):
            if t % spacing == 0:
                marks.append(layer.copy())
            if (t == max_length - 1 or not only_last) and layer[goal] > best:
                best, length = float(layer[goal]), t
            if t == max_length - 1 or top == -math.inf or (self._falling and top <= best):
                break
            top = self._advance(layer, t, spare)
            layer, spare = spare, layer
        return None if best == -math.inf else HeaviestPath(self._backtrack(goal, length, marks, spacing), best)

    def _advance(self, layer: FloatArray, t: int, out: FloatArray) -> float:
        """Compute layer t + 1 from layer t and return its largest entry."""
        gamma = self.mdp.gamma
        return float(sampling.advance(*self._moves, gamma**t, self.node, gamma ** (t + 1), layer, out))

    def _backtrack(self, goal: int, length: int, marks: list[FloatArray], spacing: int) -> IntArray:
        """Return the edges of the heaviest trajectory of `length` transitions to the goal."""
        edges, at = np.empty(length, dtype=np.int64), goal
        layers = np.empty((spacing, self.mdp.n_states))
        for mark in range((length - 1) // spacing, -1, -1):
            first, last = mark * spacing, min((mark + 1) * spacing, length) - 1
            layers[0] = marks[mark]
            for t in range(first, last):
                self._advance(layers[t - first], t, layers[t - first + 1])
            for t in range(last, first - 1, -1):
                # Incoming edges are in ascending order, so that the lowest index is selected if several are tied.
                came = sampling.best_arrival(*self._moves, self.mdp.gamma**t, layers[t - first], at)
                edges[t], at = self.mdp.in_order[came], int(self._moves[1][came])
        return edges


def heaviest_unbounded(mdp: MDP, theta: FloatArray, log_beta: FloatArray, start: int, goal: int) -> HeaviestPath:
    """Return the heaviest trajectory between two connected states, for discount 1.

    `log_beta` (S,) is the log-weight of all continuations.
    """
    node, edge = finite_rewards(mdp, theta)
    weight = np.log(mdp.prob) + node[mdp.dst] + (0.0 if edge is None else edge)
    edges = heaviest_edges(mdp, weight, log_beta, start, goal)
    return HeaviestPath(edges, float(node[start] + weight[edges].sum()))


def heaviest_edges(mdp: MDP, weight: FloatArray, log_beta: FloatArray, start: int, goal: int) -> IntArray:
    """Return the edges of the heaviest path between two connected states, given edge log-weights (E,).

    The cost of an edge is its negative log-probability, log beta(s) - log_weight(s, s') - log beta(s'). It is
    nonnegative, as Dijkstra's algorithm requires.
    """
    kept = np.flatnonzero((log_beta[mdp.src] > -np.inf) & (log_beta[mdp.dst] > -np.inf))
    # Rounding may make the cost slightly negative if a state has a single edge.
    cost = np.maximum(0.0, log_beta[mdp.src[kept]] - weight[kept] - log_beta[mdp.dst[kept]])
    return np.asarray(kept[shortest_path(mdp.src[kept], mdp.dst[kept], cost, mdp.n_states, start, goal)])


def finite_rewards(mdp: MDP, theta: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Return the rewards of states (S,), and of edges (E,) or None, for theta (d,); raise if they are not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        node, edge = mdp.rewards(theta)
    check_rewards(node, edge)
    return node[:, 0], None if edge is None else edge[:, 0]
