"""Constructors of an MDP from tabular Gymnasium environments and networkx graphs (neither library is imported)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl._validation import check_positive, is_collection
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
    """Build an MDP from a tabular environment, such as FrozenLake, CliffWalking or Taxi of Gymnasium 1.0 or later.

    The environment must expose ``P[s][a] = [(probability, next state, reward, done), ...]``. The probabilities
    of duplicate outcomes are summed; rewards are ignored.

    Parameters
    ----------
    env : gymnasium.Env
        Environment, possibly wrapped, or any other object with a table `P`.
    gamma : float
        Discount in (0, 1].
    state_features : (S, ds), optional
        Default: state indicators.
    action_features : (S, A, da), optional
        Add features of (s, a, s') with ``mdp.replace(edge_features=...)``.
    p0 : (S,), optional
        Default: the environment's `initial_state_distrib`, or uniform over the nonterminal states.
    terminal : (S,) bool, or integer state indices, optional
        Default: the states entered with done=True. An error is raised if a state can be entered from the start states
        both with done=True and with done=False.
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
        rule = "must have a table P[s][a] = [(prob, next, reward, done), ...]"
        remedy = "Use a toy-text environment, MDP.from_dense or MDP.from_demonstrations."
        raise InvalidMDP.of("env", type(core).__name__, rule, remedy=remedy)
    transitions = _Transitions.read(core.P)
    space = getattr(core, "observation_space", None)
    n_states = validate.check_n_states(getattr(space, "n", transitions.n_states))
    validate.check_edge_indices(transitions.src, transitions.act, transitions.dst, n_states)
    if p0 is None:
        p0 = getattr(core, "initial_state_distrib", None)
    start = None if p0 is None else validate.check_p0(p0, n_states)
    if terminal is None:
        terminal = transitions.terminal(n_states, start)
    merged = transitions.merge()
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


class _Transitions(NamedTuple):
    """Outcomes with nonzero probability in an environment's table."""

    src: IntArray
    act: IntArray
    dst: IntArray
    prob: FloatArray
    done: BoolArray

    @classmethod
    def read(cls, table: Any) -> _Transitions:
        rows = []
        for state, actions in _items(table):
            for action, outcomes in _items(actions):
                for outcome in outcomes:
                    if len(outcome) != 4:
                        message = f"env.P[{state}][{action}] must contain (prob, next, reward, done); got {outcome!r}."
                        raise InvalidMDP(message, parameter="env", value=outcome, index=(state, action))
                    prob, target, _, done = outcome
                    # Not `prob > 0`, so that from_edges rejects NaN.
                    if prob != 0:
                        rows.append((state, action, target, prob, done))
        columns = list(zip(*rows, strict=True)) or [()] * 5
        try:
            src, act, dst = (np.array(column, dtype=np.int64) for column in columns[:3])
        except (TypeError, ValueError) as error:
            message = f"env must have integer states and actions in P ({error}). Number them from 0."
            raise InvalidMDP(message, parameter="env") from error
        return cls(src, act, dst, np.array(columns[3], dtype=float), np.array(columns[4], dtype=bool))

    @property
    def n_states(self) -> int:
        return 1 + max(int(self.src.max(initial=-1)), int(self.dst.max(initial=-1)))

    def merge(self) -> _Transitions:
        """Return the distinct transitions with summed probabilities."""
        triples = np.stack([self.src, self.act, self.dst], axis=1)
        unique, which = np.unique(triples, axis=0, return_inverse=True)
        src, act, dst = unique.T
        prob = np.bincount(which.ravel(), weights=self.prob, minlength=src.size).astype(np.float64)
        return _Transitions(src, act, dst, prob, np.zeros(src.size, dtype=np.bool_))

    def terminal(self, n_states: int, p0: FloatArray | None) -> BoolArray:
        """Return the states that are only ever entered with done=True."""
        ending = _mask(self.dst[self.done], n_states)
        started = np.zeros(n_states, dtype=np.bool_) if p0 is None else p0 > 0
        # Ignore unreachable transitions, such as those out of terminal states: their `done` is arbitrary.
        visited = ~ending if p0 is None else started.copy()
        while not visited[successors := self.dst[~self.done & visited[self.src]]].all():
            visited[successors] = True
        possible = visited[self.src]
        passing = started | _mask(self.dst[possible & ~self.done], n_states)
        both = np.flatnonzero(_mask(self.dst[possible & self.done], n_states) & passing)
        if both.size:
            message = (
                f"terminal is ambiguous: state {both[0]} is entered with done=True, and also with done=False or as a "
                "start state. Pass terminal, or make the end of an episode part of the environment's state."
            )
            raise InvalidMDP(message, parameter="terminal", value=int(both[0]))
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
    """Build a deterministic MDP from a graph, with one state per node and one action per outgoing edge.

    States are in the order of the graph's nodes and are named ``str(node)``. An undirected edge becomes two actions;
    parallel edges of a multigraph are separate actions.

    Parameters
    ----------
    graph : networkx Graph, DiGraph, MultiGraph or MultiDiGraph
    features : sequence of str
        Names of numeric attributes of all nodes (state features) or of all edges (edge features). State features
        precede edge features in theta. Default: state indicators.
    gamma : float
        Discount in (0, 1].
    terminal : iterable of nodes, optional
        Default: the nodes without an outgoing edge.
    p0 : mapping from nodes to probabilities, or (S,), optional
        Default: uniform over the nonterminal states.

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
    if not hasattr(graph, "nodes") or not hasattr(graph, "edges"):
        raise InvalidMDP.of("graph", graph, "must be a networkx graph")
    nodes = list(graph.nodes)
    position = {node: state for state, node in enumerate(nodes)}
    names = _state_names(nodes)
    edges = list(_iterate_edges(graph))
    node_data = [graph.nodes[node] for node in nodes]
    on_nodes, on_edges = _sort_attributes(validate.as_tuple(features, "features"), nodes, node_data, edges)
    state_columns = [_column(name, node_data, [f"node {node!r}" for node in nodes]) for name in on_nodes]
    edge_data, edge_labels = [edge[2] for edge in edges], [f"edge {edge[0]!r} -> {edge[1]!r}" for edge in edges]
    edge_columns = [_column(name, edge_data, edge_labels) for name in on_edges]
    if terminal is not None and not is_collection(terminal):
        raise InvalidMDP.of("terminal", terminal, "must be a collection of nodes", remedy="Put it in a list.")
    terminal_states = None if terminal is None else [_look_up(node, position, "terminal") for node in terminal]
    if isinstance(p0, Mapping):
        start = np.zeros(len(nodes))
        for node, probability in p0.items():
            start[_look_up(node, position, "p0")] = check_positive(probability, "p0", zero=True)
        p0 = start
    return cls.from_edges(
        np.array([position[edge[0]] for edge in edges], dtype=np.int64),
        np.array([position[edge[1]] for edge in edges], dtype=np.int64),
        len(nodes),
        p0=p0,
        gamma=gamma,
        state_features=np.stack(state_columns, axis=1) if state_columns else None,
        edge_features=np.stack(edge_columns, axis=1) if edge_columns else None,
        terminal=terminal_states,
        feature_names=[*on_nodes, *on_edges] or None,
        state_names=names,
    )


def _state_names(nodes: list[Any]) -> list[str]:
    owner: dict[str, Any] = {}
    for node in nodes:
        other = owner.setdefault(str(node), node)
        if other is not node:
            message = (
                f"graph must have nodes with distinct str(node); it is {str(node)!r} for both {other!r} and {node!r}."
            )
            raise InvalidMDP(message, parameter="graph", value=str(node))
    return list(owner)


def _iterate_edges(graph: Any) -> Iterator[tuple[Any, Any, Mapping[str, Any]]]:
    # The adjacency of an undirected graph lists each edge at both ends, and a self-loop once.
    for node, neighbours in graph.adjacency():
        for neighbour, data in neighbours.items():
            for attributes in data.values() if graph.is_multigraph() else (data,):
                yield node, neighbour, attributes


def _sort_attributes(
    features: tuple[str, ...], nodes: list[Any], node_data: list[Any], edges: list[Any]
) -> tuple[list[str], list[str]]:
    """Return the names of the state features and the names of the edge features."""
    on_nodes, on_edges = [], []
    for name in features:
        if not isinstance(name, str):
            raise InvalidMDP.of("features", name, "must contain names of attributes")
        bare_nodes = (repr(node) for node, data in zip(nodes, node_data, strict=True) if name not in data)
        bare_edges = (f"{source!r} -> {target!r}" for source, target, data in edges if name not in data)
        bare_node, bare_edge = next(bare_nodes, None), next(bare_edges, None)
        if bare_node is None and bare_edge is None and edges:
            message = f"features must be attributes of nodes or of edges; both have {name!r}. Rename one of the two."
            raise InvalidMDP(message, parameter="features", value=name)
        if bare_node is None:
            on_nodes.append(name)
        elif bare_edge is None and edges:
            on_edges.append(name)
        else:
            on_some_edges = any(name in data for _, _, data in edges)
            where = f"edge {bare_edge}" if on_some_edges else f"node {bare_node}"
            message = f"features must exist on every node or on every edge; {where} has no {name!r}."
            raise InvalidMDP(message, parameter="features", value=name)
    return on_nodes, on_edges


def _column(name: str, data: list[Any], labels: list[str]) -> FloatArray:
    column = np.empty(len(data))
    for row, attributes in enumerate(data):
        try:
            column[row] = attributes[name]
        except (TypeError, ValueError) as error:
            message = f"features must be numeric; {name!r} of {labels[row]} is {attributes[name]!r}."
            raise InvalidMDP(message, parameter="features", value=attributes[name], index=row) from error
    return column


def _look_up(node: Any, position: dict[Any, int], name: str) -> int:
    try:
        return position[node]
    except (KeyError, TypeError):  # TypeError: the value is not hashable
        rule = "must contain only nodes of the graph"
        raise InvalidMDP.of(name, node, rule, remedy="Correct it, or add the node.") from None
