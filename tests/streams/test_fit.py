"""Fits to streams: the parameters of the fit in memory, from the same start and after the same iterations."""

import warnings

import numpy as np
import pytest

from limiirl import BayesianIntentMixture, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, RewardEnsemble
from limiirl.demos import combine_environments
from limiirl.errors import ConvergenceWarning, InvalidDemos, InvalidParameter, MissingFile
from limiirl.kernels.e_step import Rows
from limiirl.streams import FeatureStore, assign, fit_streamed, write_features
from limiirl.streams.passes import check_model, sample_problem, stream_problem
from limiirl.streams.store import ShardInfo, StoredShard
from limiirl.worlds import SyntheticWorld
from tests.helpers import raises
from tests.oracles.mixture import TASTES, crossings, walks
from tests.oracles.stores import mixture, quick_mixture

pytestmark = pytest.mark.filterwarnings("ignore::limiirl.errors.ConvergenceWarning")


def test_fit_write_and_assign_reject_invalid_arguments(tmp_path, few, small_store):
    fitted, other = fit_streamed(quick_mixture(), crossings(), small_store), BayesianIntentMixture(2)
    for job, parameter, value in (
        (lambda: fit_streamed(other, crossings(), small_store), "mixture", other),
        (lambda: assign(None, small_store, tmp_path / "a"), "mixture", None),
        (lambda: fit_streamed(quick_mixture(), crossings(), small_store, checkpoint=3), "checkpoint", 3),
        (lambda: fit_streamed(quick_mixture(), crossings(), small_store, progress=3), "progress", 3),
        (lambda: write_features(crossings(), [few], tmp_path / "a", progress=3), "progress", 3),
        (lambda: assign(fitted, small_store, tmp_path / "a", progress=3), "progress", 3),
        (lambda: fit_streamed(quick_mixture(), crossings(), small_store, sample=1), "sample", 1),
    ):
        with raises(InvalidParameter, parameter=parameter, value=value):
            job()
    for job in (
        lambda: fit_streamed(quick_mixture(), None, small_store),
        lambda: write_features(None, [few], tmp_path / "a"),
    ):
        with raises(InvalidParameter, parameter="mdp"):
            job()
    for model in ("MaxEnt", MaxEnt):
        with raises(InvalidParameter, parameter="irl"):
            check_model(model)
    assert not (tmp_path / "a").exists()


def cut(demos: Demonstrations, *ends: int) -> list[Demonstrations]:
    return [demos[lo:hi] for lo, hi in zip((0, *ends), (*ends, len(demos)), strict=True)]


def assert_same_fit(streamed: IntentMixture, whole: IntentMixture, rtol: float) -> None:
    assert streamed.n_iter_ == whole.n_iter_
    assert streamed.converged_ == whole.converged_
    np.testing.assert_allclose(streamed.weights_, whole.weights_, rtol=rtol)
    # Rewards are close to 1; the ridge may shrink one to 0, up to rounding.
    np.testing.assert_allclose(streamed.thetas_, whole.thetas_, rtol=rtol, atol=1e-11)
    np.testing.assert_allclose(streamed.log_likelihood_, whole.log_likelihood_, rtol=rtol)
    for one, other in zip(streamed.history_[1:], whole.history_[1:], strict=True):
        np.testing.assert_allclose(one.change, other.change, rtol=1e-7, atol=1e-12)
        assert one.n_evaluations == other.n_evaluations


def test_one_shard_is_bit_identical_to_the_fit_in_memory(tmp_path):
    demos, _ = walks(5000, seed=1)
    streamed = fit_streamed(mixture(), crossings(), write_features(crossings(), [demos], tmp_path), block=2048)
    whole = mixture().fit(crossings(), demos)
    np.testing.assert_array_equal(streamed.thetas_, whole.thetas_)
    np.testing.assert_array_equal(streamed.weights_, whole.weights_)
    assert [(e.objective, e.change) for e in streamed.history_[1:]] == [
        (e.objective, e.change) for e in whole.history_[1:]
    ]


@pytest.mark.slow
def test_a_hundred_thousand_demonstrations_of_24_features_agree_to_1e_8(tmp_path):
    world = SyntheticWorld(n_intents=3, n_features=24, n_states=60, separation=0.3, seed=1)
    demos, _ = world.sample(100_000, seed=2)
    start = RewardEnsemble(np.full(3, 1 / 3), world.ensemble.thetas * 0.7)
    mix = IntentMixture(3, MaxEnt(bounds=(-15, 0)), init=start, max_iter=3, resp_tol=0.0)
    store = write_features(world.mdp, cut(demos, 30_000, 30_001, 64_000), tmp_path)
    assert (store.n, store.n_features) == (100_000, 24)
    streamed = fit_streamed(mix, world.mdp, store, block=4096)
    assert streamed.responsibilities_ is None
    whole = IntentMixture(3, MaxEnt(bounds=(-15, 0)), init=start, max_iter=3, resp_tol=0.0).fit(world.mdp, demos)
    assert_same_fit(streamed, whole, rtol=1e-8)


