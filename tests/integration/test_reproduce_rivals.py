"""`limiirl reproduce rivals` on data made here, and switching intents of mice."""

import numpy as np
import pytest

from examples.mouse_labyrinth import maze, simulated, switching
from limiirl.report import write
from tests.helpers import read_error
from tests.oracles.runs import command


@pytest.fixture
def gridworld(tmp_path):
    """A file in the format of SWIRL's gridworld: two modes on a ring of four states that prefer one direction each."""
    rng, n, length = np.random.default_rng(0), 10, 40
    transition = np.zeros((4, 2, 4))
    for s in range(4):
        transition[s, 0, (s + 1) % 4] = transition[s, 1, (s - 1) % 4] = 1.0
    modes = np.tile(np.repeat([0, 1], length // 2), (n, 1))
    actions = np.where(rng.random((n, length)) < 0.9, modes, 1 - modes)
    steps = np.cumsum(1 - 2 * actions, axis=1) % 4
    states = np.column_stack([np.zeros(n, dtype=int), steps[:, :-1]])
    (tmp_path / "data" / "swirl_gridworld").mkdir(parents=True)
    arrays = {"states": states, "actions": actions, "modes": modes, "transition": transition}
    np.savez(tmp_path / "data" / "swirl_gridworld" / "gridworld.npz", **arrays)
    return tmp_path / "data"


@pytest.mark.slow
def test_a_part_is_run_resumed_and_reported(gridworld, tmp_path):
    call = ("reproduce", "rivals", "--data", gridworld, "--out", tmp_path / "run", "--part", "gridworld")
    done = command(*call, "--json").counts
    assert (done["run"], done["failed"]) == (9, [])
    scores = {row["method"]: row for row in done["scores"]["gridworld"]}
    assert scores["SWIRL S-2"]["held_out"] == -1.4641
    assert scores["SWIRL S-2"]["gain"] is None
    np.testing.assert_allclose(scores["uniform"]["held_out"], -np.log(2.0), rtol=1e-12)
    assert scores["limiirl: 2 switching intents"]["held_out"] > scores["uniform"]["held_out"] + 0.1
    assert scores["limiirl: 2 switching intents"]["n_units"] == 2
    assert [goal["goal"] for goal in done["goals"]["gridworld"]] == [
        "log-likelihood of SWIRL S-2", "accuracy of SWIRL S-2",
    ]  # fmt: skip
    names = {path.name for path in (tmp_path / "run" / "report").rglob("*.*")}
    assert {"index.html", "gridworld.csv", "gridworld-scores.tex", "gridworld-methods.png"} <= names
    again = command(*call)
    assert "0 trials run, 9 skipped (finished before)." in again.stdout


def test_options_are_checked(gridworld, tmp_path):
    out = ("--out", tmp_path / "run")
    missing = command("reproduce", "rivals", *out, "--json", code=2)
    assert read_error(missing.stderr, tmp_path)[0] == "--data"
    unknown = command("reproduce", "rivals", "--data", gridworld, "--part", "porto", *out, "--json", code=2)
    assert read_error(unknown.stderr, tmp_path) == ("--part", "porto")
    absent = command("reproduce", "rivals", "--data", gridworld, "--part", "mice", *out, "--json", code=2)
    assert read_error(absent.stderr, tmp_path)[0] == "--data"
    other = command("reproduce", "margin", "--part", "mice", *out, "--json", code=2)
    assert read_error(other.stderr, tmp_path)[0] == "--part"
    both = command("reproduce", "margin", "rivals", *out, "--json", code=2)
    assert read_error(both.stderr, tmp_path)[1] == "rivals"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_switching_intents_of_simulated_mice(tmp_path):
    recorded = simulated.simulate(0.8, n_mice=6, n_bouts=8, seed=0)
    settings = switching.Settings(n_intents=2, most=2, tol=1e-3)
    findings = switching.run(recorded, settings, lambda text: None)
    assert findings.demos.n_transitions == sum(len(maze.steps_of(nodes)) - 1 for nodes in recorded.bouts)
    assert findings.held_out.shape == (6,)
    # The first intent is that with more visits to the water port.
    water = switching.visits(findings.demos, findings.mixture.predict_proba(findings.demos))[:, maze.WATER]
    assert water[0] > water[1]
    np.testing.assert_allclose(
        sum(findings.quantities[f"share of moves, intent {k}"] for k in range(2)), 1.0, rtol=1e-9
    )
    # Three of six mice are restricted: 20 assignments.
    assert {row.n_assignments for row in findings.comparison.rows} == {20}
    rates, fractions = switching.switches_by_place(findings)
    np.testing.assert_allclose(fractions.sum(), 1.0, rtol=1e-12)
    changed = np.sum(
        [
            np.sum(np.diff(part) != 0)
            for part in np.split(findings.path, findings.demos.offsets[1:-1] - np.arange(1, 48))
        ]
    )
    np.testing.assert_allclose((rates * fractions[:, None]).sum(), 100.0 * changed / findings.path.size, rtol=1e-9)
    page = write(switching.report(findings, None, "command"), tmp_path / "page")
    assert {"bouts.png", "quantities.png", "rewards.png"} <= {path.name for path in page.parent.rglob("*.png")}
    assert "leave one mouse out" in switching.format_text(findings)
