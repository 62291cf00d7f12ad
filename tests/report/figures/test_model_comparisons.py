"""Figures of behaviour models show the given values: quality, curves by model or initialisation, value counts."""

import itertools
import math

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.text import Annotation
from scipy import optimize, stats

from limiirl.experiments.studies import BEYOND_MODELS, BEYOND_STARTS
from limiirl.report.figures import (
    plot_by_model,
    plot_by_start,
    plot_quality,
    plot_value_counts,
)
from limiirl.report.figures.comparisons import separate_labels
from limiirl.report.figures.style import method_styles, model_styles, new_figure, root_axis
from limiirl.report.svg import MUTED, VARIABLES
from tests.oracles.report import render

NAN = float("nan")
MODELS, STARTS = tuple(BEYOND_MODELS), tuple(BEYOND_STARTS)


def interval(values):
    known = np.asarray(values)
    return stats.t.interval(0.95, known.size - 1, known.mean(), stats.sem(known))


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(0)
    samples = {
        model: {
            start: {name: rng.lognormal(j, 0.2, 12) for name in ("anid", "gevd", "seconds")}
            for start in STARTS
            if (model, start) != ("Sigma-GIRL", "k-means, mean")
        }
        for j, model in enumerate(MODELS)
    }
    for by in samples.values():
        by["supervised"]["seconds"] = np.full(12, NAN)
    return samples


def test_quality_has_one_marker_per_model_and_initialisation(scores):
    drawn = plot_quality(scores)
    render(drawn)
    colours, shapes = model_styles(MODELS), method_styles(STARTS)
    for ax, name in zip(drawn.figure.axes, ("anid", "seconds"), strict=True):
        marks = [line for line in ax.lines if line.get_marker() not in ("None", "")]
        bars = [line for line in ax.lines if line.get_marker() in ("None", "")]
        wanted = [(m, s) for m, by in scores.items() for s in by if (name, s) != ("seconds", "supervised")]
        assert len(marks) == len(wanted)
        for place, (model, start) in enumerate(wanted):
            at = scores[model][start]
            mark = marks[place]
            assert (mark.get_color(), mark.get_marker()) == (colours[model].colour, shapes[start].marker)
            np.testing.assert_allclose(mark.get_xdata(), [at[name].mean()], rtol=1e-12)
            np.testing.assert_allclose(mark.get_ydata(), [at["gevd"].mean()], rtol=1e-12)
            across, up = bars[2 * place : 2 * place + 2]
            np.testing.assert_allclose(across.get_xdata(), interval(at[name]), rtol=1e-12)
            np.testing.assert_allclose(up.get_ydata(), interval(at["gevd"]), rtol=1e-12)
        assert ax.get_yscale() == "log"
        low, high = ax.get_ylim()
        assert all(low < mark.get_ydata()[0] < high for mark in marks)
    row = next(r for r in drawn.rows if (r["model"], r["initialisation"]) == ("Sigma-GIRL", "supervised"))
    assert math.isnan(row["seconds"])
    np.testing.assert_allclose(row["anid"], scores["Sigma-GIRL"]["supervised"]["anid"].mean(), rtol=1e-12)
    assert row["n"] == 12


def test_model_names_do_not_overlap(scores):
    drawn = plot_quality(scores)
    drawn.figure.canvas.draw()
    for ax in drawn.figure.axes:
        names = [text for text in ax.texts if isinstance(text, Annotation)]
        assert {text.get_text() for text in names} == set(MODELS)
        assert all(text.get_color() == model_styles(MODELS)[text.get_text()].colour for text in names)
        extents = sorted((text.get_window_extent() for text in names), key=lambda box: box.y0)
        assert all(below.y1 <= above.y0 + 1.0 for below, above in itertools.pairwise(extents))


def test_quality_with_missing_results():
    values = {
        "MaxEnt": {"k-means, MLE": {"anid": [0.0], "gevd": [2.0], "seconds": [0.5]}, "GMM, MLE": {"gevd": [None]}},
        "mine": {"my start": {"anid": [-0.01, 0.02], "gevd": [0.0, 1.0], "seconds": [NAN, 1.0]}},
    }
    drawn = plot_quality(values)
    render(drawn)
    assert [(row["model"], row["initialisation"]) for row in drawn.rows] == [
        ("MaxEnt", "k-means, MLE"),
        ("mine", "my start"),
    ]
    assert math.isnan(drawn.rows[0]["gevd_low"])
    assert drawn.figure.axes[0].get_yscale() == "linear"  # 2 and 0.5 are not far apart


