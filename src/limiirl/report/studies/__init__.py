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
from limiirl.report.studies.rivals import format_rivals, rivals_report, scores_table, selection_table

__all__ = [
    "DemoExample",
    "accuracy_rows",
    "compare_initialisations",
    "demo_report",
    "describe_intents",
    "element_features",
    "format_rivals",
    "gather",
    "plot_results",
    "rivals_report",
    "run_report",
    "scores_table",
    "selection_table",
    "summarise_run",
    "write_run",
]
