"""The wheel holds what it should, and runs the README's example and a study where nothing else is installed."""

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from limiirl._version import __version__
from tests.readme import README, examples, run_example, tidy

ROOT = README.parent
# What `pip install limiirl` brings along, decided by measurement; anything heavier is an extra.
CORE = {
    "numpy",
    "scipy",
    "numba",
    "scikit-learn",
    "pyarrow",
    "matplotlib",
    "jinja2",
    "typer",
    "rich",
    "markdown-it-py",
    "joblib",
    "threadpoolctl",
}


def run(*command: str | Path, cwd: Path) -> str:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    assert result.returncode == 0, f"{' '.join(map(str, command))} failed:\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and with the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


# One test, so that one environment is made.
@pytest.mark.slow
def test_wheel_in_an_empty_environment_runs_the_readme_example_and_a_study(dist: Path, tmp_path: Path):
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata_name,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(metadata_name).decode("utf-8"))
    check_contents(names)
    check_metadata(metadata.items())

    run(sys.executable, "-m", "venv", tmp_path / "empty", cwd=tmp_path)
    python = tmp_path / "empty" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    installed = run(python, "-m", "pip", "list", "--format=freeze", cwd=tmp_path).split()
    assert {line.split("==")[0] for line in installed} <= {"pip", "setuptools"}, "the environment was not empty"
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", wheel, cwd=tmp_path)

    where = run(python, "-I", "-c", "import limiirl; print(limiirl.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path), f"imported from {where.strip()}, not from the wheel"
    (example, *_) = examples(README.read_text(encoding="utf-8"))
    assert tidy(run_example(example, python, tmp_path)) == tidy(example.output)
    # Experiments and the report need no extra, and the page's template is in the wheel.
    output = run(python.with_name("limiirl"), "reproduce", "margin", "--repeats", "1", cwd=tmp_path)
    assert "5 trials run" in output
    assert "</html>" in (tmp_path / "run" / "report" / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_sdist_holds_every_file_of_the_repository(dist: Path):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    tracked = {name for name in listing.split("\0") if name and not name.startswith(".")}
    assert names ^ tracked == {"PKG-INFO", ".gitignore"}


def check_contents(names: list[str]) -> None:
    assert "limiirl/__init__.py" in names
    assert "limiirl/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"limiirl"}
    assert not [name for name in names if Path(name).name.startswith(("test_", "conftest"))]


def check_metadata(headers: list[tuple[str, str]]) -> None:
    assert ("Version", __version__) in headers
    assert ("License-Expression", "MIT") in headers
    assert ("Requires-Python", ">=3.11") in headers
    needs = [value for key, value in headers if key == "Requires-Dist" and "extra ==" not in value]
    assert {re.split(r"[^\w-]", need)[0] for need in needs} == CORE
