"""Studies of the paper and beyond: settings, trials and names."""

import numpy as np
import pytest

from limiirl.cli import reproduce
from limiirl.errors import InvalidParameter
from limiirl.experiments.claims import CAUSAL, MANY
from limiirl.experiments.spec import BASE, METHODS, Study, method_spec
from limiirl.experiments.studies import (
    BETTER_STARTS,
    BEYOND_MODELS,
    BEYOND_STARTS,
    EARLY_STOPS,
    FIXED_LENGTH,
    GROUPS,
    PAPER_LENGTH,
    SIGMA_METHODS,
    STUDIES,
    SWEEPS,
    choose_studies,
    iterate_trials,
    join_method,
    model_of,
    start_of,
    starts_at,
)
from limiirl.experiments.trial import make_mixture, run_trial
from tests.helpers import raises

MODELS, ELEMENTS, WIND = (STUDIES[name] for name in GROUPS["beyond"])


def test_main_setting_of_the_paper():
    assert dict(BASE.world_parameters) == {"n_elements": 3, "wind": 0.1, "height": 6, "gamma": 0.99}
    assert (BASE.n_demos, BASE.n_test, BASE.n_intents, BASE.max_length) == (100, 100, 3, "longest")
    assert (BASE.model, BASE.model_parameters, BASE.world) == ("MaxEnt", (), "ElementWorld")


@pytest.mark.parametrize(
    ("name", "points", "read"),
    [
        ("demos", (20, 40, 100, 200, 400), lambda spec: spec.n_demos),
        ("wind", (0.0, 0.05, 0.1, 0.15, 0.2), lambda spec: dict(spec.world_parameters)["wind"]),
        ("clusters", (1, 2, 3, 4, 5), lambda spec: spec.n_intents),
        ("elements", (2, 3, 4, 5, 6), lambda spec: dict(spec.world_parameters)["n_elements"]),
        ("imbalance", (0.0, 0.1, 0.2, 0.3, 0.4), lambda spec: spec.imbalance),
        ("margin", (0.0, 0.05, 0.1, 0.15, 0.2), lambda spec: dict(spec.world_parameters)["wind"]),
    ],
)
def test_sensitivity_studies_vary_one_parameter(name, points, read):
    study = STUDIES[name]
    assert study.points == points
    assert study.repeats == (10 if name == "margin" else 20)
    for setting in study.settings:
        if not (name == "clusters" and setting.method == "supervised"):
            assert read(setting.spec) == setting.x
        assert setting.spec.n_test == 100
    middle = {"demos": 100, "wind": 0.1, "clusters": 3, "elements": 3, "imbalance": 0.0, "margin": 0.1}[name]
    for method in study.methods:
        assert study.spec(method, middle) == method_spec(BASE, method)


def test_the_elements_study_learns_one_intent_per_element():
    for setting in STUDIES["elements"].settings:
        assert setting.spec.n_intents == setting.x


def test_supervision_has_one_intent_per_label():
    assert {s.spec.n_intents for s in STUDIES["clusters"].settings if s.method == "supervised"} == {3}


def test_sensitivity_studies_have_all_methods():
    assert list(METHODS) == [
        "k-means, MLE",
        "k-means, mean",
        "GMM, MLE",
        "full GMM, MLE",
        "random rewards",
        "random responsibilities",
        "supervised",
    ]
    for name in (*SWEEPS, "table1", "boxplots"):
        assert set(STUDIES[name].methods) == set(METHODS)


def test_table_1_has_its_variants():
    table = STUDIES["table1"]
    assert (table.points, table.repeats) == ((PAPER_LENGTH, *EARLY_STOPS, FIXED_LENGTH), 100)
    assert [table.spec("k-means, MLE", stop).max_iter for stop in EARLY_STOPS] == [1, 2, 3]
    assert table.spec("random rewards", "3 iterations") is None
    assert table.spec("random rewards", FIXED_LENGTH).max_length == 50
    assert table.spec("GMM, MLE", FIXED_LENGTH) is None


