"""The pages of the documentation that are programs: their Python blocks, in order, print what their text blocks say."""

import re
import sys
from pathlib import Path

import pytest

from tests.readme import Example, run_example, tidy

DOCS = Path(__file__).resolve().parents[2] / "docs"
PROGRAMS = [
    "extending.md",
    "report.md",
    "evaluating.md",
    "inference.md",
    "experiments.md",
    "sigma_girl.md",
    "models.md",
    "route_choice.md",
    "roads.md",
    "forecasting.md",
    "streaming.md",
    "responsible_use.md",
    "own_data.md",
    "history.md",
    "switching.md",
    "datasets.md",
    "covariates.md",
    "environments.md",
]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", [pytest.param(PROGRAMS[0], marks=pytest.mark.smoke), *PROGRAMS[1:]])
def test_page_prints_what_it_says(name: str, tmp_path: Path):
    text = (DOCS / name).read_text(encoding="utf-8")
    program = Example("\n".join(blocks(text, "python")), "".join(blocks(text, "text")))
    assert program.code.count("print(") == len(blocks(text, "text")) > 0
    assert tidy(run_example(program, sys.executable, tmp_path)) == tidy(program.output)


@pytest.mark.parametrize("name", PROGRAMS)
def test_page_is_in_the_table_of_contents(name: str):
    assert f"\n{Path(name).stem}\n" in (DOCS / "index.md").read_text(encoding="utf-8")


def test_the_model_of_the_tutorial_has_thirty_lines():
    (model, *_) = blocks((DOCS / "extending.md").read_text(encoding="utf-8"), "python")
    body = model[model.index("class ") :]
    assert len([line for line in body.splitlines() if line.strip()]) <= 30


def test_every_page_with_python_is_tested():
    pages = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
    programs = {*PROGRAMS, "adapters.md"}  # test_adapters.py runs the examples of adapters.md
    assert [name for name, text in pages.items() if blocks(text, "python") and name not in programs] == []
