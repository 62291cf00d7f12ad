import numpy as np
import pytest

from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, SigmaGIRL, select_intents
from limiirl.errors import DegenerateIntentWarning, InvalidParameter
from limiirl.metrics import check_fit, evaluate
from limiirl.report import Figure, Fold, write
from limiirl.report.intents import intents_report, python_code
from limiirl.report.intents.view import make_view
from limiirl.worlds import ElementWorld
from tests.helpers import raises
from tests.oracles.sigma import regulators


@pytest.fixture(scope="module")
def world():
    return ElementWorld(n_elements=2, height=6, seed=1)


@pytest.fixture(scope="module")
def fitted(world):
    demos, _ = world.sample(60, seed=1)
    groups = np.repeat(["ann", "bob", "eve"], 20)
    return IntentMixture(2, MaxEnt(max_length=30), random_state=0).fit(world.mdp, demos.replace(groups=groups))


def titles(report):
    return [section.title for section in report.sections]


def test_the_page_has_findings_figures_and_tables(fitted, tmp_path):
    page = fitted.report(tmp_path / "page", intent_names=["<wet>", "dry"]).read_text()
    assert "&lt;wet&gt;" in page
    assert "<wet>" not in page
    for name in ("rewards", "memberships", "groups", "order", "timeline", "visits", "trajectories"):
        for ending in ("svg", "png", "csv"):
            assert (tmp_path / "page" / "figures" / f"{name}.{ending}").stat().st_size > 50, name
    assert (tmp_path / "page" / "tables" / "sizes.tex").is_file()
    assert "<script" not in page


def test_the_csv_file_of_the_rewards_contains_every_reward(fitted, tmp_path):
    fitted.report(tmp_path)
    rows = (tmp_path / "figures" / "rewards.csv").read_text().splitlines()[1:]
    assert len(rows) == fitted.thetas_.size


def test_problems_are_reported_first():
    mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    demos = Demonstrations.from_lists([[0, 1]] * 4)
    with pytest.warns(DegenerateIntentWarning):
        mix = IntentMixture(2, MaxEnt(bounds=(-3, 3)), random_state=0).fit(mdp, demos)
    report = intents_report(mix)
    problems = [
        item for section in report.sections for item in section.items if getattr(item, "verdict", "") == "problem"
    ]
    assert problems
    assert report.lead.startswith(f"**{problems[0].title}")


def test_selection_and_evaluation_have_sections(world, fitted):
    demos, _ = world.sample(30, seed=1)
    test, labels = world.sample(20, seed=5)
    selection = select_intents(world.mdp, demos, [1, 2], irl=MaxEnt(max_length=30), folds=3, resamples=0, seed=0)
    scores = evaluate(fitted, test, labels=labels)
    report = intents_report(fitted, test, selection=selection, evaluation=scores)
    assert {"criteria"} < {figure.name for figure in report.figures}
    assert {"numbers"} < {table.name for table in report.tables}
    assert "Held-out accuracy" in titles(report)
    assert f"{-scores.nll.per_step:.3f}".replace("-", "−") in dict(report.highlights).values()


def test_a_loaded_mixture_without_data_has_a_short_page(fitted, tmp_path):
    fitted.save(tmp_path / "mix")
    report = intents_report(IntentMixture.load(tmp_path / "mix"))
    assert {figure.name for figure in report.figures} == {"rewards", "memberships"}
    assert write(report, tmp_path / "page").is_file()


def test_agents_have_a_page(tmp_path):
    agents = regulators(np.array([[0.9, 0.1], [0.3, 0.7]])[[0, 1, 1, 0]], 100, 0)
    mix = IntentMixture(2, SigmaGIRL(gamma=0.9), random_state=0).fit(None, agents)
    report = intents_report(mix)
    assert "Visits" not in titles(report)
    assert write(report, tmp_path).is_file()


def test_one_intent_and_one_demonstration_have_a_page(world, tmp_path):
    demos, _ = world.sample(1, seed=1)
    assert IntentMixture(1, MaxEnt(max_length=30)).fit(world.mdp, demos).report(tmp_path).is_file()


