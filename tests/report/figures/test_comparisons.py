"""Figures of studies show the given values: box plots, sweeps, margins and paired differences."""

import math

import numpy as np
import pytest
from matplotlib.cbook import boxplot_stats
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy import stats

from limiirl.errors import InvalidParameter
from limiirl.experiments.spec import METHODS
from limiirl.report.figures import plot_boxes, plot_differences, plot_margin, plot_sweep
from limiirl.report.figures.comparisons import five_numbers
from limiirl.report.figures.style import MEASURES, method_styles
from limiirl.report.svg import MUTED, SERIES, VARIABLES
from tests.helpers import raises
from tests.oracles.report import render

NAN = float("nan")
HARD, RANDOM = "k-means, MLE", "random rewards"
ODD = ["$\\frac{$", "_private", "a method with quite a long name of many words, and more of them", "x" * 90, "<b>&", ""]


def panel(figure: Figure, title: str):
    return next(ax for ax in figure.axes if ax.get_title(loc="left").split(",")[0] == title)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 100])
@pytest.mark.parametrize("seed", range(5))
def test_five_numbers_agree_with_matplotlib(n: int, seed: int):
    values = np.random.default_rng(seed).standard_t(1.5, size=n)
    numbers, expected = five_numbers([*values, None, NAN]), boxplot_stats(values)[0]
    assert (numbers.n, numbers.failed) == (n, 2)
    for name, theirs in (("mean", "mean"), ("q1", "q1"), ("median", "med"), ("q3", "q3"), ("low", "whislo")):
        np.testing.assert_allclose(getattr(numbers, name), expected[theirs], rtol=1e-13)
    np.testing.assert_allclose(numbers.high, expected["whishi"], rtol=1e-13)
    np.testing.assert_array_equal(sorted(numbers.outliers), sorted(expected["fliers"]))
    np.testing.assert_allclose(numbers[4:7], np.percentile(values, [25, 50, 75]), rtol=1e-13)


def test_whisker_does_not_end_inside_its_box():
    # Q3 = 25 is between the values, and no value above it is within 1.5 IQR: the whisker ends at the box.
    values = [0.0, 0.0, 0.0, 100.0]
    numbers, expected = five_numbers(values), boxplot_stats(values)[0]
    assert (numbers.low, numbers.high) == (expected["whislo"], expected["whishi"]) == (0.0, 25.0)
    assert numbers.outliers == (100.0,)
    assert numbers.q1 <= numbers.median <= numbers.q3 <= numbers.high


def test_five_numbers_without_finite_values():
    numbers = five_numbers([None, NAN, math.inf])
    assert (numbers.n, numbers.failed, numbers.outliers) == (0, 3, ())
    assert math.isnan(numbers.median)


def test_boxes_are_drawn_at_the_quartiles():
    rng = np.random.default_rng(0)
    values = {m: {name: rng.lognormal(size=40) for name in METHODS} for m in MEASURES}
    reference = {"nll": {HARD: (19.65, 0.32)}}
    drawn = plot_boxes(values, reference)
    render(drawn)
    assert len(drawn.rows) == len(MEASURES) * len(METHODS)
    for measure, by_method in values.items():
        ax = panel(drawn.figure, MEASURES[measure].title)
        rectangles = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
        lines = [(tuple(line.get_xdata()), line) for line in ax.lines]
        for y, (method, sample) in enumerate(by_method.items()):
            numbers = five_numbers(sample)
            box = rectangles[y].get_x(), rectangles[y].get_x() + rectangles[y].get_width()
            np.testing.assert_allclose(box, (numbers.q1, numbers.q3), rtol=1e-13)
            assert rectangles[y].get_y() + rectangles[y].get_height() / 2 == pytest.approx(y, abs=1e-12)
            mine = [xs for xs, line in lines if line.get_color() == method_styles([method])[method].colour]
            assert (numbers.low, numbers.q1) in mine
            assert (numbers.q3, numbers.high) in mine
            assert numbers.outliers in mine
            assert (numbers.median, numbers.median) in [xs for xs, _ in lines]
            (row,) = [row for row in drawn.rows if (row["measure"], row["method"]) == (measure, method)]
            assert [row[key] for key in ("low", "q1", "median", "q3", "high")] == list(numbers[3:8])
            assert [float(x) for x in row["outliers"].split()] == pytest.approx(list(numbers.outliers), rel=1e-9)
    (paper,) = [row for row in drawn.rows if row["paper"] == row["paper"]]
    assert (paper["measure"], paper["method"], paper["paper_half_width"]) == ("nll", HARD, 0.32)
    nll = panel(drawn.figure, "NLL")
    (bar,) = [c for c in nll.collections if isinstance(c, LineCollection)]
    np.testing.assert_allclose(bar.get_segments()[0][:, 0], [19.33, 19.97], rtol=1e-12)
    assert [tick.get_text() for tick in nll.get_yticklabels()][:2] == list(METHODS)[:2]


