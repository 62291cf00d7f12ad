"""The comparison of the tables in docs/results with those of a commit, and the figures of the paper."""

import re
import subprocess
from pathlib import Path

import pytest

from tools.compare_results import Change, compare_tables, list_changes

ROOT = Path(__file__).resolve().parents[1]
OLD = "sums: 292,604 states\n  ours    0.50 s   6.0 x\n  theirs  3.0 s    1.0 x\n"


def test_equal_tables():
    assert compare_tables(OLD, OLD) == Change(0, 0, 0.0, "")


def test_numbers_are_compared_in_lines_with_equal_words():
    change = compare_tables(OLD, OLD.replace("0.50 s   6.0", "0.40 s   7.5"))
    assert (change.lines, change.numbers, change.where) == (0, 2, "ours    0.40 s   7.5 x")
    assert change.largest == pytest.approx(0.2, rel=1e-12)


def test_other_words_are_counted_as_lines():
    assert compare_tables(OLD, OLD + "  others  4.0 s    0.8 x\n").lines == 1
    assert compare_tables(OLD, OLD.replace("theirs", "others")).lines == 2


@pytest.mark.parametrize(("old", "new"), [("x -1.5e-3", "x 1.5e-3"), ("1,000 rows", "1,001 rows"), ("a 3", "a -3")])
def test_signs_exponents_and_thousands_are_read(old: str, new: str):
    assert compare_tables(old, new)[:2] == (0, 1)


def test_changed_new_and_removed_tables_are_listed(tmp_path: Path):
    def git(*words: str) -> None:
        names = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *names, *words], check=True, capture_output=True)

    folder = tmp_path / "docs" / "results"
    folder.mkdir(parents=True)
    for name in ("kept", "changed", "removed"):
        (folder / f"{name}.txt").write_text(OLD, encoding="utf-8")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "tables")
    (folder / "changed.txt").write_text(OLD.replace("6.0", "3.0"), encoding="utf-8")
    (folder / "removed.txt").unlink()
    (folder / "new.txt").write_text(OLD, encoding="utf-8")
    changes = list_changes(tmp_path, "HEAD")
    assert set(changes) == {f"docs/results/{name}.txt" for name in ("changed", "new", "removed")}
    change = changes["docs/results/changed.txt"]
    assert change is not None
    assert change.largest == pytest.approx(0.5, rel=1e-12)
    assert changes["docs/results/new.txt"] is changes["docs/results/removed.txt"] is None


PERFORMANCE = re.search(r"^# Performance\n(.*?)^# ", (ROOT / "paper/paper.md").read_text("utf-8"), re.M | re.S)


def figures() -> list[tuple[str, str]]:
    """Return the figures in each item of the paper's section on performance, with the files that it names."""
    assert PERFORMANCE is not None
    items = re.findall(r"^- (.*?)(?=^- |^$)", PERFORMANCE[1], re.M | re.S)
    # A sentence names its source, or the next sentence of the item does.
    return [
        (figure, name)
        for item in items
        for sentence in re.split(r"(?<=\)\.)\s", item)
        for name in re.findall(r"`([\w/]+\.txt)`", sentence)
        for figure in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", sentence.replace(f"`{name}`", ""))
    ]


def test_figures_of_the_paper_are_in_the_results():
    cited = figures()
    assert len(cited) > 15
    texts = {name: (ROOT / "docs" / "results" / name).read_text("utf-8") for _, name in cited}
    words = {"300": "L = 300"}
    missing = [
        (figure, name)
        for figure, name in cited
        if not re.search(rf"(?<![\d.]){re.escape(words.get(figure, figure))}(?![\d.]*\d)", texts[name])
    ]
    assert missing == []


def test_the_page_of_benchmarks_is_complete():
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    outputs = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs/results").rglob("*.txt")}
    assert set(re.findall(r"\{literalinclude\} (\S+)", page)) == outputs
    assert {name for name in outputs if f"({name})" not in page} == set()
    (names,) = re.findall(r"^BENCHMARKS := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    commands = re.findall(r"^\| `python -m benchmarks\.(\w+)` ", page, re.M)
    assert [name for name in commands if name in names.split()] == names.split()
