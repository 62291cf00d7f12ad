"""Small data sets with known intents, simulated from a seed."""

from __future__ import annotations

import numpy as np

from limiirl._typing import FloatArray, IntArray, Seed
from limiirl._validation import as_generator, check_count
from limiirl.datasets.base import Dataset
from limiirl.demos import Demonstrations
from limiirl.irl import DestinationMaxEnt, MaxCausalEnt
from limiirl.mdp import MDP

_ARENA, _ANIMALS_PER_CONDITION = 6, 4
_PLACES = {"nest": (0, 0), "food": (5, 0), "water": (5, 5)}
# Rewards per step at nest, food and water, and of staying, by intent: rest, eat, drink.
_FORAGING = np.array([[3.0, 0.0, 0.0, 0.5], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0]])
# Fraction of steps with each intent, by condition, and mean dwell time in steps.
_SHARES = {"control": (0.5, 0.3, 0.2), "thirsty": (0.3, 0.2, 0.5)}
_DWELL = 25.0

_BLOCKS, _TRIPS_PER_DRIVER = 7, 4
_COMMUTES = np.array([[-1.5, -0.6, -3.0], [-0.4, -2.0, -3.0]])  # rewards of minutes, turns and U-turns, by intent
_ARTERIAL, _STREET = 0.5, 1.0  # minutes per block


def make_foraging(n_steps: int = 300, *, seed: Seed = 0) -> Dataset:
    """Simulate eight animals that rest, eat and drink in an arena of 6 x 6 places, and switch between these intents.

    Four animals are thirsty: their intent is to drink in half of their steps, compared with a fifth for the others. An
    intent lasts 25 steps on average. There is one recording per animal.

    Parameters
    ----------
    n_steps : int
        Number of actions per recording.
    seed : int, Generator or None

    Returns
    -------
    Dataset
        `demos.groups` is the animal, `condition` is "control" or "thirsty", and `intents` and `thetas` are the truth.

    Examples
    --------
    >>> from limiirl.datasets import make_foraging
    >>> data = make_foraging(seed=0)
    >>> len(data.demos), str(data.demos.groups[0]), data.mdp.feature_names
    (8, 'animal 0', ('nest', 'food', 'water', 'stay'))
    """
    check_count(n_steps, "n_steps", least=2)
    rng = as_generator(seed)
    mdp = _arena()
    policies = [MaxCausalEnt().policy(mdp, theta) for theta in _FORAGING]
    condition = np.repeat(list(_SHARES), _ANIMALS_PER_CONDITION)
    paths, actions, intents = [], [], []
    for name in condition:
        shares = np.array(_SHARES[str(name)])
        intent = _markov_chain(n_steps, shares, _DWELL, rng)
        path, taken = _act(mdp, policies, intent, rng)
        paths.append(path)
        actions.append(taken)
        intents.append(intent)
    animals = np.array([f"animal {i}" for i in range(len(paths))])
    demos = Demonstrations.from_lists(paths, actions).replace(groups=animals, state_names=mdp.state_names)
    return Dataset(
        mdp=mdp,
        demos=demos,
        description="Simulated animals that rest, eat and drink in an arena of 6 x 6 places.",
        condition=condition,
        intents=np.concatenate(intents),
        thetas=_FORAGING.copy(),
    )


def _arena() -> MDP:
    """Return the arena: five actions (stay, up, down, left, right), where walls block a move."""
    row, column = np.divmod(np.arange(_ARENA**2), _ARENA)
    src, action, dst = [], [], []
    for a, (up, right) in enumerate([(0, 0), (1, 0), (-1, 0), (0, -1), (0, 1)]):
        r, c = row + up, column + right
        inside = (r >= 0) & (r < _ARENA) & (c >= 0) & (c < _ARENA)
        src.append(np.flatnonzero(inside))
        action.append(np.full(inside.sum(), a))
        dst.append((r * _ARENA + c)[inside])
    source, target = np.concatenate(src), np.concatenate(dst)
    place = {r * _ARENA + c: name for name, (r, c) in _PLACES.items()}
    return MDP.from_edges(
        source,
        target,
        action=np.concatenate(action),
        gamma=0.9,
        state_features=np.eye(_ARENA**2)[:, list(place)],
        edge_features=(source == target)[:, None].astype(np.float64),
        feature_names=(*_PLACES, "stay"),
        state_names=[place.get(s, f"place {s // _ARENA}-{s % _ARENA}") for s in range(_ARENA**2)],
        action_names=["stay", "up", "down", "left", "right"],
    )


