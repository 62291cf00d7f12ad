"""Reports of the paper's studies: from the records of a run to a page, and to a few lines for a terminal."""

from limiirl.report.studies.report import gather, run_report, summarise_run, write_run

__all__ = ["gather", "run_report", "summarise_run", "write_run"]
