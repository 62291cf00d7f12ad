"""Traversal of an elimination tree on a GPU: levels, tiles, ancestor paths and ranges of descendants."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiirl.kernels.elimination.numeric import (
    compute_heights,
    find_lca_depths,
    make_tiles,
    make_tree_paths,
    number_preorder,
)
from limiirl.kernels.elimination.symbolic import factorise


@st.composite
def forests(draw: st.DrawFn) -> np.ndarray:
    """The parent of each state, which is numbered higher, or -1."""
    n = draw(st.integers(1, 30))
    return np.array([draw(st.sampled_from([-1, *range(v + 1, n)])) for v in range(n)], dtype=np.int64)


def above(parent: np.ndarray, v: int) -> list[int]:
    """Return a state and its ancestors."""
    ancestors = []
    while v != -1:
        ancestors.append(v)
        v = int(parent[v])
    return ancestors


def depths(parent: np.ndarray) -> np.ndarray:
    return np.array([len(above(parent, v)) - 1 for v in range(parent.size)])


def test_states_that_come_last_are_above_all_that_lead_to_them() -> None:
    src, dst = np.array([0, 1, 2, 3, 0, 1, 2, 3]), np.array([1, 2, 3, 0, 4, 4, 4, 5])
    symbolic = factorise(6, src, dst, last=2)
    assert symbolic.rank[4:].tolist() == [4, 5]
    assert sorted(symbolic.rank[:4]) == [0, 1, 2, 3]
    assert factorise(6, src, dst).rank[4] != 4  # by its degree alone state 4 would come sooner


@given(parent=forests())
def test_ranges_hold_what_is_below(parent: np.ndarray) -> None:
    number, end = number_preorder(parent)
    assert sorted(number) == list(range(parent.size))
    for v in range(parent.size):
        below = {u for u in range(parent.size) if v in above(parent, u)}
        assert {u for u in range(parent.size) if number[v] <= number[u] < end[v]} == below
        assert compute_heights(parent)[v] == max(depths(parent)[u] - depths(parent)[v] for u in below)


@given(parent=forests(), data=st.data())
def test_tree_paths_are_ancestors_and_depths_are_of_common_ancestors(parent: np.ndarray, data: st.DataObject) -> None:
    states = st.lists(st.integers(0, parent.size - 1), min_size=1, unique=True)
    nodes = np.array(data.draw(states), dtype=np.int64)
    paths = make_tree_paths(parent, depths(parent), nodes)
    assert sorted(paths.node) == sorted(nodes)
    for i, v in enumerate(paths.node):
        assert paths.path[paths.ptr[i] : paths.ptr[i + 1]].tolist() == above(parent, int(v))
    for v, first, last in zip(paths.on_paths, paths.first, paths.last, strict=True):
        through = [i for i, u in enumerate(paths.node) if v in above(parent, int(u))]
        assert through == list(range(first, last))
    other = nodes[::-1].copy()
    for one, two, depth in zip(nodes, other, find_lca_depths(parent, depths(parent), nodes, other), strict=True):
        shared = set(above(parent, int(one))) & set(above(parent, int(two)))
        assert depth == max((int(depths(parent)[v]) for v in shared), default=-1)


@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (10, 3), (341, 132), (1024, 132)])
def test_tiles_contain_every_column_once_within_a_block(rows: int, blocks: int) -> None:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 400, (2, 600))
    made = factorise(400, src, dst)
    height, columns = compute_heights(made.parent), np.diff(made.low_ptr)
    placed = make_tiles(height, columns, np.diff(made.up_ptr), rows, blocks)
    wide, lanes = placed.wide.astype(int), placed.lanes.astype(int)
    assert np.all(wide * lanes <= rows)
    assert np.all((wide & (wide - 1)) == 0)
    assert np.all((lanes & (lanes - 1)) == 0)
    level = np.repeat(np.arange(wide.size), np.diff(placed.ptr))
    np.testing.assert_array_equal(height[placed.state], level)
    covered = [
        (int(s), int(first) + c)
        for s, first, n in zip(placed.state, placed.first, wide[level], strict=True)
        for c in range(n)
        if first + c < columns[s]
    ]
    assert sorted(covered) == [(s, c) for s in range(400) for c in range(columns[s])]


def test_a_lone_wide_state_is_spread_over_the_blocks() -> None:
    placed = make_tiles(np.zeros(1, dtype=np.int64), np.array([200]), np.array([5000]), 1024, 132)
    assert placed.state.size == 50  # tiles of 4 columns
    assert (int(placed.wide[0]), int(placed.lanes[0])) == (4, 256)
