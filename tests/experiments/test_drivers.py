"""The driver experiment on six segments: splits, what a trial is worth by hand, and runs that were stopped."""

import csv
import gc
import io
import json
import math
import shutil
import sqlite3
import weakref
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from limiirl import Demonstrations, DestinationMaxEnt, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import (
    BackendUnavailable,
    InvalidDemos,
    InvalidFile,
    InvalidNetwork,
    InvalidParameter,
    LimiirlWarning,
)
from limiirl.executors import Executor
from limiirl.experiments import (
    DESTINATION_METHODS,
    DRIVER_METHODS,
    DriverData,
    DriverPlan,
    DriverRecord,
    DriverResults,
    DriverSpec,
    Store,
    driver_example,
    drivers,
    read_drivers,
    run_drivers,
)
from limiirl.experiments.drivers import driver_mixture, measure_baselines, measure_routes, run_driver_trial
from limiirl.experiments.store import FILE
from limiirl.roads.features import PAPER
from tests.gpu.emulator import compiler, install_emulator
from tests.helpers import raises
from tests.oracles.two_ways import LENGTH_M, MOTORWAY, STREET, SUCCESSORS, demonstrations, drives, two_ways

TOO_LONG, PASSED_BEFORE = [0, 3, 4, 5, 0, 3, 4, 5, 0, 1], [0, 3, 4, 5, 0]
PLAN = DriverPlan(
    n_intents=2, n_splits=2, n_train=15, n_test=12, max_length=9, max_evaluations=8, max_iter=3, m_gtol=0.1, n_routes=10
)
MANY = 40


@pytest.fixture(scope="module")
def network():
    return two_ways()


@pytest.fixture(scope="module")
def data(network):
    return DriverData(network, demonstrations([TOO_LONG, *drives(MANY), PASSED_BEFORE]))


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    place = tmp_path_factory.mktemp("drivers") / "run"
    run_drivers(data, PLAN, place)
    return place


@pytest.fixture(scope="module")
def results(folder):
    return read_drivers(folder)