def test_methods_without_values_are_marked():
    drawn = plot_boxes({"n_iter": {HARD: [3.0, 4.0]}, "nll": {HARD: [1.0, 2.0], "supervised": [None, 2.0]}})
    render(drawn)
    assert [text.get_text() for text in panel(drawn.figure, "Iterations").texts] == ["no data"]
    assert [(row["method"], row["n"], row["failed"]) for row in drawn.rows if row["measure"] == "nll"] == [
        (HARD, 2, 0),
        ("supervised", 1, 1),
    ]


def test_positive_values_with_a_large_ratio_have_a_log_axis():
    spread = {HARD: [1.0, 50.0]}
    scales = [
        plot_boxes({"seconds": values}).figure.axes[0].get_xscale()
        for values in (spread, {HARD: [0.0, 50.0]}, {HARD: [10.0, 50.0]})
    ]
    assert scales == ["log", "linear", "linear"]
    assert plot_boxes({"nll": spread}).figure.axes[0].get_xscale() == "linear"


def test_sweep_draws_means_and_intervals():
    rng = np.random.default_rng(1)
    xs = (20, 40, 100, 200, 400)
    values = {m: {name: {x: rng.lognormal(1.0, 0.3, 20) for x in xs} for name in METHODS} for m in MEASURES}
    drawn = plot_sweep(values, "demonstrations N", mark=100, mark_label="the paper's")
    assert "the paper's" in render(drawn)
    for measure, by_method in values.items():
        ax = panel(drawn.figure, MEASURES[measure].title)
        assert ax.get_xscale() == "log"
        assert ax.get_xlim()[0] < 20
        assert ax.get_xlim()[1] > 400
        lines = {line.get_label(): line for line in ax.lines}
        whiskers = [c for c in ax.collections if isinstance(c, LineCollection)]
        for place, (method, points) in enumerate(by_method.items()):
            np.testing.assert_array_equal(lines[method].get_xdata(), xs)
            np.testing.assert_allclose(lines[method].get_ydata(), [v.mean() for v in points.values()], rtol=1e-13)
            style = method_styles(METHODS)[method]
            assert (lines[method].get_color(), lines[method].get_marker()) == (style.colour, style.marker)
            ends = [stats.t.interval(0.95, 19, v.mean(), stats.sem(v)) for v in points.values()]
            segments = np.array(whiskers[place].get_segments())
            np.testing.assert_allclose(segments[:, :, 1], ends, rtol=1e-12)
            np.testing.assert_array_equal(segments[:, 0, 0], xs)
    assert len(drawn.rows) == len(MEASURES) * len(METHODS) * len(xs)


def test_line_offsets_do_not_change_the_data():
    points = {1.0: [1.0, 2.0], 2.0: [2.0, 3.0]}
    drawn = plot_sweep({"anid": {HARD: points, RANDOM: points}}, "K")
    render(drawn)
    first, second = (line for line in drawn.figure.axes[0].lines if line.get_label() in (HARD, RANDOM))
    np.testing.assert_array_equal(first.get_xdata(), second.get_xdata())
    at = [line.get_transform().transform((1.0, 1.5))[0] for line in (first, second)]
    assert 1.0 < at[1] - at[0] < 6.0


def test_sweep_with_missing_results():
    values = {
        "anid": {HARD: {2: [0.1], 3: [None, NAN], 4: [0.1, 0.3, None]}, RANDOM: {2: [0.2, 0.4]}},
        "gevd": {},
        "seconds": {HARD: {2: [None]}},
    }
    drawn = plot_sweep(values, "K")
    render(drawn)
    rows = {(row["method"], row["K"]): row for row in drawn.rows if row["measure"] == "anid"}
    assert rows[HARD, 2.0]["mean"] == 0.1  # one world has a mean but no interval
    assert math.isnan(rows[HARD, 2.0]["low"])
    assert (rows[HARD, 3.0]["n"], rows[HARD, 3.0]["failed"]) == (0, 2)
    assert math.isnan(rows[HARD, 3.0]["mean"])
    assert (rows[HARD, 4.0]["n"], rows[HARD, 4.0]["failed"]) == (2, 1)
    ax = panel(drawn.figure, "ANID")
    whiskers = [c for c in ax.collections if isinstance(c, LineCollection)]
    assert [len(c.get_segments()) for c in whiskers] == [1, 1]
    assert "none" not in drawn.alt


def test_the_axis_of_a_nonnegative_measure_starts_at_zero():
    # The interval of a nonnegative measure can include negative values.
    drawn = plot_sweep({"anid": {HARD: {1: [0.0, 0.9], 2: [0.1, 0.2]}}}, "K")
    assert drawn.rows[0]["low"] < 0.0
    assert drawn.figure.axes[0].get_ylim()[0] == 0.0


