"""`MDP`: a sparse Markov decision process without its reward."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from limiirl._typing import FloatArray, Int32Array, IntArray
from limiirl._validation import as_floats, check_each, to_array
from limiirl.errors import InvalidMDP, InvalidParameter
from limiirl.kernels.graph import pair_index, pair_starts, row_pointers
from limiirl.mdp import estimation, from_arrays, from_libraries, io, validate
from limiirl.mdp import features as feature_rules
from limiirl.mdp.features import FeatureMatrix, same_features


def describe(mdp: MDP) -> str:
    """Return a summary of an MDP, used by `repr`."""
    head = (
        f"MDP: {_count(mdp.n_states, 'state')} ({int(mdp.terminal.sum()):,} terminal), "
        f"{_count(mdp.n_actions, 'action')}, {_count(mdp.n_edges, 'edge')}, discount {mdp.gamma:.6g}"
    )
    starts = f"  starts: {_count(int((mdp.p0 > 0).sum()), 'state')}"
    unreachable = int((~reachable_states(mdp, np.flatnonzero(mdp.p0))).sum())
    if unreachable:
        starts += f"; {_count(unreachable, 'state')} unreachable"
    kinds = (("states", mdp.state_features), ("actions", mdp.action_features), ("edges", mdp.edge_features))
    parts = [_features(kind, matrix) for kind, matrix in kinds if matrix is not None]
    lines = [head, _describe_transitions(mdp), starts, "  features: " + ", ".join(parts)]
    if mdp.environment is not None:
        sizes = zip(mdp.environment_names, np.bincount(mdp.environment).tolist(), strict=True)
        lines.append("  environments: " + ", ".join(f"{name} ({_count(size, 'state')})" for name, size in sizes))
    return "\n".join(lines)


def _describe_transitions(mdp: MDP) -> str:
    if mdp.n_edges == 0:
        return "  transitions: none"
    n_available = np.bincount(mdp.pair_state, minlength=mdp.n_states)[~mdp.terminal]
    low, high = int(n_available.min()), int(n_available.max())
    actions = f"{_count(high, 'action')} per state" if low == high else f"{low} to {high} actions per state"
    if mdp.deterministic:
        return f"  transitions: deterministic, {actions}"
    outcomes = int(np.bincount(mdp.pair_of_edge).max())
    return f"  transitions: stochastic, {actions}, up to {_count(outcomes, 'outcome')} per action"


def _features(kind: str, matrix: FeatureMatrix) -> str:
    return f"{matrix.shape[1]:,} on {kind} ({'dense' if isinstance(matrix, np.ndarray) else 'sparse'})"


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"


def reachable_states(mdp: MDP, starts: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return the mask (S,) of the states that are reachable from the states `starts`, including `starts`."""
    # An additional state with an edge to every start state reduces this to one search.
    origin = mdp.n_states
    rows = np.concatenate([mdp.src, np.full(starts.size, origin)])
    columns = np.concatenate([mdp.dst, starts])
    graph = sparse.csr_array((np.ones(rows.size), (rows, columns)), shape=(origin + 1, origin + 1))
    visited = csgraph.breadth_first_order(graph, origin, return_predecessors=False)
    mask = np.zeros(origin + 1, dtype=np.bool_)
    mask[visited] = True
    return mask[:-1]


def same_content(one: MDP, other: MDP) -> bool:
    """Return True if all fields of two MDPs are equal."""
    arrays = ("p0", "terminal", "src", "act", "dst", "prob", "history", "environment")
    return (
        one.gamma == other.gamma
        and one.feature_names == other.feature_names
        and one.state_names == other.state_names
        and one.action_names == other.action_names
        and one.original_names == other.original_names
        and one.environment_names == other.environment_names
        and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
        and all(
            same_features(getattr(one, name), getattr(other, name))
            for name in ("state_features", "action_features", "edge_features")
        )
        and len(one.goal_features) == len(other.goal_features)
        and all(a.same_as(b) for a, b in zip(one.goal_features, other.goal_features, strict=True))
    )


