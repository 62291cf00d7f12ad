"""`limiirl fit`, `switch`, `predict`, `evaluate`, `select` and `infer`: fit and apply mixtures of intents."""

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
    parse_number,
    parse_numbers,
    read_covariates,
    read_demos,
    read_labelled,
    read_problem,
    read_step_covariates,
)
from limiirl.cli.pages import (
    ReportFolder,
    check_report,
    check_uncut,
    describe_data,
    read_condition,
    read_step_columns,
    record_warnings,
    resolve_cut,
    write_page,
)
from limiirl.errors import InvalidFile, InvalidParameter, SelectionInterrupted

if TYPE_CHECKING:
    from limiirl import BayesianIntentMixture, Demonstrations, IntentMixture, SwitchingMixture
    from limiirl.switching import Segments

# Steps times features from which `select` uses one process per CPU. Below this, the fits take only a few seconds, about
# as long as starting the processes.
_MANY_COUNTS = 1_000_000
# EM with overlapping intents may need several hundred iterations: 300 for three intents of six mice. The library's
# limit of 100 would end such a fit with a warning.
_MAX_ITER = 500
# `select` fits many mixtures and compares likelihoods: EM also ends at this gain in nats per demonstration or group.
_SELECT_TOL = 1e-5
# Exit status of a command that was interrupted.
_INTERRUPTED = 130