def test_margin_draws_mean_interval_and_worlds():
    rng = np.random.default_rng(2)
    values = {w: rng.normal(3.0 - 8 * w, 0.3, 10) for w in (0.0, 0.05, 0.1)}
    drawn = plot_margin(values, "wind w")
    render(drawn)
    (ax,) = drawn.figure.axes
    *dots, middle = ax.lines
    np.testing.assert_allclose(middle.get_ydata(), [v.mean() for v in values.values()], rtol=1e-13)
    for line, (w, worlds) in zip(dots, values.items(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [w] * 10)
        np.testing.assert_array_equal(line.get_ydata(), worlds)
    band = ax.collections[0].get_paths()[0].vertices
    for row in drawn.rows:
        near = band[np.isclose(band[:, 0], row["wind w"], rtol=0.0, atol=1e-12), 1]
        np.testing.assert_allclose((near.min(), near.max()), (row["low"], row["high"]), rtol=1e-12)
    render(plot_margin({0.0: [1.0], 0.1: [None]}, "wind w"))


def test_differences_are_paired_by_world():
    values = {
        "anid": {HARD: [0.1, 0.3, None, 0.2], RANDOM: [0.4, 0.2, 0.5, 0.2], "supervised": [0.0, 0.1, 0.2, NAN]},
        "n_iter": {HARD: [3, 4, 5, 6], RANDOM: [10, 20, 30, None], "supervised": [None] * 4},
    }
    drawn = plot_differences(values, RANDOM)
    render(drawn)
    row = drawn.rows[0]
    np.testing.assert_allclose(row["mean"], np.mean([-0.3, 0.1, 0.0]), rtol=1e-12)
    assert (row["n"], row["lower"], row["higher"]) == (3, 1, 1)
    np.testing.assert_allclose(row["p_t"], stats.ttest_rel([0.1, 0.3, 0.2], [0.4, 0.2, 0.2]).pvalue, rtol=1e-12)
    ax = drawn.figure.axes[0]
    dots = ax.lines[0]
    np.testing.assert_allclose(dots.get_xdata(), [-0.3, 0.0, 0.1], rtol=1e-12, atol=1e-15)
    interval, mean = ax.lines[1:3]
    np.testing.assert_allclose(interval.get_xdata(), [row["low"], row["high"]], rtol=1e-12)
    np.testing.assert_allclose(mean.get_xdata(), [row["mean"]], rtol=1e-12)
    labels = [text.get_text() for text in drawn.figure.axes[1].texts]
    assert labels == ["lower in 3 of 3", "no data"]


def test_differences_of_one_world_have_no_interval_and_no_test():
    drawn = plot_differences({"gevd": {HARD: [1.0], RANDOM: [3.0]}}, RANDOM)
    render(drawn)
    assert drawn.rows[0]["mean"] == -2.0
    assert math.isnan(drawn.rows[0]["low"])
    assert math.isnan(drawn.rows[0]["p_wilcoxon"])


def test_differences_need_the_baseline_and_the_same_worlds():
    with raises(InvalidParameter, parameter="values", value="anid"):
        plot_differences({"anid": {HARD: [1.0]}}, RANDOM)
    with raises(InvalidParameter, parameter="values", value=HARD):
        plot_differences({"anid": {HARD: [1.0, 2.0], RANDOM: [1.0]}}, RANDOM)


def test_methods_have_fixed_and_distinct_styles():
    chosen = method_styles(METHODS)
    assert len({style.colour for style in chosen.values()}) == len(METHODS)
    assert len({(style.marker, style.face == "none", str(style.dashes)) for style in chosen.values()}) == len(METHODS)
    assert {style.colour for style in chosen.values()} <= set(VARIABLES)
    assert chosen["supervised"].colour == MUTED
    assert (
        method_styles(["Supervised", "Random rewards"])["Random rewards"].colour == chosen[RANDOM].colour == SERIES[1]
    )
    assert method_styles([HARD])[HARD] == chosen[HARD]


def test_custom_methods_have_distinct_styles():
    names = [f"mine {i}" for i in range(6)]
    chosen = method_styles(names)
    assert len({(style.marker, style.face) for style in chosen.values()}) == 6
    assert len(method_styles([f"mine {i}" for i in range(9)])) == 9  # more names than styles
    assert method_styles(["mine 3"])["mine 3"] == method_styles(["mine 3", HARD])["mine 3"]


def test_special_characters_in_names_are_not_formulas():
    sample = {name: [1.0, 2.0, 3.0] for name in ODD}
    pictures = [
        render(plot_boxes({"nll": sample, "$my$ measure": sample})),
        render(plot_sweep({"nll": {name: {1: v, 2: v} for name, v in sample.items()}}, "$K")),
        render(plot_differences({"nll": sample}, baseline=ODD[0])),
    ]
    assert all("x" * 19 in picture and "x" * 50 not in picture for picture in pictures)
    assert "$my$ measure" in pictures[0]


def test_empty_input_gives_an_empty_figure():
    for drawn in (
        plot_boxes({}),
        plot_boxes({"nll": {}}),
        plot_sweep({}, "K"),
        plot_margin({}, "w"),
        plot_differences({}, RANDOM),
    ):
        render(drawn)
        assert drawn.rows == []
        assert drawn.columns == {}
