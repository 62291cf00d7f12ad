"""The command line with agents instead of demonstrations."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import limiirl as ll
from limiirl.cli import app

run = CliRunner().invoke


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    """Four agents on a line with rewards around 0 or around 1."""
    rng = np.random.default_rng(0)
    x = np.ones((40, 1, 1))
    moves = [rng.normal(mean, 0.3, size=(40, 1, 1)) for mean in (0.0, 0.0, 1.0, 1.0)]
    phi = [np.concatenate([-(a**2), -((a - 1) ** 2)], axis=2) for a in moves]
    path = tmp_path_factory.mktemp("agents") / "agents.npz"
    ll.Agents.from_arrays([x] * 4, moves, phi, names=["ann", "bob", "cid", "dan"]).save(path)
    return path


@pytest.mark.smoke
def test_agents_are_fitted_saved_and_predicted(agents, tmp_path):
    fitted = run(app, ["fit", str(agents), "-k", "2", "--model", "SigmaGIRL", "--out", str(tmp_path / "mix"), "--json"])
    assert fitted.exit_code == 0, fitted.output
    result = run(app, ["predict", str(tmp_path / "mix"), str(agents), "--json"])
    assert result.exit_code == 0, result.output
    table = json.loads(result.stdout)
    assert table["agent"] == ["ann", "bob", "cid", "dan"]
    first, second, third, fourth = table["intent"]
    assert first == second != third == fourth
    printed = run(app, ["predict", str(tmp_path / "mix"), str(agents)])
    assert printed.stdout.startswith("4 agents (")


def test_select_with_agents(agents):
    result = run(
        app, ["select", str(agents), "--model", "SigmaGIRL", "--max-intents", "2", "--folds", "0", "--resamples", "0"]
    )
    assert result.exit_code == 0, result.output
    assert "<- recommended" in result.stdout


def test_incompatible_models_and_files_are_rejected(agents, tmp_path):
    demos = tmp_path / "walks.csv"
    demos.write_text("demo,t,state\n0,0,0\n0,1,1\n1,0,0\n1,1,2\n")
    for arguments, parameter, value in (
        ([str(agents), "--model", "MaxEnt"], "model", "MaxEnt"),
        ([str(demos), "--model", "SigmaGIRL"], "model", "SigmaGIRL"),
        ([str(agents), "--model", "SigmaGIRL", "--mdp", str(agents)], "mdp", str(agents)),
        ([str(agents), "--model", "SigmaGIRL", "--gamma", "0.9"], "gamma", 0.9),
        ([str(agents), "--model", "SigmaGIRL", "--by-group"], "by_group", True),
    ):
        refused = run(app, ["fit", *arguments, "-k", "2", "--out", str(tmp_path / "mix")])
        assert refused.exit_code != 0
        assert isinstance(refused.exception, ll.errors.LimiirlError)
        assert (refused.exception.parameter, refused.exception.value) == (parameter, value)


def test_evaluate_rejects_agents(agents, tmp_path):
    run(app, ["fit", str(agents), "-k", "2", "--model", "SigmaGIRL", "--out", str(tmp_path / "mix")])
    for more, parameter, value in (([], "demos", str(agents)), (["--labels", "kind"], "labels", "kind")):
        refused = run(app, ["evaluate", str(tmp_path / "mix"), str(agents), *more])
        assert isinstance(refused.exception, ll.errors.InvalidFile)
        assert (refused.exception.parameter, refused.exception.value) == (parameter, value)
