"""`limiirl evaluate`: a mixture against demonstrations, their labels, and the true rewards."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limiirl.cli.inputs import groups_of, read_demos
from limiirl.cli.mixtures import AsJson, ByGroup, Demos
from limiirl.errors import InvalidFile

if TYPE_CHECKING:
    from limiirl import Demonstrations


def evaluate(
    mixture: Annotated[Path, typer.Argument(help="A folder that `limiirl fit` wrote.")],
    demos: Demos,
    truth: Annotated[
        Path | None, typer.Option(help="The true ensemble: .json of RewardEnsemble.save, or .npz with weights, thetas.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="Column with each demonstration's known intent; 'label' where there is one.")
    ] = None,
    by_group: ByGroup = False,
    as_json: AsJson = False,
) -> None:
    """Say how good a mixture is: its likelihood, and how near it comes to known intents and true rewards.

    Example: limiirl evaluate intents test_walks.parquet --truth truth.json
    """
    from limiirl import Demonstrations, IntentMixture, RewardEnsemble
    from limiirl.metrics.evaluation import evaluate as judge

    true = None if truth is None else RewardEnsemble.load(truth)
    recorded = read_demos(demos) if labels is None else _labelled(demos, labels)
    if not isinstance(recorded, Demonstrations):
        raise InvalidFile(
            f"{demos} has agents, and evaluate judges demonstrations. `limiirl predict` tells agents apart."
        )
    found = judge(IntentMixture.load(mixture), recorded, truth=true, groups=groups_of(recorded, by_group))
    typer.echo(json.dumps(found.to_dict()) if as_json else str(found))


def _labelled(path: Path, column: str) -> "Demonstrations":
    """Read demonstrations whose labels are in a column of any name."""
    from limiirl import Demonstrations
    from limiirl.demos.io import read_table

    demos = read_demos(path)
    if not isinstance(demos, Demonstrations):
        raise InvalidFile(f"{path} has agents, which have no columns; --labels is for demonstrations.")
    table = read_table(path)
    if table is None:  # a file of ours, which has no columns to choose from but these
        columns = {"label": demos.labels, "group": demos.groups}
        values = columns.get(column)
        if values is None:
            present = ", ".join(name for name, array in columns.items() if array is not None) or "neither"
            raise InvalidFile(
                f"{path} has no column {column!r} to take labels from; of label and group it has {present}."
            )
        return demos.replace(labels=values)
    if column not in table.column_names:
        raise InvalidFile(f"{path} has no column {column!r}; it has {', '.join(table.column_names)}.")
    given = table[column]
    if "label" in table.column_names:
        table = table.drop_columns(["label"])
    return Demonstrations.from_frame(table.append_column("label", given))
