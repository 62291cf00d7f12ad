"""Which models can be fitted to sums of features alone, and whether demonstrations belong to one."""

from __future__ import annotations

from typing import Any

from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import MaxEnt
from limiirl.irl.checks import max_length
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture, checks
from limiirl.streams.parts import Facts

_INSTEAD = "Fit it in memory with IntentMixture.fit, on a sample of the demonstrations if need be."


def check_mixture(mixture: Any) -> None:
    """Check that it is EM that a stream is to serve."""
    if not isinstance(mixture, IntentMixture):
        raise InvalidParameter(f"mixture must be an IntentMixture for a stream; it is a {type(mixture).__name__}.")


def check_model(irl: Any) -> MaxEnt:
    """Return a model whose log-probabilities are theta . F(tau) + log q - log Z, so that sums of features say all.

    Examples
    --------
    >>> from limiirl import MaxCausalEnt
    >>> check_model(MaxCausalEnt())
    Traceback (most recent call last):
    limiirl.errors.InvalidParameter: A stream keeps one row of feature sums a demonstration, which is all that MaxEnt...
    """
    checks.model(irl)
    if not isinstance(irl, MaxEnt):
        raise InvalidParameter(
            "A stream keeps one row of feature sums a demonstration, which is all that MaxEnt looks at; "
            f"{type(irl).__name__} looks at every step. {_INSTEAD}"
        )
    kind = type(irl)
    if any(getattr(kind, name) is not getattr(MaxEnt, name) for name in ("log_prob", "fit", "_fit", "prepare")):
        raise InvalidParameter(
            f"{kind.__name__} has a likelihood of its own, which sums of features may not determine. {_INSTEAD}"
        )
    if irl.condition != "none":
        raise InvalidParameter(
            f"condition={irl.condition!r} needs where each demonstration begins, which sums of features do not say. "
            f"Use condition='none'. {_INSTEAD}"
        )
    return irl


def check_facts(irl: MaxEnt, facts: Facts, name: str, mdp: MDP, longest: float | None = None) -> None:
    """Check that the demonstrations of a part are among the trajectories of a model.

    Parameters
    ----------
    longest : float, optional
        The model's largest length where the longest demonstration settles it, and it is known.
    """
    if irl.max_length is not None:
        longest = max_length(irl.max_length)
    if longest is not None and facts.longest > longest:
        raise InvalidDemos(
            f"{name}: demonstration {facts.longest_at} has {facts.longest} states, more than max_length = {longest}. "
            "Shorten it, or use a larger max_length."
        )
    if irl.stop == "anywhere" or facts.loose is None:
        return
    if irl.stop == "terminal_or_max_length" and (longest is None or facts.loose == (longest, longest)):
        return
    raise InvalidDemos(
        f"{name}: demonstration {facts.loose_at} does not end in one of the {int(mdp.terminal.sum())} terminal states, "
        f"but the model has stop={irl.stop!r}. Use stop='anywhere', or mark its last state as terminal."
    )
