"""build_graph: the same edges in both directions, in the table and beyond it, whatever the degrees."""

import numpy as np
import pytest
from numpy.typing import NDArray

from limiirl._parallel import BLOCK
from limiirl.kernels.forward_backward import linear
from limiirl.kernels.graph import Alpha, CountBuffers, Neighbours, PathGraph, Rewards, Weights, build_graph

Int = NDArray[np.int64]


def random_edges(n_states: int, n_edges: int, seed: int = 0, heavy: float = 0.0) -> tuple[Int, Int]:
    """Distinct edges; `heavy` is the share of them that have state 0 at one end or the other."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(n_states, size=(2, n_edges))
    src[rng.random(n_edges) < heavy / 2] = 0
    dst[rng.random(n_edges) < heavy / 2] = 0
    pairs = np.unique(src * n_states + dst)
    rng.shuffle(pairs)
    return pairs // n_states, pairs % n_states


def star(n_leaves: int) -> tuple[Int, Int]:
    leaves = np.arange(1, n_leaves + 1)
    return np.concatenate([np.zeros_like(leaves), leaves[::3]]), np.concatenate([leaves, np.zeros_like(leaves[::3])])


GRAPHS = {
    "one state": (1, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)),
    "no edges": (7, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)),
    "self-loop": (1, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)),
    "chain": (5, np.arange(4), np.arange(1, 5)),
    "dense": (9, *random_edges(9, 300)),
    "sparse": (200, *random_edges(200, 300)),
    "hub": (701, *star(700)),
    "heavy": (300, *random_edges(300, 900, heavy=0.8)),
    "large": (3 * BLOCK + 17, *random_edges(3 * BLOCK + 17, 14_000)),
    "large hub": (BLOCK + 500, *random_edges(BLOCK + 500, 6_000, heavy=0.4)),
}
graphs = pytest.mark.parametrize("name", GRAPHS)


def build(name: str) -> tuple[PathGraph, int, Int, Int]:
    n_states, src, dst = GRAPHS[name]
    return build_graph(n_states, src, dst), n_states, src, dst


def owners(near: Neighbours) -> Int:
    return np.repeat(np.arange(near.ptr.size - 1), np.diff(near.ptr.astype(np.int64)))


def slots_and_rest(near: Neighbours) -> list[tuple[int, int]]:
    """(state, neighbour) of all that a sweep reads: the table's slots that are not empty, and what is beyond it."""
    n_states = near.ptr.size - 1
    table = near.table.reshape(n_states, near.width)
    listed = [(s, int(other)) for s in range(n_states) for other in table[s] if other != n_states]
    for s in range(n_states):
        listed += [(s, int(other)) for other in near.idx[int(near.ptr[s]) + near.width : int(near.ptr[s + 1])]]
    return listed


@graphs
def test_states_and_edges_are_renumbered_without_loss(name: str) -> None:
    graph, n_states, src, _ = build(name)
    assert (graph.n_states, graph.n_edges) == (n_states, src.size)
    np.testing.assert_array_equal(np.sort(graph.order), np.arange(n_states))
    np.testing.assert_array_equal(graph.order[graph.rank], np.arange(n_states))
    np.testing.assert_array_equal(np.sort(graph.edge_order), np.arange(src.size))
    np.testing.assert_array_equal(np.sort(graph.in_edge), np.arange(src.size))


@graphs
def test_each_direction_holds_the_callers_edges(name: str) -> None:
    graph, _, src, dst = build(name)
    np.testing.assert_array_equal(graph.order[owners(graph.out)], src[graph.edge_order])
    np.testing.assert_array_equal(graph.order[graph.out.idx], dst[graph.edge_order])
    np.testing.assert_array_equal(graph.order[owners(graph.into)], dst[graph.edge_order][graph.in_edge])
    np.testing.assert_array_equal(graph.order[graph.into.idx], src[graph.edge_order][graph.in_edge])


@graphs
def test_neighbours_are_sorted_so_that_memory_is_read_in_order(name: str) -> None:
    graph, n_states, _, _ = build(name)
    for near in (graph.out, graph.into):
        key = owners(near) * n_states + near.idx
        assert np.all(np.diff(key) > 0)


@graphs
def test_table_and_rest_are_the_edges_once_each(name: str) -> None:
    graph, _, _, _ = build(name)
    for near in (graph.out, graph.into):
        expected = list(zip(owners(near).tolist(), near.idx.tolist(), strict=True))
        assert sorted(slots_and_rest(near)) == expected
        # A slot's edge is the one at ptr + slot, which is where its weight is read from.
        table, degree = near.table.reshape(-1, near.width), np.diff(near.ptr.astype(np.int64))
        for s in np.flatnonzero(degree)[:200]:
            filled = min(near.width, degree[s])
            np.testing.assert_array_equal(table[s, :filled], near.idx[near.ptr[s] : near.ptr[s] + filled])
            assert np.all(table[s, filled:] == graph.n_states)


