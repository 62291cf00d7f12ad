"""Reports of the studies of the paper, as a page and as text for a terminal."""

from limiirl.report.studies.report import gather, run_report, summarise_run, write_run

__all__ = ["gather", "run_report", "summarise_run", "write_run"]
