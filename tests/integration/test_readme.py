"""The README's examples print what it says, and its links lead somewhere."""

import re
import sys
from pathlib import Path

import pytest

from tests.readme import README, Example, examples, run_example, tidy

pytestmark = pytest.mark.smoke

ROOT = README.parent
PAGES = sorted([README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
EXAMPLES = examples(README.read_text(encoding="utf-8"))


def prose(text: str) -> str:
    """Return a page without its code, where brackets have other meanings."""
    return re.sub(r"`[^`\n]+`", "", re.sub(r"^(```+).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL))


def link_targets(text: str) -> list[str]:
    """Return the targets of a page's links and images, in Markdown and HTML."""
    markdown = re.findall(r"\]\(\s*<?([^)\s>]+)", prose(text))
    return markdown + re.findall(r"(?:src|href)=\"([^\"]+)\"", prose(text))


def test_readme_has_an_example_with_its_output():
    assert EXAMPLES, "README.md needs a ```python block directly followed by a ```text block with its output"


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"example{i}" for i in range(len(EXAMPLES))])
def test_readme_example_prints_what_it_says(example: Example, tmp_path: Path):
    assert tidy(run_example(example, sys.executable, tmp_path)) == tidy(example.output)


def test_no_python_block_of_the_readme_goes_unchecked():
    assert README.read_text(encoding="utf-8").count("```python") == len(EXAMPLES)


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_readme_names_the_command(command: str):
    assert command in README.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_relative_links_exist(page: Path):
    broken = []
    for target in link_targets(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z][a-z0-9+.-]*:|#", target):
            continue
        if not (page.parent / target.split("#")[0]).exists():
            broken.append(target)
    assert not broken, f"{page.name} links to files that do not exist: {broken}"
