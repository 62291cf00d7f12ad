"""Figures of a fit: their data, and what they draw."""

import numpy as np
import pytest

from limiirl.report.figures import (
    plot_composition,
    plot_memberships,
    plot_order,
    plot_reward_errors,
    plot_timeline,
    plot_trajectories,
    plot_visits,
)


def test_intervals_are_95_percent_and_all_features_are_in_the_data():
    thetas, errors = np.array([[1.0, -2.0, 0.0]]), np.array([[0.5, np.nan, 0.1]])
    plot = plot_reward_errors(thetas, errors, ["a", "b", "c"], ["only"], [["ok", "bound", "ok"]], features=[2, 0])
    assert [label.get_text() for label in plot.figure.axes[0].get_yticklabels()] == ["c", "a"]
    assert plot.columns["feature"] == ["a", "b", "c"]
    assert plot.rows[0]["high"] - plot.rows[0]["low"] == pytest.approx(2 * 1.96 * 0.5)
    assert np.isnan(plot.rows[1]["low"])


def test_a_huge_error_does_not_compress_the_other_rewards():
    plot = plot_reward_errors([[1.0, 2.0]], [[0.1, 1e5]], ["a", "b"], ["only"])
    low, high = plot.figure.axes[0].get_xlim()
    assert high - low < 10


def test_memberships_are_sorted_by_intent_and_probability():
    U = np.array([[0.4, 0.6], [0.9, 0.1], [0.1, 0.9], [0.6, 0.4]])
    assert plot_memberships(U, ["a", "b"]).columns["index"] == [1, 3, 2, 0]


def test_order_averages_posteriors_in_bins():
    U = np.repeat([[1.0, 0.0], [0.0, 1.0]], 50, axis=0)
    plot = plot_order(U, (np.arange(100) + 0.5) / 100, ["a", "b"], "position")
    assert plot.columns["a"] == [1.0] * 5 + [0.0] * 5
    assert plot.columns["demonstrations"] == [10] * 10


def test_time_lines_keep_the_order_of_each_recording():
    plot = plot_timeline([0, 1, 1, 0], [0.9, 0.8, 0.7, 1.0], [1, 0, 1, 0], ["ann", "bob"], ["x", "y"])
    rows = [(row["recording"], row["position"], row["intent"]) for row in plot.rows]
    assert rows == [("bob", 0, "x"), ("ann", 0, "y"), ("bob", 1, "y"), ("ann", 1, "x")]


def test_bars_of_groups_add_up_to_the_whole():
    plot = plot_composition([[0.25, 0.75], [1.0, 0.0]], ["ann", "bob"], ["x", "y"], [4, 2])
    bars = plot.figure.axes[0].patches
    assert [bar.get_x() + bar.get_width() for bar in bars[2:]] == [100.0, 100.0]
    assert plot.columns["demonstrations"] == [4, 2]


@pytest.mark.parametrize("grid", [True, False])
def test_states_on_a_line_are_drawn_without_warnings(grid):
    xy, links = np.column_stack([np.arange(4.0), np.zeros(4)]), np.array([[0, 1], [1, 2], [2, 3]])
    plot = plot_visits(xy, links, {"all": [1.0, 0.0, 5.0, 2.0]}, list("abcd"), grid=grid)
    assert plot.columns["all"] == [1.0, 0.0, 5.0, 2.0]
    assert "c" in plot.alt
    paths = plot_trajectories(xy, links, {"all": (0, [[0, 1, 2], [3]])}, grid=grid)
    assert paths.columns["state"] == [0, 1, 2, 3]


@pytest.mark.parametrize("grid", [True, False])
def test_colours_of_rewards_are_symmetric_around_zero(grid):
    xy, links = np.column_stack([np.arange(4.0), np.zeros(4)]), np.array([[0, 1], [1, 2], [2, 3]])
    plot = plot_visits(xy, links, {"all": [-2.0, 0.0, 1.0, 2.0]}, list("abcd"), grid=grid, rewards=True)
    cells = plot.figure.axes[0].collections[-1]
    cells.update_scalarmappable()
    red, _, blue, _ = cells.get_facecolor().T
    assert red[0] > blue[0]  # negative rewards are brown, positive ones blue
    assert red[3] < blue[3]
    assert abs(red[1] - blue[1]) < 0.05
    assert plot.columns["all"] == [-2.0, 0.0, 1.0, 2.0]


def test_steps_across_the_border_of_a_grid_are_not_drawn():
    xy, links = (
        np.column_stack([np.arange(6.0), np.zeros(6)]),
        np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [0, 5]]),
    )
    lines = plot_trajectories(xy, links, {"all": (0, [[1, 0, 5, 4]])}, grid=True).figure.axes[0].lines
    assert np.isnan(lines[0].get_xdata()).tolist() == [False, False, True, False, False]


def test_dots_at_the_border_of_a_map_are_whole():
    plot = plot_visits([[0.0, 0.0], [1.0, 4.0]], [[0, 1]], {"only": [0.1, 2.0]}, ["a", "b"])
    dots = plot.figure.axes[0].collections[-1]
    assert dots.get_sizes()[1] > 100.0
    assert not dots.get_clip_on()
