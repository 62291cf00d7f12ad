"""The option --device: it is passed to the model, and a missing GPU is one sentence."""

import contextlib
import io
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from limiirl import MDP, IntentMixture
from limiirl.cli import main
from limiirl.cli.inputs import make_mixture
from limiirl.cli.options import report_device, with_device
from limiirl.errors import InvalidParameter
from tests.gpu.emulator import compiler, install_emulator
from tests.helpers import raises
from tests.oracles.mixture import crossings, walks

NEEDS_COMPILER = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate a GPU")
WORLD = ("walks.parquet", "--mdp", "town.npz", "--set", "irl__max_length=7", "--set", "irl__bounds=[-5, 5]")
FIT = ("fit", *WORLD, "--intents", "2", "--json")
COMMANDS = {
    "fit": FIT,
    "infer": ("infer", *WORLD, "--max-intents", "2"),
    "select": ("select", *WORLD, "--max-intents", "2", "--folds", "2", "--resamples", "0"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files")
    crossings().save(path / "town.npz")
    walks(40, seed=2)[0].to_parquet(path / "walks.parquet")
    return path


def limiirl(folder: Path, *arguments: str) -> tuple[int, str, str]:
    out, err, shows = io.StringIO(), io.StringIO(), warnings.showwarning
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with pytest.raises(SystemExit) as ended:
                main(list(arguments))
        finally:
            warnings.showwarning = shows
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_gpu_is_one_sentence(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMIIRL_GPU", "off")
    code, out, err = limiirl(folder, *COMMANDS[command], "--device", "gpu")
    assert code != 0
    assert not out
    assert "LIMIIRL_GPU=off disables the GPU" in " ".join(err.split())
    assert "Traceback" not in err


def test_a_model_without_a_device_is_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMIIRL_GPU", "off")
    with raises(InvalidParameter, parameter="device"):
        make_mixture(2, "SigmaGIRL", with_device([], "gpu"))


@pytest.mark.parametrize("command", COMMANDS)
def test_auto_reports_the_device(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMIIRL_GPU", "off")
    given = (*COMMANDS[command], "--out", f"auto_{command}")
    _, _, err = limiirl(folder, *given, "--device", "auto")
    assert "--device auto: computing on the CPU (" in err
    _, _, err = limiirl(folder, *given)
    assert "computing on" not in err


@NEEDS_COMPILER
def test_auto_reports_the_gpu_or_its_absence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_emulator(monkeypatch)
    for choice, text in (("", "emulated."), ("off", "the CPU (no usable GPU;")):
        monkeypatch.setenv("LIMIIRL_GPU", choice)
        report_device("auto", MDP.from_edges(np.arange(5_000), np.arange(1, 5_001), 5_001))
        assert capsys.readouterr().err.startswith(f"--device auto: computing on {text}")


def test_a_device_cannot_be_given_twice() -> None:
    with raises(InvalidParameter, parameter="device", value="gpu"):
        with_device(["resp_tol=1e-3", "irl__device=cpu"], "gpu")


@NEEDS_COMPILER
def test_gpu_and_cpu_fits_agree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_emulator(monkeypatch)
    mixtures = []
    for device in ("gpu", "cpu"):
        code, out, err = limiirl(folder, *FIT, "--device", device, "--out", f"on_{device}")
        assert code == 0, err
        assert json.loads(out)["saved"] == f"on_{device}"
        mixtures.append(IntentMixture.load(folder / f"on_{device}"))
    assert [mixture.irl.device for mixture in mixtures] == ["auto", "cpu"]  # so that it can be loaded without a GPU
    # EM stops at a tolerance: the likelihood is more accurate than theta.
    np.testing.assert_allclose(mixtures[0].log_likelihood_, mixtures[1].log_likelihood_, rtol=1e-8)
