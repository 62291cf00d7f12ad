"""Renumbering of demonstrations by name, to match an MDP or each other."""

from __future__ import annotations

import re
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
# Name of a state with its previous state; see `with_previous_state`.
_PREVIOUS = re.compile(r"(.*) \(from (.*)\)", re.DOTALL)


def is_numbered_as(demos: Demonstrations, mdp: MDP) -> bool:
    """Return True if named states and actions of demonstrations are numbered as in the MDP."""
    check_mdp(mdp)
    return all(_same(getattr(demos, f"{kind}_names"), getattr(mdp, f"{kind}_names")) for kind in _KINDS)


def _same(own: tuple[str, ...] | None, names: tuple[str, ...] | None) -> bool:
    return own is None or own is names or own == names


def previous_names(names: Sequence[str], before: NDArray[np.int64], after: NDArray[np.int64]) -> tuple[str, ...]:
    """Return `names`, followed by one name "after (from before)" per pair of a state and its predecessor."""
    return (*names, *(f"{names[b]} (from {names[a]})" for a, b in zip(before.tolist(), after.tolist(), strict=True)))


def _count_base_states(names: Sequence[str] | None) -> int:
    """Return the number of states without a previous state if the names are those of `with_previous_state`, else 0."""
    match = None if names is None else _PREVIOUS.fullmatch(names[-1])
    if names is None or match is None:
        return 0
    base = next(i for i, name in enumerate(names) if _PREVIOUS.fullmatch(name))
    return base if {match[1], match[2]} <= set(names[:base]) else 0


def _add_previous(demos: Demonstrations, mdp: MDP) -> Demonstrations:
    """Add the previous states to the states of demonstrations if the states of the MDP include them."""
    names, later = mdp.state_names, np.ones(demos.n_steps, dtype=np.bool_)
    n_base = _count_base_states(names)
    later[demos.offsets[:-1]] = False
    # Only first states have no previous state.
    if names is None or n_base == 0 or not later.any() or demos.state_names == names:
        return demos
    own = names[:n_base] if demos.state_names is None else demos.state_names
    if int(demos.states.max()) >= len(own) or any(_PREVIOUS.fullmatch(own[s]) for s in np.unique(demos.states)):
        return demos
    after = np.flatnonzero(later)
    code, number = np.unique(demos.states[after - 1] * len(own) + demos.states[after], return_inverse=True)
    states = demos.states.copy()
    states[after] = len(own) + number
    return demos.replace(states=states, state_names=previous_names(own, *np.divmod(code, len(own))))


def renumber_by_name(demos: Demonstrations, mdp: MDP) -> Demonstrations:
    """Number states and actions as in an MDP; see `Demonstrations.renumber`."""
    check_mdp(mdp)
    demos = _add_previous(demos, mdp)
    changes: dict[str, Any] = {}
    for kind in _KINDS:
        own, names = getattr(demos, f"{kind}_names"), getattr(mdp, f"{kind}_names")
        if _same(own, names):
            continue
        if names is None:
            message = (
                f"The demonstrations have {kind} names, but the MDP has none. Pass {kind}_names to the MDP; or drop "
                f"the names with demos.replace({kind}_names=None), if {kind}s are numbered as in the MDP."
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
    """Convert indices into `own` to indices into `names`; raise if a name that occurs is absent or repeated."""
    # The number of an unrecorded action, -1, selects the appended entry.
    translated = np.append(renumber(own, names), -1)[numbers]
    wrong = np.flatnonzero(translated < -1)
    if wrong.size:
        name, index = own[numbers[wrong[0]]], locate(demos.offsets, int(wrong[0]))
        rule = f"is not one of the {len(names)} {kind}s of the MDP"
        remedy = f"Correct it, or add the {kind} to the MDP."
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
        # Sets without actions need no names of actions.
        used = [part.actions is not None if kind == "action" else part.n_steps > 0 for part in result]
        present = [names for names in named if names is not None]
        if not present:
            continue
        if any(names is None and has for names, has in zip(named, used, strict=True)):
            i = next(i for i, names in enumerate(named) if names is None and used[i])
            message = f"part {i} has no {field}, but another part does. Set them for all: demos.replace({field}=...)."
            raise InvalidDemos(message, parameter=field, index=i)
        union = tuple(dict.fromkeys(name for names in present for name in names))
        for i, part in enumerate(result):
            numbers, changes = getattr(part, f"{kind}s"), {field: union}
            if numbers is not None and named[i] is not None and named[i] != union:
                changes[f"{kind}s"] = np.append(renumber(named[i], union), -1)[numbers]
            result[i] = part.replace(**changes)
    return result
