"""`limiirl fit`, `predict`, `evaluate`, `select` and `infer`: fit and apply mixtures of intents."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limiirl._progress import show_progress
from limiirl.cli import options
from limiirl.cli.inputs import (
    check_exists,
    check_file,
    check_target,
    choose_features,
    configure,
    get_groups,
    make_mixture,
    parse_columns,
    read_demos,
    read_problem,
)
from limiirl.cli.pages import ReportFolder, check_report, describe_data, recording, write_page
from limiirl.errors import InvalidFile

if TYPE_CHECKING:
    from limiirl import BayesianIntentMixture, Demonstrations, IntentMixture

# Steps times features from which `select` uses one process per CPU. Below this, the fits take only a few seconds, about
# as long as starting the processes.
_MANY_COUNTS = 1_000_000
# EM with overlapping intents may need several hundred iterations: 300 for three intents of six mice. The library's
# limit of 100 would end such a fit with a warning.
_MAX_ITER = 500
# `select` fits many mixtures and compares likelihoods: EM also ends at this gain in nats per demonstration or group.
_SELECT_TOL = 1e-5


def fit(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    demos: options.DemosOrAgents,
    n_intents: options.NIntents,
    mdp: options.MDPFile = None,
    gamma: options.Gamma = None,
    columns: options.Columns = None,
    state_features: options.StateFeatures = None,
    cut: options.Cut = None,
    out: options.MixtureOut = Path("mixture"),
    model: options.Model = None,
    init: options.Init = "kmeans",
    reward_init: options.RewardInit = "mle",
    n_init: Annotated[int, typer.Option(help="Number of initialisations; the best fit is saved.")] = 1,
    settings: options.Setting = [],  # noqa: B006 (typer reads the default, which is never changed)
    seed: options.Seed = 0,
    by_group: options.ByGroup = False,
    device: options.DeviceName = None,
    executor: options.ExecutorName = None,
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
    report: ReportFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit a mixture of intents to demonstrations.

    Prints a summary and saves the fitted mixture. With --executor or --workers, the initialisations run in parallel,
    which does not change the result.
    """
    check_exists(demos)
    check_target(out, demos, mdp, state_features)
    check_report(report, out, demos, mdp, state_features)
    backend = options.resolve_executor(executor, workers, scheduler)
    problem = read_problem(demos, mdp, model, gamma, columns, cut, state_features, quiet=as_json)
    world, data = problem.mdp, problem.demos
    parameters: dict[str, Any] = {"init": init, "reward_init": reward_init, "n_init": n_init, "random_state": seed}
    parameters["max_iter"] = _MAX_ITER
    mixture = make_mixture(n_intents, problem.irl, options.with_device(settings, device), **parameters)
    world, data = choose_features(world, data, mixture, mdp or state_features, seed, quiet=as_json)
    options.report_device(device, world)
    groups = get_groups(data, by_group)
    with recording() as warned, show_progress("EM") as progress:
        mixture.set_params(progress=progress).fit(world, data, groups, executor=backend)
    mixture.model_choice_, mixture.data_file_ = problem.choice, describe_data(demos, out, columns, cut, by_group)
    _save(mixture, out, as_json, {}, "")
    write_page(context, report, mixture, warned=warned)


