"""Renumbering of demonstrations by name, to match an MDP or each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limiirl._validation import check_type, is_collection
from limiirl.demos.validate import locate, name_step
from limiirl.errors import InvalidDemos
from limiirl.mdp import renumber

if TYPE_CHECKING:
    from limiirl.demos.demonstrations import Demonstrations
    from limiirl.mdp import MDP

_KINDS = ("state", "action")


def is_numbered_as(demos: Demonstrations, mdp: MDP) -> bool:
    """Return True if named states and actions of demonstrations are numbered as in the MDP."""
    check_mdp(mdp)
    return all(_same(getattr(demos, f"{kind}_names"), getattr(mdp, f"{kind}_names")) for kind in _KINDS)


def _same(own: tuple[str, ...] | None, names: tuple[str, ...] | None) -> bool:
    return own is None or own is names or own == names


def history_names(names: Sequence[str], history: NDArray[np.integer]) -> tuple[str, ...]:
    """Return state names such as "pond (from den, nest)" for states followed by their previous states (n, m).

    Entries of -1 denote absent previous states.
    """
    rows = ([names[s] for s in row if s >= 0] for row in history.tolist())
    return tuple(f"{row[0]} (from {', '.join(row[1:])})" if len(row) > 1 else row[0] for row in rows)


def _add_history(demos: Demonstrations, mdp: MDP) -> Demonstrations:
    """Convert demonstrations to states that include the previous states, if the states of the MDP do."""
    names, history, original = mdp.state_names, mdp.history, mdp.original_names
    if names is None or history is None or original is None or demos.n_transitions == 0 or demos.state_names == names:
        return demos
    # If `with_history` was called with keep_starts=True, the first states of the MDP are the original states.
    n_base = len(original)
    own = original if demos.state_names is None else demos.state_names
    if names[:n_base] != original or int(demos.states.max()) >= len(own) or set(names[n_base:]).intersection(own):
        return demos
    t = np.arange(demos.n_steps) - np.repeat(demos.offsets[:-1], demos.lengths)
    lagged = [np.where(t >= lag, np.roll(demos.states, lag), -1) for lag in range(history.shape[1])]
    rows, states = np.unique(np.column_stack(lagged), axis=0, return_inverse=True)
    return demos.replace(states=states.ravel(), state_names=history_names(own, rows))


def renumber_by_name(demos: Demonstrations, mdp: MDP) -> Demonstrations:
    """Number states and actions as in an MDP; see `Demonstrations.renumber`."""
    check_mdp(mdp)
    given, demos = demos, _add_history(demos, mdp)
    if demos is not given and given.state_names is not None and mdp.original_names is not None:
        # Name an unknown state without its previous states.
        _translate(given, given.states, given.state_names, mdp.original_names, "state")
    changes: dict[str, Any] = {}
    for kind in _KINDS:
        own, names = getattr(demos, f"{kind}_names"), getattr(mdp, f"{kind}_names")
        if _same(own, names):
            continue
        if names is None:
            message = (
                f"demos must not have {kind} names if the MDP has none. Pass {kind}_names to the MDP or, if the "
                f"{kind} indices agree with the MDP, drop the names with demos.replace({kind}_names=None)."
            )
            raise InvalidDemos(message, parameter="demos", value=own[0])
        numbers = getattr(demos, f"{kind}s")
        if numbers is not None:
            changes[f"{kind}s"] = _translate(demos, numbers, own, names, kind)
        changes[f"{kind}_names"] = names
    return demos.replace(**changes) if changes else demos


def _translate(
    demos: Demonstrations, numbers: NDArray[np.int64], own: Sequence[str], names: Sequence[str], kind: str
) -> NDArray[np.int64]:
    """Convert indices into `own` to indices into `names`; raise if a used name is absent from `names` or repeated."""
    # The index of an unrecorded action, -1, selects the appended entry.
    translated = np.append(renumber(own, names), -1)[numbers]
    wrong = np.flatnonzero(translated < -1)
    if wrong.size:
        name, index = own[numbers[wrong[0]]], locate(demos.offsets, int(wrong[0]))
        rule = f"is not one of the {len(names)} {kind}s of the MDP"
        remedy = f"Correct it, or use an MDP with this {kind}."
        if translated[wrong[0]] == -3:
            rule, remedy = f"is the name of several {kind}s of the MDP", "Rename them."
        message = f"{name_step(demos.ids, index)}: {kind} {name!r} {rule}. {remedy}"
        raise InvalidDemos(message, parameter="demos", value=name, index=index)
    return translated


def check_mdp(given: object) -> None:
    """Raise unless an argument is an MDP."""
    from limiirl.mdp import MDP

    check_type(given, "mdp", MDP, remedy="Create one with MDP.from_edges.")


def check_parts(parts: object) -> list[Demonstrations]:
    """Return sets of demonstrations as a list after checking their types."""
    from limiirl.demos.demonstrations import Demonstrations

    if not is_collection(parts):
        raise InvalidDemos.of("parts", type(parts).__name__, "must be a list of Demonstrations")
    result = list(parts)
    for i, part in enumerate(result):
        if not isinstance(part, Demonstrations):
            raise InvalidDemos.of("parts", type(part).__name__, "must be Demonstrations", index=i)
    return result


def with_common_names(parts: Sequence[Demonstrations]) -> list[Demonstrations]:
    """Renumber sets of demonstrations by the union of their names, in order of first occurrence."""
    result = check_parts(parts)
    for kind in _KINDS:
        field = f"{kind}_names"
        named = [getattr(part, field) for part in result]
        # Sets without actions need no action names.
        used = [part.actions is not None if kind == "action" else part.n_steps > 0 for part in result]
        present = [names for names in named if names is not None]
        if not present:
            continue
        if any(names is None and has for names, has in zip(named, used, strict=True)):
            i = next(i for i, names in enumerate(named) if names is None and used[i])
            message = (
                f"parts[{i}] must have {field}, because another part does. Set them with demos.replace({field}=...)."
            )
            raise InvalidDemos(message, parameter=field, index=i)
        union = tuple(dict.fromkeys(name for names in present for name in names))
        for i, part in enumerate(result):
            numbers, changes = getattr(part, f"{kind}s"), {field: union}
            if numbers is not None and named[i] is not None and named[i] != union:
                changes[f"{kind}s"] = np.append(renumber(named[i], union), -1)[numbers]
            result[i] = part.replace(**changes)
    return result
