"""`assign`: write the posterior over intents of each row of a store, one parquet file per shard."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from limiirl._parallel import Mapper, map_tasks
from limiirl._progress import Progress, check_progress
from limiirl._typing import FloatArray
from limiirl.errors import InvalidDemos
from limiirl.kernels.e_step import MixtureParameters, e_step
from limiirl.mixture import IntentMixture, Membership, validate
from limiirl.streams.passes import WINDOW, check_info, check_mixture, check_model, iterate_shards
from limiirl.streams.store import FeatureShard, FeatureStore, as_store, file_error, is_scratch, make_folder


class AssignTask(NamedTuple):
    """A shard, the fitted mixture, the file to write, and the column of the row names ("demo" or "group")."""

    shard: FeatureShard
    parameters: MixtureParameters
    path: str
    unit: str


def assign(
    mixture: IntentMixture,
    store: FeatureStore | str | PathLike[str],
    folder: str | PathLike[str],
    *,
    executor: Mapper | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the posterior over intents of each row of a store, one parquet file per shard, and return the paths.

    The columns are those of `limiirl predict`: demo (or group), intent, probability_0, ..., log_likelihood.
    Demonstrations without names are numbered within each shard.

    Parameters
    ----------
    mixture : IntentMixture
        A mixture fitted to this store, or to other demonstrations in the same MDP.
    store : FeatureStore or path
    folder : path
        Created if it does not exist. Existing files of this store are replaced atomically.
    executor, progress
        See `fit_streamed`.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow.parquet as pq
    >>> from limiirl import MDP, Demonstrations, MaxEnt
    >>> from limiirl.streams import write_features
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> folder = Path(tempfile.mkdtemp())
    >>> mix = IntentMixture(2, MaxEnt(bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
    >>> (path,) = assign(mix, write_features(mdp, [demos], folder / "features"), folder / "intents")
    >>> pq.read_table(path)["intent"].to_pylist()
    [0, 0, 1]
    """
    check_mixture(mixture)
    validate.check_fitted(mixture)
    check_progress(progress)
    irl = check_model(mixture.irl_)
    rows = as_store(store)
    rows.check(mixture.mdp_)
    for shard in rows.shards:
        check_info(irl, shard.info, shard.name, mixture.mdp_)
    root = make_folder(folder)
    paths = [root / f"shard-{index:05d}.parquet" for index in range(len(rows.shards))]
    others = sorted({path.name for path in root.iterdir() if not is_scratch(path)} - {path.name for path in paths})
    if others:
        message = f"{root} contains {others[0]}, which is not one of the {len(paths)} shards. Choose another folder."
        raise file_error(message, root / others[0])
    for path in filter(Path.exists, paths):
        _check_replaceable(path)
    log_Z = irl.log_partition(mixture.mdp_, mixture.thetas_)
    with np.errstate(divide="ignore"):  # a mixture weight may be 0
        parameters = MixtureParameters(mixture.thetas_, log_Z, np.log(mixture.weights_))
    unit = "group" if rows.by_group else "demo"
    shards = zip(iterate_shards(rows, progress), paths, strict=True)
    tasks = (AssignTask(shard, parameters, str(path), unit) for shard, path in shards)
    return [Path(path) for path in map_tasks(assign_shard, tasks, executor)]


def _check_replaceable(path: Path) -> None:
    """Raise unless a file is an earlier output, so that no file of demonstrations with the same name is replaced."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names if path.is_file() else []
    except pa.ArrowException:
        names = []
    if "log_likelihood" not in names:
        raise file_error(f"{path} was not written by assign and is not replaced. Choose another folder.", path)


def assign_shard(task: AssignTask) -> str:
    """Write the posteriors of one shard, and return the path of the file."""
    posteriors: list[FloatArray] = []
    log_likelihoods: list[FloatArray] = []
    thetas, log_Z, log_rho, _ = task.parameters
    for rows in task.shard.windows(WINDOW):
        U = np.zeros((len(rows.features), log_rho.size))
        bad = e_step(rows, thetas, log_Z, log_rho, U).bad_row
        if bad >= 0:
            row = bad + sum(map(len, posteriors))
            message = f"{task.shard.name}, row {row} has probability 0 under every intent. Remove it."
            raise InvalidDemos(message, parameter="store", value=task.shard.name, index=row)
        posteriors.append(U)
        log_likelihoods.append(np.logaddexp.reduce(rows.log_prob(thetas, log_Z) + log_rho, axis=1))
    posterior, names = np.concatenate(posteriors), task.shard.names()
    names = np.arange(len(posterior)) if names is None else names
    intents = np.argmax(posterior, axis=1)
    Membership(task.unit, names, intents, posterior, np.concatenate(log_likelihoods)).write(task.path)
    return task.path
