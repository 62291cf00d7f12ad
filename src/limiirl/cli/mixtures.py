"""`limiirl fit`, `infer`, `predict`, `select` and `evaluate`: mixtures of intents, from files to files."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limiirl._progress import LineReport
from limiirl.cli.inputs import check_target, configured, groups_of, make_mixture, read_demos, read_problem
from limiirl.cli.options import (
    AsJson,
    ByGroup,
    Demos,
    DeviceName,
    ExecutorName,
    FoldByGroup,
    Gamma,
    Init,
    MDPFile,
    Model,
    Scheduler,
    Seed,
    Setting,
    Workers,
    resolve_executor,
    tell_device,
    with_device,
)
from limiirl.errors import InvalidFile

if TYPE_CHECKING:
    from limiirl import BayesianIntentMixture, Demonstrations, IntentMixture


def fit(  # noqa: PLR0913 (a command's options, each with a default)
    demos: Demos,
    n_intents: Annotated[int, typer.Option("--intents", "-k", help="Number of intents.")],
    mdp: MDPFile = None,
    gamma: Gamma = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the fitted mixture.")] = Path("mixture"),
    model: Model = "MaxEnt",
    init: Init = "kmeans",
    reward_init: Annotated[str, typer.Option(help="mle, mean, mean_clipped or mean_ray.")] = "mle",
    n_init: Annotated[int, typer.Option(help="How many times to start; the best is kept.")] = 1,
    settings: Setting = [],  # noqa: B006 (typer reads the default, nobody changes it)
    seed: Seed = 0,
    by_group: ByGroup = False,
    device: DeviceName = None,
    executor: ExecutorName = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Learn the intents behind demonstrations, print what was found, and save it.

    With --executor or --workers the starts of --n-init run at once; what is found is the same.

    Example: limiirl fit walks.parquet --mdp town.npz --intents 3 --out intents
    """
    check_target(out)  # before the work, not after it
    placed = resolve_executor(executor, workers, scheduler)
    world, recorded = read_problem(demos, mdp, model, gamma)
    parameters: dict[str, Any] = {"init": init, "reward_init": reward_init, "n_init": n_init, "random_state": seed}
    mixture = make_mixture(n_intents, model, with_device(settings, device), verbose=sys.stderr.isatty(), **parameters)
    tell_device(device, world)
    mixture.fit(world, recorded, groups_of(recorded, by_group), executor=placed)
    _tell(mixture, out, as_json, {}, "")


def infer(  # noqa: PLR0913 (a command's options, each with a default)
    demos: Demos,
    mdp: MDPFile = None,
    gamma: Gamma = None,
    most: Annotated[int, typer.Option("--most", "-k", min=1, help="Begin with this many intents.")] = 10,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the fitted mixture.")] = Path("mixture"),
    model: Annotated[str, typer.Option(help="The single-intent model: MaxEnt, MaxCausalEnt or MLIRL.")] = "MaxEnt",
    init: Init = "kmeans",
    settings: Setting = [],  # noqa: B006 (typer reads the default, nobody changes it)
    seed: Seed = 0,
    by_group: ByGroup = False,
    device: DeviceName = None,
    as_json: AsJson = False,
) -> None:
    """Learn intents and how many there are, under a Dirichlet process prior; print what was found, and save it.

    It takes longer than `fit`: rewards have distributions. `select` weighs numbers of intents by other criteria.

    Example: limiirl infer walks.parquet --mdp town.npz --model MaxCausalEnt --out intents
    """
    from limiirl import BayesianIntentMixture
    from limiirl.irl import model_class

    check_target(out)
    world, recorded = read_problem(demos, mdp, model, gamma)
    mixture = configured(
        BayesianIntentMixture(most, model_class(model)(), init, random_state=seed), with_device(settings, device)
    )
    tell_device(device, world)
    mixture.fit(world, recorded, groups_of(recorded, by_group))
    posterior = {str(k): p for k, p in mixture.intent_posterior_.items()}
    said = ", ".join(f"{k}: {p:.3f}" for k, p in mixture.intent_posterior_.items() if p >= 5e-4)
    told = (
        f"Number of intents: {mixture.n_intents_} (posterior {said})\n"
        f"Someone new follows another intent with probability {mixture.new_intent_weight_:.3f}\n\n"
    )
    more = {"intent_posterior": posterior, "new_intent_weight": mixture.new_intent_weight_, "bound": mixture.bound_}
    _tell(mixture, out, as_json, more, told)


def _tell(
    mixture: "IntentMixture | BayesianIntentMixture", out: Path, as_json: bool, more: dict[str, Any], before: str
) -> None:
    """Print what was found, and save it."""
    summary = mixture.summary()
    if as_json:
        mixture.save(out)
        typer.echo(json.dumps(summary.to_dict() | more | {"saved": str(out)}))
    else:
        typer.echo(before + str(summary))
        mixture.save(out)
        typer.echo(f"\nSaved to {out}; `limiirl predict {out} FILE` applies it.")


