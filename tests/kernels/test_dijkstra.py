"""Shortest paths against scipy's Dijkstra: costs, paths, limits, goals, and reused workspaces."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from limiirl.kernels.dijkstra import NOWHERE, Workspace, clear, make_workspace, pop, push, search, trace_path
from tests.helpers import examples

Graph = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]


def graph(seed: int, n: int = 40, degree: float = 2.5) -> Graph:
    """Pointers, tails, heads and costs of a random graph; some costs are 0, some edges are closed."""
    rng = np.random.default_rng(seed)
    pairs = np.argwhere(rng.random((n, n)) < degree / n)
    cost = rng.integers(1, 8, size=len(pairs)) * rng.random(len(pairs))
    cost[rng.random(len(pairs)) < 0.05] = np.inf
    ptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=n))]).astype(np.int64)
    return ptr, pairs[:, 0].astype(np.int32), pairs[:, 1].astype(np.int32), cost


def all_costs(made: Graph) -> NDArray[np.float64]:
    ptr, tail, head, cost = made
    open_ = np.isfinite(cost)
    n = ptr.size - 1
    matrix = sparse.csr_array((cost[open_], (tail[open_], head[open_])), shape=(n, n))
    return np.asarray(dijkstra(matrix))


def is_clean(work: Workspace) -> bool:
    return bool(np.all(np.isinf(work.dist)) and np.all(work.via == NOWHERE) and not work.done.any())


@pytest.mark.parametrize("seed", range(4))
def test_costs_equal_scipy_and_a_workspace_can_be_reused(seed: int):
    made = ptr, tail, head, cost = graph(seed)
    n = ptr.size - 1
    work, wanted = make_workspace(n, head.size), all_costs(made)
    for source in range(n):
        reached, touched = search(ptr, head, cost, source, NOWHERE, np.inf, work)
        np.testing.assert_allclose(work.dist, wanted[source], rtol=1e-12)
        order = work.order[:reached]
        assert order[0] == source
        assert sorted(order.tolist()) == np.flatnonzero(np.isfinite(wanted[source])).tolist()
        assert np.all(np.diff(work.dist[order]) >= 0.0)
        for goal in order.tolist():
            edges = trace_path(tail, work, goal)
            assert goal == (head[edges[-1]] if edges.size else source)
            assert np.array_equal(head[edges[:-1]], tail[edges[1:]])
            np.testing.assert_allclose(cost[edges].sum(), wanted[source, goal], rtol=1e-12, atol=1e-15)
        clear(work, touched)
        assert is_clean(work)


@pytest.mark.parametrize("limit", [0.0, 1.0, 4.0])
def test_a_limit_restricts_the_search_to_states_within_it(limit: float):
    made = ptr, _, head, cost = graph(7)
    wanted = all_costs(made)
    work = make_workspace(ptr.size - 1, head.size)
    for source in range(ptr.size - 1):
        reached, touched = search(ptr, head, cost, source, NOWHERE, limit, work)
        within = np.flatnonzero(wanted[source] <= limit)
        assert sorted(work.order[:reached].tolist()) == within.tolist()
        np.testing.assert_allclose(work.dist[within], wanted[source, within], rtol=1e-12)
        # Distances beyond the limit are upper bounds.
        assert np.all(work.dist >= wanted[source] * (1.0 - 1e-12))
        clear(work, touched)
        assert is_clean(work)


def test_a_goal_stops_the_search_and_its_cost_is_right():
    made = ptr, _, head, cost = graph(11)
    wanted = all_costs(made)
    work = make_workspace(ptr.size - 1, head.size)
    stopped = 0
    for source in range(ptr.size - 1):
        for goal in (source, 5, 17):
            reached, touched = search(ptr, head, cost, source, goal, np.inf, work)
            reachable = np.isfinite(wanted[source, goal])
            assert work.done[goal] == reachable
            if reachable:
                assert work.order[reached - 1] == goal
                np.testing.assert_allclose(work.dist[goal], wanted[source, goal], rtol=1e-12)
                stopped += reached < np.count_nonzero(np.isfinite(wanted[source]))
            clear(work, touched)
    assert stopped > 20


def test_edges_of_no_cost_loops_and_parallel_edges():
    ptr, head = np.array([0, 3, 4, 4]), np.array([0, 1, 1, 2], dtype=np.int32)
    tail = np.array([0, 0, 0, 1], dtype=np.int32)
    work = make_workspace(3, 4)
    search(ptr, head, np.array([1.0, 5.0, 0.0, 0.0]), 0, NOWHERE, np.inf, work)
    np.testing.assert_array_equal(work.dist, [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(trace_path(tail, work, 2), [2, 3])
    assert trace_path(tail, work, 0).size == 0


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=60))
@settings(max_examples=examples(60), deadline=None)
def test_the_heap_sorts(values: list[float]):
    keys, items = np.empty(len(values)), np.empty(len(values), dtype=np.int64)
    size = 0
    for i, value in enumerate(values):
        size = push(keys, items, size, value, i)
    taken = []
    while size:
        taken.append((float(keys[0]), int(items[0])))
        size = pop(keys, items, size)
    assert [key for key, _ in taken] == sorted(values)
    assert sorted(item for _, item in taken) == list(range(len(values)))
    assert all(values[item] == key for key, item in taken)
