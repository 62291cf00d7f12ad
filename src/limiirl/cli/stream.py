"""`limiirl stream`: demonstrations larger than memory, from parquet files to features, intents and memberships."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limiirl._progress import Progress, show_progress
from limiirl.cli.inputs import check_exists, check_target, make_mixture
from limiirl.cli.options import (
    AsJson,
    DeviceName,
    ExecutorName,
    Init,
    Scheduler,
    Seed,
    Setting,
    Workers,
    resolve_executor,
    tell_device,
    with_device,
)

if TYPE_CHECKING:
    from limiirl.mixture import EMProgress


app = typer.Typer(help="Streams: demonstrations larger than memory.", no_args_is_help=True, add_completion=False)

Store = Annotated[Path, typer.Argument(help="A folder that `limiirl stream features` wrote.")]
Verify = Annotated[bool, typer.Option("--verify", help="First read all files, and check their digests.")]


@app.command(no_args_is_help=True)
def features(
    source: Annotated[
        Path, typer.Argument(help="A folder of parquet or CSV files, a part each: demo, t, state[, action, group].")
    ],
    mdp: Annotated[Path, typer.Option("--mdp", help="An .npz of MDP.save.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the features.")] = Path("features"),
    by_group: Annotated[
        bool, typer.Option("--by-group", help="One intent a group; a group must lie within one file.")
    ] = False,
    executor: ExecutorName = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Compute the features of demonstrations once, part by part; run again after a stop, it goes on.

    Example: limiirl stream features walks/ --mdp town.npz --out features
    """
    from limiirl import MDP
    from limiirl.streams import write_features

    with show_progress("writing features", every_s=0.0) as progress:
        store = write_features(
            MDP.load(check_exists(mdp)),
            source,
            out,
            by_group=by_group,
            executor=resolve_executor(executor, workers, scheduler),
            progress=progress,
        )
    facts = {"rows": store.n, "demonstrations": store.n_demos, "features": store.n_features, "parts": len(store.parts)}
    if as_json:
        typer.echo(json.dumps(facts | {"longest": store.longest, "saved": str(out)}))
    else:
        parts = f"{len(store.parts)} part{'s' * (len(store.parts) != 1)}"
        typer.echo(f"{store.n:,} {store.noun} with {store.n_features} features in {parts}, in {out}.")


