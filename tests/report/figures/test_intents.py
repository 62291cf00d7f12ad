"""Figures of one fit show the given values: convergence, responsibilities, weights, rewards, matching and switches."""

import math

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, PathPatch, StepPatch

from limiirl.metrics.plotting import draw_flow
from limiirl.report.figures import (
    plot_convergence,
    plot_ethogram,
    plot_flow,
    plot_responsibilities,
    plot_rewards,
    plot_switches,
    plot_weights,
)
from limiirl.report.svg import INK, SERIES
from tests.oracles.report import render

NAN = float("nan")
HARD, RANDOM = "k-means, MLE", "random rewards"


def test_convergence_shows_histories_and_differences():
    histories = {HARD: [22.0, 20.5, 20.0], RANDOM: [30.0, 25.0, 22.0, 20.25], "supervised": [], "failed": [None]}
    drawn = plot_convergence(histories)
    render(drawn)
    raw, excess = drawn.figure.axes
    assert [line.get_ydata().tolist() for line in raw.lines] == [histories[HARD], histories[RANDOM]]
    assert [line.get_xdata().tolist() for line in raw.lines] == [[0, 1, 2], [0, 1, 2, 3]]
    np.testing.assert_array_equal(excess.lines[0].get_ydata(), [2.0, 0.5, NAN])  # 0 is not on the log axis
    np.testing.assert_array_equal(excess.lines[1].get_ydata(), [10.0, 5.0, 2.0, 0.25])
    assert (raw.get_yscale(), excess.get_yscale()) == ("linear", "log")
    assert [row["excess"] for row in drawn.rows] == [2.0, 0.5, 0.0, 10.0, 5.0, 2.0, 0.25]
    assert "k-means, MLE: 20 after 2 iterations;" in drawn.alt
    # The last iteration has a marker.
    assert plot_convergence({HARD: np.linspace(9, 1, 50)}).figure.axes[0].lines[0].get_markevery()[-1] == 49


def test_convergence_with_at_most_one_value():
    assert plot_convergence({}).rows == []
    render(plot_convergence({}))
    render(plot_convergence({HARD: [20.0]}))
    # Rounding errors are set to 0.
    assert [row["excess"] for row in plot_convergence({HARD: [20.0 + 1e-12, 20.0]}).rows] == [0.0, 0.0]


def test_responsibilities_are_sorted_by_true_intent_and_certainty():
    U = np.array([[0.6, 0.4], [0.1, 0.9], [0.9, 0.1], [0.7, 0.3], [0.4, 0.6]])
    labels = np.array([0, 1, 0, 1, 1])
    drawn = plot_responsibilities(U, labels, ["grass", "water"])
    picture = render(drawn)
    order = [2, 0, 1, 4, 3]
    assert [row["demonstration"] for row in drawn.rows] == order
    assert [row["true"] for row in drawn.rows] == [0, 0, 1, 1, 1]
    np.testing.assert_array_equal([[row["u_0"], row["u_1"]] for row in drawn.rows], U[order])
    truth, strip = drawn.figure.axes
    steps = [patch for patch in strip.patches if isinstance(patch, StepPatch)]
    for k, patch in enumerate(steps):
        values, edges, baseline = patch.get_data()
        np.testing.assert_allclose((baseline - values) / 0.9, U[order, k], rtol=1e-12)
        np.testing.assert_array_equal(edges, np.arange(6))
        assert to_rgb(patch.get_facecolor()) == to_rgb(SERIES[k])
    bars = [(bar.get_x(), bar.get_width(), to_rgb(bar.get_facecolor())) for bar in truth.patches]
    assert bars == [(0.0, 2.0, to_rgb(SERIES[0])), (2.0, 3.0, to_rgb(SERIES[1]))]
    assert "grass" in picture
    assert "for 4 of them" in drawn.alt


def test_responsibilities_with_fewer_learned_than_true_intents():
    one = plot_responsibilities(
        np.ones((4, 1)), [2, 0, 1, 0], ["a", "b"]
    )  # K = 1, three true intents, two of them named
    render(one)
    assert [row["demonstration"] for row in one.rows] == [1, 3, 2, 0]
    render(plot_responsibilities(np.random.default_rng(0).dirichlet(np.ones(9), 2500), np.arange(2500) % 9, []))


