"""MDPs from objects of other libraries: Gymnasium's tabular environments and networkx graphs (neither is imported)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.errors import InvalidMDP
from limiirl.mdp import validate

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from limiirl.mdp.features import FeatureInput
    from limiirl.mdp.mdp import MDP


def from_gymnasium(
    cls: type[MDP],
    env: Any,
    *,
    gamma: float = 0.99,
    state_features: FeatureInput | None = None,
    action_features: FeatureInput | None = None,
    p0: ArrayLike | None = None,
    terminal: ArrayLike | None = None,
    feature_names: Sequence[str] | None = None,
) -> MDP:
    """Build an MDP from a tabular environment, such as FrozenLake, CliffWalking and Taxi of Gymnasium 1.0 or later.

    The environment must expose ``P[s][a] = [(probability, next state, reward, done), ...]``; outcomes that lead to one
    state are added up. Its own rewards are not used, since rewards are what is to be learnt.

    Parameters
    ----------
    env : gymnasium.Env
        Any object, wrapped or not, with such a table.
    gamma : float
        Discount in (0, 1].
    state_features : (S, ds), optional
        Without features of any kind, indicators of the states.
    action_features : (S, A, da), optional
        Features on (s, a, s') can be added to the result with ``mdp.replace(edge_features=...)``.
    p0 : (S,), optional
        By default the environment's `initial_state_distrib`, or uniform over the states that are not terminal.
    terminal : (S,) bool, or integer state indices, optional
        By default the states that are entered with done=True. It is an error if a state is entered both with and
        without it (only moves that can happen from the start states count).
    feature_names : sequence of d strings, optional

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from limiirl.mdp import MDP
    >>> coin = SimpleNamespace(P={0: {0: [(0.5, 0, 0.0, False), (0.5, 1, 1.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}})
    >>> mdp = MDP.from_gymnasium(coin)
    >>> mdp.src, mdp.dst, mdp.terminal
    (array([0, 0], dtype=int32), array([0, 1], dtype=int32), array([False,  True]))
    """
    core = getattr(env, "unwrapped", env)
    if not hasattr(core, "P"):
        raise InvalidMDP(
            f"The environment must expose its transitions as P[s][a] = [(prob, next, reward, done), ...]; "
            f"{type(core).__name__} has no P. Use a toy-text environment, MDP.from_dense or MDP.from_demonstrations.",
            parameter="env",
            value=type(core).__name__,
        )
    moves = _Moves.read(core.P)
    space = getattr(core, "observation_space", None)
    n_states = validate.check_n_states(getattr(space, "n", moves.n_states))
    validate.check_edge_indices(moves.src, moves.act, moves.dst, n_states)
    if p0 is None:
        p0 = getattr(core, "initial_state_distrib", None)
    start = None if p0 is None else validate.check_p0(p0, n_states)
    if terminal is None:
        terminal = moves.terminal(n_states, start)
    merged = moves.merge()
    return cls.from_edges(
        merged.src,
        merged.dst,
        n_states,
        merged.act,
        merged.prob,
        start,
        gamma,
        state_features=state_features,
        action_features=action_features,
        terminal=terminal,
        feature_names=feature_names,
    )


class _Moves(NamedTuple):
    """The possible outcomes in an environment's table, one entry an outcome."""

    src: IntArray
    act: IntArray
    dst: IntArray
    prob: FloatArray
    done: BoolArray

    @classmethod
    def read(cls, table: Any) -> _Moves:
        rows = []
        for state, actions in _items(table):
            for action, outcomes in _items(actions):
                for outcome in outcomes:
                    if len(outcome) != 4:
                        raise InvalidMDP(
                            f"An outcome in P must be (prob, next, reward, done); state {state}, action {action} has "
                            f"{outcome!r}. Correct the environment's table.",
                            parameter="env",
                            value=outcome,
                            index=(state, action),
                        )
                    prob, target, _, done = outcome
                    # Not `prob > 0`: a NaN must reach the checks of from_edges.
                    if prob != 0:
                        rows.append((state, action, target, prob, done))
        columns = list(zip(*rows, strict=True)) or [()] * 5
        try:
            src, act, dst = (np.array(column, dtype=np.int64) for column in columns[:3])
        except (TypeError, ValueError) as error:
            raise InvalidMDP(
                f"States and actions in P must be integers ({error}). Number them from 0.", parameter="env"
            ) from error
        return cls(src, act, dst, np.array(columns[3], dtype=float), np.array(columns[4], dtype=bool))

    @property
    def n_states(self) -> int:
        return 1 + max(int(self.src.max(initial=-1)), int(self.dst.max(initial=-1)))

    def merge(self) -> _Moves:
        """Return the same moves with the probabilities of equal outcomes added up."""
        triples = np.stack([self.src, self.act, self.dst], axis=1)
        unique, which = np.unique(triples, axis=0, return_inverse=True)
        src, act, dst = unique.T
        prob = np.bincount(which.ravel(), weights=self.prob, minlength=src.size).astype(np.float64)
        return _Moves(src, act, dst, prob, np.zeros(src.size, dtype=np.bool_))

    def terminal(self, n_states: int, p0: FloatArray | None) -> BoolArray:
        """Return the states that are entered with done=True, after a check that none is entered both ways."""
        ending = _mask(self.dst[self.done], n_states)
        started = np.zeros(n_states, dtype=np.bool_) if p0 is None else p0 > 0
        # Tables also describe moves that no episode makes: out of its last state, or, in Taxi, with the passenger at
        # the destination from the outset. There a state may be entered both ways without harm, so only what can
        # happen decides about a conflict.
        visited = ~ending if p0 is None else started.copy()
        while not visited[onward := self.dst[~self.done & visited[self.src]]].all():
            visited[onward] = True
        happens = visited[self.src]
        passing = started | _mask(self.dst[happens & ~self.done], n_states)
        both = np.flatnonzero(_mask(self.dst[happens & self.done], n_states) & passing)
        if both.size:
            raise InvalidMDP(
                f"A state either ends an episode or does not; state {int(both[0])} is entered with done=True and also "
                "without, or as a start. Pass terminal= to decide, or make the end part of the environment's state.",
                parameter="terminal",
                value=int(both[0]),
            )
        return ending & ~passing


def _mask(states: IntArray, n_states: int) -> BoolArray:
    mask = np.zeros(n_states, dtype=np.bool_)
    mask[states] = True
    return mask


def _items(table: Any) -> Iterable[tuple[Any, Any]]:
    return table.items() if hasattr(table, "items") else enumerate(table)


def from_networkx(
    cls: type[MDP],
    graph: Any,
    features: Sequence[str] = (),
    *,
    gamma: float = 1.0,
    terminal: Iterable[Hashable] | None = None,
    p0: Mapping[Any, float] | ArrayLike | None = None,
) -> MDP:
    """Build a deterministic MDP from a graph: nodes are states, and each edge out of a node is an action of its own.

    States stand in the order of the graph's nodes, with ``str(node)`` as their names. An undirected edge can be taken
    both ways; parallel edges of a multigraph are different actions with one target.

    Parameters
    ----------
    graph : networkx Graph, DiGraph, MultiGraph or MultiDiGraph
    features : sequence of str
        Numeric attributes. One that every node has becomes a state feature, one that every edge has an edge feature;
        theta has the state features first, each kind in the order given. Without any, indicators of the states.
    gamma : float
        Discount in (0, 1].
    terminal : iterable of nodes, optional
        By default the nodes without an outgoing edge.
    p0 : mapping from nodes to probabilities, or (S,), optional
        By default uniform over the states that are not terminal.

    Examples
    --------
    >>> import networkx
    >>> from limiirl.mdp import MDP
    >>> graph = networkx.DiGraph()
    >>> graph.add_edge("home", "work", minutes=12.0)
    >>> graph.add_edge("home", "shop", minutes=5.0)
    >>> mdp = MDP.from_networkx(graph, features=["minutes"], p0={"home": 1.0})
    >>> mdp.state_names, mdp.feature_names, mdp.edge_features.ravel()
    (('home', 'work', 'shop'), ('minutes',), array([12.,  5.]))
    """
    nodes = list(graph.nodes)
    position = {node: state for state, node in enumerate(nodes)}
    names = _state_names(nodes)
    edges = list(_directed_edges(graph))
    node_data = [graph.nodes[node] for node in nodes]
    on_nodes, on_edges = _sort_attributes(validate.as_tuple(features, "features"), nodes, node_data, edges)
    on_states = [_column(name, node_data, [f"node {node!r}" for node in nodes]) for name in on_nodes]
    on_moves = [
        _column(name, [e[2] for e in edges], [f"edge {e[0]!r} -> {e[1]!r}" for e in edges]) for name in on_edges
    ]
    ends = None if terminal is None else [_look_up(node, position, "terminal") for node in terminal]
    if isinstance(p0, Mapping):
        start = np.zeros(len(nodes))
        for node, share in p0.items():
            start[_look_up(node, position, "p0")] = share
        p0 = start
    return cls.from_edges(
        np.array([position[edge[0]] for edge in edges], dtype=np.int64),
        np.array([position[edge[1]] for edge in edges], dtype=np.int64),
        len(nodes),
        p0=p0,
        gamma=gamma,
        state_features=np.stack(on_states, axis=1) if on_states else None,
        edge_features=np.stack(on_moves, axis=1) if on_moves else None,
        terminal=ends,
        feature_names=[*on_nodes, *on_edges] or None,
        state_names=names,
    )


def _state_names(nodes: list[Any]) -> list[str]:
    owner: dict[str, Any] = {}
    for node in nodes:
        other = owner.setdefault(str(node), node)
        if other is not node:
            raise InvalidMDP(
                f"Nodes need different names; {other!r} and {node!r} are both {str(node)!r} as text. Relabel one.",
                parameter="graph",
                value=str(node),
            )
    return list(owner)


def _directed_edges(graph: Any) -> Iterator[tuple[Any, Any, Mapping[str, Any]]]:
    # The adjacency of an undirected graph lists an edge at both its ends, and a self-loop once: just what is wanted.
    for node, neighbours in graph.adjacency():
        for neighbour, data in neighbours.items():
            for attributes in data.values() if graph.is_multigraph() else (data,):
                yield node, neighbour, attributes


def _sort_attributes(
    features: tuple[str, ...], nodes: list[Any], node_data: list[Any], edges: list[Any]
) -> tuple[list[str], list[str]]:
    """Return which attributes are features of states and which of edges."""
    on_nodes, on_edges = [], []
    for name in features:
        bare_nodes = (repr(node) for node, data in zip(nodes, node_data, strict=True) if name not in data)
        bare_edges = (f"{source!r} -> {target!r}" for source, target, data in edges if name not in data)
        bare_node, bare_edge = next(bare_nodes, None), next(bare_edges, None)
        if bare_node is None and bare_edge is None and edges:
            raise InvalidMDP(
                f"A feature belongs to nodes or to edges; both have {name!r}. Rename one of the two.",
                parameter="features",
                value=name,
            )
        if bare_node is None:
            on_nodes.append(name)
        elif bare_edge is None and edges:
            on_edges.append(name)
        else:
            on_some_edges = any(name in data for _, _, data in edges)
            where = f"edge {bare_edge}" if on_some_edges else f"node {bare_node}"
            raise InvalidMDP(
                f"A feature needs a value on every node or on every edge; the {where} has no {name!r}. "
                "Set it there, or correct the name.",
                parameter="features",
                value=name,
            )
    return on_nodes, on_edges


def _column(name: str, data: list[Any], places: list[str]) -> FloatArray:
    column = np.empty(len(data))
    for row, attributes in enumerate(data):
        try:
            column[row] = attributes[name]
        except (TypeError, ValueError) as error:
            raise InvalidMDP(
                f"Features are numbers; {name!r} of {places[row]} is {attributes[name]!r}. Encode it as numbers first.",
                parameter="features",
                value=attributes[name],
                index=row,
            ) from error
    return column


def _look_up(node: Any, position: dict[Any, int], name: str) -> int:
    if node not in position:
        raise InvalidMDP(
            f"{name} must name nodes of the graph; {node!r} is none. Correct it, or add the node.",
            parameter=name,
            value=node,
        )
    return position[node]
