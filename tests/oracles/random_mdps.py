"""Small random MDPs for property tests: everything that an MDP may have, in every combination.

Hypothesis draws the structure (and shrinks it); probabilities, features and thetas come from a generator with a drawn
seed. Features are multiples of 1/8 and thetas of 1/64, so that rewards are exact in whatever order BLAS adds them up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from limiirl.irl.maxent.messages import Messages
from limiirl.mdp import MDP
from tests.oracles.enumeration import count_paths

Float = NDArray[np.float64]
DISCOUNTS = (1.0, 1.0, 0.99, 0.9, 0.5)


@dataclass(frozen=True)
class Case:
    """An MDP, a maximal length that keeps its trajectories few, K thetas (K, d) and K start distributions (S, K)."""

    mdp: MDP
    max_length: int
    thetas: Float
    starts: Float


def lean_bytes(mdp: MDP, length: int, K: int) -> float:
    """Return a bound on the memory for messages that leaves room for the checkpoints of K intents, and no more."""
    return 8.0 * (mdp.n_states + 1) * Messages.least_rows(length) * K


@st.composite
def edge_lists(draw: st.DrawFn, n_states: int, n_actions: int) -> list[tuple[int, int, tuple[int, ...]]]:
    """(state, action, possible next states), with a set of actions and of outcomes for each state of its own."""
    deterministic = draw(st.booleans())
    targets = st.integers(0, n_states - 1)
    outcomes = targets.map(lambda s: (s,)) if deterministic else st.sets(targets, min_size=1, max_size=2).map(sorted)
    listed = []
    for state in range(n_states):
        actions = draw(st.sets(st.integers(0, n_actions - 1), min_size=1, max_size=n_actions))
        listed += [(state, action, tuple(draw(outcomes))) for action in sorted(actions)]
    return listed


def distribution(rng: np.random.Generator, n: int) -> Float:
    """A distribution over n states, about a third of whose entries are zero."""
    weights = rng.random(n) + 0.05
    zero = rng.random(n) < 0.35
    zero[rng.integers(n)] = False
    weights[zero] = 0.0
    return weights / weights.sum()


def features(rng: np.random.Generator, rows: int, width: int, kind: str) -> object:
    """A dense or sparse matrix of features, or None for kind "none"."""
    if kind == "none":
        return None
    values = np.round(8.0 * rng.normal(size=(rows, width))) / 8.0
    values[rng.random((rows, width)) < 0.3] = 0.0
    return sparse.csr_array(values) if kind == "sparse" else values


@st.composite
def mdps(
    draw: st.DrawFn,
    max_states: int = 4,
    max_actions: int = 3,
    discounts: tuple[float, ...] = DISCOUNTS,
    acyclic: bool = False,
) -> MDP:
    """A small MDP: parallel edges, self-loops, traps and terminal states (none, one or several) occur as they come."""
    n_states = draw(st.integers(1, max_states))
    edges = draw(edge_lists(n_states, draw(st.integers(1, max_actions))))
    if acyclic:
        kept = [(state, action, tuple(t for t in targets if t > state)) for state, action, targets in edges]
        edges = [edge for edge in kept if edge[2]]
    with_edges = {edge[0] for edge in edges}
    terminal = np.array([state not in with_edges or draw(st.integers(0, 3)) == 3 for state in range(n_states)])
    kinds = [draw(st.sampled_from(("none", "dense", "sparse"))) for _ in range(3)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    flat = [(state, action, target) for state, action, targets in sorted(edges) for target in targets]
    src, act, dst = (np.array([edge[i] for edge in flat], dtype=np.int64) for i in range(3))
    keep = ~terminal[src]
    src, act, dst = src[keep], act[keep], dst[keep]
    pairs, pair = np.unique(src * 10 + act, return_inverse=True)
    prob = rng.random(src.size) + 0.1
    prob /= np.bincount(pair, weights=prob, minlength=pairs.size)[pair]
    widths = rng.integers(1, 3, size=3)
    if all(kind == "none" for kind in kinds):
        kinds[0] = "dense"
    return MDP(
        src=src.astype(np.int32),
        act=act.astype(np.int32),
        dst=dst.astype(np.int32),
        prob=prob,
        p0=distribution(rng, n_states),
        gamma=draw(st.sampled_from(discounts)),
        terminal=terminal,
        state_features=features(rng, n_states, widths[0], kinds[0]),
        action_features=features(rng, pairs.size, widths[1], kinds[1]),
        edge_features=features(rng, src.size, widths[2], kinds[2]),
    )


@st.composite
def cases(
    draw: st.DrawFn,
    columns: tuple[int, ...] = (1, 3),
    max_length: int = 5,
    scales: tuple[float, ...] = (0.3, 1.0, 3.0),
    most_paths: int = 600,
    **kinds: object,
) -> Case:
    """An MDP with thetas and starts; its length is cut where trajectories would be more than `most_paths`."""
    mdp = draw(mdps(**kinds))  # type: ignore[arg-type]
    length = draw(st.integers(1, max_length))
    while length > 1 and count_paths(mdp, length) > most_paths:
        length -= 1
    n = draw(st.sampled_from(columns))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    thetas = np.round(64.0 * draw(st.sampled_from(scales)) * rng.normal(size=(n, mdp.n_features))) / 64.0
    starts = np.stack([distribution(rng, mdp.n_states) for _ in range(n)], axis=1)
    return Case(mdp, length, thetas, starts)
