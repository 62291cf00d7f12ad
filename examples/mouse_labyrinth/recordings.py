"""Recorded bouts of mice in the labyrinth: reading, validation, and cutting into pieces of nearly equal length."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import limiirl as ll
from examples.mouse_labyrinth import maze

Int = NDArray[np.int64]

FEWEST_VISITS = 100
"""A mouse with fewer node visits in total is excluded."""


@dataclass(frozen=True)
class Recordings:
    """Bouts in the order in which they were recorded.

    Attributes
    ----------
    bouts : list of (n,) int
        Visited nodes. A bout starts and ends at the first junction, from which the mouse goes home.
    mouse : (B,)
        Mouse of each bout.
    restricted : dict
        Maps each mouse to True if it was water restricted. The fits do not use these labels.
    left_out : tuple of str
        Excluded mice.
    intents : list of (n + 1,) int, optional
        True intent of each state of each bout, if the mice are simulated.
    """

    bouts: list[Int]
    mouse: NDArray[np.str_]
    restricted: dict[str, bool]
    left_out: tuple[str, ...] = ()
    intents: list[Int] | None = None

    @property
    def mice(self) -> list[str]:
        """The sorted names of the mice."""
        return sorted(self.restricted)

    @property
    def labels(self) -> NDArray[np.bool_]:
        """Boolean mask of the `mice` that were water restricted."""
        return np.array([self.restricted[mouse] for mouse in self.mice])

    @property
    def batches(self) -> NDArray[np.str_]:
        """The first letter of each name in `mice`, which is assumed to denote the batch."""
        return np.array([mouse[:1] for mouse in self.mice])

    @property
    def n_visits(self) -> int:
        """Total number of node visits."""
        return int(sum(len(nodes) for nodes in self.bouts))


def read(folder: Path) -> Recordings:
    """Read bouts.csv (mouse, water_restricted, bout, nodes), and exclude mice with few visits."""
    path = folder / "bouts.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    bouts = [np.array(row["nodes"].split(), dtype=np.int64) for row in rows]
    for i, nodes in enumerate(bouts):
        if not maze.legal(nodes):
            raise ll.errors.InvalidDemos(
                f"{path}, line {i + 2}: a bout must begin and end at node 0 and move along corridors. Fix the line."
            )
    mouse = np.array([row["mouse"] for row in rows])
    visits = {str(name): sum(len(bouts[i]) for i in np.flatnonzero(mouse == name)) for name in np.unique(mouse)}
    included = {name for name, n in visits.items() if n >= FEWEST_VISITS}
    kept = [i for i in range(len(rows)) if mouse[i] in included]
    restricted = {str(mouse[i]): rows[i]["water_restricted"] == "1" for i in kept}
    left_out = tuple(sorted(set(visits) - included))
    return Recordings([bouts[i] for i in kept], mouse[kept], restricted, left_out)


@dataclass(frozen=True)
class Pieces:
    """Pieces of bouts as states of `maze.steps_mdp`, with the mouse, bout and time of each piece.

    Attributes
    ----------
    states : list of (m + 1,) int
        States of a piece with m moves; entering and leaving a dead end is one move. The last state of a piece is the
        first state of the next piece, so every move is in exactly one piece.
    mouse, bout : (N,)
        Mouse and bout of each piece.
    time : (N,)
        Fraction of the mouse's moves that precede the piece.
    """

    states: list[Int]
    mouse: NDArray[np.str_]
    bout: Int
    time: NDArray[np.float64]

    @property
    def moves(self) -> Int:
        """Number of moves of each piece."""
        return np.array([len(piece) - 1 for piece in self.states])

    def demos(self) -> ll.Demonstrations:
        """Return the pieces as demonstrations without labels or groups, so that each has its own intent."""
        return ll.Demonstrations.from_lists(self.states)


def spans(n: int, length: int) -> list[tuple[int, int]]:
    """Split n moves into the smallest number of spans of at most `length` moves, as equal as possible."""
    ends = np.linspace(0, n, -(-n // length) + 1).round().astype(int).tolist()
    return list(pairwise(ends))


def cut(recordings: Recordings, length: int) -> Pieces:
    """Cut every bout into pieces of at most `length` moves."""
    states, bout, time = [], [], []
    done = dict.fromkeys(recordings.mice, 0)
    for i, nodes in enumerate(recordings.bouts):
        steps = maze.steps_of(nodes)
        n = len(steps) - 1
        for a, b in spans(n, length):
            states.append(steps[a : b + 1])
            bout.append(i)
            time.append(done[str(recordings.mouse[i])] + a)
        done[str(recordings.mouse[i])] += n
    mouse = recordings.mouse[bout]
    total = np.array([done[str(name)] for name in mouse])
    return Pieces(states, mouse, np.array(bout), np.array(time) / total)
