import numpy as np

from limiirl import MDP
from limiirl.errors import InvalidParameter
from limiirl.report.intents.layout import find_layout
from limiirl.worlds import ElementWorld
from tests.helpers import raises


def grid_mdp(rows: int, columns: int, **options: object) -> MDP:
    """A grid whose states are numbered row by row."""
    cells = [(r, c) for r in range(rows) for c in range(columns)]
    pairs = [
        (r * columns + c, (r + i) * columns + c + j)
        for r, c in cells
        for i, j in ((0, 1), (1, 0), (0, -1), (-1, 0))
        if 0 <= r + i < rows and 0 <= c + j < columns
    ]
    src, dst = np.array(pairs).T
    return MDP.from_edges(src, dst, gamma=0.9, p0=np.full(rows * columns, 1.0 / (rows * columns)), **options)


def test_names_of_cells_are_rows_and_columns_with_the_first_row_on_top():
    layout = find_layout(ElementWorld(n_elements=2, height=4).mdp)
    assert layout.kind == "grid"
    names = ElementWorld(n_elements=2, height=4).state_names
    assert layout.xy[names.index("(2, 1)")].tolist() == [1.0, -2.0]


def test_transitions_between_neighbouring_cells_are_a_grid():
    layout = find_layout(grid_mdp(3, 5))
    assert layout.kind == "grid"
    assert layout.xy[[0, 4, 5]].tolist() == [[0.0, 0.0], [4.0, 0.0], [0.0, -1.0]]


def test_features_x_and_y_are_coordinates():
    xy = np.array([[0.5, 2.0], [1.0, 1.0], [7.0, -3.0]])
    mdp = MDP.from_edges([0, 1], [1, 2], state_features=np.column_stack([xy, [1, 0, 0]]), feature_names=["x", "y", "z"])
    layout = find_layout(mdp)
    assert layout.kind == "coordinates"
    np.testing.assert_array_equal(layout.xy, xy)


def test_neighbours_in_a_graph_are_closer_than_other_states():
    # A binary tree of depth 3: no cells, no coordinates.
    child = np.arange(1, 15)
    mdp = MDP.from_edges(np.r_[(child - 1) // 2, child], np.r_[child, (child - 1) // 2], gamma=0.9)
    layout = find_layout(mdp)
    assert layout.kind == "graph"
    apart = np.linalg.norm(layout.xy[:, None] - layout.xy[None], axis=2)
    linked = apart[layout.links[:, 0], layout.links[:, 1]]
    assert linked.max() < 1.7
    assert apart[7, 14] > 2.0 * linked.max()
    assert len(layout.links) == 14


def test_dense_graphs_have_no_layout():
    src, dst = np.nonzero(1 - np.eye(12))
    assert find_layout(MDP.from_edges(src, dst, gamma=0.9)) is None
    assert find_layout(None) is None


def test_coordinates_need_one_row_per_state():
    with raises(InvalidParameter, parameter="coordinates", value=(2, 2)):
        find_layout(grid_mdp(3, 3), np.zeros((2, 2)))
