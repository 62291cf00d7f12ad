"""Write the tables of `benchmarks.shanghai` from its finished folds."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

MEASURES = {
    "log_likelihood": "log-likelihood of the modelled event",
    "log_likelihood_given_ends": "log-likelihood given both ends",
    "edit_distance": "edit distance, normalised",
    "exact": "routes predicted exactly",
}
# Method that each method is compared with in each fold.
PAIRS = (
    ("destination, one intent", "shortest path"),
    ("destination, K intents", "destination, one intent"),
    ("no destination, K intents", "no destination, one intent"),
    ("from the start, K intents", "from the start, one intent"),
    ("destination, one intent", "no destination, one intent"),
    ("destination, K intents", "no destination, K intents"),
)


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the results of each method that is complete in all folds."""
    folds = [json.loads(file.read_text()) for file in sorted(folder.glob("fold_*.json"))]
    names = [name for name in folds[0] if all(name in fold for fold in folds)] if folds else []
    return {name: [fold[name] for fold in folds] for name in names}


def format_mean(values: list[float]) -> str:
    """Return a mean with its standard error across folds.

    Examples
    --------
    >>> format_mean([1.0, 2.0, 3.0])
    '2.0000 ± 0.5774'
    """
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{np.mean(values):.4f} ± {error:.4f}"


def tables(folds_by_method: dict[str, list[dict[str, Any]]]) -> str:
    """Return both tables as Markdown."""
    n_folds = max(map(len, folds_by_method.values()), default=0)
    lines = [f"Mean ± standard error across {n_folds} folds.", ""]
    lines += ["| method | K | " + " | ".join(MEASURES.values()) + " |", "|---" * (len(MEASURES) + 2) + "|"]
    for name, folds in folds_by_method.items():
        chosen = ", ".join(str(fold["n_intents"]) for fold in folds)
        cells = [format_mean([fold[measure] for fold in folds]) for measure in MEASURES]
        lines.append(f"| {name} | {chosen} | " + " | ".join(cells) + " |")
    measures = ("log_likelihood_given_ends", "edit_distance", "exact")
    lines += ["", "Paired differences per fold, first minus second.", ""]
    lines += ["| first | second | " + " | ".join(MEASURES[m] for m in measures) + " | better in |", "|---" * 6 + "|"]
    for first, second in PAIRS:
        if first in folds_by_method and second in folds_by_method:
            pairs = list(zip(folds_by_method[first], folds_by_method[second], strict=True))
            cells = [format_mean([one[m] - other[m] for one, other in pairs]) for m in measures]
            better = sum(one[measures[0]] > other[measures[0]] for one, other in pairs)
            lines.append(f"| {first} | {second} | " + " | ".join(cells) + f" | {better} of {len(pairs)} folds |")
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    """Write `tables.md` and `folds.csv` beside the folds."""
    folds_by_method = read(folder)
    (folder / "tables.md").write_text(tables(folds_by_method))
    with (folder / "folds.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["method", "fold", "n_intents", *MEASURES, "iterations", "seconds"])
        for name, folds in folds_by_method.items():
            for i, fold in enumerate(folds):
                values = [round(fold[measure], 6) for measure in MEASURES]
                rows.writerow([name, i, fold["n_intents"], *values, fold["iterations"], round(fold["seconds"], 1)])
