"""Figures of reports, drawn from plain arrays.

Each function returns a `Plot`: a matplotlib figure, its data as columns, and a text alternative.
"""

from limiirl.report.figures.comparisons import (
    plot_boxes,
    plot_differences,
    plot_histogram,
    plot_quality,
    plot_scores,
    plot_value_counts,
)
from limiirl.report.figures.curves import plot_by_model, plot_by_start, plot_margin, plot_sweep
from limiirl.report.figures.fits import (
    plot_composition,
    plot_criteria,
    plot_memberships,
    plot_order,
    plot_reward_errors,
    plot_timeline,
    plot_trajectories,
    plot_visit_bars,
    plot_visits,
)
from limiirl.report.figures.intents import (
    plot_convergence,
    plot_ethogram,
    plot_flow,
    plot_responsibilities,
    plot_rewards,
    plot_switches,
    plot_weights,
)
from limiirl.report.figures.style import Plot

__all__ = [
    "Plot",
    "plot_boxes",
    "plot_by_model",
    "plot_by_start",
    "plot_composition",
    "plot_convergence",
    "plot_criteria",
    "plot_differences",
    "plot_ethogram",
    "plot_flow",
    "plot_histogram",
    "plot_margin",
    "plot_memberships",
    "plot_order",
    "plot_quality",
    "plot_responsibilities",
    "plot_reward_errors",
    "plot_rewards",
    "plot_scores",
    "plot_sweep",
    "plot_switches",
    "plot_timeline",
    "plot_trajectories",
    "plot_value_counts",
    "plot_visit_bars",
    "plot_visits",
    "plot_weights",
]
