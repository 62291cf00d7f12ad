"""What the figures of studies draw is what they were given: boxes, sweeps, paired differences, scaling."""

import io
import math

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.cbook import boxplot_stats
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy import stats

from limiirl.errors import InvalidParameter
from limiirl.experiments.spec import METHODS
from limiirl.report.figures import Drawn, boxes, differences, five_numbers, margin, scaling, styles, sweep
from limiirl.report.figures.style import MEASURES
from limiirl.report.svg import MUTED, SERIES, VARIABLES
from tests.helpers import raises

NAN = float("nan")
HARD, RANDOM = "k-means, MLE", "random rewards"
ODD = ["$\\frac{$", "_private", "a method with quite a long name of many words, and more of them", "x" * 90, "<b>&", ""]


def rendered(drawn: Drawn) -> str:
    """Render, so that what only happens then happens: ticks, layout, warnings; leave nothing with pyplot."""
    kept = dict(mpl.rcParams)
    out = io.StringIO()
    drawn.figure.savefig(out, format="svg", transparent=True)
    assert plt.get_fignums() == []
    assert dict(mpl.rcParams) == kept
    assert drawn.alt.endswith(".")
    keys = [list(row) for row in drawn.rows]
    assert all(one == keys[0] for one in keys)
    return out.getvalue()


def panel(figure: Figure, title: str):
    return next(ax for ax in figure.axes if ax.get_title(loc="left").split(",")[0] == title)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 100])
@pytest.mark.parametrize("seed", range(5))
def test_five_numbers_are_matplotlibs(n: int, seed: int):
    values = np.random.default_rng(seed).standard_t(1.5, size=n)
    found, expected = five_numbers([*values, None, NAN]), boxplot_stats(values)[0]
    assert (found.n, found.failed) == (n, 2)
    for name, theirs in (("mean", "mean"), ("q1", "q1"), ("median", "med"), ("q3", "q3"), ("low", "whislo")):
        np.testing.assert_allclose(getattr(found, name), expected[theirs], rtol=1e-13)
    np.testing.assert_allclose(found.high, expected["whishi"], rtol=1e-13)
    np.testing.assert_array_equal(sorted(found.outliers), sorted(expected["fliers"]))
    np.testing.assert_allclose((found.q1, found.median, found.q3), np.percentile(values, [25, 50, 75]), rtol=1e-13)


def test_whisker_does_not_end_inside_its_box():
    # Q3 = 25 lies between the values, and none within reach of it lies above: the whisker ends at the box.
    values = [0.0, 0.0, 0.0, 100.0]
    found, expected = five_numbers(values), boxplot_stats(values)[0]
    assert (found.low, found.high) == (expected["whislo"], expected["whishi"]) == (0.0, 25.0)
    assert found.outliers == (100.0,)
    assert found.q1 <= found.median <= found.q3 <= found.high


def test_five_numbers_of_nothing():
    found = five_numbers([None, NAN, math.inf])
    assert (found.n, found.failed, found.outliers) == (0, 3, ())
    assert math.isnan(found.median)


def test_boxes_are_drawn_at_their_numbers():
    rng = np.random.default_rng(0)
    values = {m: {name: rng.lognormal(size=40) for name in METHODS} for m in MEASURES}
    reference = {"nll": {HARD: (19.65, 0.32)}}
    drawn = boxes(values, reference)
    rendered(drawn)
    assert len(drawn.rows) == len(MEASURES) * len(METHODS)
    for measure, by_method in values.items():
        ax = panel(drawn.figure, MEASURES[measure].title)
        rectangles = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
        lines = [(tuple(line.get_xdata()), line) for line in ax.lines]
        for y, (method, sample) in enumerate(by_method.items()):
            found = five_numbers(sample)
            box = rectangles[y].get_x(), rectangles[y].get_x() + rectangles[y].get_width()
            np.testing.assert_allclose(box, (found.q1, found.q3), rtol=1e-13)
            assert rectangles[y].get_y() + rectangles[y].get_height() / 2 == pytest.approx(y, abs=1e-12)
            mine = [xs for xs, line in lines if line.get_color() == styles([method])[method].colour]
            assert (found.low, found.q1) in mine
            assert (found.q3, found.high) in mine
            assert found.outliers in mine
            assert (found.median, found.median) in [xs for xs, _ in lines]
            (row,) = [row for row in drawn.rows if (row["measure"], row["method"]) == (measure, method)]
            assert [row[key] for key in ("low", "q1", "median", "q3", "high")] == list(found[3:8])
            assert [float(x) for x in row["outliers"].split()] == pytest.approx(list(found.outliers), rel=1e-9)
    (paper,) = [row for row in drawn.rows if row["paper"] == row["paper"]]
    assert (paper["measure"], paper["method"], paper["paper_half_width"]) == ("nll", HARD, 0.32)
    nll = panel(drawn.figure, "NLL")
    (bar,) = [c for c in nll.collections if isinstance(c, LineCollection)]
    np.testing.assert_allclose(bar.get_segments()[0][:, 0], [19.33, 19.97], rtol=1e-12)
    assert [tick.get_text() for tick in nll.get_yticklabels()][:2] == list(METHODS)[:2]