def _markov_chain(n: int, shares: FloatArray, dwell: float, rng: np.random.Generator) -> IntArray:
    """Return n states of a chain with stationary distribution `shares` and a mean dwell time of `dwell` steps.

    At some steps the intent is drawn again from `shares`, which may yield the same intent. The probability of a draw is
    chosen such that, on average over steps, an intent ends with probability 1 / `dwell`.
    """
    redraw = 1.0 / (dwell * (1.0 - np.sum(shares**2)))
    states = np.empty(n, dtype=np.int64)
    current = int(rng.choice(shares.size, p=shares))
    for t in range(n):
        states[t] = current
        if rng.random() < redraw:
            current = int(rng.choice(shares.size, p=shares))
    return states


def _act(
    mdp: MDP, policies: list[FloatArray], intents: IntArray, rng: np.random.Generator
) -> tuple[list[int], list[int]]:
    """Return states and actions that follow the policy (S, A) of the intent of each step, from the first state."""
    target = np.full((mdp.n_states, mdp.n_actions), -1)
    target[mdp.src, mdp.act] = mdp.dst
    path, actions = [0], []
    for intent in intents:
        state = path[-1]
        actions.append(int(rng.choice(mdp.n_actions, p=policies[intent][state])))
        path.append(int(target[state, actions[-1]]))
    return path, actions


def make_commutes(n: int = 400, *, seed: Seed = 0) -> Dataset:
    """Simulate trips in a city of 7 x 7 blocks by two kinds of drivers: one saves minutes, the other avoids turns.

    A state is a directed road segment. Every third street is an arterial road with twice the speed. Half of the
    drivers have each intent, and each driver makes four trips.

    Parameters
    ----------
    n : int
        Number of trips.
    seed : int, Generator or None

    Returns
    -------
    Dataset
        `demos.groups` is the driver, `demos.labels` the true intent of each trip, and `thetas` the true rewards of
        minutes, turns and U-turns.

    Examples
    --------
    >>> from limiirl.datasets import make_commutes
    >>> data = make_commutes(seed=0)
    >>> len(data.demos), data.mdp.feature_names
    (400, ('minutes', 'turn', 'U-turn'))
    """
    check_count(n, "n", least=8)
    rng = as_generator(seed)
    mdp = _city()
    starts = rng.integers(mdp.n_states, size=n)
    goals = (starts + rng.integers(1, mdp.n_states, size=n)) % mdp.n_states  # never the start
    drivers = np.arange(n) // _TRIPS_PER_DRIVER
    labels, model = drivers % len(_COMMUTES), DestinationMaxEnt(bounds=None)
    members = [np.flatnonzero(labels == k) for k in range(len(_COMMUTES))]
    parts = [
        model.sample(mdp, theta, starts[i], goals[i], seed=rng) for theta, i in zip(_COMMUTES, members, strict=True)
    ]
    trips = Demonstrations.concat(parts)[np.argsort(np.concatenate(members))]
    groups = np.array([f"driver {i}" for i in drivers])
    demos = trips.replace(groups=groups, labels=labels, state_names=mdp.state_names)
    return Dataset(
        mdp=mdp,
        demos=demos,
        description="Simulated trips in a city of 7 x 7 blocks: drivers save minutes or avoid turns.",
        thetas=_COMMUTES.copy(),
    )


def _city() -> MDP:
    """Return the directed segments between neighbouring crossings, and the turns between them."""
    crossings = [(r, c) for r in range(_BLOCKS) for c in range(_BLOCKS)]
    steps = ((0, 1), (0, -1), (1, 0), (-1, 0))
    segments = [
        ((r, c), (r + u, c + v))
        for r, c in crossings
        for u, v in steps
        if 0 <= r + u < _BLOCKS and 0 <= c + v < _BLOCKS
    ]
    number = {segment: i for i, segment in enumerate(segments)}
    leaving: dict[tuple[int, int], list[tuple[int, int]]] = {place: [] for place in crossings}
    for start, end in segments:
        leaving[start].append(end)
    edges = [(number[a, b], number[b, c], a, b, c) for a, b in segments for c in leaving[b]]
    minutes = np.array([_ARTERIAL if _is_arterial(*segment) else _STREET for segment in segments])
    back = np.array([c == a for _, _, a, _, c in edges])
    straight = np.array([(c[0] - b[0], c[1] - b[1]) == (b[0] - a[0], b[1] - a[1]) for _, _, a, b, c in edges])
    return MDP.from_edges(
        [edge[0] for edge in edges],
        [edge[1] for edge in edges],
        n_states=len(segments),
        state_features=minutes[:, None],
        edge_features=np.column_stack([~straight & ~back, back]).astype(np.float64),
        feature_names=("minutes", "turn", "U-turn"),
        state_names=[f"{a[0]}-{a[1]} to {b[0]}-{b[1]}" for a, b in segments],
    )


def _is_arterial(start: tuple[int, int], end: tuple[int, int]) -> bool:
    """Return True for a segment of every third street, in either direction."""
    shared = start[0] if start[0] == end[0] else start[1]
    return shared % 3 == 0