def test_weights_are_in_percent():
    drawn = plot_weights([0.5, 0.3, 0.2], [0.6, 0.4], [])
    render(drawn)
    (ax,) = drawn.figure.axes
    joins, rings, dots = (
        [line.get_xdata() for line in ax.lines if line.get_marker() == marker] for marker in ("None", "D", "o")
    )
    np.testing.assert_allclose(joins, [[50, 60], [30, 40], [20, NAN]], rtol=1e-12)
    np.testing.assert_allclose(np.ravel(rings), [50, 30, 20], rtol=1e-12)
    np.testing.assert_allclose(np.ravel(dots), [60, 40, NAN], rtol=1e-12)
    assert math.isnan(drawn.rows[2]["learned"])
    assert ax.get_xlim()[0] == 0.0
    assert ax.get_xlim()[1] > 60.0


def test_learned_and_true_rewards_are_drawn_at_their_values():
    true = np.array([[-1.0, 0.0, -10.0], [-1.0, 0.0, -5.0]])
    learned = true + np.array([[0.5, 0.0, 1.0], [0.0, 0.25, -2.0]])
    drawn = plot_rewards(learned, ["start", "goal", "water"], true, ["wader", "walker"])
    render(drawn)
    for k, ax in enumerate(drawn.figure.axes[:2]):
        rings, dots = ([line for line in ax.lines if line.get_marker() == marker] for marker in ("D", "o"))
        assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in rings] == [(x, j) for j, x in enumerate(true[k])]
        assert [line.get_xdata()[0] for line in dots] == learned[k].tolist()
        assert [label.get_text() for label in ax.get_yticklabels()] == (
            ["start", "goal", "water"] if k == 0 else [""] * 3
        )
        assert ax.get_title(loc="left") == ["wader", "walker"][k]
        assert ax.get_xlim() == drawn.figure.axes[0].get_xlim()
    assert len(drawn.rows) == 6
    assert drawn.rows[5] == {"intent": "walker", "feature": "water", "true": -5.0, "learned": -7.0}
    assert "largest error is 2 (water, intent 1)" in drawn.alt


def test_rewards_with_different_numbers_of_learned_and_true_intents():
    assert "$a$" in render(plot_rewards([[1.0, 2.0]], ["$a$", "b" * 80], [[0.0, 0.0]], ["only"]))
    more = plot_rewards(np.ones((3, 2)), ["a", "b"], [[0.0, 0.0]], ["only"])
    render(more)
    assert [row["intent"] for row in more.rows] == ["only", "only", "intent 1", "intent 1", "intent 2", "intent 2"]
    render(plot_rewards(np.ones((1, 2)), ["a", "b"], np.zeros((2, 2)), []))


WEIGHTS = np.array([[0.4, 0.1], [0.0, 0.5]])
COSTS = np.array([[0.0, 50.0], [70.0, 25.0]])


def test_flow_draws_the_pairs_that_are_paired():
    drawn = plot_flow(WEIGHTS, COSTS, 17.5)
    render(drawn)
    ribbons = [patch for patch in drawn.figure.axes[0].patches if isinstance(patch, PathPatch)]
    widths = [float(np.ptp(patch.get_path().vertices[[0, -1], 1])) for patch in ribbons]
    np.testing.assert_allclose(widths, [0.4, 0.1, 0.5], rtol=1e-12)
    assert [(row["true"], row["learned"], row["contribution"]) for row in drawn.rows] == [
        (0, 0, 0.0),
        (0, 1, 5.0),
        (1, 1, 12.5),
    ]
    assert "with GEVD 17.5." in drawn.alt
    assert "learned 1 and true 1 (50 %, EVD 25)" in drawn.alt
    render(plot_flow([[1.0]], [[0.0]], 0.0))


def luminance(colour: object) -> float:
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]  # type: ignore[arg-type]
    return 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2]


