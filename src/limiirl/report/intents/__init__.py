"""Page on a fitted mixture: what the intents are, who follows them, where they lead, and how far to trust them."""

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