def fit(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    demos: options.DemosOrAgents,
    n_intents: options.NIntents,
    mdp: options.MDPFile = None,
    gamma: options.Gamma = None,
    columns: options.Columns = None,
    state_features: options.StateFeatures = None,
    cut: options.Cut = None,
    covariates: options.Covariates = None,
    covariance: options.Covariance = "observed",
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

    Prints a summary and saves the fitted mixture. With --covariates, the mixture weights depend on covariates, and
    their coefficients are printed. With --executor or --workers, the initialisations run in parallel, which does not
    change the result.
    """
    from limiirl._validation import check_choice
    from limiirl.mixture import COVARIANCES, to_plain

    check_choice(covariance, "covariance", COVARIANCES)
    number = parse_number(n_intents)
    check_exists(demos)
    check_target(out, demos, mdp, state_features, covariates)
    check_report(report, out, demos, mdp, state_features, covariates)
    backend = options.resolve_executor(executor, workers, scheduler)
    problem = read_problem(demos, mdp, model, gamma, columns, cut, state_features, quiet=as_json)
    world, data = problem.mdp, problem.demos
    get_groups(data, covariance == "cluster", "--covariance")  # raises before the fit if there are no groups
    parameters: dict[str, Any] = {"init": init, "reward_init": reward_init, "n_init": n_init, "random_state": seed}
    parameters["max_iter"] = _MAX_ITER
    mixture = make_mixture(number, problem.irl, options.with_device(settings, device), **parameters)
    world, data = choose_features(world, data, mixture, mdp or state_features, seed, quiet=as_json)
    options.report_device(device, world)
    groups, table = get_groups(data, by_group), read_covariates(covariates)
    with record_warnings() as warned, show_progress("EM") as progress:
        mixture.set_params(progress=progress).fit(world, data, groups, covariates=table, executor=backend)
    mixture.model_choice_, mixture.data_file_ = problem.choice, describe_data(demos, out, columns, cut, by_group)
    membership = mixture.membership_
    more = {} if membership is None else {"membership": to_plain(membership.to_dict())}
    after = "" if membership is None else f"\n\n{membership}"
    _save(mixture, out, as_json, more, "", after, covariance=covariance)
    write_page(context, report, mixture, warned=warned)


def infer(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    demos: options.Demos,
    mdp: options.MDPFile = None,
    gamma: options.Gamma = None,
    columns: options.Columns = None,
    state_features: options.StateFeatures = None,
    cut: options.Cut = None,
    max_intents: Annotated[
        int, typer.Option("--intents", "--max-intents", "-k", min=1, help="Maximum number of intents.")
    ] = 10,
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
    with record_warnings() as warned, show_progress("search") as progress:
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


def switch(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    demos: options.Demos,
    n_intents: options.Numbers,
    mdp: options.MDPFile = None,
    gamma: options.Gamma = None,
    columns: options.Columns = None,
    state_features: options.StateFeatures = None,
    out: options.MixtureOut = Path("switching"),
    model: Annotated[str, typer.Option(help="Model of an intent: MaxCausalEnt or MLIRL.")] = "MaxCausalEnt",
    switching: options.Switching = "homogeneous",
    step_covariates: options.StepCovariates = None,
    condition: options.Condition = None,
    folds: Annotated[int, typer.Option(min=0, help="Number of cross-validation folds; 0 for none.")] = 5,
    n_init: Annotated[int, typer.Option(help="Number of initialisations of each fit; the best is kept.")] = 1,
    init: Annotated[str, typer.Option(help="Initialisation: kmeans or random.")] = "kmeans",
    settings: options.Setting = [],  # noqa: B006 (typer reads the default, which is never changed)
    seed: options.Seed = 0,
    by_group: Annotated[
        bool, typer.Option("--by-group", help="Hold out whole groups, and cluster standard errors by group.")
    ] = False,
    segments: options.SegmentsFile = None,
    executor: options.ExecutorName = None,
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
    report: ReportFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit intents that switch within recordings.

    Compares the numbers of intents, and models without rewards, on held-out recordings; prints the table, a summary
    with dwell times, and the comparison of groups; and saves the recommended mixture. Ctrl-C ends the comparison and
    prints the numbers of intents that are complete.
    """
    from limiirl import SwitchingMixture, select_switching
    from limiirl._validation import check_choice
    from limiirl.demos import Groups
    from limiirl.mixture import check_suffix, write_columns

    numbers = parse_numbers(n_intents)
    check_choice(model, "model", ("MaxCausalEnt", "MLIRL"))
    check_exists(demos)
    check_target(out, demos, mdp, state_features, switching=True)
    check_report(report, out, demos, mdp, state_features)
    check_file(segments, demos, mdp, state_features, option="segments")
    if segments is not None:
        check_suffix(segments)
    backend = options.resolve_executor(executor, workers, scheduler)
    names = [name.strip() for name in step_covariates.split(",")] if step_covariates is not None else []
    X = read_step_covariates(demos, names, columns)
    more = read_condition(demos, condition, columns)
    problem = read_problem(demos, mdp, model, gamma, columns, None, state_features, quiet=as_json)
    template = SwitchingMixture(
        numbers[0], problem.irl, "covariates" if names else switching, init, n_init=n_init, random_state=seed
    )
    template = configure(template, settings)
    world, data = choose_features(problem.mdp, problem.demos, template, mdp or state_features, seed, quiet=as_json)
    groups, units = get_groups(data, by_group), Groups.for_demos(data.groups, data)
    if more:
        units.reduce(more["condition"], "condition")  # raises before the fit
    n_folds = min(folds, len(Groups.for_demos(groups, data)))
    if len(numbers) > 1 and n_folds < 2:
        rule = f"requires at least two folds and two {'groups' if by_group else 'recordings'} to compare numbers"
        raise InvalidParameter.of("n_intents", n_intents, rule, remedy="Pass one number of intents.")
    selection = None
    with record_warnings() as warned, show_progress("fits" if n_folds > 1 else "EM") as progress:
        common: dict[str, Any] = {"groups": groups, "covariates": X}
        if n_folds > 1:
            common |= {"folds": n_folds, "seed": seed, "executor": backend, "progress": progress}
            try:
                selection = select_switching(world, data, numbers, mixture=template, **common)
            except SelectionInterrupted as interrupt:
                partial = interrupt.selection
                options.echo(json.dumps(partial.to_dict()) if as_json else str(partial))
                options.echo("Interrupted: no mixture was saved. Pass the number of intents with --intents.", err=True)
                raise typer.Exit(_INTERRUPTED) from None
        mixture = (
            template.set_params(progress=progress).fit(world, data, **common) if selection is None else selection.best
        )
    mixture.set_params(progress=None)
    mixture.data_file_ = describe_data(demos, out, columns, None, by_group, condition=condition)
    mixture.save(out)
    if segments is not None:
        write_columns(tabulate_segments(mixture.segments(data, X), data), segments)
    if len(mixture.shares_) == 1 and more:
        options.echo("One intent does not switch: the conditions are not compared.", err=True)
        more = {}
    compared = mixture.compare_groups(data, data.groups, covariates=X, **more) if more else None
    _print_switching(mixture, selection, compared, out, as_json)
    write_page(context, report, mixture, selection=selection, warned=warned, **more)


def _print_switching(mixture: "SwitchingMixture", selection: Any, compared: Any, out: Path, as_json: bool) -> None:
    """Print the summary, the comparison with other models on held-out recordings, and that of groups."""
    summary = mixture.summary()
    if as_json:
        parts = {"selection": selection, "groups": compared}
        more = {name: None if part is None else part.to_dict() for name, part in parts.items()}
        options.echo(json.dumps(summary.to_dict() | more | {"saved": str(out)}))
        return
    blocks = [str(summary)]
    if selection is not None:
        blocks.append(f"Prediction of held-out {selection.unit}, in nats per step:\n{selection}")
    if compared is not None:
        blocks.append(str(compared))
    options.echo("\n\n".join(blocks))
    options.echo(f"\nSaved to {out}. Apply it with `limiirl predict {out} DEMOS --segments segments.csv`.")


def tabulate_segments(segments: "Segments", demos: "Demonstrations") -> dict[str, Any]:
    """Return the columns of a table of segments, with the group and the times of the recordings, if any."""
    first, columns = demos.offsets[segments.demo], {"demo": segments.demo}
    if demos.ids is not None:
        columns["demo"] = demos.ids[segments.demo]
    if demos.groups is not None:
        columns["group"] = demos.groups[segments.demo]
    columns |= {"start": segments.start, "stop": segments.stop}
    if demos.times is not None:
        columns |= {
            "start_time": demos.times[first + segments.start],
            "stop_time": demos.times[first + segments.stop],
        }
    return columns | {"intent": segments.intent, "probability": segments.probability}


def _tabulate_steps(path: Any, posterior: Any, demos: "Demonstrations") -> dict[str, Any]:
    """Return the columns of a table of steps: the state, the intent and its probabilities."""
    import numpy as np

    owner = np.repeat(np.arange(len(demos)), demos.lengths - 1)
    at = np.arange(owner.size) + owner
    columns: dict[str, Any] = {"demo": owner if demos.ids is None else demos.ids[owner]}
    columns["t"] = at - demos.offsets[owner] if demos.times is None else demos.times[at]
    states = demos.states[at]
    columns["state"] = states if demos.state_names is None else np.array(demos.state_names)[states]
    columns["intent"] = path
    return columns | {f"probability_{k}": column for k, column in enumerate(posterior.T)}


def _predict_switching(
    context: typer.Context,
    folder: Path,
    demos: Path,
    columns: str | None,
    out: Path | None,
    segments: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Predict the intent of each step with a `SwitchingMixture`; see `predict`."""
    from limiirl import SwitchingMixture
    from limiirl.mixture import align_rows, to_plain, write_columns

    mixture = SwitchingMixture.load(folder)
    more, data = read_step_columns(mixture, demos, columns), read_demos(demos, columns)
    path, posterior = mixture.predict(data, **more), mixture.predict_proba(data, **more)
    runs, dwell = mixture.segments(data, **more), mixture.dwell_times(data, **more)
    table = tabulate_segments(runs, data)
    if out is not None:
        write_columns(_tabulate_steps(path, posterior, data), out)
    if segments is not None:
        write_columns(table, segments)
    if as_json:
        facts = {name: to_plain(values) for name, values in table.items()}
        scores = {"shares": to_plain(posterior.mean(axis=0)), "score": mixture.score(data, **more)}
        options.echo(json.dumps({"segments": facts} | scores))
    else:
        heads = ("share of steps", "segments", "mean length")
        rows = [("", [(head, "") for head in heads])]
        for k, share in enumerate(posterior.mean(axis=0)):
            cells = (f"{100 * share:.1f} %", f"{dwell.n_segments[k]:,}", f"{dwell.mean[k]:.4g}")
            rows.append((f"intent {k}", [(cell, "") for cell in cells]))
        title = f"{path.size:,} steps in {len(data):,} recordings, {mixture.score(data, **more):.4f} nats per step"
        written = [f"\nSaved to {file}." for file in (out, segments) if file is not None]
        options.echo("\n".join([title, "", *align_rows(rows, range(3)), *written]))
    write_page(context, report, mixture, data, **more)


def _save(
    mixture: "IntentMixture | BayesianIntentMixture",
    out: Path,
    as_json: bool,
    more: dict[str, Any],
    before: str,
    after: str = "",
    **options_of_summary: Any,
) -> None:
    """Save a mixture and print its summary."""
    mixture.set_params(progress=None)
    mixture.save(out)  # save before printing, because printing fails if a pipe is closed
    summary = mixture.summary(**options_of_summary)
    if as_json:
        options.echo(json.dumps(summary.to_dict() | more | {"saved": str(out)}))
    else:
        options.echo(before + str(summary) + after)
        options.echo(f"\nSaved to {out}. Apply it with `limiirl predict {out} DEMOS`.")


def predict(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    mixture: options.MixtureFolder,
    demos: options.DemosOrAgents,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Output file (.csv or .parquet).")] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Treat demonstrations as prefixes of unfinished trajectories.")
    ] = False,
    segments: options.SegmentsFile = None,
    columns: options.Columns = None,
    cut: options.Cut = None,
    covariates: options.Covariates = None,
    by_group: options.ByGroup = False,
    condition: options.Condition = None,
    report: ReportFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict the intent of each demonstration, group or step.

    Prints the most likely intent and the probabilities of all intents. With --condition, also compares the mixture
    weights and rewards of groups between conditions, by a permutation test over groups. For a mixture written by
    `limiirl switch`, --out has one row per step, and --segments one row per segment.
    """
    from limiirl import IntentMixture
    from limiirl.mixture import check_suffix, membership_table
    from limiirl.switching import is_saved

    for path, option in ((out, "out"), (segments, "segments")):
        if path is not None:
            check_suffix(path)
        check_file(path, mixture, demos, covariates, option=option)
    check_report(report, mixture, demos, covariates)
    if is_saved(mixture):
        for name, value in (("partial", partial), ("by_group", by_group), ("condition", condition)):
            if value:
                rule = "cannot be combined with intents that switch within recordings"
                raise InvalidParameter.of(name, value, rule, remedy=f"Omit --{name.replace('_', '-')}.")
        check_uncut(cut)
        _predict_switching(context, mixture, demos, columns, out, segments, report, as_json)
        return
    if segments is not None:
        rule = f"requires a mixture written by `limiirl switch`; {mixture} has one intent per demonstration"
        raise InvalidParameter.of("segments", str(segments), rule, remedy="Omit --segments.")
    fitted = IntentMixture.load(mixture)
    data = read_demos(demos, columns, resolve_cut(cut, fitted))
    groups, known = get_groups(data, by_group), read_covariates(covariates)
    more = read_condition(demos, condition, columns)
    if more and partial:
        rule = "cannot be combined with prefixes of trajectories"
        raise InvalidParameter.of("condition", condition, rule, remedy="Omit --partial.")
    table = membership_table(fitted, data, groups, covariates=known, partial=partial)
    compared = fitted.compare_groups(data, data.groups, covariates=known, **more) if more else None
    if out is not None:
        table.write(out)
    if as_json:
        options.echo(json.dumps(table.to_dict() | ({} if compared is None else {"comparison": compared.to_dict()})))
    else:
        texts = [str(table), *([] if compared is None else [str(compared)])]
        options.echo("\n\n".join([*texts, *([] if out is None else [f"Saved to {out}."])]))
    write_page(context, report, fitted, data, groups, covariates=known)


def select(  # noqa: PLR0913 (a command's options, each with a default)
    context: typer.Context,
    demos: options.DemosOrAgents,
    mdp: options.MDPFile = None,
    gamma: options.Gamma = None,
    columns: options.Columns = None,
    state_features: options.StateFeatures = None,
    cut: options.Cut = None,
    covariates: options.Covariates = None,
    n_intents: options.Range = "6",
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

    Also prints BIC, stability and other criteria. With --covariates, the mixture weights depend on covariates. If
    there are many demonstrations, or with --executor or --workers, the fits run in parallel, which does not change the
    result. Ctrl-C ends the comparison, prints the numbers of intents that are complete, and writes --plot and --out.
    """
    from limiirl import select_intents

    check_exists(demos)
    check_target(out, demos, mdp, state_features, covariates)
    check_report(report, out, demos, mdp, state_features, covariates)
    check_file(plot, demos, mdp, option="plot")
    if plot is not None and plot.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidFile.of("plot", str(plot), "must end in .png, .svg or .pdf")
    backend = options.resolve_executor(executor, workers, scheduler)
    numbers = parse_numbers(n_intents)
    if len(numbers) == 1:
        numbers = list(range(1, numbers[0] + 1))
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
    stopped = False
    with show_progress("fits") as progress:
        try:
            selection = select_intents(
                world,
                data,
                numbers,
                mixture=mixture,
                groups=get_groups(data, by_group),
                fold_groups=get_groups(data, fold_by_group, "--fold-by-group"),
                covariates=read_covariates(covariates),
                folds=folds,
                resamples=resamples,
                seed=seed,
                progress=progress,
                executor=backend,
            )
        except SelectionInterrupted as interrupt:
            selection, stopped = interrupt.selection, True
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
    if stopped:
        raise typer.Exit(_INTERRUPTED)
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
    covariates: options.Covariates = None,
    by_group: options.ByGroup = False,
    report: ReportFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate a mixture on held-out demonstrations.

    Prints the negative log-likelihood, clustering errors if the true intents are known, and reward errors with --truth.
    """
    from limiirl import Demonstrations, IntentMixture, RewardEnsemble
    from limiirl.metrics import evaluate as evaluate_mixture

    check_report(report, mixture, demos, truth, covariates)
    ensemble = None if truth is None else RewardEnsemble.load(check_exists(truth))
    fitted = IntentMixture.load(mixture)
    cut = resolve_cut(cut, fitted)
    data = read_demos(demos, columns, cut) if labels is None else read_labelled(demos, labels, columns, cut)
    if not isinstance(data, Demonstrations):
        raise InvalidFile(
            f"{demos} contains agents, but evaluate requires demonstrations. Use `limiirl predict` for agents.",
            parameter="demos",
            value=str(demos),
        )
    groups, known = get_groups(data, by_group), read_covariates(covariates)
    scores = evaluate_mixture(fitted, data, truth=ensemble, groups=groups, covariates=known)
    options.echo(json.dumps(scores.to_dict()) if as_json else str(scores))
    write_page(context, report, fitted, data, groups, evaluation=scores, covariates=known)