_Array = TypeVar("_Array", bound=NDArray[Any])


@dataclass(frozen=True, eq=False, repr=False)
class MDP:
    """A Markov decision process without its reward: edges, start distribution, discount, terminal states, features.

    The reward is linear in theta, the concatenation of three blocks: state s has reward ``state_features[s] @
    theta_state``, and the transition (s, a, s') has reward ``action_features[(s, a)] @ theta_action +
    edge_features[(s, a, s')] @ theta_edge``. Build an MDP with `from_dense`, `from_edges`, `from_gymnasium`,
    `from_networkx` or `from_demonstrations`; the constructor expects canonical arrays. An MDP and its arrays are
    immutable, and MDPs are compared by content.

    Parameters
    ----------
    src, act, dst : (E,) int32
        Source, action and target of each edge, sorted by (src, act, dst) without duplicates. Actions are numbered per
        state.
    prob : (E,)
        P(s' | s, a) in (0, 1]; sums to 1 over the edges of each (s, a).
    p0 : (S,)
        Start distribution.
    gamma : float
        Discount in (0, 1].
    terminal : (S,) bool
        States that end a trajectory; they have no outgoing edge.
    state_features : (S, ds), optional
        ndarray or scipy.sparse. If no features are passed, state indicators (a sparse identity) are used.
    action_features : (P, da), optional
        One row per (s, a) pair, in the order of the sorted pairs.
    edge_features : (E, de), optional
        One row per edge.
    feature_names : sequence of d strings, optional
        Default: "state[0]", ..., "action[0]", ..., "edge[0]", ...
    state_names : sequence of S strings, optional
        Names of the states; default names of state indicators are "state[name]".
    action_names : sequence of at least A strings, optional
        Names of the actions. Demonstrations with names are matched to the names of the MDP.
    history : (S, m) int32, optional
        For an MDP with memory: the state of the original MDP, its previous state, and so on; -1 where absent. Set by
        `with_history` and `with_counter`.
    original_names : sequence of str, optional
        Names of the states of the original MDP.
    goal_features : tuple of GoalFeature
        Features that also depend on the goal, for `DestinationMaxEnt` only; their parameters are the last of theta.
        Set by `add_goal_features`.
    environment : (S,) int32, optional
        For an MDP that consists of several environments: the environment of each state. No edge leads from one
        environment to another, and likelihoods are conditioned on the environment. Set by `combine_environments`.
    environment_names : sequence of str, optional
        Names of the environments; "0", "1", ... by default.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.9)
    >>> mdp
    MDP: 3 states (1 terminal), 2 actions, 3 edges, discount 0.9
      transitions: deterministic, 1 to 2 actions per state
      starts: 2 states
      features: 3 on states (sparse)
    >>> mdp.src, mdp.act, mdp.dst
    (array([0, 0, 1], dtype=int32), array([0, 1, 0], dtype=int32), array([1, 2, 2], dtype=int32))
    """

    src: Int32Array
    act: Int32Array
    dst: Int32Array
    prob: FloatArray
    p0: FloatArray
    gamma: float
    terminal: NDArray[np.bool_]
    state_features: FeatureMatrix | None = None
    action_features: FeatureMatrix | None = None
    edge_features: FeatureMatrix | None = None
    feature_names: tuple[str, ...] = ()
    state_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None
    history: Int32Array | None = None
    original_names: tuple[str, ...] | None = None
    goal_features: tuple[feature_rules.GoalFeature, ...] = ()
    environment: Int32Array | None = None
    environment_names: tuple[str, ...] = ()

    from_dense = classmethod(from_arrays.from_dense)
    from_edges = classmethod(from_arrays.from_edges)
    from_gymnasium = classmethod(from_libraries.from_gymnasium)
    from_networkx = classmethod(from_libraries.from_networkx)
    from_demonstrations = classmethod(estimation.from_demonstrations)
    load = classmethod(io.load)

    def __post_init__(self) -> None:
        """Validate the arrays and replace them by read-only copies."""
        n_states = validate.check_n_states(to_array(self.p0, "p0").size)
        self._set("p0", validate.check_p0(self.p0, n_states))
        self._set("gamma", validate.check_gamma(self.gamma))
        self._set("terminal", validate.as_terminal_mask(self.terminal, n_states))
        src, act, dst = (validate.as_indices(getattr(self, name), name) for name in ("src", "act", "dst"))
        validate.check_edge_indices(src, act, dst, n_states)
        for name, values in (("src", src), ("act", act), ("dst", dst)):
            self._set(name, values.astype(np.int32))
        prob = as_floats(self.prob, "prob", error=InvalidMDP)
        validate.check_canonical_edges(self.src, self.act, self.dst, prob, self.terminal)
        # Rounding may yield 1 + 1e-16, which would have a positive log-probability.
        self._set("prob", np.minimum(prob, 1.0))
        if self.state_names is not None:
            self._set("state_names", validate.check_names(self.state_names, n_states, "state_names", "state"))
        if self.action_names is not None:
            given = validate.as_tuple(self.action_names, "action_names")
            count = max(len(given), self.n_actions)
            self._set("action_names", validate.check_names(given, count, "action_names", "action"))
        if self.history is not None:
            self._set("history", validate.check_history(self.history, n_states))
            count = max(int(np.max(self.history)) + 1, len(self.original_names or ()))
            names = self.original_names or tuple(map(str, range(count)))
            self._set("original_names", validate.check_names(names, count, "original_names", "original state"))
        if self.environment is not None:
            labels = validate.check_environment(self.environment, self.p0, self.src, self.dst)
            self._set("environment", labels)
            count = int(labels.max()) + 1
            names = validate.as_tuple(self.environment_names, "environment_names") or tuple(map(str, range(count)))
            self._set("environment_names", validate.check_names(names, count, "environment_names", "environment"))
        elif len(validate.as_tuple(self.environment_names, "environment_names")):
            raise InvalidMDP.of("environment_names", len(self.environment_names), "requires environment")
        self._set_features()

    def _set(self, name: str, value: Any) -> None:
        if isinstance(value, np.ndarray) and not feature_rules.is_frozen(value):
            value = _freeze(np.array(value, order="C"))
        object.__setattr__(self, name, value)

    def _set_features(self) -> None:
        indicators = self.state_features is None and self.action_features is None and self.edge_features is None
        if indicators:
            object.__setattr__(self, "state_features", sparse.eye_array(self.n_states, format="csr"))
        for kind, count in (("state", self.n_states), ("action", self.n_pairs), ("edge", self.n_edges)):
            name = f"{kind}_features"
            if getattr(self, name) is not None:
                matrix = feature_rules.as_features(getattr(self, name), name)
                validate.check_feature_rows(matrix, count, name)
                object.__setattr__(self, name, feature_rules.freeze(matrix))
        self._set("goal_features", validate.check_goal_features(self.goal_features, self.n_states, self.n_edges))
        if self.n_features == len(self.goal_features):
            remedy = "Pass None for state indicators."
            raise InvalidMDP.of("state_features", 0, "must have at least one column", remedy=remedy)
        chosen = validate.as_tuple(self.feature_names, "feature_names") or self._default_feature_names(indicators)
        self._set("feature_names", validate.check_names(chosen, self.n_features, "feature_names", "feature"))

    def _default_feature_names(self, indicators: bool) -> tuple[str, ...]:
        if indicators and self.state_names is not None:
            return tuple(f"state[{name}]" for name in self.state_names)
        widths = {kind: feature_rules.width(getattr(self, f"{kind}_features")) for kind in feature_rules.KINDS}
        names: tuple[str, ...] = sum((feature_rules.default_names(*item) for item in widths.items()), ())
        return names + tuple(feature.name for feature in self.goal_features)

    @cached_property
    def n_states(self) -> int:
        """Number of states S."""
        return int(self.p0.size)

    @cached_property
    def n_edges(self) -> int:
        """Number of edges E."""
        return int(self.src.size)

    @cached_property
    def n_actions(self) -> int:
        """Largest action index plus one, or 0 without edges."""
        return int(self.act.max()) + 1 if self.act.size else 0

    @cached_property
    def n_pairs(self) -> int:
        """Number P of available (s, a) pairs."""
        return int(self.pair_state.size)

    @cached_property
    def n_state_features(self) -> int:
        """Number d_s of state features."""
        return feature_rules.width(self.state_features)

    @cached_property
    def n_action_features(self) -> int:
        """Number d_a of action features."""
        return feature_rules.width(self.action_features)

    @cached_property
    def n_edge_features(self) -> int:
        """Number d_e of edge features."""
        return feature_rules.width(self.edge_features)

    @cached_property
    def n_features(self) -> int:
        """Length d = d_s + d_a + d_e + d_g of a parameter vector, with d_g features that depend on the goal."""
        return self.n_state_features + self.n_action_features + self.n_edge_features + len(self.goal_features)

    @cached_property
    def without_goal_features(self) -> MDP:
        """The MDP without the features that depend on the goal."""
        if not self.goal_features:
            return self
        return self.replace(goal_features=(), feature_names=self.feature_names[: -len(self.goal_features)])

    @cached_property
    def log_p0(self) -> FloatArray:
        """Logarithm (S,) of the start distribution, given the environment if there are several."""
        with np.errstate(divide="ignore"):
            log_p0 = np.log(self.p0)
        if self.environment is not None:
            log_p0 -= np.log(np.bincount(self.environment, weights=self.p0))[self.environment]
        return _freeze(log_p0)

    @cached_property
    def feature_sizes(self) -> FloatArray:
        """Largest absolute value (d,) of each feature."""
        return feature_rules.feature_sizes(self)

    @cached_property
    def out_ptr(self) -> IntArray:
        """Pointers (S + 1,): the edges that leave s are ``out_ptr[s]:out_ptr[s + 1]``."""
        return _freeze(row_pointers(self.src, self.n_states))

    @cached_property
    def in_order(self) -> Int32Array:
        """Permutation (E,) that sorts the edges by (dst, src, act)."""
        # The edges are sorted by (src, act) already, so a stable sort by dst is enough.
        return _freeze(np.argsort(self.dst, kind="stable").astype(np.int32))

    @cached_property
    def in_ptr(self) -> IntArray:
        """Pointers (S + 1,): the edges that enter s are ``in_order[in_ptr[s]:in_ptr[s + 1]]``."""
        return _freeze(row_pointers(self.dst, self.n_states))

    @cached_property
    def pair_of_edge(self) -> Int32Array:
        """Index (E,) of the (s, a) pair of each edge."""
        return _freeze(pair_index(self.src, self.act))

    @cached_property
    def pair_state(self) -> Int32Array:
        """State (P,) of each (s, a) pair."""
        return _freeze(self.src[pair_starts(self.src, self.act)])

    @cached_property
    def pair_action(self) -> Int32Array:
        """Action (P,) of each (s, a) pair."""
        return _freeze(self.act[pair_starts(self.src, self.act)])

    @cached_property
    def deterministic(self) -> bool:
        """True if every action has a single outcome."""
        return bool((self.prob == 1.0).all())

    def check_thetas(self, thetas: ArrayLike, name: str = "thetas") -> FloatArray:
        """Return parameters (d,) or (K, d) as a C-contiguous float64 array (K, d); `name` is used in error messages."""
        array = as_floats(thetas, name)
        shape, d = array.shape, self.n_features
        if len(shape) not in (1, 2) or shape[-1] != d or 0 in shape:
            names = ", ".join(self.feature_names[:8]) + (", ..." if d > 8 else "")
            rule = f"must have shape (K, {d}) or ({d},), one column per feature ({names})"
            raise InvalidParameter.of(name, shape, rule)
        array = np.ascontiguousarray(array).reshape(-1, d)
        check_each(np.isfinite(array), array, name, "must be finite")
        return array

    def check_no_goal_features(self) -> None:
        """Raise `InvalidParameter` if the MDP has features that depend on the goal."""
        if self.goal_features:
            rule = f"must not have features that depend on the goal, such as {self.goal_features[0].name!r}, here"
            remedy = "Use DestinationMaxEnt, or mdp.without_goal_features."
            raise InvalidParameter.of("mdp", len(self.goal_features), rule, remedy=remedy)

    def split(self, thetas: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Split parameters (K, d) into state (K, ds), action (K, da) and edge (K, de) parameters."""
        self.check_no_goal_features()
        array = self.check_thetas(thetas)
        first, second = self.n_state_features, self.n_state_features + self.n_action_features
        return array[:, :first], array[:, first:second], array[:, second:]

    def rewards(self, thetas: ArrayLike) -> tuple[FloatArray, FloatArray | None]:
        """Return the rewards of K parameter vectors on states and edges.

        Parameters
        ----------
        thetas : (K, d) or (d,)

        Returns
        -------
        r_state : (S, K)
            Reward of each state; zero without state features.
        r_edge : (E, K) or None
            Action reward plus edge reward of each transition; None without action and edge features.

        Examples
        --------
        >>> mdp = MDP.from_edges([0, 1], [1, 2], state_features=[[0.0], [1.0], [2.0]], edge_features=[[5.0], [7.0]])
        >>> r_state, r_edge = mdp.rewards([-1.0, 10.0])
        >>> r_state.ravel(), r_edge.ravel()
        (array([ 0., -1., -2.]), array([50., 70.]))
        """
        of_state, of_action, of_edge = self.split(thetas)
        r_state = feature_rules.multiply(self.state_features, of_state, self.n_states)
        if self.action_features is None and self.edge_features is None:
            return r_state, None
        r_edge = feature_rules.multiply(self.edge_features, of_edge, self.n_edges)
        if self.action_features is not None:
            r_edge += feature_rules.multiply(self.action_features, of_action, self.n_pairs)[self.pair_of_edge]
        return r_state, r_edge

    def replace(self, **changes: Any) -> MDP:
        """Return a validated copy with some fields changed.

        If the number of columns of a feature matrix changes, its columns have default names unless `feature_names` is
        passed.

        Examples
        --------
        >>> MDP.from_edges([0], [1]).replace(gamma=0.5).gamma
        0.5
        """
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        unknown = sorted(changes.keys() - fields.keys())
        if unknown:
            message = f"MDP has no field {unknown[0]!r}. Choose from {', '.join(fields)}."
            raise InvalidMDP(message, parameter=unknown[0], value=changes[unknown[0]])
        kinds = (*feature_rules.KINDS, "goal")
        if "feature_names" not in changes and any(f"{kind}_features" in changes for kind in kinds):
            changes["feature_names"] = feature_rules.update_names(self, changes)
        return MDP(**(fields | changes))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the MDP to one npz file, atomically and without pickle; `MDP.load` reads it."""
        io.save(self, path)

    @cached_property
    def _digest(self) -> str:
        return io.digest(self)

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits of a hash of the content, identical on every machine."""
        return self._digest[:16]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MDP):
            return NotImplemented
        return self is other or same_content(self, other)

    def __hash__(self) -> int:
        return int(self._digest[:15], 16)

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickled arrays are writeable, so that the constructor must make them read-only again.
        return type(self), tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    def __repr__(self) -> str:
        return describe(self)


def _freeze(array: _Array) -> _Array:
    array.flags.writeable = False
    return array
