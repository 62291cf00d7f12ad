"""Figures of a report: matplotlib figures with their data and text alternatives, drawn from plain arrays."""

from limiirl.report.figures.comparisons import (
    plot_boxes,
    plot_differences,
    plot_histogram,
    plot_quality,
    plot_value_counts,
)
from limiirl.report.figures.curves import plot_by_model, plot_by_start, plot_margin, plot_sweep
from limiirl.report.figures.intents import (
    plot_convergence,
    plot_flow,
    plot_responsibilities,
    plot_rewards,
    plot_weights,
)
from limiirl.report.figures.style import Plot

__all__ = [
    "Plot",
    "plot_boxes",
    "plot_by_model",
    "plot_by_start",
    "plot_convergence",
    "plot_differences",
    "plot_flow",
    "plot_histogram",
    "plot_margin",
    "plot_quality",
    "plot_responsibilities",
    "plot_rewards",
    "plot_sweep",
    "plot_value_counts",
    "plot_weights",
]