def test_shared_trials_run_once():
    every = list(iterate_trials(choose_studies(["all"])))
    assert len(every) == len({(spec.hash, seed) for spec, seed in every})
    assert sum(spec == method_spec(BASE, "k-means, MLE") for spec, _ in every) == 100
    alone = sum(len(list(iterate_trials([study]))) for study in STUDIES.values())
    assert len(every) < alone


def test_groups_of_studies():
    papers = [study.name for study in choose_studies(["all"])]
    assert papers == [name for name in STUDIES if not name.startswith("beyond")]
    assert {"mlirl", "sigma-girl"} < set(papers)
    assert [study.name for study in choose_studies(["beyond", "models"])] == [*GROUPS["models"], *GROUPS["beyond"]]
    assert [study.name for study in choose_studies(["all", "beyond"])] == list(STUDIES)


def test_the_help_names_every_study_and_every_group():
    text = " ".join(reproduce.reproduce.__doc__.replace(",", " ").split())
    for name in (*STUDIES, *GROUPS, "all"):
        assert f" {name} " in f"{text} ", name


def test_study_of_ml_irl():
    study = STUDIES["mlirl"]
    assert (study.points, study.repeats, study.methods) == (("ML-IRL, paper's",), 20, STUDIES["boxplots"].methods)
    for setting in study.settings:
        assert dict(setting.spec.model_parameters) == {"q": "hard", "beta": 0.5, "bounds": (-10, 0)}
        plain = method_spec(BASE, setting.method)
        assert setting.spec.with_(model=plain.model, model_parameters=()) == plain


def test_study_of_sigma_girl():
    study = STUDIES["sigma-girl"]
    assert (study.points, study.repeats, study.methods) == ((5, 20, 100), 40, tuple(SIGMA_METHODS))
    for setting in study.settings:
        spec, given = setting.spec, dict(setting.spec.model_parameters)
        assert (spec.world, spec.model, spec.n_intents) == ("ContinuousPuddleWorld", "SigmaGIRL", 2)
        assert (spec.n_demos, spec.n_test) == (setting.x, setting.x)
        # The discount that the agents were trained for.
        assert given["gamma"] == dict(spec.world_parameters)["gamma"] == 0.999
        assert given["cluster_on"] == ("policy" if "policy" in setting.method else "reward")
    starts = {method: study.spec(method, 5).init for method in study.methods}
    assert [starts[f"{kind}, reward features"] for kind in ("k-means", "GMM")] == ["kmeans", "gmm"]
    assert [starts[f"random {what}"] for what in ("responsibilities", "rewards")] == ["random", "random_rewards"]
    assert study.spec("supervised", 5).supervised


def test_repeats_apply_to_every_study():
    assert {seed for _, seed in iterate_trials(choose_studies(["all"]), repeats=3)} == {0, 1, 2}
    assert {seed for _, seed in iterate_trials(choose_studies(["margin"]))} == set(range(10))


@pytest.mark.parametrize("names", [["nonsense"], [], ["table1", "Wind"]])
def test_unknown_studies_are_rejected_with_a_list(names):
    wrong = next((name for name in names if name not in STUDIES), "")
    with raises(InvalidParameter, parameter="studies", value=wrong) as caught:
        choose_studies(names)
    assert all(name in str(caught.value) for name in (*STUDIES, "models", "beyond", "all"))


@pytest.mark.parametrize("repeats", [0, -1, True])
def test_invalid_repeats_are_rejected(repeats):
    with raises(InvalidParameter, parameter="repeats", value=repeats):
        list(iterate_trials(choose_studies(["margin"]), repeats))


def test_unknown_methods_are_rejected():
    with raises(InvalidParameter, parameter="method", value="magic"):
        method_spec(BASE, "magic")


def test_a_study_needs_settings():
    with raises(InvalidParameter, parameter="settings"):
        Study("empty", "Empty", "x", 1, ())


def test_method_names_round_trip():
    for model in BEYOND_MODELS:
        for start in BEYOND_STARTS:
            method = join_method(model, start)
            assert (model_of(method), start_of(method)) == (model, start)
    with raises(InvalidParameter, parameter="model", value="magic"):
        join_method("magic", "supervised")
    with raises(InvalidParameter, parameter="start", value="magic"):
        join_method("MaxEnt", "magic")


