"""`limiirl stream`: fit a mixture to demonstrations that are too large for memory."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from limiirl._progress import Progress, show_progress
from limiirl.cli import options
from limiirl.cli.inputs import check_exists, check_file, check_target, make_mixture, parse_number
from limiirl.cli.roads_inputs import plural

app = options.make_app("Fit data sets that exceed memory.", "stream features demos/ --mdp town.npz --out features")

Store = Annotated[Path, typer.Argument(metavar="STORE", help="Folder written by `limiirl stream features`.")]
Verify = Annotated[bool, typer.Option("--verify", help="Verify the checksums of the store first.")]


def features(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="Folder of parquet or CSV files with columns demo, t, state[, action, group]."
        ),
    ],
    mdp: Annotated[Path, typer.Option("--mdp", help="MDP file (.npz) written by MDP.save.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder of the features.")] = Path("features"),
    by_group: Annotated[
        bool,
        typer.Option(
            "--by-group", help="Assign one intent per group; all demonstrations of a group must be in one file."
        ),
    ] = False,
    executor: options.ExecutorName = None,
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the features of demonstrations to a store.

    Reads one file at a time. To resume an interrupted command, run it again.
    """
    from limiirl import MDP
    from limiirl.streams import write_features

    with show_progress("writing features", every_s=0.0) as progress:
        store = write_features(
            MDP.load(check_exists(mdp)),
            source,
            out,
            by_group=by_group,
            executor=options.resolve_executor(executor, workers, scheduler),
            progress=progress,
        )
    facts = {
        "rows": store.n,
        "demonstrations": store.n_demos,
        "features": store.n_features,
        "shards": len(store.shards),
    }
    if as_json:
        options.echo(json.dumps(facts | {"longest": store.longest, "saved": str(out)}))
    else:
        shards = plural(len(store.shards), "shard")
        options.echo(f"Wrote {store.n_features} features of {store.n:,} {store.noun} to {out} ({shards}).")


def fit(  # noqa: PLR0913 (a command's options, each with a default)
    store: Store,
    n_intents: options.NIntents,
    out: options.MixtureOut = Path("mixture"),
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Checkpoint file, updated after every iteration. If it exists, the fit continues from it."),
    ] = None,
    init: options.Init = "kmeans",
    reward_init: options.RewardInit = "mle",
    sample: Annotated[int, typer.Option(help="Number of rows in the random sample for the initialisation.")] = 50_000,
    settings: options.Setting = [],  # noqa: B006 (typer reads the default, which is never changed)
    seed: options.Seed = 0,
    verify: Verify = False,
    device: options.DeviceName = None,
    executor: options.ExecutorName = None,
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit a mixture of intents to a feature store.

    Reads the store once per EM iteration, prints a summary and saves the fitted mixture.
    """
    from limiirl.streams import FeatureStore, fit_streamed

    check_target(out, store)
    check_file(checkpoint, store, option="checkpoint")
    opened = FeatureStore.open(store)
    if verify:
        opened.verify()
    given = options.with_device(settings, device)
    parameters = {"init": init, "reward_init": reward_init, "random_state": seed}
    mixture = make_mixture(parse_number(n_intents), "MaxEnt", given, **parameters)
    world = opened.mdp()
    options.report_device(device, world)
    with show_progress() as progress:
        meter = _Meter(opened.n, progress)
        mixture.set_params(progress=meter.iteration)
        fit_streamed(
            mixture,
            world,
            opened,
            sample=sample,
            checkpoint=checkpoint,
            executor=options.resolve_executor(executor, workers, scheduler),
            progress=meter.rows,
        )
    mixture.set_params(progress=None).save(out)
    if as_json:
        facts = {"weights": mixture.weights_.tolist(), "thetas": mixture.thetas_.tolist()}
        facts |= {"log_likelihood": mixture.log_likelihood_, "n_iter": mixture.n_iter_}
        options.echo(json.dumps(facts | {"converged": mixture.converged_, "rows": opened.n, "saved": str(out)}))
    else:
        options.echo(_summarise(mixture, f"{opened.n:,} {opened.noun}"))
        options.echo(f"\nSaved to {out}. Apply it with `limiirl stream assign {out} {store}`.")


def assign(  # noqa: PLR0913 (a command's options, each with a default)
    mixture: options.MixtureFolder,
    store: Store,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder of parquet files.")] = Path("memberships"),
    verify: Verify = False,
    device: options.DeviceName = None,
    executor: options.ExecutorName = None,
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict the intents of the rows of a feature store.

    Writes one parquet file per shard, with the intent of each demonstration or group.
    """
    from limiirl import IntentMixture
    from limiirl.streams import FeatureStore
    from limiirl.streams import assign as write

    opened = FeatureStore.open(store)
    if verify:
        opened.verify()
    fitted = IntentMixture.load(mixture)
    if device is not None:
        fitted.irl_.device = device  # the device that was used for the fit may not be available on this machine
    backend = options.resolve_executor(executor, workers, scheduler)
    with show_progress("assigning intents", every_s=0.0) as progress:
        paths = write(fitted, opened, out, executor=backend, progress=progress)
    if as_json:
        options.echo(json.dumps({"rows": opened.n, "files": [str(path) for path in paths]}))
    else:
        options.echo(f"Wrote the intents of {opened.n:,} {opened.noun} to {out} ({plural(len(paths), 'file')}).")


class _Meter:
    """Progress of a streamed fit: iteration and rows per second and, on a terminal, the number of rows read."""

    def __init__(self, n: int, progress: Progress) -> None:
        self.n, self.progress = n, progress
        self.start, self.last = time.perf_counter(), "initialisation"

    def iteration(self, done: int, _: int | None, message: str) -> None:
        seconds = max(time.perf_counter() - self.start, 1e-9)
        self.last = f"iteration {done}: {message}, {self.n / seconds:,.0f} rows per second"
        self.progress(0, None, self.last)
        self.start = time.perf_counter()

    def rows(self, done: int, total: int | None, _: str) -> None:
        if sys.stderr.isatty():
            self.progress(done, total, self.last)


def _summarise(mixture: Any, data: str) -> str:
    names, n_intents = mixture.mdp_.feature_names, len(mixture.weights_)
    width = max(map(len, names))
    end = "converged" if mixture.converged_ else "stopped"
    rows = [("weight", mixture.weights_), *zip(names, mixture.thetas_.T, strict=True)]
    lines = [
        f"{n_intents} intents, {data}; {end} after {mixture.n_iter_} iterations",
        f"Mean log-likelihood {mixture.log_likelihood_:.6f}",
        "",
        f"{'':<{width}}  " + "  ".join(f"intent {k:<3}" for k in range(n_intents)),
    ]
    return "\n".join(
        lines + [f"{name:<{width}}  " + "  ".join(f"{value:10.4f}" for value in row) for name, row in rows]
    )


options.add_command(app, features, "stream features demos/ --mdp town.npz --out features")
options.add_command(app, fit, "stream fit features --intents 3 --checkpoint fit.npz --out intents")
options.add_command(app, assign, "stream assign intents features --out memberships")
