"""The driver experiment on six segments: splits, what a trial is worth by hand, and runs that were stopped."""

import csv
import gc
import io
import json
import math
import shutil
import weakref
from dataclasses import replace

import numpy as np
import pytest

from limiirl import Demonstrations, DestinationMaxEnt, IntentMixture, MaxEnt, RewardEnsemble
from limiirl.errors import BackendUnavailable, InvalidDemos, InvalidFile, InvalidNetwork, InvalidParameter
from limiirl.experiments.drivers import DriverResults, read_drivers, run_drivers
from limiirl.experiments.drivers_trial import (
    DESTINATION_METHODS,
    DRIVER_METHODS,
    DriverData,
    DriverPlan,
    DriverRecord,
    Trial,
    baseline_distances,
    driver_mixture,
    missed_distances,
    run_driver_trial,
)
from limiirl.roads.features import PAPER
from tests.gpu.emulator import compiler, install_emulator
from tests.oracles.two_ways import LENGTH_M, MOTORWAY, ONWARD, STREET, demonstrations, drives, two_ways

TOO_LONG, PASSED_BEFORE = [0, 3, 4, 5, 0, 3, 4, 5, 0, 1], [0, 3, 4, 5, 0]
PLAN = DriverPlan(
    n_intents=2, n_splits=2, n_train=15, n_test=12, max_length=9, max_evaluations=8, max_iter=3, m_tol=0.1, n_routes=10
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


def untimed(record):
    return record.as_dict() | {"seconds_start": 0.0, "seconds_em": 0.0}


class TestPlan:
    def test_every_method_is_tried_on_every_split_the_first_discount_first(self):
        trials = list(PLAN.trials())
        free = [(split, method) for split in range(2) for method in DRIVER_METHODS]
        bound = [(split, method) for split in range(2) for method in DESTINATION_METHODS]
        assert [(t.split, t.method) for t in trials] == free + bound + free
        assert [t.gamma for t in trials] == [1.0] * 14 + [0.999] * 10
        assert len({t.name for t in trials}) == len(trials)
        assert [t.to_destination for t in trials] == [False] * 10 + [True] * 4 + [False] * 10

    def test_one_intent_is_one_and_the_others_are_many(self):
        for trial in PLAN.trials():
            mixture = driver_mixture(PLAN, trial)
            assert mixture.n_intents == (1 if trial.method.startswith("one intent") else 2)
            assert isinstance(mixture.irl, DestinationMaxEnt if trial.to_destination else MaxEnt)
            assert mixture.max_evaluations == mixture.irl.max_evaluations == 8

    def test_the_papers_settings_are_the_defaults(self):
        plan = DriverPlan()
        assert (plan.n_splits, plan.n_train, plan.n_test, plan.max_length) == (8, 1000, 8000, 300)
        assert (plan.bounds, plan.max_evaluations, set(plan.gammas)) == ((-10.0, 0.0), 50, {1.0, 0.999})
        model = driver_mixture(plan, Trial(0, "GMM, MLE", 0.999)).irl
        assert (model.max_length, tuple(model.bounds)) == (300, (-10.0, 0.0))

    def test_lists_are_as_good_as_tuples(self):
        assert DriverPlan(gammas=[1.0, 0.9], bounds=[-5.0, 0.0]) == DriverPlan(gammas=(1.0, 0.9), bounds=(-5.0, 0.0))
        assert len({DriverPlan(gammas=[1.0, 0.9]), DriverPlan(gammas=(1.0, 0.9))}) == 1

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"device": "tpu"}, "device must be one of cpu, gpu, auto; it is 'tpu'"),
            ({"n_train": 0}, "n_train must be a whole number of at least 1; it is 0"),
            ({"n_splits": 2.0}, "n_splits must be a whole number of at least 1; it is 2.0"),
            ({"max_iter": True}, "max_iter must be a whole number of at least 1; it is True"),
            ({"gammas": ()}, "gammas must be discounts above 0 and at most 1, at least one"),
            ({"gammas": (1.0, 1.0)}, "none twice"),
            ({"gammas": (1.0, 7.0)}, r"gammas must be discounts above 0 and at most 1.* they are \(1.0, 7.0\)"),
            ({"gammas": (0.0,)}, "gammas must be discounts above 0"),
            ({"gammas": 0.9}, "gammas must be numbers; got 0.9"),
            ({"bounds": (0.0, -10.0)}, r"bounds must be \(low, high\) with low < high; they are \(0.0, -10.0\)"),
            ({"bounds": (-1.0, float("nan"))}, "bounds must be .low, high. with low < high"),
            ({"destination_bounds": (-1.0,)}, r"destination_bounds must be \(low, high\)"),
            ({"seed": -1}, "seed must be a whole number of at least 0; it is -1"),
            ({"seed": 0.5}, "seed must be a whole number of at least 0; it is 0.5"),
            ({"tol": -3.0}, "tol must be a positive number; it is -3.0"),
            ({"m_tol": float("inf")}, "m_tol must be a positive number; it is inf"),
            ({"features": "nonsense"}, "features must be .* got 'nonsense'"),
            ({"features": PAPER}, "features must be 'paper' or 'plain'; got FeatureChoice"),
        ],
    )
    def test_nonsense_is_refused(self, given, message):
        with pytest.raises(InvalidParameter, match=message):
            DriverPlan(**given)

    def test_discounts_that_are_nearly_equal_have_files_of_their_own(self):
        names = [Trial(0, "one intent", gamma).name for gamma in (1.0, 0.999, 0.9999999, 1.0 - 2.0**-53)]
        assert names[:2] == ["split-0-one-intent-1", "split-0-one-intent-0.999"]  # as folders have them
        assert len(set(names)) == 4
        for name, gamma in zip(names, (1.0, 0.999, 0.9999999, 1.0 - 2.0**-53), strict=True):
            assert float(name.rpartition("-")[2]) == gamma

    def test_turns_count_only_where_a_destination_is_given(self, data):
        free, bound = Trial(0, "GMM, MLE", 0.999), Trial(0, next(iter(DESTINATION_METHODS)), 1.0)
        for features, n in (("paper", 24), ("plain", 4)):
            plan = replace(PLAN, features=features)
            names = data.mdp(plan, free).feature_names
            assert len(names) == n
            more = [name for name in data.mdp(plan, bound).feature_names if name not in names]
            assert more
            assert all("turn" in name for name in more)
        assert (data.mdp(PLAN, free).gamma, data.mdp(PLAN, bound).gamma) == (0.999, 1.0)


