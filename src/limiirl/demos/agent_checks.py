"""What one agent did, as arrays: padded to one length, checked once, and the same for all agents."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.demos.checks import frozen
from limiirl.errors import InvalidDemos

Float = NDArray[np.float64]


class Agent(NamedTuple):
    """What one agent did: n trajectories, padded to the H steps of the longest.

    Attributes
    ----------
    policy_features : (n, H, p) float64
        x_t: what the policy sees.
    actions : (n, H, b) float64 or (n, H) int64
        Vectors, or numbers of a finite set.
    reward_features : (n, H, q) float64
        phi_t: what rewards are made of; zero after the end of a trajectory.
    live : (n, H) bool
        The steps in which the agent chose its action. Rewards may go on after them, as at a goal that is never left.
    """

    policy_features: Float
    actions: NDArray[Any]
    reward_features: Float
    live: NDArray[np.bool_]


def padded(
    given: Any, what: str, agent: int, lengths: NDArray[np.int64] | None = None
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return an agent's trajectories as one array, zeros after the end of each, and their lengths (n,).

    Examples
    --------
    >>> array, lengths = padded([[7, 8], [9]], "actions", agent=0)
    >>> array.tolist(), lengths.tolist()
    ([[7, 8], [9, 0]], [2, 1])
    """
    try:
        parts = [np.asarray(part) for part in given]
    except (TypeError, ValueError) as error:
        raise InvalidDemos(f"{what} of agent {agent} must be an array, or one a trajectory ({error}).") from None
    found = np.array([len(part) if part.ndim else 0 for part in parts], dtype=np.int64)
    if not parts or np.any(found == 0):
        where = f"; trajectory {int(np.argmax(found == 0))} has none" if parts else "; it has no trajectories"
        raise InvalidDemos(f"{what} of agent {agent} must be trajectories of at least one step{where}. Leave it out.")
    if lengths is not None and not np.array_equal(found, lengths):
        if found.size != lengths.size:
            raise InvalidDemos(
                f"{what} of agent {agent} have {found.size} trajectories, its policy_features {lengths.size}. "
                "Record both in every step."
            )
        j = int(np.argmax(found != lengths))
        raise InvalidDemos(
            f"{what} of agent {agent}, trajectory {j}, have {found[j]} steps, its policy_features {lengths[j]}. "
            "Record both in every step."
        )
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) != 1:
        raise InvalidDemos(
            f"{what} of agent {agent} must have the same number of columns in every trajectory; there are "
            f"{' and '.join(str(shape) for shape in sorted(shapes))}."
        )
    padded = np.zeros((len(parts), int(found.max()), *parts[0].shape[1:]), dtype=np.result_type(*parts))
    for j, part in enumerate(parts):
        padded[j, : len(part)] = part
    return padded, found


def checked(record: Agent, agent: int) -> Agent:
    """Return an agent's arrays as float64, int64 and bool, read-only; what does not fit together is an error."""
    x, phi = (_real(getattr(record, name), name, agent) for name in ("policy_features", "reward_features"))
    actions = np.asarray(record.actions)
    if actions.ndim == 2 and actions.dtype.kind in "iu":
        if np.any(actions < 0):
            j, t = np.argwhere(actions < 0)[0]
            raise InvalidDemos(
                f"Discrete actions are numbered from 0; agent {agent}, trajectory {j}, step {t} has {actions[j, t]}. "
                "Mark steps without a choice by live=False, and number the actions 0, 1, 2, ..."
            )
        actions = actions.astype(np.int64)
    elif actions.ndim == 3:
        actions = _real(actions, "actions", agent)
    else:
        raise InvalidDemos(
            f"actions of agent {agent} must be real vectors (n, H, b) or integers (n, H); they have shape "
            f"{actions.shape} and dtype {actions.dtype}. Add an axis to real numbers: actions[..., None]."
        )
    live = np.asarray(record.live)
    steps = {"policy_features": x, "actions": actions, "reward_features": phi, "live": live}
    for name, array in steps.items():
        if array.shape[:2] != x.shape[:2]:
            raise InvalidDemos(
                f"{name} of agent {agent} are for {array.shape[:2]} trajectories and steps, its policy_features for "
                f"{x.shape[:2]}. Record both in every step."
            )
    if live.dtype.kind != "b" or live.ndim != 2:
        raise InvalidDemos(
            f"live of agent {agent} must be booleans (n, H); it has shape {live.shape} and dtype {live.dtype}."
        )
    if not np.any(live):
        raise InvalidDemos(f"agent {agent} never chooses an action: live is False throughout. Leave the agent out.")
    return Agent(frozen(x), frozen(actions), frozen(phi), frozen(live))


def check_alike(records: tuple[Agent, ...]) -> None:
    """Raise unless all agents have the same features and the same kind of actions."""
    for i, record in enumerate(records):
        for name in ("policy_features", "actions", "reward_features"):
            ours, first = _width(getattr(record, name)), _width(getattr(records[0], name))
            if ours != first:
                raise InvalidDemos(
                    f"All agents must have the same {name}; those of agent {i} have {ours}, those of agent 0 "
                    f"{first}. Record the same for all."
                )


def _width(array: NDArray[Any]) -> str:
    """Say what must agree between agents."""
    return f"{array.shape[2]} columns of real numbers" if array.ndim == 3 else "numbers of a finite set"


def _real(given: Any, what: str, agent: int) -> Float:
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidDemos(f"{what} of agent {agent} must be numbers ({error}).") from None
    if array.ndim != 3 or array.shape[2] == 0:
        raise InvalidDemos(f"{what} of agent {agent} must have the shape (n, H, m); it is {array.shape}.")
    bad = ~np.isfinite(array)
    if np.any(bad):
        j, t, c = np.argwhere(bad)[0]
        raise InvalidDemos(
            f"{what} must be finite; agent {agent}, trajectory {j}, step {t}, column {c} is {array[j, t, c]}. "
            "Mend it, or leave the trajectory out."
        )
    return array
