"""Description of intents in words, limited to differences that standard errors, bounds and ties support."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from limiirl._typing import FloatArray
from limiirl.report.intents.view import Contrasts, IntentsView
from limiirl.report.markup import literal
from limiirl.report.tables import format_percent

# Largest number of rewards, and of states, that are named per intent.
_MOST = 3
# Maximum number of tied differences that are named.
_MOST_TIED = 6
# Smaller differences in visits per 100 steps are not mentioned.
_LEAST_VISITS = 0.5
# Standard errors of mixture weights above this value are not shown.
_DETERMINED = 0.5


@dataclass(frozen=True)
class Claim:
    """A clear difference between an intent and the average of the other intents.

    Claims are ordered by `size`, the scaled absolute difference; `size_error` is its standard error.
    """

    index: int
    name: str
    value: float
    other: float
    difference: float
    error: float
    size: float
    size_error: float


@dataclass(frozen=True)
class Described:
    """The largest of `n_clear` clear differences of one intent, largest first.

    If the first `tied` differences are equally large within their errors, either all of them are listed or none.
    """

    claims: tuple[Claim, ...] = ()
    tied: int = 0
    n_clear: int = 0


def reward_claims(view: IntentsView, k: int) -> Described:
    """Return the clear reward differences of intent k with the largest effects on the likelihood."""
    return _largest(view.rewards, k, view.feature_names, view.scale)


def visit_claims(view: IntentsView, k: int) -> Described:
    """Return the largest clear differences between the visits under intent k and under the other intents."""
    visits = view.visits
    if visits is None:
        return Described()
    names = view.state_names
    return _largest(visits, k, names, np.ones(len(names)), _LEAST_VISITS)


def _largest(contrasts: Contrasts, k: int, names: list[str], scale: FloatArray, least: float = 0.0) -> Described:
    clear = np.flatnonzero(contrasts.clear[k] & (np.abs(contrasts.differences[k]) >= least))
    size = np.abs(contrasts.differences[k]) * scale
    order = clear[np.argsort(-size[clear], kind="stable")]
    claims = [
        Claim(
            int(j),
            names[j],
            float(contrasts.values[k, j]),
            float(contrasts.others[k, j]),
            float(contrasts.differences[k, j]),
            float(contrasts.errors[k, j]),
            float(size[j]),
            float(contrasts.errors[k, j] * scale[j]),
        )
        for j in order
    ]
    # Claims that are equally large within their errors are listed together or not at all.
    shown = next((m for m in range(min(_MOST, len(claims)), 0, -1) if _ends_list(claims, m)), 0)
    if shown == 0 and claims:
        tied = sum(_is_tied(claims[0], claim) for claim in claims)
        return Described(tuple(claims[:tied]) if tied <= _MOST_TIED else (), tied, len(claims))
    return Described(tuple(claims[:shown]), 0, len(claims))


def _ends_list(claims: list[Claim], m: int) -> bool:
    return m == len(claims) or not _is_tied(claims[m - 1], claims[m])


def _is_tied(one: Claim, other: Claim) -> bool:
    return one.size - other.size <= 2.0 * math.hypot(one.size_error, other.size_error)


def describe_rewards(view: IntentsView, k: int) -> str:
    """Return the largest clear differences of the rewards of intent k as prose, or ""."""
    described = reward_claims(view, k)
    if not described.n_clear:
        return ""
    if not described.claims:
        against = "0" if view.n_intents == 1 else f"those of {_others(view.n_intents)}"
        return f"has {described.tied} rewards that differ from {against} by similar amounts"
    return _phrase_rewards(described.claims, view.n_intents) + _remainder(described)


def _phrase_rewards(claims: tuple[Claim, ...], n_intents: int) -> str:
    verbs = ("seeks", "avoids") if n_intents == 1 else ("prefers", "avoids")
    parts = []
    for verb, sign in zip(verbs, (1.0, -1.0), strict=True):
        named = [claim for claim in claims if sign * claim.difference > 0.0]
        if named:
            parts.append(f"{verb} {_join([f'{literal(claim.name)} ({format_difference(claim)})' for claim in named])}")
    return " and ".join(parts) + ("" if n_intents == 1 else f", compared with {_others(n_intents)}")


def describe_visits(view: IntentsView, k: int) -> str:
    """Return the largest clear differences of the visits under intent k as prose, or ""."""
    described = visit_claims(view, k)
    if not described.n_clear:
        return ""
    if not described.claims:
        return f"visits {described.tied} states more or less often than {_others(view.n_intents)}, by similar amounts"
    parts = []
    for claim in described.claims:
        rates = f"{format_rate(claim.value)}"
        if view.n_intents > 1:
            rates += f" instead of {format_rate(claim.other)}"
        parts.append(f"{literal(claim.name)} ({rates})")
    more = [part for part, claim in zip(parts, described.claims, strict=True) if claim.difference > 0.0]
    less = [part for part, claim in zip(parts, described.claims, strict=True) if claim.difference <= 0.0]
    phrases = [f"is more often in {_join(more)}"] if more and view.n_intents > 1 else []
    phrases += [f"is most often in {_join(more)}"] if more and view.n_intents == 1 else []
    phrases += [f"is less often in {_join(less)}"] if less else []
    return "; ".join(phrases) + _remainder(described)


def _remainder(described: Described) -> str:
    left = described.n_clear - len(described.claims)
    if not left:
        return ""
    kind = "other" if described.tied else "smaller"
    return f" (and {left} {kind} {'difference' if left == 1 else 'differences'})"


def describe(view: IntentsView, k: int) -> str:
    """Return a phrase that describes the rewards of intent k or, if none differs clearly, its visits."""
    return describe_rewards(view, k) or describe_visits(view, k) or _nothing(view.n_intents)


def _nothing(n_intents: int) -> str:
    against = "0" if n_intents == 1 else f"those of {_others(n_intents)}"
    return f"no reward differs from {against} by more than its error"


def _others(n_intents: int) -> str:
    return "the other intent" if n_intents == 2 else "the other intents"


def format_weight(view: IntentsView, k: int) -> str:
    """Return a mixture weight in percent, with its standard error if that is below 50 %."""
    error = view.weight_errors[k]
    known = view.n_intents > 1 and error < _DETERMINED
    return format_percent(float(view.weights[k])) + (f" ± {100.0 * error:.0f}" if known else "")


def findings(view: IntentsView) -> Iterator[str]:
    """Yield one sentence per intent, largest intents first."""
    for k in np.argsort(-view.weights, kind="stable").tolist():
        yield f"**{capitalise(literal(view.names[k]))}** ({format_weight(view, k)}): {describe(view, k)}."


def capitalise(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def format_difference(claim: Claim) -> str:
    """Return a difference with its sign, and its error, to two digits of the error.

    >>> format_difference(Claim(0, "water", -1.0, 2.0, -3.0, 0.25, 3.0, 0.25))
    '−3.00 ± 0.25'
    """
    digits = count_digits(claim.error)
    return f"{claim.difference:+.{digits}f} ± {claim.error:.{digits}f}".replace("-", "−")


def count_digits(error: float) -> int:
    """Return the number of decimals that shows two digits of an error, at most 4."""
    return int(np.clip(1 - math.floor(math.log10(error)), 0, 4)) if math.isfinite(error) and error > 0.0 else 2


def format_rate(rate: float) -> str:
    """Return a number of visits per 100 steps."""
    return f"{rate:.1f}" if rate < 99.95 else f"{rate:.0f}"


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
