"""Inference for given rewards: prefix probabilities, next actions, policies, and the most likely trajectory."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import sparse

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl import validate
from limiirl.irl.base import NextActions
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.joint import JointPathSums
from limiirl.irl.maxent.problem import PathSums
from limiirl.irl.maxent.trajectories import HeaviestPath, Layers, heaviest_unbounded
from limiirl.irl.observed_paths import ObservedPaths
from limiirl.mdp import is_connected


class Continuations(NamedTuple):
    """Log-weights of the continuations of n (state, step) pairs under K intents.

    Attributes
    ----------
    edge : (m,)
        Outgoing edges; the edges of pair i are edge[ptr[i] : ptr[i + 1]].
    ptr : (n + 1,)
    log_edge : (m, K)
        Log-weight of all continuations along each edge, relative to `log_factor`.
    log_stop : (n, K)
        Log-weight of stopping, relative to `log_factor`.
    log_factor : (n, K)
        Log of a common factor of all continuations of a pair, which is separated to avoid overflow.
    log_Z : (K,) or None
        Log partition function; None if the model is conditioned on the start.
    log_first : (f, K)
        log beta_0 of f start states, if the model is conditioned on the start.
    """

    edge: IntArray
    ptr: IntArray
    log_edge: FloatArray
    log_stop: FloatArray
    log_factor: FloatArray
    log_Z: FloatArray | None
    log_first: FloatArray

    @property
    def owner(self) -> IntArray:
        """Index (m,) of the pair of each edge."""
        return np.repeat(np.arange(self.ptr.size - 1), np.diff(self.ptr))

    def log_total(self, *, stop: bool = True) -> FloatArray:
        """Return the log-weight (n, K) of all continuations, with or without stopping, relative to `log_factor`."""
        floor = self.log_stop if stop else np.full_like(self.log_stop, -np.inf)
        filled = np.flatnonzero(np.diff(self.ptr))
        top = floor.copy()
        if filled.size:
            top[filled] = np.maximum(top[filled], np.maximum.reduceat(self.log_edge, self.ptr[filled]))
        shift = np.where(top > -np.inf, top, 0.0)
        total = np.exp(floor - shift)
        if filled.size:
            total[filled] += np.add.reduceat(np.exp(self.log_edge - shift[self.owner]), self.ptr[filled])
        with np.errstate(divide="ignore"):
            return np.asarray(shift + np.log(total))


def continuations(
    path_sums: PathSums, thetas: FloatArray, step: IntArray, state: IntArray, firsts: IntArray
) -> Continuations:
    """Return the continuations of states (n,) at steps (n,), and log beta_0 of start states (f,)."""
    mdp, n = path_sums.mdp, state.size
    leaves = step + 1 < path_sums.max_length
    sizes = np.where(leaves, mdp.out_ptr[state + 1] - mdp.out_ptr[state], 0)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    edge = np.arange(ptr[-1]) + np.repeat(mdp.out_ptr[state] - ptr[:-1], sizes)
    messages = path_sums.backward_messages(
        thetas,
        np.concatenate([np.repeat(step + 1, sizes), np.zeros(firsts.size, dtype=np.int64)]),
        np.concatenate([mdp.dst[edge].astype(np.int64), firsts]),
    )
    log_edge, scale = messages.value[: edge.size], np.zeros((n, thetas.shape[0]))
    filled = sizes > 0
    scale[filled] = messages.scale[ptr[:-1][filled]]
    log_edge = log_edge + np.log(mdp.prob[edge])[:, None]
    _, r_edge = mdp.rewards(thetas)
    if r_edge is not None:
        log_edge += np.repeat(mdp.gamma ** step.astype(np.float64), sizes)[:, None] * r_edge[edge]
    may_stop = np.ones(n, dtype=bool) if path_sums.stop == "anywhere" else mdp.terminal[state]
    if path_sums.stop == "terminal_or_max_length":
        may_stop = may_stop | ~leaves
    log_stop = np.where(may_stop[:, None], -scale, -np.inf)
    log_first = messages.value[edge.size :] + messages.scale[edge.size :]
    return Continuations(edge, ptr, log_edge, log_stop, scale, messages.log_Z, log_first)


def prefix_continuations(path_sums: PathSums, thetas: FloatArray, demos: Demonstrations) -> Continuations:
    """Check the prefixes `demos` and return the continuations of their last states."""
    validate.check_trajectories(path_sums.mdp, demos, "anywhere", path_sums.max_length)  # a prefix may end anywhere
    firsts = demos.start_states if path_sums.by_start else np.empty(0, dtype=np.int64)
    return continuations(path_sums, thetas, demos.lengths - 1, demos.last_states, firsts)


def log_prob_prefix(path_sums: PathSums, thetas: FloatArray, demos: Demonstrations) -> FloatArray:
    """Return the log-probability (N, K) that a trajectory begins with the prefix; see `MaxEnt.log_prob_prefix`."""
    rest = prefix_continuations(path_sums, thetas, demos)
    log_weight = ObservedPaths.from_demos(path_sums.mdp, demos, by_start=path_sums.by_start).log_weight(thetas)
    total = rest.log_total() + rest.log_factor
    log_Z = rest.log_Z
    if isinstance(path_sums, JointPathSums):
        log_Z = path_sums.log_partition_by_start(thetas)[demos.start_states]
    elif log_Z is None:
        log_Z = rest.log_first + path_sums.mdp.rewards(thetas)[0][demos.start_states]
    # If no trajectory from a start state can end, log Z is -inf, and prefixes from this state have probability 0.
    possible = total > -np.inf
    return np.where(possible, log_weight + total - np.where(possible, log_Z, 0.0), -np.inf)


def next_actions(path_sums: PathSums, thetas: FloatArray, demos: Demonstrations) -> NextActions:
    """Return the distribution of the next action of each prefix; see `MaxEnt.next_actions`."""
    mdp, rest = path_sums.mdp, prefix_continuations(path_sums, thetas, demos)
    total = rest.log_total()
    total = np.where(total > -np.inf, total, 0.0)  # if all terms are -inf, all probabilities are 0
    action = np.zeros((len(demos), thetas.shape[0], mdp.n_actions))
    move = np.exp(rest.log_edge - total[rest.owner])
    cell = rest.owner * mdp.n_actions + mdp.act[rest.edge]
    for k in range(thetas.shape[0]):
        summed = np.bincount(cell, weights=move[:, k], minlength=len(demos) * mdp.n_actions)
        action[:, k] = summed.reshape(len(demos), mdp.n_actions)
    return NextActions(action, np.exp(rest.log_stop - total))


def policy(path_sums: PathSums, theta: FloatArray, step: object) -> FloatArray:
    """Return the policy (S, A) given that the trajectory continues; see `MaxEnt.policy`."""
    mdp, t = path_sums.mdp, validate.step(step, path_sums.max_length)
    states = np.arange(mdp.n_states)
    rest = continuations(path_sums, theta[None], np.full(mdp.n_states, t), states, states)
    total = rest.log_total(stop=False)
    total = np.where(total > -np.inf, total, 0.0)
    move = np.exp(rest.log_edge - total[rest.owner])[:, 0]
    if path_sums.max_length == math.inf:  # an unreachable state may lead to reachable states
        move[rest.log_first[rest.owner, 0] == -np.inf] = 0.0
    shape = (mdp.n_states, mdp.n_actions)
    return sparse.csr_array((move, (mdp.src[rest.edge], mdp.act[rest.edge])), shape=shape).toarray()


def most_likely(path_sums: PathSums, theta: FloatArray, start: object, goal: object) -> tuple[Demonstrations, float]:
    """Return the most likely trajectory between two states and its log-probability; see `MaxEnt.most_likely`."""
    mdp = path_sums.mdp
    s, g = validate.state(mdp, start, "start"), validate.state(mdp, goal, "goal")
    if isinstance(path_sums, JointPathSums):
        return _most_likely_within(path_sums, theta, s, g)
    log_start = 0.0
    if not path_sums.by_start:
        if mdp.p0[s] == 0.0:
            remedy = "Use condition='start', or mdp.replace(p0=...)."
            raise InvalidParameter.of("start", s, "must be a state with p0 > 0", remedy=remedy)
        log_start = math.log(mdp.p0[s])
    if path_sums.stop == "terminal" and not mdp.terminal[g]:
        remedy = "Use stop='anywhere', or mark the state as terminal."
        raise InvalidParameter.of("goal", g, "must be a terminal state if stop='terminal'", remedy=remedy)
    only = np.zeros(mdp.n_states)
    only[s] = 1.0
    starts = only if path_sums.by_start else None
    path = _heaviest(path_sums, theta, s, g, starts)
    log_Z = float(path_sums.log_partition(theta[None], starts=None if starts is None else starts[:, None])[0])
    states = np.concatenate([[s], mdp.dst[path.edges]]).astype(np.int64)
    actions = np.append(mdp.act[path.edges], -1).astype(np.int64)
    demo = Demonstrations(states=states, offsets=np.array([0, states.size]), actions=actions)
    return demo, log_start + path.log_weight - log_Z


def _most_likely_within(
    path_sums: JointPathSums, theta: FloatArray, start: int, goal: int
) -> tuple[Demonstrations, float]:
    """Return the result of `most_likely` in the environment of the start state."""
    for environment, part in zip(path_sums.environments, path_sums.parts, strict=True):
        states = environment.states
        if start in states and goal in states:
            own = (int(np.searchsorted(states, state)) for state in (start, goal))
            demo, log_prob = most_likely(part, theta, *own)
            return demo.replace(states=states[demo.states]), log_prob
    raise InvalidParameter.of("goal", goal, f"must be in the environment of start = {start}")


def _heaviest(path_sums: PathSums, theta: FloatArray, start: int, goal: int, starts: FloatArray | None) -> HeaviestPath:
    """Return the heaviest trajectory between two states; raise if there is none."""
    only_last = path_sums.stop == "terminal_or_max_length" and not path_sums.mdp.terminal[goal]
    if isinstance(path_sums, InfinitePathSums):
        path, within, remedy = None, "", ""
        if is_connected(path_sums.mdp, start, goal):
            path = heaviest_unbounded(path_sums.mdp, theta, path_sums.log_beta(theta, starts), start, goal)
    else:
        layers = Layers(path_sums.mdp, theta)
        path = layers.heaviest(start, goal, int(path_sums.max_length), only_last=only_last)
        within = f" in {'exactly' if only_last else 'at most'} max_length = {path_sums.max_length} states"
        remedy = "Use a larger max_length."
    if path is None:
        raise InvalidParameter.of("goal", goal, f"must be reachable from start = {start}{within}", remedy=remedy)
    return path