@app.command(no_args_is_help=True)
def fit(  # noqa: PLR0913 (a command's options, each with a default)
    store: Store,
    n_intents: Annotated[int, typer.Option("--intents", "-k", help="Number of intents.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the fitted mixture.")] = Path("mixture"),
    checkpoint: Annotated[
        Path | None, typer.Option(help="A file written after every iteration; if it is there, the fit goes on from it.")
    ] = None,
    init: Init = "kmeans",
    reward_init: Annotated[str, typer.Option(help="mle, mean, mean_clipped or mean_ray.")] = "mle",
    sample: Annotated[int, typer.Option(help="Rows, drawn at random, that the start clusters.")] = 50_000,
    settings: Setting = [],  # noqa: B006 (typer reads the default, nobody changes it)
    seed: Seed = 0,
    verify: Verify = False,
    device: DeviceName = None,
    executor: ExecutorName = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Learn the intents behind a store of features, one pass an iteration; print what was found, and save it.

    Example: limiirl stream fit features --intents 3 --checkpoint fit.npz --out intents
    """
    from limiirl.streams import FeatureStore, fit_streamed

    check_target(out)  # before the work, not after it
    opened = FeatureStore.open(store)
    if verify:
        opened.verify()
    mixture = make_mixture(
        n_intents, "MaxEnt", with_device(settings, device), init=init, reward_init=reward_init, random_state=seed
    )
    world = opened.mdp()
    tell_device(device, world)
    with show_progress() as progress:
        meter = _Meter(opened.n, progress)
        mixture.set_params(callback=meter.iteration)
        fit_streamed(
            mixture,
            world,
            opened,
            sample=sample,
            checkpoint=checkpoint,
            executor=resolve_executor(executor, workers, scheduler),
            progress=meter.rows,
        )
    mixture.set_params(callback=None).save(out)
    found = {
        "weights": mixture.weights_.tolist(),
        "thetas": mixture.thetas_.tolist(),
        "log_likelihood": mixture.log_likelihood_,
        "n_iter": mixture.n_iter_,
        "converged": mixture.converged_,
        "rows": opened.n,
    }
    if as_json:
        typer.echo(json.dumps(found | {"saved": str(out)}))
        return
    typer.echo(_described(mixture, f"{opened.n:,} {opened.noun}"))
    typer.echo(f"\nSaved to {out}; `limiirl stream assign {out} {store}` says who follows which intent.")


@app.command(no_args_is_help=True)
def assign(  # noqa: PLR0913 (a command's options, each with a default)
    mixture: Annotated[Path, typer.Argument(help="A folder that `limiirl stream fit` or `limiirl fit` wrote.")],
    store: Store,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for a parquet file a part.")] = Path("memberships"),
    verify: Verify = False,
    device: DeviceName = None,
    executor: ExecutorName = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Write which intent each demonstration, or each group, of a store follows, part by part.

    Example: limiirl stream assign intents features --out memberships
    """
    from limiirl import IntentMixture
    from limiirl.streams import FeatureStore
    from limiirl.streams import assign as write

    opened = FeatureStore.open(store)
    if verify:
        opened.verify()
    fitted = IntentMixture.load(mixture)
    if device is not None:
        fitted.irl_.device = device  # where it was fitted need not be here
    with show_progress("assigning intents", every_s=0.0) as progress:
        paths = write(
            fitted,
            opened,
            out,
            executor=resolve_executor(executor, workers, scheduler),
            progress=progress,
        )
    if as_json:
        typer.echo(json.dumps({"rows": opened.n, "files": [str(path) for path in paths]}))
    else:
        typer.echo(f"{opened.n:,} {opened.noun} in {len(paths)} files, in {out}.")


class _Meter:
    """Progress of a fit: the iteration, rows per second, and on a terminal the rows of the pass."""

    def __init__(self, n: int, progress: Progress) -> None:
        self.n, self.progress = n, progress
        self.begun, self.last = time.perf_counter(), "start"

    def iteration(self, progress: EMProgress) -> None:
        entry = progress.iteration
        taken = max(time.perf_counter() - self.begun, 1e-9)
        change = "" if math.isnan(entry.change) else f"change {entry.change:.1e}, "
        self.last = (
            f"iteration {entry.iteration}: log-likelihood {entry.log_likelihood:.6f}, {change}"
            f"{self.n / taken:,.0f} rows per second"
        )
        self.progress(0, None, self.last)
        self.begun = time.perf_counter()

    def rows(self, done: int, total: int | None, _: str) -> None:
        if sys.stderr.isatty():
            self.progress(done, total, self.last)


def _described(mixture: Any, what: str) -> str:
    names = mixture.mdp_.feature_names
    width = max(map(len, names))
    ended = "converged" if mixture.converged_ else "stopped"
    lines = [
        f"{len(mixture.weights_)} intents behind {what}; {ended} after {mixture.n_iter_} iterations",
        f"log-likelihood {mixture.log_likelihood_:.6f} a row",
        "",
        f"{'':<{width}}  " + "  ".join(f"intent {k:<3}" for k in range(len(mixture.weights_))),
        f"{'share':<{width}}  " + "  ".join(f"{share:10.4f}" for share in mixture.weights_),
    ]
    lines += [
        f"{name:<{width}}  " + "  ".join(f"{value:10.4f}" for value in column)
        for name, column in zip(names, mixture.thetas_.T, strict=True)
    ]
    return "\n".join(lines)
