"""Several environments with one reward: their disjoint union as one MDP, and demonstrations in it.

Demonstrations of twelve mazes, of several cities, or from before and after a closure are explained by the same rewards
of named features. The union has the states of all environments and no edge between them, so that exact models apply to
it without change. Likelihoods are conditioned on the environment (`MDP.log_p0`): the log-likelihood of the union is the
sum of those of the environments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from limiirl._typing import IntArray
from limiirl._validation import is_collection
from limiirl.demos.demonstrations import Demonstrations
from limiirl.errors import InvalidDemos, InvalidMDP, InvalidParameter
from limiirl.mdp import MDP, FeatureMatrix, GoalFeature

_KINDS = ("state", "action", "edge", "goal")


class Environment(NamedTuple):
    """One environment of a union: its MDP, with all features of the union, and its states (S_e,) and edges (E_e,)."""

    mdp: MDP
    states: IntArray
    edges: IntArray


_PARTS: WeakKeyDictionary[MDP, tuple[Environment, ...]] = WeakKeyDictionary()


def combine_environments(environments: Any) -> tuple[MDP, Demonstrations]:
    """Return the disjoint union of several environments as one MDP, and all demonstrations in it.

    `fit` of models and mixtures calls this function if it is passed a list of pairs. Call it yourself to use the union
    elsewhere, for example in `select_intents` or in `log_prob`.

    Features are matched by name. A feature that an environment does not have is 0 there, as the indicator of a state of
    another environment is. All environments have the same discount. Demonstrations keep their groups, so that an animal
    that was recorded in two environments is one group.

    Parameters
    ----------
    environments : sequence of (MDP, Demonstrations), or mapping of names to such pairs
        The names are "0", "1", ... by default. States of the union are named "name: state" if states have names.

    Returns
    -------
    mdp : MDP
        Its `environment` (S,) is the environment of each state, and the start probability of an environment is its
        fraction of the demonstrations.
    demos : Demonstrations
        The demonstrations of all environments, in order.

    Examples
    --------
    >>> phi, names = [[0, 0], [1, 0], [0, 1]], ["pond", "nest"]
    >>> north = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=phi, feature_names=names)
    >>> south = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [2], [1]], feature_names=["pond"])
    >>> pairs = {
    ...     "north": (north, Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])),
    ...     "south": (south, Demonstrations.from_lists([[0, 1]])),
    ... }
    >>> mdp, demos = combine_environments(pairs)
    >>> mdp.environment_names, mdp.environment.tolist(), demos.states.tolist()
    (('north', 'south'), [0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 2, 3, 4])
    >>> mdp.state_features.tolist()[-2:]
    [[2.0, 0.0], [1.0, 0.0]]
    """
    names, mdps, parts = _check_environments(environments)
    columns, feature_names = _match_features(mdps)
    first = np.cumsum([0, *(mdp.n_states for mdp in mdps)])
    label = np.repeat(np.arange(len(mdps), dtype=np.int32), np.diff(first))
    fractions = np.array([len(part) for part in parts]) / sum(map(len, parts))
    named = any(mdp.state_names is not None for mdp in mdps)
    history, original = _shift_histories(mdps, names)
    mdp = MDP(
        src=np.concatenate([mdp.src + start for mdp, start in zip(mdps, first, strict=False)]),
        act=np.concatenate([mdp.act for mdp in mdps]),
        dst=np.concatenate([mdp.dst + start for mdp, start in zip(mdps, first, strict=False)]),
        prob=np.concatenate([mdp.prob for mdp in mdps]),
        p0=np.concatenate([mdp.p0 * fraction for mdp, fraction in zip(mdps, fractions, strict=True)]),
        gamma=mdps[0].gamma,
        terminal=np.concatenate([mdp.terminal for mdp in mdps]),
        **{f"{kind}_features": _stack(mdps, kind, columns[kind]) for kind in _KINDS[:3]},
        feature_names=feature_names,
        state_names=_prefix(names, [mdp.state_names or _numbers(mdp.n_states) for mdp in mdps]) if named else None,
        action_names=mdps[0].action_names,
        history=history,
        original_names=original,
        goal_features=_stack_goal_features(mdps, first),
        environment=label,
        environment_names=names,
    )
    numbered = [part.renumber(own) for own, part in zip(mdps, parts, strict=True)]
    demos = Demonstrations.concat(
        [
            part.replace(states=part.states + start, state_names=None, action_names=None)
            for part, start in zip(numbered, first, strict=False)
        ]
    )
    return mdp, demos.replace(state_names=mdp.state_names, action_names=mdp.action_names)


def resolve_environments(mdp: Any, demos: Any) -> tuple[Any, Any]:
    """Return the first two arguments of `fit`, with a list or mapping of pairs replaced by its union."""
    if demos is not None:
        return mdp, demos
    if mdp is None or isinstance(mdp, MDP):
        message = (
            "demos is required. Pass demonstrations, or a list of pairs (MDP, Demonstrations) as the only argument."
        )
        raise InvalidDemos(message, parameter="demos")
    return combine_environments(mdp)


def to_environment(mdp: MDP, demos: Demonstrations, environment: int | str) -> Demonstrations:
    """Return demonstrations of one environment with the states of a union of environments.

    Parameters
    ----------
    mdp : MDP
        Result of `combine_environments`, such as `mix.mdp_` of a mixture that was fitted to several environments.
    demos : Demonstrations
        Demonstrations with the states, or the state names, of the environment.
    environment : int or str
        Index or name of the environment.

    Examples
    --------
    >>> line = MDP.from_edges([0, 1], [1, 2], state_features=[0.0, 1.0, 2.0])
    >>> recorded = Demonstrations.from_lists([[0, 1, 2]])
    >>> mdp, _ = combine_environments({"before": (line, recorded), "after": (line, recorded)})
    >>> to_environment(mdp, Demonstrations.from_lists([[1, 2]]), "after").states.tolist()
    [4, 5]
    """
    if mdp.environment is None:
        rule = "must consist of several environments"
        raise InvalidParameter.of("mdp", repr(mdp), rule, remedy="Create it with combine_environments.")
    names = mdp.environment_names
    e = names.index(environment) if environment in names else environment
    if not isinstance(e, int | np.integer) or not 0 <= e < len(names):
        raise InvalidParameter.of("environment", environment, f"must be one of {', '.join(names)}")
    if demos.state_names is not None:
        return demos.replace(state_names=_prefix(names[e : e + 1], [demos.state_names])).renumber(mdp)
    states = np.flatnonzero(mdp.environment == e)
    outside = np.flatnonzero(demos.states >= states.size)
    if outside.size:
        value, rule = int(demos.states[outside[0]]), f"must have states from 0 to {states.size - 1} in environment {e}"
        raise InvalidDemos.of("demos", value, rule, index=int(outside[0]))
    return demos.replace(states=states[demos.states], state_names=mdp.state_names)


def split_environments(mdp: MDP) -> tuple[Environment, ...]:
    """Return the environments of a union; their MDPs have all features of the union, and no names.

    Examples
    --------
    >>> line = MDP.from_edges([0, 1], [1, 2], state_features=[0.0, 1.0, 2.0])
    >>> demos = Demonstrations.from_lists([[0, 1, 2]])
    >>> mdp, _ = combine_environments([(line, demos), (line, demos)])
    >>> split_environments(mdp)[1].mdp == line
    True
    """
    if mdp not in _PARTS:
        labels = np.zeros(mdp.n_states, dtype=np.int64) if mdp.environment is None else mdp.environment
        _PARTS[mdp] = tuple(_select(mdp, labels, e) for e in range(int(labels.max()) + 1))
    return _PARTS[mdp]


def _select(mdp: MDP, labels: NDArray[np.integer], e: int) -> Environment:
    """Return environment e of an MDP with the environments `labels` (S,) of its states."""
    mdp.check_no_goal_features()
    states, edges = np.flatnonzero(labels == e), np.flatnonzero(labels[mdp.src] == e)
    number = np.cumsum(labels == e) - 1
    p0 = mdp.p0[states]
    part = MDP(
        src=number[mdp.src[edges]],
        act=mdp.act[edges],
        dst=number[mdp.dst[edges]],
        prob=mdp.prob[edges],
        p0=p0 / p0.sum(),
        gamma=mdp.gamma,
        terminal=mdp.terminal[states],
        state_features=None if mdp.state_features is None else mdp.state_features[states],
        action_features=None if mdp.action_features is None else mdp.action_features[labels[mdp.pair_state] == e],
        edge_features=None if mdp.edge_features is None else mdp.edge_features[edges],
        feature_names=mdp.feature_names,
    )
    return Environment(part, states, edges)


def _check_environments(given: Any) -> tuple[tuple[str, ...], list[MDP], list[Demonstrations]]:
    """Return the names, MDPs and demonstrations of environments after checking that they can be combined."""
    names = tuple(map(str, given)) if isinstance(given, Mapping) else ()
    pairs: list[Any] = (
        list(given.values()) if isinstance(given, Mapping) else list(given) if is_collection(given) else []
    )
    if not pairs:
        rule = "must be a list of pairs (MDP, Demonstrations), or a mapping of names to such pairs"
        raise InvalidParameter.of("environments", type(given).__name__, rule)
    for e, pair in enumerate(pairs):
        valid = isinstance(pair, tuple | list) and len(pair) == 2
        if not (valid and isinstance(pair[0], MDP) and isinstance(pair[1], Demonstrations) and len(pair[1])):
            rule = "must be pairs (MDP, Demonstrations) with at least one demonstration"
            raise InvalidParameter.of("environments", type(pair).__name__, rule, index=e)
    mdps = [pair[0] for pair in pairs]
    for e, mdp in enumerate(mdps):
        if mdp.environment is not None:
            raise InvalidMDP.of("environment", repr(mdp), "must be None", index=e, remedy="Pass all pairs at once.")
        if mdp.gamma != mdps[0].gamma:
            rule = f"must be the same in all environments ({mdps[0].gamma:g} in environment 0)"
            remedy = "Choose one discount, mdp.replace(gamma=...), for example by cross-validation."
            raise InvalidMDP.of("gamma", mdp.gamma, rule, index=e, remedy=remedy)
        if mdp.action_names != mdps[0].action_names:
            rule, remedy = "must be the same in all environments", "Pass the names of all actions to every MDP."
            raise InvalidMDP.of("action_names", mdp.action_names, rule, index=e, remedy=remedy)
    return names or _numbers(len(mdps)), mdps, [pair[1] for pair in pairs]


def _numbers(n: int) -> tuple[str, ...]:
    return tuple(map(str, range(n)))


def _prefix(environments: Sequence[str], names: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(f"{e}: {name}" for e, own in zip(environments, names, strict=True) for name in own)


def _names_by_kind(mdp: MDP) -> dict[str, tuple[str, ...]]:
    widths = (mdp.n_state_features, mdp.n_action_features, mdp.n_edge_features, len(mdp.goal_features))
    ends = np.cumsum([0, *widths])
    return {kind: mdp.feature_names[ends[i] : ends[i + 1]] for i, kind in enumerate(_KINDS)}


def _match_features(mdps: list[MDP]) -> tuple[dict[str, list[IntArray]], tuple[str, ...]]:
    """Return the columns of each environment's features in the union, by kind, and the feature names of the union."""
    by_kind = [_names_by_kind(mdp) for mdp in mdps]
    kind_of: dict[str, str] = {}
    for e, (mdp, own) in enumerate(zip(mdps, by_kind, strict=True)):
        others = {name for i, other in enumerate(mdps) if i != e for name in other.feature_names}
        if others and others.isdisjoint(mdp.feature_names):
            rule = f"must share a name with the features of another environment (environment {e})"
            remedy = "Give the same name to features with the same meaning."
            raise InvalidMDP.of("feature_names", mdp.feature_names[0], rule, index=e, remedy=remedy)
        for kind, names in own.items():
            for j, name in enumerate(names):
                if mdp.feature_names.count(name) > 1:
                    rule = f"must not repeat a name, because features are matched by name (environment {e})"
                    raise InvalidMDP.of("feature_names", name, rule, index=e)
                if kind_of.setdefault(name, kind) != kind:
                    rule = f"must be of one kind; it belongs to {kind_of[name]}s and, in environment {e}, to {kind}s"
                    raise InvalidMDP.of("feature_names", name, rule, index=j)
    position: dict[str, dict[str, int]] = {kind: {} for kind in _KINDS}
    for name, kind in kind_of.items():
        position[kind][name] = len(position[kind])
    columns = {
        kind: [np.array([position[kind][name] for name in own[kind]], dtype=np.int64) for own in by_kind]
        for kind in _KINDS
    }
    return columns, tuple(name for kind in _KINDS for name in position[kind])


