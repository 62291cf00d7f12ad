"""Reports of the studies of the paper and of `limiirl demo`, as a page and as text for a terminal."""

from limiirl.report.studies.demo import (
    DemoExample,
    accuracy_rows,
    compare_initialisations,
    demo_report,
    describe_intents,
    element_features,
)
from limiirl.report.studies.report import gather, plot_results, run_report, summarise_run, write_run

__all__ = [
    "DemoExample",
    "accuracy_rows",
    "compare_initialisations",
    "demo_report",
    "describe_intents",
    "element_features",
    "gather",
    "plot_results",
    "run_report",
    "summarise_run",
    "write_run",
]