@pytest.mark.parametrize(
    "parameters",
    [
        {"irl": MaxEnt(bounds=(-5, 5), ridge=0.1)},
        {"irl": MaxEnt(max_length=12, bounds=None, ridge=0.01)},
        {"irl": MaxEnt(max_length=np.inf, bounds=(-5, 5))},
        {"irl": MaxEnt(bounds=(-5, 5), solver="bfgs")},
        {"annealing": (3.0, 3)},
        {"degenerate": "keep"},
        {"max_iter": 200, "resp_tol": 1e-4},
        {"max_iter": 200, "resp_tol": 0.0, "likelihood_tol": 1e-5},
        {"max_iter": 0},
        {"init": RewardEnsemble([0.5, 0.5], TASTES * 9.0)},  # outside the bounds: projected
    ],
    ids=str,
)
def test_every_variant_agrees_with_the_fit_in_memory(tmp_path, parameters):
    demos, _ = walks(600, seed=4)
    store = write_features(crossings(), cut(demos, 100, 350), tmp_path)
    streamed = fit_streamed(mixture(**parameters), crossings(), store)
    whole = mixture(**parameters).fit(crossings(), demos)
    assert_same_fit(streamed, whole, rtol=1e-9)
    assert [entry.event for entry in streamed.history_] == [entry.event for entry in whole.history_]


def test_trajectories_that_must_end_in_a_terminal_state(tmp_path):
    world = SyntheticWorld(n_intents=2, n_features=4, n_states=21, seed=0)
    demos, _ = world.sample(300, seed=1)
    # All trajectories have the same length: without a ridge a constant per feature is not identified.
    irl = MaxEnt(stop="terminal", bounds=(-15, 0), ridge=0.01)
    start = RewardEnsemble([0.5, 0.5], world.ensemble.thetas * 0.8)
    store = write_features(world.mdp, cut(demos, 100), tmp_path / "a", irl=irl)
    streamed = fit_streamed(mixture(irl, init=start), world.mdp, store)
    assert_same_fit(streamed, mixture(irl, init=start).fit(world.mdp, demos), rtol=1e-9)
    short = Demonstrations.from_lists([demos[0].states.tolist(), demos[1].states[:-1].tolist()])
    with raises(InvalidDemos, parameter="stop", value="terminal", index=1):
        write_features(world.mdp, [demos, short], tmp_path / "b", irl=irl)
    unchecked = write_features(world.mdp, [demos, short], tmp_path / "c")
    with raises(InvalidDemos, parameter="stop", value="terminal", index=1) as caught:
        fit_streamed(mixture(irl, init=start), world.mdp, unchecked)
    assert str(caught.value).startswith("shard 1:")
    with raises(InvalidDemos, parameter="stop", value="terminal_or_max_length", index=1):
        fit_streamed(mixture(irl.set_params(stop="terminal_or_max_length"), init=start), world.mdp, unchecked)


def test_trajectories_that_end_at_max_length(tmp_path):
    demos, _ = walks(2000, seed=4)
    irl = MaxEnt(stop="terminal_or_max_length", bounds=(-5, 5), ridge=0.01)
    full, ragged = demos[demos.lengths == 5], demos[demos.lengths <= 5]
    assert len(full) < len(ragged)
    store = write_features(crossings(), cut(full, 5), tmp_path / "full", irl=irl)
    assert_same_fit(fit_streamed(mixture(irl), crossings(), store), mixture(irl).fit(crossings(), full), rtol=1e-9)
    both = write_features(crossings(), [full, ragged], tmp_path / "both")
    with raises(InvalidDemos, parameter="stop", value=irl.stop) as caught:
        fit_streamed(mixture(irl), crossings(), both)
    assert str(caught.value).startswith("shard 1:")


def test_groups_share_an_intent(tmp_path):
    demos, _ = walks(900, seed=5)
    groups = np.sort(np.random.default_rng(0).integers(120, size=900))
    demos = demos.replace(groups=[f"driver {g}" for g in groups])
    edges = [int(np.searchsorted(groups, g)) for g in (40, 41, 90)]
    store = write_features(crossings(), cut(demos, *edges), tmp_path, by_group=True)
    assert store.n == np.unique(groups).size
    assert store.n_demos == 900
    irl = MaxEnt(bounds=(-5, 5), ridge=0.05)
    streamed = fit_streamed(mixture(irl), crossings(), store)
    assert_same_fit(streamed, mixture(irl).fit(crossings(), demos, demos.groups), rtol=1e-9)