def predict(
    mixture: Annotated[Path, typer.Argument(help="A folder that `limiirl fit` wrote.")],
    demos: Demos,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the table to this .csv or .parquet.")] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Demonstrations are beginnings, still going on.")] = False,
    by_group: ByGroup = False,
    as_json: AsJson = False,
) -> None:
    """Say which intent each demonstration, or each group, follows, and how likely it is.

    Example: limiirl predict intents new_walks.parquet --out labels.csv
    """
    from limiirl import IntentMixture
    from limiirl.mixture import check_suffix, membership

    if out is not None:
        check_suffix(out)
    recorded = read_demos(demos)
    table = membership(IntentMixture.load(mixture), recorded, groups_of(recorded, by_group), partial=partial)
    if out is not None:
        table.write(out)
    if as_json:
        typer.echo(json.dumps(table.to_dict()))
    else:
        typer.echo(str(table) + ("" if out is None else f"\n\nAll rows are in {out}."))


def select(  # noqa: PLR0913 (a command's options, each with a default)
    demos: Demos,
    mdp: MDPFile = None,
    gamma: Gamma = None,
    most: Annotated[int, typer.Option("--most", "-k", min=1, help="Try 1 to this many intents.")] = 6,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    resamples: Annotated[int, typer.Option(help="Resamples for stability.")] = 10,
    model: Model = "MaxEnt",
    init: Init = "kmeans",
    settings: Setting = [],  # noqa: B006 (typer reads the default, nobody changes it)
    seed: Seed = 0,
    by_group: ByGroup = False,
    fold_by_group: FoldByGroup = False,
    device: DeviceName = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the criteria into this .png, .svg or .pdf.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the recommended mixture.")] = None,
    executor: ExecutorName = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Recommend a number of intents by several criteria.

    With --executor or --workers the fits run at once; what is found is the same.

    Example: limiirl select walks.parquet --mdp town.npz --most 6 --plot criteria.png
    """
    from limiirl import select_intents

    if out is not None:
        check_target(out)
    if plot is not None and plot.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidFile(f"{plot} must end in .png, .svg or .pdf.", parameter="plot", value=str(plot))
    placed = resolve_executor(executor, workers, scheduler)
    world, recorded = read_problem(demos, mdp, model, gamma)
    mixture = make_mixture(1, model, with_device(settings, device), init=init)
    tell_device(device, world)
    found = select_intents(
        world,
        recorded,
        range(1, most + 1),
        mixture=mixture,
        groups=groups_of(recorded, by_group),
        fold_groups=groups_of(recorded, fold_by_group, "--fold-by-group"),
        folds=folds,
        resamples=resamples,
        random_state=seed,
        verbose=sys.stderr.isatty(),
        progress=None if sys.stderr.isatty() else LineReport("fits"),
        executor=placed,
    )
    typer.echo(json.dumps(found.to_dict()) if as_json else str(found))
    if plot is not None:
        found.plot().savefig(plot, dpi=150)
        typer.echo(f"Drawn in {plot}.", err=True)
    if out is not None:
        found.best.save(out)
        typer.echo(f"Saved {found.recommended} intents to {out}.", err=True)


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
    from limiirl.metrics import evaluate as judge

    true = None if truth is None else RewardEnsemble.load(truth)
    recorded = read_demos(demos) if labels is None else _labelled(demos, labels)
    if not isinstance(recorded, Demonstrations):
        raise InvalidFile(
            f"{demos} has agents, and evaluate judges demonstrations. `limiirl predict` tells agents apart.",
            parameter="demos",
            value=str(demos),
        )
    found = judge(IntentMixture.load(mixture), recorded, truth=true, groups=groups_of(recorded, by_group))
    typer.echo(json.dumps(found.to_dict()) if as_json else str(found))


def _labelled(path: Path, column: str) -> "Demonstrations":
    """Read demonstrations whose labels are in a column of any name."""
    from limiirl import Demonstrations
    from limiirl.demos import read_table

    demos = read_demos(path)
    if not isinstance(demos, Demonstrations):
        raise InvalidFile(
            f"{path} has agents, which have no columns; --labels is for demonstrations.",
            parameter="labels",
            value=column,
        )
    table = read_table(path)
    if table is None:  # a file of ours, which has no columns to choose from but these
        columns = {"label": demos.labels, "group": demos.groups}
        values = columns.get(column)
        if values is None:
            present = ", ".join(name for name, array in columns.items() if array is not None) or "neither"
            raise InvalidFile(
                f"{path} has no column {column!r} to take labels from; of label and group it has {present}.",
                parameter="labels",
                value=column,
            )
        return demos.replace(labels=values)
    if column not in table.column_names:
        raise InvalidFile(
            f"{path} has no column {column!r}; it has {', '.join(table.column_names)}.",
            parameter="labels",
            value=column,
        )
    given = table[column]
    if "label" in table.column_names:
        table = table.drop_columns(["label"])
    return Demonstrations.from_frame(table.append_column("label", given))