@pytest.mark.parametrize(
    ("degrees", "width"),
    [
        ([0, 0, 0], 3),  # the kernels read three slots without asking
        ([1, 1, 1, 1], 3),
        ([3] * 10, 3),
        ([5] * 10, 5),  # a slot for each, rather than four units for the fifth neighbour
        ([2] * 99 + [100], 3),  # one hub does not widen everyone's row
        ([3] * 3 + [4], 3),  # exactly as much work: the narrower table
        ([3] * 2 + [4], 4),
        ([300] * 5, 64),  # never wider than what is worth unrolling
    ],
)
def test_width_is_that_of_least_work(degrees: list[int], width: int) -> None:
    n_states = len(degrees)
    dst = np.concatenate([np.arange(degree) % n_states for degree in degrees])
    out = build_graph(n_states, np.repeat(np.arange(n_states), degrees), dst).out
    assert out.width == width
    assert out.table.size == n_states * width
    assert out.overflows == (max(degrees) > width)


@graphs
@pytest.mark.parametrize(("weighted", "n_columns"), [(True, 1), (False, 3)])
def test_passes_sum_over_every_edge(name: str, weighted: bool, n_columns: int) -> None:
    graph, n_states, src, dst = build(name)
    rng = np.random.default_rng(3)
    given = rng.random((n_states, n_columns))
    prob = rng.random(src.size) if weighted else np.ones(src.size)
    columns = (0,) * n_columns
    departed, arrived = np.zeros((n_states, n_columns)), np.zeros((n_states, n_columns))
    np.add.at(departed, src, prob[:, None] * given[dst])
    np.add.at(arrived, dst, prob[:, None] * given[src])

    start = np.zeros((2, (n_states + 1) * n_columns))
    start[1, : n_states * n_columns] = given[graph.order].ravel()
    sides = [prob[graph.edge_order], prob[graph.edge_order][graph.in_edge]]
    out, into = (_rewards(n_states, n_columns, side if weighted else None) for side in sides)
    exponents = np.zeros((2, n_columns), np.int64)
    linear.backward(graph.out, out, _weights(graph.out, out, columns), None, start, exponents, 0, columns)
    actual = np.ldexp(start[0, :-n_columns].reshape(n_states, n_columns)[graph.rank], exponents[0])
    np.testing.assert_allclose(actual, 1 + departed, rtol=1e-13)

    value = np.zeros((2, (n_states + 1) * n_columns))
    value[0, : n_states * n_columns] = given[graph.order].ravel()
    alpha = Alpha(value, np.zeros(n_columns, np.int64), np.zeros(n_columns))
    ones = np.ones((2, (n_states + 1) * n_columns))
    nothing = CountBuffers(np.zeros(n_states * n_columns), None, None, None)
    linear.forward(
        graph.into,
        into,
        _weights(graph.into, into, columns),
        ones,
        np.zeros((2, n_columns), np.int64),
        alpha,
        np.ones(2),
        nothing,
        0,
        columns,
    )
    actual = value[1, :-n_columns].reshape(n_states, n_columns)[graph.rank]
    np.testing.assert_allclose(actual, arrived, rtol=1e-13)
    np.testing.assert_array_equal(nothing.node, value[1, :-n_columns])


def _rewards(n_states: int, n_columns: int, prob: NDArray[np.float64] | None) -> Rewards:
    return Rewards(np.zeros(n_states * n_columns), prob, None, np.ones(2), True)


def _weights(near: Neighbours, rewards: Rewards, columns: tuple[int, ...]) -> Weights:
    edge = None if rewards.prob is None else np.zeros((near.idx.size + near.width) * len(columns))
    weights = Weights(np.empty(rewards.node.size), edge)
    linear.fill(near, rewards, weights, columns)
    return weights


@pytest.mark.parametrize(("narrow", "blocks", "waves"), [(True, 60, True), (True, 20, False), (False, 60, False)])
def test_no_edge_reaches_beyond_a_block_of_a_wave(narrow: bool, blocks: int, waves: bool) -> None:
    n_states = blocks * BLOCK + 5
    src = np.arange(n_states - 3)
    # A graph with edges at random is wide in any order.
    far = src + 3 if narrow else np.random.default_rng(0).permutation(n_states)[:-3]
    graph = build_graph(n_states, np.concatenate([src, far]), np.concatenate([src + 1, src]))
    for near in (graph.out, graph.into):
        assert (near.block > 0) == waves
        if waves:
            assert near.block >= np.abs(owners(near) - near.idx.astype(np.int64)).max()


def test_a_small_graph_keeps_the_callers_numbering() -> None:
    graph, _, _, _ = build("sparse")
    np.testing.assert_array_equal(graph.order, np.arange(200))


def test_a_large_graph_is_renumbered_for_locality() -> None:
    # A path whose states are numbered at random: neighbours are n / 3 apart, and 1 apart after renumbering.
    n = BLOCK + 1
    place = np.random.default_rng(0).permutation(n)
    graph = build_graph(n, place[:-1], place[1:])
    assert np.abs(owners(graph.out) - graph.out.idx.astype(np.int64)).max() == 1
