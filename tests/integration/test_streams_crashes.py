"""Streams under SIGKILL: a real process, killed at random moments and started again, ends with the same bits."""

import random
import signal
import time
import warnings

import numpy as np
import pytest

from limiirl import IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.streams import FeatureStore, FunctionSource, fit_streamed, write_features
from tests.helpers import raises
from tests.oracles.forks import fork
from tests.oracles.mixture import TASTES, crossings, walks

pytestmark = pytest.mark.filterwarnings("ignore::limiirl.errors.ConvergenceWarning")

SHARDS, ITERATIONS = 12, 10


def job(folder, report):
    """Write features and fit to them; return weights, rewards and history as text that has every bit."""
    demos, _ = walks(200 * SHARDS, seed=1)

    def shard(i):
        report(f"shard {i}")
        return demos[200 * i : 200 * (i + 1)]

    store = write_features(crossings(), FunctionSource(shard, SHARDS), f"{folder}/features")
    mix = IntentMixture(2, MaxEnt(bounds=(-5, 5)), max_iter=ITERATIONS, resp_tol=0.0, random_state=0)
    mix.set_params(progress=lambda done, *_: report(f"iteration {done}"))
    fit_streamed(mix, crossings(), store, sample=500, checkpoint=f"{folder}/fit.npz")
    history = [(e.iteration, e.objective, e.change, e.n_evaluations, e.weights.tolist()) for e in mix.history_]
    report(repr((mix.thetas_.tolist(), mix.weights_.tolist(), history)))


def job_elsewhere(pipe, folder, last):
    """Run the job in a process that is to be killed after it has sent `last`.

    It sends a line when it begins a shard or has ended an iteration. After the line `last` it continues for one step at
    most, so that it is still running when the parent kills it.
    """
    warnings.simplefilter("ignore")
    sent = []

    def report(text):
        if last in sent:
            pipe.recv()
        sent.append(text)
        pipe.send(text)

    job(folder, report)


def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = []
    job(tmp_path / "whole", whole.append)
    assert len(whole) == SHARDS + ITERATIONS + 2
    dice = random.Random(0)
    begun = []
    # Killed while it writes, soon after it began to fit, and later.
    for last in (
        f"shard {dice.randrange(2, 9)}",
        f"iteration {dice.randrange(3)}",
        f"iteration {dice.randrange(4, 8)}",
    ):
        with fork(job_elsewhere, tmp_path / "killed", last) as process:
            begun.append(process.receive())
            line = begun[-1]
            while line != last:
                line = process.receive()
            time.sleep(dice.uniform(0.0, 0.02))
            assert process.kill() == -signal.SIGKILL
    with fork(job_elsewhere, tmp_path / "killed", "") as process:
        lines = process.finish()
    assert lines[-1] == whole[-1]
    # Each went on near where the one before was killed: at most a shard, or an iteration, was done twice.
    begun.append(lines[0])
    assert begun[0] == "shard 0"
    assert begun[1].startswith("shard ")
    assert begun[1] != "shard 0"
    assert begun[3].startswith("iteration ")
    assert begun[3] not in ("iteration 0", "iteration 1")


def fitting(**parameters):
    settings = {
        "init": RewardEnsemble([0.5, 0.5], TASTES / 2),
        "max_iter": 6,
        "resp_tol": 0.0,
        "random_state": 0,
    } | parameters
    irl = settings.pop("irl", MaxEnt(bounds=(-5, 5)))
    return IntentMixture(2, irl, **settings)


class Stop(Exception):
    pass


def stop_at(last):
    def report(done, *_):
        if done == last:
            raise Stop

    return report


@pytest.fixture
def store(tmp_path):
    demos, _ = walks(500, seed=2)
    return write_features(crossings(), [demos[:200], demos[200:]], tmp_path / "features")


@pytest.mark.parametrize(
    "parameters",
    [{}, {"annealing": (4.0, 4)}, {"init": "kmeans"}, {"init": RewardEnsemble([0.5, 0.5], TASTES * 20)}],
    ids=["plain", "annealed", "kmeans", "outside the bounds"],
)
@pytest.mark.parametrize("last", [0, 1, 2, 4, 6])
def test_stopped_after_any_iteration_it_goes_on_with_the_same_bits(tmp_path, store, parameters, last):
    whole = fit_streamed(fitting(**parameters), crossings(), store)
    with pytest.raises(Stop):  # before the checkpoint of this iteration is written
        fit_streamed(fitting(**parameters, progress=stop_at(last)), crossings(), store, checkpoint=tmp_path / "fit.npz")
    assert (tmp_path / "fit.npz").exists() == (last > 0)
    seen = []
    again = fit_streamed(
        fitting(**parameters, progress=lambda done, *_: seen.append(done)),
        crossings(),
        store,
        checkpoint=tmp_path / "fit.npz",
    )
    assert seen == list(range(last, 7))
    np.testing.assert_array_equal(again.thetas_, whole.thetas_)
    np.testing.assert_array_equal(again.weights_, whole.weights_)
    for one, other in zip(again.history_, whole.history_, strict=True):
        assert (one.objective, repr(one.change), one.event) == (other.objective, repr(other.change), other.event)
    np.testing.assert_array_equal([e.weights for e in again.history_], [e.weights for e in whole.history_])


