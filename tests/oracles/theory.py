"""The paper's theory on small MDPs, trajectory by trajectory; and worlds in which its assumptions hold by construction.

Nothing is shared with `limiirl.theory`: sets of trajectories are lists, margins are least differences over all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.mdp import MDP
from tests.oracles.enumeration import Enumeration, Path

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Int = NDArray[np.int64]


class Listed:
    """All trajectories of a model, from where p0 is positive, and who can generate each.

    Attributes
    ----------
    listed : the N trajectories; q (N,); F (N, d)
    inside : (N, K) bool, whether a trajectory is in T_k
    """

    def __init__(self, mdp: MDP, supports: Bool, max_length: int, stop: str, complete: bool) -> None:
        every = Enumeration(mdp, max_length, stop)
        start = mdp.p0[every.first]
        keep = np.flatnonzero(start > 0.0)
        self.listed: list[Path] = [every.listed[i] for i in keep]
        self.q, self.F = start[keep] * np.exp(every.log_P[keep]), every.F[keep]
        pairs = sorted(set(zip(mdp.src.tolist(), mdp.act.tolist(), strict=True)))
        number = [pairs.index(key) for key in zip(mdp.src.tolist(), mdp.act.tolist(), strict=True)]
        self.inside = np.zeros((len(keep), len(supports)), dtype=np.bool_)
        for i, (states, edges) in enumerate(self.listed):
            ends = not complete or bool(mdp.terminal[states[-1]]) or len(states) == max_length
            for k, support in enumerate(supports):
                self.inside[i, k] = ends and all(support[number[edge]] for edge in edges)

    def log_prob(self, theta: Float) -> Float:
        """log p(tau | theta) - log q(tau) of every trajectory, (N,)."""
        weight = self.F @ theta
        top = weight.max()
        return weight - top - np.log(np.sum(self.q * np.exp(weight - top)))

    def demos(self, mdp: MDP, chosen: list[int]) -> Demonstrations:
        """Some of the trajectories as demonstrations, actions recorded."""
        states = [list(self.listed[i][0]) for i in chosen]
        actions = [[int(mdp.act[edge]) for edge in self.listed[i][1]] for i in chosen]
        return Demonstrations.from_lists(states, actions)


def margin(projectors: Float, one: Float, other: Float) -> float:
    """The least of phi(tau) . (phi(a) - phi(b)) over all three; inf for an empty set."""
    least = np.inf
    for tau in projectors:
        for a in one:
            for b in other:
                least = min(least, float(tau @ (a - b)))
    return least


@dataclass(frozen=True)
class Lanes:
    """K lanes of two steps, with a slip at the second: assumptions 1 and 2 hold, with zeta and delta above 0.

    From the start an action chooses a lane and one of two variants of it, a little apart; from there an action chooses
    a lane again. Only who stays in a lane may slip out of it: could one slip into it as well, trajectories with other
    actions would look like the expert's. Expert k takes actions of lane k only. Who slips is atypical, and half of them
    are put into the cluster of the lane in which they end.
    """

    mdp: MDP
    policies: Float
    demos: Demonstrations
    labels: Int
    clusters: Int
    slip: float


def lanes(n_intents: int, seed: int, n_each: int = 60) -> Lanes:
    rng = np.random.default_rng([n_intents, seed])
    size, slip, gamma = rng.uniform(2.4, 3.2), rng.uniform(0.03, 0.06), (1.0, 0.97)[seed % 2]
    K, first, last = n_intents, lambda j, v: 1 + 2 * j + v, lambda j: 1 + 2 * n_intents + j
    n_states = 1 + 3 * K
    T = np.zeros((n_states, 2 * K, n_states))
    phi = np.zeros((n_states, K))
    for j in range(K):
        phi[last(j)] = size * np.eye(K)[j] + rng.normal(scale=0.02, size=K)
        for v in range(2):
            T[0, 2 * j + v, first(j, v)] = 1.0
            phi[first(j, v)] = size * np.eye(K)[j] + rng.normal(scale=0.05, size=K)
            T[first(j, v), np.arange(K), [last(aim) for aim in range(K)]] = 1.0
            T[first(j, v), j, [last(i) for i in range(K)]] = slip / (K - 1)
            T[first(j, v), j, last(j)] = 1.0 - slip
    p0 = np.eye(n_states)[0]
    terminal = np.arange(n_states) >= last(0)
    mdp = MDP.from_dense(T, p0, gamma=gamma, state_features=phi, terminal=terminal)
    policies = np.zeros((K, mdp.n_pairs))
    for k in range(K):
        own = np.where(mdp.pair_state == 0, mdp.pair_action // 2 == k, mdp.pair_action == k)
        policies[k] = own / np.bincount(mdp.pair_state, own, minlength=n_states)[mdp.pair_state]
    states, actions, labels, clusters = [], [], [], []
    slips = max(2, round(slip * n_each))
    for k in range(K):
        for i in range(n_each):
            v = int(rng.integers(2))
            end = (k + 1 + i % (K - 1)) % K if i < slips else k
            states.append([0, first(k, v), last(end)])
            actions.append([2 * k + v, k])
            labels.append(k)
            clusters.append(end if i % 2 else k)
    order = rng.permutation(len(labels))
    demos = Demonstrations.from_lists([states[i] for i in order], [actions[i] for i in order])
    return Lanes(mdp, policies, demos, np.array(labels)[order], np.array(clusters)[order], float(slip))
