"""All studies by name, and the trials that they consist of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from limiirl.errors import InvalidParameter
from limiirl.experiments.spec import Spec
from limiirl.experiments.studies_beyond import BEYOND_STUDIES
from limiirl.experiments.studies_models import MODEL_STUDIES
from limiirl.experiments.studies_paper import (
    EARLY_STOPS,
    FIXED_LENGTH,
    PAPER_LENGTH,
    PAPER_STUDIES,
    SWEEPS,
    WARM,
)
from limiirl.experiments.study import BASE, METHODS, Point, Setting, Study, method_spec

__all__ = [
    "BASE",
    "EARLY_STOPS",
    "FIXED_LENGTH",
    "GROUPS",
    "METHODS",
    "PAPER_LENGTH",
    "STUDIES",
    "SWEEPS",
    "WARM",
    "Point",
    "Setting",
    "Study",
    "choose",
    "method_spec",
    "tasks",
]

STUDIES: Mapping[str, Study] = MappingProxyType(
    {study.name: study for study in (*PAPER_STUDIES, *MODEL_STUDIES, *BEYOND_STUDIES)}
)
"""Studies by the name that `limiirl reproduce` knows them by."""

GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"models": ("boxplots", "mlirl", "sigma-girl"), "beyond": ("beyond-models", "beyond-elements", "beyond-wind")}
)
"""Names for several studies: the paper's box plots of its three models; and what goes beyond the paper."""


def choose(names: Sequence[str]) -> tuple[Study, ...]:
    """Return studies by name or by the name of their group; "all" is every one of the paper's.

    Examples
    --------
    >>> [study.name for study in choose(["margin", "table1"])]
    ['table1', 'margin']
    >>> [study.name for study in choose(["models"])]
    ['boxplots', 'mlirl', 'sigma-girl']
    """
    papers = tuple(name for name in STUDIES if name not in GROUPS["beyond"])
    groups = {**GROUPS, "all": papers}
    unknown = [name for name in names if name not in STUDIES and name not in groups]
    if unknown or not names:
        wrong = f"there is no study named {unknown[0]!r}" if unknown else "none was named"
        raise InvalidParameter(f"Choose among {', '.join(STUDIES)}, {', '.join(GROUPS)} and all; {wrong}.")
    wanted = {study for name in names for study in groups.get(name, (name,))}
    return tuple(study for name, study in STUDIES.items() if name in wanted)


def tasks(studies: Iterable[Study], repeats: int | None = None) -> Iterator[tuple[Spec, int]]:
    """Return every trial of some studies once, the methods of a world one after the other.

    Parameters
    ----------
    studies : iterable of Study
    repeats : int, optional
        Number of worlds, with seeds 0 to repeats - 1; each study's own by default.

    Examples
    --------
    >>> len(list(tasks(choose(["margin"])))), len(list(tasks(choose(["all"]), repeats=1)))
    (50, 181)
    """
    if repeats is not None and (isinstance(repeats, bool) or repeats < 1):
        raise InvalidParameter(f"repeats must be at least 1; got {repeats!r}. It is the number of worlds.")
    wanted = {study.name: (study, study.repeats if repeats is None else repeats) for study in studies}
    most = max((n for _, n in wanted.values()), default=0)
    for seed in range(most):
        # A specification that several studies share, such as the main setting, is one trial.
        yield from (
            (spec, seed) for spec in dict.fromkeys(s for study, n in wanted.values() if seed < n for s in study.specs)
        )