def test_a_method_without_the_measure_says_so():
    drawn = boxes({"n_iter": {HARD: [3.0, 4.0]}, "nll": {HARD: [1.0, 2.0], "supervised": [None, 2.0]}})
    rendered(drawn)
    assert [text.get_text() for text in panel(drawn.figure, "Iterations").texts] == ["none"]
    assert [(row["method"], row["n"], row["failed"]) for row in drawn.rows if row["measure"] == "nll"] == [
        (HARD, 2, 0),
        ("supervised", 1, 1),
    ]


def test_long_tails_have_a_log_axis_where_nothing_is_zero():
    spread = {HARD: [1.0, 50.0]}
    scales = [
        boxes({"seconds": values}).figure.axes[0].get_xscale()
        for values in (spread, {HARD: [0.0, 50.0]}, {HARD: [10.0, 50.0]})
    ]
    assert scales == ["log", "linear", "linear"]
    assert boxes({"nll": spread}).figure.axes[0].get_xscale() == "linear"


def test_sweep_draws_means_and_intervals():
    rng = np.random.default_rng(1)
    xs = (20, 40, 100, 200, 400)
    values = {m: {name: {x: rng.lognormal(1.0, 0.3, 20) for x in xs} for name in METHODS} for m in MEASURES}
    drawn = sweep(values, "demonstrations N", mark=100, mark_label="the paper's")
    assert "the paper's" in rendered(drawn)
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
            style = styles(METHODS)[method]
            assert (lines[method].get_color(), lines[method].get_marker()) == (style.colour, style.marker)
            ends = [stats.t.interval(0.95, 19, v.mean(), stats.sem(v)) for v in points.values()]
            segments = np.array(whiskers[place].get_segments())
            np.testing.assert_allclose(segments[:, :, 1], ends, rtol=1e-12)
            np.testing.assert_array_equal(segments[:, 0, 0], xs)
    assert len(drawn.rows) == len(MEASURES) * len(METHODS) * len(xs)


def test_methods_stand_apart_on_paper_only():
    points = {1.0: [1.0, 2.0], 2.0: [2.0, 3.0]}
    drawn = sweep({"anid": {HARD: points, RANDOM: points}}, "K")
    rendered(drawn)
    first, second = (line for line in drawn.figure.axes[0].lines if line.get_label() in (HARD, RANDOM))
    np.testing.assert_array_equal(first.get_xdata(), second.get_xdata())
    at = [line.get_transform().transform((1.0, 1.5))[0] for line in (first, second)]
    assert 1.0 < at[1] - at[0] < 6.0


def test_sweep_without_some_results():
    values = {
        "anid": {HARD: {2: [0.1], 3: [None, NAN], 4: [0.1, 0.3, None]}, RANDOM: {2: [0.2, 0.4]}},
        "gevd": {},
        "seconds": {HARD: {2: [None]}},
    }
    drawn = sweep(values, "K")
    rendered(drawn)
    rows = {(row["method"], row["K"]): row for row in drawn.rows if row["measure"] == "anid"}
    assert rows[HARD, 2.0]["mean"] == 0.1  # one world: a mean, and no interval
    assert math.isnan(rows[HARD, 2.0]["low"])
    assert (rows[HARD, 3.0]["n"], rows[HARD, 3.0]["failed"]) == (0, 2)
    assert math.isnan(rows[HARD, 3.0]["mean"])
    assert (rows[HARD, 4.0]["n"], rows[HARD, 4.0]["failed"]) == (2, 1)
    ax = panel(drawn.figure, "ANID")
    whiskers = [c for c in ax.collections if isinstance(c, LineCollection)]
    assert [len(c.get_segments()) for c in whiskers] == [1, 1]
    assert "none" not in drawn.alt


def test_an_interval_below_zero_is_shown_down_to_zero():
    # Of a mean that cannot be negative, the interval may be.
    drawn = sweep({"anid": {HARD: {1: [0.0, 0.9], 2: [0.1, 0.2]}}}, "K")
    assert drawn.rows[0]["low"] < 0.0
    assert drawn.figure.axes[0].get_ylim()[0] == 0.0


