"""The paper's experiments on ElementWorld with MaxEnt: which settings each one compares, and over how many worlds.

Paper: sections "ElementWorld Results" and "Sensitivity Analysis", appendices D and E.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from limiirl.experiments.paper import NAMES
from limiirl.experiments.spec import Spec
from limiirl.experiments.study import BASE, METHODS, Setting, Study, method_spec

PAPER_LENGTH, FIXED_LENGTH = "L = longest", "L = 50"
EARLY_STOPS = MappingProxyType({"1 iteration": 1, "2 iterations": 2, "3 iterations": 3})
"""Variants of table 1: the paper's length; its nominal one; warm starts cut where the paper's ended, by its rule that
rolls the last iteration back, and by its own count.
"""

WARM = ("k-means, MLE", "k-means, mean")
"""The paper's methods."""


def _sweep(name: str, title: str, axis: str, specs: Iterable[tuple[float, Spec]]) -> Study:
    settings = tuple(Setting(method, x, method_spec(spec, method)) for x, spec in specs for method in METHODS)
    return Study(name, title, axis, 20, settings)


def _table() -> tuple[Setting, ...]:
    long = [Setting(method, PAPER_LENGTH, method_spec(BASE, method)) for method in METHODS]
    early = [
        Setting(method, name, method_spec(BASE, method).with_(max_iter=stop))
        for name, stop in EARLY_STOPS.items()
        for method in WARM
    ]
    fixed = [Setting(method, FIXED_LENGTH, method_spec(BASE, method).with_(max_length=50)) for method in NAMES]
    return tuple(long + early + fixed)


_MAIN = _table()

SWEEPS = ("demos", "wind", "clusters", "elements", "imbalance")

PAPER_STUDIES = (
    Study("table1", "Table 1: initialisations compared", "variant", 100, _MAIN),
    Study("boxplots", "Box plots of Table 1", "variant", 100, _MAIN[: len(METHODS)]),
    _sweep(
        "demos",
        "Number of demonstrations",
        "demonstrations N",
        [(n, BASE.with_(n_demos=n)) for n in (20, 40, 100, 200, 400)],
    ),
    _sweep(
        "wind",
        "Cluster separation",
        "wind w",
        [(w, BASE.in_world(wind=w)) for w in (0.0, 0.05, 0.1, 0.15, 0.2)],
    ),
    _sweep(
        "clusters",
        "Number of learned intents",
        "intents learned K (E = 3)",
        [(k, BASE.with_(n_intents=k)) for k in range(1, 6)],
    ),
    _sweep(
        "elements",
        "Number of true intents",
        "elements E = K",
        [(e, BASE.in_world(n_elements=e).with_(n_intents=e)) for e in range(2, 7)],
    ),
    _sweep(
        "imbalance",
        "Imbalance of the intents",
        "geometric parameter p",
        [(p, BASE.with_(imbalance=p)) for p in (0.0, 0.1, 0.2, 0.3, 0.4)],
    ),
    Study(
        "margin",
        "Margin between the intents",
        "wind w",
        10,
        # The margin is a property of the demonstrations; the cheapest method carries it.
        tuple(
            Setting("supervised", w, method_spec(BASE.in_world(wind=w), "supervised"))
            for w in (0.0, 0.05, 0.1, 0.15, 0.2)
        ),
    ),
)
"""Those of the paper's main part and of its sensitivity analysis."""