def test_axes_of_the_studies_beyond_the_paper():
    assert (ELEMENTS.points, WIND.points) == ((2, 3, 4, 5, 6, 7, 8), (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3))
    for study in (ELEMENTS, WIND):
        assert study.repeats == 20
        for setting in study.settings:
            world = dict(setting.spec.world_parameters)
            e, w = (setting.x, 0.1) if study is ELEMENTS else (3, setting.x)
            assert (world["n_elements"], world["wind"], setting.spec.n_intents) == (e, w, e)
            assert (world["height"], world["gamma"], setting.spec.n_demos) == (6, 0.99, 100)


def test_all_models_and_starts_are_tried_in_the_setting_of_the_paper():
    wanted = {(model, start) for model in BEYOND_MODELS for start in BEYOND_STARTS if model != "Sigma-GIRL"}
    wanted |= {("Sigma-GIRL", start) for start in ("k-means, MLE", "random responsibilities", "supervised")}
    for study, x in ((ELEMENTS, 3), (WIND, 0.1)):
        assert {(model_of(s.method), start_of(s.method)) for s in study.settings if s.x == x} == wanted


def test_every_model_is_tried_with_k_means_and_supervision():
    for study in (ELEMENTS, WIND):
        for x in study.points:
            tried = {s.method for s in study.settings if s.x == x}
            assert {"MaxEnt", "MaxCausalEnt"} <= {model_of(method) for method in tried}
            for model in map(model_of, tried):
                assert {join_method(model, "k-means, MLE"), join_method(model, "supervised")} <= tried
    for e in MANY:
        assert all(set(BETTER_STARTS) <= set(starts_at(model, e, 0.1)) for model in ("MaxEnt", "MaxCausalEnt"))
    # The kinds of ML-IRL take long with many intents.
    for model in CAUSAL[1:]:
        assert BETTER_STARTS[0] in starts_at(model, 4, 0.1)
        assert [starts_at(model, e, 0.1) for e in (5, 6, 7)] == [("k-means, MLE", "supervised")] * 2 + [()]


def test_specifications_match_model_and_start():
    spec = ELEMENTS.spec("ML-IRL, averaged: best start", 4)
    assert (spec.model, dict(spec.model_parameters), spec.init, spec.reward_init) == (
        "MLIRL",
        {"q": "bv"},
        "best",
        "mle",
    )
    assert dict(ELEMENTS.spec("ML-IRL, paper's: supervised", 4).model_parameters)["bounds"] == (-10, 0)
    assert ELEMENTS.spec("MaxEnt: best start, no EM", 4).max_iter == 0
    assert ELEMENTS.spec("Sigma-GIRL: k-means, MLE", 4).n_agents == 2
    # The paper's own trials are among them, and are not run again.
    for start in ("k-means, MLE", "GMM, MLE", "random rewards", "supervised"):
        assert WIND.spec(join_method("MaxEnt", start), 0.1) == method_spec(BASE, start)
    assert len(list(iterate_trials(choose_studies(["beyond"]), 1))) < len(ELEMENTS.settings) + len(WIND.settings)


@pytest.mark.parametrize("model", BEYOND_MODELS)
def test_every_model_makes_a_mixture_and_a_record(model):
    spec = ELEMENTS.spec(join_method(model, "supervised"), 2).with_(n_demos=24, n_test=24)
    record = run_trial(spec, 0)
    assert type(make_mixture(spec, 0).irl).__name__ == spec.model
    assert np.shape(record.thetas) == (2, 4)
    assert record.gevd >= 0.0
    assert record.max_length is None or model == "MaxEnt"


def test_study_of_all_models_in_the_setting_of_the_paper():
    models = [name for name in BEYOND_MODELS if name != "Sigma-GIRL"]
    assert MODELS.repeats == 100
    assert set(MODELS.methods) == {join_method(m, start) for m in models for start in ("k-means, MLE", "supervised")}
    (x,) = MODELS.points
    # The same trials as those of the sweeps, so that a world is fitted once.
    assert all(setting.spec == ELEMENTS.spec(setting.method, x) for setting in MODELS.settings)