def _stack(mdps: list[MDP], kind: str, columns: list[IntArray]) -> FeatureMatrix | None:
    """Return the feature matrix of all environments; columns that an environment does not have are 0 there."""
    width = 1 + max((int(own.max()) for own in columns if own.size), default=-1)
    if width == 0:
        return None
    blocks: list[Any] = []
    for mdp, own in zip(mdps, columns, strict=True):
        rows = {"state": mdp.n_states, "action": mdp.n_pairs, "edge": mdp.n_edges}[kind]
        given = getattr(mdp, f"{kind}_features")
        if isinstance(given, np.ndarray):
            block: Any = np.zeros((rows, width))
            block[:, own] = given
        elif given is None:
            block = sparse.csr_array((rows, width))
        else:
            entries = given.tocoo()
            block = sparse.csr_array((entries.data, (entries.row, own[entries.col])), shape=(rows, width))
        blocks.append(block)
    dense = all(isinstance(block, np.ndarray) or not block.nnz for block in blocks)
    stacked = sparse.vstack([sparse.csr_array(block) for block in blocks], format="csr")
    return stacked.toarray() if dense else stacked


def _stack_goal_features(mdps: list[MDP], first: IntArray) -> tuple[GoalFeature, ...]:
    """Return the goal features of all environments, which must all have them."""
    result = []
    for feature in mdps[0].goal_features:
        own = [next((f for f in mdp.goal_features if f.name == feature.name), None) for mdp in mdps]
        for e, other in enumerate(own):
            if other is None or (other.of, other.by_start) != (feature.of, feature.by_start):
                rule = f"must be present in every environment, of the same kind; see {feature.name!r}"
                raise InvalidMDP.of("goal_features", len(mdps[e].goal_features), rule, index=e)
        parts = [f for f in own if f is not None]
        values = sparse.block_diag([sparse.csr_array(f.values) for f in parts], format="csr")
        goals = np.concatenate([f.goals + start for f, start in zip(parts, first, strict=False)])
        starts = [f.starts + start for f, start in zip(parts, first, strict=False) if f.starts is not None]
        result.append(GoalFeature(feature.name, values, goals, np.concatenate(starts) if starts else None, feature.of))
    extra = next((e for e, mdp in enumerate(mdps) if len(mdp.goal_features) != len(result)), None)
    if extra is not None:
        rule = "must be the same in all environments"
        raise InvalidMDP.of("goal_features", len(mdps[extra].goal_features), rule, index=extra)
    return tuple(result)


def _shift_histories(mdps: list[MDP], names: Sequence[str]) -> tuple[Any, tuple[str, ...] | None]:
    """Return the history (S, m) of all environments and the names of their original states, or None."""
    shapes = {None if mdp.history is None else mdp.history.shape[1] for mdp in mdps}
    if shapes == {None}:
        return None, None
    if len(shapes) > 1:
        rule, remedy = "must be the same in all environments", "Call with_history with the same order for each of them."
        raise InvalidMDP.of("history", sorted(map(str, shapes)), rule, remedy=remedy)
    original = [mdp.original_names or () for mdp in mdps]
    first = np.cumsum([0, *map(len, original)])
    shifted = [
        np.where(mdp.history >= 0, mdp.history + start, -1)
        for mdp, start in zip(mdps, first, strict=False)
        if mdp.history is not None
    ]
    return np.concatenate(shifted), _prefix(names, original)
