"""The studies are the paper's, and the same trial in two of them is one trial."""

import subprocess
import sys

import pytest

from limiirl.cli import reproduce
from limiirl.errors import InvalidParameter
from limiirl.experiments.spec import BASE, METHODS, Study, method_spec
from limiirl.experiments.studies import (
    EARLY_STOPS,
    FIXED_LENGTH,
    GROUPS,
    PAPER_LENGTH,
    SIGMA_METHODS,
    STUDIES,
    SWEEPS,
    choose,
    tasks,
)
from tests.helpers import raises


def test_the_main_setting_is_the_papers():
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
def test_sweeps_have_the_papers_values_and_change_nothing_else(name, points, read):
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


def test_as_many_intents_are_learned_as_there_are_elements():
    for setting in STUDIES["elements"].settings:
        assert setting.spec.n_intents == setting.x


def test_supervision_has_as_many_intents_as_labels_even_where_the_others_have_not():
    assert {s.spec.n_intents for s in STUDIES["clusters"].settings if s.method == "supervised"} == {3}


def test_every_method_of_the_paper_is_in_every_sweep():
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


def test_a_trial_that_studies_share_is_run_once():
    every = list(tasks(choose(["all"])))
    assert len(every) == len({(spec.hash, seed) for spec, seed in every})
    assert sum(spec == method_spec(BASE, "k-means, MLE") for spec, _ in every) == 100
    alone = sum(len(list(tasks([study]))) for study in STUDIES.values())
    assert len(every) < alone


def test_all_is_the_papers_and_groups_are_several():
    papers = [study.name for study in choose(["all"])]
    assert papers == [name for name in STUDIES if not name.startswith("beyond")]
    assert {"mlirl", "sigma-girl"} < set(papers)
    assert [study.name for study in choose(["beyond", "models"])] == [*GROUPS["models"], *GROUPS["beyond"]]
    assert [study.name for study in choose(["all", "beyond"])] == list(STUDIES)


def test_the_help_names_every_study_and_every_group():
    told = reproduce.Names.__metadata__[0].help
    for name in (*STUDIES, *GROUPS, "all"):
        assert f" {name}" in f" {told}", name


def test_ml_irl_is_the_papers_with_the_methods_of_the_box_plots():
    study = STUDIES["mlirl"]
    assert (study.points, study.repeats, study.methods) == (("ML-IRL, paper's",), 20, STUDIES["boxplots"].methods)
    for setting in study.settings:
        assert dict(setting.spec.model_parameters) == {"q": "hard", "beta": 0.5, "bounds": (-10, 0)}
        plain = method_spec(BASE, setting.method)
        assert setting.spec.with_(model=plain.model, model_parameters=()) == plain


def test_sigma_girl_has_both_feature_choices_and_every_number_of_trajectories():
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
    assert {seed for _, seed in tasks(choose(["all"]), repeats=3)} == {0, 1, 2}
    assert {seed for _, seed in tasks(choose(["margin"]))} == set(range(10))


@pytest.mark.parametrize("names", [["nonsense"], [], ["table1", "Wind"]])
def test_unknown_studies_are_refused_with_the_known_ones(names):
    wrong = next((name for name in names if name not in STUDIES), None)
    with raises(InvalidParameter, parameter="studies", value=wrong) as caught:
        choose(names)
    assert all(name in str(caught.value) for name in (*STUDIES, "models", "beyond", "all"))


@pytest.mark.parametrize("repeats", [0, -1, True])
def test_repeats_must_be_a_number_of_worlds(repeats):
    with raises(InvalidParameter, parameter="repeats", value=repeats):
        list(tasks(choose(["margin"]), repeats))


def test_unknown_methods_are_refused():
    with raises(InvalidParameter, parameter="method", value="magic"):
        method_spec(BASE, "magic")


def test_a_study_needs_settings():
    with raises(InvalidParameter, parameter="settings"):
        Study("empty", "Empty", "x", 1, ())


def test_studies_are_built_when_one_is_looked_up():
    code = (
        "from limiirl.experiments import studies\n"
        "assert '_studies' not in vars(studies.STUDIES)\n"
        "assert studies.STUDIES['margin'].name == 'margin'\n"
        "assert '_studies' in vars(studies.STUDIES)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