class TestSplit:
    def test_halves_are_disjoint_and_have_only_what_can_be_used(self, data):
        for number in range(6):
            train, test = data.split(replace(PLAN, n_train=20, n_test=100), number)
            assert len(train) == len(test) == MANY // 2
            assert sorted([*train.ids, *test.ids]) == list(range(1, MANY + 1))  # neither the first trip nor the last

    def test_are_random_by_seed_and_number_and_can_be_repeated(self, data):
        for seed, number in ((0, 0), (0, 1), (7, 1)):
            train, test = data.split(replace(PLAN, seed=seed), number)
            order = 1 + np.random.default_rng([seed, number]).permutation(MANY)
            np.testing.assert_array_equal(train.ids, order[:15])
            np.testing.assert_array_equal(test.ids, order[20:32])
            for i, demo in zip(test.ids, test, strict=True):
                np.testing.assert_array_equal(demo.states, data.demos[int(i)].states)

    def test_smaller_samples_are_parts_of_larger_ones(self, data):
        (small, judged), (large, same) = (data.split(replace(PLAN, n_train=n), 1) for n in (5, 20))
        np.testing.assert_array_equal(small.ids, large.ids[:5])
        np.testing.assert_array_equal(judged.ids, same.ids)

    def test_too_few_trips_are_refused(self, data):
        with pytest.raises(
            InvalidDemos, match="Half of the 40 usable trips of at most 9 segments are fewer than n_tra"
        ):
            data.split(replace(PLAN, n_train=21), 0)

    def test_too_few_trips_leave_no_folder(self, data, tmp_path):
        with pytest.raises(InvalidDemos, match="fewer than n_train = 21. Lower n_train"):
            run_drivers(data, replace(PLAN, n_train=21), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_neighbouring_seeds_share_no_start(self):
        seeds = {
            driver_mixture(replace(PLAN, seed=seed), Trial(split, "GMM, MLE", 1.0)).random_state
            for seed in range(4)
            for split in range(4)
        }
        assert len(seeds) == 16

    def test_the_fingerprint_knows_other_trips_and_other_networks(self, data, network):
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
    paths, last = [], [[s] for s in ONWARD]
    while len(last[0]) <= PLAN.max_length:
        paths += last
        last = [[*path, s] for path in last for s in ONWARD[path[-1]]]
    return paths


def ways_between(first, last):
    """All ways that end at the first arrival, but for those of more than fifty segments, whose weight is nothing."""
    found, onward = [], [[first]]
    for _ in range(50):
        found += [path for path in onward if path[-1] == last]
        onward = [[*path, s] for path in onward if path[-1] != last for s in ONWARD[path[-1]]]
    return found


def by_hand(mdp, theta, demos, *, to_destination):
    """The log-likelihood of each trip under one reward: its share of all that could have been."""

    def weights(paths):
        return (Demonstrations.from_lists(paths).features(mdp) @ theta).tolist()

    paths = [demo.states.tolist() for demo in demos]
    if to_destination:
        totals = [log_sum(weights(ways_between(path[0], path[-1]))) for path in paths]
    else:
        totals = [log_sum(weights(all_paths()))] * len(paths)
    return [weight - total for weight, total in zip(weights(paths), totals, strict=True)]


def mixed(weights, rows):
    return [log_sum([math.log(w) + x for w, x in zip(weights, row, strict=True)]) for row in rows]


class TestRecord:
    @pytest.mark.parametrize(("method", "gamma"), sorted({(trial.method, trial.gamma) for trial in PLAN.trials()}))
    def test_likelihoods_are_those_of_all_paths_listed(self, data, results, method, gamma):
        bound = method in DESTINATION_METHODS
        record = next(r for r in results.of(method, gamma) if r.split == 1)
        mdp = data.mdp(PLAN, Trial(1, method, gamma))
        train, test = (
            np.array([by_hand(mdp, theta, demos, to_destination=bound) for theta in np.array(record.thetas)]).T
            for demos in data.split(PLAN, 1)
        )
        total = math.fsum(mixed(record.weights, test))
        np.testing.assert_allclose(record.test_nll, -total / 12, rtol=1e-9)
        n_segments = sum(len(demo.states) for demo in data.split(PLAN, 1)[1])
        np.testing.assert_allclose(record.test_nll_segment, -total / n_segments, rtol=1e-9)
        np.testing.assert_allclose(record.test_nll_bound, -(test.mean(axis=0) @ record.weights), rtol=1e-9)
        np.testing.assert_allclose(record.train_nll, -math.fsum(mixed(record.weights, train)) / 15, rtol=1e-9)
        assert record.history[-1] == record.train_nll
        assert np.all(np.diff(record.history) <= 1e-9)

    def test_the_bound_is_never_below(self, results):
        for record in results.records:
            assert record.test_nll_bound >= record.test_nll - 1e-12
        assert any(record.test_nll_bound > record.test_nll + 1e-4 for record in results.records)
        for record in results.of("one intent", 1.0):
            np.testing.assert_allclose(record.test_nll_bound, record.test_nll, rtol=1e-12)

    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    @pytest.mark.parametrize("method", ["k-means, MLE", "random rewards"])
    def test_start_and_em_apart_are_one_fit(self, data, results, method):
        trial = Trial(1, method, 0.999)
        record = next(r for r in results.of(method, 0.999) if r.split == 1)
        mixture = driver_mixture(PLAN, trial).fit(data.mdp(PLAN, trial), data.split(PLAN, 1)[0])
        np.testing.assert_allclose(record.thetas, mixture.thetas_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(record.weights, mixture.weights_, rtol=1e-9)
        assert record.n_iter == mixture.n_iter_
        assert record.converged == mixture.converged_
        assert record.n_evaluations == sum(entry.n_evaluations for entry in mixture.history_)
        np.testing.assert_array_equal(record.ensemble.thetas, record.thetas)

    def test_a_record_survives_json(self, results):
        for record in results.records:
            assert DriverRecord.from_dict(json.loads(json.dumps(record.as_dict()))) == record


# What the other way misses of a trip that has a choice: all but the 200 m before A and behind B, and what comes before.
OTHER_WAY = {
    (0, 1, 2, 4): 400.0 / 600.0,
    (0, 3, 4): 300.0 / 500.0,
    (5, 0, 1, 2, 4): 400.0 / 1200.0,
    (5, 0, 3, 4): 300.0 / 1100.0,
}


class TestMissed:
    def test_shortest_is_the_street_and_fastest_the_motorway(self, data):
        for split in range(2):
            test = data.split(PLAN, split)[1][: PLAN.n_routes]
            found = baseline_distances(data, PLAN, split)
            paths = [tuple(demo.states.tolist()) for demo in test]
            # Only trips from before A to behind B have a choice, and 300 m are shorter than 400 m.
            street = [OTHER_WAY.get(path, 0.0) if 1 in path else 0.0 for path in paths]
            motorway = [OTHER_WAY.get(path, 0.0) if 3 in path else 0.0 for path in paths]
            np.testing.assert_allclose(found["distance"][0], street, rtol=1e-12, atol=1e-15)
            np.testing.assert_allclose(found["time"][0], motorway, rtol=1e-12, atol=1e-15)
            # The other way round: who drove the street and is forecast the motorway has 400 m too many, not 300 m.
            other = {(0, 3, 4): 400.0 / 600.0, (5, 0, 3, 4): 400.0 / 1200.0}
            beside = [other.get(path, 0.0) for path in paths]
            np.testing.assert_allclose(found["time"][1], beside, rtol=1e-12, atol=1e-15)
            assert max(street) > 0.0
            assert max(motorway) > 0.0

    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    def test_records_hold_the_means(self, data, results):
        for record in results.records:
            found = baseline_distances(data, PLAN, record.split)
            np.testing.assert_allclose(record.missed_distance, found["distance"][0].mean(), rtol=1e-12)
            np.testing.assert_allclose(record.missed_time, found["time"][0].mean(), rtol=1e-12)
            np.testing.assert_allclose(record.surplus_distance, found["distance"][1].mean(), rtol=1e-12)
            np.testing.assert_allclose(record.surplus_time, found["time"][1].mean(), rtol=1e-12)
            assert found["distance"].shape == (2, PLAN.n_routes)
            trial = Trial(record.split, record.method, record.gamma)
            again = driver_mixture(PLAN, trial).set_params(init=record.ensemble, max_iter=0)
            test = data.split(PLAN, record.split)[1]
            again.fit(data.mdp(PLAN, trial), test)
            missed, surplus = missed_distances(data, again, test[: PLAN.n_routes])
            np.testing.assert_allclose(record.missed, missed.mean(), rtol=1e-12)
            np.testing.assert_allclose(record.surplus, surplus.mean(), rtol=1e-12)
            low, high = PLAN.destination_bounds if trial.to_destination else PLAN.bounds
            assert record.n_at_bounds == sum(value in (low, high) for theta in record.thetas for value in theta)
        assert any(record.n_at_bounds for record in results.records)

    @pytest.mark.filterwarnings("ignore::limiirl.errors.LimiirlWarning")
    @pytest.mark.parametrize(
        ("model", "gamma"), [(MaxEnt(9), 1.0), (MaxEnt(9), 0.9), (DestinationMaxEnt(), 1.0)], ids=str
    )
    def test_a_mixture_takes_the_likelier_way(self, network, model, gamma):
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
            found, _ = missed_distances(DriverData(network, trips), mixture, trips)
            np.testing.assert_allclose(found, missed, rtol=1e-12, atol=1e-15)


class TestResume:
    def test_what_is_there_is_not_run_again(self, data, results, copy):
        gone = Trial(1, "GMM, MLE", 0.999)
        (copy / "trials" / f"{gone.name}.json").unlink()
        others = {file: file.read_bytes() for file in (copy / "trials").iterdir()}
        told = []
        again = run_drivers(data, PLAN, copy, lambda *words: told.append(words))
        assert told == [(22, 24, gone.name), (24, 24, "done")]
        assert all(file.read_bytes() == content for file, content in others.items())
        assert [untimed(record) for record in again.records] == [untimed(record) for record in results.records]
        place = list(PLAN.trials()).index(gone)
        assert (
            again.records[:place] + again.records[place + 1 :] == results.records[:place] + results.records[place + 1 :]
        )
        assert read_drivers(copy).records == again.records

    def test_a_run_that_fails_keeps_what_is_done(self, data, results, tmp_path):
        def stop(done, total, name):
            if done == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_drivers(data, PLAN, tmp_path / "run", stop)
        found = read_drivers(tmp_path / "run")
        assert [untimed(record) for record in found.records] == [untimed(record) for record in results.records[:3]]

    def test_splits_can_be_shared_out(self, data, results, tmp_path):
        plan = replace(PLAN, gammas=(1.0,))
        second = run_drivers(data, plan, tmp_path, splits=[1])
        assert [record.split for record in second.records] == [1] * 7
        assert [r.split for r in read_drivers(tmp_path).records] == [1] * 7
        both = run_drivers(data, plan, tmp_path)
        assert [untimed(record) for record in both.records] == [untimed(record) for record in results.records[:14]]

    def test_what_cannot_be_run_leaves_no_folder(self, data, network, tmp_path):
        place = tmp_path / "run"
        with pytest.raises(InvalidParameter, match="splits are numbered 0 to 1; there is no 2"):
            run_drivers(data, PLAN, place, splits=[0, 2])
        inches = DriverData(network.replace(length_m=39.37 * network.length_m), data.demos)
        with pytest.raises(InvalidNetwork, match="length"):
            run_drivers(inches, PLAN, place)
        assert not place.exists()

    def test_nothing_is_kept_of_data_that_nobody_has(self, network, tmp_path):
        trips = DriverData(network, demonstrations(drives(MANY)))
        first = baseline_distances(trips, PLAN, 0)
        wanted = first["time"].copy()
        first["time"][:] = 7.0
        np.testing.assert_array_equal(baseline_distances(trips, PLAN, 0)["time"], wanted)
        run_drivers(trips, replace(PLAN, gammas=(1.0,), n_splits=1), tmp_path)
        alive = weakref.ref(trips)
        del trips
        gc.collect()
        assert alive() is None

    def test_a_trial_depends_on_its_arguments_alone(self, data, results):
        trial = list(PLAN.trials())[12]
        assert untimed(run_driver_trial(data, PLAN, trial)) == untimed(results.records[12])

    def test_a_folder_of_a_plan_that_named_no_device_goes_on(self, data, copy):
        file = copy / "drivers.json"
        written = json.loads(file.read_text())
        assert written["plan"].pop("device") == "cpu"
        file.write_text(json.dumps(written))
        assert run_drivers(data, PLAN, copy).records == read_drivers(copy).records
        with pytest.raises(InvalidFile, match="other trips: it differs in n_test, device. Choose"):
            run_drivers(data, replace(PLAN, device="auto", n_test=11), copy)

    def test_a_gpu_that_is_absent_is_told_before_a_folder_is_made(self, data, copy, tmp_path, monkeypatch):
        monkeypatch.setenv("LIMIIRL_GPU", "off")
        with pytest.raises(BackendUnavailable, match="LIMIIRL_GPU=off"):
            run_drivers(data, replace(PLAN, device="gpu"), tmp_path / "run")
        assert not (tmp_path / "run").exists()
        file = copy / "drivers.json"
        file.write_text(file.read_text().replace('"device": "cpu"', '"device": "gpu"'))
        assert read_drivers(copy).plan.device == "gpu"  # what was computed with one can be read without

    @pytest.mark.slow
    @pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate a GPU")
    @pytest.mark.parametrize("method", ["one intent", "one intent, to a destination"])
    def test_a_trial_on_a_gpu_is_that_of_the_cpu(self, data, results, monkeypatch, method):
        install_emulator(monkeypatch)
        plan, trial = replace(PLAN, device="gpu"), Trial(0, method, 1.0)
        assert driver_mixture(plan, trial).irl.device == "gpu"
        (expected,) = (r for r in results.records if (r.split, r.method, r.gamma) == (0, method, 1.0))
        found = run_driver_trial(data, plan, trial)
        np.testing.assert_allclose(found.train_nll, expected.train_nll, rtol=1e-8)
        np.testing.assert_allclose(found.test_nll, expected.test_nll, rtol=1e-8)

    def test_another_plan_or_other_trips_are_refused(self, data, network, copy):
        before = sorted(copy.rglob("*"))
        for other, plan in (
            (data, replace(PLAN, seed=1)),
            (data, replace(PLAN, gammas=(1.0,))),
            (DriverData(network, data.demos[1:]), PLAN),
        ):
            with pytest.raises(InvalidFile, match="holds a driver experiment with other settings or other trips"):
                run_drivers(other, plan, copy)
        assert sorted(copy.rglob("*")) == before

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda text: text[: len(text) // 2], "is damaged"),
            (lambda text: text.replace('"test_nll"', '"nll"'), "must have exactly its fields"),
            (lambda text: "[1, 2]", "must have exactly its fields"),
            (lambda text: text.replace('"split": 0', '"split": 1'), "in split 1: it was renamed or copied"),
            (lambda text: text.replace('"one intent"', '"GMM, MLE"'), "holds 'GMM, MLE' at discount 1 in split 0"),
        ],
        ids=["half", "field", "list", "split", "method"],
    )
    def test_a_damaged_trial_is_named(self, data, copy, damage, message):
        file = copy / "trials" / "split-0-one-intent-1.json"
        text = file.read_text()
        assert damage(text) != text
        file.write_text(damage(text))
        for read in (lambda: read_drivers(copy), lambda: run_drivers(data, PLAN, copy)):
            with pytest.raises(InvalidFile, match=message) as error:
                read()
            assert str(file) in str(error.value)
            assert "Remove it; the trial is then run again." in str(error.value)

    def test_a_damaged_plan_is_named_and_nothing_is_overwritten(self, data, copy, tmp_path):
        file = copy / "drivers.json"
        half = file.read_text()[:80]
        file.write_text(half)
        with pytest.raises(InvalidFile, match=r"drivers\.json is damaged"):
            run_drivers(data, PLAN, copy)
        assert file.read_text() == half
        for place in (copy, tmp_path / "nowhere"):
            with pytest.raises(InvalidFile, match="is not the folder of a driver experiment"):
                read_drivers(place)
        for nothing in ([], {"plan": [1]}, {"plan": {}}):
            file.write_text(json.dumps(nothing))
            with pytest.raises(InvalidFile, match="other trips: it differs in n_intents, n_splits"):
                run_drivers(data, PLAN, copy)
        file.write_text(json.dumps({"plan": {"n_train": 0}}))
        with pytest.raises(InvalidFile, match="n_train must be a whole number"):
            read_drivers(copy)

    def test_a_lost_folder_of_trials_is_made_again(self, data, copy):
        shutil.rmtree(copy / "trials")
        assert read_drivers(copy).records == ()
        assert len(run_drivers(data, PLAN, copy, splits=[0]).records) == 12


def record(method, split, *, gamma=1.0, **figures):
    """A record with chosen figures; what is not named is 1."""
    given = dict.fromkeys(DriverRecord.__dataclass_fields__, 1.0) | {"weights": [1.0], "thetas": [[0.0]], "history": []}
    return DriverRecord(**(given | {"split": split, "method": method, "gamma": gamma} | figures))


class TestTable:
    def test_gains_are_by_split_and_by_hand(self):
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

    def test_discounts_are_not_mixed(self):
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

    def test_one_split_alone_has_a_mean_and_no_interval(self):
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
        found = DriverResults(PLAN, tuple(records)).baselines()
        np.testing.assert_allclose(found["shortest distance"].mean, 0.3, rtol=1e-12)
        np.testing.assert_allclose(found["shortest time"].mean, 0.35, rtol=1e-12)
        assert found["shortest time"].n == 2

    def test_best_is_by_training_not_by_test(self):
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
        with pytest.raises(InvalidParameter, match="No trial of 'one intent' at discount 1 has been run in split 1"):
            results.best("one intent", 1.0, split=1)
        with pytest.raises(InvalidParameter, match="No trial of 'random rewards' at discount 1 has been run"):
            results.best("random rewards", 1.0)

    def test_csv_has_a_line_a_trial(self, results):
        lines = list(csv.DictReader(io.StringIO(results.to_csv())))
        assert [line["method"] for line in lines] == [trial.method for trial in PLAN.trials()]
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
