"""Map matching by brute force: every sequence of candidates of a small trip, routes by networkx over segments."""

import itertools

import networkx as nx
import numpy as np


def routes(network):
    """The graph of segments: the weight of a turn is the length of the segment it leaves."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(network.n_segments))
    for a, b in zip(network.turn_from.tolist(), network.turn_to.tolist(), strict=True):
        graph.add_edge(a, b, weight=float(network.length_m[a]))
    return graph


def route_m(network, graph, start, end, back_m, streets):
    """Driven metres from (segment, metres along it) to another; negative for a step back along one street."""
    (a, p), (b, q) = start, end
    chain = streets[a]
    if b in chain:
        ahead = _position(network, chain, b, q) - _position(network, chain, a, p)
        if ahead >= -back_m:
            return ahead
    best = np.inf
    for _, first in graph.out_edges(a):
        try:
            best = min(best, nx.dijkstra_path_length(graph, first, b))
        except nx.NetworkXNoPath:
            continue
    return network.length_m[a] - p + best + q


def chains(network):
    """For each segment those on its street: joined by the only turn out of one, which is the only one into the next."""
    ways_out = [[] for _ in range(network.n_segments)]
    ways_in = [[] for _ in range(network.n_segments)]
    for a, b in zip(network.turn_from.tolist(), network.turn_to.tolist(), strict=True):
        ways_out[a].append(b)
        ways_in[b].append(a)
    follow = {a: out[0] for a, out in enumerate(ways_out) if len(out) == 1 and len(ways_in[out[0]]) == 1}
    led = set(follow.values())
    chain_of = {}
    for start in [s for s in range(network.n_segments) if s not in led] + list(range(network.n_segments)):
        chain, s = [], start
        while s is not None and s not in chain_of and s not in chain:
            chain.append(s)
            s = follow.get(s)
        chain_of |= dict.fromkeys(chain, chain)
    return chain_of


def enumerate_sequences(network, xy, time_s, layers, *, sigma_m, beta_m, back_m, speed_ms, slack_m):
    """Return all sequences (candidate numbers per layer) with their log-weights.

    `layers` holds for each fix its candidates as (segment, metres along, distance).
    """
    graph, streets = routes(network), chains(network)
    emission = [[-0.5 * (d / sigma_m) ** 2 for _, _, d in layer] for layer in layers]
    steps = []
    for k in range(1, len(layers)):
        straight = float(np.hypot(*(xy[k] - xy[k - 1])))
        limit = speed_ms * (time_s[k] - time_s[k - 1]) + slack_m
        table = np.full((len(layers[k - 1]), len(layers[k])), -np.inf)
        for (i, (a, p, _)), (j, (b, q, _)) in itertools.product(enumerate(layers[k - 1]), enumerate(layers[k])):
            route = route_m(network, graph, (a, p), (b, q), back_m, streets)
            if route <= limit:
                table[i, j] = -abs(route - straight) / beta_m
        steps.append(table)
    sequences = list(itertools.product(*(range(len(layer)) for layer in layers)))
    weights = [
        sum(emission[k][c] for k, c in enumerate(sequence))
        + sum(steps[k][sequence[k], sequence[k + 1]] for k in range(len(steps)))
        for sequence in sequences
    ]
    return np.array(sequences), np.array(weights)


def _position(network, chain, segment, along):
    return sum(network.length_m[s] for s in chain[: chain.index(segment)]) + along