@pytest.fixture
def copy(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


def open_store(folder):
    return Store(folder, create=False, record=DriverRecord, spec=DriverSpec)


def forget(folder, spec, split):
    """Remove a trial from a run."""
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        place = f'%"spec": "{spec.hash}", "seed": {split},%'
        assert database.execute("DELETE FROM records WHERE content LIKE ?", (place,)).rowcount == 1


def set_plan(folder, plan):
    """Put another plan into the header of a run."""
    store = open_store(folder)
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        database.execute("DELETE FROM header")
    store.set_header({"plan": plan, "data": "x"})


class TestPlan:
    def test_every_method_is_tried_on_every_split_the_first_discount_first(self):
        trials = list(PLAN.trials())
        free = [(split, method) for split in range(2) for method in DRIVER_METHODS]
        bound = [(split, method) for split in range(2) for method in DESTINATION_METHODS]
        assert [(split, spec.method) for spec, split in trials] == free + bound + free
        assert [spec.gamma for spec, _ in trials] == [1.0] * 14 + [0.999] * 10
        assert len({(spec.hash, split) for spec, split in trials}) == len(trials)
        assert [spec.to_destination for spec, _ in trials] == [False] * 10 + [True] * 4 + [False] * 10

    def test_number_of_intents_of_each_method(self):
        for spec, split in PLAN.trials():
            mixture = driver_mixture(PLAN, spec, split)
            assert mixture.n_intents == (1 if spec.method.startswith("one intent") else 2)
            assert isinstance(mixture.irl, DestinationMaxEnt if spec.to_destination else MaxEnt)
            assert mixture.max_evaluations == mixture.irl.max_evaluations == 8

    def test_the_papers_settings_are_the_defaults(self):
        plan = DriverPlan()
        assert (plan.n_splits, plan.n_train, plan.n_test, plan.max_length) == (8, 1000, 8000, 300)
        assert (plan.bounds, plan.max_evaluations, set(plan.gammas)) == ((-10.0, 0.0), 50, {1.0, 0.999})
        model = driver_mixture(plan, DriverSpec("GMM, MLE", 0.999), 0).irl
        assert (model.max_length, tuple(model.bounds)) == (300, (-10.0, 0.0))

    def test_lists_and_tuples_are_equivalent(self):
        assert DriverPlan(gammas=[1.0, 0.9], bounds=[-5.0, 0.0]) == DriverPlan(gammas=(1.0, 0.9), bounds=(-5.0, 0.0))
        assert len({DriverPlan(gammas=[1.0, 0.9]), DriverPlan(gammas=(1.0, 0.9))}) == 1

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("device", "tpu"),
            ("n_train", 0),
            ("n_splits", 2.0),
            ("max_iter", True),
            ("gammas", ()),
            ("gammas", (1.0, 1.0)),
            ("gammas", (1.0, 7.0)),
            ("gammas", (0.0,)),
            ("gammas", 0.9),
            ("bounds", (0.0, -10.0)),
            ("bounds", (-1.0, float("nan"))),
            ("destination_bounds", (-1.0,)),
            ("seed", -1),
            ("seed", 0.5),
            ("resp_tol", -3.0),
            ("m_gtol", float("inf")),
            ("features", "nonsense"),
            ("features", PAPER),
        ],
    )
    def test_invalid_settings_are_rejected(self, name, value):
        with raises(InvalidParameter, parameter=name) as caught:
            DriverPlan(**{name: value})
        assert repr(caught.value.value) == repr(value)

    def test_nearly_equal_discounts_are_distinct_settings(self):
        specs = [DriverSpec("one intent", gamma) for gamma in (1.0, 0.999, 0.9999999, 1.0 - 2.0**-53)]
        assert len({spec.hash for spec in specs}) == 4
        for spec in specs:
            assert DriverSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec

    def test_turn_features_are_for_destination_models_only(self, data):
        free, bound = DriverSpec("GMM, MLE", 0.999), DriverSpec(next(iter(DESTINATION_METHODS)), 1.0)
        for features, n in (("paper", 24), ("plain", 4)):
            plan = replace(PLAN, features=features)
            names = data.mdp(plan, free).feature_names
            assert len(names) == n
            more = [name for name in data.mdp(plan, bound).feature_names if name not in names]
            assert more
            assert all("turn" in name for name in more)
        assert (data.mdp(PLAN, free).gamma, data.mdp(PLAN, bound).gamma) == (0.999, 1.0)


