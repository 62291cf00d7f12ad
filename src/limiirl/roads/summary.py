"""`describe`: a network in plain numbers, for a summary page or a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork


def describe(network: RoadNetwork) -> dict[str, Any]:
    """Return the facts of a network as plain numbers and texts, ready for JSON.

    Returns
    -------
    dict
        "segments", "turns", "nodes", "km"; "km_by_class"; "lanes" and "speed" (share of km where they are known, and km
        by value); "segment_m" (quantiles of length); "bounds" (south, west, north, east in degrees); "one_way_share" of
        km; "turns_out" (how many segments have 0, 1, 2 ... turns onward); "dead_ends"; "dropped" (by reason); "notes".

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> ring = RoadNetwork.from_segments([41.15, 41.16, 41.16], [-8.63, -8.63, -8.62], [0, 1, 2], [1, 2, 0])
    >>> facts = describe(ring)
    >>> facts["km"], facts["turns_out"], facts["speed"]
    (3.342, {'1': 3}, {'known_share': 0.0, 'km': {}})
    """
    km = network.length_m / 1000.0
    total = float(km.sum())
    by_class = np.bincount(network.road_class, weights=km, minlength=len(network.class_names))
    degree, count = np.unique(np.diff(network.out_ptr), return_counts=True)
    shares = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)
    lengths = np.quantile(network.length_m, shares)
    return {
        "segments": network.n_segments,
        "turns": network.n_turns,
        "nodes": network.n_nodes,
        "km": round(total, 3),
        "km_by_class": {
            name: round(float(part), 3) for name, part in zip(network.class_names, by_class, strict=True) if part > 0.0
        },
        "lanes": _known(network.lanes, km),
        "speed": _known(network.speed_kmh, km),
        "one_way_share": round(float(km[network.opposite < 0].sum()) / total, 6),
        "segment_m": {f"{share:g}": round(float(metres), 3) for share, metres in zip(shares, lengths, strict=True)},
        "bounds": [
            float(network.lat.min()), float(network.lon.min()), float(network.lat.max()), float(network.lon.max())
        ],
        "centre": list(network.centre),
        "turns_out": {str(k): int(n) for k, n in zip(degree, count, strict=True)},
        "dead_ends": int(np.count_nonzero(np.diff(network.out_ptr) == 0)),
        "dropped": _dropped(dict(network.notes)),
        "attribution": network.attribution,
        "fingerprint": network.fingerprint(),
        "notes": dict(network.notes),
    }  # fmt: skip


def _known(values: Any, km: Any) -> dict[str, Any]:
    """Return the share of km with a known value, and km by value."""
    known = np.isfinite(values)
    levels, at = np.unique(values[known], return_inverse=True)
    length = np.bincount(at, weights=km[known], minlength=levels.size)
    by_value = {f"{level:g}": round(float(part), 3) for level, part in zip(levels, length, strict=True)}
    return {"known_share": round(float(km[known].sum() / km.sum()), 6), "km": by_value}


def _dropped(notes: dict[str, Any]) -> dict[str, int]:
    """Return what building left out, by reason, those that did not happen left out as well."""
    found = {f"ways: {reason}": count for reason, count in notes.get("ways", {}).get("dropped", {}).items()}
    found |= {f"pieces: {reason}": count for reason, count in notes.get("pieces_dropped", {}).items()}
    part = notes.get("component", {})
    found["segments: outside of the connected part"] = part.get("segments_dropped", 0)
    rules = notes.get("turns", {}).get("restrictions", {})
    found |= {f"turn restrictions: {reason}": count for reason, count in rules.get("not_used", {}).items()}
    return {reason: count for reason, count in found.items() if count}
