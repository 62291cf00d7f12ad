"""The lines that a set of demonstrations prints of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from limiirl.demos.demonstrations import Demonstrations


def summarise(demos: Demonstrations) -> str:
    """Describe demonstrations in a few lines: how many, how long, and what is known of them.

    Examples
    --------
    >>> import limiirl.demos
    >>> print(summarise(limiirl.demos.Demonstrations.from_lists([[0, 1], [1, 4, 1]], labels=["a", "b"])))
    Demonstrations: 2 demonstrations, 5 steps
      lengths   2 to 3, median 2.5
      states    3 distinct, 0 to 4
      actions   not recorded
      labels    2 distinct
    """
    lines = [f"Demonstrations: {_count(len(demos), 'demonstration')}, {_count(demos.n_steps, 'step')}"]
    if len(demos) > 0:
        lengths, states = demos.lengths, demos.states
        lines.append(f"  lengths   {lengths.min()} to {lengths.max()}, median {np.median(lengths):g}")
        lines.append(f"  states    {_distinct(states)} distinct, {states.min()} to {states.max()}")
        lines.append(f"  actions   {_actions(demos)}")
    for name in ("groups", "labels"):
        values = getattr(demos, name)
        if values is not None:
            lines.append(f"  {name:<9} {np.unique(values).size} distinct")
    return "\n".join(lines)


def _actions(demos: Demonstrations) -> str:
    if demos.actions is None:
        return "not recorded"
    recorded = demos.actions[demos.actions >= 0]
    extent = (
        "recorded" if recorded.size == demos.n_transitions else f"{recorded.size} of {demos.n_transitions} recorded"
    )
    return f"{extent}, {_distinct(recorded)} distinct"


def _distinct(indices: NDArray[np.int64]) -> int:
    """Count distinct indices, by marking them where that is cheaper than sorting a million of them."""
    if indices.max() > 10 * indices.size + 1000:
        return int(np.unique(indices).size)
    seen = np.zeros(int(indices.max()) + 1, dtype=np.bool_)
    seen[indices] = True
    return int(np.count_nonzero(seen))


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
