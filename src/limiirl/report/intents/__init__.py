"""Pages on fitted mixtures: rewards of the intents, assignments, visits, switches and reliability."""

from limiirl.report.intents.layout import merge_previous
from limiirl.report.intents.page import (
    intents_report,
    plot_mixture_memberships,
    plot_mixture_rewards,
    python_code,
    write_intents,
)
from limiirl.report.intents.switching import (
    plot_switching_graph,
    plot_switching_rewards,
    plot_switching_timeline,
    switching_report,
    write_switching,
)

__all__ = [
    "intents_report",
    "merge_previous",
    "plot_mixture_memberships",
    "plot_mixture_rewards",
    "plot_switching_graph",
    "plot_switching_rewards",
    "plot_switching_timeline",
    "python_code",
    "switching_report",
    "write_intents",
    "write_switching",
]
