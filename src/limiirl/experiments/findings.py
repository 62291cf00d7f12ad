"""What studies say, as statements that records bear out or not, each with its evidence.

Of the paper's studies they are the paper's findings; of those beyond it they are ours. `limiirl.experiments.verdicts`
has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from limiirl.experiments.findings_beyond import BEYOND_FINDINGS
from limiirl.experiments.findings_models import MODEL_FINDINGS
from limiirl.experiments.findings_paper import PAPER_FINDINGS
from limiirl.experiments.results import Results
from limiirl.experiments.studies import STUDIES
from limiirl.experiments.verdicts import FAILS, HARD, HOLDS, OPEN, RANDOM, SUPERVISED, UNIFORM, Finding

__all__ = ["FAILS", "HARD", "HOLDS", "OPEN", "RANDOM", "SUPERVISED", "UNIFORM", "Finding", "findings"]

_BY_STUDY: Mapping[str, Callable[[Results], list[Finding]]] = MappingProxyType(
    {**PAPER_FINDINGS, **MODEL_FINDINGS, **BEYOND_FINDINGS}
)


def findings(results: Results) -> list[Finding]:
    """Return what a study says; of a study that is not one of `STUDIES` nothing is claimed."""
    name = results.study.name
    return _BY_STUDY[name](results) if STUDIES.get(name) == results.study else []
