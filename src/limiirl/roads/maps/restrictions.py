"""Turn restrictions: which turns the signs forbid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.roads.maps.way_table import Restriction

Int = NDArray[np.int64]

# The tags that bind cars, the most specific first; "restriction:hgv" and its like do not.
_KINDS = ("restriction:motorcar", "restriction:motor_vehicle", "restriction:vehicle", "restriction")
_CARS = frozenset({"motorcar", "motor_vehicle", "vehicle"})


class Forbidden(NamedTuple):
    """Which turns (E,) some restriction forbids, how many restrictions were used, and why the others were not."""

    turns: NDArray[np.bool_]
    used: int
    unused: dict[str, int]


class Segments(NamedTuple):
    """What a restriction must know of the segments and the turns between them."""

    way: Int
    tail_node: Int
    head_node: Int
    turn_from: Int
    turn_to: Int


def forbidden(restrictions: Iterable[Restriction], segments: Segments) -> Forbidden:
    """Return the turns that restrictions forbid.

    "no_..." forbids the turns from its "from" ways to its "to" ways at its node, "only_..." those to all other ways.
    One that passes via a way is not used, nor is one whose hours are conditional, one that excepts cars, or one that
    does not say which of two turns it means since its way goes on beyond the node.

    Parameters
    ----------
    restrictions : iterable of Restriction
    segments : Segments
        In numbers of ways and nodes of the source.

    Examples
    --------
    >>> roads = Segments(*(np.array(x) for x in ([10, 11, 12], [1, 2, 2], [2, 3, 4], [0, 0], [1, 2])))
    >>> forbidden([Restriction(1, (10,), 2, (11,), {"restriction": "no_left_turn"})], roads)
    Forbidden(turns=array([ True, False]), used=1, unused={})
    >>> forbidden([Restriction(1, (10,), 2, (11,), {"restriction": "only_left_turn"})], roads).turns
    array([False,  True])
    """
    at_node: dict[int, list[int]] = {}
    for turn, node in enumerate(segments.head_node[segments.turn_from].tolist()):
        at_node.setdefault(node, []).append(turn)
    banned = np.zeros(segments.turn_from.size, dtype=np.bool_)
    unused: Counter[str] = Counter()
    used = 0
    for rule in restrictions:
        reason, turns = _turns_of(rule, segments, at_node)
        if reason:
            unused[reason] += 1
        else:
            banned[turns] = True
            used += 1
    return Forbidden(banned, used, dict(unused))


def _turns_of(rule: Restriction, segments: Segments, at_node: dict[int, list[int]]) -> tuple[str, list[int]]:
    """Return why a restriction is not used, or "" and the turns that it forbids."""
    kind = next((rule.tags[name] for name in _KINDS if name in rule.tags), None)
    if kind is None:
        conditional = any(name.startswith("restriction") and name.endswith(":conditional") for name in rule.tags)
        return ("only at some hours" if conditional else "not for cars"), []
    if not kind.startswith(("no_", "only_")):
        return "unknown kind", []
    if _CARS & {name.strip() for name in rule.tags.get("except", "").split(";")}:
        return "excepts cars", []
    if rule.via is None:
        return "via a way", []
    if not (rule.sources and rule.targets):
        return "incomplete", []
    here = np.array(at_node.get(rule.via, []), dtype=np.int64)
    source, target = segments.turn_from[here], segments.turn_to[here]
    leaves, arrives = np.isin(segments.way[source], rule.sources), np.isin(segments.way[target], rule.targets)
    if not leaves.any():
        return "no such turn", []
    if any(_several(segments.way[these], these) for these in (source[leaves], target[arrives])):
        return "its way goes on beyond the node", []
    if kind.startswith("no_"):
        hit = leaves & arrives
        return ("" if hit.any() else "no such turn"), here[hit].tolist()
    if not (leaves & arrives).any():
        # Obeying it would forbid every turn, for a road that is not part of the network.
        return "no such turn", []
    return "", here[leaves & ~arrives].tolist()


def _several(ways: Int, segments: Int) -> bool:
    """Whether some way has two segments among those given."""
    pairs = np.unique(np.stack([ways, segments]), axis=1)
    return bool(pairs.shape[1] > np.unique(pairs[0]).size)