def test_margin_draws_mean_interval_and_worlds():
    rng = np.random.default_rng(2)
    values = {w: rng.normal(3.0 - 8 * w, 0.3, 10) for w in (0.0, 0.05, 0.1)}
    drawn = margin(values)
    rendered(drawn)
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
    rendered(margin({0.0: [1.0], 0.1: [None]}))


def test_differences_pair_up_worlds():
    values = {
        "anid": {HARD: [0.1, 0.3, None, 0.2], RANDOM: [0.4, 0.2, 0.5, 0.2], "supervised": [0.0, 0.1, 0.2, NAN]},
        "n_iter": {HARD: [3, 4, 5, 6], RANDOM: [10, 20, 30, None], "supervised": [None] * 4},
    }
    drawn = differences(values)
    rendered(drawn)
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
    said = [text.get_text() for text in drawn.figure.axes[1].texts]
    assert said == ["lower in 3 of 3", "none"]


def test_differences_of_one_world_have_no_interval_and_no_test():
    drawn = differences({"gevd": {HARD: [1.0], RANDOM: [3.0]}})
    rendered(drawn)
    assert drawn.rows[0]["mean"] == -2.0
    assert math.isnan(drawn.rows[0]["low"])
    assert math.isnan(drawn.rows[0]["p_wilcoxon"])


def test_differences_need_the_baseline_and_the_same_worlds():
    with raises(InvalidParameter, parameter="values", value="anid"):
        differences({"anid": {HARD: [1.0]}})
    with raises(InvalidParameter, parameter="values", value=HARD):
        differences({"anid": {HARD: [1.0, 2.0], RANDOM: [1.0]}})


def test_scaling_is_over_the_fewest_workers():
    drawn = scaling({"local": {1: [12.0, 10.0], 2: 6.0}, "dask": {2: 8.0, 4: [5.0, None]}, "other": {1: None}})
    rendered(drawn)
    told = [(row["executor"], row["workers"], row["seconds"], row["speedup"]) for row in drawn.rows]
    assert told == [("local", 1, 10.0, 1.0), ("local", 2, 6.0, 10 / 6), ("dask", 2, 8.0, 1.0), ("dask", 4, 5.0, 1.6)]
    assert [row["efficiency"] for row in drawn.rows] == [1.0, 10 / 12, 1.0, 0.8]
    time, gain = drawn.figure.axes
    np.testing.assert_array_equal(time.lines[0].get_ydata(), [10.0, 5.0])  # the ideal
    np.testing.assert_array_equal(time.lines[1].get_ydata(), [10.0, 6.0])
    np.testing.assert_array_equal(gain.lines[1].get_ydata(), [1.0, 1.6])


def test_methods_look_the_same_everywhere_and_apart():
    found = styles(METHODS)
    assert len({style.colour for style in found.values()}) == len(METHODS)
    assert len({(style.marker, style.face == "none", str(style.dashes)) for style in found.values()}) == len(METHODS)
    assert {style.colour for style in found.values()} <= set(VARIABLES)
    assert found["supervised"].colour == MUTED
    assert styles(["Supervised", "Random"])["Random"].colour == found[RANDOM].colour == SERIES[1]
    assert styles([HARD])[HARD] == found[HARD]


def test_unknown_methods_have_styles_of_their_own():
    names = [f"mine {i}" for i in range(6)]
    found = styles(names)
    assert len({(style.marker, style.face) for style in found.values()}) == 6
    assert len(styles([f"mine {i}" for i in range(9)])) == 9  # more than there are: they repeat
    assert styles(["mine 3"])["mine 3"] == styles(["mine 3", HARD])["mine 3"]


def test_odd_names_are_drawn_as_they_are():
    sample = {name: [1.0, 2.0, 3.0] for name in ODD}
    pictures = [
        rendered(boxes({"nll": sample, "$my$ measure": sample})),
        rendered(sweep({"nll": {name: {1: v, 2: v} for name, v in sample.items()}}, "$K")),
        rendered(differences({"nll": sample}, baseline=ODD[0])),
        rendered(scaling({name: {1: 2.0, 2: 1.0} for name in ODD})),
    ]
    assert all("x" * 19 in picture and "x" * 50 not in picture for picture in pictures)
    assert "$my$ measure" in pictures[0]


def test_nothing_at_all_is_still_a_figure():
    for drawn in (boxes({}), boxes({"nll": {}}), sweep({}, "K"), margin({}), differences({}), scaling({})):
        rendered(drawn)
        assert drawn.rows == []
        assert drawn.columns == {}