@pytest.mark.smoke
def test_a_fit_that_has_ended_is_returned_or_goes_on(tmp_path, store):
    place = tmp_path / "fit.npz"
    short = fit_streamed(fitting(max_iter=3), crossings(), store, checkpoint=place)
    passes = []
    again = fit_streamed(
        fitting(max_iter=3), crossings(), store, checkpoint=place, progress=lambda *done: passes.append(done)
    )
    assert passes == []
    np.testing.assert_array_equal(again.thetas_, short.thetas_)
    longer = fit_streamed(fitting(max_iter=6), crossings(), store, checkpoint=place)
    np.testing.assert_array_equal(longer.thetas_, fit_streamed(fitting(), crossings(), store).thetas_)
    converged = fit_streamed(fitting(max_iter=300, resp_tol=1e-3), crossings(), store, checkpoint=place)
    assert converged.converged_
    n_iter = converged.n_iter_
    assert fit_streamed(fitting(max_iter=300, resp_tol=1e-3), crossings(), store, checkpoint=place).n_iter_ == n_iter


def test_the_checkpoint_of_another_fit_is_refused(tmp_path, store):
    place = tmp_path / "fit.npz"
    fit_streamed(fitting(max_iter=1), crossings(), store, checkpoint=place)
    demos, _ = walks(500, seed=3)
    other = write_features(crossings(), [demos], tmp_path / "other")
    for changed, data in (
        (fitting(irl=MaxEnt(bounds=(-6, 5))), store),
        (fitting(random_state=1), store),
        (fitting(init=RewardEnsemble([0.4, 0.6], TASTES / 2)), store),
        (fitting(), other),
    ):
        with raises(InvalidParameter, parameter="checkpoint", value=str(place)):
            fit_streamed(changed, crossings(), data, checkpoint=place)
    with raises(InvalidParameter, parameter="checkpoint", value=str(place)):
        fit_streamed(fitting(), crossings(), store, checkpoint=place, sample=7)
    place.write_bytes(place.read_bytes()[:100])
    with pytest.raises(InvalidFile, match="truncated"):
        fit_streamed(fitting(), crossings(), store, checkpoint=place)


def test_generated_rows_resume_too(tmp_path, store):
    made = FeatureStore.from_function(
        lambda i: store.shards[i].take(np.arange(store.shards[i].info.n)), [200, 300], 3, longest=7
    )
    with pytest.raises(Stop):
        fit_streamed(fitting(progress=stop_at(3)), crossings(), made, checkpoint=tmp_path / "fit.npz")
    again = fit_streamed(fitting(), crossings(), made, checkpoint=tmp_path / "fit.npz")
    np.testing.assert_array_equal(again.thetas_, fit_streamed(fitting(), crossings(), store).thetas_)


def half(points, n_intents, rng):
    del rng
    return np.arange(len(points)) % n_intents


def other_half(points, n_intents, rng):
    return half(points[::-1], n_intents, rng)


def clusterer(n_init):
    from sklearn.cluster import KMeans

    return KMeans(n_clusters=2, n_init=n_init, random_state=0)


@pytest.mark.parametrize(
    ("one", "other"),
    [(half, other_half), (clusterer(1), clusterer(2)), (half, clusterer(1))],
    ids=["functions", "parameters", "kinds"],
)
def test_another_init_does_not_go_on(tmp_path, store, one, other):
    place = tmp_path / "fit.npz"
    short = fit_streamed(fitting(init=one, max_iter=1), crossings(), store, checkpoint=place)
    with raises(InvalidParameter, parameter="checkpoint", value=str(place)):
        fit_streamed(fitting(init=other, max_iter=2), crossings(), store, checkpoint=place)
    again = fit_streamed(fitting(init=one, max_iter=1), crossings(), store, checkpoint=place)
    np.testing.assert_array_equal(again.thetas_, short.thetas_)


def test_generated_rows_do_not_continue_with_another_mdp_function_or_version(tmp_path, store):
    def make(i):
        return store.shards[i].take(np.arange(store.shards[i].info.n))

    def make_again(i):
        return make(i)

    def generate(function=make, version="one"):
        return FeatureStore.from_function(function, [200, 300], 3, longest=7, version=version)

    mdp, place = crossings(), tmp_path / "fit.npz"
    fit_streamed(fitting(max_iter=1), mdp, generate(), checkpoint=place)
    scaled = mdp.replace(state_features=2.0 * mdp.state_features)
    for changed, data in ((scaled, generate()), (mdp, generate(make_again)), (mdp, generate(version="two"))):
        with raises(InvalidParameter, parameter="checkpoint", value=str(place)):
            fit_streamed(fitting(max_iter=2), changed, data, checkpoint=place)
    assert fit_streamed(fitting(max_iter=2), mdp, generate(), checkpoint=place).n_iter_ == 2
