"""Page on a fitted mixture: rewards of the intents, assignments, visits and reliability."""

from limiirl.report.intents.layout import merge_previous
from limiirl.report.intents.page import (
    intents_report,
    plot_mixture_memberships,
    plot_mixture_rewards,
    python_code,
    write_intents,
)

__all__ = [
    "intents_report",
    "merge_previous",
    "plot_mixture_memberships",
    "plot_mixture_rewards",
    "python_code",
    "write_intents",
]