@pytest.mark.parametrize("init", ["kmeans", "gmm", "best", "random"])
def test_a_sample_of_all_rows_gives_the_start_of_the_fit_in_memory(tmp_path, init):
    demos, _ = walks(400, seed=6)
    store = write_features(crossings(), cut(demos, 150), tmp_path)
    streamed = fit_streamed(mixture(init=init), crossings(), store)
    whole = mixture(init=init).fit(crossings(), demos)
    assert_same_fit(streamed, whole, rtol=1e-9)
    assert np.isnan(streamed.history_[0].change)  # only the clusters of the sample are known
    assert whole.history_[0].change > 0


@pytest.mark.parametrize("embedding", ["shares", "gradients"])
def test_other_embeddings(tmp_path, embedding):
    demos, _ = walks(300, seed=6)
    store = write_features(crossings(), cut(demos, 150), tmp_path)
    settings = {"init": "kmeans", "embedding": embedding}
    assert_same_fit(
        fit_streamed(mixture(**settings), crossings(), store), mixture(**settings).fit(crossings(), demos), rtol=1e-9
    )


def test_a_sample_does_not_depend_on_the_shards(tmp_path):
    demos, _ = walks(1000, seed=7)
    one = write_features(crossings(), [demos], tmp_path / "one")
    many = write_features(crossings(), cut(demos, 7, 400, 401), tmp_path / "many")
    drawn = [
        sample_problem(
            stream_problem(MaxEnt(), crossings(), store), store, 60, np.random.default_rng(1)
        ).statistics.rows
        for store in (one, many)
    ]
    np.testing.assert_array_equal(drawn[0].features, drawn[1].features)
    np.testing.assert_array_equal(drawn[0].log_q, drawn[1].log_q)
    assert len(drawn[0].features) == 60
    starts = [
        fit_streamed(mixture(init="kmeans", max_iter=0), crossings(), store, sample=60).thetas_ for store in (one, many)
    ]
    np.testing.assert_array_equal(*starts)


def test_a_sample_is_uniform_and_without_repeats(tmp_path):
    counted = np.arange(500.0)
    store = FeatureStore.from_function(
        lambda i: Rows(np.tile(counted[100 * i : 100 * (i + 1), None], 3), np.zeros(100), np.ones(100)),
        [100] * 5,
        3,
        longest=4,
    )
    ready = stream_problem(MaxEnt(), crossings(), store)
    rng = np.random.default_rng(0)
    drawn = np.array([sample_problem(ready, store, 50, rng).statistics.rows.features[:, 0] for _ in range(200)])
    assert all(np.unique(row).size == 50 for row in drawn)
    hits = np.bincount(drawn.astype(int).ravel(), minlength=500)
    # 200 draws of one in ten: 20 expected, standard deviation 4.2; five of them hold for all 500 at once.
    assert np.all(np.abs(hits - 20) < 21)
    assert abs(hits[:250].sum() - 5000) < 250


def test_progress_reports_one_pass_per_iteration(tmp_path):
    demos, _ = walks(300, seed=9)
    store = write_features(crossings(), cut(demos, 100, 200), tmp_path)
    seen, entries = [], []
    mix = mixture(max_iter=2, progress=lambda done, total, _: entries.append((done, total)))
    fit_streamed(mix, crossings(), store, progress=lambda done, total, _: seen.append((done, total)))
    assert entries == [(0, 2), (1, 2), (2, 2)]
    assert seen == [(100, 300), (200, 300), (300, 300)] * 3


def test_non_convergence_warns_with_advice_for_a_stream(tmp_path):
    demos, _ = walks(300, seed=9)
    store = write_features(crossings(), [demos], tmp_path)
    with pytest.warns(ConvergenceWarning, match="1 iteration.*random_state"):
        fit_streamed(mixture(max_iter=1), crossings(), store)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_streamed(mixture(max_iter=300, resp_tol=1e-3), crossings(), store)


def test_a_streamed_mixture_predicts_saves_and_loads(tmp_path):
    demos, _ = walks(300, seed=9)
    store = write_features(crossings(), cut(demos, 100), tmp_path / "features")
    mix = fit_streamed(mixture().fit(crossings(), demos), crossings(), store)
    assert mix.labels_ is None
    mix.save(tmp_path / "saved")
    loaded = IntentMixture.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict_proba(demos), mix.predict_proba(demos))
    assert mix.summary(demos).n_free > 0
    with raises(InvalidParameter, parameter="demos"):
        mix.summary()