def infer(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    demos: options.Demos,
    mdp: options.MDPFile = None,
    gamma: options.Gamma = None,
    columns: options.Columns = None,
    state_features: options.StateFeatures = None,
    cut: options.Cut = None,
    max_intents: Annotated[int, typer.Option("--max-intents", "-k", min=1, help="Maximum number of intents.")] = 10,
    out: options.MixtureOut = Path("mixture"),
    model: options.Model = None,
    init: options.Init = "kmeans",
    settings: options.Setting = [],  # noqa: B006 (typer reads the default, which is never changed)
    seed: options.Seed = 0,
    by_group: options.ByGroup = False,
    device: options.DeviceName = None,
    report: ReportFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Infer the number of intents with a Dirichlet process prior.

    Fits a Bayesian mixture (slower than `limiirl fit`), prints the posterior over the number of intents, and saves the
    fitted mixture. To choose the number of intents by other criteria, use `limiirl select`.
    """
    from limiirl import BayesianIntentMixture

    check_exists(demos)
    check_target(out, demos, mdp, state_features)
    check_report(report, out, demos, mdp, state_features)
    problem = read_problem(demos, mdp, model, gamma, columns, cut, state_features, quiet=as_json)
    world, data = problem.mdp, problem.demos
    mixture = configure(
        BayesianIntentMixture(max_intents, problem.irl, init, random_state=seed),
        options.with_device(settings, device),
    )
    world, data = choose_features(world, data, mixture, mdp or state_features, seed, quiet=as_json)
    options.report_device(device, world)
    with recording() as warned, show_progress("search") as progress:
        mixture.set_params(progress=progress).fit(world, data, get_groups(data, by_group))
    mixture.model_choice_, mixture.data_file_ = problem.choice, describe_data(demos, out, columns, cut, by_group)
    posterior = mixture.intent_posterior_
    probabilities = ", ".join(f"{k}: {p:.3f}" for k, p in posterior.items() if p >= 5e-4)
    before = (
        f"Number of intents: {mixture.n_intents_} (posterior {probabilities})\n"
        f"Probability that a new demonstration has a new intent: {mixture.new_intent_weight_:.3f}\n\n"
    )
    more = {
        "intent_posterior": {str(k): p for k, p in posterior.items()},
        "new_intent_weight": mixture.new_intent_weight_,
        "bound": mixture.bound_,
    }
    _save(mixture, out, as_json, more, before)
    write_page(context, report, mixture, warned=warned)


def _save(
    mixture: "IntentMixture | BayesianIntentMixture", out: Path, as_json: bool, more: dict[str, Any], before: str
) -> None:
    """Save a mixture and print its summary."""
    mixture.set_params(progress=None)
    mixture.save(out)  # save before printing, because printing fails if a pipe is closed
    summary = mixture.summary()
    if as_json:
        options.echo(json.dumps(summary.to_dict() | more | {"saved": str(out)}))
    else:
        options.echo(before + str(summary))
        options.echo(f"\nSaved to {out}. Apply it with `limiirl predict {out} DEMOS`.")


def predict(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    mixture: options.MixtureFolder,
    demos: options.DemosOrAgents,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Output file (.csv or .parquet).")] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Demonstrations are prefixes of trajectories that continue.")
    ] = False,
    columns: options.Columns = None,
    cut: options.Cut = None,
    by_group: options.ByGroup = False,
    report: ReportFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict the intent of each demonstration or group.

    Prints the most likely intent and the probabilities of all intents.
    """
    from limiirl import IntentMixture
    from limiirl.mixture import check_suffix, membership_table

    if out is not None:
        check_suffix(out)
    check_file(out, mixture, demos)
    check_report(report, mixture, demos)
    data = read_demos(demos, columns, cut)
    fitted, groups = IntentMixture.load(mixture), get_groups(data, by_group)
    table = membership_table(fitted, data, groups, partial=partial)
    if out is not None:
        table.write(out)
    if as_json:
        options.echo(json.dumps(table.to_dict()))
    else:
        options.echo(str(table) + ("" if out is None else f"\n\nSaved to {out}."))
    write_page(context, report, fitted, data, groups)


def select(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    demos: options.DemosOrAgents,
    mdp: options.MDPFile = None,
    gamma: options.Gamma = None,
    columns: options.Columns = None,
    state_features: options.StateFeatures = None,
    cut: options.Cut = None,
    max_intents: Annotated[int, typer.Option("--max-intents", "-k", min=1, help="Largest number of intents.")] = 6,
    folds: Annotated[int, typer.Option(help="Number of cross-validation folds; 0 for none.")] = 5,
    resamples: Annotated[int, typer.Option(help="Number of resamples for the stability criterion; 0 for none.")] = 10,
    model: options.Model = None,
    init: options.Init = "kmeans",
    settings: options.Setting = [],  # noqa: B006 (typer reads the default, which is never changed)
    seed: options.Seed = 0,
    by_group: options.ByGroup = False,
    fold_by_group: options.FoldByGroup = False,
    device: options.DeviceName = None,
    plot: Annotated[Path | None, typer.Option(help="Plot the criteria to a .png, .svg or .pdf file.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output folder of the recommended mixture. [default: not saved]")
    ] = None,
    executor: options.ExecutorName = None,
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
    report: ReportFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Select the number of intents by cross-validation.

    Also prints BIC, stability and other criteria. If there are many demonstrations, or with --executor or --workers,
    the fits run in parallel, which does not change the result.
    """
    from limiirl import select_intents

    check_exists(demos)
    check_target(out, demos, mdp, state_features)
    check_report(report, out, demos, mdp, state_features)
    check_file(plot, demos, mdp, option="plot")
    if plot is not None and plot.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidFile.of("plot", str(plot), "must end in .png, .svg or .pdf")
    backend = options.resolve_executor(executor, workers, scheduler)
    problem = read_problem(demos, mdp, model, gamma, columns, cut, state_features, quiet=as_json)
    world, data = problem.mdp, problem.demos
    parameters: dict[str, Any] = {"init": init, "max_iter": _MAX_ITER, "likelihood_tol": _SELECT_TOL}
    mixture = make_mixture(1, problem.irl, options.with_device(settings, device), **parameters)
    world, data = choose_features(world, data, mixture, mdp or state_features, seed, quiet=as_json)
    options.report_device(device, world)
    if (
        backend is None
        and device is None
        and world is not None
        and data.n_transitions * world.n_features >= _MANY_COUNTS
    ):
        backend = options.resolve_executor("local", None, None)
    with show_progress("fits") as progress:
        selection = select_intents(
            world,
            data,
            range(1, max_intents + 1),
            mixture=mixture,
            groups=get_groups(data, by_group),
            fold_groups=get_groups(data, fold_by_group, "--fold-by-group"),
            folds=folds,
            resamples=resamples,
            seed=seed,
            progress=progress,
            executor=backend,
        )
    if plot is not None:
        selection.plot().savefig(plot, dpi=150)
    if out is not None:
        selection.best.model_choice_ = problem.choice
        selection.best.data_file_ = describe_data(demos, out, columns, cut, by_group)
        selection.best.save(out)
    options.echo(json.dumps(selection.to_dict()) if as_json else str(selection))
    if plot is not None:
        options.echo(f"Plot: {plot}", err=True)
    if out is not None:
        options.echo(f"Saved the mixture of {selection.recommended} intents to {out}.", err=True)
    write_page(context, report, selection.best, selection=selection)


def evaluate(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    mixture: options.MixtureFolder,
    demos: options.Demos,
    truth: Annotated[
        Path | None,
        typer.Option(help="True rewards: .json file of RewardEnsemble.save, or .npz file with weights and thetas."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with the true intents. [default: label, if present]")
    ] = None,
    columns: options.Columns = None,
    cut: options.Cut = None,
    by_group: options.ByGroup = False,
    report: ReportFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate a mixture on held-out demonstrations.

    Prints the negative log-likelihood, clustering errors if the true intents are known, and reward errors with --truth.
    """
    from limiirl import Demonstrations, IntentMixture, RewardEnsemble
    from limiirl.metrics import evaluate as evaluate_mixture

    check_report(report, mixture, demos, truth)
    ensemble = None if truth is None else RewardEnsemble.load(check_exists(truth))
    data = read_demos(demos, columns, cut) if labels is None else _read_labelled(demos, labels, columns, cut)
    if not isinstance(data, Demonstrations):
        raise InvalidFile(
            f"{demos} contains agents, but evaluate requires demonstrations. Use `limiirl predict` for agents.",
            parameter="demos",
            value=str(demos),
        )
    fitted, groups = IntentMixture.load(mixture), get_groups(data, by_group)
    scores = evaluate_mixture(fitted, data, truth=ensemble, groups=groups)
    options.echo(json.dumps(scores.to_dict()) if as_json else str(scores))
    write_page(context, report, fitted, data, groups, evaluation=scores)


def _read_labelled(path: Path, column: str, columns: str | None, cut: int | None) -> "Demonstrations":
    """Read demonstrations whose true intents are in a column."""
    from limiirl import Demonstrations
    from limiirl.demos import read_table

    if path.suffix == ".npz":
        raise InvalidFile(
            f"--labels {column} requires demonstrations, but {path} contains agents. Omit --labels.",
            parameter="labels",
            value=column,
        )
    sources = (parse_columns(columns) or {}) | {"label": column}
    table = read_table(check_exists(path), sources)
    if table is None:  # written by Demonstrations.to_parquet, not a table of steps
        demos = Demonstrations.from_file(path)
        given = {name: v for name, v in (("label", demos.labels), ("group", demos.groups)) if v is not None}
        if column in given:
            demos = demos.replace(labels=given[column])
            return demos if cut is None else demos.cut(cut)
        names = ", ".join(given) or "neither label nor group"
    elif column in table.column_names:
        demos = Demonstrations.from_frame(table, sources)
        return demos if cut is None else demos.cut(cut)
    else:
        names = ", ".join(table.column_names)
    raise InvalidFile.of("labels", column, f"must be a column of {path}; the file has {names}")