def test_numbers_on_ribbons_have_contrast():
    costs = np.linspace(0.0, 100.0, 16).reshape(4, 4)
    ax = Figure().add_subplot()
    draw_flow(ax, np.full((4, 4), 1 / 16), costs, "evd", ink=INK)
    ribbons = [patch for patch in ax.patches if isinstance(patch, PathPatch)]
    numbers = [text for text in ax.texts if "%" not in text.get_text()]
    assert [text.get_text() for text in numbers] == [f"{cost:.3g}" for cost in costs.ravel()]
    for patch, text in zip(ribbons, numbers, strict=True):
        dark, light = sorted((luminance(patch.get_facecolor()[:3]), luminance(text.get_color())))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, text.get_text()
    assert {text.get_color() for text in numbers} == {"#000000", "#ffffff"}
    assert {text.get_color() for text in ax.texts if "%" in text.get_text()} == {INK}


def test_ethogram_draws_the_segments_and_the_posterior_of_each_recording():
    path = np.array([0, 0, 1, 1, 1, 0, 2, 2])
    U = np.random.default_rng(0).dirichlet(np.ones(3), size=8)
    drawn = plot_ethogram(path, U, [5, 3], ["day 1", "day 2"], ["a", "b", "c"])
    render(drawn)
    ax = drawn.figure.axes[0]
    boxes = [box.get_extents() for collection in ax.collections for box in collection.get_paths()]
    # (row, first step, last step) of each segment, with one collection per recording and intent.
    spans = sorted((round(box.y0 + 0.45), box.x0, box.x1) for box in boxes)
    assert spans == [(0, 0.0, 2.0), (0, 2.0, 5.0), (1, 0.0, 1.0), (1, 1.0, 3.0)]
    colours = {tuple(collection.get_facecolor()[0][:3]) for collection in ax.collections}
    assert colours == {to_rgb(SERIES[k]) for k in range(3)}
    areas = [patch for patch in ax.patches if isinstance(patch, StepPatch)]
    heights = [patch.get_data().baseline - patch.get_data().values for patch in areas]
    np.testing.assert_allclose(np.array(heights[:3]).T, 0.5 * U[:5], rtol=1e-12)
    assert [row["step"] for row in drawn.rows] == [0, 1, 2, 3, 4, 0, 1, 2]
    assert [row["intent"] for row in drawn.rows] == list("aabbbacc")
    assert "2 recordings, with 2 switches" in drawn.alt


def test_posteriors_of_long_recordings_are_averaged_in_bins():
    U = np.random.default_rng(1).dirichlet(np.ones(2), size=1000)
    drawn = plot_ethogram(U.argmax(axis=1), U, [1000], ["x"], ["a", "b"])
    render(drawn)
    areas = [patch.get_data() for patch in drawn.figure.axes[0].patches if isinstance(patch, StepPatch)]
    means = 2.0 * (areas[0].baseline - areas[0].values)
    assert means.size == 240
    np.testing.assert_allclose(np.sum(means * np.diff(areas[0].edges)), U[:, 0].sum(), rtol=1e-12)


def test_graph_of_switches_draws_probabilities_shares_and_dwell_times():
    P = np.array([[0.0, 0.75, 0.25], [0.99, 0.0, 0.01], [NAN, NAN, NAN]])
    drawn = plot_switches(P, [0.5, 0.3, 0.2], [20.0, 8.0, np.inf], ["water", "home", "rest"])
    render(drawn)
    ax = drawn.figure.axes[0]
    texts = [text.get_text() for text in ax.texts]
    assert sorted(text for text in texts if "\n" not in text) == ["25 %", "75 %", "99 %"]  # 1 % is not drawn
    assert {"water\n50 %, 20 steps", "home\n30 %, 8 steps", "rest\n20 %, never ends"} < set(texts)
    widths = [patch.get_linewidth() for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    np.testing.assert_allclose(np.diff(widths), 3.0 * np.diff([0.75, 0.25, 0.99]), rtol=1e-12)
    radius = [patch.radius for patch in ax.patches if isinstance(patch, Circle)]
    assert radius == sorted(radius, reverse=True)
    assert len(drawn.rows) == 6
    assert "from home to water (99 %)" in drawn.alt