def test_several_environments_are_rejected(tmp_path):
    demos, _ = walks(20, seed=9)
    mdp, joint = combine_environments([(crossings(), demos), (crossings(), demos)])
    with raises(InvalidParameter, parameter="mdp", value=("0", "1")):
        fit_streamed(mixture(), mdp, write_features(mdp, [joint], tmp_path))


class Own(MaxEnt):
    def log_prob(self, mdp, thetas, demos):
        return super().log_prob(mdp, thetas, demos) / 2


@pytest.mark.parametrize(
    ("parameters", "parameter", "value"),
    [
        ({"irl": MaxCausalEnt()}, "irl", None),
        ({"irl": MaxEnt(condition="start")}, "condition", "start"),
        ({"irl": Own()}, "irl", None),
        ({"n_init": 3}, "n_init", 3),
        ({"refine": "split_merge"}, "refine", "split_merge"),
        ({"degenerate": "reseed"}, "degenerate", "reseed"),
        ({"init": np.zeros(300, dtype=int)}, "init", None),
        ({"embedding": np.zeros((300, 2))}, "embedding", None),
        ({"embedding": len}, "embedding", len),
        ({"irl": MaxEnt(max_length=3)}, "max_length", 7),
    ],
    ids=str,
)
def test_settings_that_a_stream_does_not_support_are_rejected(tmp_path, parameters, parameter, value):
    demos, _ = walks(300, seed=9)
    store = write_features(crossings(), [demos], tmp_path)
    with raises(InvalidDemos if parameter == "max_length" else InvalidParameter, parameter=parameter) as caught:
        fit_streamed(mixture(**parameters), crossings(), store)
    assert value is None or caught.value.value == value


def test_more_intents_than_rows_are_rejected(tmp_path):
    store = write_features(crossings(), [Demonstrations.from_lists([[0, 1]])], tmp_path)
    with raises(InvalidParameter, parameter="n_intents"):
        fit_streamed(mixture(), crossings(), store)


def test_the_store_of_another_mdp_is_rejected(tmp_path):
    demos, _ = walks(50, seed=9)
    store = write_features(crossings(), [demos], tmp_path)
    other = crossings().replace(gamma=0.9)
    with raises(InvalidParameter, parameter="mdp", value=other.fingerprint()):
        fit_streamed(mixture(), other, store)
    assert store.mdp() == crossings()


def test_a_row_with_nan_is_reported():
    def make(index: int) -> Rows:
        features = np.zeros((3000, 3))
        if index == 1:
            features[2500, 1] = np.nan
        return Rows(features, np.zeros(3000), np.ones(3000))

    store = FeatureStore.from_function(make, [3000, 3000], 3, longest=4)
    with raises(InvalidDemos, parameter="store", value="shard 1", index=2500):
        fit_streamed(mixture(), crossings(), store)


def test_a_bad_row_is_reported_for_any_window(tmp_path):
    rows = Rows(np.zeros((7000, 3)), np.zeros(7000), np.ones(7000))
    rows.features[6500] = np.nan
    provenance = {"source": "damaged", "source_checksum": "", "mdp": "", "by_group": False}
    StoredShard.write(tmp_path / "shard.json", rows, None, ShardInfo(7000, 7000, 4, 0, None, 0), provenance)
    store = FeatureStore((StoredShard.open(tmp_path / "shard.json"),), 3)
    with raises(InvalidDemos, parameter="store", value="damaged", index=6500):
        fit_streamed(mixture(), crossings(), store, block=2000)


def test_generated_rows_must_have_count_one():
    counts = np.array([1.0, 1.0, 2.0])
    store = FeatureStore.from_function(lambda i: Rows(np.zeros((3, 3)), np.zeros(3), counts), [3], 3, longest=4)
    with raises(InvalidParameter, parameter="function", value=2.0, index=(0, 2)):
        fit_streamed(mixture(), crossings(), store)


def test_a_checkpoint_without_a_folder_is_rejected_before_the_fit(tmp_path):
    calls = []
    store = FeatureStore.from_function(calls.append, [4], 3, longest=4)
    with raises(MissingFile, parameter="checkpoint", value=str(tmp_path / "nowhere" / "fit.npz")):
        fit_streamed(mixture(), crossings(), store, checkpoint=tmp_path / "nowhere" / "fit.npz")
    assert calls == []