@pytest.mark.parametrize("seed", range(6))
def test_separated_labels_are_the_least_squares_solution(seed: int):
    places = np.sort(np.random.default_rng(seed).random(6))
    moved = separate_labels(places, 0.12)
    best = optimize.minimize(
        lambda x: np.sum((x - places) ** 2),
        places,
        constraints=[{"type": "ineq", "fun": lambda x: np.diff(x) - 0.12}],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(moved, best.x, rtol=0.0, atol=1e-5)
    assert np.diff(moved).min() >= 0.12 - 1e-12


def test_models_are_solid_lines_and_supervised_fits_dashed():
    rng = np.random.default_rng(1)
    xs = (2.0, 3.0, 4.0)
    lines, supervised = (
        {m: {model: {x: rng.lognormal(j, 0.1, 9) for x in xs} for j, model in enumerate(MODELS)} for m in names}
        for names in (("gevd", "anid", "seconds"), ("gevd", "anid"))
    )
    drawn = plot_by_model(lines, supervised, "elements E")
    render(drawn)
    look = model_styles(MODELS)
    for ax, name in zip(drawn.figure.axes, lines, strict=True):
        solid = {line.get_label(): line for line in ax.lines if line.get_linestyle() == "-"}
        whiskers = [c for c in ax.collections if isinstance(c, LineCollection)]
        for place, model in enumerate(MODELS):
            points = lines[name][model]
            np.testing.assert_array_equal(solid[model].get_xdata(), xs)
            np.testing.assert_allclose(solid[model].get_ydata(), [v.mean() for v in points.values()], rtol=1e-12)
            assert solid[model].get_color() == look[model].colour
            ends = np.array(whiskers[place].get_segments())[:, :, 1]
            np.testing.assert_allclose(ends, [interval(v) for v in points.values()], rtol=1e-12)
        dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
        references = [line for line in dashed if len(line.get_xdata())]
        assert len(references) == (len(MODELS) if name in supervised else 0)
        for line, model in zip(references, MODELS, strict=False):
            np.testing.assert_allclose(
                line.get_ydata(), [v.mean() for v in supervised[name][model].values()], rtol=1e-12
            )
            assert line.get_color() == look[model].colour
    means = {(r["measure"], r["model"], r["supervised"], r["elements E"]): r["mean"] for r in drawn.rows}
    assert len(means) == len(drawn.rows) == len(MODELS) * len(xs) * 5
    np.testing.assert_allclose(means["anid", "MaxEnt", True, 3.0], supervised["anid"]["MaxEnt"][3.0].mean(), rtol=1e-12)


def test_panels_by_initialisation_share_one_scale():
    rng = np.random.default_rng(2)
    values = {
        model: {start: {w: rng.lognormal(j, 0.1, 5) for w in (0.0, 0.1, 0.2)} for start in STARTS[: j + 2]}
        for j, model in enumerate(("MaxEnt", "MaxCausalEnt", "ML-IRL"))
    }
    drawn = plot_by_start(values, "gevd", "wind w")
    render(drawn)
    axes = drawn.figure.axes[:3]
    assert [ax.get_title(loc="left") for ax in axes] == list(values)
    assert len({ax.get_ylim() for ax in axes}) == 1
    assert {ax.get_yscale() for ax in axes} == {"log"}
    for ax, by in zip(axes, values.values(), strict=True):
        assert [line.get_label() for line in ax.lines] == list(by)
        for line, points in zip(ax.lines, by.values(), strict=True):
            np.testing.assert_allclose(line.get_ydata(), [v.mean() for v in points.values()], rtol=1e-12)
    assert len(drawn.rows) == 3 * (2 + 3 + 4)


def test_the_root_axis_starts_near_zero_despite_a_wide_interval():
    wide = [-0.8, 0.0, 1.0, 0.3]
    one = {"k-means, MLE": {2.0: [0.0, -1e-12, 0.0, 0.0], 3.0: wide}}
    at = {"gevd": [1.0, 1.1, 1.2, 1.3], "seconds": [0.1, 0.2, 0.3, 0.4]}
    marks = {"MaxEnt": {"k-means, MLE": at | {"anid": wide}, "best start": at | {"anid": [0.0, -1e-12, 0.0, 0.0]}}}
    for drawn, side in ((plot_by_start({"MaxEnt": one}, "anid", "E"), "y"), (plot_quality(marks), "x")):
        render(drawn)
        low, high = getattr(drawn.figure.axes[0], f"get_{side}lim")()
        assert -0.05 < low < 0.0
        assert high > 1.0
        assert 0.0 in getattr(drawn.figure.axes[0], f"get_{side}ticks")()


def test_dot_areas_are_proportional_to_counts():
    right = [1.0] * 9 + [2 / 3] * 3 + [None]
    drawn = plot_value_counts({"accuracy": {"5 trajectories": {"random rewards": right, "supervised": [1.0] * 12}}})
    render(drawn)
    (ax,) = drawn.figure.axes[:1]
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_allclose([float(d.get_xdata()[0]) for d in dots], [2 / 3, 1.0, 1.0], rtol=1e-12)
    areas = np.array([d.get_markersize() ** 2 for d in dots])
    np.testing.assert_allclose(areas / areas[2], [3 / 12, 9 / 12, 1.0], rtol=1e-12)
    rows = [(row["method"], row["count"], row["n"], row["failed"]) for row in drawn.rows]
    assert rows == [("random rewards", 3, 12, 1), ("random rewards", 9, 12, 1), ("supervised", 12, 12, 0)]
    np.testing.assert_allclose(drawn.rows[0]["mean"], 11 / 12, rtol=1e-12)
    np.testing.assert_allclose(
        [drawn.rows[0][end] for end in ("low", "high")], interval([v for v in right if v is not None]), rtol=1e-12
    )
    assert "from supervised (1) to random rewards (0.917)" in drawn.alt  # higher is better


def test_nearly_equal_values_share_a_dot():
    drawn = plot_value_counts({"anid": {"n": {"a": [0.0, 1e-4, 2e-4, 0.5, 1.0]}}})
    render(drawn)
    assert [row["count"] for row in drawn.rows] == [3, 1, 1]
    np.testing.assert_allclose([row["value"] for row in drawn.rows], [1e-4, 0.5, 1.0], rtol=1e-12)


def test_the_root_axis_includes_zero_and_negative_values():
    figure = new_figure(2.0)
    ax = figure.add_subplot()
    ax.set_xlim(-0.05, 1.0)
    root_axis(ax, "x", np.array([-0.04, 0.0, 0.01, 1.0]))
    figure.canvas.draw()
    ticks = ax.get_xticks()
    assert 0.0 in ticks
    assert np.all(np.diff(ticks) > 0)
    shown = ax.transData.transform([(x, 0.5) for x in (0.0, 0.04, 0.16)])[:, 0]
    np.testing.assert_allclose((shown[2] - shown[0]) / (shown[1] - shown[0]), 2.0, rtol=1e-9)


def simulate(colour: str, matrix: np.ndarray) -> np.ndarray:
    """Return CIELAB of a colour under a colour-vision deficiency, given as a matrix on linear RGB."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.clip(matrix @ np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4), 0.0, 1.0)
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
    )
    x, y, z = (
        t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116
        for t in to_xyz @ linear / np.array([0.95047, 1.0, 1.08883])
    )
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


# Machado, Oliveira and Fernandes (2009), severity 1: protanopia, deuteranopia, tritanopia.
EYES = {
    "all colours": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]
    ),
}


@pytest.mark.parametrize("eyes", EYES)
def test_model_colours_are_distinct_under_colour_vision_deficiencies(eyes: str):
    seen = {model: simulate(style.colour, EYES[eyes]) for model, style in model_styles(MODELS).items()}
    gaps = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in itertools.combinations(seen, 2)}
    assert min(gaps.values()) > 15.0, min(gaps, key=gaps.__getitem__)


def test_models_have_distinct_styles():
    chosen = model_styles([*MODELS, "my own"])
    assert len({style.colour for style in chosen.values()}) == len(chosen)
    assert len({style.marker for style in chosen.values()}) == len(chosen)
    assert {style.colour for style in chosen.values()} <= set(VARIABLES)
    assert MUTED not in {style.colour for style in chosen.values()}


def test_initialisations_have_distinct_styles():
    chosen = method_styles(STARTS)
    # In some figures colours denote models, so that markers alone distinguish initialisations.
    assert len({style.marker for style in chosen.values()}) == len(STARTS)
    assert len({(style.marker, style.face) for style in chosen.values()}) == len(STARTS)
    assert len({style.colour for style in chosen.values()}) == len(STARTS)


def test_empty_input_gives_an_empty_figure():
    for drawn in (
        plot_quality({}),
        plot_by_model({}, {}, "E"),
        plot_by_model({"anid": {}}, {}, "E"),
        plot_by_start({}, "anid", "E"),
        plot_value_counts({}),
        plot_value_counts({"anid": {"n": {}}}),
    ):
        render(drawn)
        assert drawn.rows == []
