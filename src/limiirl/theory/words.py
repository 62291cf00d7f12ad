"""What a `Separation` says, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from limiirl.theory.bound import Bound

if TYPE_CHECKING:
    from limiirl.theory.separation import Separation

# Clusters that agree with the intents for a smaller share of the demonstrations are no good start.
GOOD_PURITY = 0.9
# A realised epsilon below this: EM keeps nearly everybody where the clusters have them.
_SMALL = 0.05
# Demonstrations at the fringe of an intent that an answer may leave out, if it says so.
_OUTERMOST = 0.05


def lines(found: Separation) -> list[str]:
    """Return the answer, one sentence or two a line."""
    listed, q = ", ".join(map(str, found.names.tolist())), found.over_all.quantities
    radius = f"r up to {np.max(q.r):.3g}"
    mass = f"log Q_all / Q_k up to {np.max(found.log_Q_all - found.log_Q):.3g}"
    return [
        f"Separable: {_separable(found)}.",
        f"Intents {listed}: the least distances between them are {found.margin:.3g} on average.",
        f"Warm start: {_helps(found)}.",
        f"Clusters agree with the intents for {100 * found.purity:.3g} % of {found.labels.size} demonstrations.",
        f"Realised epsilon: {found.epsilon:.3g} with mean rewards, {found.epsilon_mle:.3g} with fitted ones.",
        *_theorem(found),
        f"Its quantities over all trajectories: zeta {q.zeta:.3g}, delta {q.delta:.3g},",
        f"  margin_between {q.margin_between:.3g}, margin_within {q.margin_within:.3g}, {radius}, {mass}.",
    ]


def _separable(found: Separation) -> str:
    k = int(np.argmin(found.gaps))
    name, gap = found.names[k].item(), found.gaps[k]
    if found.separable:
        return f"yes, among the demonstrations; the nearest to others is intent {name}, by {gap:.3g} along its mean"
    overlap = f"intent {name} overlaps with others by {-gap:.3g} along its mean"
    if np.all(found.gaps_but_for(_OUTERMOST) > 0.0):
        return f"nearly, but for the outermost {100 * _OUTERMOST:.0f} % of demonstrations; {overlap}"
    return f"no; {overlap}"


def _helps(found: Separation) -> str:
    if found.helps and found.epsilon_mle < _SMALL:
        return "should help"
    if found.helps:
        return "should help, though EM still moves some demonstrations"
    if found.purity < GOOD_PURITY:
        return "do not rely on it: clusters in feature space are not these intents. Try several starts, or an embedding"
    return "do not rely on it: EM moves away from the clusters at once. Try several starts"


def _theorem(found: Separation) -> list[str]:
    how = "exact" if found.exact else f"experts' trajectories estimated from {found.n_looked_at} demonstrations"
    basis = f"  ({how}; supports from {found.supports})"
    told = [f"Theorem 1: epsilon <= {found.over_all.epsilon:.3g}; both assumptions hold over all trajectories", basis]
    if not found.guaranteed:
        told = ["Theorem 1: promises nothing here. Over all trajectories", basis, *_listed(found.over_all)]
        alone = f"epsilon <= {found.among_demos.epsilon:.3g}" if found.among_demos.applies else "nothing either:"
        told += [f"  Among the demonstrations alone it would promise {alone}", *_listed(found.among_demos)]
    if not found.maxent:
        told.append("  It is about MaxEnt, not about the model given; the realised epsilon is about that model.")
    return told


def _listed(found: Bound) -> list[str]:
    return [f"  - {text}" for text in found.failures]