def test_the_program_repeats_the_fit(fitted, world):
    demos, _ = world.sample(60, seed=1)
    code = python_code(make_view(fitted))
    scope = {"demos": demos, "mdp": world.mdp}
    lines = [line for line in code.splitlines() if line.startswith(("import", "mix = ", "mix.fit"))]
    exec("\n".join(lines), scope)  # noqa: S102
    np.testing.assert_array_equal(scope["mix"].thetas_, fitted.thetas_)


def test_the_program_reads_the_recorded_file(fitted, world, tmp_path, monkeypatch):
    demos, _ = world.sample(60, seed=1)
    rows = [(i, t, s) for i, demo in enumerate(demos) for t, s in enumerate(demo.states)]
    text = "\n".join(["animal,step,place", *(f"{i},{t},{s}" for i, t, s in rows)])
    (tmp_path / "walks.csv").write_text(text + "\n")
    fitted.save(tmp_path / "mixture")
    copy = IntentMixture.load(tmp_path / "mixture")
    recorded = {"path": "../walks.csv", "columns": "demo=animal, t=step,state=place", "cut": 50, "by_group": False}
    copy.data_file_ = recorded
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    lines = [line for line in python_code(make_view(copy)).splitlines() if line.startswith(("import", "demos", "mdp"))]
    exec("\n".join(lines), scope)  # noqa: S102
    assert scope["mdp"] == world.mdp
    assert scope["demos"].n_steps == demos.n_steps
    assert python_code(make_view(copy)).count(".cut(50)") == 1


def test_plots_of_a_mixture(fitted):
    assert [tick.get_text() for tick in fitted.plot().axes[0].get_yticklabels()]
    assert fitted.plot_memberships(intent_names=["a", "b"]).legends[0].get_texts()[1].get_text() == "b"


@pytest.mark.parametrize("demos", [3, "walks.csv", object()])
def test_plots_refuse_other_objects_than_demonstrations(fitted, demos):
    for plot in (fitted.plot, fitted.plot_memberships):
        with raises(InvalidParameter, parameter="demos", value=type(demos).__name__):
            plot(demos)


def test_examples_are_the_most_certain_demonstrations(fitted):
    view = make_view(fitted)
    for k in range(2):
        chosen = view.examples(k)
        assert chosen.size == 3
        own = fitted.responsibilities_[fitted.labels_ == k, k]
        assert np.all(fitted.responsibilities_[chosen, k] >= np.median(own) - 1e-3)


def test_undetermined_rewards_are_collapsed_and_visits_come_first():
    child = np.arange(1, 15)
    twice = np.tile(np.eye(15), 2)  # only the sum of the two rewards of a state is identified
    src, dst = np.r_[(child - 1) // 2, child], np.r_[child, (child - 1) // 2]
    mdp = MDP.from_edges(src, dst, gamma=0.8, state_features=twice)
    left = np.r_[np.zeros(7), np.ones(4), -np.ones(4), np.zeros(15)]
    demos = MaxCausalEnt().sample(mdp, left, 40, 0, max_length=12)
    demos += MaxCausalEnt().sample(mdp, -left, 40, 1, max_length=12)
    mix = IntentMixture(2, MaxCausalEnt(), init=[0] * 40 + [1] * 40, max_iter=0).fit(mdp, demos)
    report = intents_report(mix)
    assert titles(report)[1] == "Visits"
    first = report.sections[0].items
    assert not any(isinstance(item, Figure) for item in first)
    assert any(isinstance(item, Fold) and isinstance(item.items[0], Figure) for item in first)


def test_adequacy_has_a_section(fitted, tmp_path):
    checked = check_fit(fitted, simulations=2)
    report = intents_report(fitted, adequacy=checked)
    assert "What the model explains worst" in titles(report)
    write(report, tmp_path)
    rows = (tmp_path / "tables" / "residuals.csv").read_text().splitlines()
    assert len(rows) == 1 + 3 * 5
    assert checked.name_demo(int(checked.by_demo.worst(1).index[0])) in rows[1]
    assert len((tmp_path / "figures" / "adequacy.csv").read_text().splitlines()) == 1 + checked.calibration.count.size