class TestSplit:
    def test_halves_are_disjoint_and_usable(self, data):
        for number in range(6):
            train, test = data.split(replace(PLAN, n_train=20, n_test=100), number)
            assert len(train) == len(test) == MANY // 2
            assert sorted([*train.ids, *test.ids]) == list(range(1, MANY + 1))  # neither the first trip nor the last

    def test_splits_depend_on_seed_and_index_only(self, data):
        for seed, number in ((0, 0), (0, 1), (7, 1)):
            train, test = data.split(replace(PLAN, seed=seed), number)
            order = 1 + np.random.default_rng([seed, number]).permutation(MANY)
            np.testing.assert_array_equal(train.ids, order[:15])
            np.testing.assert_array_equal(test.ids, order[20:32])
            for i, demo in zip(test.ids, test, strict=True):
                np.testing.assert_array_equal(demo.states, data.demos[int(i)].states)

    def test_smaller_samples_are_subsets_of_larger_ones(self, data):
        (small, judged), (large, same) = (data.split(replace(PLAN, n_train=n), 1) for n in (5, 20))
        np.testing.assert_array_equal(small.ids, large.ids[:5])
        np.testing.assert_array_equal(judged.ids, same.ids)

    def test_too_few_trips_are_rejected(self, data):
        with raises(InvalidDemos, parameter="n_train", value=21):
            data.split(replace(PLAN, n_train=21), 0)

    def test_too_few_trips_create_no_folder(self, data, tmp_path):
        with raises(InvalidDemos, parameter="n_train", value=21):
            run_drivers(data, replace(PLAN, n_train=21), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_neighbouring_seeds_have_different_starts(self):
        seeds = {
            driver_mixture(replace(PLAN, seed=seed), DriverSpec("GMM, MLE", 1.0), split).random_state
            for seed in range(4)
            for split in range(4)
        }
        assert len(seeds) == 16

    def test_the_fingerprint_depends_on_trips_and_network(self, data, network):
        other = replace(data.demos, ids=None)
        assert DriverData(network, other).fingerprint() == data.fingerprint()  # names are no content
        assert DriverData(network, data.demos[1:]).fingerprint() != data.fingerprint()
        states = data.demos.states.copy()
        states[1] = 1
        assert DriverData(network, replace(data.demos, states=states)).fingerprint() != data.fingerprint()
        longer = network.replace(length_m=LENGTH_M + 1.0)
        assert DriverData(longer, data.demos).fingerprint() != data.fingerprint()


def log_sum(values):
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


def all_paths():
    """All trajectories of at most `max_length` segments, from everywhere."""
    paths, last = [], [[s] for s in SUCCESSORS]
    while len(last[0]) <= PLAN.max_length:
        paths += last
        last = [[*path, s] for path in last for s in SUCCESSORS[path[-1]]]
    return paths


def paths_between(first, last):
    """All paths that end at the first arrival, up to eighty segments; the weight of longer ones is negligible."""
    result, next_segments = [], [[first]]
    for _ in range(80):
        result += [path for path in next_segments if path[-1] == last]
        next_segments = [[*path, s] for path in next_segments if path[-1] != last for s in SUCCESSORS[path[-1]]]
    return result


def by_hand(mdp, theta, demos, *, to_destination):
    """The log-likelihood of each trip under one reward: its share of all that could have been."""

    def weights(paths):
        return (Demonstrations.from_lists(paths).features(mdp) @ theta).tolist()

    paths = [demo.states.tolist() for demo in demos]
    if to_destination:
        sums = [log_sum(weights(paths_between(path[0], path[-1]))) for path in paths]
    else:
        sums = [log_sum(weights(all_paths()))] * len(paths)
    return [weight - total for weight, total in zip(weights(paths), sums, strict=True)]


def mix(weights, rows):
    return [log_sum([math.log(w) + x for w, x in zip(weights, row, strict=True)]) for row in rows]


class TestRecord:
    @pytest.mark.parametrize(("method", "gamma"), sorted({(spec.method, spec.gamma) for spec, _ in PLAN.trials()}))
    def test_likelihoods_agree_with_enumeration(self, data, results, method, gamma):
        bound = method in DESTINATION_METHODS
        record = next(r for r in results.of(method, gamma) if r.split == 1)
        mdp = data.mdp(PLAN, DriverSpec(method, gamma))
        train, test = (
            np.array([by_hand(mdp, theta, demos, to_destination=bound) for theta in np.array(record.thetas)]).T
            for demos in data.split(PLAN, 1)
        )
        total = math.fsum(mix(record.weights, test))
        np.testing.assert_allclose(record.test_nll, -total / 12, rtol=1e-9)
        n_segments = sum(len(demo.states) for demo in data.split(PLAN, 1)[1])
        np.testing.assert_allclose(record.test_nll_segment, -total / n_segments, rtol=1e-9)
        np.testing.assert_allclose(record.test_nll_bound, -(test.mean(axis=0) @ record.weights), rtol=1e-9)
        np.testing.assert_allclose(record.train_nll, -math.fsum(mix(record.weights, train)) / 15, rtol=1e-9)
        assert record.history[-1] == record.train_nll
        assert np.all(np.diff(record.history) <= 1e-9)

    def test_the_nll_bound_is_an_upper_bound(self, results):
        for record in results.records:
            assert record.test_nll_bound >= record.test_nll - 1e-12
        assert any(record.test_nll_bound > record.test_nll + 1e-4 for record in results.records)
        for record in results.of("one intent", 1.0):
            np.testing.assert_allclose(record.test_nll_bound, record.test_nll, rtol=1e-12)

    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    @pytest.mark.parametrize("method", ["k-means, MLE", "random rewards"])
    def test_initialisation_and_em_equal_a_single_fit(self, data, results, method):
        spec = DriverSpec(method, 0.999)
        record = next(r for r in results.of(method, 0.999) if r.split == 1)
        mixture = driver_mixture(PLAN, spec, 1).fit(data.mdp(PLAN, spec), data.split(PLAN, 1)[0])
        np.testing.assert_allclose(record.thetas, mixture.thetas_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(record.weights, mixture.weights_, rtol=1e-9)
        assert record.n_iter == mixture.n_iter_
        assert record.converged == mixture.converged_
        assert record.n_evaluations == sum(entry.n_evaluations for entry in mixture.history_)
        np.testing.assert_array_equal(record.ensemble.thetas, record.thetas)


# What the other way misses of a trip that has a choice: all but the 200 m before A and behind B, and what comes before.
OTHER_WAY = {
    (0, 1, 2, 4): 400.0 / 600.0,
    (0, 3, 4): 300.0 / 500.0,
    (5, 0, 1, 2, 4): 400.0 / 1200.0,
    (5, 0, 3, 4): 300.0 / 1100.0,
}


class TestMissed:
    def test_baselines_are_shortest_and_fastest_routes(self, data):
        for split in range(2):
            test = data.split(PLAN, split)[1][: PLAN.n_routes]
            result = measure_baselines(data, PLAN, split)
            paths = [tuple(demo.states.tolist()) for demo in test]
            # Only trips from before A to behind B have a choice, and 300 m are shorter than 400 m.
            street = [OTHER_WAY.get(path, 0.0) if 1 in path else 0.0 for path in paths]
            motorway = [OTHER_WAY.get(path, 0.0) if 3 in path else 0.0 for path in paths]
            np.testing.assert_allclose(result["distance"][0], street, rtol=1e-12, atol=1e-15)
            np.testing.assert_allclose(result["time"][0], motorway, rtol=1e-12, atol=1e-15)
            # The other way round: who drove the street and is forecast the motorway has 400 m too many, not 300 m.
            other = {(0, 3, 4): 400.0 / 600.0, (5, 0, 3, 4): 400.0 / 1200.0}
            beside = [other.get(path, 0.0) for path in paths]
            np.testing.assert_allclose(result["time"][1], beside, rtol=1e-12, atol=1e-15)
            assert max(street) > 0.0
            assert max(motorway) > 0.0

    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    def test_records_contain_means_over_trips(self, data, results):
        for record in results.records:
            result = measure_baselines(data, PLAN, record.split)
            np.testing.assert_allclose(record.missed_distance, result["distance"][0].mean(), rtol=1e-12)
            np.testing.assert_allclose(record.missed_time, result["time"][0].mean(), rtol=1e-12)
            np.testing.assert_allclose(record.surplus_distance, result["distance"][1].mean(), rtol=1e-12)
            np.testing.assert_allclose(record.surplus_time, result["time"][1].mean(), rtol=1e-12)
            assert result["distance"].shape == (2, PLAN.n_routes)
            spec = DriverSpec(record.method, record.gamma)
            again = driver_mixture(PLAN, spec, record.split).set_params(init=record.ensemble, max_iter=0)
            test = data.split(PLAN, record.split)[1]
            again.fit(data.mdp(PLAN, spec), test)
            missed, surplus = measure_routes(data, again, test[: PLAN.n_routes])
            np.testing.assert_allclose(record.missed, missed.mean(), rtol=1e-12)
            np.testing.assert_allclose(record.surplus, surplus.mean(), rtol=1e-12)
            low, high = PLAN.destination_bounds if spec.to_destination else PLAN.bounds
            assert record.n_at_bounds == sum(value in (low, high) for theta in record.thetas for value in theta)
        assert any(record.n_at_bounds for record in results.records)

    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    @pytest.mark.parametrize(
        ("model", "gamma"), [(MaxEnt(9), 1.0), (MaxEnt(9), 0.9), (DestinationMaxEnt(), 1.0)], ids=str
    )
    def test_a_mixture_predicts_the_likelier_route(self, network, model, gamma):
        """400 m of motorway at 1 a km against 300 m of street at 10 a km, and the other way round."""
        mdp = network.mdp("plain", gamma=gamma)
        highway, local = (mdp.feature_names.index(name) for name in ("km of highway", "km of local street"))
        fast, near = np.full((2, mdp.n_features), -5.0)
        fast[[highway, local]], near[[highway, local]] = (-1.0, -10.0), (-10.0, -1.0)
        trips = Demonstrations.from_lists([MOTORWAY, STREET, [4, 5]])
        for thetas, weights, missed in (
            ([fast], [1.0], [0.0, 0.6, 0.0]),
            ([near], [1.0], [2.0 / 3.0, 0.0, 0.0]),
            ([fast, near], [0.999, 0.001], [0.0, 0.6, 0.0]),
            ([fast, near], [0.001, 0.999], [2.0 / 3.0, 0.0, 0.0]),
        ):
            start = RewardEnsemble(np.array(weights), np.array(thetas))
            mixture = IntentMixture(len(thetas), model, init=start, max_iter=0).fit(mdp, trips)
            result, _ = measure_routes(DriverData(network, trips), mixture, trips)
            np.testing.assert_allclose(result, missed, rtol=1e-12, atol=1e-15)


class TestResume:
    def test_finished_trials_are_skipped(self, data, results, copy):
        gone = DriverSpec("GMM, MLE", 0.999), 1
        forget(copy, *gone)
        reports = []
        again = run_drivers(data, PLAN, copy, lambda *words: reports.append(words))
        assert (again.counts.total, again.counts.skipped, again.counts.done) == (24, 23, 1)
        assert reports[-1] == (24, 24, "23 finished before")
        assert [record.reproducible() for record in again.records] == [r.reproducible() for r in results.records]
        place = list(PLAN.trials()).index(gone)
        # Times included: they were not run.
        assert (
            again.records[:place] + again.records[place + 1 :] == results.records[:place] + results.records[place + 1 :]
        )
        assert read_drivers(copy).records == again.records

    def test_an_interrupted_run_keeps_finished_trials(self, data, results, tmp_path):
        def stop(done, total, message):
            if done == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_drivers(data, PLAN, tmp_path / "run", stop)
        kept = read_drivers(tmp_path / "run")
        assert [record.reproducible() for record in kept.records] == [r.reproducible() for r in results.records[:3]]

    def test_splits_can_be_distributed(self, data, results, tmp_path):
        plan = replace(PLAN, gammas=(1.0,))
        second = run_drivers(data, plan, tmp_path, splits=[1])
        assert [record.split for record in second.records] == [1] * 7
        assert [r.split for r in read_drivers(tmp_path).records] == [1] * 7
        both = run_drivers(data, plan, tmp_path)
        assert [record.reproducible() for record in both.records] == [r.reproducible() for r in results.records[:14]]

    def test_an_executor_gives_the_same_records(self, data, results, tmp_path):
        plan = replace(PLAN, gammas=(1.0,))
        result = run_drivers(data, plan, tmp_path, splits=[0], executor=Executor(workers=1))
        wanted = [record for record in results.records[:14] if record.split == 0]
        assert [(r.method, r.n_iter) for r in result.records] == [(r.method, r.n_iter) for r in wanted]
        for ours, theirs in zip(result.records, wanted, strict=True):
            np.testing.assert_allclose(ours.thetas, theirs.thetas, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(ours.test_nll, theirs.test_nll, rtol=1e-12)

    def test_a_failed_trial_is_recorded_and_others_continue(self, data, tmp_path, monkeypatch):
        plan = replace(PLAN, gammas=(1.0,), n_splits=1)
        real = drivers.run_driver_trial

        def failing(data, plan, spec, split, baselines):
            if spec.method == "GMM, MLE":
                raise MemoryError("too little")
            return real(data, plan, spec, split, baselines)

        monkeypatch.setattr(drivers, "run_driver_trial", failing)
        result = run_drivers(data, plan, tmp_path)
        (failure,) = result.failures
        assert (failure.method, failure.gamma, failure.split) == ("GMM, MLE", 1.0, 0)
        assert failure.error == "MemoryError: too little"
        assert len(result.records) == 6
        assert [record.key for record in result.counts.failures] == [failure.key]
        monkeypatch.undo()
        again = run_drivers(data, plan, tmp_path)
        assert (again.counts.done, again.counts.failed_before, len(again.failures)) == (0, 1, 1)
        fixed = run_drivers(data, plan, tmp_path, retry_failed=True)
        assert (fixed.counts.done, len(fixed.records), fixed.failures) == (1, 7, ())

    def test_invalid_runs_create_no_folder(self, data, network, tmp_path):
        place = tmp_path / "run"
        with raises(InvalidParameter, parameter="splits", value=2):
            run_drivers(data, PLAN, place, splits=[0, 2])
        inches = DriverData(network.replace(length_m=39.37 * network.length_m), data.demos)
        with pytest.raises(InvalidNetwork, match="length"):
            run_drivers(inches, PLAN, place)
        assert not place.exists()

    def test_baselines_are_not_cached_across_data(self, network, tmp_path):
        trips = DriverData(network, demonstrations(drives(MANY)))
        first = measure_baselines(trips, PLAN, 0)
        wanted = first["time"].copy()
        first["time"][:] = 7.0
        np.testing.assert_array_equal(measure_baselines(trips, PLAN, 0)["time"], wanted)
        run_drivers(trips, replace(PLAN, gammas=(1.0,), n_splits=1), tmp_path)
        alive = weakref.ref(trips)
        del trips
        gc.collect()
        assert alive() is None

    def test_a_trial_depends_on_its_arguments_only(self, data, results):
        trial = list(PLAN.trials())[12]
        assert run_driver_trial(data, PLAN, *trial).reproducible() == results.records[12].reproducible()

    def test_a_missing_gpu_is_reported_before_the_folder_is_created(self, data, copy, tmp_path, monkeypatch):
        monkeypatch.setenv("LIMIIRL_GPU", "off")
        with raises(BackendUnavailable, parameter="device", value="gpu"):
            run_drivers(data, replace(PLAN, device="gpu"), tmp_path / "run")
        assert not (tmp_path / "run").exists()
        set_plan(copy, PLAN.to_dict() | {"device": "gpu"})
        assert read_drivers(copy).plan.device == "gpu"  # what was computed with one can be read without

    @pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate a GPU")
    @pytest.mark.parametrize("method", ["one intent", "one intent, to a destination"])
    def test_gpu_and_cpu_trials_agree(self, data, results, monkeypatch, method):
        install_emulator(monkeypatch)
        plan, spec = replace(PLAN, device="gpu"), DriverSpec(method, 1.0)
        assert driver_mixture(plan, spec, 0).irl.device == "gpu"
        (expected,) = (r for r in results.records if (r.split, r.method, r.gamma) == (0, method, 1.0))
        result = run_driver_trial(data, plan, spec, 0)
        np.testing.assert_allclose(result.train_nll, expected.train_nll, rtol=1e-8)
        np.testing.assert_allclose(result.test_nll, expected.test_nll, rtol=1e-8)

    def test_another_plan_or_other_trips_are_rejected(self, data, network, copy):
        before = (copy / FILE).read_bytes()
        for other, plan, differing in (
            (data, replace(PLAN, seed=1), ["seed"]),
            (data, replace(PLAN, gammas=(1.0,), n_test=11), ["n_test", "gammas"]),
            (DriverData(network, data.demos[1:]), PLAN, ["trips"]),
        ):
            with raises(InvalidFile, parameter="plan", value=differing):
                run_drivers(other, plan, copy)
        assert (copy / FILE).read_bytes() == before

    def test_damaged_trials_are_reported_and_run_again(self, data, results, copy):
        content = bytearray((copy / FILE).read_bytes())
        place = content.index(b'"method": "one intent"')
        content[place + 12] ^= 1
        (copy / FILE).write_bytes(content)
        with pytest.warns(LimiirlWarning, match="1 of its"):
            again = run_drivers(data, PLAN, copy)
        assert [record.reproducible() for record in again.records] == [r.reproducible() for r in results.records]

    def test_a_damaged_run_is_named_and_nothing_is_overwritten(self, data, copy, tmp_path):
        half = (copy / FILE).read_bytes()[:3000]
        (copy / FILE).write_bytes(half)
        for read in (lambda: read_drivers(copy), lambda: run_drivers(data, PLAN, copy)):
            with raises(InvalidFile, parameter="folder", value=str(copy / FILE)):
                read()
        assert (copy / FILE).read_bytes() == half
        with raises(InvalidFile, parameter="folder", value=str(tmp_path / "nowhere")):
            read_drivers(tmp_path / "nowhere")

    @pytest.mark.parametrize("plan", [None, {}, [1], {"n_train": 0}, {"mood": 1}])
    def test_an_invalid_plan_is_rejected(self, data, copy, plan):
        set_plan(copy, plan)
        if plan != {}:
            with raises(InvalidFile, parameter="folder", value=str(copy)):
                read_drivers(copy)
        with raises(InvalidFile, parameter="plan"):
            run_drivers(data, PLAN, copy)

    def test_a_run_of_another_experiment_is_rejected(self, tmp_path):
        Store(tmp_path / "run").note(["limiirl", "reproduce", "table1"])
        with raises(InvalidFile, parameter="folder", value=str(tmp_path / "run")):
            read_drivers(tmp_path / "run")


class TestExample:
    def test_mixtures_are_restored_as_they_were_fitted(self, data, results):
        example = driver_example(data, results, n_trips=7)
        best = results.best("k-means, MLE", 1.0)
        assert example.split == best.split
        np.testing.assert_array_equal(example.trips.ids, data.split(PLAN, best.split)[1].ids[:7])
        np.testing.assert_array_equal(example.mixture.thetas_, best.thetas)
        assert example.mixture.responsibilities_.shape == (7, 2)
        guide = results.best(list(DESTINATION_METHODS)[-1], 1.0, best.split)
        np.testing.assert_array_equal(example.guide.thetas_, guide.thetas)


def record(method, split, *, gamma=1.0, **figures):
    """A record with chosen figures; what is not named is 1."""
    given = dict.fromkeys(DriverRecord.__dataclass_fields__, 1.0) | {"weights": [1.0], "thetas": [[0.0]], "history": []}
    key = {"spec": DriverSpec(method, gamma).hash, "seed": split, "error": "", "trace": ""}
    return DriverRecord(**(given | key | {"method": method, "gamma": gamma} | figures))


class TestTable:
    def test_gains_are_differences_per_split(self):
        plan = replace(PLAN, n_splits=3, gammas=(1.0,))
        one, many, bound, guide = "one intent", "GMM, MLE", *DESTINATION_METHODS
        figures = {
            one: [40.0, 50.0, 60.0], many: [39.0, 51.0, 57.0], bound: [20.0, 10.0, 5.0], guide: [19.0, 9.5, 4.0]
        }  # fmt: skip
        records = tuple(
            record(method, split, test_nll=nll, missed=nll / 100.0, n_iter=split, seconds_start=30.0, seconds_em=90.0)
            for method, nlls in figures.items()
            for split, nll in enumerate(nlls)
        )
        rows = {row.method: row for row in DriverResults(plan, records).rows()}
        assert list(rows) == list(figures)
        assert rows[one].gain is None
        assert rows[bound].gain is None
        np.testing.assert_allclose(rows[many].gain.mean, 1.0, rtol=1e-12)  # 1, -1 and 3
        # Student's t of 2 degrees of freedom is 4.303; the deviation of 1, -1 and 3 is 2.
        np.testing.assert_allclose(rows[many].gain.half_width, 4.302653 * 2.0 / math.sqrt(3.0), rtol=1e-6)
        assert (rows[many].n_better, rows[guide].n_better, rows[one].n_better) == (2, 3, 0)
        np.testing.assert_allclose(rows[guide].gain.mean, 2.5 / 3.0, rtol=1e-12)
        np.testing.assert_allclose(rows[many].nll.mean, 49.0, rtol=1e-12)
        np.testing.assert_allclose(rows[many].missed.mean, 0.49, rtol=1e-12)
        assert rows[many].minutes.mean == 2.0
        assert rows[many].iterations.mean == 1.0
        assert {row.n for row in rows.values()} == {3}

    def test_rows_are_per_discount(self):
        records = tuple(
            record(method, split, gamma=gamma, test_nll=nll + split)
            for gamma, shift in ((1.0, 0.0), (0.999, 100.0))
            for method, nll in (("one intent", 10.0 + shift), ("random rewards", 8.0 + 2.0 * shift))
            for split in range(2)
        )
        rows = DriverResults(PLAN, records).rows()
        assert [(row.method, row.gamma) for row in rows] == [
            ("one intent", 1.0), ("random rewards", 1.0), ("one intent", 0.999), ("random rewards", 0.999)
        ]  # fmt: skip
        np.testing.assert_allclose([rows[1].gain.mean, rows[3].gain.mean], [2.0, -98.0], rtol=1e-12)

    def test_a_single_split_has_no_interval(self):
        records = (record("one intent", 0, test_nll=7.0), record("one intent", 1), record("GMM, MLE", 0, test_nll=5.0))
        many = DriverResults(PLAN, records).rows()[1]
        assert (many.method, many.n, many.nll.mean, many.gain.mean, many.gain.n) == ("GMM, MLE", 1, 5.0, 2.0, 1)
        assert math.isnan(many.nll.half_width)
        alone = DriverResults(PLAN, records[2:])
        assert alone.rows()[0].gain is None
        assert alone.baselines()["shortest time"].mean == 1.0
        assert DriverResults(PLAN, ()).rows() == []
        assert DriverResults(PLAN, ()).baselines() == {}

    def test_a_split_without_one_intent_has_no_gain(self):
        records = [record("one intent", split, test_nll=5.0) for split in range(2)]
        records += [record("GMM, MLE", split, test_nll=4.0) for split in range(3)]
        row = DriverResults(replace(PLAN, n_splits=3), tuple(records)).rows()[1]
        assert (row.n, row.gain.n, row.n_better) == (3, 2, 2)

    def test_baselines_count_each_split_once(self):
        records = [record("one intent", 0, missed_distance=0.2, missed_time=0.4)] * 5
        records += [record("one intent", 1, missed_distance=0.4, missed_time=0.3)]
        result = DriverResults(PLAN, tuple(records)).baselines()
        np.testing.assert_allclose(result["shortest distance"].mean, 0.3, rtol=1e-12)
        np.testing.assert_allclose(result["shortest time"].mean, 0.35, rtol=1e-12)
        assert result["shortest time"].n == 2

    def test_the_best_record_has_the_lowest_training_nll(self):
        records = (
            record("GMM, MLE", 0, train_nll=5.0, test_nll=1.0),
            record("GMM, MLE", 1, train_nll=4.0, test_nll=9.0),
            record("GMM, MLE", 0, gamma=0.999, train_nll=1.0),
            record("one intent", 0, train_nll=0.0),
        )
        results = DriverResults(PLAN, records)
        assert results.best("GMM, MLE", 1.0) is records[1]
        assert results.best("GMM, MLE", 0.999) is records[2]
        assert results.best("GMM, MLE", 1.0, split=0) is records[0]
        with raises(InvalidParameter, parameter="method", value="one intent"):
            results.best("one intent", 1.0, split=1)
        with raises(InvalidParameter, parameter="method", value="random rewards"):
            results.best("random rewards", 1.0)

    def test_csv_has_one_line_per_trial(self, results):
        lines = list(csv.DictReader(io.StringIO(results.to_csv())))
        assert [line["method"] for line in lines] == [spec.method for spec, _ in PLAN.trials()]
        assert [int(line["split"]) for line in lines] == [split for _, split in PLAN.trials()]
        assert [float(line["test_nll"]) for line in lines] == [r.test_nll for r in results.records]
        assert not {"weights", "thetas", "history"} & set(lines[0])

    def test_rows_of_a_run_have_every_method(self, results):
        rows = results.rows()
        assert [(row.method, row.gamma) for row in rows] == [
            *((method, 1.0) for method in DRIVER_METHODS),
            *((method, 0.999) for method in DRIVER_METHODS),
            *((method, 1.0) for method in DESTINATION_METHODS),
        ]
        for row in rows:
            wanted = [r.test_nll for r in results.of(row.method, row.gamma)]
            np.testing.assert_allclose(row.nll.mean, sum(wanted) / 2, rtol=1e-12)
